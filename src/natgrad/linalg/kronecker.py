"""Minimum-norm solutions of Σᵢ Aᵢ Vᵢ Bᵢ = U without forming Kronecker products.

Factors of matrix products have this form: with β = W₁⋯W_L the velocity of β is
Σᵢ Aᵢ Ẇᵢ Bᵢ, Aᵢ = W₁⋯Wᵢ₋₁ and Bᵢ = Wᵢ₊₁⋯W_L. The shortest solution is Vᵢ = Aᵢᵀ Z Bᵢᵀ with
K[Z] = Σᵢ (AᵢAᵢᵀ) Z (BᵢᵀBᵢ) = U.

Two terms, one with A₁ = I and one with B_L = I, are diagonal in the eigenvectors of A_L A_Lᵀ and
B₁ᵀB₁: for L = 2 that is the whole answer. For L ≥ 3 conjugate gradients run in those
coordinates, preconditioned by the diagonal of K there.

`None` stands for an identity factor throughout.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError
from natgrad.linalg.lstsq import default_rtol, widen

Factor = Tensor | None
"""A factor Aᵢ or Bᵢ; None is the identity."""

_MAX_ITERATIONS = 2000


def kronecker_lstsq(
    left: Sequence[Factor], right: Sequence[Factor], u: Tensor, *, damping: float = 0.0
) -> list[Tensor]:
    """Return the shortest Vᵢ with Σᵢ Aᵢ Vᵢ Bᵢ = u, or the damped ones.

    Args:
        left: A₁…A_L, shapes `(n, aᵢ)`, column spaces decreasing; None for the identity.
        right: B₁…B_L, shapes `(bᵢ, m)`, row spaces increasing; None for the identity.
        u: Right-hand side, shape `(n, m)`, reachable (see `reachable`) unless damped.
        damping: λ ≥ 0. The answer minimises ‖Σ Aᵢ Vᵢ Bᵢ − u‖² + λ Σ‖Vᵢ‖².

    Raises:
        ConvergenceError: If conjugate gradients stall above the tolerance of the dtype.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> w1, w2, u = (torch.randn(4, 4, dtype=torch.float64, generator=g) for _ in range(3))
        >>> v1, v2 = kronecker_lstsq([None, w1], [w2, None], u)
        >>> torch.allclose(v1 @ w2 + w1 @ v2, u)
        True
    """
    a = [None if x is None else widen(x) for x in left]
    b = [None if x is None else widen(x) for x in right]
    wide = widen(u)
    if not bool(wide.any()):
        return [_pull(x, y, wide).to(u) for x, y in zip(a, b, strict=True)]
    scale = torch.linalg.matrix_norm(wide)
    z = _solve_kernel(a, b, wide / scale, damping, torch.finfo(u.dtype).eps) * scale
    return [_pull(x, y, z).to(u) for x, y in zip(a, b, strict=True)]


def reachable(left: Sequence[Factor], right: Sequence[Factor], u: Tensor) -> Tensor:
    """Return the orthogonal projection of u, shape `(…, n, m)`, on {Σᵢ Aᵢ Vᵢ Bᵢ}.

    The column spaces of A₁, A₂, … decrease and the row spaces of B₁, B₂, … increase, so each side
    has an orthonormal basis adapted to all of its spaces at once. A pair (p, q) of basis vectors
    is reachable if some layer i has p in its column space and q in its row space.
    """
    wide = widen(u)
    n, m = wide.shape[-2:]
    p, p_last = _adapted_basis([_columns(x, n, wide) for x in left][::-1])
    q, q_first = _adapted_basis([_columns(None if y is None else y.mT, m, wide) for y in right])
    last = len(left) - 1 - p_last
    mask = q_first[None, :] <= last[:, None]
    return (p @ (mask * (p.mT @ wide @ q)) @ q.mT).to(u)


def _columns(x: Factor, size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device) if x is None else widen(x)


def _adapted_basis(spaces: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis adapted to growing column spaces, and where each vector enters.

    Vectors outside every space are given the number of spaces.
    """
    n = spaces[0].shape[0]
    basis, entered = spaces[0].new_zeros(n, 0), []
    for i, space in enumerate(spaces):
        rest = space - basis @ (basis.mT @ space)
        rest = rest - basis @ (basis.mT @ rest)
        u, s, _ = torch.linalg.svd(rest, full_matrices=False)
        size = torch.linalg.matrix_norm(space, 2)
        rank = int((s > 8 * default_rtol(*space.shape, dtype=space.dtype) * size).sum())
        rank = min(rank, n - basis.shape[1])
        basis = torch.cat([basis, u[:, :rank]], dim=1)
        entered += [i] * rank
    if basis.shape[1] < n:
        complement = torch.linalg.qr(basis, mode="complete")[0][:, basis.shape[1] :]
        entered += [len(spaces)] * complement.shape[1]
        basis = torch.cat([basis, complement], dim=1)
    return basis, torch.tensor(entered, device=basis.device)


