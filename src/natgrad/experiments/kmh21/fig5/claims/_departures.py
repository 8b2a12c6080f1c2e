"""Our choices for Figure 5 where the paper is silent, and where our numbers differ."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.kmh21.fig5.claims._statistics import rank_tests, start_effect
from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.lab.arrays import Arrays


def departures(config: Fig5, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and where our numbers differ from the paper's text."""
    converged = arrays["egd_converged"]
    short = (~converged).sum(axis=(-2, -1))  # depth, scale
    cut = ", ".join(
        f"{short[i, j]} at L = {depth} from α = {scale:g}"
        for i, depth in enumerate(config.depths)
        for j, scale in enumerate(config.scales)
        if short[i, j]
    )
    two, three = config.natural_depths.index(2), config.natural_depths.index(3)
    sample = np.median(arrays["sample_test"], axis=-1)
    p, effect = rank_tests(config, arrays), start_effect(config, arrays)
    meets = float(np.median(arrays["share_time"][0]))
    low = config.observed[0]
    zero = np.median(arrays["egd_test"][config.depths.index(3), :, 0], axis=-1)
    return [
        "Our choices: entries have mean square one; the loss is ½Σ(β − y)²; EGD is a flow "
        "(Runge–Kutta–Chebyshev, float32, rtol 1e-2) until the mean squared error on observed "
        "entries is 1e-6; the test loss is the mean squared error on the others; the effective "
        "rank is exp of the entropy of the normalized singular values. The paper prints no initial "
        "scale; we show several.",
        f"Of {converged.size} EGD runs {int(short.sum())} were stopped after "
        f"{config.max_evaluations} gradients before their entries fitted ({cut or 'none'}); their "
        "last state counts. From small scales deep products stay on plateaus below the true rank "
        "for a long time. Meanwhile, directions that a plateau does not determine grow.",
        f"At N = {low} EGD of depth 3 has test losses of "
        f"{', '.join(f'{value:.2g}' for value in zero)} (scales "
        f"{', '.join(f'{s:g}' for s in config.scales)}). This is worse than predicting zero, and "
        "gets worse with smaller scales. The paper's figure does not show it.",
        "The paper averages the Fisher over the training data in §2.3, and over all entries of β "
        "in §4. Only the second choice is trivial. With the first, test losses at N = "
        f"{', '.join(map(str, config.few_observed))} are "
        f"{', '.join(f'{v:.2g}' for v in sample[two])} at L = 2 and "
        f"{', '.join(f'{v:.2g}' for v in sample[three])} at L = 3.",
        "“No setting where NGD would achieve non-trivial performance” holds only without damping. "
        "As λ grows, (F + λ)⁻¹ tends to a multiple of the identity, and NGD to EGD.",
        "Eq. 51 is printed with its factors in the wrong order. With the right order the equal "
        "share still fails from small Gaussian factors, because β moves on a straight line that "
        f"crosses det β = 0 (median time {meets:.1g}). The minimum norm passes this point. So "
        "equal share is shown from orthogonal factors, whose product has singular values "
        f"{config.size / 10:g}; there it is as trivial as the minimum norm.",
        "Initialization: unpaired rank tests find no effect "
        f"(p = {p['unpaired']:.2g} after correction). Paired tests within {config.collapsed_seeds} "
        f"problems have p = {p['L2']:.2g} at L = 2 and {p['L3']:.2g} at L = 3: the deepest start "
        f"changes the test loss by factors of {effect[2]:.2f} and {effect[3]:.2f}. With enough "
        "problems such tests find a small effect. Compared with the effect of depth in training it "
        "is “negligible”, as the paper says.",
    ]
