"""Norms of vectors and matrices with their duals, for margins and for steepest descent.

The dual norm is ‖g‖* = max {⟨g, v⟩ : ‖v‖ ≤ 1}. A maximizer v is called the peak of g.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from natgrad._checks import choice, dense, describe, integers, number, tensor
from natgrad._named import named, options
from natgrad.errors import InvalidInputError, ShapeError, VelocityOverflowError
from natgrad.linalg._cholesky import check_covariance, cholesky
from natgrad.linalg._precision import widen

__all__ = ["Group", "Lp", "Metric", "Norm", "Nuclear", "Spectral", "as_norm"]


class Norm(ABC):
    """A norm of tensors: call it to get the length; `dual()` returns the dual norm.

    A custom norm defines `_length`, `dual` and `_peak`; steepest descent and certificates
    then work in it. `limits.max_margin` supports the norms of this module.

    Example:
        >>> norm: Norm = Lp(1)
        >>> norm(torch.tensor([3.0, -4.0])), norm.dual()(torch.tensor([3.0, -4.0]))
        (7.0, 4.0)
    """

    def __call__(self, b: Tensor) -> float:
        """Return ‖b‖."""
        length = self._length(widen(tensor(b, "b")))
        if not math.isfinite(length):
            raise VelocityOverflowError("the length overflows float64. Divide by a constant first.")
        return length

    def peak(self, g: Tensor) -> Tensor:
        """Return some v with ‖v‖ = 1 and ⟨g, v⟩ = ‖g‖*, or zero for g = 0.

        Example:
            >>> Lp(math.inf).peak(torch.tensor([3.0, -4.0]))
            tensor([ 1., -1.])
        """
        wide = widen(tensor(g, "g"))
        size = float(wide.abs().max())
        return self._peak(wide / size).to(g) if size > 0 else torch.zeros_like(g)

    @abstractmethod
    def dual(self) -> "Norm":
        """Return the dual norm."""

    @abstractmethod
    def _length(self, b: Tensor) -> float: ...

    @abstractmethod
    def _peak(self, g: Tensor) -> Tensor:
        """Return the peak of g, whose largest entry is one."""


@options
@dataclass(frozen=True)
class Lp(Norm):
    """ℓp over all entries, (Σ|bⱼ|^p)^{1/p}.

    Args:
        p: From 1 to `math.inf`, the largest entry.

    Example:
        >>> Lp(2).peak(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """

    p: float

    def __post_init__(self) -> None:
        """Raise if the power is below one, which gives no norm."""
        object.__setattr__(self, "p", number(self.p, "p", low=1, infinite=True))

    def dual(self) -> "Lp":
        """Return ℓq with 1/p + 1/q = 1."""
        return Lp(math.inf if self.p == 1 else 1.0 if math.isinf(self.p) else self.p / (self.p - 1))

    def _length(self, b: Tensor) -> float:
        size = float(b.abs().max())
        return size * float(torch.linalg.vector_norm(b / size, self.p)) if size > 0 else 0.0

    def _peak(self, g: Tensor) -> Tensor:
        if math.isinf(self.p):
            return g.sign()
        if self.p == 1:
            v = torch.zeros_like(g)
            first = g.abs().argmax()
            v.view(-1)[first] = g.reshape(-1)[first].sign()
            return v
        v = g.sign() * g.abs() ** (1 / (self.p - 1))
        return v / self._length(v)


@options
@dataclass(frozen=True, eq=False)
class Group(Norm):
    """The sum (p = 1) or the largest (p = ∞) of the Euclidean lengths of groups of entries.

    Args:
        groups: Group number of each entry, integers `(d,)`; or `"rows"` or `"columns"` of a
            matrix. For β of shape `(k, d)` a column holds all weights of one feature.
        p: 1 or `math.inf`.

    Example:
        >>> Group("columns", 1)(torch.tensor([[3.0, 0.0], [4.0, 1.0]]))
        6.0
    """

    groups: Tensor | Literal["rows", "columns"]
    p: float = 1

    def __post_init__(self) -> None:
        """Raise unless groups are integers and the power is 1 or ∞."""
        if isinstance(self.groups, Tensor):
            found = dense(self.groups, "groups")
            if found.ndim != 1 or len(found) == 0 or found.dtype != torch.int64 or found.min() < 0:
                raise InvalidInputError(
                    "groups must be one integer from 0 for each entry, dtype int64 and shape (d,), "
                    f"but is {describe(found)}."
                )
        else:
            choice(self.groups, "groups", ("rows", "columns"))
        if number(self.p, "p", low=1, infinite=True) not in (1, math.inf):
            raise InvalidInputError(f"p of Group must be 1 or math.inf, but is {describe(self.p)}.")

    def dual(self) -> "Group":
        """Return the same groups with the other power."""
        return Group(self.groups, math.inf if self.p == 1 else 1)

    def numbers(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        """Return the group of each entry of a flattened tensor of this shape, 0…g − 1.

        Example:
            >>> Group("rows").numbers((2, 2))
            tensor([0, 0, 1, 1])
        """
        shape = integers(shape, "shape", low=1)
        if isinstance(self.groups, Tensor):
            if tuple(shape) != tuple(self.groups.shape):
                raise ShapeError(
                    f"groups are for shape {tuple(self.groups.shape)}, not {tuple(shape)}."
                )
            found: Tensor = torch.unique(self.groups, return_inverse=True)[1]
            return found
        if len(shape) != 2:
            raise ShapeError(
                f"groups of {self.groups} need a matrix, but the shape is {tuple(shape)}."
            )
        rows, columns = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
        return (rows if self.groups == "rows" else columns).reshape(-1)

    def _lengths(self, b: Tensor) -> tuple[Tensor, Tensor]:
        numbers = self.numbers(b.shape).to(b.device)
        squares = b.new_zeros(int(numbers.max()) + 1).index_add(0, numbers, b.reshape(-1) ** 2)
        return squares.sqrt(), numbers

    def _length(self, b: Tensor) -> float:
        size = float(b.abs().max()) or 1.0
        lengths = self._lengths(b / size)[0]
        return size * float(lengths.sum() if self.p == 1 else lengths.max())

    def _peak(self, g: Tensor) -> Tensor:
        lengths, numbers = self._lengths(g)
        if self.p == 1:
            first = torch.zeros_like(lengths)
            first[lengths.argmax()] = 1 / lengths.max()
            return (first[numbers] * g.reshape(-1)).reshape(g.shape)
        inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
        return (inverse[numbers] * g.reshape(-1)).reshape(g.shape)


@dataclass(frozen=True)
class Spectral(Norm):
    """The largest singular value of a matrix.

    Example:
        >>> Spectral()(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        2.0
    """

    def dual(self) -> "Nuclear":
        """Return the nuclear norm."""
        return Nuclear()

    def _length(self, b: Tensor) -> float:
        return float(_singular(b)[1][0])

    def _peak(self, g: Tensor) -> Tensor:
        u, s, vh = _singular(g)
        kept = s > 8 * max(g.shape) * torch.finfo(g.dtype).eps * s[0]
        turned: Tensor = u[:, kept] @ vh[kept]
        return turned


@dataclass(frozen=True)
class Nuclear(Norm):
    """The sum of the singular values of a matrix.

    Example:
        >>> Nuclear()(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        3.0
    """

    def dual(self) -> "Spectral":
        """Return the largest singular value."""
        return Spectral()

    def _length(self, b: Tensor) -> float:
        return float(_singular(b)[1].sum())

    def _peak(self, g: Tensor) -> Tensor:
        u, _, vh = _singular(g)
        return torch.outer(u[:, 0], vh[0])


def _singular(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if b.ndim != 2:
        raise ShapeError(f"singular values need a matrix, but the shape is {tuple(b.shape)}.")
    u, s, vh = torch.linalg.svd(b, full_matrices=False)
    return u, s, vh


@options
class Metric(Norm):
    """The length (Σ βA·β)^{1/2} in a metric A; rows of a matrix β add up.

    Args:
        a: A, positive definite, shape `(d, d)`.

    Example:
        >>> Metric(torch.diag(torch.tensor([4.0, 1.0])))(torch.tensor([1.0, 0.0]))
        2.0
    """

    def __init__(self, a: Tensor) -> None:
        check_covariance(a, "the metric")
        self.a = a
        self.root = cholesky(widen(a), name="the metric")

    def __repr__(self) -> str:
        """Return the constructor call, with the size of the metric."""
        return f"Metric({tuple(self.a.shape)})"

    def dual(self) -> Norm:
        """Return the length in the metric A⁻¹."""
        return _Inverse(self)

    def rooted(self, b: Tensor) -> Tensor:
        """Return bL, LLᵀ = A, whose Euclidean length is that of b in the metric.

        Example:
            >>> Metric(4 * torch.eye(2)).rooted(torch.ones(2))
            tensor([2., 2.])
        """
        return b @ self._factor(b)

    def unrooted(self, g: Tensor) -> Tensor:
        """Return gL⁻ᵀ, whose Euclidean length is that of g in the dual metric.

        Example:
            >>> Metric(4 * torch.eye(2)).unrooted(torch.ones(2))
            tensor([0.5000, 0.5000])
        """
        factor, rows = self._factor(g), g.reshape(-1, g.shape[-1])
        found: Tensor = torch.linalg.solve_triangular(factor, rows.mT, upper=False)
        return found.mT.reshape(g.shape)

    def from_root(self, c: Tensor) -> Tensor:
        """Return b with bL = c: the inverse of `rooted`.

        Example:
            >>> Metric(4 * torch.eye(2)).from_root(torch.ones(2))
            tensor([0.5000, 0.5000])
        """
        factor, rows = self._factor(c), c.reshape(-1, c.shape[-1])
        found: Tensor = torch.linalg.solve_triangular(factor, rows, upper=False, left=False)
        return found.reshape(c.shape)

    def _factor(self, b: Tensor) -> Tensor:
        if tensor(b, "b").ndim == 0 or b.shape[-1] != len(self.root):
            raise ShapeError(
                f"the metric is for {len(self.root)} features, but the shape is {tuple(b.shape)}."
            )
        return self.root.to(b)

    def _length(self, b: Tensor) -> float:
        return Lp(2)._length(self.rooted(b))

    def _peak(self, g: Tensor) -> Tensor:
        factor, rows = self._factor(g), g.reshape(-1, g.shape[-1])
        v = torch.cholesky_solve(rows.mT, factor).mT.reshape(g.shape)
        return v / self._length(v)


class _Inverse(Norm):
    """The dual of a metric, from the same factor."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def dual(self) -> Metric:
        return self.metric

    def _length(self, b: Tensor) -> float:
        return Lp(2)._length(self.metric.unrooted(b))

    def _peak(self, g: Tensor) -> Tensor:
        return g @ self.metric.a.to(g) / self.metric._length(g)


@named
def as_norm(p: float | Norm) -> Norm:
    """Return the norm, or ℓp for a number p ≥ 1.

    Example:
        >>> as_norm(2)
        Lp(p=2.0)
    """
    return p if isinstance(p, Norm) else Lp(p)
