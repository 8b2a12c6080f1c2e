"""Claims of Figure 1, and our choices."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.kmh21.fig1.cells import SPACES, euclidean_optimum, natural_optimum
from natgrad.experiments.kmh21.fig1.config import Fig1
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS


def claims(config: Fig1, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims about the paths."""
    beta, ends = arrays["beta"], arrays["finite_end"]
    gaps = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=-1)
    truth = [euclidean_optimum(space) for space in SPACES]
    off = max(float(np.abs(beta[i, 0, -1] - end).max()) for i, end in enumerate(truth))
    off = max(off, float(np.abs(beta[0, 1, -1] - natural_optimum(config.correlation)).max()))
    return [
        Claim(
            id="egd-differs",
            statement="EGD ends at a different optimum in each parametrization (distance in H)",
            source="[KMH21] Figure 1",
            value=float(np.linalg.norm(beta[0, 0, -1] - beta[1, 0, -1])),
            relation=">=",
            bound=0.5,
            presets=PRESETS,
        ),
        Claim(
            id="ngd-agrees",
            statement="both NGD paths are the same path in H (largest distance at any time)",
            source="[KMH21] Figure 1; §2.3, statement",
            value=float(np.linalg.norm(beta[0, 1] - beta[1, 1], axis=-1).max()),
            relation="<=",
            bound=1e-6,
            presets=PRESETS,
        ),
        Claim(
            id="ends-known",
            statement="every path ends where the closed form says (largest distance)",
            source="natgrad",
            value=off,
            relation="<=",
            bound=1e-4,
            presets=PRESETS,
        ),
        Claim(
            id="finite-steps",
            statement="with finite steps NGD is invariant up to O(η) (order of the gap at t = 1)",
            source="[KMH21] §1, “approximate invariance”",
            value=float(np.log2(gaps[0] / gaps[1])),
            relation="within",
            bound=(0.9, 1.1),
            presets=PRESETS,
        ),
    ]


def departures(config: Fig1, arrays: Arrays) -> Sequence[str]:
    """Return our choices where the paper is silent."""
    return [
        "The paper's Figure 1 is a sketch. Here every path is computed: regression on one "
        "observation, x = (1, ½) and y = 2. Its optima form a line of hypotheses. The Fisher is "
        f"averaged over Gaussian inputs with correlation {config.correlation:g} (our choice). With "
        "only the one training input it would be singular, and only the training output would be "
        "invariant.",
        "The second parameter space is the paper's diagonal network β = w₁ ⊙ w₂. Its layers start "
        "equal and stay equal, so one w is drawn.",
    ]
