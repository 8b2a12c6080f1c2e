"""Fitting an incomplete matrix: centring, a deep product along its flow, held-out entries."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.flows._methods.completion import completion_flow
from natgrad.parametrizations import MatrixProduct
from natgrad.stopping import Status

Centring = Literal["none", "mean", "means"]
Factors = tuple[Tensor, ...]

_SHRINKAGE = 1.0  # a row or column mean counts as if one more entry had shown none
_SWEEPS = 20
_CHUNK = 1 << 18


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries of a matrix.

    Attributes:
        shape: Rows and columns.
        positions: Row and column of each, each pair once, shape `(n, 2)`.
        values: Values, float64, shape `(n,)`.
    """

    shape: tuple[int, int]
    positions: Tensor
    values: Tensor

    def __len__(self) -> int:
        """Return their number."""
        return len(self.values)

    def at(self, index: Tensor) -> "Entries":
        """Return some of them."""
        return Entries(self.shape, self.positions[index], self.values[index])


@dataclass(frozen=True, eq=False)
class Centre:
    """What is subtracted before fitting, and the unit of what is left.

    Attributes:
        mean: Overall mean.
        rows: Deviation of each row.
        columns: Deviation of each column.
        unit: Root mean square of what is left.
    """

    mean: float
    rows: Tensor
    columns: Tensor
    unit: float

    @classmethod
    def of(cls, entries: Entries, centring: Centring) -> "Centre":
        """Return the centre of these entries; rows and columns by backfitting, shrunk a little.

        Raises:
            InvalidInputError: If nothing is left.
        """
        rows, columns = entries.positions.unbind(1)
        effects = [torch.zeros(n, dtype=torch.float64) for n in entries.shape]
        mean = 0.0 if centring == "none" else float(entries.values.mean())
        rest = entries.values - mean
        if centring == "means":
            for _ in range(_SWEEPS):
                for k, index in enumerate((rows, columns)):
                    rest = rest + effects[k][index]
                    effects[k] = _shrunk_means(rest, index, entries.shape[k])
                    rest = rest - effects[k][index]
        unit = math.sqrt(float(rest.square().mean()))
        if unit <= 1e-12 * max(abs(mean), float(entries.values.abs().max()), 1e-300):
            raise InvalidInputError(
                "once centred the observed values are all zero: means explain them, and there is "
                "nothing to complete."
            )
        return cls(mean, effects[0], effects[1], unit)

    def at(self, positions: Tensor) -> Tensor:
        """Return what is subtracted at these positions."""
        rows, columns = positions.unbind(1)
        return self.mean + self.rows[rows] + self.columns[columns]

    def standardised(self, entries: Entries) -> Entries:
        """Return the entries less the centre, in its unit."""
        values = (entries.values - self.at(entries.positions)) / self.unit
        return Entries(entries.shape, entries.positions, values)

    def everywhere(self) -> Tensor:
        """Return what is subtracted, as a matrix."""
        return self.mean + self.rows[:, None] + self.columns[None, :]


def _shrunk_means(values: Tensor, index: Tensor, size: int) -> Tensor:
    total = torch.zeros(size, dtype=torch.float64).index_add_(0, index, values)
    many = torch.bincount(index, minlength=size)
    return total / (many + _SHRINKAGE)


def predict(left: Tensor, right: Tensor, positions: Tensor) -> Tensor:
    """Return the entries of left · right at positions, float64, without forming the product."""
    across = right.mT.contiguous()
    parts = [
        torch.linalg.vecdot(left[part[:, 0]], across[part[:, 1]])
        for part in torch.split(positions, _CHUNK)
    ]
    return torch.cat(parts).double()


def halves(factors: Factors) -> tuple[Tensor, Tensor]:
    """Return W₁⋯W_{L−1} and W_L."""
    return MatrixProduct(len(factors) - 1).hypothesis(factors[:-1]), factors[-1]


