"""Claims of Figure 4: what the paper says, what holds, what does not and why."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.experiments.kmh21.separable_curves import NGD, POPULATION
from natgrad.lab.arrays import Arrays
from natgrad.lab.claims import Claim, over_seeds

if TYPE_CHECKING:
    from natgrad.experiments.kmh21.fig4 import Fig4

_BOTH = ("quick", "paper")
_LOOP = 2_000_000  # steps, [KMH21] §3.1
_WHERE = "[KMH21] Figure 4, left"


class Table:
    """A quantity of `arrays` by method and number of data: one number a seed.

    Example:
        >>> arrays = Arrays(method=["NGD"], n=[5])
        >>> arrays.add("accuracy", [[[0.6, 0.7]]], "method", "n", "seed")
        >>> Table(arrays)("NGD", 5).tolist()
        [0.6, 0.7]
    """

    def __init__(self, arrays: Arrays, quantity: str = "accuracy") -> None:
        self._values = arrays[quantity]
        self._methods = arrays.coordinates["method"]
        self.observations: list[int] = arrays.coordinates["n"]

    def __call__(self, method: str, n: int) -> npt.NDArray[np.float64]:
        """Return one number a seed."""
        values: npt.NDArray[np.float64] = self._values[
            self._methods.index(method), self.observations.index(n)
        ]
        return values

    def best_gap(self, method: str, others: Sequence[str], least: int) -> Any:
        """Return the largest, over N ≥ least and others, of mean(method) − mean(other), by seed."""
        gaps = [
            self(method, n) - self(other, n)
            for n in self.observations
            if n >= least
            for other in others
        ]
        return max(gaps, key=lambda gap: float(gap.mean()))


def claims(config: "Fig4", arrays: Arrays) -> Sequence[Claim]:
    """Return all claims."""
    return [
        *_generalisation(config, arrays),
        *_natural(config, arrays),
        *_structure(config, arrays),
        *_paper(config, arrays),
        *_explanations(config, arrays),
        *_beyond(config, arrays),
        *_cost(config, arrays),
    ]


def _generalisation(config: "Fig4", arrays: Arrays) -> list[Claim]:
    accuracy, few = Table(arrays), config.few
    bounds: list[tuple[str, Any, float]] = [
        ("EGD L=2", ">=", 0.85),
        ("EGD L=3", ">=", 0.92),
        ("EGD L=1", "<", 0.70),
        (NGD, "<", 0.70),
    ]
    return [
        Claim(
            id=f"few-data-{name.lower().replace(' ', '-').replace('=', '')}",
            statement=f"N = {few} < D: accuracy of {name}",
            source=_WHERE + ": “up to 90 %”",
            **over_seeds(accuracy(name, few)),
            relation=relation,
            bound=bound,
            presets=_BOTH,
        )
        for name, relation, bound in bounds
    ]


def _natural(config: "Fig4", arrays: Arrays) -> list[Claim]:
    accuracy = Table(arrays)
    below = [i for i, n in enumerate(config.observations) if n < config.dim]
    cosines, ols = arrays["ols_cosine"][below], arrays["ols_accuracy"][below]
    measured = arrays["accuracy"][arrays.coordinates["method"].index(NGD)][below]
    egd = [f"EGD L={depth}" for depth in config.depths]
    at_dim = accuracy(POPULATION, config.dim) - accuracy(NGD, config.dim)
    return [
        Claim(
            id="ngd-is-ols",
            statement="N < D: cosine between NGD and the shortest least-squares interpolant, least",
            source="[KMH21] Theorem 3 and the text after it",
            **over_seeds(cosines.min(axis=0), "min"),
            relation=">=",
            bound=0.9999,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="ngd-is-ols-accuracy",
            statement="N < D: difference of their accuracies, largest",
            source="[KMH21] Theorem 3 and the text after it",
            **over_seeds(np.abs(measured - ols).max(axis=0), "max"),
            relation="<=",
            bound=0.002,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="ngd-dip",
            statement="N = D: accuracy of NGD, sample Fisher",
            source=_WHERE,
            **over_seeds(accuracy(NGD, config.dim)),
            relation="<",
            bound=0.56,
            presets=_BOTH,
        ),
        Claim(
            id="ngd-below-egd",
            statement=f"NGD, sample Fisher, less EGD: largest over depths and N ≥ {config.few}",
            source=_WHERE + ": “worse than EGD even when N ≥ D”",
            **over_seeds(accuracy.best_gap(NGD, egd, config.few)),
            relation="<",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="population-lifts",
            statement="N = D: accuracy gained by the population Fisher",
            source="[KMH21] §3.1: “remedied”",
            **over_seeds(at_dim),
            relation=">=",
            bound=0.15,
            presets=_BOTH,
        ),
        Claim(
            id="population-sample",
            statement=f"N = D, t = 1: accuracy with a sample of {config.sample} inputs as the "
            "population, less that of its closed form, size (it falls like D over the sample)",
            source="[KMH21] Figure 4: “a much larger set of samples”",
            value=abs(float(np.diff(arrays["sample_accuracy"])[0])),
            relation="<=",
            bound=0.02,
            presets=_BOTH,
        ),
    ]


def _structure(config: "Fig4", arrays: Arrays) -> list[Claim]:
    share, most = Table(arrays, "share"), max(config.observations)
    two, one, natural = (share(name, most) for name in ("EGD L=2", "EGD L=1", NGD))
    found = [
        Claim(
            id="logits",
            statement=f"N = {config.few}, t = 10⁴: largest |sₙ(t)/t − yₙ| under NGD",
            source="[KMH21] Theorem 4; Figure 4, middle",
            **over_seeds(arrays["logit_error"], "max"),
            relation="<=",
            bound=0.01,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="share-l2",
            statement=f"N = {most}: share of ‖β‖₂ on the true coordinates, EGD L = 2",
            source="[KMH21] Figure 4, right",
            **over_seeds(two),
            relation=">=",
            bound=0.95,
            presets=_BOTH,
        ),
        Claim(
            id="share-order",
            statement="the shares fall from L = 2 to L = 1 to NGD: least of the two steps",
            source="[KMH21] Figure 4, right",
            **over_seeds(np.minimum(two - one, one - natural)),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="vertex-solves-flow",
            statement=f"N > D, t = {config.until:g}: residual of the vertex form in the equation "
            "of the flow, relative, largest",
            source="natgrad",
            **over_seeds(np.nanmax(arrays["residual"], axis=0), "max"),
            relation="<=",
            bound=1e-4,
            presets=_BOTH,
        ),
    ]
    names = ", ".join(map(str, arrays.coordinates["path_n"]))
    return [
        *found,
        Claim(
            id="flow-is-vertex",
            statement=f"N = {names} > D: cosine between NGD at t = {config.until:g} and the linear "
            "program's vertex, least over seeds",
            source="natgrad",
            **over_seeds(arrays["path_cosine"].min(axis=0), "min"),
            relation=">=",
            bound=0.9999,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="flow-basis",
            statement=f"and at t = {1000 * config.until:g} the D smallest margins of the flow are "
            "the program's basis: share of seeds",
            source="natgrad",
            **over_seeds(arrays["later_basis"].min(axis=0)),
            relation=">=",
            bound=1.0,
            presets=("smoke", *_BOTH),
        ),
    ]


def _paper(config: "Fig4", arrays: Arrays) -> list[Claim]:
    """Return statements of the paper that we refute."""
    accuracy, few = Table(arrays), config.few
    over_n = np.stack(
        [accuracy(POPULATION, n) - accuracy("EGD L=1", n) for n in config.observations]
    )
    return [
        Claim(
            id="paper-chance",
            statement=f"“NGD performs at chance level when N < D”: accuracy at N = {few}",
            source="[KMH21] Figure 4, caption",
            **over_seeds(accuracy(NGD, few)),
            relation="<=",
            bound=0.55,
            presets=_BOTH,
            expected=False,
        ),
        Claim(
            id="paper-depth-4",
            statement=f"“L = 4 … on par with the shallow solution”: L = 4 less L = 1 at N = {few}",
            source="[KMH21] §3.1",
            **over_seeds(accuracy("EGD L=4", few) - accuracy("EGD L=1", few)),
            relation="<=",
            bound=0.05,
            presets=_BOTH,
            expected=False,
        ),
        Claim(
            id="paper-population",
            statement="“population Fisher … worse than EGD”: NGD so less EGD L = 1, mean over N",
            source="[KMH21] Figure 4, caption",
            **over_seeds(over_n.mean(axis=0)),
            relation="<",
            bound=0.0,
            presets=_BOTH,
            expected=False,
        ),
    ]


def _explanations(config: "Fig4", arrays: Arrays) -> list[Claim]:
    accuracy = Table(arrays)
    inside = [i for i, n in enumerate(config.gaussian) if n <= config.dim]
    deep = arrays["deep"][:, :, -1]
    late = arrays["late"][config.depths.index(2)]
    return [
        Claim(
            id="overshoot",
            statement="N < D: NGD from random coefficients with Euler steps that overshoot, "
            "distance of its accuracy from ½, mean over N",
            source="natgrad, explains “at chance”",
            **over_seeds(np.abs(arrays["overshoot_descent"] - 0.5).mean(axis=0)),
            relation="<=",
            bound=0.03,
            presets=_BOTH,
        ),
        Claim(
            id="overshoot-flow",
            statement="the flow from the same coefficients: accuracy gained, mean over N",
            source="natgrad",
            **over_seeds((arrays["overshoot_flow"] - arrays["overshoot_descent"]).mean(axis=0)),
            relation=">=",
            bound=0.08,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-depth-4",
            statement="N ≤ D: what is left of the lead of L = 4 over L = 1 from a small Gaussian "
            "start, as a share of that lead, mean over N",
            source="natgrad, explains “on par”",
            **over_seeds(_left(config, arrays, inside)),
            relation="<=",
            bound=1 / 3,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-settled",
            statement=f"and it is not still on its way: accuracy gained from t = "
            f"{config.until / 100:g} to {config.until:g}, N ≤ D, mean over N",
            source="natgrad; [KMH21] §3.1: “not long enough”",
            **over_seeds(np.diff(arrays["gaussian"][inside], axis=-1)[..., 0].mean(axis=0)),
            relation="<=",
            bound=0.02,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-stuck",
            statement="share of the true coefficients still near zero then (below 1 % of the "
            "largest), mean over N",
            source="natgrad",
            **over_seeds(arrays["gaussian_stuck"][inside].mean(axis=0)),
            relation=">=",
            bound=0.1,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-stuck-slow",
            statement="those are the ones whose factors started small: mean rank of their initial "
            "speed among all coordinates (½ by chance)",
            source="natgrad",
            **over_seeds(np.nanmean(arrays["gaussian_stuck_speed"][inside], axis=0)),
            relation="<=",
            bound=0.4,
            presets=_BOTH,
        ),
        Claim(
            id="stopping",
            statement=f"N = {config.few}, L = 2: best accuracy along the path less that at "
            f"t = {config.late:g}",
            source="natgrad: ℓ1 max margin is far, and not better",
            **over_seeds(late.max(axis=1) - late[:, -1]),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="l1-margin-below",
            statement=f"N = {config.few}: EGD L = 2 at t = {config.until:g} less the ℓ1 max margin",
            source="[KMH21] §2.1 calls it the limit",
            **over_seeds(accuracy("EGD L=2", config.few) - arrays["l1_accuracy"]),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="deep-same-logits",
            statement="N < D: NGD at L = 1…4 has the training logits of Theorem 4 (largest error)",
            source="[KMH21] Theorem 4",
            value=float(arrays["deep_error"].max()),
            relation="<=",
            bound=1e-6,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="deep-other-beta",
            statement="N < D: and other coefficients; accuracy of NGD at L = 2 less L = 1",
            source="natgrad; [KMH21] promises the logits only",
            **over_seeds(deep[1] - deep[0]),
            relation=">=",
            bound=0.03,
            presets=_BOTH,
        ),
        Claim(
            id="deep-pursuit",
            statement="N < D: cosine of NGD at L = 3 and 4 to the shortest ℓ1 interpolant, least",
            source="natgrad",
            **over_seeds(arrays["deep_pursuit"][2:].min(axis=0), "min"),
            relation=">=",
            bound=0.999,
            presets=_BOTH,
        ),
    ]


def _left(config: "Fig4", arrays: Arrays, inside: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return (L = 4 from a Gaussian start − L = 1) / (L = 4 − L = 1), mean over N, by seed."""
    accuracy, slow = Table(arrays), slice(config.slow_seeds)
    shares = []
    for i in inside:
        shallow, deep = (accuracy(f"EGD L={d}", config.gaussian[i])[slow] for d in (1, 4))
        shares.append((arrays["gaussian"][i, :, -1] - shallow) / (deep - shallow))
    return np.asarray(np.mean(shares, axis=0))


