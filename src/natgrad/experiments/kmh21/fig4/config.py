"""Config and presets of [KMH21] Figure 4."""

from dataclasses import dataclass

from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig4:
    """Sparse separators by EGD at several depths and by NGD, against the number of samples."""

    dim: int = 1000
    """Number of features D."""
    ones: int = 20
    """Ones in the true separator; its other coefficients are zero."""
    observations: tuple[int, ...] = (250, 500, 750, 1000, 1250, 1500, 2000, 2500)
    """Numbers of samples N; D must be among them."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Depths L of EGD; 1, 2, 3 and 4 must be among them."""
    scales: tuple[float, ...] = (0.1, 0.1, 0.1, 0.2)
    """Initial value per depth of all factors except the first, which is zero. Our choice."""
    until: float = 1e6
    """Final time for the mean loss: that of the paper's 2 million steps if each has length ½."""
    seeds: int = 10
    """Number of data sets."""
    few: int = 500
    """N < D in the panels on logits, stopping time, depth and the scale of constant starts."""
    path: tuple[int, ...] = (1250, 1500, 2000, 2500)
    """N > D at which natural flow is followed from t = 0 and compared with the linear program."""
    slow_seeds: int = 5
    """Number of data sets for the slower variants: Gaussian starts, and NGD in deep networks."""
    gaussian_scales: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Standard deviations of the initial factors of EGD at L = 4, at every N."""
    overshoot_scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2, 0.3, 1.0)
    """Standard deviations of the initial β of NGD with Euler steps, at every N ≤ D. Claims are
    made at 0.03, at 0.1 and from 0.2 on."""
    overshoot_step: float = 0.1
    """Length of those steps."""
    late: float = 1e12
    """Final time of the panel on stopping."""
    alphas: tuple[float, ...] = (1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Initial scales of the panel on kernel and rich regimes."""
    support_n: int = 100
    """N of the panel on support vectors."""
    ratios: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
    """D/N of that panel."""
    sample: int = 10_000
    """Unlabeled inputs that stand for the population in a check of its closed form."""
    loop_steps: int = 300
    """Timed steps of the paper's loop, per depth and N."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave a claim without a number."""
        needed = {self.dim, self.few, *self.path}
        if not needed <= set(self.observations):
            raise InvalidInputError(
                f"observations must contain dim, few and path, at which claims are made "
                f"({sorted(needed)}), but are {self.observations}."
            )
        if not (self.few < self.dim and self.path and min(self.path) > self.dim):
            raise InvalidInputError(
                f"few must be below dim and path above it, but few = {self.few}, path = "
                f"{self.path}, dim = {self.dim}."
            )
        if not {0.03, 0.1, 0.3} <= set(self.overshoot_scales) or not self.gaussian_scales:
            raise InvalidInputError(
                "overshoot_scales must contain 0.03, 0.1 and 0.3, and gaussian_scales one number, "
                f"but they are {self.overshoot_scales} and {self.gaussian_scales}."
            )
        if not 1 <= self.until <= self.late:
            raise InvalidInputError(
                f"until must lie between 1 and late, but until = {self.until:g} and "
                f"late = {self.late:g}."
            )
        if len(self.scales) != len(self.depths) or not {1, 2, 3, 4} <= set(self.depths):
            raise InvalidInputError(
                "depths must contain 1 to 4 and scales one number for each, but they are "
                f"{self.depths} and {self.scales}."
            )
        if self.slow_seeds > self.seeds or max(self.ratios, default=0) <= 1:
            raise InvalidInputError(
                f"slow_seeds must be at most seeds and one of ratios above 1, but slow_seeds = "
                f"{self.slow_seeds}, seeds = {self.seeds}, ratios = {self.ratios}."
            )


_QUICK = Fig4(
    observations=(250, 500, 1000, 1500, 2500),
    seeds=3,
    path=(1500,),
    slow_seeds=1,
    overshoot_scales=(0.03, 0.1, 0.2, 0.3, 1.0),
    alphas=(1e-2, 0.1, 0.3, 1.0, 3.0),
    ratios=(0.5, 1.0, 1.5, 2.0, 4.0, 6.0, 10.0),
    loop_steps=50,
)
_SMOKE = Fig4(
    dim=60,
    ones=4,
    observations=(40, 60, 90),
    seeds=2,
    few=40,
    path=(90,),
    slow_seeds=1,
    gaussian_scales=(0.1, 1.0),
    overshoot_scales=(0.03, 0.1, 0.3),
    late=1e4,
    until=1e3,
    alphas=(0.1, 1.0),
    support_n=20,
    ratios=(0.5, 1.0, 4.0),
    sample=2000,
    loop_steps=20,
)

EXPERIMENT = Experiment(
    name="kmh21/fig4",
    title="Depth lets EGD generalize from few samples; NGD interpolates and dips at N = D",
    source="[KMH21] Figure 4",
    story="A sparse separator in 1000 dimensions must be found from few labeled samples. Deeper "
    "networks trained by gradient descent find it from fewer samples. Natural gradient "
    "descent gives one answer at every depth, which interpolates the labels and is worst "
    "where the number of samples N equals the dimension D.",
    presets={"smoke": _SMOKE, "quick": _QUICK, "paper": Fig4()},
    minutes={"smoke": 0.2, "quick": 2, "paper": 12},
    **from_folder(__package__),
)
