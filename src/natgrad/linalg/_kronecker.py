"""Minimum-norm solutions of Σᵢ Aᵢ Vᵢ Bᵢ = U without forming Kronecker products.

Factors of matrix products have this form: with β = W₁⋯W_L the velocity of β is
Σᵢ Aᵢ Ẇᵢ Bᵢ, Aᵢ = W₁⋯Wᵢ₋₁ and Bᵢ = Wᵢ₊₁⋯W_L. The shortest solution is Vᵢ = Aᵢᵀ Z Bᵢᵀ with
K[Z] = Σᵢ (AᵢAᵢᵀ) Z (BᵢᵀBᵢ) = U.

Two terms, one with A₁ = I and one with B_L = I, are diagonal in the eigenvectors of A_L A_Lᵀ and
B₁ᵀB₁. For L = 2 these are all terms, and the solution is direct. For L ≥ 3 conjugate gradients run
in those coordinates, preconditioned by the diagonal of K.

`None` stands for an identity factor throughout.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from natgrad._checks import all_finite, number, tensor
from natgrad._named import named
from natgrad.errors import ConvergenceError, DtypeError, ShapeError, VelocityOverflowError
from natgrad.linalg._precision import default_rtol, widen

Factor = Tensor | None
"""A factor Aᵢ or Bᵢ; None is the identity."""

_MAX_ITERATIONS = 2000


@named
def kronecker_lstsq(
    left: Sequence[Factor], right: Sequence[Factor], u: Tensor, *, damping: float = 0.0
) -> list[Tensor]:
    """Return the shortest Vᵢ with Σᵢ Aᵢ Vᵢ Bᵢ = u, or the damped ones.

    Args:
        left: A₁…A_L, shapes `(n, aᵢ)`, column spaces decreasing; None for the identity.
        right: B₁…B_L, shapes `(bᵢ, m)`, row spaces increasing; None for the identity.
        u: Right-hand side, shape `(n, m)`, reachable (see `reachable`) unless damped.
        damping: λ ≥ 0. The answer minimizes ‖Σ Aᵢ Vᵢ Bᵢ − u‖² + λ Σ‖Vᵢ‖².

    Raises:
        ConvergenceError: If conjugate gradients stall above the tolerance of the dtype.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> w1, w2, u = (torch.randn(4, 4, dtype=torch.float64, generator=g) for _ in range(3))
        >>> v1, v2 = kronecker_lstsq([None, w1], [w2, None], u)
        >>> torch.allclose(v1 @ w2 + w1 @ v2, u)
        True
    """
    _check(left, right, u)
    if u.ndim != 2:
        raise ShapeError(f"u must be a matrix (n, m), but has shape {tuple(u.shape)}.")
    damping = number(damping, "damping", low=0)
    a = [None if x is None else widen(x) for x in left]
    b = [None if x is None else widen(x) for x in right]
    wide = widen(u)
    if not bool(wide.any()):
        return [_pull(x, y, wide).to(u) for x, y in zip(a, b, strict=True)]
    scale = float(torch.linalg.matrix_norm(wide))
    v = _solve(a, b, wide / scale, damping, torch.finfo(u.dtype).eps)
    found = [(scale * part).to(u) for part in v]
    if not all(map(all_finite, found)):
        raise VelocityOverflowError(
            f"the factors' movement overflows {u.dtype}. Use a wider dtype, or rescale u."
        )
    return found


@named
def reachable(left: Sequence[Factor], right: Sequence[Factor], u: Tensor) -> Tensor:
    """Return the orthogonal projection of u, shape `(…, n, m)`, onto {Σᵢ Aᵢ Vᵢ Bᵢ}.

    The column spaces of A₁, A₂, … decrease and the row spaces of B₁, B₂, … increase, so each side
    has an orthonormal basis adapted to all of its spaces at once. A pair (p, q) of basis vectors
    is reachable if some layer i has p in its column space and q in its row space.

    Example:
        >>> thin = torch.tensor([[1.0], [0.0]])  # a bottleneck: β = thin · thinᵀ
        >>> reachable([None, thin], [thin.mT, None], torch.ones(2, 2)).round(decimals=6)
        tensor([[1., 1.],
                [1., 0.]])
    """
    _check(left, right, u)
    wide = widen(u)
    n, m = wide.shape[-2:]
    eps = torch.finfo(u.dtype).eps  # products have the rounding errors of their own dtype
    p, p_last = _adapted_basis([_columns(x, n, wide) for x in left][::-1], eps)
    q, q_first = _adapted_basis(
        [_columns(None if y is None else y.mT, m, wide) for y in right], eps
    )
    last = len(left) - 1 - p_last
    mask = q_first[None, :] <= last[:, None]
    return (p @ (mask * (p.mT @ wide @ q)) @ q.mT).to(u)


def _check(left: Sequence[Factor], right: Sequence[Factor], u: Tensor) -> None:
    """Raise an error unless both sides have equally many finite factors that fit u `(…, n, m)`."""
    tensor(u, "the velocity")
    if u.ndim < 2:
        raise ShapeError(f"the velocity must have shape (…, n, m), but has {tuple(u.shape)}.")
    for factors in (left, right):
        if not isinstance(factors, (tuple, list)) or len(factors) != len(left) or not len(left):
            raise DtypeError("factors must be two lists of equal length, not empty.")
    for a, b in zip(left, right, strict=True):
        for x, side, size in ((a, 0, u.shape[-2]), (b, 1, u.shape[-1])):
            if x is not None and tensor(x, "a factor", shape=("n", "m")).shape[side] != size:
                raise ShapeError(
                    f"a factor of shape {tuple(x.shape)} does not fit a velocity of shape "
                    f"{tuple(u.shape)}."
                )


def _columns(x: Factor, size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device) if x is None else widen(x)


def _adapted_basis(spaces: Sequence[Tensor], eps: float) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis adapted to growing column spaces, and each vector's first space.

    Vectors outside every space get the number of spaces.
    """
    n = spaces[0].shape[0]
    basis, entered = spaces[0].new_zeros(n, 0), []
    for i, space in enumerate(spaces):
        rest = space - basis @ (basis.mT @ space)
        rest = rest - basis @ (basis.mT @ rest)
        u, s, _ = torch.linalg.svd(rest, full_matrices=False)
        size = torch.linalg.matrix_norm(space, 2)
        rank = int((s > 8 * max(space.shape) * eps * size).sum())
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


