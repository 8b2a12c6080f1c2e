"""Inverses of damped factors, (Λ + γI)⁻¹, by whichever method is cheapest.

| solver | takes | costs, n³ for a matrix product of n³ multiplications |
|---|---|---|
| `cholesky` | Λ | 2.4 n³ |
| `eigen` | Λ; any power; needs no γ | 14 n³ |
| `woodbury` | the last inverse and r new rows | 10.5 n² r |
| `row` | Λ = xxᵀ of one row alone | n, and applying it 5/n of a product |
| `constant` | Λ that never changes | 14 n³ once, then n³ for every new γ |
| `low_rank` | Λ; rank r and one number for the rest | 13 n² r, and applying it 4 r/n of a product |

Measured in float32 for n = 400…2000; LAPACK runs far off its bound at these sizes. A rank-one
`woodbury` is Sherman–Morrison ([BLH18] §7).
"""

import math
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from natgrad.linalg import cholesky, default_rtol
from natgrad.linalg.lstsq import widen
from natgrad.optim.factors import Factor
from natgrad.optim.layers import wide
from natgrad.optim.moments import FEW_ROWS, symmetric

Solver = Literal["auto", "cholesky", "eigen", "woodbury", "low_rank"]

# The ridge inside an updated inverse may differ from the one wanted by this factor either way; by
# the larger one while the updates since the last factorisation have cost less than another.
_RIDGE_SLACK, _EARLY_SLACK = 2.0, 10.0
# Cost of a factorisation in units of n² times rows, over that of an update: 2.4 / 10.5.
_WORTH = 0.23


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


class Row:
    """(γI + xxᵀ)⁻¹ of a single row, [BLH18] §3: vectors, and no matrix.

    What is across x is taken twice, and x never normalised: x itself has then nothing across it,
    to the last bit, where residues of rounding over a small γ would drown 1/(γ + |x|²).

    Args:
        x: Shape `(n, 1)`.
        ridge: γ > 0.

    Example:
        >>> Row(torch.tensor([[0.0], [2.0]]), 1.0).left(torch.ones(2, 1)).flatten()
        tensor([1.0000, 0.2000])
    """

    def __init__(self, x: Tensor, ridge: float) -> None:
        self.x, self.ridge = x, ridge
        self._square = x.mT @ x
        # A row of (nearly) zeros has nothing along it.
        tiny = torch.finfo(x.dtype).tiny
        self._unit = torch.where(self._square > tiny, self._square, math.inf)

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        along = (self.x.mT @ g) / self._unit
        across = g - self.x @ along
        across = across - self.x @ ((self.x.mT @ across) / self._unit)
        return across / self.ridge + self.x @ (along / (self.ridge + self._square))

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return self.left(g.mT).mT


class LowRank:
    """U diag(s) Uᵀ + t I."""

    def __init__(self, vectors: Tensor, values: Tensor, rest: float) -> None:
        self.vectors, self.values, self.rest = vectors, values, rest

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        return self.vectors @ (self.values[:, None] * (self.vectors.mT @ g)) + self.rest * g

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return ((g @ self.vectors) * self.values) @ self.vectors.mT + self.rest * g


def by_cholesky(matrix: Tensor, ridge: float) -> Tensor:
    """Return (Λ + γI)⁻¹ from the lower triangle of Λ, in double precision if it must be.

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


def by_eigen(matrix: Tensor, ridge: float, power: float = -1.0) -> Tensor:
    """Return (Λ + γI)^power from the lower triangle of Λ; without a ridge, on Λ's range.

    Example:
        >>> by_eigen(torch.diag(torch.tensor([0.0, 4.0])), 0.0, -0.5)
        tensor([[0.0000, 0.0000],
                [0.0000, 0.5000]])
    """
    values, vectors = torch.linalg.eigh(matrix)
    return from_eigen(values, vectors, ridge, power)


def from_eigen(values: Tensor, vectors: Tensor, ridge: float, power: float = -1.0) -> Tensor:
    """Return (Λ + γI)^power from Λ's eigenvalues and eigenvectors."""
    cut = default_rtol(values.shape[-1], dtype=values.dtype) * values[..., -1:]
    values = _power(torch.where(values > cut, values, 0.0) + ridge, power)
    out: Tensor = (vectors * values[..., None, :]) @ vectors.mT
    return out


