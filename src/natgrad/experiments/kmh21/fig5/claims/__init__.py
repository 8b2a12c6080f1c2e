"""Claims of Figure 5."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.kmh21.fig5.claims._departures import departures
from natgrad.experiments.kmh21.fig5.claims._statistics import (
    loop_over_flow,
    rank_tests,
    start_effect,
)
from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import PRESETS

__all__ = ["claims", "departures"]

FULL_SIZE = ("quick", "paper")
"""Presets with matrices of the paper's size; they differ in seeds and scales."""


def claims(config: Fig5, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims. Values are medians over seeds unless the claim says otherwise."""
    return [
        *_natural_is_trivial(config, arrays),
        *_depth_completes(config, arrays),
        *_initialization(config, arrays),
        *_natural_otherwise(config, arrays),
        *_dynamics(config, arrays),
        *_speed(config, arrays),
    ]


def _natural_is_trivial(config: Fig5, arrays: Arrays) -> list[Claim]:
    off_line = np.abs(arrays["ngd_test"] / arrays["ngd_trivial"] - 1)
    share = arrays["share_singular"]
    orthogonal = np.abs(arrays["share_test"][1] / arrays["share_trivial"][1] - 1)
    return [
        Claim(
            id="ngd-trivial",
            statement="NGD (Fisher over all entries, minimum norm) has the test loss of EGD L = 1 "
            "from the same start (relative difference, largest over N and depth)",
            source="[KMH21] Figure 5, §4",
            value=float(np.median(off_line, axis=-1).max()),
            relation="<=",
            bound=0.01,
            n=config.seeds,
            presets=PRESETS,
        ),
        Claim(
            id="ngd-off",
            statement="NGD does not move unobserved entries (their movement relative to that of "
            "the observed ones, largest of all runs)",
            source="[KMH21] §4, Appendix F",
            value=float(arrays["ngd_off"].max()),
            relation="<=",
            bound=1e-4,
            n=config.seeds,
            presets=PRESETS,
        ),
        Claim(
            id="ngf-off",
            statement="natural gradient flow at a tight tolerance does not move unobserved "
            "entries of small matrices (their movement relative to that of the observed ones)",
            source="[KMH21] Appendix F",
            value=float(arrays["flow_off"].max()),
            relation="<=",
            bound=1e-6,
            n=config.sample_seeds,
            presets=PRESETS,
        ),
        Claim(
            id="share-orthogonal",
            statement="equal-share NGD from an orthogonal start has the test loss of EGD L = 1 "
            "from the same start (relative difference, largest over runs that lose no rank)",
            source="[KMH21] eq. 51 as corrected",
            value=float(orthogonal[~share[1]].max(initial=0.0)),
            relation="<=",
            bound=0.01,
            n=int((~share[1]).sum()),
            presets=PRESETS,
        ),
        Claim(
            id="share-singular",
            presets=FULL_SIZE,
            statement="equal-share NGD from a small Gaussian start meets det β = 0 (share of runs)",
            source="natgrad",
            value=float(share[0].mean()),
            relation=">=",
            bound=0.9,
            n=config.seeds,
        ),
    ]


def _median(arrays: Arrays, name: str, *index: Any) -> dict[str, Any]:
    return over_seeds(arrays[name][index], "median")


def _depth_completes(config: Fig5, arrays: Arrays) -> list[Claim]:
    two, three = config.depths.index(2), config.depths.index(3)
    low, high = 0, len(config.observed) - 1
    at = _nearest(config.observed, 2000)
    small = _nearest(config.scales, 1e-6)
    n, most, least = (config.observed[k] for k in (at, high, low))
    nuclear = np.median(arrays["nuclear_test"][at])
    l3, l2 = arrays["egd_test"][three, 0, at], arrays["egd_test"][two, small, at]
    zero = arrays["direct_zero"][low]
    deep = [k for k, depth in enumerate(config.depths) if depth >= 3]
    worst = [arrays["egd_test"][k, 0, low] / zero for k in deep]
    claims = [
        Claim(
            id="depth-3",
            presets=FULL_SIZE,
            statement=f"N = {n}: EGD L = 3 completes the matrix (test loss)",
            source="[KMH21] Figure 5",
            relation="<=",
            bound=1e-3,
            **over_seeds(l3, "median"),
        ),
        Claim(
            id="depth-2",
            presets=FULL_SIZE,
            statement=f"N = {n}: EGD L = 2 from α = {config.scales[small]:g} nearly completes it "
            "(test loss)",
            source="[KMH21] Figure 5",
            relation="<=",
            bound=0.02,
            **over_seeds(l2, "median"),
        ),
        Claim(
            id="below-nuclear",
            presets=FULL_SIZE,
            statement=f"EGD L = 2 and 3 beat the minimum nuclear norm, {nuclear:.2g} (larger ratio "
            "of test losses)",
            source="[KMH21] §2.2",
            value=float(max(np.median(l3), np.median(l2)) / nuclear),
            relation="<",
            bound=1.0,
            n=config.seeds,
        ),
        Claim(
            id="depth-1",
            presets=FULL_SIZE,
            statement=f"N = {n}: EGD L = 1 does not complete the matrix (test loss)",
            source="[KMH21] Figure 5",
            relation=">=",
            bound=0.95,
            **_median(arrays, "direct_test", at),
        ),
        Claim(
            id="rank-3",
            presets=FULL_SIZE,
            statement=f"N = {most}: EGD L = 3 finds the true rank (effective rank)",
            source="[KMH21] Figure 5",
            relation="within",
            bound=(4.0, 6.0),
            **_median(arrays, "egd_rank", three, 0, high),
        ),
        Claim(
            id="rank-1",
            presets=FULL_SIZE,
            statement=f"N = {most}: EGD L = 1 has a high rank (effective rank)",
            source="[KMH21] Figure 5",
            relation=">=",
            bound=60.0,
            **_median(arrays, "direct_rank", high),
        ),
        Claim(
            id="few-entries",
            presets=FULL_SIZE,
            statement=f"N = {least}: EGD L ≥ 3 is worse than predicting zero (ratio of test "
            "losses, smallest over depths)",
            source="natgrad; the paper is silent",
            relation=">",
            bound=1.0,
            **min((over_seeds(w, "median") for w in worst), key=lambda found: found["value"]),
        ),
        Claim(
            id="rank-known",
            presets=FULL_SIZE,
            statement="N = "
            f"{config.observed[_nearest(config.observed, 1500)]}: β = UV of the true rank is worse "
            "than EGD L = 3 (ratio of test losses)",
            source="natgrad; the baseline of [KMH21] §2.2",
            relation=">",
            bound=1.0,
            **over_seeds(
                arrays["uv_test"][_nearest(config.observed, 1500)]
                / arrays["egd_test"][three, 0, _nearest(config.observed, 1500)],
                "median",
            ),
        ),
    ]
    return claims


def _nearest(values: Sequence[float], wanted: float) -> int:
    return int(np.argmin(np.abs(np.log(np.asarray(values)) - np.log(wanted))))


def _initialization(config: Fig5, arrays: Arrays) -> list[Claim]:
    p, effect = rank_tests(config, arrays), start_effect(config, arrays)
    losses = np.log10(np.median(arrays["init_test"], axis=-1))  # start, N
    depths = np.array([depth for depth, _ in config.collapsed])
    spread = max(float(np.ptp(losses[depths == d], axis=0).max()) for d in (2, 3))
    between = np.abs(losses[depths == 2].mean(axis=0) - losses[depths == 3].mean(axis=0))
    many = config.collapsed_seeds
    return [
        Claim(
            id="init-unpaired",
            statement="unpaired rank tests find no effect of the depth of the initial product "
            "(smallest p over depths and N, times their number)",
            source="[KMH21] Figure 5 right",
            value=p["unpaired"],
            relation=">",
            bound=0.05,
            n=many,
        ),
        Claim(
            id="init-paired",
            statement="at L = 2 a paired test within problems finds no effect of the depth of the "
            "initial product (p)",
            source="[KMH21] Figure 5 right",
            value=p["L2"],
            relation=">",
            bound=0.05,
            n=many,
            expected=False,
        ),
        Claim(
            id="init-size",
            statement="at L = 2 the deepest start hardly changes the test loss (factor; geometric "
            "mean over N, median over problems)",
            source="[KMH21] §5.2: “negligible”",
            value=effect[2],
            relation="within",
            bound=(0.85, 1.15),
            n=many,
        ),
        Claim(
            id="init-negligible",
            statement="the effect of the start is small beside that of depth in training (decades "
            "of test loss between starts over those between L = 2 and 3, largest over N)",
            source="[KMH21] §5.2",
            value=spread / float(between.max()),
            relation="<=",
            bound=0.25,
            n=many,
        ),
    ]


def _natural_otherwise(config: Fig5, arrays: Arrays) -> list[Claim]:
    ratio = arrays["grid_test"] / arrays["grid_trivial"]  # depth, scale, step, damping, seed
    undamped = [k for k, value in enumerate(config.grid_dampings) if value == 0]
    three, most = config.natural_depths.index(3), config.few_observed[-1]
    return [
        Claim(
            id="grid-search",
            presets=FULL_SIZE,
            statement="no setting of NGD beats EGD L = 1 (smallest ratio of test losses)",
            source="[KMH21] §4: “no setting where NGD would achieve non-trivial performance”",
            value=float(np.median(ratio, axis=-1).min()),
            relation=">=",
            bound=0.9,
            n=config.grid_seeds,
            expected=False,
        ),
        Claim(
            id="grid-undamped",
            presets=FULL_SIZE,
            statement="no setting of NGD without damping beats EGD L = 1 (smallest ratio of test "
            "losses)",
            source="[KMH21] §4",
            value=float(np.median(ratio[..., undamped, :], axis=-1).min()),
            relation=">=",
            bound=0.9,
            n=config.grid_seeds,
        ),
        Claim(
            id="sample-fisher",
            presets=FULL_SIZE,
            statement="NGD with the Fisher of the observed entries, as §2.3 defines it, fails to "
            f"generalize (test loss at L = 3, N = {most})",
            source="[KMH21] §2.3, §4",
            relation=">=",
            bound=0.9,
            expected=False,
            **_median(arrays, "sample_test", three, -1),
        ),
        Claim(
            id="sample-converged",
            statement="all runs of NGD with the Fisher of the observed entries fit these entries "
            "(share of runs)",
            source="natgrad",
            value=float(arrays["sample_converged"].mean()),
            relation=">=",
            bound=1.0,
            n=int(arrays["sample_converged"].size),
            presets=PRESETS,
        ),
    ]


def _dynamics(config: Fig5, arrays: Arrays) -> list[Claim]:
    ranks = np.median(arrays["products_rank"], axis=0)
    deep = config.product_depths[-1]
    return [
        Claim(
            id="balanced",
            statement="EGF conserves WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ (largest relative drift at rtol 1e-6)",
            source="Arora et al. 2018",
            value=float(arrays["dynamics_drift"].max()),
            relation="<=",
            bound=1e-4,
            presets=PRESETS,
        ),
        Claim(
            id="balanced-natural",
            statement="minimum-norm natural gradient flow conserves WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ too "
            "(relative drift)",
            source="natgrad",
            value=float(arrays["flow_drift"].max()),
            relation="<=",
            bound=1e-8,
            n=config.sample_seeds,
            presets=PRESETS,
        ),
        Claim(
            id="random-products",
            presets=FULL_SIZE,
            statement=f"a product of {deep} Gaussian matrices has a lower effective rank than one "
            "matrix (ratio)",
            source="[KMH21] §5.2",
            value=float(ranks[-1] / ranks[0]),
            relation="<",
            bound=0.5,
            n=config.seeds,
        ),
    ]


def _speed(config: Fig5, arrays: Arrays) -> list[Claim]:
    agree, many = arrays["race_agree"], len(config.race)
    return [
        Claim(
            id="speed",
            statement="the flows are at least 30 times faster than an autograd loop over all EGD "
            "cells (ratio of seconds; the loop steps to the same times, and its cost per step was "
            f"measured on {many} cells)",
            source="natgrad",
            value=loop_over_flow(config, arrays),
            relation=">=",
            bound=30.0,
            n=many,
        ),
        Claim(
            id="speed-checked",
            statement="where the loop ran to the end, both have the same test loss (share of "
            "cells; within a tenth, or both below 1e-4)",
            source="natgrad",
            value=float(np.mean(agree)),
            relation=">=",
            bound=1.0,
            n=many,
        ),
    ]