def _solve(a: list[Factor], b: list[Factor], u: Tensor, damping: float, eps: float) -> list[Tensor]:
    """Return V for ‖u‖ = 1, refined on the true residual.

    Corrections are added to V, not to Z. Where the factors are ill-conditioned, Z is so large that
    its own rounding error would matter.
    """
    inner = _inner_solver(a, b, u, damping)
    target = max(64 * eps, 1e-13)
    z, residual, error = torch.zeros_like(u), u, 1.0
    v = [_pull(x, y, z) for x, y in zip(a, b, strict=True)]
    while error > target:
        step = inner(residual, target / error)
        moved = [part + _pull(x, y, step) for part, x, y in zip(v, a, b, strict=True)]
        reached = torch.stack([_push(x, y, m) for x, y, m in zip(a, b, moved, strict=True)]).sum(0)
        left = u - reached - damping * (z + step)
        previous, error = error, float(torch.linalg.vector_norm(left))
        if error >= 0.5 * previous:  # rounding errors prevent further progress
            error = previous
            break
        v, z, residual = moved, z + step, left
    if error <= max(1e-10, 1e4 * eps, 64 * torch.finfo(u.dtype).eps * _size(a, b, v)):
        return v
    if len(a) == 2 and a[0] is None and b[1] is None and not damping:
        v, error = _two_factors_by_svd(a[1], b[0], u)
        if error <= max(1e-10, 1e4 * eps):
            return v
    raise ConvergenceError(
        "the minimum-norm lift stopped at a relative residual of "
        f"{error:.1e}: the factors are close to rank-deficient. Try a positive damping, a larger "
        "or an orthogonal initialization, or LayerShares on one well-conditioned layer."
    )


def _size(a: list[Factor], b: list[Factor], v: list[Tensor]) -> float:
    """Return Σ ‖Aᵢ‖ ‖Vᵢ‖ ‖Bᵢ‖; no residual can be below the rounding error of this size."""
    norm = torch.linalg.matrix_norm
    return sum(
        float(norm(w)) * (1 if x is None else float(norm(x))) * (1 if y is None else float(norm(y)))
        for x, w, y in zip(a, v, b, strict=True)
    )


