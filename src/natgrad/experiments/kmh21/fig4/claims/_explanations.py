"""Claims of Figure 4 on its variants, on the panels beyond the paper, and on cost."""

import math

import numpy as np
import numpy.typing as npt

from natgrad.experiments.kmh21._separable.curves import Table
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

_BOTH = ("quick", "paper")
_LOOP = 2_000_000  # steps, [KMH21] §3.1


def explanations(config: Fig4, arrays: Arrays) -> list[Claim]:
    """Return the claims that explain the paper's curves."""
    return [
        *_overshoot(config, arrays),
        *_gaussian(config, arrays),
        *_stopping(config, arrays),
        *_deep(arrays),
    ]


def _overshoot(config: Fig4, arrays: Arrays) -> list[Claim]:
    below = [i for i, n in enumerate(arrays.coordinates["up_to_n"]) if n < config.dim]
    scales = np.array(config.overshoot_scales)
    descent, flow = (arrays[f"overshoot_{name}"][below] for name in ("descent", "flow"))
    lost = flow - descent
    worst = "largest over N < D and data sets"

    def claim(id: str, statement: str, by_seed: npt.NDArray[np.float64], bound: float) -> Claim:
        return Claim(
            id=id,
            statement=statement,
            source="natgrad, explains “at chance”",
            **over_seeds(by_seed, "max"),
            relation="<=",
            bound=bound,
            presets=_BOTH,
        )

    return [
        claim(
            "overshoot",
            "from random coefficients of scale ≥ 0.2 NGD with Euler steps is at chance (distance "
            f"of its accuracy from ½, {worst})",
            np.abs(descent[..., scales >= 0.2] - 0.5).max(axis=(0, 2)),
            0.03,
        ),
        claim(
            "overshoot-0.1",
            "from random coefficients of scale 0.1 NGD with Euler steps loses little accuracy "
            f"relative to the flow ({worst})",
            lost[..., scales == 0.1].max(axis=(0, 2)),
            0.05,
        ),
        claim(
            "overshoot-0.03",
            "from random coefficients of scale ≤ 0.03 NGD with Euler steps loses almost no "
            f"accuracy relative to the flow ({worst})",
            lost[..., scales <= 0.03].max(axis=(0, 2)),
            0.001,
        ),
        Claim(
            id="overshoot-flow",
            statement="from random coefficients of scale 0.3 natural gradient flow is better than "
            "NGD with Euler steps (gain in accuracy, smallest over N < D and data sets)",
            source="natgrad",
            **over_seeds(lost[..., scales == 0.3].min(axis=(0, 2)), "min"),
            relation=">=",
            bound=0.08,
            presets=_BOTH,
        ),
    ]


def lead_left(config: Fig4, arrays: Arrays) -> npt.NDArray[np.float64]:
    """Return (L = 4 from Gaussian factors − L = 1) / (L = 4 − L = 1), by scale, N and data set.

    0 means “on par with the shallow solution”, 1 means as good as from the constant start.
    """
    shallow, deep = gaussian_rivals(config, arrays)
    left: npt.NDArray[np.float64] = (arrays["gaussian"][..., 1] - shallow) / (deep - shallow)
    return left


