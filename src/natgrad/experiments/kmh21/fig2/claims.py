"""Claims of Figure 2, and our choices."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.kmh21.fig2.config import Fig2
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS


def claims(config: Fig2, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims about the separators."""
    depths = list(config.depths)
    egd, ngd, norms = arrays["egd_angle"], arrays["ngd_angle"], arrays["norm_limit_angle"]
    first, last, vertex = depths.index(1), depths.index(4), float(arrays["vertex_angle"])
    apart = np.abs(norms - vertex)
    return [
        Claim(
            id="egd-l2",
            statement="EGD at L = 1 ends near the ℓ2 max margin (degrees)",
            source="[KMH21] Figure 2A, §2.1",
            value=abs(float(egd[first, -1] - norms[first])),
            relation="<=",
            bound=0.1,
            presets=PRESETS,
        ),
        Claim(
            id="egd-axis",
            statement="EGD at L = 4 ends near the axis, the sparse separator (degrees)",
            source="[KMH21] Figure 2B, §3.1",
            value=abs(float(egd[last, -1])),
            relation="<=",
            bound=1.0,
            presets=PRESETS,
        ),
        Claim(
            id="ngd-depth",
            statement="NGD at L = 1 and L = 4 agree at every recorded time (degrees)",
            source="[KMH21] Figure 2C–D",
            value=float(np.abs(ngd[first] - ngd[last]).max()),
            relation="<=",
            bound=0.01,
            presets=PRESETS,
        ),
        Claim(
            id="ngd-vertex",
            statement="NGD ends near the vertex of the linear program (degrees, largest over "
            "depths)",
            source="natgrad",
            value=float(np.abs(ngd[:, -1] - vertex).max()),
            relation="<=",
            bound=0.1,
            presets=PRESETS,
        ),
        *(
            Claim(
                id=f"limits-differ-{depth}",
                statement=f"the limits of NGD and of EGD at L = {depth} differ (degrees)",
                source="[KMH21] §3.1: “different from both the EGD solutions”",
                value=float(apart[depths.index(depth)]),
                relation=">",
                bound=1.0,
                presets=PRESETS,
            )
            for depth in (1, 2, 4)
        ),
        Claim(
            id="ends-differ",
            statement="NGD and every EGD also differ at the ends of their paths (degrees, "
            "smallest)",
            source="[KMH21] Figure 2",
            value=float(np.abs(egd[:, -1] - ngd[first, -1]).min()),
            relation=">",
            bound=1.0,
            presets=PRESETS,
        ),
    ]


def departures(config: Fig2, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and results that the paper does not state."""
    at = config.depths.index(2)
    now, limit = arrays["egd_angle"][at, -1], arrays["norm_limit_angle"][at]
    return [
        "The paper does not print the data of this figure. We chose samples for which the ℓ2, ℓ1 "
        "and ℓ_{1/2} max margins and the limit of natural gradient flow are four different "
        "separators. All four are determined by three samples.",
        "EGD starts with w₁ = 0 and the other factors at "
        f"{config.scale:g}, so that β = 0 and every sign can be reached. Time is that of the mean "
        f"loss, up to 10^{config.euclidean_until:g} for EGD and 10^{config.natural_until:g} for "
        "NGD. The Fisher is averaged over the training data.",
        f"EGD at L = 2 ends at {now:.1f}°, while its limit, the ℓ1 max margin, is at "
        f"{limit:.1f}°. It approaches like log log t, so no computation reaches the limit. For "
        "L ≥ 3 the ℓ_{2/L} max margin is a stationary point of the flow, but not always its limit.",
    ]
