"""Config of Figures 1A, 1B and 1C, and what each panel should show."""

from dataclasses import dataclass
from typing import Literal

from natgrad.experiments.blh18._rates import refuse_favours


@dataclass(frozen=True, kw_only=True)
class DeepLinear:
    """Learning a random deep linear network."""

    widths: tuple[int, ...]
    """Sizes of the layers, the input's first."""
    power: float
    """Squared Frobenius norm of the whole map, of the teacher and at the start. Our choice."""
    examples: int = 10_000
    """Training data."""
    tests: int = 1_000
    """Test data."""
    noise: float = 1e-6
    """Variance of the noise on each output."""
    passes: int = 25
    """Passes over the training data of each method."""
    natural_batch: int = 1_000
    """Batch size of the natural gradients."""
    sgd_rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
    """Learning rates tried for SGD."""
    momentum_rates: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
    """Learning rates tried for SGD with momentum 0.9, at each batch size."""
    adam_rates: tuple[float, ...] = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
    """Learning rates tried for Adam, at each batch size."""
    tuning_passes: int = 5
    """Passes of each trial of a learning rate, on every problem; one rate serves them all."""
    decay_steps: int = 100
    """Steps of undamped natural gradient descent without noise."""
    seeds: int = 5
    """Random problems."""

    def __post_init__(self) -> None:
        """Refuse grids that favour a method."""
        refuse_favours(self)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What one panel of the figure should show.

    Attributes:
        letter: A, B or C.
        rate: SGD's best learning rate in print.
        published: Passes within which eq. 20 arrives.
        sgd: Passes after which the paper's SGD has not arrived.
        sgd_fails: Whether that holds on every problem of ours.
        best: Passes within which our best arrives.
        published_wins: Whether eq. 20 also beats every first-order method in seconds.
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
