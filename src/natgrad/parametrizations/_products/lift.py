"""Lifting velocities of a matrix product β = W₁⋯W_L to its factors.

With Aᵢ = W₁⋯Wᵢ₋₁ and Bᵢ = Wᵢ₊₁⋯W_L the velocity of β is Σᵢ Aᵢ Ẇᵢ Bᵢ ([BLH18] 17, [KMH21] 46–49).
`None` stands for an identity factor throughout.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError, DtypeError, RankDeficientError, ShapeError
from natgrad.linalg import kronecker_lstsq, reachable
from natgrad.linalg._kronecker import Factor
from natgrad.linalg._pivoted_qr import pivoted_qr
from natgrad.linalg._precision import default_rtol, widen
from natgrad.parametrizations._arguments import check_leaves
from natgrad.parametrizations.base import flatten, unflatten


def flattening(
    params: tuple[Tensor, ...], layer: int | None
) -> tuple[Callable[[Tensor], tuple[Tensor, ...]], Callable[[tuple[Tensor, ...]], Tensor]]:
    """Return maps from a vector to factors and back, for all factors or for one."""
    if layer is None:
        return lambda z: unflatten(z, params), flatten
    zeros = [torch.zeros_like(w) for w in params]

    def expand(z: Tensor) -> tuple[Tensor, ...]:
        return (*zeros[:layer], z.reshape(params[layer].shape), *zeros[layer + 1 :])

    return expand, lambda g: g[layer].reshape(-1)


def partial_products(factors: Sequence[Tensor]) -> tuple[list[Factor], list[Factor]]:
    """Return A₁…A_L and B₁…B_L, the products left and right of each factor."""
    left: list[Factor] = [None]
    for w in factors[:-1]:
        left.append(w if left[-1] is None else left[-1] @ w)
    right: list[Factor] = [None]
    for w in reversed(factors[1:]):
        right.append(w if right[-1] is None else w @ right[-1])
    return left, right[::-1]


def multiply(left: Factor, middle: Tensor, right: Factor) -> Tensor:
    """Return left · middle · right, skipping identities."""
    out = middle if left is None else left @ middle
    return out if right is None else out @ right


def push(left: Sequence[Factor], right: Sequence[Factor], v: Sequence[Tensor]) -> Tensor:
    """Return Σᵢ Aᵢ vᵢ Bᵢ."""
    terms = [multiply(a, w, b) for a, w, b in zip(left, v, right, strict=True)]
    return torch.stack(terms).sum(0)


def pull(left: Sequence[Factor], right: Sequence[Factor], g: Tensor) -> list[Tensor]:
    """Return Aᵢᵀ g Bᵢᵀ for every layer. [BLH18] (13)."""
    if len(left) > 2 and _square(left, right):
        a, b = _stack(left, g.shape[0], g), _stack(right, g.shape[1], g)
        return list(((a.mT @ g) @ b.mT).unbind())
    return [
        multiply(None if a is None else a.mT, g, None if b is None else b.mT)
        for a, b in zip(left, right, strict=True)
    ]


@dataclass(frozen=True)
class Lift:
    """A least-squares problem on the factors: ‖R (Σᵢ Aᵢ Vᵢ Bᵢ − U) S‖² + λ Σ‖Vᵢ‖² → min.

    Attributes:
        left: A₁…A_L.
        right: B₁…B_L, or BᵢQ if only the row space Q of some inputs matters.
        u: U, the target velocity.
        left_root: R, invertible; None is the identity.
        right_root: S, invertible; None is the identity.
        damping: λ ≥ 0.
    """

    left: Sequence[Factor]
    right: Sequence[Factor]
    u: Tensor
    left_root: Factor = None
    right_root: Factor = None
    damping: float = 0.0

    def solve(self, shares: Sequence[float] | None) -> list[Tensor]:
        """Return V₁…V_L: the shortest solution, or the one that is shared among layers.

        Raises:
            RankDeficientError: If a layer with a share cannot reach every velocity alone.
        """
        if shares is not None:
            return self._shared(shares)
        if self.damping:
            whitened = self._whitened()
            return kronecker_lstsq(whitened.left, whitened.right, whitened.u, damping=self.damping)
        return kronecker_lstsq(self.left, self.right, self._reachable())

    def surjective(self) -> bool:
        """Return whether every velocity can be reached, that is, whether one layer alone can.

        The spaces of the Aᵢ decrease and those of the Bᵢ increase with i, so if every pair of
        directions is reached by some layer, one layer reaches them all.
        """
        order = sorted(range(len(self.left)), key=lambda i: min(i, len(self.left) - 1 - i))
        return any(self._onto(i) for i in order)

    def _onto(self, i: int) -> bool:
        a, b = self.left[i], self.right[i]
        n, m = self.u.shape
        return (a is None or _rank(a) == n) and (b is None or _rank(b) == m)

    def _reachable(self) -> Tensor:
        """Return the reachable velocity that is nearest to U in the metric."""
        if self.surjective():
            return self.u
        w = self._whitened()
        projected = reachable(w.left, w.right, w.u)
        if self.left_root is not None:
            projected = torch.linalg.solve(self.left_root, projected)
        if self.right_root is not None:
            projected = torch.linalg.solve(self.right_root, projected, left=False)
        return projected

    def _whitened(self) -> "Lift":
        r, s = self.left_root, self.right_root
        return replace(
            self,
            left=[r if a is None else multiply(r, a, None) for a in self.left],
            right=[s if b is None else multiply(None, b, s) for b in self.right],
            u=multiply(r, self.u, s),
            left_root=None,
            right_root=None,
        )

    def _shared(self, shares: Sequence[float]) -> list[Tensor]:
        """Return V with one share per layer: [BLH18] (16), [KMH21] (51) as corrected."""
        square = self.u.shape[0] == self.u.shape[1] and _square(self.left, self.right)
        if not self.damping and all(shares) and square:
            solved = self._by_inverses(shares)
            if solved is not None:
                return solved
        problem = self._whitened() if self.damping else self
        out = []
        for i, share in enumerate(shares):
            if share:
                out.append(share * (problem._damped(i) if self.damping else problem._alone(i)))
            else:
                a, b = self.left[i], self.right[i]
                rows = self.u.shape[0] if a is None else a.shape[1]
                columns = self.u.shape[1] if b is None else b.shape[0]
                out.append(self.u.new_zeros(rows, columns))
        return out

    def _by_inverses(self, shares: Sequence[float]) -> list[Tensor] | None:
        """Return all layers at once if every partial product is square and well-conditioned."""
        n = self.u.shape[0]
        a, b = _stack(self.left, n, self.u), _stack(self.right, n, self.u)
        both = torch.cat([a, b])
        inverse, info = torch.linalg.inv_ex(both)
        norms = both.abs().sum(-2).amax(-1) * inverse.abs().sum(-2).amax(-1)
        limit = 1e-3 / torch.finfo(self.u.dtype).eps
        if bool(info.any()) or not bool((norms < limit).all()):
            return None
        a_inverse, b_inverse = inverse.chunk(2)
        v = (a_inverse @ self.u) @ b_inverse
        v = v + (a_inverse @ (self.u - a @ v @ b)) @ b_inverse  # refined once
        weights = self.u.new_tensor(list(shares))[:, None, None]
        return list((weights * v).unbind())

    def _alone(self, i: int) -> Tensor:
        """Return Aᵢ⁺ U Bᵢ⁺, refusing a layer that cannot produce U."""
        a, b, v = self.left[i], self.right[i], self.u
        if a is not None:
            found = pivoted_qr(a)
            self._refuse_rank(i, "left of", found.rank, self.u.shape[0])
            v = found.solve(v)
        if b is not None:
            found = pivoted_qr(b.mT)
            self._refuse_rank(i, "right of", found.rank, self.u.shape[1])
            v = found.solve(v.mT).mT
        return v

    def _refuse_rank(self, i: int, side: str, rank: int, needed: int) -> None:
        if rank < needed:
            raise RankDeficientError(
                f"this selection lets layer {i + 1} of {len(self.left)} (counted from the left of "
                f"the product) move the hypothesis alone, which needs rank {needed} in the product "
                f"{side} it, but that has rank {rank}. Try selection='min_norm', LayerShares on "
                "another layer, a positive damping, or a larger initialization."
            )

    def _damped(self, i: int) -> Tensor:
        """Return the damped solution of layer i alone, in singular coordinates."""
        p, s, at = _svd(self.left[i], self.u.shape[0], self.u)
        bt, t, qt = _svd(self.right[i], self.u.shape[1], self.u)
        st = s[:, None] * t[None, :]
        core = st * (p.mT @ self.u @ qt.mT) / (st**2 + self.damping)
        return at.mT @ core @ bt.mT


def _rank(a: Tensor) -> int:
    if min(a.shape) == 0:
        return 0
    return pivoted_qr(a, rtol=8 * default_rtol(*a.shape, dtype=a.dtype)).rank


def _square(left: Sequence[Factor], right: Sequence[Factor]) -> bool:
    shapes = {x.shape for x in (*left, *right) if x is not None}
    return len(shapes) == 0 or (len(shapes) == 1 and len(set(next(iter(shapes)))) == 1)


def _stack(factors: Sequence[Factor], n: int, like: Tensor) -> Tensor:
    eye = torch.eye(n, dtype=like.dtype, device=like.device)
    return torch.stack([eye if f is None else f for f in factors])


def _svd(x: Factor, n: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if x is None:
        eye = torch.eye(n, dtype=like.dtype, device=like.device)
        return eye, like.new_ones(n), eye
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return u, s, vh


def check_factors(params: Sequence[Tensor], depth: int, name: str) -> None:
    """Raise unless params is a tuple of `depth` matrices."""
    if not isinstance(params, tuple):
        raise DtypeError(f"{name} takes a tuple of matrices, but got a {type(params).__name__}.")
    if len(params) != depth:
        raise ShapeError(f"{name} takes {depth} factors, but got {len(params)}.")
    check_leaves(params, "factors")
    for i, w in enumerate(params):
        if w.ndim != 2 or w.numel() == 0:
            raise ShapeError(f"factor W_{i + 1} must be a matrix, but has {tuple(w.shape)}.")


def refuse_unreachable(reached: Tensor, u: Tensor) -> None:
    """Raise `RankDeficientError` if the reached velocity misses the target."""
    tolerance = 1e4 * torch.finfo(u.dtype).eps
    missed = float(torch.linalg.vector_norm(reached - u))
    wanted = float(torch.linalg.vector_norm(u))
    if missed > tolerance * wanted:
        raise RankDeficientError(
            f"no direction moves the hypothesis along this velocity: the nearest misses it by "
            f"{missed / wanted:.1e} of its size, because the factors lack rank. Use natural() "
            "for the nearest one, or a full-rank initialization."
        )


def refuse_rounding(factors: Sequence[Tensor], v: Sequence[Tensor], u: Tensor) -> None:
    """Raise `ConvergenceError` if v, after rounding, misses the part of u that can be reached.

    This is judged in double precision. Nearly singular factors need large movements that cancel in
    β. With more layers more digits cancel, and float32 fails first.
    """
    wide = [widen(w) for w in factors]
    left, right = partial_products(wide)
    target = widen(u)
    missed = target - push(left, right, [widen(part) for part in v])
    size, tolerance = float(target.norm()), max(1e-6, 1e4 * torch.finfo(u.dtype).eps)
    if float(missed.norm()) <= tolerance * size:
        return
    near = partial_products(factors)  # ranks are those of the factors as given
    within = float(reachable(*near, missed.to(u)).norm())
    if within > tolerance * size:
        raise ConvergenceError(
            f"in {u.dtype} the direction found misses {within / size:.1e} of the target velocity: "
            f"the {len(factors)} factors are too close to singular for this precision. Use "
            "float64, a positive damping, or an orthogonal initialization."
        )


def product(factors: Sequence[Tensor]) -> Tensor:
    """Return W₁⋯W_L."""
    out = factors[0]
    for w in factors[1:]:
        out = out @ w
    return out


def random_orthogonal(
    a: int, b: int, generator: torch.Generator | None, dtype: torch.dtype
) -> Tensor:
    """Return a Haar-distributed semi-orthogonal matrix `(a, b)`."""
    q: Tensor
    q, r = torch.linalg.qr(torch.randn(max(a, b), min(a, b), dtype=dtype, generator=generator))
    q = q * torch.sign(r.diagonal())
    return q if a >= b else q.mT