def _power(values: Tensor, power: float) -> Tensor:
    return torch.where(values > 0, values**power, 0.0)


def by_woodbury(inverse: Tensor, rows: Tensor, weight: float) -> Tensor:
    """Return ((1 − w) M + RᵀR)⁻¹ from M⁻¹, which it overwrites, for w < 1.

    Example:
        >>> by_woodbury(torch.eye(2), torch.tensor([[1.0, 0.0]]), 0.5)
        tensor([[0.6667, 0.0000],
                [0.0000, 2.0000]])
    """
    if len(rows) == 1:  # Sherman–Morrison, in one pass over the inverse
        v, kept_weight = inverse @ rows[0], 1 - weight
        scale = kept_weight * (kept_weight + float(rows[0] @ v))
        return inverse.addr_(v, v, beta=1 / kept_weight, alpha=-1 / scale)
    kept = inverse.div_(1 - weight)
    along = rows @ kept
    small = along @ rows.mT
    small.diagonal().add_(1.0)
    lower = cholesky(small, name="a Woodbury update")
    half = torch.linalg.solve_triangular(lower.to(along), along, upper=False)
    return kept.addmm_(half.mT, half, alpha=-1.0)


def by_low_rank(matrix: Tensor, ridge: float, rank: int) -> LowRank:
    """Return (Λ + γI)⁻¹ with the `rank` leading eigenvectors, the rest by their mean.

    A randomised range finder with two power iterations (Halko et al. 2011).
    """
    full = symmetric(matrix)
    n = len(full)
    source = torch.Generator(full.device).manual_seed(0)
    block = torch.randn(n, min(rank + 8, n), dtype=full.dtype, device=full.device, generator=source)
    for _ in range(3):
        block = torch.linalg.qr(full @ block)[0]
    values, inside = torch.linalg.eigh(block.mT @ full @ block)
    values, vectors = values[-rank:].clamp(min=0), block @ inside[:, -rank:]
    tail = max(float(full.diagonal().sum() - values.sum()), 0.0) / max(n - rank, 1)
    rest = 1 / (tail + ridge)
    return LowRank(vectors, 1 / (values + ridge) - rest, rest)


