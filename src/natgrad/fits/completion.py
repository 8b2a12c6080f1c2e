"""Fits of an incomplete matrix ([KMH21] §4): a deep product by its flow, and the nuclear norm."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from natgrad._checks import choice, integer, number
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.fits._entries import Entries, checked
from natgrad.fits._product_flow import Factors, entries_of, halves, product_flow
from natgrad.fits._soft_impute import SoftImpute, penalties

__all__ = [
    "Center",
    "Centering",
    "Entries",
    "LowRankModel",
    "NuclearFit",
    "Predict",
    "ProductFit",
    "fit_nuclear_norm",
    "fit_product",
    "rmse",
]

Centering = Literal["none", "mean", "means"]
"""What is subtracted before a fit: nothing, the overall mean, or row and column means too."""

Predict = Callable[[Tensor], Tensor]
"""Predicted values at positions `(n, 2)`, in the unit of the data."""

_SHRINKAGE = 1.0  # each row or column mean includes one extra entry of value zero
_SWEEPS = 20
_WORSE = 1.1  # the path of penalties ends when the held-out error is this many times the best


@dataclass(frozen=True, eq=False)
class Center:
    """The center that is subtracted before fitting, and the unit of the remainder.

    Attributes:
        mean: Overall mean.
        rows: Deviation of each row.
        columns: Deviation of each column.
        unit: Root mean square of the remainder.

    Example:
        >>> entries = Entries((1, 2), torch.tensor([[0, 0], [0, 1]]), torch.tensor([1.0, 3.0]))
        >>> center = Center.of(entries, "mean")
        >>> center.mean, center.standardized(entries).values
        (2.0, tensor([-1.,  1.], dtype=torch.float64))
    """

    mean: float
    rows: Tensor
    columns: Tensor
    unit: float

    @classmethod
    def of(cls, entries: Entries, how: Centering) -> "Center":
        """Return the center of entries; row and column means by backfitting, shrunk a little.

        Raises:
            InvalidInputError: If the remainder is zero.
        """
        rows, columns = entries.positions.unbind(1)
        effects = [torch.zeros(n, dtype=torch.float64) for n in entries.shape]
        mean = 0.0 if how == "none" else float(entries.values.mean())
        rest = entries.values - mean
        if how == "means":
            for _ in range(_SWEEPS):
                for k, index in enumerate((rows, columns)):
                    rest = rest + effects[k][index]
                    effects[k] = _shrunk_means(rest, index, entries.shape[k])
                    rest = rest - effects[k][index]
        unit = math.sqrt(float(rest.square().mean()))
        if unit <= 1e-12 * max(abs(mean), float(entries.values.abs().max()), 1e-300):
            raise InvalidInputError(
                "after centering, all observed values are zero: the means explain them, and "
                "there is nothing to complete."
            )
        return cls(mean, effects[0], effects[1], unit)

    def at(self, positions: Tensor) -> Tensor:
        """Return the center at these positions."""
        rows, columns = positions.unbind(1)
        return self.mean + self.rows[rows] + self.columns[columns]

    def standardized(self, entries: Entries) -> Entries:
        """Return the entries minus the center, in its unit."""
        values = (entries.values - self.at(entries.positions)) / self.unit
        return Entries(entries.shape, entries.positions, values)

    def everywhere(self) -> Tensor:
        """Return the center as a matrix."""
        return self.mean + self.rows[:, None] + self.columns[None, :]


def _shrunk_means(values: Tensor, index: Tensor, size: int) -> Tensor:
    total = torch.zeros(size, dtype=torch.float64).index_add_(0, index, values)
    many = torch.bincount(index, minlength=size)
    return total / (many + _SHRINKAGE)


@dataclass(frozen=True, eq=False)
class LowRankModel:
    """A completed matrix, center + unit · left · right, which is formed only on request.

    Attributes:
        center: The center that was subtracted before the fit.
        left: Shape `(rows, k)`.
        right: Shape `(k, columns)`.

    Example:
        >>> zero = torch.zeros(2, dtype=torch.float64)
        >>> model = LowRankModel(Center(1.0, zero, zero, 2.0), torch.ones(2, 1), torch.ones(1, 2))
        >>> model.predict(torch.tensor([[0, 1]])), model.matrix().sum()
        (tensor([3.], dtype=torch.float64), tensor(12.))
    """

    center: Center
    left: Tensor
    right: Tensor

    def predict(self, positions: Tensor) -> Tensor:
        """Return predicted values at positions, float64."""
        product = entries_of(self.left, self.right, positions)
        return self.center.at(positions) + self.center.unit * product

    def matrix(self) -> Tensor:
        """Return all predicted values, float32."""
        return (
            self.center.everywhere().float().addmm_(self.left, self.right, alpha=self.center.unit)
        )

    def singular_values(self) -> Tensor:
        """Return the singular values of the fitted product, largest first, float64."""
        a = torch.linalg.qr(self.left.double())[1]
        b = torch.linalg.qr(self.right.double().mT)[1]
        values: Tensor = torch.linalg.svdvals(a @ b.mT) * self.center.unit
        return values


def rmse(predict: Predict, entries: Entries) -> float:
    """Return the root mean squared error of predictions on entries.

    Example:
        >>> entries = Entries((1, 2), torch.tensor([[0, 0], [0, 1]]), torch.tensor([1.0, 3.0]))
        >>> rmse(lambda positions: torch.ones(len(positions)), entries) ** 2
        2.0000000000000004
    """
    gap = predict(entries.positions) - entries.values
    return math.sqrt(float(gap.square().mean()))


@dataclass(frozen=True, eq=False)
class ProductFit:
    """A product of factors, fitted by gradient flow.

    Attributes:
        model: The fitted matrix.
        factors: The factors, in the unit of the center.
        time: Time at which they were taken from the flow.
        to_end: Whether the flow had ended there because the entries fit.
        curve: Times and held-out errors along the flow, in the unit of the center, shape
            `(steps, 2)`; empty without held-out entries.
        evaluations: Number of gradients.

    Example:
        >>> entries = Entries((2, 2), torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]))
        >>> fit = fit_product(entries, hidden=1)
        >>> len(fit.factors), fit.to_end, fit.model.matrix().shape
        (2, False, torch.Size([2, 2]))
    """

    model: LowRankModel
    factors: Factors
    time: float
    to_end: bool
    curve: Tensor
    evaluations: int


def fit_product(
    entries: Entries,
    *,
    center: Centering = "mean",
    depth: int = 2,
    scale: float = 1e-3,
    hidden: int = 64,
    seed: int = 0,
    held_out: Entries | None = None,
    until: float = math.inf,
    max_evaluations: int = 3000,
) -> ProductFit:
    """Fit β = W₁⋯W_L by gradient flow from small Gaussian factors.

    With held-out entries the fit is the state that is best on them; otherwise it is the end of the
    flow. The loss is a sum, so the speed of the flow is proportional to the number of entries.

    Args:
        entries: Entries to fit.
        center: What to subtract first.
        depth: Number of factors, at least two.
        scale: Initial scale α.
        hidden: Width between factors, which is the highest rank that can be found.
        seed: Seed of the factors.
        held_out: Entries that decide when to stop; without them the flow runs to `until`.
        until: Longest time.
        max_evaluations: Largest number of gradients.

    Raises:
        InvalidInputError: If an argument cannot be used, or nothing is left after centering.

    Example:
        >>> truth = torch.outer(torch.arange(1.0, 7), torch.linspace(-1, 1, 6)).double()
        >>> seen = torch.arange(36).view(6, 6) % 5 > 0
        >>> entries = Entries((6, 6), seen.nonzero(), truth[seen])
        >>> fit = fit_product(entries, center="none", hidden=2)
        >>> bool((fit.model.matrix() - truth).abs().max() < 0.1)
        True
    """
    entries, held_out, middle = _prepared(entries, held_out, center)
    found = product_flow(
        middle.standardized(entries),
        depth=integer(depth, "depth", low=2),
        scale=number(scale, "scale", low=0, low_open=True),
        hidden=min(integer(hidden, "hidden", low=1), *entries.shape),
        seed=integer(seed, "seed", low=0),
        held_out=None if held_out is None else middle.standardized(held_out),
        until=number(until, "until", low=0, low_open=True, infinite=True),
        max_evaluations=integer(max_evaluations, "max_evaluations", low=1),
    )
    return ProductFit(
        LowRankModel(middle, *halves(found.factors)),
        found.factors,
        found.time,
        found.to_end,
        found.curve,
        found.evaluations,
    )


@dataclass(frozen=True, eq=False)
class NuclearFit:
    """A fit with the penalized nuclear norm.

    Attributes:
        model: The fitted matrix.
        penalty: λ as a share of the largest useful one.

    Example:
        >>> entries = Entries((2, 2), torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]))
        >>> fit_nuclear_norm(entries, width=1, penalty=0.5).penalty
        0.5
    """

    model: LowRankModel
    penalty: float


def fit_nuclear_norm(
    entries: Entries,
    *,
    center: Centering = "mean",
    width: int = 64,
    seed: int = 0,
    held_out: Entries | None = None,
    penalty: float | None = None,
    tries: int = 10,
) -> NuclearFit:
    """Fit argmin ½ Σ (B − y)² + λ‖B‖_*, down a path of halved penalties.

    Args:
        entries: Entries to fit.
        center: What to subtract first.
        width: Largest number of singular values to keep.
        seed: Seed of the first subspace.
        held_out: Entries used to choose λ; the path ends when their error rises.
        penalty: λ as a share of the largest useful one, 2⁻¹, 2⁻², …; the path ends there.
        tries: Largest number of penalties.

    Raises:
        InvalidInputError: If not exactly one of `held_out` and `penalty` is given, or if nothing is
            left once the entries are centered.

    Example:
        >>> truth = torch.outer(torch.arange(1.0, 7), torch.linspace(-1, 1, 6)).double()
        >>> seen = torch.arange(36).view(6, 6) % 5 > 0
        >>> entries = Entries((6, 6), seen.nonzero(), truth[seen])
        >>> fit = fit_nuclear_norm(entries, center="none", width=3, penalty=1 / 64)
        >>> fit.penalty, rmse(fit.model.predict, entries) < 0.2
        (0.015625, True)
    """
    if (held_out is None) == (penalty is None):
        raise InvalidInputError(
            "give either held_out, from which the penalty is chosen, or penalty."
        )
    entries, held_out, middle = _prepared(entries, held_out, center)
    width, seed = integer(width, "width", low=1), integer(seed, "seed", low=0)
    tries = integer(tries, "tries", low=1)
    if penalty is not None:
        penalty = number(penalty, "penalty", low=0, low_open=True)
    solver = SoftImpute(middle.standardized(entries), width=min(width, *entries.shape), seed=seed)
    largest = solver.largest()
    best, least = NuclearFit(LowRankModel(middle, *solver.now.halves()), 1.0), math.inf
    for value in penalties(largest, tries):
        share = value / largest
        if penalty is not None and share < penalty:
            break
        found = NuclearFit(LowRankModel(middle, *solver.solve(value).halves()), share)
        if held_out is None:  # nothing is chosen: the path ends at the given penalty
            best = found
            continue
        error = rmse(found.model.predict, held_out)
        if error < least:
            best, least = found, error
        elif error > _WORSE * least:
            break
    return best


def _prepared(
    entries: Entries, held_out: Entries | None, center: Centering
) -> tuple[Entries, Entries | None, Center]:
    """Return the checked entries, and the center to subtract from them."""
    entries = checked(entries, "entries")
    if held_out is not None:
        held_out = checked(held_out, "held_out")
        if held_out.shape != entries.shape:
            raise ShapeError(
                f"held_out must belong to the same matrix as entries, of shape {entries.shape}, "
                f"but has shape {held_out.shape}."
            )
    return entries, held_out, Center.of(entries, choice(center, "center", get_args(Centering)))
