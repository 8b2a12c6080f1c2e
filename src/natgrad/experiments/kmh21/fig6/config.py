"""Config and presets of [KMH21] Figure 6."""

from dataclasses import dataclass

from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig6:
    """Sparse separators in 50 dimensions by EGD at depths 1 to 5 and by NGD."""

    dim: int = 50
    """Number of features D."""
    ones: int = 5
    """Ones in the true separator; its other coefficients are zero."""
    observations: tuple[int, ...] = (20, 30, 40, 50, 60, 75, 100, 150, 200, 300)
    """Numbers of samples N; D must be among them."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Depths L of EGD; 1 to 5 must be among them."""
    scales: tuple[float, ...] = (0.1, 0.1, 0.1, 0.2, 0.3)
    """Initial value per depth of all factors except the first, which is zero. Our choice."""
    until: float = 1e6
    """Final time for the mean loss: that of the paper's 2 million steps if each has length ½."""
    seeds: int = 20
    """Number of data sets."""
    few: int = 40
    """N < D in the panel on logits."""
    many: int = 100
    """N > D in the claims about depth."""
    gaussian_scales: tuple[float, ...] = (0.3, 1.0)
    """Standard deviations of the initial factors of EGD at L = 5, at every N."""
    gaussian_seeds: int = 10
    """Data sets for these starts."""
    sample: int = 5000
    """Unlabeled inputs that stand for the population in a check of its closed form."""
    sampled: tuple[int, ...] = (20, 50, 100, 300)
    """N of that check."""
    slow_seeds: int = 5
    """Data sets of that check."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave a claim without a number."""
        needed = {self.dim, self.few, self.many}
        if not needed | set(self.sampled) <= set(self.observations):
            raise InvalidInputError(
                f"observations must contain dim, few, many ({sorted(needed)}) and sampled, but "
                f"observations = {self.observations} and sampled = {self.sampled}."
            )
        if not self.few < self.dim < self.many:
            raise InvalidInputError(
                f"dim must lie between few and many, but few = {self.few}, dim = {self.dim}, "
                f"many = {self.many}."
            )
        if len(self.scales) != len(self.depths) or not {1, 2, 3, 4, 5} <= set(self.depths):
            raise InvalidInputError(
                "depths must contain 1 to 5 and scales one number for each, but they are "
                f"{self.depths} and {self.scales}."
            )
        if max(self.slow_seeds, self.gaussian_seeds) > self.seeds or not self.gaussian_scales:
            raise InvalidInputError(
                "slow_seeds and gaussian_seeds must be at most seeds, and gaussian_scales hold a "
                f"number, but slow_seeds = {self.slow_seeds}, gaussian_seeds = "
                f"{self.gaussian_seeds}, seeds = {self.seeds} and gaussian_scales = "
                f"{self.gaussian_scales}."
            )


EXPERIMENT = Experiment(
    name="kmh21/fig6",
    title="The same in 50 dimensions: depth helps up to L = 5, NGD dips at N = D",
    source="[KMH21] Figure 6",
    story="The experiment of Figure 4 is repeated in 50 dimensions, with more depths and more "
    "data sets. Depth helps gradient descent up to five layers. Natural gradient descent "
    "again dips at N = D, and the Fisher of the population removes the dip.",
    presets={
        "smoke": Fig6(
            dim=12,
            ones=2,
            observations=(8, 12, 24),
            until=1e3,
            seeds=2,
            few=8,
            many=24,
            gaussian_seeds=1,
            sample=500,
            sampled=(24,),
            slow_seeds=1,
        ),
        "quick": Fig6(
            observations=(20, 40, 50, 100, 200),
            seeds=5,
            gaussian_seeds=3,
            sampled=(20, 100),
            slow_seeds=2,
        ),
        "paper": Fig6(),
    },
    minutes={"smoke": 0.1, "quick": 1, "paper": 5},
    **from_folder(__package__),
)