def gaussian_rivals(
    config: Fig4, arrays: Arrays
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return accuracies of L = 1 and of L = 4 from the constant start, by N and data set."""
    names = arrays.coordinates["method"]
    shallow, deep = (
        arrays["accuracy"][names.index(f"EGD L={depth}"), :, : config.slow_seeds]
        for depth in (1, 4)
    )
    return shallow, deep


def _gaussian(config: Fig4, arrays: Arrays) -> list[Claim]:
    shallow, deep = gaussian_rivals(config, arrays)
    found, many = arrays["gaussian"], np.array(config.observations)
    small = np.array(config.gaussian_scales) <= 0.3
    few, up_to_dim = many <= config.few, many <= config.dim
    return [
        Claim(
            id="gaussian-behind",
            statement="L = 4 is worse from Gaussian factors than from the constant start "
            "(difference in accuracy, largest over scales, N and data sets)",
            source="natgrad, explains “on par”",
            **over_seeds((found[..., 1] - deep).max(axis=(0, 1)), "max"),
            relation="<",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-few",
            statement=f"N ≤ {config.few}: Gaussian factors cost L = 4 at least half of its lead "
            "over L = 1 (share of the lead that is left, largest over scales, N and data sets)",
            source="natgrad, explains “on par”",
            **over_seeds(lead_left(config, arrays)[:, few].max(axis=(0, 1)), "max"),
            relation="<=",
            bound=0.5,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-on-par",
            statement="“L = 4 … on par with the shallow solution” from Gaussian factors (accuracy "
            "of L = 4 minus L = 1, mean over scales ≤ 0.3, largest over N)",
            source="[KMH21] §3.1",
            **over_seeds(_largest(found[small, :, :, 1].mean(axis=0) - shallow)),
            relation="<=",
            bound=0.05,
            presets=_BOTH,
            expected=False,
        ),
        Claim(
            id="gaussian-settled",
            statement=f"from Gaussian factors L = 4 has settled at t = {config.until:g} (accuracy "
            f"gained by t = {100 * config.until:g}, largest over scales ≤ 0.3, N and data sets)",
            source="natgrad; [KMH21] §3.1: “not long enough”",
            **over_seeds((found[small, ..., 2] - found[small, ..., 1]).max(axis=(0, 1)), "max"),
            relation="<=",
            bound=0.02,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-stuck",
            statement=f"N ≤ {config.few}, L = 4 from Gaussian factors of scale ≤ 0.3: some true "
            f"coefficients are near zero at t = {config.until:g} (share below 1 % of the largest, "
            "smallest over scales, N and data sets)",
            source="natgrad",
            **over_seeds(arrays["gaussian_stuck"][small][:, few].min(axis=(0, 1)), "min"),
            relation=">=",
            bound=0.1,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-stuck-slow",
            statement="N ≤ D, L = 4 from Gaussian factors: the true coefficients near zero are "
            "those whose factors started small (mean rank of their initial speed among all "
            "coordinates; ½ by chance)",
            source="natgrad",
            **over_seeds(_known_mean(arrays["gaussian_stuck_speed"][small][:, up_to_dim])),
            relation="<=",
            bound=0.4,
            presets=_BOTH,
        ),
    ]


def _largest(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the row with the largest mean of an array by N and data set."""
    row: npt.NDArray[np.float64] = values[values.mean(axis=1).argmax()]
    return row


def _known_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return means over all axes but the last, without NaNs; drop means of nothing but NaNs."""
    values = values.reshape(-1, values.shape[-1])
    known = ~np.isnan(values)
    some = known.any(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)[some]
    means: npt.NDArray[np.float64] = total / known.sum(axis=0)[some]
    return means


def _stopping(config: Fig4, arrays: Arrays) -> list[Claim]:
    accuracy, late = Table(arrays), arrays["late"][config.depths.index(2)]
    return [
        Claim(
            id="stopping",
            statement=f"N = {config.few}, L = 2: longer training is not better (best accuracy "
            f"along the path minus that at t = {config.late:g})",
            source="natgrad: the ℓ1 max margin is far away, and not better",
            **over_seeds(late.max(axis=1) - late[:, -1]),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="l1-margin-below",
            statement=f"N = {config.few}: EGD L = 2 at t = {config.until:g} is better than the ℓ1 "
            "max margin (difference in accuracy)",
            source="[KMH21] §2.1 calls it the limit",
            **over_seeds(accuracy("EGD L=2", config.few) - arrays["l1_accuracy"]),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
    ]


def _deep(arrays: Arrays) -> list[Claim]:
    deep = arrays["deep"][:, :, -1]
    return [
        Claim(
            id="deep-same-logits",
            statement="N < D: at L = 1 to 4 NGD has the training logits of Theorem 4 (largest "
            "error)",
            source="[KMH21] Theorem 4",
            value=float(arrays["deep_error"].max()),
            relation="<=",
            bound=1e-6,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="deep-other-beta",
            statement="N < D: the coefficients of NGD depend on depth (accuracy at L = 2 minus L "
            "= 1)",
            source="natgrad; [KMH21] states it for the logits only",
            **over_seeds(deep[1] - deep[0]),
            relation=">=",
            bound=0.03,
            presets=_BOTH,
        ),
        Claim(
            id="deep-pursuit",
            statement="N < D: at L = 3 and 4 NGD is near the shortest ℓ1 interpolant (smallest "
            "cosine)",
            source="natgrad",
            **over_seeds(arrays["deep_pursuit"][2:].min(axis=0), "min"),
            relation=">=",
            bound=0.999,
            presets=_BOTH,
        ),
    ]


def beyond(config: Fig4, arrays: Arrays) -> list[Claim]:
    """Return the claims of the two panels that are not in the paper."""
    return [*_proliferation(config, arrays), *_regimes(config, arrays)]


def _proliferation(config: Fig4, arrays: Arrays) -> list[Claim]:
    supports, ratios = arrays["supports"], np.array(config.ratios)
    above = ratios >= 1
    wide = ratios >= 2 * math.log(config.support_n)
    narrow = int(np.argmax(ratios > 1))
    found = [
        Claim(
            id="proliferation-natural",
            statement="D ≥ N: all samples support NGD's limit (smallest share)",
            source="[KMH21] §3: “occurs in NGF when D > N”",
            **over_seeds(supports[2][above].min(axis=0), "min"),
            relation=">=",
            bound=1.0,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="proliferation-l2-not-yet",
            statement=f"D/N = {ratios[narrow]:g}: not all samples support the ℓ2 max margin "
            "(share)",
            source="[KMH21] §3, after Hsu et al. 2020",
            **over_seeds(supports[0][narrow]),
            relation="<",
            bound=0.9,
            presets=_BOTH,
        ),
    ]
    if wide.any():
        found.append(
            Claim(
                id="proliferation-l2",
                statement="D ≥ 2 N log N: almost all samples support the ℓ2 max margin (share)",
                source="[KMH21] §3, after Hsu et al. 2020: D > N log N",
                **over_seeds(supports[0][wide].mean(axis=0)),
                relation=">=",
                bound=0.99,
                presets=_BOTH,
            )
        )
    return found


def _regimes(config: Fig4, arrays: Arrays) -> list[Claim]:
    accuracy, alpha = Table(arrays), arrays["alpha_accuracy"]
    kernel = np.abs(alpha[:, -1] - accuracy("EGD L=1", config.few)).max(axis=0)
    return [
        Claim(
            id="kernel-regime",
            statement=f"from the initial scale {config.alphas[-1]:g}, L = 2 and 3 do as well as "
            "EGD L = 1 (absolute difference in accuracy)",
            source="[KMH21] Q&A, after Woodworth et al. 2020",
            **over_seeds(kernel),
            relation="<=",
            bound=0.02,
            presets=_BOTH,
        ),
        Claim(
            id="rich-regime",
            statement="a small initial scale is better than a large one (accuracy from the "
            "smallest minus the largest, smaller of L = 2 and 3)",
            source="[KMH21] Q&A, after Woodworth et al. 2020",
            **over_seeds((alpha[:, 0] - alpha[:, -1]).min(axis=0)),
            relation=">=",
            bound=0.15,
            presets=_BOTH,
        ),
    ]


def loop_seconds(config: Fig4, arrays: Arrays) -> tuple[float, float]:
    """Return the CPU seconds of the paper's loop for the EGD curves, and for all EGD flows.

    Each flow counts as 2 million steps of the measured cost, however late it ends.
    """
    step = arrays["step_seconds"]
    curves = step.sum() * config.seeds
    few, depths = config.observations.index(config.few), list(config.depths)
    alphas = step[[depths.index(2), depths.index(3)], few].sum() * len(config.alphas) * config.seeds
    starts = len(config.gaussian_scales) * config.slow_seeds
    gaussian = step[depths.index(4)].sum() * starts
    return float(_LOOP * curves), float(_LOOP * (curves + alphas + gaussian))


def cost(config: Fig4, arrays: Arrays) -> list[Claim]:
    """Return the cost of the paper's loop compared with ours."""
    curves, everything = loop_seconds(config, arrays)
    ours = float(np.nansum(arrays["cell_seconds"][: len(config.depths)]))
    return [
        Claim(
            id="loop-agrees",
            statement=f"up to t = {config.loop_steps / 2:g} the paper's loop, extrapolated from "
            "steps of ¼ and ⅛ to steps of 0, ends where the flow does (relative distance of β, "
            "largest over depths and N; the flow's tolerance is 1e-3 per step)",
            source="natgrad",
            value=float(arrays["loop_distance"].max()),
            relation="<=",
            bound=5e-3,
            presets=_BOTH,
        ),
        Claim(
            id="loop-hours",
            statement="the paper's 2 million steps for every point of the EGD curves take more "
            "than a day (CPU hours)",
            source="[KMH21] §3.1: “2 million EGD steps”",
            value=curves / 3600,
            relation=">=",
            bound=24.0,
            presets=("paper",),
        ),
        Claim(
            id="speed",
            statement="our flows are at least 1500 times faster than the paper's loop (ratio of "
            "CPU times, all EGD curves together)",
            source="natgrad",
            value=curves / ours,
            relation=">=",
            bound=1500.0,
            presets=("paper",),
        ),
        Claim(
            id="speed-everything",
            statement="the whole figure, with NGD, limits and variants, is at least 500 times "
            "faster than the paper's loop for its EGD flows (ratio of CPU times)",
            source="natgrad",
            value=everything / float(arrays["all_cells_seconds"]),
            relation=">=",
            bound=500.0,
            presets=("paper",),
        ),
    ]
