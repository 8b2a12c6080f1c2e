"""Config of Figures 1A, 1B and 1C, and the expected result of each panel."""

from dataclasses import dataclass
from typing import Literal

from natgrad.experiments.blh18._rates import require_equal_grids


@dataclass(frozen=True, kw_only=True)
class DeepLinear:
    """Learning a random deep linear network."""

    widths: tuple[int, ...]
    """Widths of the layers, starting with the input."""
    power: float
    """Squared Frobenius norm of the whole map, for the teacher and at the start. Our choice."""
    examples: int = 10_000
    """Number of training samples."""
    tests: int = 1_000
    """Number of test samples."""
    noise: float = 1e-6
    """Variance of the noise on each output."""
    passes: int = 25
    """Passes of each method over the training data."""
    natural_batch: int = 1_000
    """Batch size of the natural gradients."""
    sgd_rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
    """Learning rates tried for SGD."""
    momentum_rates: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
    """Learning rates tried for SGD with momentum 0.9, at each batch size."""
    adam_rates: tuple[float, ...] = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
    """Learning rates tried for Adam, at each batch size."""
    tuning_passes: int = 5
    """Passes per trial of a learning rate, on every problem. One rate is chosen for all."""
    decay_steps: int = 100
    """Steps of undamped natural gradient descent without noise."""
    seeds: int = 5
    """Number of random problems."""

    def __post_init__(self) -> None:
        """Require equally large grids for all methods."""
        require_equal_grids(self)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The expected result of one panel of the figure.

    Attributes:
        letter: A, B or C.
        rate: SGD's best learning rate according to the paper.
        published: Passes within which eq. 20 arrives at the noise floor.
        sgd: Passes after which the paper's SGD has not arrived.
        sgd_fails: Whether SGD has not arrived by then on any of our problems either.
        best: Passes within which our best method arrives.
        published_wins: Whether eq. 20 also takes fewer seconds than every first-order method.
        decay_start: Where the decay without noise starts.
        decay_rate: α of the decay without noise.
    """

    letter: Literal["A", "B", "C"]
    rate: float
    published: float
    sgd: float
    best: float
    published_wins: bool
    sgd_fails: bool = True
    decay_start: Literal["random", "near"]
    decay_rate: float
