"""Second moments of rows, and their running averages: the Kronecker factors of the Fisher."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from natgrad._checks import ALL_FLOATS, flag, integer, tensor
from natgrad.errors import InvalidInputError
from natgrad.optim._distributed import World
from natgrad.optim._states import entries, real
from natgrad.optim.damping import Split

FEW_ROWS = 0.2
"""Up to this fraction of the side, rows are worth keeping: they update an inverse for less than a
factorization costs (the table of `inverses`)."""

# Rows of a block: small enough to skip most of the upper triangle, large enough for fast products.
_BLOCK = 128


def factor_shape(side: int, largest: int | None) -> tuple[int, ...]:
    """Return the shape of a factor: one matrix, or a stack of equal blocks on its diagonal.

    A side above 1.5 `largest` is cut into equal blocks of at most `largest`; the last one
    ends in zeros if the side is not a multiple of the block.

    Example:
        >>> factor_shape(300, 224), factor_shape(785, 224), factor_shape(785, None)
        ((300, 300), (4, 197, 197), (785, 785))
    """
    if largest is None or 2 * side <= 3 * largest:
        return side, side
    count = -(-side // largest)
    return count, -(-side // count), -(-side // count)


def diagonal_blocks(matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the blocks on the diagonal of a matrix, in a shape that `factor_shape` gave.

    Example:
        >>> diagonal_blocks(torch.tensor([[1.0, 2.0], [2.0, 3.0]]), (2, 1, 1)).flatten()
        tensor([1., 3.])
    """
    if len(shape) == 2:
        return matrix
    count, k, _ = shape
    room = count * k - len(matrix)
    padded = pad(matrix, (0, room, 0, room))
    return torch.stack([padded[i : i + k, i : i + k] for i in range(0, count * k, k)])


def add_gram(total: Tensor, rows: Tensor, *, weight: float = 1.0, ones: bool = False) -> None:
    """Add weight · Σᵣ xᵣ xᵣᵀ to the lower triangle of `total`, in place.

    Only blocks on and below the diagonal are computed; entries above it have no meaning, as in
    LAPACK. `symmetric` fills it in.

    Args:
        total: Shape `(n, n)`, or `(n + 1, n + 1)` with `ones`.
        rows: x, shape `(r, n)`.
        weight: Factor on the sum.
        ones: Append a one to every row.

    Example:
        >>> total = torch.zeros(3, 3)
        >>> add_gram(total, torch.tensor([[1.0, 2.0]]), ones=True)
        >>> symmetric(total)
        tensor([[1., 2., 1.],
                [2., 4., 2.],
                [1., 2., 1.]])
    """
    n = rows.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        total[start:stop, :stop].addmm_(rows[:, start:stop].mT, rows[:, :stop], alpha=weight)
    if ones:
        total[n, :n].add_(rows.sum(0), alpha=weight)
        total[n, n] += weight * len(rows)


