"""Claims of Figure 3, and our choices."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.experiments.kmh21.fig3.config import Fig3
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS

Floats = npt.NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)


def claims(config: Fig3, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims about the maps, judged by the worst of all starts."""
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
            "EGF L = 1 moves only the observed entry (largest movement elsewhere, relative)",
            "[KMH21] Figure 3, §4",
            float(off_entry(arrays["egf"][one]).max()),
            1e-8,
        ),
        claim(
            "ngf",
            "NGF moves only the observed entry at every depth (largest movement elsewhere, "
            "relative)",
            "[KMH21] Figure 3, §4",
            float(off_entry(arrays["ngf"]).max()),
            1e-8,
        ),
        claim(
            "ngd",
            "a finite step of equal-share NGD moves only the observed entry at every depth "
            "(largest movement elsewhere, relative)",
            "[KMH21] Figure 3",
            float(off_entry(arrays["ngd"]).max()),
            1e-8,
        ),
        claim(
            "egf-2",
            "EGF L = 2 moves only the row and column of the entry (largest movement elsewhere, "
            "relative)",
            "[KMH21] Figure 3, §4",
            float(off_cross(arrays["egf"][two]).max()),
            1e-12,
        ),
        Claim(
            id="egf-deep",
            statement="EGF L ≥ 3 moves all entries (largest movement outside the row and column, "
            "relative; smallest over starts)",
            source="[KMH21] Figure 3",
            value=float(dense.min()),
            relation=">=",
            bound=1e-2,
            n=config.seeds,
            presets=PRESETS,
        ),
        claim(
            "kernels",
            "the closed forms of both kernels agree with autograd (relative difference)",
            "[KMH21] §4, as corrected in docs/paper_map.md",
            float(max(arrays["kernel_residual"].max(), arrays["natural_kernel_residual"].max())),
            1e-10,
        ),
        claim(
            "direction",
            "the minimum-norm natural direction moves β by the natural kernel (relative "
            "difference)",
            "[KMH21] (5)",
            float(arrays["direction_residual"].max()),
            1e-8,
        ),
        claim(
            "formula",
            "an equal-share step gives β⁺ = β(I − (η/L) β⁻¹∇)^L (relative error in units of ε "
            "times the condition number of β, which both sides invert; worst start and depth)",
            "natgrad",
            float((arrays["formula_residual"] / (_EPS * arrays["condition"])).max()),
            8.0,
        ),
        Claim(
            id="shortest-order",
            statement="a minimum-norm step moves the other entries by O(η): halving η halves that "
            "movement (median ratio)",
            source="natgrad",
            value=float(np.median(half / shortest)),
            relation="within",
            bound=(0.4, 0.6),
            n=config.seeds,
            presets=("quick", "paper"),
        ),
    ]


def departures(config: Fig3, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and results that the paper does not state."""
    two = list(config.depths).index(2)
    shortest = np.median(off_entry(arrays["shortest"][two:]), axis=-1)
    named = ", ".join(
        f"{value:.0%} at L = {depth}"
        for depth, value in zip(config.depths[two:], shortest, strict=True)
    )
    return [
        f"Factors are Gaussian with standard deviation 1/√{config.size}; the observed value is one "
        f"unit above the entry; the step η is {config.euclidean_step:g} for EGD and "
        f"{config.natural_step:g} for NGD. Each map is divided by the response of the observed "
        "entry.",
        "NGD is the paper's equal share (eq. 51 with its factors in the right order). With one "
        "observation ∇ has a single nonzero entry, and every term of the exact step "
        "β(I − (η/L) β⁻¹∇)^L is a multiple of ∇. So the map is exactly one entry at any step "
        "size.",
        "This does not hold for the minimum-norm choice. Its steps also move other entries. "
        f"Relative to the observed entry, the largest of them moves by {named} (median over "
        "starts), in proportion to η.",
    ]


def off_entry(response: Floats) -> Floats:
    """Return the largest response of another entry, relative to that of the observed one."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest


def off_cross(response: Floats) -> Floats:
    """Return the largest response outside the row and the column of the observed entry."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, :] = 0
    rest[..., :, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest
