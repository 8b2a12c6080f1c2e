"""Least squares whose row weights span hundreds of orders of magnitude.

Minimise Σᵢ e^{2ℓᵢ} (aᵢ·v − bᵢ)², given the rows aᵢ unscaled and the log-weights ℓᵢ. Scaling the
rows fails twice: weights underflow, and long before that the rounding errors of heavy rows bury
the light ones. Three observations give a method in which weights enter only as ratios ≤ 1:

1. If the rows are independent every equation can be met and the weights cancel.
2. Otherwise take the rows heaviest first and keep each one that is independent of those kept: a
   basis B. Every other row is a combination aᵢ = Σⱼ tᵢⱼ aⱼ of *heavier* basis rows.
3. In the unknowns z = A_B v the normal equations, row j divided by e^{2ℓⱼ}, are
       (I + H) z = b_B + Mᵀ b_N,   H = Mᵀ T,   Mᵢⱼ = tᵢⱼ e^{2(ℓᵢ − ℓⱼ)},
   and ‖(I + H)⁻¹‖ is bounded independently of the weights (Stewart 1989: the weighted
   least-squares operator is). A plain LU factorisation with refinement solves them.

Rows of similar weight are chosen among by pivoted QR, so that T stays small.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.errors import VelocityOverflowError
from natgrad.linalg.lstsq import LeastSquares, default_rtol, lstsq, require_finite, widen

# Log-weight spreads below this lose at most four digits of sixteen when rows are scaled.
MILD_SPREAD = 9.0
# Log-weight range of rows among which the basis is chosen by pivoting instead of by weight.
_WINDOW = 12.0
_REFINEMENTS = 3


def graded_lstsq(
    a: Tensor, b: Tensor, log_weight: Tensor, *, rtol: float | None = None
) -> LeastSquares:
    """Return the shortest minimiser of Σᵢ e^{2ℓᵢ} (aᵢ·v − bᵢ)², however wide the spread of ℓ.

    Args:
        a: Rows, unscaled, shape `(n, p)`.
        b: Targets of the unscaled rows, shape `(n,)`.
        log_weight: ℓ, shape `(n,)`; only differences matter.
        rtol: Rank cut-off, relative to each row's own norm. Default as in `lstsq`.

    Raises:
        NonFiniteError: If any argument holds NaN or an infinity.

    Example:
        Two contradictory rows and a third 10⁻³⁰⁰ times as heavy, which decides the rest:

        >>> a = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> b = torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
        >>> graded_lstsq(a, b, torch.tensor([0.0, 0.0, -345.0])).solution.round(decimals=12)
        tensor([2., 3.], dtype=torch.float64)
    """
    require_finite(log_weight, "the log-weights")
    if a.shape[0] <= a.shape[1]:
        unweighted = lstsq(a, b, rtol=rtol)
        if unweighted.rank == a.shape[0]:
            return unweighted
    require_finite(a, "the rows")
    require_finite(b, "the targets")
    if not bool(a.any()):
        return lstsq(a, b, rtol=rtol)
    a, norms, log_weight = _unit_rows(a, log_weight)
    b = b / norms
    spread = float(log_weight.max() - log_weight.min())
    if spread <= MILD_SPREAD:
        weight = torch.exp(log_weight - log_weight.max()).to(a)
        return lstsq(weight[:, None] * a, weight * b, rtol=rtol)
    basis = _GradedBasis.of(a, log_weight, rtol)
    scale = b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    target = widen(b / scale).to(basis.t.device)
    b_in, b_out = target[basis.inside], target[basis.outside]
    # Deviations from the basis rows' own targets: exact where nothing contradicts them.
    z = basis.solve(lambda z: (b_in - z) + basis.m.mT @ (b_out - basis.t @ z), start=b_in)
    solution = basis.lift(z).to(a) * scale
    return LeastSquares(solution, len(basis.inside), basis.rtol)


def graded_fisher_solve(
    a: Tensor,
    log_weight: Tensor,
    g: Tensor,
    g_log_weight: Tensor,
    g_target: Tensor,
    *,
    rtol: float | None = None,
) -> LeastSquares:
    """Return F⁺ d with F = Σᵢ e^{2ℓᵢ} aᵢ aᵢᵀ and d = Σₙ e^{2mₙ} gₙ cₙ, never forming either.

    The rows of F and of the descent direction d come from different inputs (a Fisher averaged
    over another sample), so no least-squares problem ties them together.

    Args:
        a: Rows of the Fisher, shape `(n, p)`.
        log_weight: ℓ, shape `(n,)`.
        g: Rows of the gradient, shape `(m, p)`.
        g_log_weight: m, shape `(m,)`, on the same scale as ℓ.
        g_target: c, shape `(m,)`; a scalar 1 keeps the terms of d apart, as columns `(p, m)`.
        rtol: Rank cut-off, relative to each row's own norm.

    Raises:
        VelocityOverflowError: If the answer overflows: the gradient has weight where the Fisher
            has none.

    Example:
        >>> a, one = torch.eye(2).double(), torch.ones(1).double()
        >>> ell, g = torch.tensor([0.0, -500.0]).double(), torch.tensor([[0.0, 1.0]]).double()
        >>> graded_fisher_solve(a, ell, g, -500 * one, 3 * one).solution
        tensor([0., 3.], dtype=torch.float64)
    """
    for name, tensor in (("rows", a), ("log-weights", log_weight), ("gradient rows", g)):
        require_finite(tensor, f"the {name}")
    a, _, log_weight = _unit_rows(a, log_weight)
    g, norms, _ = _unit_rows(g, g_log_weight.expand(len(g)))
    g_target = g_target * norms if g_target.ndim else g_target
    basis = _GradedBasis.of(a, log_weight, rtol)
    ell = widen(log_weight).to(basis.t.device)[basis.inside]
    wide_g, wide_m, wide_c = (widen(x).to(basis.t.device) for x in (g, g_log_weight, g_target))
    coefficients = basis.coordinates(wide_g)
    growth = torch.exp(2 * (wide_m[:, None] - ell[None, :]))
    terms = torch.where(coefficients == 0, 0.0, coefficients * growth)
    rhs = terms.mT * widen(norms).to(terms.device) if wide_c.ndim == 0 else terms.mT @ wide_c
    if not bool(torch.isfinite(rhs).all()):
        raise VelocityOverflowError(
            "the natural velocity overflows: the gradient lives on inputs whose weight exceeds "
            "that of the Fisher's inputs by more than the dtype's range. Average the Fisher over "
            "inputs that include the batch, or use a positive damping."
        )
    z = basis.solve(lambda z: rhs - z - basis.m.mT @ (basis.t @ z), start=rhs)
    solution = basis.lift(z).to(a)
    if not bool(torch.isfinite(solution).all()):
        raise VelocityOverflowError(
            f"the natural velocity is larger than {a.dtype} can hold. Use a wider dtype or a "
            "positive damping."
        )
    return LeastSquares(solution, len(basis.inside), basis.rtol)


@dataclass(frozen=True)
class _GradedBasis:
    """Heaviest independent rows, and the others in terms of them (see the module's text)."""

    inside: Tensor  # (k,) indices of the basis rows
    outside: Tensor  # (n − k,)
    q: Tensor  # (p, k) orthonormal basis of the row space, one column a basis row
    s: Tensor  # (k, k) basis rows in that basis, A_B = S Qᵀ
    t: Tensor  # (n − k, k)
    m: Tensor  # (n − k, k)
    rtol: float

    @classmethod
    def of(cls, a: Tensor, log_weight: Tensor, rtol: float | None) -> "_GradedBasis":
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
        """Return rows (projected on the row space) as combinations of the basis rows.

        A row that the first basis rows span to rounding gets exact zeros on the later ones, whose
        smaller weights would blow rounding errors up.
        """
        along = rows @ self.q
        out: Tensor = torch.linalg.solve(self.s, along, left=False)
        return torch.where(_needed(along, rows, self.rtol), out, 0.0)

    def solve(self, residual: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        """Return z with residual(z) = 0 by LU of I + H and refinement."""
        identity = torch.eye(len(start), dtype=start.dtype, device=start.device)
        factors = torch.linalg.lu_factor(identity + self.m.mT @ self.t)
        z = start
        for _ in range(_REFINEMENTS):
            gap = residual(z)
            columns = gap[:, None] if gap.ndim == 1 else gap
            z = z + torch.linalg.lu_solve(*factors, columns).reshape(gap.shape)
        return z

    def lift(self, z: Tensor) -> Tensor:
        """Return the shortest v with A_B v = z."""
        coordinates: Tensor = torch.linalg.solve(self.s, z)
        return self.q @ coordinates


def weighted_gram(a: Tensor, w: Tensor) -> Tensor:
    """Return Aᵀ diag(w) A for w ≥ 0, at half the cost of a general product on the CPU."""
    b = w.sqrt()[:, None] * a
    if b.device.type != "cpu":
        return b.mT @ b
    array = b.numpy()
    return torch.from_numpy(array.T @ array)  # numpy sees that the result is symmetric


def _needed(along: Tensor, rows: Tensor, rtol: float) -> Tensor:
    """Return which basis rows each row needs: from some column of q on, nothing but rounding."""
    tail: Tensor = along.square().flip(1).cumsum(1).flip(1).sqrt()
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return tail > rtol * norms


def _unit_rows(rows: Tensor, log_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of norm one, their norms, and log-weights that make up for it.

    Rows of zeros keep norm one: they are dependent on anything.
    """
    largest = rows.abs().amax(1, keepdim=True) if rows.shape[1] else rows.new_ones(len(rows), 1)
    largest = torch.where(largest > 0, largest, 1.0)
    norms = largest * torch.linalg.vector_norm(rows / largest, dim=1, keepdim=True)
    norms = torch.where(norms > 0, norms, 1.0)
    # In double precision: a log-weight of −2000 would lose what a norm adds.
    wide = widen(log_weight)
    return rows / norms, norms[:, 0], wide + torch.log(widen(norms[:, 0])).to(wide.device)


def _heaviest_independent_rows(
    rows: Tensor, ell: Tensor, rtol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return basis row indices, each row's weight window, and an orthonormal basis (p, k).

    Rows are taken in windows of similar weight, heaviest window first. Within one, pivoted QR on
    what the basis so far leaves of the scaled rows picks the next basis rows, and stops where a
    row's remainder is rounding error, at `rtol` × its own norm.
    """
    import scipy.linalg  # here, to keep `import natgrad` light

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
