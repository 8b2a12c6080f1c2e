"""Config and presets of [KMH21] Figure 3."""

from dataclasses import dataclass

from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig3:
    """A product of square Gaussian matrices. Its middle entry is observed."""

    size: int = 11
    """Number of rows and of columns; odd, so that there is a middle."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Number of factors."""
    euclidean_step: float = 0.5
    """Step η of EGD. Our choice."""
    natural_step: float = 0.5
    """Step η of NGD. Our choice."""
    seeds: int = 20
    """Random starts. The figure shows the first, and the claims use all."""

    def __post_init__(self) -> None:
        """Refuse values that leave a claim without a number."""
        if not {1, 2, 3} <= set(self.depths) or self.size % 2 == 0 or self.size < 3:
            raise InvalidInputError(
                "depths must contain 1, 2 and 3 and size must be odd and at least 3, but are "
                f"{self.depths} and {self.size}."
            )


EXPERIMENT = Experiment(
    name="kmh21/fig3",
    title="With EGD one observed entry moves its row and column at depth 2, and all entries from "
    "depth 3 on; with NGD only the observed entry moves",
    source="[KMH21] Figure 3",
    story="One entry of a product of matrices is observed above its value. Gradient descent "
    "moves that entry alone at depth 1, its row and column at depth 2, and the whole "
    "matrix from depth 3 on. Natural gradient descent over all entries moves the entry "
    "alone at every depth, so it has nothing to say about the others.",
    presets={
        "smoke": Fig3(size=7, seeds=2),
        "quick": Fig3(seeds=10),
        "paper": Fig3(seeds=50),
    },
    minutes={"smoke": 0.05, "quick": 0.1, "paper": 0.2},
    **from_folder(__package__),
)