def _pull(a: Factor, b: Factor, z: Tensor) -> Tensor:
    z = z if a is None else a.mT @ z
    return z if b is None else z @ b.mT


def _push(a: Factor, b: Factor, v: Tensor) -> Tensor:
    v = v if a is None else a @ v
    return v if b is None else v @ b


def _solve_kernel(
    a: list[Factor], b: list[Factor], u: Tensor, damping: float, eps: float
) -> Tensor:
    """Return Z with K[Z] + λZ = u, in the eigenbases of the two outer terms."""
    grams_a = [None if x is None else x @ x.mT for x in a]
    grams_b = [None if y is None else y.mT @ y for y in b]
    lam, p = _eigenbasis(grams_a[-1], u.shape[0], u)
    mu, q = _eigenbasis(grams_b[0], u.shape[1], u)
    if len(a) <= 2 and grams_a[0] is None and grams_b[-1] is None:
        diagonal = lam[:, None] + mu[None, :] if len(a) == 2 else torch.ones_like(u)
        inverse = _pseudo_reciprocal(diagonal + damping)
        z = torch.zeros_like(u)
        for _ in range(2):  # refined once: the eigenvectors are those of Gram matrices
            residual = u - _kernel(a, b, z) - damping * z
            z = z + p @ (inverse * (p.mT @ residual @ q)) @ q.mT
        return z
    rotated = [
        (
            None if x is None else p.mT @ x @ p,
            None if y is None else q.mT @ y @ q,
        )
        for x, y in zip(grams_a, grams_b, strict=True)
    ]

    def apply(z: Tensor) -> Tensor:
        out = damping * z
        for x, y in rotated:
            term = z if x is None else x @ z
            out = out + (term if y is None else term @ y)
        return out

    ones_n, ones_m = torch.ones_like(lam), torch.ones_like(mu)
    diagonal = torch.full_like(u, damping)
    for x, y in rotated:
        diagonal += torch.outer(
            ones_n if x is None else x.diagonal(), ones_m if y is None else y.diagonal()
        )
    z = _conjugate_gradients(apply, p.mT @ u @ q, _pseudo_reciprocal(diagonal), eps)
    return p @ z @ q.mT


def _kernel(a: list[Factor], b: list[Factor], z: Tensor) -> Tensor:
    return torch.stack([_push(x, y, _pull(x, y, z)) for x, y in zip(a, b, strict=True)]).sum(0)


def _eigenbasis(gram: Factor, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    if gram is None:
        return like.new_ones(size), torch.eye(size, dtype=like.dtype, device=like.device)
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0), vectors


def _pseudo_reciprocal(x: Tensor) -> Tensor:
    cutoff = default_rtol(*x.shape, dtype=x.dtype) * x.max()
    return torch.where(x > cutoff, 1 / x, 0.0)


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor], u: Tensor, preconditioner: Tensor, eps: float
) -> Tensor:
    """Solve apply(z) = u, restarting from the true residual while that still helps."""
    target = max(64 * eps, 1e-13)
    norm = float(torch.linalg.vector_norm(u))
    z, residual, error, used = torch.zeros_like(u), u, 1.0, 0
    while error > target and used < _MAX_ITERATIONS:
        step, iterations = _cg_sweep(apply, residual, preconditioner, target * norm, used)
        residual = u - apply(z + step)
        previous, error = error, float(torch.linalg.vector_norm(residual)) / norm
        if error >= 0.5 * previous:  # rounding has the last word
            error = min(error, previous)
            break
        z, used = z + step, used + iterations
    if error > max(1e-10, 1e4 * eps):
        raise ConvergenceError(
            f"conjugate gradients for the minimum-norm lift stopped at a relative residual of "
            f"{error:.1e} after {used} iterations: the factors are close to rank-deficient. "
            "Try a positive damping, a larger or an orthogonal initialisation, or "
            "selection=LayerShares for a single well-conditioned layer."
        )
    return z


def _cg_sweep(
    apply: Callable[[Tensor], Tensor], r: Tensor, m: Tensor, tolerance: float, used: int
) -> tuple[Tensor, int]:
    """Run one sweep of preconditioned conjugate gradients on apply(x) = r from x = 0."""
    x, s = torch.zeros_like(r), m * r
    d, rho = s, float((r * s).sum())
    for k in range(_MAX_ITERATIONS - used):
        w = apply(d)
        curvature = float((d * w).sum())
        if curvature <= 0 or rho <= 0:
            return x, k
        alpha = rho / curvature
        x, r = x + alpha * d, r - alpha * w
        if float(torch.linalg.vector_norm(r)) <= tolerance:
            return x, k + 1
        s = m * r
        rho, previous = float((r * s).sum()), rho
        d = s + (rho / previous) * d
    return x, max(0, _MAX_ITERATIONS - used)
