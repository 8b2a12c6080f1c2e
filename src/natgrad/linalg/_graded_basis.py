"""Bases of rows whose weights span hundreds of orders of magnitude: heaviest rows first."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.linalg._precision import default_rtol, widen

# Log-weight range of rows among which the basis is chosen by pivoting instead of by weight.
_WINDOW = 12.0
_REFINEMENTS = 3


@dataclass(frozen=True)
class GradedBasis:
    """Heaviest independent rows, and the others in terms of them (see `natgrad.linalg._graded`)."""

    inside: Tensor  # (k,) indices of the basis rows
    outside: Tensor  # (n − k,)
    q: Tensor  # (p, k) orthonormal basis of the row space, one column per basis row
    s: Tensor  # (k, k) basis rows in that basis, A_B = S Qᵀ
    t: Tensor  # (n − k, k)
    m: Tensor  # (n − k, k)
    rtol: float

    @classmethod
    def of(cls, a: Tensor, log_weight: Tensor, rtol: float | None) -> "GradedBasis":
        """Choose a basis among rows a `(n, p)`; rows with remainders above rtol are independent."""
        rtol = default_rtol(*a.shape, dtype=a.dtype) * 8 if rtol is None else rtol
        rows, ell = widen(a), widen(log_weight)
        inside, window, q = _heaviest_independent_rows(rows, ell.to(rows.device), rtol)
        chosen = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        chosen[inside] = True
        outside = torch.nonzero(~chosen)[:, 0]
        s = rows[inside] @ q
        along = rows[outside] @ q
        t = torch.linalg.solve(s, along, left=False)
        # A row depends only on basis rows of its own window or a heavier one.
        heavier = window[outside, None] >= window[None, inside]
        t = torch.where(heavier & _needed(along, rows[outside], rtol), t, 0.0)
        ratio = torch.exp((2 * (ell[outside, None] - ell[None, inside])).clamp(max=2 * _WINDOW))
        return cls(inside, outside, q, s, t, t * ratio, rtol)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Return rows (projected onto the row space) as combinations of the basis rows.

        If the first basis rows span a row to within rounding, its coefficients on the later ones
        are exactly zero. Their smaller weights would amplify rounding errors.
        """
        along = rows @ self.q
        out: Tensor = torch.linalg.solve(self.s, along, left=False)
        return torch.where(_needed(along, rows, self.rtol), out, 0.0)

    def solve(
        self, residual: Callable[[Tensor], Tensor], start: Tensor, *, adjoint: bool = False
    ) -> Tensor:
        """Return z with residual(z) = 0 by LU of I + H, or of its transpose, and refinement."""
        identity = torch.eye(len(start), dtype=start.dtype, device=start.device)
        factors = torch.linalg.lu_factor(identity + self.m.mT @ self.t)
        z = start
        for _ in range(_REFINEMENTS):
            gap = residual(z)
            columns = gap[:, None] if gap.ndim == 1 else gap
            z = z + torch.linalg.lu_solve(*factors, columns, adjoint=adjoint).reshape(gap.shape)
        return z

    def lift(self, z: Tensor) -> Tensor:
        """Return the shortest v with A_B v = z."""
        coordinates: Tensor = torch.linalg.solve(self.s, z)
        return self.q @ coordinates


def _needed(along: Tensor, rows: Tensor, rtol: float) -> Tensor:
    """Return which basis rows each row needs; coefficients on the others are rounding errors."""
    tail: Tensor = along.square().flip(1).cumsum(1).flip(1).sqrt()
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return tail > rtol * norms


def _heaviest_independent_rows(
    rows: Tensor, ell: Tensor, rtol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return basis row indices, each row's weight window, and an orthonormal basis (p, k).

    Rows are taken in windows of similar weight, heaviest window first. Within a window, the
    projection of the scaled rows onto the current basis is removed, and pivoted QR of the
    remainders picks the next basis rows. It stops where a row's remainder is rounding error, at
    `rtol` × its own norm.
    """
    import scipy.linalg  # imported here to keep `import natgrad` light

    order = torch.argsort(ell, descending=True, stable=True)
    window = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    basis = rows.new_zeros(rows.shape[1], 0)
    inside: list[Tensor] = []
    start, number = 0, 0
    while start < len(order) and basis.shape[1] < rows.shape[1]:
        top = ell[order[start]]
        size = int((ell[order[start:]] >= top - _WINDOW).sum())
        index = order[start : start + size]
        window[index] = number
        norms = torch.linalg.vector_norm(rows[index], dim=1)
        rest = rows[index]
        for _ in range(2):  # twice is enough (Kahan)
            rest = rest - (rest @ basis) @ basis.mT
        weight = torch.exp(ell[index] - top)
        q, r, pivots = scipy.linalg.qr(
            (weight[:, None] * rest).mT.cpu().numpy(),
            mode="economic",
            pivoting=True,
            check_finite=False,
        )
        pivot = torch.as_tensor(pivots, device=rows.device, dtype=torch.long)
        remainder = torch.as_tensor(r, device=rows.device).diagonal().abs()
        kept = remainder > rtol * (weight * norms)[pivot[: len(remainder)]]
        count = int(kept.long().cumprod(0).sum())
        inside.append(index[pivot[:count]])
        basis = torch.cat([basis, torch.as_tensor(q, device=rows.device)[:, :count]], dim=1)
        start, number = start + size, number + 1
    window[order[start:]] = number
    return torch.cat(inside), window, basis
