"""What Figure 5 shows, as numbers; and what we chose or found otherwise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.experiments.kmh21.fig5_further_cells import EDGE
from natgrad.lab.arrays import Arrays
from natgrad.lab.claims import Claim, over_seeds
from natgrad.lab.experiment import PRESETS

if TYPE_CHECKING:
    from natgrad.experiments.kmh21.fig5 import Fig5

Floats = npt.NDArray[Any]


def claims(config: "Fig5", arrays: Arrays) -> Sequence[Claim]:
    """Return the claims; medians over seeds unless they say otherwise."""
    return [
        *_natural_is_trivial(config, arrays),
        *_depth_completes(config, arrays),
        *_initialisation(config, arrays),
        *_natural_otherwise(config, arrays),
        *_dynamics(config, arrays),
        *_speed(config, arrays),
    ]


def _natural_is_trivial(config: "Fig5", arrays: Arrays) -> list[Claim]:
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
            statement="NGD moves unobserved entries by so much of the movement of observed ones "
            "(largest of all runs)",
            source="[KMH21] §4, Appendix F",
            value=float(arrays["ngd_off"].max()),
            relation="<=",
            bound=1e-4,
            n=config.seeds,
            presets=PRESETS,
        ),
        Claim(
            id="ngf-off",
            statement="so does natural gradient flow at a tight tolerance (small matrices)",
            source="[KMH21] Appendix F",
            value=float(arrays["flow_off"].max()),
            relation="<=",
            bound=1e-6,
            n=config.sample_seeds,
            presets=PRESETS,
        ),
        Claim(
            id="share-orthogonal",
            statement="equal share from an orthogonal start has the test loss of EGD L = 1 from "
            "there (relative difference, largest where no rank is lost)",
            source="[KMH21] eq. 51 as corrected",
            value=float(orthogonal[~share[1]].max(initial=0.0)),
            relation="<=",
            bound=0.01,
            n=int((~share[1]).sum()),
            presets=PRESETS,
        ),
        Claim(
            id="share-singular",
            statement="equal share from the small Gaussian start meets det β = 0 (share of runs)",
            source="natgrad",
            value=float(share[0].mean()),
            relation=">=",
            bound=0.9,
            n=config.seeds,
        ),
    ]


def _median(arrays: Arrays, name: str, *index: Any) -> dict[str, Any]:
    return over_seeds(arrays[name][index], "median")


def _depth_completes(config: "Fig5", arrays: Arrays) -> list[Claim]:
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
            statement=f"EGD L = 3, N = {n}: test loss",
            source="[KMH21] Figure 5",
            relation="<=",
            bound=1e-3,
            **over_seeds(l3, "median"),
        ),
        Claim(
            id="depth-2",
            statement=f"EGD L = 2 from α = {config.scales[small]:g}, N = {n}: test loss",
            source="[KMH21] Figure 5",
            relation="<=",
            bound=0.02,
            **over_seeds(l2, "median"),
        ),
        Claim(
            id="below-nuclear",
            statement=f"both are below the minimum nuclear norm, {nuclear:.2g} (larger ratio)",
            source="[KMH21] §2.2",
            value=float(max(np.median(l3), np.median(l2)) / nuclear),
            relation="<",
            bound=1.0,
            n=config.seeds,
        ),
        Claim(
            id="depth-1",
            statement=f"EGD L = 1, N = {n}: test loss",
            source="[KMH21] Figure 5",
            relation=">=",
            bound=0.95,
            **_median(arrays, "direct_test", at),
        ),
        Claim(
            id="rank-3",
            statement=f"EGD L = 3, N = {most}: effective rank",
            source="[KMH21] Figure 5",
            relation="within",
            bound=(4.0, 6.0),
            **_median(arrays, "egd_rank", three, 0, high),
        ),
        Claim(
            id="rank-1",
            statement=f"EGD L = 1, N = {most}: effective rank",
            source="[KMH21] Figure 5",
            relation=">=",
            bound=60.0,
            **_median(arrays, "direct_rank", high),
        ),
        Claim(
            id="few-entries",
            statement=f"EGD L ≥ 3, N = {least}, is worse than predicting zero: test loss over that "
            "of zero (least over depths)",
            source="natgrad; the paper is silent",
            relation=">",
            bound=1.0,
            **min((over_seeds(w, "median") for w in worst), key=lambda found: found["value"]),
        ),
        Claim(
            id="rank-known",
            statement="β = UV of the true rank, N = "
            f"{config.observed[_nearest(config.observed, 1500)]}: test loss over that of EGD L = 3",
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


def rank_tests(config: "Fig5", arrays: Arrays) -> dict[str, float]:
    """Return p-values for an effect of the depth that the start was collapsed from.

    Unpaired tests compare conditions at each N (Kruskal and Wallis for three starts, Mann and
    Whitney for two), the least p multiplied by their number. Paired ones compare them within
    problems, by the mean over N of log test loss (Friedman; Wilcoxon for two).
    """
    from scipy import stats

    unpaired, paired = [], []
    for depth in (2, 3):
        mine = [k for k, pair in enumerate(config.collapsed) if pair[0] == depth]
        losses = arrays["init_test"][mine]  # start, N, seed
        test = stats.kruskal if len(mine) > 2 else stats.mannwhitneyu
        unpaired += [float(test(*losses[:, k]).pvalue) for k in range(losses.shape[1])]
        blocks = np.log(losses).mean(axis=1)
        pair = stats.friedmanchisquare if len(mine) > 2 else stats.wilcoxon
        paired.append(float(pair(*blocks).pvalue))
    return {"unpaired": min(1.0, min(unpaired) * len(unpaired)), "L2": paired[0], "L3": paired[1]}


def _initialisation(config: "Fig5", arrays: Arrays) -> list[Claim]:
    p = rank_tests(config, arrays)
    losses = np.log10(np.median(arrays["init_test"], axis=-1))  # start, N
    depths = np.array([depth for depth, _ in config.collapsed])
    spread = max(float(np.ptp(losses[depths == d], axis=0).max()) for d in (2, 3))
    between = np.abs(losses[depths == 2].mean(axis=0) - losses[depths == 3].mean(axis=0))
    many = config.collapsed_seeds
    return [
        Claim(
            id="init-unpaired",
            statement="the depth of the initial product has no effect that unpaired rank tests "
            "resolve (least p over depths and N, times their number)",
            source="[KMH21] Figure 5 right",
            value=p["unpaired"],
            relation=">",
            bound=0.05,
            n=many,
        ),
        *(
            Claim(
                id=f"init-paired-{depth}",
                statement=f"nor tests within problems, L = {depth} (p)",
                source="[KMH21] Figure 5 right",
                value=p[f"L{depth}"],
                relation=">",
                bound=0.05,
                n=many,
            )
            for depth in (2, 3)
        ),
        Claim(
            id="init-negligible",
            statement="it is small beside the effect of depth in training: decades of test loss "
            "between starts over those between L = 2 and 3 (largest over N)",
            source="[KMH21] §5.2",
            value=spread / float(between.max()),
            relation="<=",
            bound=0.25,
            n=many,
        ),
    ]


def _natural_otherwise(config: "Fig5", arrays: Arrays) -> list[Claim]:
    ratio = arrays["grid_test"] / arrays["grid_trivial"]  # depth, scale, step, damping, seed
    undamped = [k for k, value in enumerate(config.grid_dampings) if value == 0]
    three, high = config.natural_depths.index(3), len(config.observed) - 1
    most = config.observed[high]
    return [
        Claim(
            id="grid-search",
            statement="no setting of NGD beats EGD L = 1: least test loss over that of EGD L = 1",
            source="[KMH21] §4: “no setting where NGD would achieve non-trivial performance”",
            value=float(np.median(ratio, axis=-1).min()),
            relation=">=",
            bound=0.9,
            n=config.grid_seeds,
            expected=False,
        ),
        Claim(
            id="grid-undamped",
            statement="without damping no setting does",
            source="[KMH21] §4",
            value=float(np.median(ratio[..., undamped, :], axis=-1).min()),
            relation=">=",
            bound=0.9,
            n=config.grid_seeds,
        ),
        Claim(
            id="sample-fisher",
            statement="NGD with the Fisher of the observed entries, as §2.3 defines it, fails to "
            f"generalise: test loss at L = 3, N = {most}",
            source="[KMH21] §2.3, §4",
            relation=">=",
            bound=0.9,
            expected=False,
            **_median(arrays, "sample_test", three, high),
        ),
        Claim(
            id="sample-converged",
            statement="all its runs fit the observed entries (share)",
            source="natgrad",
            value=float(arrays["sample_converged"].mean()),
            relation=">=",
            bound=1.0,
            n=int(arrays["sample_converged"].size),
            presets=PRESETS,
        ),
    ]


def _dynamics(config: "Fig5", arrays: Arrays) -> list[Claim]:
    ranks = np.median(arrays["products_rank"], axis=0)
    deep = config.product_depths[-1]
    return [
        Claim(
            id="balanced",
            statement="EGF conserves WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ (relative drift at rtol 1e-6, largest)",
            source="Arora et al. 2018",
            value=float(arrays["dynamics_drift"].max()),
            relation="<=",
            bound=1e-4,
            presets=PRESETS,
        ),
        Claim(
            id="balanced-natural",
            statement="minimum-norm natural gradient flow conserves it too (relative drift)",
            source="natgrad",
            value=float(arrays["flow_drift"].max()),
            relation="<=",
            bound=1e-8,
            n=config.sample_seeds,
            presets=PRESETS,
        ),
        Claim(
            id="random-products",
            statement=f"a product of {deep} Gaussian matrices has a lower effective rank than one "
            "matrix (ratio)",
            source="[KMH21] §5.2",
            value=float(ranks[-1] / ranks[0]),
            relation="<",
            bound=0.5,
            n=config.seeds,
        ),
    ]


def loop_over_flow(config: "Fig5", arrays: Arrays) -> float:
    """Return the time an autograd loop would take for the EGD cells, over that of the flows.

    A loop that is stable takes at least t · radius / 1.8 steps to the time t at which a flow
    ended, times the share of that which the raced loops took (flows end a little after the
    training error is met). Seconds for a step and for a gradient of each depth are the raced ones.
    """
    depths = np.array([depth for depth, _, _ in config.race])
    taken = float((arrays["race_steps"] / arrays["race_expected_steps"]).min())
    loop = flow = 0.0
    for k, depth in enumerate(config.depths):
        near = depths == depth if (depths == depth).any() else depths == depths.max()
        a_step = np.sum(arrays["race_loop_seconds"][near]) / np.sum(arrays["race_steps"][near])
        a_gradient = np.sum(arrays["race_flow_seconds"][near])
        a_gradient /= np.sum(arrays["race_evaluations"][near])
        steps = arrays["egd_time"][k] * arrays["egd_radius"][k] / EDGE
        loop += taken * float(steps.sum()) * float(a_step)
        flow += float(arrays["egd_evaluations"][k].sum()) * float(a_gradient)
    return loop / flow


def _speed(config: "Fig5", arrays: Arrays) -> list[Claim]:
    agree, many = arrays["race_agree"], len(config.race)
    return [
        Claim(
            id="speed",
            statement="an autograd loop over all EGD cells takes so many times the seconds of the "
            f"flows; its steps are those to the flows' times, its cost a step timed on {many} "
            "cells",
            source="natgrad",
            value=loop_over_flow(config, arrays),
            relation=">=",
            bound=30.0,
            n=many,
        ),
        Claim(
            id="speed-checked",
            statement="on the cells that were raced to the end both have the same test loss "
            "(within a tenth, or both below 1e-4; share)",
            source="natgrad",
            value=float(np.mean(agree)),
            relation=">=",
            bound=1.0,
            n=many,
        ),
    ]


def departures(config: "Fig5", arrays: Arrays) -> Sequence[str]:
    """Return what we chose where the paper is silent, and where results differ from its text."""
    converged = arrays["egd_converged"]
    missed = int((~converged).sum())
    two, three = config.natural_depths.index(2), config.natural_depths.index(3)
    sample = np.median(arrays["sample_test"], axis=-1)
    p = rank_tests(config, arrays)
    low = config.observed[0]
    zero = np.median(arrays["egd_test"][config.depths.index(3), :, 0], axis=-1)
    return [
        "Our choices: entries of mean square one, loss ½Σ(β − y)², EGD as a flow (Runge–Kutta–"
        "Chebyshev, float32, rtol 1e-2) until the mean squared error on observed entries is 1e-6, "
        "test loss the mean squared error on the others, effective rank exp of the entropy of "
        "normalised singular values. The paper prints no scale; we show several.",
        f"{missed} of {converged.size} EGD runs were stopped after {config.max_evaluations} "
        "gradients before their entries fitted, all at depth 3 or more from small scales; their "
        "last state counts. There the flow waits on a plateau of rank below the true one, and "
        "entries that the plateau leaves free run away.",
        f"At N = {low} EGD of depth 3 has test losses of "
        f"{', '.join(f'{value:.2g}' for value in zero)} (scales "
        f"{', '.join(f'{s:g}' for s in config.scales)}): worse than predicting zero, and the "
        "worse the smaller the scale. The paper's figure does not say so.",
        "The paper's §2.3 averages the Fisher over training data, its §4 over all entries of β. "
        "Only the second is trivial. With the first, test losses at N = "
        f"{', '.join(map(str, config.observed))} are "
        f"{', '.join(f'{v:.2g}' for v in sample[two])} at L = 2 and "
        f"{', '.join(f'{v:.2g}' for v in sample[three])} at L = 3.",
        "“No setting where NGD would achieve non-trivial performance” holds without damping only: "
        "(F + λ)⁻¹ tends to a multiple of the identity as λ grows, and NGD to EGD.",
        "Printed eq. 51 has its factors in the wrong order; with the right one the equal share "
        "still fails from small Gaussian factors, because β moves on a straight line that crosses "
        "det β = 0. The minimum norm does not mind. Equal share is shown from orthogonal factors, "
        f"whose product has singular values {config.size / 10:g}.",
        "Initialisation: unpaired rank tests resolve nothing "
        f"(p = {p['unpaired']:.2g} after correction); within problems, p = {p['L2']:.2g} at L = 2 "
        f"and {p['L3']:.2g} at L = 3 over {config.collapsed_seeds} problems.",
    ]
