"""Config and presets of [KMH21] Figure 2."""

from dataclasses import dataclass

from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig2:
    """Two classes in the plane, separated by gradient flows at several depths."""

    n: int = 40
    """Number of samples."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Number of factors in β = w₁ ⊙ ⋯ ⊙ w_L."""
    scale: float = 0.1
    """Initial value of all factors except the first, which starts at zero. Our choice."""
    euclidean_until: float = 12.0
    """EGD ends at ten to this power, because it approaches its limits like 1/log t."""
    natural_until: float = 4.0
    """NGD ends at ten to this power, because it approaches its limit like 1/t."""
    points: int = 131
    """Recorded times per trajectory."""

    def __post_init__(self) -> None:
        """Refuse depths that leave a claim without a number."""
        if not {1, 2, 4} <= set(self.depths):
            raise InvalidInputError(
                f"depths must contain 1, 2 and 4, which the claims compare, but are {self.depths}."
            )


EXPERIMENT = Experiment(
    name="kmh21/fig2",
    title="EGD picks a different line at each depth; NGD always picks the same one",
    source="[KMH21] Figure 2",
    story="Many lines separate these two classes. At each depth gradient flow picks a "
    "different one: the ℓ2 max margin at depth 1, sparser ones as the network gets deeper. "
    "Natural gradient flow takes one path at every depth, to a vertex that a linear "
    "program predicts.",
    presets={
        "smoke": Fig2(points=27),
        "quick": Fig2(),
        "paper": Fig2(points=261),
    },
    minutes={"smoke": 0.2, "quick": 0.2, "paper": 0.3},
    **from_folder(__package__),
)