def _two_factors_by_svd(a: Factor, b: Factor, u: Tensor) -> tuple[list[Tensor], float]:
    """Return V₁, V₂ with V₁ B + A V₂ = u, and the residual, without squaring singular values.

    With A = P s Rᵀ and B = T t Qᵀ the shortest solution has coordinates t g/(s² + t²) and
    s g/(s² + t²), g = Pᵀ u Q. Small singular values have absolute errors, so the caller refines.
    """
    p, s, r = _full_svd(a, u.shape[0], u)
    q, t, w = _full_svd(None if b is None else b.mT, u.shape[1], u)
    size = torch.maximum(s[:, None], t[None, :])
    size = torch.where(size > default_rtol(*u.shape, dtype=u.dtype) * size.max(), size, torch.inf)
    unit_s, unit_t = s[:, None] / size, t[None, :] / size
    share = 1 / (unit_s**2 + unit_t**2).clamp(min=1)  # the sum is in [1, 2], or 0 where cut off
    v = [_pull(None, b, torch.zeros_like(u)), _pull(a, None, torch.zeros_like(u))]
    error = 1.0
    for _ in range(4):
        residual = u - _push(None, b, v[0]) - _push(a, None, v[1])
        error = float(torch.linalg.vector_norm(residual))
        g = share * (p.mT @ residual @ q) / size
        v[0] = v[0] + p @ (g * unit_t)[:, : w.shape[1]] @ w.mT
        v[1] = v[1] + r @ (g * unit_s)[: r.shape[1]] @ q.mT
    return v, error


def _full_svd(x: Factor, n: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x = U s Vᵀ with U square, s padded by zeros to its size, and V thin."""
    if x is None:
        eye = torch.eye(n, dtype=like.dtype, device=like.device)
        return eye, like.new_ones(n), eye
    u, s, vh = torch.linalg.svd(x, full_matrices=True)
    padded = torch.cat([s, s.new_zeros(n - len(s))])
    return u, padded, vh[: len(s)].mT


def _inner_solver(
    a: list[Factor], b: list[Factor], u: Tensor, damping: float
) -> Callable[[Tensor, float], Tensor]:
    """Return an approximate solver of K[Z] + λZ = r, in the eigenbases of the outer terms."""
    grams_a = [None if x is None else x @ x.mT for x in a]
    grams_b = [None if y is None else y.mT @ y for y in b]
    lam, p = _eigenbasis(grams_a[-1], u.shape[0], u)
    mu, q = _eigenbasis(grams_b[0], u.shape[1], u)
    if len(a) <= 2 and grams_a[0] is None and grams_b[-1] is None:
        diagonal = lam[:, None] + mu[None, :] if len(a) == 2 else torch.ones_like(u)
        inverse = _pseudo_reciprocal(diagonal + damping)
        return lambda r, tolerance: p @ (inverse * (p.mT @ r @ q)) @ q.mT
    rotated = [
        (None if x is None else p.mT @ x @ p, None if y is None else q.mT @ y @ q)
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
    preconditioner = _pseudo_reciprocal(diagonal)
    return lambda r, tolerance: (
        p @ _conjugate_gradients(apply, p.mT @ r @ q, preconditioner, tolerance) @ q.mT
    )


def _eigenbasis(gram: Factor, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    if gram is None:
        return like.new_ones(size), torch.eye(size, dtype=like.dtype, device=like.device)
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0), vectors


def _pseudo_reciprocal(x: Tensor) -> Tensor:
    cutoff = default_rtol(*x.shape, dtype=x.dtype) * x.max()
    return torch.where(x > cutoff, 1 / x, 0.0)


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor], r: Tensor, preconditioner: Tensor, tolerance: float
) -> Tensor:
    """Return x with apply(x) = r to a relative residual, from x = 0."""
    goal = max(tolerance, 1e-14) * float(torch.linalg.vector_norm(r))
    x, s = torch.zeros_like(r), preconditioner * r
    d, rho = s, float((r * s).sum())
    for _ in range(_MAX_ITERATIONS):
        w = apply(d)
        curvature = float((d * w).sum())
        if curvature <= 0 or rho <= 0:
            break
        alpha = rho / curvature
        x, r = x + alpha * d, r - alpha * w
        if float(torch.linalg.vector_norm(r)) <= goal:
            break
        s = preconditioner * r
        rho, previous = float((r * s).sum()), rho
        d = s + (rho / previous) * d
    return x