def _beyond(config: "Fig4", arrays: Arrays) -> list[Claim]:
    accuracy, supports = Table(arrays), arrays["supports"]
    ratios = np.array(config.ratios)
    above = ratios >= 1
    wide = ratios >= 2 * math.log(config.support_n)
    narrow = int(np.argmax(ratios > 1))
    alpha = arrays["alpha_accuracy"]
    kernel = np.abs(alpha[:, -1] - accuracy("EGD L=1", config.few)).max(axis=0)
    found = [
        Claim(
            id="proliferation-natural",
            statement="D ≥ N: share of data that support NGD's limit, least",
            source="[KMH21] §3: “occurs in NGF when D > N”",
            **over_seeds(supports[2][above].min(axis=0), "min"),
            relation=">=",
            bound=1.0,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="proliferation-l2-not-yet",
            statement=f"D/N = {ratios[narrow]:g}: share of data that support the ℓ2 max margin",
            source="[KMH21] §3, after Hsu et al. 2020",
            **over_seeds(supports[0][narrow]),
            relation="<",
            bound=0.9,
            presets=_BOTH,
        ),
        Claim(
            id="kernel-regime",
            statement=f"initial scale {config.alphas[-1]:g}: L = 2 and 3 less EGD L = 1, size",
            source="[KMH21] Q&A, after Woodworth et al. 2020",
            **over_seeds(kernel),
            relation="<=",
            bound=0.02,
            presets=_BOTH,
        ),
        Claim(
            id="rich-regime",
            statement="accuracy from the smallest less from the largest initial scale, least of "
            "L = 2 and 3",
            source="[KMH21] Q&A, after Woodworth et al. 2020",
            **over_seeds((alpha[:, 0] - alpha[:, -1]).min(axis=0)),
            relation=">=",
            bound=0.15,
            presets=_BOTH,
        ),
    ]
    if wide.any():
        found.append(
            Claim(
                id="proliferation-l2",
                statement="D ≥ 2 N log N: share of data that support the ℓ2 max margin",
                source="[KMH21] §3, after Hsu et al. 2020: D > N log N",
                **over_seeds(supports[0][wide].mean(axis=0)),
                relation=">=",
                bound=0.99,
                presets=_BOTH,
            )
        )
    return found


