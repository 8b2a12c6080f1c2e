"""Config and presets of the study of generalization."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Generalization:
    """Errors on fresh data of eleven methods at equal training loss, on 24 problems."""

    every: int = 1
    """Take every k-th problem of the list; 1 takes all of them."""
    draws: int = 5
    """Draws of data on which each method's step length is chosen; none of them is a seed below."""
    seeds: int = 30
    """Draws of data on which the methods are compared, the same for all."""
    most: int = 20000
    """Steps after which a run gives up; it does so earlier without a new lowest loss."""


EXPERIMENT = Experiment(
    name="study/generalization",
    title="How much of gradient descent's bias each optimizer keeps, and in how many steps",
    source="[KMH21] §5: a systematic study of generalization is future work",
    story="Natural gradient descent loses the biases that depth gives to gradient descent. Does "
    "that hurt on fresh data? Eleven methods, tuned alike, train 24 models to the same training "
    "loss.",
    presets={
        "smoke": Generalization(every=12, draws=1, seeds=2, most=400),
        "quick": Generalization(every=3, draws=2, seeds=5, most=5000),
        "paper": Generalization(),
    },
    minutes={"smoke": 0.1, "quick": 1.9, "paper": 28.0},
    **from_folder(__package__),
)