class Keeper:
    """(Λ + γI)^power of one factor, remade when the factor or γ has changed.

    With the solver `auto`, a factor that changed by few rows updates the last inverse by the
    Woodbury identity; the identity keeps Λ's average *and* the ridge, which shrinks by 1 − w each
    time. So the ridge inside is known, and once it is off the one wanted by a factor of two, either
    because it has shrunk or because the damping has adapted, the factor is factorised anew: an
    update at Sherman–Morrison's price that follows an adaptive damping. While the updates since the
    last factorisation have cost less than the next would, a factor of ten is allowed: so single
    data, each of which moves the damping, do not pay for a factorisation each.

    A factor that is constant for ever is decomposed once, whatever the damping does. That of one
    row alone needs no matrix.

    Args:
        solver: Which method; `auto` chooses by cost.
        power: −1, or −½ for whitening.
        rank: Rank of `low_rank`; None for a sixteenth of the side.
    """

    def __init__(
        self, solver: Solver = "auto", *, power: float = -1.0, rank: int | None = None
    ) -> None:
        self.solver, self.power, self.rank = solver, power, rank
        self.inverse: Inverse | None = None
        self.ridge = 0.0
        self.used: str = ""
        self._version, self._updates = -1, 0
        self._eigen: tuple[Tensor, Tensor] | None = None

    def refresh(self, factor: Factor, ridge: float, *, here: bool = True) -> bool:
        """Bring the inverse up to date.

        Args:
            factor: Λ.
            ridge: γ.
            here: Whether to compute a dense one; otherwise only make room for it.

        Returns:
            Whether there is a dense one that another process may have to be given.
        """
        if self._version == factor.version and self.ridge == ridge:
            return False
        self.used = self._choose(factor, ridge)
        dense = self.used not in ("multiple", "diagonal", "low_rank", "row")
        if self.used == "woodbury":
            assert factor.change is not None
            assert isinstance(self.inverse, Dense)
            rows, weight = factor.change
            if here:
                self.inverse = Dense(by_woodbury(self.inverse.matrix, rows, weight))
            self.ridge *= 1 - weight
            self._updates += len(rows)
        else:
            self.inverse = self._remade(factor, ridge, room=dense and not here)
            self.ridge, self._updates = ridge, 0
        self._version = factor.version
        return dense

    def _remade(self, factor: Factor, ridge: float, *, room: bool) -> Inverse:
        if self.used == "row":
            assert factor.rows is not None
            return Row(factor.rows.mT, ridge)
        matrix = factor.matrix
        assert matrix is not None
        if room:
            return Dense(torch.empty_like(matrix))
        if self.used == "multiple":
            assert factor.multiple is not None
            return Multiple((factor.multiple + ridge) ** self.power)
        if self.used == "diagonal":
            return Diagonal(_power(matrix + ridge, self.power))
        if self.used == "constant":
            if self._eigen is None:
                self._eigen = torch.linalg.eigh(matrix)
            values, vectors = self._eigen
            return Dense(from_eigen(values, vectors, ridge, self.power))
        if self.used == "eigen":
            return Dense(by_eigen(matrix, ridge, self.power))
        if self.used == "low_rank":
            rank = max(1, len(matrix) // 16) if self.rank is None else self.rank
            return by_low_rank(matrix, ridge, rank)
        return Dense(by_cholesky(matrix, ridge))

    def _choose(self, factor: Factor, ridge: float) -> str:
        if factor.multiple is not None:
            return "multiple"
        if factor.rows is not None and len(factor.rows) == 1 and self._single(ridge):
            return "row"
        assert factor.matrix is not None
        if factor.matrix.ndim == 1:
            return "diagonal"
        if factor.constant:
            return "constant"
        if self.power != -1 or ridge == 0:
            return "eigen"
        if self.solver in ("auto", "woodbury") and self._updatable(factor, ridge):
            return "woodbury"
        if self.solver == "low_rank" and factor.matrix.ndim == 3:
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
        early = self._updates + len(rows) < _WORTH * rows.shape[1]
        slack = _EARLY_SLACK if early else _RIDGE_SLACK
        return ridge / slack <= inside <= ridge * slack

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and numbers."""
        kind = ""
        data: dict[str, Tensor | float] = {}
        if isinstance(self.inverse, Multiple):
            kind, data = "multiple", {"value": self.inverse.value}
        elif isinstance(self.inverse, Dense):
            kind, data = "dense", {"matrix": self.inverse.matrix}
        elif isinstance(self.inverse, Diagonal):
            kind, data = "diagonal", {"values": self.inverse.values}
        elif isinstance(self.inverse, Row):
            kind, data = "row", {"x": self.inverse.x, "ridge": self.inverse.ridge}
        elif isinstance(self.inverse, LowRank):
            kind = "low_rank"
            data = {
                "vectors": self.inverse.vectors,
                "values": self.inverse.values,
                "rest": self.inverse.rest,
            }
        return {
            "kind": kind,
            "data": data,
            "ridge": self.ridge,
            "version": self._version,
            "updates": self._updates,
        }

    def load_state_dict(self, state: dict[str, Any], like: Tensor) -> None:
        """Take a state, on the device of `like` and in its precision, single or wider."""
        dtype = wide(like.detach()).dtype
        data = {
            key: value.to(like.device, dtype, copy=True) if isinstance(value, Tensor) else value
            for key, value in state["data"].items()
        }
        kinds = {
            "multiple": Multiple,
            "dense": Dense,
            "diagonal": Diagonal,
            "low_rank": LowRank,
            "row": Row,
        }
        self.inverse = kinds[state["kind"]](**data) if state["kind"] else None
        self.ridge, self._version = state["ridge"], state["version"]
        self._updates, self._eigen = state["updates"], None
