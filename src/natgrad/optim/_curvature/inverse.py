"""Inverses of damped factors, (Λ + γI)⁻¹, by whichever method is cheapest.

| solver | takes | costs, n³ for a matrix product of n³ multiplications |
|---|---|---|
| `cholesky` | Λ | 2.4 n³ |
| `eigen` | Λ; any power; needs no γ | 14 n³ |
| `woodbury` | the last inverse and r new rows | 10.5 n² r |
| `row` | Λ = xxᵀ of one row alone | n, and applying it 5/n of a product |
| `constant` | Λ that never changes | 14 n³ once, then n³ for every new γ |
| `low_rank` | Λ; rank r and one number for the rest | 13 n² r, and applying it 4 r/n of a product |

Measured in float32 for n = 400…2000; LAPACK is far below its peak speed at these sizes. A rank-one
`woodbury` is Sherman–Morrison ([BLH18] §7).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, choice, integer, tensor
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.linalg import cholesky
from natgrad.linalg._powers import damped_power, decomposed, from_eigen, power_of
from natgrad.linalg._precision import widen
from natgrad.optim._curvature.factor import FEW_ROWS, Factor, symmetric
from natgrad.optim._curvature.solvers import LowRank, Row, by_low_rank, by_woodbury, corrected
from natgrad.optim._states import entries, real

Solver = Literal["auto", "cholesky", "eigen", "woodbury", "low_rank"]


class Inverse(Protocol):
    """A symmetric matrix to multiply gradients with."""

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""


class Multiple:
    """A multiple of the identity."""

    def __init__(self, value: float) -> None:
        self.value = value

    def left(self, g: Tensor) -> Tensor:
        """Return c g."""
        return g * self.value

    right = left


class Diagonal:
    """A diagonal matrix."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        return self.values[:, None] * g

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return g * self.values


class Dense:
    """A dense symmetric matrix, or a stack of them."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        return self.matrix @ g

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return g @ self.matrix


class Blocks(Dense):
    """A block-diagonal symmetric matrix: a stack `(p, k, k)`, perhaps longer than the gradients.

    Example:
        >>> blocks = Blocks(torch.tensor([[[2.0]], [[3.0]]]))
        >>> blocks.left(torch.ones(2, 1)).flatten(), blocks.right(torch.ones(1, 2))
        (tensor([2., 3.]), tensor([[2., 3.]]))
    """

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        out = torch.empty_like(g, memory_format=torch.contiguous_format)
        for block, start, stop in self._places(len(g)):
            torch.mm(block, g[start:stop], out=out[start:stop])
        return out

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        out = torch.empty_like(g, memory_format=torch.contiguous_format)
        for block, start, stop in self._places(g.shape[1]):
            torch.mm(g[:, start:stop], block, out=out[:, start:stop])
        return out

    def _places(self, n: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the blocks, without what reaches beyond n, and where they begin and end.

        One product after the other writes into its place; a stack of products needs two copies.
        """
        k = self.matrix.shape[1]
        for block, start in zip(self.matrix, range(0, n, k), strict=False):
            stop = min(start + k, n)
            yield block[: stop - start, : stop - start], start, stop


class Corrected:
    """(M + γI)⁻¹ by products with (M + γ₀I)⁻¹: see `corrected`.

    Args:
        inverse: (M + γ₀I)⁻¹.
        ridge: γ₀ > 0.
        wanted: γ > 0.
    """

    def __init__(self, inverse: Inverse, ridge: float, wanted: float) -> None:
        self.inverse, self.ridge, self.wanted = inverse, ridge, wanted

    def left(self, g: Tensor) -> Tensor:
        """Return (M + γI)⁻¹ g."""
        return corrected(self.inverse.left, g, self.ridge, self.wanted)

    def right(self, g: Tensor) -> Tensor:
        """Return g (M + γI)⁻¹."""
        return corrected(self.inverse.right, g, self.ridge, self.wanted)


def by_cholesky(matrix: Tensor, ridge: float) -> Tensor:
    """Return (Λ + γI)⁻¹ from the lower triangle of Λ, in double precision if necessary.

    Raises:
        RankDeficientError: If Λ + γI is not positive definite even in double precision.

    Example:
        >>> by_cholesky(torch.diag(torch.tensor([1.0, 3.0])), 1.0).diagonal()
        tensor([0.5000, 0.2500])
    """
    shifted = matrix.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(ridge)
    lower, info = torch.linalg.cholesky_ex(shifted)
    if bool(info.any()):
        wide = symmetric(widen(matrix))
        wide.diagonal(dim1=-2, dim2=-1).add_(ridge)
        hint = "Raise the damping or its floor."
        flat = wide.reshape(-1, *wide.shape[-2:])
        found = [cholesky(each, name="a damped Kronecker factor", hint=hint) for each in flat]
        lower = torch.stack(found).reshape(wide.shape)
    inverse: Tensor = torch.cholesky_inverse(lower)
    return inverse.to(matrix)


