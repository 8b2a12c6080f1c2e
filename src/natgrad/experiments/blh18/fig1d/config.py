"""Config and presets of [BLH18] Figure 1D."""

from dataclasses import dataclass
from typing import Literal

from natgrad.experiments.blh18._rates import Rule, require_equal_grids
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Autoencoder:
    """Training an autoencoder of handwritten digits."""

    data: Literal["MNIST", "digits", "either"] = "MNIST"
    """MNIST, the small digits of scikit-learn, or either: MNIST if available, else the digits."""
    examples: int | None = None
    """Number of training images; None for all."""
    hidden: tuple[int, ...] = (400, 200, 100, 50, 100, 200, 400)
    """Widths of the hidden layers for MNIST's 784 pixels, reduced in proportion for fewer."""
    batch: int = 20
    """Batch size of SGD."""
    large_batch: int = 100
    """Batch size of momentum and Adam; larger batches make them faster."""
    published_batch: int = 1_000
    """Batch size of eq. 20, as published and with the last error factor known."""
    default_batch: int = 750
    """Batch size of NGD with measured lengths, the default of version 0.1."""
    passes: int = 20
    """Passes of SGD over the training images."""
    first_order_passes: int = 8
    """Passes of momentum and Adam."""
    published_passes: int = 8
    """Passes of eq. 20 as published."""
    known_passes: int = 5
    """Passes of eq. 20 with the last error factor known."""
    default_passes: int = 3
    """Passes of NGD with measured lengths, the default of version 0.1."""
    every: int = 4_000
    """Examples between two evaluations."""
    sgd_rates: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08)
    """Learning rates tried for SGD."""
    momentum_rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04)
    """Learning rates tried for SGD with momentum 0.9."""
    adam_rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3)
    """Learning rates tried for Adam."""
    tuning_passes: int = 1
    """Passes per trial of a learning rate."""
    seeds: int = 3
    """Number of runs, each with its own initial weights and order of the images."""
    glorot_seeds: int = 3
    """Number of runs from Glorot's weights."""
    wall_seeds: int = 3
    """Number of runs timed by the wall clock."""
    wall_trial: int = 6_000
    """Examples per trial when the number of threads of each method is chosen."""
    glorot_rate: float = 0.01
    """SGD's learning rate from Glorot's weights; rates from 0.014 on diverge within 20 epochs."""

    def __post_init__(self) -> None:
        """Require equally large grids for all methods."""
        require_equal_grids(self)

    def batch_of(self, rule: Rule) -> int:
        """Return the batch size M of a first-order method."""
        return self.batch if rule == "SGD" else self.large_batch


EXPERIMENT = Experiment(
    name="blh18/fig1d",
    title="An autoencoder of MNIST: natural gradients soon reach SGD's error after 20 epochs",
    source="[BLH18] Figure 1D",
    story="An autoencoder with nonlinear layers compresses images of digits to a few numbers. SGD "
    "trains it for 20 epochs. Natural gradients reach the same error in far fewer passes over the "
    "images.",
    presets={
        "smoke": Autoencoder(
            data="digits", hidden=(400, 100, 400), passes=6, first_order_passes=4,
            published_batch=250, default_batch=250, published_passes=4, known_passes=4,
            default_passes=4, every=500, seeds=1, glorot_seeds=1, wall_seeds=1, wall_trial=500,
        ),
        "quick": Autoencoder(
            data="either", examples=20_000, passes=3, first_order_passes=2, published_passes=2,
            known_passes=2, default_passes=2, every=2_000, sgd_rates=(0.02, 0.04),
            momentum_rates=(0.01, 0.02), adam_rates=(1e-3, 2e-3), seeds=1, glorot_seeds=1,
            wall_seeds=1, wall_trial=2_000,
        ),
        "paper": Autoencoder(),
    },
    minutes={"smoke": 0.2, "quick": 2, "paper": 60},
    **from_folder(__package__),
)  # fmt: skip
