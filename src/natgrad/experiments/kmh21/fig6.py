"""[KMH21] Figure 6: the sparse classification of Figure 4 in fewer dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21 import separable_cells as cells
from natgrad.experiments.kmh21 import separable_claims
from natgrad.experiments.kmh21.separable_curves import (
    NGD,
    POPULATION,
    Key,
    Table,
    curve_arrays,
    curve_cells,
    grid,
    task,
)
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BOTH = ("quick", "paper")
_WHERE = "[KMH21] Figure 6"


@dataclass(frozen=True, kw_only=True)
class Fig6:
    """Sparse separators in 50 dimensions, EGD at depths 1 to 5 and NGD."""

    dim: int = 50
    """Number of features D."""
    ones: int = 5
    """Ones in the true separator; its other coefficients are zero."""
    observations: tuple[int, ...] = (20, 30, 40, 50, 60, 75, 100, 150, 200, 300)
    """Numbers of data N; D must be among them."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Depths L of EGD; 1 to 5 must be among them."""
    scales: tuple[float, ...] = (0.1, 0.1, 0.1, 0.2, 0.3)
    """Initial value, for each depth, of all factors but the first, which is zero. Our choice."""
    until: float = 1e6
    """Final time on the mean loss: the paper's 2 million steps, were they of length ½."""
    seeds: int = 20
    """Number of data sets."""
    few: int = 40
    """N < D of the panel on logits."""
    many: int = 100
    """N > D of the claims about depth."""
    gaussian_scales: tuple[float, ...] = (0.3, 1.0)
    """Standard deviations of the factors at the start of EGD at L = 5, at every N."""
    gaussian_seeds: int = 10
    """Data sets for these starts."""
    sample: int = 5000
    """Unlabelled inputs that stand for the population in a check of its closed form."""
    sampled: tuple[int, ...] = (20, 50, 100, 300)
    """N of that check."""
    slow_seeds: int = 5
    """Data sets of that check."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave a claim without a number."""
        needed = {self.dim, self.few, self.many}
        if not needed | set(self.sampled) <= set(self.observations):
            raise InvalidInputError(
                f"observations must contain dim, few, many ({sorted(needed)}) and sampled, but "
                f"observations = {self.observations} and sampled = {self.sampled}."
            )
        if not self.few < self.dim < self.many:
            raise InvalidInputError(
                f"dim must lie between few and many, but {self.few}, {self.dim}, {self.many} came."
            )
        if len(self.scales) != len(self.depths) or not {1, 2, 3, 4, 5} <= set(self.depths):
            raise InvalidInputError(
                "depths must contain 1 to 5 and scales have one number for each, but got "
                f"{self.depths} and {self.scales}."
            )
        if max(self.slow_seeds, self.gaussian_seeds) > self.seeds or not self.gaussian_scales:
            raise InvalidInputError(
                f"slow_seeds and gaussian_seeds must be at most seeds, and gaussian_scales hold a "
                f"number, but {self.slow_seeds}, {self.gaussian_seeds}, {self.seeds} and "
                f"{self.gaussian_scales} came."
            )


def compute(config: Fig6, sweep: Sweep) -> Arrays:
    """Return all panels' arrays."""
    asked: dict[Key, Cell] = {}
    few = range(config.slow_seeds)
    for n in config.sampled:
        for seed in few:
            given = cells.Population(task(config, n, seed), 100.0, config.sample)
            asked["sample", n, seed] = Cell(cells.natural_population, given, f"sample, N={n}")
            closed = cells.Population(task(config, n, seed), 100.0)
            asked["closed", n, seed] = Cell(cells.natural_population, closed, f"closed, N={n}")
    for n in sorted(config.observations, reverse=True):
        for scale in config.gaussian_scales:
            for seed in range(config.gaussian_seeds):
                start = cells.Euclidean(
                    task(config, n, seed), 5, scale, (config.until,), "gaussian"
                )
                label = f"Gaussian start {scale:g}, N={n}, seed {seed}"
                asked["gaussian", scale, n, seed] = Cell(cells.euclidean_flow, start, label)
    asked |= curve_cells(config, [n for n in config.observations if n > config.dim])
    found = dict(zip(asked, sweep(list(asked.values()), "flows and limits"), strict=True))
    path = [n for n in config.observations if n > config.dim]
    arrays = curve_arrays(
        config,
        found,
        sampled_n=config.sampled,
        slow_seed=list(few),
        path_n=path,
        gaussian_scale=config.gaussian_scales,
        gaussian_seed=list(range(config.gaussian_seeds)),
    )
    seeds, dims = list(range(config.seeds)), ("sampled_n", "slow_seed")
    for name in ("sample", "closed"):
        values = grid(found, "accuracy", [name], config.sampled, few)[0]
        arrays.add(f"{name}_accuracy", values, *dims)
    started = (config.gaussian_scales, config.observations, list(range(config.gaussian_seeds)))
    gaussian = grid(found, "accuracy", ["gaussian"], *started)[0]
    arrays.add("gaussian", gaussian, "gaussian_scale", "n", "gaussian_seed")
    for quantity in ("path_cosine", "later_basis"):
        arrays.add(quantity, grid(found, quantity, [NGD], path, seeds)[0], "path_n", "seed")
    return arrays


def claims(config: Fig6, arrays: Arrays) -> Sequence[Claim]:
    """Return what the curves show."""
    return [
        *_depth(config, arrays),
        *separable_claims.natural(config, arrays, where=_WHERE, dip=0.58),
        _sample(config, arrays),
        *separable_claims.vertex(config, arrays, arrays.coordinates["path_n"]),
        separable_claims.population_refuted(config, arrays),
    ]


