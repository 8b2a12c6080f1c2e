"""[KMH21] Figure 3: which entries move when one is observed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21 import fig3_cells as cells
from natgrad.experiments.kmh21.fig3_responses import off_cross, off_entry
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class Fig3:
    """A square matrix as a product of Gaussian ones, its middle entry observed."""

    size: int = 11
    """Rows and columns, odd so that there is a middle."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Number of factors."""
    euclidean_step: float = 0.5
    """Step η of EGD. Our choice."""
    natural_step: float = 0.5
    """Step η of NGD. Our choice."""
    seeds: int = 20
    """Random starts; the first is drawn, all are judged."""

    def __post_init__(self) -> None:
        """Refuse what leaves a claim without a number."""
        if not {1, 2, 3} <= set(self.depths) or self.size % 2 == 0 or self.size < 3:
            raise InvalidInputError(
                "depths must contain 1, 2 and 3 and size must be odd and at least 3, but are "
                f"{self.depths} and {self.size}."
            )


def compute(config: Fig3, sweep: Sweep) -> Arrays:
    """Return Δβ per unit of step, by method, depth and seed."""
    asked = [
        Cell(
            cells.responses,
            cells.ResponseConfig(
                size=config.size,
                depth=depth,
                seed=seed,
                euclidean_step=config.euclidean_step,
                natural_step=config.natural_step,
            ),
            f"L={depth}, seed {seed}",
        )
        for depth in config.depths
        for seed in range(config.seeds)
    ]
    found = sweep(asked, "responses")
    arrays = Arrays(depth=config.depths, seed=range(config.seeds))
    for key in found[0]:
        values = np.stack([result[key] for result in found])
        inner = ("row", "column") if values.ndim == 3 else ()
        shape = (len(config.depths), config.seeds, *values.shape[1:])
        arrays.add(key, values.reshape(shape), "depth", "seed", *inner)
    return arrays


def claims(config: Fig3, arrays: Arrays) -> Sequence[Claim]:
    """Return what the maps show, worst over all starts."""
    depths = list(config.depths)
    one, two = depths.index(1), depths.index(2)
    deep = [k for k, depth in enumerate(depths) if depth >= 3]
    dense = np.stack([off_cross(arrays["egf"][k]) for k in deep])
    shortest, half = off_entry(arrays["shortest"][two:]), off_entry(arrays["shortest_half"][two:])

    def claim(id: str, statement: str, source: str, value: float, bound: float) -> Claim:
        return Claim(
            id=id,
            statement=statement,
            source=source,
            value=value,
            relation="<=",
            bound=bound,
            n=config.seeds,
            presets=PRESETS,
        )

    return [
        claim(
            "egf-1",
            "EGF L = 1 moves only the observed entry (largest elsewhere, relative)",
            "[KMH21] Figure 3, §4",
            float(off_entry(arrays["egf"][one]).max()),
            1e-8,
        ),
        claim(
            "ngf",
            "so does NGF at every depth",
            "[KMH21] Figure 3, §4",
            float(off_entry(arrays["ngf"]).max()),
            1e-8,
        ),
        claim(
            "ngd",
            "so does a finite step of equal-share NGD, at every depth",
            "[KMH21] Figure 3",
            float(off_entry(arrays["ngd"]).max()),
            1e-8,
        ),
        claim(
            "egf-2",
            "EGF L = 2 is a cross (largest off it, relative)",
            "[KMH21] Figure 3, §4",
            float(off_cross(arrays["egf"][two]).max()),
            1e-12,
        ),
        Claim(
            id="egf-deep",
            statement="EGF L ≥ 3 is dense (largest off the cross, relative; least over starts)",
            source="[KMH21] Figure 3",
            value=float(dense.min()),
            relation=">=",
            bound=1e-2,
            n=config.seeds,
            presets=PRESETS,
        ),
        claim(
            "kernels",
            "closed forms of both kernels agree with autograd (relative)",
            "[KMH21] §4, ERRATA",
            float(max(arrays["kernel_residual"].max(), arrays["natural_kernel_residual"].max())),
            1e-10,
        ),
        claim(
            "direction",
            "the minimum-norm natural direction moves β by the natural kernel (relative)",
            "[KMH21] (5)",
            float(arrays["direction_residual"].max()),
            1e-8,
        ),
        claim(
            "formula",
            "β⁺ = β(I − (η/L) β⁻¹∇)^L for an equal-share step: relative error in units of ε times "
            "the condition number of β, which both sides invert; worst start and depth",
            "natgrad",
            float((arrays["formula_residual"] / (_EPS * arrays["condition"])).max()),
            8.0,
        ),
        Claim(
            id="shortest-order",
            statement="a minimum-norm step leaves the entry by O(η): halving η halves it (median "
            "ratio)",
            source="natgrad",
            value=float(np.median(half / shortest)),
            relation="within",
            bound=(0.4, 0.6),
            n=config.seeds,
            presets=("quick", "paper"),
        ),
    ]


def draw(config: Fig3, arrays: Arrays) -> "Figure":
    """Return the maps."""
    from natgrad.experiments.kmh21.fig3_picture import picture

    return picture(config.euclidean_step, config.natural_step, arrays)


def departures(config: Fig3, arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and what the paper does not say."""
    two = list(config.depths).index(2)
    shortest = np.median(off_entry(arrays["shortest"][two:]), axis=-1)
    named = ", ".join(
        f"{value:.0%} at L = {depth}"
        for depth, value in zip(config.depths[two:], shortest, strict=True)
    )
    return [
        f"Factors are Gaussian with standard deviation 1/√{config.size}; the observation lies one "
        f"unit above the entry; EGD steps by η = {config.euclidean_step:g}, NGD by "
        f"{config.natural_step:g}. Each map is divided by the response of the observed entry.",
        "NGD is the paper's equal share (eq. 51 with its factors in the right order). One "
        "observation makes ∇ a multiple of one entry, and every term of the exact step "
        "β(I − (η/L) β⁻¹∇)^L is a multiple of ∇: the map is a single entry at any step size, not "
        "approximately.",
        "The minimum-norm choice has no such luck: a step moves the largest other entry by so "
        f"much of the observed one (median over starts): {named}; this falls in proportion to η.",
    ]


EXPERIMENT = register(
    Experiment(
        name="kmh21/fig3",
        title="One observed entry moves its cross at depth 2 and everything from depth 3 on; "
        "under the natural gradient only itself",
        source="[KMH21] Figure 3",
        presets={
            "smoke": Fig3(size=7, seeds=2),
            "quick": Fig3(seeds=10),
            "paper": Fig3(seeds=50),
        },
        minutes={"smoke": 0.05, "quick": 0.1, "paper": 0.2},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)