class Gram:
    """Σ x xᵀ over rows: the rows themselves if they are few, else their sum.

    A few rows update an average, and its inverse, without forming their matrix.

    Args:
        rows: x, shape `(r, n)`.
        total: The sum; only its lower triangle has meaning. It has other forms (a stack, a
            diagonal) for some layers.

    Example:
        >>> few = Gram.of(torch.ones(1, 5))
        >>> few.rows is not None, Gram.of(torch.ones(2, 5)).rows is None
        (True, True)
        >>> float(few.plus(few).summed()[0, 0])
        2.0
    """

    def __init__(self, *, rows: Tensor | None = None, total: Tensor | None = None) -> None:
        self.rows, self._total = rows, total

    @classmethod
    def of(cls, rows: Tensor, *, ones: bool = False, largest: int | None = None) -> Self:
        """Return that of rows, with a one appended to each if asked, cut as `factor_shape` says."""
        side = rows.shape[1] + ones
        count, k, *cut = factor_shape(side, largest)
        if cut:
            if count * k > rows.shape[1]:
                padded = rows.new_zeros(len(rows), count * k)
                padded[:, : rows.shape[1]] = rows
                padded[:, rows.shape[1] : side] = 1.0
                rows = padded
            each = rows.reshape(-1, count, k).transpose(0, 1)
            return cls(total=each.mT @ each)
        if len(rows) <= FEW_ROWS * side:
            return cls(rows=with_ones(rows) if ones else rows.clone())
        total = rows.new_zeros(side, side)
        add_gram(total, rows, ones=ones)
        return cls(total=total)

    def summed(self) -> Tensor:
        """Return the sum."""
        if self._total is None:
            assert self.rows is not None
            self._total = self.rows.new_zeros(self.rows.shape[1], self.rows.shape[1])
            add_gram(self._total, self.rows)
        return self._total

    def plus(self, other: "Gram") -> "Gram":
        """Return the sum of both."""
        return Gram(total=self.summed() + other.summed())

    def times(self, weight: float) -> "Gram":
        """Return a multiple."""
        if self.rows is not None and weight >= 0:
            return Gram(rows=self.rows * weight**0.5)
        return self if weight == 1 else Gram(total=self.summed() * weight)

    def blend(self, average: Tensor, weight: float) -> None:
        """Move an average, in place, toward this one by a weight < 1."""
        if self.rows is None:
            average.lerp_(self.summed(), weight)
        elif len(self.rows) == 1:  # one pass
            average.addr_(self.rows[0], self.rows[0], beta=1 - weight, alpha=weight)
        else:
            add_gram(average.mul_(1 - weight), self.rows, weight=weight)


def with_ones(rows: Tensor) -> Tensor:
    """Return rows with a one appended to each."""
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def symmetric(lower: Tensor) -> Tensor:
    """Return the symmetric matrix that a lower triangle stands for."""
    return torch.tril(lower) + torch.tril(lower, -1).mT


MEMORY = 750.0
"""How many past samples are remembered, if nothing else is said."""