def _depth(config: Fig6, arrays: Arrays) -> list[Claim]:
    accuracy, many = Table(arrays), config.many
    shallow, deepest = accuracy("EGD L=1", many), accuracy("EGD L=5", many)
    return [
        *(
            Claim(
                id=f"depth-{depth}",
                statement=f"N = {many}: accuracy of EGD L = {depth} less that of L = 1",
                source=_WHERE,
                **over_seeds(accuracy(f"EGD L={depth}", many) - shallow),
                relation=">=",
                bound=0.05,
                presets=_BOTH,
            )
            for depth in (2, 3)
        ),
        Claim(
            id="depth-4",
            statement=f"N = {many}: “L = 4 would do at least as well as L = 1”: the difference",
            source=_WHERE + ", caption: an expectation",
            **over_seeds(accuracy("EGD L=4", many) - shallow),
            relation=">=",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="paper-depth-5",
            statement=f"N = {many}: “the 5-layer network performs poorly”: L = 5 less L = 1",
            source=_WHERE + ", caption",
            **over_seeds(deepest - shallow),
            relation="<=",
            bound=0.0,
            presets=_BOTH,
            expected=False,
        ),
        *_gaussian(config, arrays),
    ]


def _gaussian(config: Fig6, arrays: Arrays) -> list[Claim]:
    """Return what Gaussian factors do to L = 5, where they explain “poorly” and where not."""
    names, kept = arrays.coordinates["method"], slice(config.gaussian_seeds)
    shallow, deepest = (
        arrays["accuracy"][names.index(f"EGD L={depth}"), :, kept] for depth in (1, 5)
    )
    found, observations = arrays["gaussian"], np.array(config.observations)
    many, most = config.observations.index(config.many), int(observations.argmax())
    return [
        Claim(
            id="gaussian-depth-5",
            statement=f"N = {config.many}: what L = 5 loses by Gaussian factors, least over scales "
            "and data sets",
            source="natgrad, explains “poorly”",
            **over_seeds((deepest - found)[:, many].min(axis=0), "min"),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-poor",
            statement=f"N = {config.many}: share of data sets in which L = 5 from Gaussian factors "
            "is below L = 1, least over scales",
            source="natgrad, explains “poorly”",
            **over_seeds((found[:, many] < shallow[many]).mean(axis=1), "min"),
            relation=">=",
            bound=0.5,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-many",
            statement=f"but not with many data, N = {observations[most]}: L = 5 from Gaussian "
            "factors less L = 1, least over scales and data sets",
            source="natgrad",
            **over_seeds((found[:, most] - shallow[most]).min(axis=0), "min"),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
    ]


def _sample(config: Fig6, arrays: Arrays) -> Claim:
    sample = np.abs(arrays["sample_accuracy"] - arrays["closed_accuracy"])
    return Claim(
        id="population-sample",
        statement=f"accuracy with a sample of {config.sample} inputs as the population less "
        "that of its closed form, size, mean over N",
        source="[KMH21] Figure 4: “a much larger set of samples”",
        **over_seeds(sample.mean(axis=0)),
        relation="<=",
        bound=0.01,
        presets=_BOTH,
    )


def draw(config: Fig6, arrays: Arrays) -> "Figure":
    """Return accuracy, logits and coefficients."""
    from natgrad.experiments.kmh21.fig6_picture import picture

    return picture(config, arrays)


def departures(config: Fig6, arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and where the paper's text and our numbers part."""
    accuracy, many = Table(arrays), config.many
    at, most = config.observations.index(many), max(config.observations)
    gaussian = 100 * arrays["gaussian"]

    def mean(method: str) -> str:
        return f"{100 * accuracy(method, many).mean():.1f} %"

    scales = ", ".join(
        f"{s:g} (L = {d})" for d, s in zip(config.depths, config.scales, strict=True) if d > 1
    )
    return [
        "Accuracy is exact, 1 − ∠(β, β*)/π for Gaussian inputs; EGD is gradient flow to "
        f"t = {config.until:g} on the mean loss from w₁ = 0 and the other factors {scales}. The "
        "paper prints neither step length nor initialisation.",
        f"“The 5-layer network performs poorly”: from this start L = 5 reaches {mean('EGD L=5')} "
        f"at N = {many}, L = 1 {mean('EGD L=1')}. From Gaussian factors (broken lines, "
        f"{config.gaussian_seeds} data sets) L = 5 has {gaussian[:, at].mean():.1f} % there, "
        f"{gaussian[:, at].min():.0f} to {gaussian[:, at].max():.0f} % by data set and scale, and "
        f"{gaussian[:, config.observations.index(most)].mean():.1f} % at N = {most}: the start, "
        "and too few data for it, not the depth.",
        "“Population Fisher worse than EGD”: not worse than EGD L = 1 "
        f"({mean(POPULATION)} and {mean('EGD L=1')} at N = {many}). A sample of "
        f"{config.sample} inputs gives what the closed form gives.",
    ]


EXPERIMENT = register(
    Experiment(
        name="kmh21/fig6",
        title="The same in 50 dimensions: depth helps, also L = 5; NGD dips at N = D",
        source="[KMH21] Figure 6",
        presets={
            "smoke": Fig6(
                dim=12,
                ones=2,
                observations=(8, 12, 24),
                until=1e3,
                seeds=2,
                few=8,
                many=24,
                gaussian_seeds=1,
                sample=500,
                sampled=(24,),
                slow_seeds=1,
            ),
            "quick": Fig6(
                observations=(20, 40, 50, 100, 200),
                seeds=5,
                gaussian_seeds=3,
                sampled=(20, 100),
                slow_seeds=2,
            ),
            "paper": Fig6(),
        },
        minutes={"smoke": 0.1, "quick": 1, "paper": 5},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)
