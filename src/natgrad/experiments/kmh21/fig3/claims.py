"""Claims of Figure 3, and what we chose."""

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


def off_entry(response: Floats) -> Floats:
    """Return the largest response elsewhere over that of the observed entry."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest


def off_cross(response: Floats) -> Floats:
    """Return the same outside the observed entry's row and column."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, :] = 0
    rest[..., :, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest
