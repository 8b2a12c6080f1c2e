"""[KMH21] Figure 2: separators in the plane, by depth for EGD, one for NGD."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21 import fig2_cells as cells
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Fig2:
    """Two classes in the plane, separated by gradient flows at several depths."""

    n: int = 40
    """Number of data."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Number of factors in β = w₁ ⊙ ⋯ ⊙ w_L."""
    scale: float = 0.1
    """Initial value of all factors but the first, which starts at zero. Our choice."""
    euclidean_until: float = 12.0
    """EGD ends at ten to this power: it nears its limits like 1/log t."""
    natural_until: float = 4.0
    """NGD ends at ten to this power: it nears its limit like 1/t."""
    points: int = 131
    """Times recorded of each trajectory."""

    def __post_init__(self) -> None:
        """Refuse depths that leave a claim without a number."""
        if not {1, 2, 4} <= set(self.depths):
            raise InvalidInputError(
                f"depths must contain 1, 2 and 4, which the claims compare, but are {self.depths}."
            )


def compute(config: Fig2, sweep: Sweep) -> Arrays:
    """Return trajectories of β, limits and data."""

    def cell(method: Any, depth: int) -> Cell:
        until = config.euclidean_until if method == "EGD" else config.natural_until
        given = cells.Flow(config.n, method, depth, config.scale, (-1.0, until), config.points)
        return Cell(cells.flow, given, f"{method} L={depth}")

    asked = [cell(method, depth) for method in ("EGD", "NGD") for depth in config.depths]
    found = sweep(asked, "flows")
    (limits,) = sweep([Cell(cells.limits, cells.Limits(config.n, config.depths), "limits")], "")
    arrays = Arrays(
        depth=config.depths,
        euclidean_time=np.logspace(-1, config.euclidean_until, config.points),
        natural_time=np.logspace(-1, config.natural_until, config.points),
        coordinate=[1, 2],
    )
    many = len(config.depths)
    egd, ngd = (np.stack([f["beta"] for f in part]) for part in (found[:many], found[many:]))
    arrays.add("egd", egd, "depth", "euclidean_time", "coordinate")
    arrays.add("ngd", ngd, "depth", "natural_time", "coordinate")
    arrays.add("egd_angle", degrees(egd), "depth", "euclidean_time")
    arrays.add("ngd_angle", degrees(ngd), "depth", "natural_time")
    arrays.add("norm_limit_angle", degrees(limits["norms"]), "depth")
    arrays.add("vertex_angle", degrees(limits["vertex"]))
    arrays.add("vertex_basis", limits["basis"], "support")
    arrays.add("x", limits["x"], "datum", "coordinate")
    arrays.add("y", limits["y"], "datum")
    return arrays


def degrees(beta: Any) -> Any:
    """Return the angle between β and the first axis, in degrees."""
    return np.degrees(np.arctan2(beta[..., 1], beta[..., 0]))


def claims(config: Fig2, arrays: Arrays) -> Sequence[Claim]:
    """Return what the separators show."""
    depths = list(config.depths)
    egd, ngd, norms = arrays["egd_angle"], arrays["ngd_angle"], arrays["norm_limit_angle"]
    first, last, vertex = depths.index(1), depths.index(4), float(arrays["vertex_angle"])
    apart = np.abs(norms - vertex)
    return [
        Claim(
            id="egd-l2",
            statement="EGD at L = 1 is near the ℓ2 max margin (degrees)",
            source="[KMH21] Figure 2A, §2.1",
            value=abs(float(egd[first, -1] - norms[first])),
            relation="<=",
            bound=0.1,
            presets=PRESETS,
        ),
        Claim(
            id="egd-axis",
            statement="EGD at L = 4 is near the axis, the sparse separator (degrees)",
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
            statement="NGD nears the vertex of the linear program (degrees, largest over depths)",
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
            statement="so do NGD and every EGD at the ends of their paths (degrees, least)",
            source="[KMH21] Figure 2",
            value=float(np.abs(egd[:, -1] - ngd[first, -1]).min()),
            relation=">",
            bound=1.0,
            presets=PRESETS,
        ),
    ]


def draw(config: Fig2, arrays: Arrays) -> "Figure":
    """Return the separators, and the way to them."""
    from natgrad.experiments.kmh21.fig2_picture import picture

    return picture(arrays)


def departures(config: Fig2, arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and what the paper's text does not say."""
    at = config.depths.index(2)
    now, limit = arrays["egd_angle"][at, -1], arrays["norm_limit_angle"][at]
    return [
        "The paper prints no data for this figure. Ours are such that the ℓ2, ℓ1 and ℓ_{1/2} max "
        "margins and the limit of natural gradient flow are four different separators; they rest "
        "on three data.",
        "EGD starts at w₁ = 0 and the other factors at "
        f"{config.scale:g}, so that β = 0 and every sign can be reached; times are those of the "
        f"mean loss, to 10^{config.euclidean_until:g} for EGD and 10^{config.natural_until:g} for "
        "NGD, whose Fisher is averaged over the training data.",
        f"EGD at L = 2 is at {now:.1f}° at the end, and its limit, the ℓ1 max margin, at "
        f"{limit:.1f}°: no computation sees the end of an approach like log log t. For L ≥ 3 the "
        "ℓ_{2/L} max margin is a stationary point of the flow, not always its limit.",
    ]


EXPERIMENT = register(
    Experiment(
        name="kmh21/fig2",
        title="EGD separates the plane differently at each depth, NGD always by one vertex",
        source="[KMH21] Figure 2",
        presets={
            "smoke": Fig2(points=27),
            "quick": Fig2(),
            "paper": Fig2(points=261),
        },
        minutes={"smoke": 0.2, "quick": 0.2, "paper": 0.3},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)
