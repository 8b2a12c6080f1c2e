"""Config and presets of the atlas of matrices and networks."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """Softmax regression of separable classes, and ReLU networks in the plane."""

    n: int = 30
    """Number of samples in several classes."""
    dim: int = 10
    """Number of features."""
    classes: int = 5
    """Number of classes."""
    length: float = 100.0
    """Length of the path of two layers; the flow of Shampoo takes a hundred times that."""
    points: int = 16
    """Number of samples in the plane."""
    hidden: int = 24
    """Hidden ReLUs."""
    steps: int = 3000
    """Steps of each descent."""
    saves: int = 20
    """States saved along each descent."""
    seeds: tuple[int, ...] = tuple(range(10))
    """Seeds of the data and of the starts."""


EXPERIMENT = Experiment(
    name="atlas/matrices",
    title="Muon tends to the spectral margin, two layers to the nuclear one, Shampoo to neither",
    source="arXiv 2502.04664, 2410.22069; Gunasekar et al. 2018; natgrad",
    story="With several classes the separator is a matrix, and optimizers differ in its singular "
    "values: Muon makes them equal, two layers make most of them zero. ReLU networks have no "
    "certified limit; their margins are compared in the norms of three optimizers.",
    presets={
        "smoke": Matrices(
            n=12, dim=5, classes=3, length=30.0, points=8, hidden=8, steps=150, saves=5, seeds=(0,)
        ),
        "quick": Matrices(steps=800, seeds=(0, 1, 2)),
        "paper": Matrices(),
    },
    minutes={"smoke": 0.1, "quick": 0.6, "paper": 5.0},
    **from_folder(__package__),
)
