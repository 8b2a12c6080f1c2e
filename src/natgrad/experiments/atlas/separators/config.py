"""Config and presets of the atlas of separators."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Separators:
    """Logistic regression on separable data, from zero, under nine optimizers."""

    n: int = 30
    """Number of samples."""
    dim: int = 20
    """Number of features, fewer than samples: the natural limit is then a vertex."""
    ones: int = 4
    """How many features the labels depend on."""
    steps: int = 20000
    """Steps of each descent."""
    saves: int = 200
    """States saved along each descent."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the data."""


EXPERIMENT = Experiment(
    name="atlas/separators",
    title="Each optimizer tends to the largest margin in its own norm, and natural gradient to a "
    "vertex",
    source="arXiv 2502.04664, 2510.26303; natgrad",
    presets={
        "smoke": Separators(steps=1500, saves=30, seeds=(0,)),
        "quick": Separators(steps=5000, saves=100, seeds=tuple(range(4))),
        "paper": Separators(),
    },
    minutes={"smoke": 0.2, "quick": 1.5, "paper": 20.0},
    **from_folder(__package__),
)