@dataclass(frozen=True, eq=False)
class Fit:
    """A product of factors along its flow.

    Attributes:
        factors: The factors, in units of the centre.
        time: Time at which they were taken from the flow.
        to_end: Whether that was where the flow ended because the entries fit.
        error: Root mean squared error on the held-out entries, in units of the centre; NaN if
            there were none.
        curve: Times and held-out errors along the flow, shape `(steps, 2)`.
        evaluations: Gradients taken.
    """

    factors: Factors
    time: float
    to_end: bool
    error: float
    curve: Tensor
    evaluations: int


def fit_product(
    entries: Entries,
    *,
    depth: int,
    scale: float,
    hidden: int,
    seed: int,
    held_out: Entries | None = None,
    until: float = math.inf,
    max_evaluations: int = 3000,
) -> Fit:
    """Follow gradient flow from small Gaussian factors; keep the state best on held-out entries.

    Args:
        entries: Standardised entries to fit.
        depth: Number of factors, at least two.
        scale: Initial scale α.
        hidden: Width between factors.
        seed: Seed of the factors.
        held_out: Standardised entries to stop by; without them the flow runs to `until`.
        until: Longest time.
        max_evaluations: Most gradients.
    """
    generator = torch.Generator().manual_seed(seed)
    factors = MatrixProduct(depth).init_gaussian(
        entries.shape, scale=scale, hidden=hidden, generator=generator, dtype=torch.float32
    )
    watch = None if held_out is None else _Watch(held_out, factors)
    flow = completion_flow(
        factors,
        entries.positions,
        entries.values.float(),
        until=until,
        max_evaluations=max_evaluations,
        watch=watch,
    )
    end = float(flow.times[-1])
    if watch is None:
        return Fit(flow.final, end, False, math.nan, torch.zeros(0, 2), flow.evaluations)
    watch(end, flow.final)  # the last step ends the flow before it is watched
    fits = flow.status == Status.CONVERGED and watch.best_time == end
    curve = torch.tensor(watch.curve, dtype=torch.float64)
    return Fit(watch.best, watch.best_time, fits, watch.best_error, curve, flow.evaluations)


class _Watch:
    """Keep the best state, and end the flow when held-out entries say it is over.

    Errors on held-out entries fall in stairs, one for each direction that the flow finds, and the
    stairs of deep products are long: a flow is over when the error has risen by a fifth, or when
    no better state came in five times the time it took to the best.
    """

    def __init__(self, held_out: Entries, start: Factors) -> None:
        self._held_out = held_out
        self.best, self.best_error, self.best_time = start, math.inf, 0.0
        self.curve: list[tuple[float, float]] = []
        self._since = 0

    def __call__(self, t: float, factors: Factors) -> bool:
        if self.curve and self.curve[-1][0] == t:
            return False
        found = predict(*halves(factors), self._held_out.positions)
        error = math.sqrt(float((found - self._held_out.values).square().mean()))
        self.curve.append((t, error))
        self._since += 1
        if error < self.best_error:
            self.best = tuple(w.clone() for w in factors)
            self.best_error, self.best_time, self._since = error, t, 0
        worse, later = error > 1.2 * self.best_error, t > 5 * self.best_time
        return self._since >= 15 and (worse or later)


Predictor = Callable[[Tensor], Tensor]
"""Predicted values at positions, in the unit of the data."""


def rmse(predictor: Predictor, entries: Entries) -> float:
    """Return the root mean squared error on entries."""
    gap = predictor(entries.positions) - entries.values
    return math.sqrt(float(gap.square().mean()))


def spectrum(left: Tensor, right: Tensor) -> Tensor:
    """Return the singular values of left · right without forming it, float64."""
    a = torch.linalg.qr(left.double())[1]
    b = torch.linalg.qr(right.double().mT)[1]
    values: Tensor = torch.linalg.svdvals(a @ b.mT)
    return values
