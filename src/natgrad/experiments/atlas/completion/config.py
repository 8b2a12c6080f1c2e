"""Config and presets of natural steps for matrix completion."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Completion of a low-rank matrix by gradient and natural descent of its factors."""

    size: int = 100
    """Rows and columns."""
    rank: int = 5
    """Rank of the matrix."""
    observed: int = 2500
    """Number of known entries."""
    depths: tuple[int, ...] = (2, 3)
    """Number of factors."""
    scale: float = 1e-3
    """Scale of the product at the start."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the matrix and of the factors."""


EXPERIMENT = Experiment(
    name="atlas/completion",
    title="Natural steps over the observed entries complete almost as gradient descent does, in a "
    "tenth of its steps",
    source="natgrad; [KMH21] Figure 5 for the problem",
    story="[KMH21] shows that natural gradient forgets the low-rank bias of depth, with the Fisher "
    "over all entries. Over the observed entries alone it keeps most of the bias, if no step "
    "changes a factor by more than 5 %. A little damping restores the rest.",
    presets={
        "smoke": Completion(size=30, rank=2, observed=400, seeds=(0,)),
        "quick": Completion(seeds=tuple(range(3))),
        "paper": Completion(),
    },
    minutes={"smoke": 0.1, "quick": 0.7, "paper": 8.0},
    **from_folder(__package__),
)