def loop_seconds(config: "Fig4", arrays: Arrays) -> tuple[float, float]:
    """Return the CPU seconds of the paper's loop for the curves of EGD, and for all EGD flows.

    Each flow counts as 2 million steps at the measured time of one, however late it ends.
    """
    step = arrays["step_seconds"]
    curves = step.sum() * config.seeds
    few, depths = config.observations.index(config.few), list(config.depths)
    alphas = step[[depths.index(2), depths.index(3)], few].sum() * len(config.alphas) * config.seeds
    starts = [config.observations.index(n) for n in config.gaussian if n in config.observations]
    gaussian = step[depths.index(4), starts].sum() * config.slow_seeds
    return float(_LOOP * curves), float(_LOOP * (curves + alphas + gaussian))


def _cost(config: "Fig4", arrays: Arrays) -> list[Claim]:
    curves, everything = loop_seconds(config, arrays)
    ours = float(np.nansum(arrays["cell_seconds"][: len(config.depths)]))
    return [
        Claim(
            id="loop-agrees",
            statement=f"the loop's first {config.loop_steps} steps of ½ end where the flow does: "
            "cosine, least over depths and N",
            source="natgrad",
            value=float(arrays["loop_cosine"].min()),
            relation=">=",
            bound=0.99,
            presets=("paper",),
        ),
        Claim(
            id="loop-hours",
            statement="CPU hours of 2 million such steps for every point of the EGD curves",
            source="[KMH21] §3.1: “2 million EGD steps”",
            value=curves / 3600,
            relation=">",
            bound=0.0,
            presets=("paper",),
        ),
        Claim(
            id="speed",
            statement="CPU time of that loop over that of our flows, all EGD curves together",
            source="natgrad",
            value=curves / ours,
            relation=">=",
            bound=1500.0,
            presets=("paper",),
        ),
        Claim(
            id="speed-everything",
            statement="the loop for all EGD flows over the whole figure, with NGD, limits and "
            "variants in the denominator",
            source="natgrad",
            value=everything / float(arrays["all_cells_seconds"]),
            relation=">=",
            bound=500.0,
            presets=("paper",),
        ),
    ]


