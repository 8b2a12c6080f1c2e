"""Running second moments: the Kronecker factors of the Fisher."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from natgrad._checks import ALL_FLOATS, flag, integer, number, tensor
from natgrad.errors import InvalidInputError
from natgrad.optim._arguments import keep, literal, options
from natgrad.optim._capture.sources import Source
from natgrad.optim._curvature.gram import Gram
from natgrad.optim._layers.linear import Sharing, wide
from natgrad.optim._states import entries, real


@options
@dataclass(frozen=True, kw_only=True)
class Factors:
    """How the Kronecker factors are estimated.

    Attributes:
        source: Where errors come from: `"sampled"` from the model ([BLH18] §5); `"exact"`, one
            backward pass for each output; `"propagated"`, eq. 14–15, linear networks only;
            `"empirical"`, the true labels, which is not the Fisher.
        samples: K, backward passes of sampled errors.
        memory: How many past data the averages remember. New data of number m get the weight
            m / (m + past), past ≤ memory; 0 takes each batch alone, as [BLH18] does.
        keep: Whether factors stay in memory beside their inverses. False, which needs `memory=0`,
            halves the optimizer's state.
        sharing: Where a weight is used at many positions of a datum (sequences, convolutions):
            `"expand"` counts every position as a row, `"reduce"` averages inputs and sums errors
            over positions first, which is cheaper and exact where only their average matters.
        exact_output: Take the last layer's error factor from the likelihood, where the layer's
            outputs are the model's, instead of sampling it.

    Example:
        >>> Factors(source="exact", memory=0).samples
        1
    """

    source: Source = "sampled"
    samples: int = 1
    memory: float = 750.0
    exact_output: bool = True
    sharing: Sharing = "expand"
    keep: bool = True

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        literal(self.source, "source", Source)
        literal(self.sharing, "sharing", Sharing)
        flag(self.exact_output, "exact_output")
        flag(self.keep, "keep")
        memory = number(self.memory, "memory", low=0, infinite=True)
        if not self.keep and memory != 0:
            raise InvalidInputError(
                "keep=False forgets the factors at each step, so memory must be 0, but is "
                f"{memory!r}."
            )
        keep(self, samples=integer(self.samples, "samples", low=1), memory=memory)


class Factor:
    """A second moment averaged over batches; new data count by their number.

    Args:
        memory: How many past data are remembered.

    Attributes:
        rows: R, if the factor is RᵀR with few rows: that of a small batch alone.
        multiple: c, if the factor is known to be c times the identity for ever.
        constant: Whether the factor is known exactly and for ever.
        version: Counts changes of the matrix.
        change: (R, w) if the last change was Λ ← (1 − w) Λ + RᵀR with few rows R.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.rows: Tensor | None = None
        self._matrix: Tensor | None = None
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
        if self._matrix is None and self.rows is not None:
            self._matrix = Gram(rows=self.rows).summed()
        return self._matrix

    @property
    def known(self) -> bool:
        """Return whether there has been a batch."""
        return self._matrix is not None or self.rows is not None

    def set(self, matrix: Tensor | None) -> None:
        """Replace the average."""
        self._matrix, self.rows, self.change = matrix, None, None
        self.version += 1

    def update(self, fresh: Gram, *, n: float) -> None:
        """Blend in the average over n new data.

        Args:
            fresh: The average; kept, not copied.
            n: How many data it averages.
        """
        weight = n / (n + self._past) if self.known else 1.0
        if weight == 1:
            self.set(fresh.summed() if fresh.rows is None else None)
            self.rows = fresh.rows
        else:
            assert self.matrix is not None
            fresh.blend(self.matrix, weight)
            self.set(self.matrix)
            if fresh.rows is not None:
                self.change = fresh.rows * weight**0.5, weight
        self._past = min(self._past + n, self.memory)

    def fix(self, matrix: Tensor) -> None:
        """Set the factor for ever."""
        self.set(matrix)
        self.constant, self.multiple = True, _multiple(matrix)

    def forget(self) -> None:
        """Free the matrix, unless it is constant."""
        if not self.constant:
            self._matrix = self.rows = self.change = None

    def mean_eigenvalue(self) -> float:
        """Return the trace over n."""
        if self.rows is not None:
            return float(self.rows.square().sum()) / self.rows.shape[1]
        assert self.matrix is not None
        diagonal = self.matrix if self.matrix.ndim == 1 else self.matrix.diagonal(dim1=-2, dim2=-1)
        return float(diagonal.mean())

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the last change."""
        return {
            "rows": self.rows,
            "matrix": self._matrix,
            "multiple": self.multiple,
            "constant": self.constant,
            "version": self.version,
            "past": self._past,
        }

    def check_state(
        self, state: Any, where: str, shape: tuple[int, ...], *, kept: bool = True
    ) -> None:
        """Raise unless a state can be loaded.

        Args:
            state: What may be one.
            where: Its place in the whole.
            shape: Of the matrix.
            kept: Whether a factor that was ever set must be there.
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
        if (constant and matrix is None) or multiple != (_multiple(matrix) if constant else None):
            raise InvalidInputError(f"{where}.multiple must be that of a constant matrix.")

    def load_state_dict(self, state: Mapping[str, Any], like: Tensor) -> None:
        """Take a checked state, on the device of `like` and in its precision, single or wider."""
        dtype = wide(like.detach()).dtype
        self._matrix, self.rows = (
            None if kept is None else kept.to(like.device, dtype, copy=True)
            for kept in (state["matrix"], state["rows"])
        )
        self.multiple, self.constant = state["multiple"], state["constant"]
        self.version, self._past, self.change = state["version"], state["past"], None


def _multiple(matrix: Tensor) -> float | None:
    """Return c if a matrix is c times the identity."""
    diagonal = matrix.diagonal()
    same = matrix.ndim == 2 and bool((diagonal == diagonal[0]).all())
    return float(diagonal[0]) if same and int(matrix.count_nonzero()) == len(matrix) else None