class Factor:
    """A second moment averaged over batches; new samples are weighted by their number.

    Args:
        memory: How many past samples are remembered; None for `MEMORY`.
        side: n, if the average is a stack of blocks on the diagonal of an n × n matrix.

    Attributes:
        known: Whether there is an average.
        rows: R, if the factor is RᵀR with few rows, that is, of one small batch.
        summed: The average as a matrix, if it has been formed; see `matrix`.
        multiple: c, if the factor is known to be c times the identity forever.
        constant: Whether the factor is known exactly and forever.
        version: Counts changes of the matrix.
        change: (R, w) if the last change was Λ ← (1 − w) Λ + RᵀR with few rows R.
    """

    def __init__(self, memory: float | None, side: int | None = None) -> None:
        self.memory, self.side = MEMORY if memory is None else memory, side
        self.known = False
        self.rows: Tensor | None = None
        self.summed: Tensor | None = None
        self.multiple: float | None = None
        self.constant = False
        self.version = 0
        self.change: tuple[Tensor, float] | None = None
        self._past = 0.0

    @property
    def matrix(self) -> Tensor | None:
        """The average, shape `(n, n)`; None before the first batch.

        Only the lower triangle has meaning. A stack `(g, n, n)` for layers in groups, the diagonal
        `(n,)` of a diagonal one.
        """
        if self.summed is None and self.rows is not None:
            self.summed = Gram(rows=self.rows).summed()
        return self.summed

    def set(self, matrix: Tensor | None, rows: Tensor | None = None) -> None:
        """Replace the average."""
        self.summed, self.rows, self.change = matrix, rows, None
        self.known = matrix is not None or rows is not None
        self.version += 1

    def update(self, fresh: Gram, *, n: float) -> None:
        """Add the average over n new samples.

        Args:
            fresh: The average; kept, not copied.
            n: How many samples it averages.
        """
        weight = n / (n + self._past) if self.known else 1.0
        if weight == 1:
            self.set(fresh.summed() if fresh.rows is None else None, fresh.rows)
        else:
            average = self.matrix
            assert average is not None
            fresh.blend(average, weight)
            self.set(average)
            if fresh.rows is not None:
                self.change = fresh.rows * weight**0.5, weight
        self._past = min(self._past + n, self.memory)

    def fix(self, matrix: Tensor) -> None:
        """Set the factor forever."""
        self.set(matrix)
        self.constant, self.multiple = True, _multiple(matrix, self.side)

    def forget(self) -> None:
        """Free the matrix, unless it is constant."""
        if not self.constant:
            self.summed = self.rows = self.change = None
            self.known = False

    def mean_eigenvalue(self) -> float:
        """Return the trace over n."""
        if self.rows is not None:
            return float(self.rows.square().sum()) / self.rows.shape[1]
        matrix = self.summed
        assert matrix is not None
        diagonal = matrix if matrix.ndim == 1 else matrix.diagonal(dim1=-2, dim2=-1)
        return float(diagonal.mean() if self.side is None else diagonal.sum() / self.side)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the last change."""
        return {
            "rows": self.rows,
            "matrix": self.summed,
            "multiple": self.multiple,
            "constant": self.constant,
            "version": self.version,
            "past": self._past,
        }

    def check_state(
        self, state: Any, where: str, shape: tuple[int, ...], *, kept: bool = True
    ) -> None:
        """Raise unless the state can be loaded.

        Args:
            state: The state to check.
            where: Its path, for messages.
            shape: Of the matrix.
            kept: Whether a factor that has been set must be present.
        """
        entries(state, where, self.state_dict())
        version = integer(state["version"], f"{where}.version", low=0)
        real(state["past"], f"{where}.past", low=0)
        constant = flag(state["constant"], f"{where}.constant")
        matrix, rows, multiple = state["matrix"], state["rows"], state["multiple"]
        if matrix is not None:
            tensor(matrix, f"{where}.matrix", shape=shape, dtypes=ALL_FLOATS)
        if rows is not None:
            tensor(rows, f"{where}.rows", shape=("r", shape[-1]), dtypes=ALL_FLOATS)
        known = matrix is not None or (rows is not None and len(shape) == 2)
        if known > (version > 0) or (kept and known < (version > 0)):
            found = "is there" if known else "is missing"
            raise InvalidInputError(f"{where}.matrix {found} after {version} changes.")
        if multiple is not None:
            real(multiple, f"{where}.multiple", low=0)
        if (constant and matrix is None) or multiple != (
            _multiple(matrix, self.side) if constant else None
        ):
            raise InvalidInputError(f"{where}.multiple must be that of a constant matrix.")

    def load_state_dict(self, state: Mapping[str, Any], like: Tensor) -> None:
        """Load a checked state, on the device of `like` and in its precision, single or wider."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.summed, self.rows = (
            None if kept is None else kept.to(like.device, dtype, copy=True)
            for kept in (state["matrix"], state["rows"])
        )
        self.known = self.summed is not None or self.rows is not None
        self.multiple, self.constant = state["multiple"], state["constant"]
        self.version, self._past, self.change = state["version"], state["past"], None


def average(
    sums: Sequence[Gram | None], weights: Sequence[float], world: World, owner: int | None = None
) -> Gram:
    """Return the weighted sum of second moments over all processes, for all or for their owner."""
    pairs = zip(sums, weights, strict=True)
    first, *rest = [gram.times(weight) for gram, weight in pairs if gram is not None]
    found = reduce(Gram.plus, rest, first)
    if world.size > 1:
        found = Gram(total=found.summed())
        world.add_up([found.summed()], owner)
    return found


def ridges(split: Split, damping: float, inputs: float, errors: float) -> tuple[float, float]:
    """Return the dampings of Λ and Λ̃, given their mean eigenvalues; their product is λ.

    Example:
        >>> ridges("pi", 0.01, inputs=4.0, errors=1.0)
        (0.2, 0.05)
    """
    root = math.sqrt(damping)
    if split == "equal" or inputs <= 0 or errors <= 0:
        return root, root
    pi = math.sqrt(inputs / errors)
    return root * pi, root / pi


def _multiple(matrix: Tensor, side: int | None) -> float | None:
    """Return c if a matrix, or the matrix of this side whose blocks these are, is c times I."""
    if matrix.ndim != (2 if side is None else 3):
        return None
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).reshape(-1)[:side]
    same = bool((diagonal == diagonal[0]).all())
    return float(diagonal[0]) if same and int(matrix.count_nonzero()) == len(diagonal) else None