def departures(config: "Fig4", arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and where the paper's text and our numbers part."""
    accuracy, few = Table(arrays), config.few

    def mean(method: str, n: int = few) -> str:
        return f"{100 * accuracy(method, n).mean():.1f} %"

    curves, _ = loop_seconds(config, arrays)
    step = arrays["step_seconds"]
    deep = 100 * arrays["deep"][:, :, -1].mean(axis=1)
    late = arrays["late"][config.depths.index(2)].mean(axis=0)
    return [
        "Accuracy is exact, 1 − ∠(β, β*)/π for Gaussian inputs: no test set. Curves are means over "
        f"{config.seeds} data sets, bands one standard deviation.",
        f"EGD is gradient flow to t = {config.until:g} on the mean loss (2 million steps, were "
        "they of length ½; the paper prints no step length), from w₁ = 0 and the other factors "
        f"{', '.join(f'{s:g} (L = {d})' for d, s in zip(config.depths, config.scales, strict=True) if d > 1)}. "  # noqa: E501
        "The paper prints no initialisation.",
        f"“At chance when N < D”: from β = 0 NGD reaches {mean(NGD)} at N = {few}, exactly the "
        f"shortest interpolant, and falls to {mean(NGD, config.dim)} only at N = D. Chance appears "
        "(panel D) when coefficients start at random and Euler steps overshoot: a logit that "
        "starts at −10 has velocity e¹⁰, and one step makes it dominate all others.",
        f"“L = 4 on par with L = 1”: from the start above, L = 4 reaches {mean('EGD L=4')} at "
        f"N = {few}, L = 1 {mean('EGD L=1')}. On par it is (panel D) from a small Gaussian start: "
        "coordinates whose factors happen to start large run ahead and separate the data, while "
        "true ones that start small are still near the saddle and get no more gradient. It is "
        "not, as the paper guesses, a matter of too few steps.",
        "“Population Fisher worse than EGD”: worse than the deep networks, but at least as good "
        f"as EGD L = 1 at every N ({mean(POPULATION)} and {mean('EGD L=1')} at N = {few}).",
        f"L = 2 does not reach the ℓ1 max margin (accuracy "
        f"{100 * arrays['l1_accuracy'].mean():.1f} % at N = {few}) and is better for it: accuracy "
        f"is {100 * late.max():.1f} % at its best and {100 * late[-1]:.1f} % at "
        f"t = {config.late:g} (panel E). The stopping time is part of the method.",
        "Invariance in depth is one of training logits when N < D. With the pseudo-inverse in the "
        f"factors NGD has accuracy {', '.join(f'{v:.1f}' for v in deep)} % at L = 1, 2, 3, 4 "
        "(panel F), because it then picks the shortest interpolant in the ℓ1 norm.",
        f"The paper's loop: one step takes {1e3 * step.min():.2f} to {1e3 * step.max():.2f} ms "
        f"here, so that 2 million for each point of the EGD curves would take {curves / 3600:.0f} "
        f"CPU hours; all cells of this figure took {float(arrays['all_cells_seconds']):.0f} s.",
        "The first 20 coefficients are all positive, which tied initialisations (all factors "
        "equal) would know beforehand; ours reach either sign.",
    ]