# The ridge of an updated inverse may differ from the wanted one by this factor either way. The
# difference is corrected at each product, with at most three more products: cheap if gradients
# are vectors, as for single samples. With more rows, only differences that need none are allowed.
_SLACK_OF_ONE, _SLACK = 2.9, 1.02

# Name of each kind of inverse in a state, and the tensors that the state holds.
_KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "multiple": (Multiple, ("value",)),
    "dense": (Dense, ("matrix",)),
    "blocks": (Blocks, ("matrix",)),
    "diagonal": (Diagonal, ("values",)),
    "row": (Row, ("x", "ridge")),
    "low_rank": (LowRank, ("vectors", "values", "rest")),
}


class Keeper:
    """(Λ + γI)^power of one factor, updated when the factor or γ has changed.

    With the solver `auto`, a factor that changed by few rows updates the last inverse by the
    Woodbury identity; the identity keeps Λ's average *and* the ridge, which shrinks by 1 − w each
    time. So the ridge of the inverse is known. While it is near γ, products are corrected for
    the difference (`corrected`, within 1 %). Once it is not, because it has shrunk or because the
    damping has adapted, the factor is factorized again. This update costs as much as
    Sherman–Morrison and follows an adaptive damping.

    A factor that never changes is decomposed once, whatever the damping. A factor of a single
    row needs no matrix.

    Args:
        solver: Which method; `auto` chooses by cost.
        power: −1, or −½ for whitening.
        rank: Rank of `low_rank`; None for a sixteenth of the side.
        cut: Whether factors are stacks of blocks on the diagonal of one matrix.

    Attributes:
        inverse: The stored inverse.
        product: (Λ + γI)^power to multiply with: the inverse, corrected if its ridge is not γ.
        ridge: The ridge of the stored inverse.
        wanted: γ.
    """

    def __init__(
        self,
        solver: Solver = "auto",
        *,
        power: float = -1.0,
        rank: int | None = None,
        cut: bool = False,
    ) -> None:
        self.solver, self.power, self.rank, self.cut = solver, power, rank, cut
        self.inverse: Inverse | None = None
        self.product: Inverse | None = None
        self.ridge = self.wanted = 0.0
        self.used: str = ""
        self._version = -1
        self._eigen: tuple[Tensor, Tensor] | None = None

    def refresh(self, factor: Factor, ridge: float) -> None:
        """Bring the inverse up to date.

        Args:
            factor: Λ.
            ridge: γ.
        """
        if self._version == factor.version and self.wanted == ridge:
            return
        self.used = self._choose(factor, ridge)
        if self.used == "woodbury":
            assert factor.change is not None
            assert isinstance(self.inverse, Dense)
            rows, weight = factor.change
            self.inverse = Dense(by_woodbury(self.inverse.matrix, rows, weight))
            self.ridge *= 1 - weight
        else:
            self.inverse = self._remade(factor, ridge)
            self.ridge = ridge
        self._version, self.wanted = factor.version, ridge
        self.product = self._applied()

    def _applied(self) -> Inverse | None:
        if self.inverse is None or self.ridge == self.wanted:
            return self.inverse
        return Corrected(self.inverse, self.ridge, self.wanted)

    def _remade(self, factor: Factor, ridge: float) -> Inverse:
        if self.used == "row":
            assert factor.rows is not None
            return Row(factor.rows.mT, ridge)
        matrix = factor.summed
        assert matrix is not None
        dense = Blocks if self.cut else Dense
        if self.used == "multiple":
            assert factor.multiple is not None
            return Multiple((factor.multiple + ridge) ** self.power)
        if self.used == "diagonal":
            return Diagonal(power_of(matrix + ridge, self.power))
        if self.used == "constant":
            if self._eigen is None:
                self._eigen = decomposed(matrix)
            values, vectors = self._eigen
            return dense(from_eigen(values, vectors, ridge, self.power))
        if self.used == "eigen":
            return dense(damped_power(matrix, ridge, self.power))
        if self.used == "low_rank":
            rank = max(1, len(matrix) // 16) if self.rank is None else self.rank
            return by_low_rank(matrix, ridge, rank)
        return dense(by_cholesky(matrix, ridge))

    def _choose(self, factor: Factor, ridge: float) -> str:
        if factor.multiple is not None:
            return "multiple"
        if factor.rows is not None and len(factor.rows) == 1 and self._single(ridge):
            return "row"
        matrix = factor.matrix if factor.summed is None else factor.summed
        assert matrix is not None
        if matrix.ndim == 1:
            return "diagonal"
        if factor.constant:
            return "constant"
        if self.power != -1 or ridge == 0:
            return "eigen"
        if self.solver in ("auto", "woodbury") and self._updatable(factor, ridge):
            return "woodbury"
        if self.solver == "low_rank" and matrix.ndim == 3:
            return "cholesky"
        return self.solver if self.solver in ("eigen", "low_rank") else "cholesky"

    def _single(self, ridge: float) -> bool:
        return self.power == -1 and ridge > 0 and self.solver in ("auto", "woodbury")

    def _updatable(self, factor: Factor, ridge: float) -> bool:
        if factor.change is None or factor.version != self._version + 1:
            return False
        rows, weight = factor.change
        if not isinstance(self.inverse, Dense):
            return False
        if self.solver == "auto" and len(rows) > FEW_ROWS * rows.shape[1]:
            return False
        inside = self.ridge * (1 - weight)
        slack = _SLACK_OF_ONE if len(rows) == 1 or self.solver == "woodbury" else _SLACK
        return ridge / slack <= inside <= ridge * slack

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and numbers."""
        kind = next((k for k, (made, _) in _KINDS.items() if type(self.inverse) is made), "")
        names = _KINDS[kind][1] if kind else ()
        data = {name: getattr(self.inverse, name) for name in names}
        return {
            "kind": kind,
            "data": data,
            "ridge": self.ridge,
            "wanted": self.wanted,
            "version": self._version,
        }

    def check_state(
        self, state: Any, where: str, shape: tuple[int, ...], factor: Mapping[str, Any]
    ) -> None:
        """Raise unless the state can be loaded.

        Args:
            state: The state to check.
            where: Its path, for messages.
            shape: Of the factor.
            factor: The checked state of the factor.
        """
        entries(state, where, ("kind", "data", "ridge", "wanted", "version"))
        kind = choice(state["kind"], f"{where}.kind", ("", *_KINDS))
        ridge = real(state["ridge"], f"{where}.ridge", low=0)
        wanted = real(state["wanted"], f"{where}.wanted", low=0)
        near = wanted / _SLACK_OF_ONE <= ridge <= wanted * _SLACK_OF_ONE
        if ridge != wanted and not (kind == "dense" and near):
            raise InvalidInputError(f"{where}.ridge must be near {wanted!r}, but is {ridge!r}.")
        version = integer(state["version"], f"{where}.version", low=-1, high=factor["version"])
        suits = {
            "": version == -1,
            "multiple": factor["multiple"] is not None,
            "dense": len(shape) > 1 and not self.cut,
            "blocks": self.cut,
            "diagonal": len(shape) == 1,
            "row": len(shape) == 2,
            "low_rank": len(shape) == 2 and self.solver == "low_rank",
        }
        if not suits[kind] or (kind and version == -1):
            raise InvalidInputError(f"{where}.kind must suit factor and solver, but is {kind!r}.")
        data, n = f"{where}.data", shape[-1]
        sides: dict[str, tuple[int | str, ...]] = {
            "matrix": shape,
            "x": (n, 1),
            "vectors": (n, "r"),
            "values": (n,) if kind == "diagonal" else ("r",),
        }
        for name, value in entries(state["data"], data, _KINDS[kind][1] if kind else ()).items():
            if name in sides:
                tensor(value, f"{data}.{name}", shape=sides[name], dtypes=ALL_FLOATS)
            else:
                real(value, f"{data}.{name}", low=0, low_open=name == "ridge")
        if kind == "low_rank" and len(state["data"]["values"]) != state["data"]["vectors"].shape[1]:
            raise ShapeError(f"{data} must have as many values as vectors.")

    def load_state_dict(self, state: Mapping[str, Any], like: Tensor) -> None:
        """Load a checked state, on the device of `like` and in its precision, single or wider."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        data = {
            key: value.to(like.device, dtype, copy=True) if isinstance(value, Tensor) else value
            for key, value in state["data"].items()
        }
        self.inverse = _KINDS[state["kind"]][0](**data) if state["kind"] else None
        self.ridge, self.wanted = state["ridge"], state["wanted"]
        self._version, self._eigen = state["version"], None
        self.product = self._applied()
