"""The tangent kernel of a matrix product, and shortest lifts through it to a given accuracy.

β = W₁⋯W_L moves by K[Z] = Σᵢ (AᵢAᵢᵀ) Z (BᵢᵀBᵢ) when the factors move by Vᵢ = AᵢᵀZBᵢᵀ, and the
shortest V that moves β by U has K[Z] = U. `MatrixProduct.lift` solves this to full precision. That
fails for nearly singular factors, and is not needed for steps that are corrected later.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError
from natgrad.parametrizations._products.lift import multiply, partial_products, pull

_ITERATIONS = 5000


class ProductKernel:
    """K at some factors, L ≥ 2.

    Args:
        factors: W₁…W_L.

    Example:
        >>> w = (2.0 * torch.eye(2), 3.0 * torch.eye(2))
        >>> kernel = ProductKernel(w)
        >>> z = kernel.solve(torch.ones(2, 2), accuracy=1e-6)
        >>> kernel.apply(z)
        tensor([[1., 1.],
                [1., 1.]])
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self.left, self.right = partial_products(factors)
        self._rows = [None if a is None else a @ a.mT for a in self.left]
        self._columns = [None if b is None else b.mT @ b for b in self.right]
        self._shape = (factors[0].shape[0], factors[-1].shape[1])

    def apply(self, z: Tensor) -> Tensor:
        """Return K[z]."""
        return _apply(list(zip(self._rows, self._columns, strict=True)), z)

    def pull(self, z: Tensor) -> tuple[Tensor, ...]:
        """Return the movement Aᵢᵀ z Bᵢᵀ of the factors."""
        return tuple(pull(self.left, self.right, z))

    def solve(self, u: Tensor, *, accuracy: float, damping: float = 0.0) -> Tensor:
        """Return Z with ‖K[Z] + λZ − U‖ ≤ accuracy · ‖U‖.

        In the eigenvectors of the outermost terms, two of the L terms are diagonal. The diagonal of
        K preconditions the rest.

        Raises:
            ConvergenceError: If conjugate gradients do not get there.
        """
        outer = (self._rows[-1], self._columns[0])
        p, q = (torch.linalg.eigh(gram)[1] for gram in outer if gram is not None)
        terms = [
            (None if a is None else p.mT @ a @ p, None if b is None else q.mT @ b @ q)
            for a, b in zip(self._rows, self._columns, strict=True)
        ]
        diagonal = damping + self._diagonal(terms, u)
        z = conjugate_gradients(
            lambda d: _apply(terms, d) + damping * d,
            p.mT @ u @ q,
            1 / diagonal,
            accuracy=accuracy,
        )
        back: Tensor = p @ z @ q.mT
        return back

    def solve_observed(
        self, mask: Tensor, u: Tensor, *, accuracy: float, guess: Tensor | None = None
    ) -> Tensor:
        """Return Z, zero where mask is, with ‖mask ⊙ K[Z] − U‖ ≤ accuracy · ‖U‖.

        Raises:
            ConvergenceError: If conjugate gradients do not get there.
        """
        terms = list(zip(self._rows, self._columns, strict=True))
        return conjugate_gradients(
            lambda d: mask * _apply(terms, d),
            u,
            mask / self._diagonal(terms, u),
            accuracy=accuracy,
            guess=guess,
        )

    def _diagonal(
        self, terms: Sequence[tuple[Tensor | None, Tensor | None]], like: Tensor
    ) -> Tensor:
        rows, columns = self._shape
        total = torch.zeros_like(like)
        for a, b in terms:
            total += torch.outer(
                like.new_ones(rows) if a is None else a.diagonal(),
                like.new_ones(columns) if b is None else b.diagonal(),
            )
        return total


def _apply(terms: Sequence[tuple[Tensor | None, Tensor | None]], z: Tensor) -> Tensor:
    out = torch.zeros_like(z)
    for a, b in terms:
        out += multiply(a, z, b)
    return out


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    u: Tensor,
    preconditioner: Tensor,
    *,
    accuracy: float,
    guess: Tensor | None = None,
) -> Tensor:
    """Return z with ‖apply(z) − u‖ ≤ accuracy · ‖u‖, apply linear, symmetric, semi-definite.

    Raises:
        ConvergenceError: If the accuracy is not reached.

    Example:
        >>> diagonal = torch.tensor([1.0, 4.0])
        >>> conjugate_gradients(lambda z: diagonal * z, torch.ones(2), torch.ones(2), accuracy=1e-6)
        tensor([1.0000, 0.2500])
    """
    goal = accuracy * float(torch.linalg.vector_norm(u))
    z = torch.zeros_like(u) if guess is None else guess
    r = u if guess is None else u - apply(guess)
    if float(torch.linalg.vector_norm(r)) <= goal:
        return z
    s = preconditioner * r
    d, rho = s, float((r * s).sum())
    for _ in range(_ITERATIONS):
        image = apply(d)
        curvature = float((d * image).sum())
        if not curvature > 0:
            break
        alpha = rho / curvature
        z, r = z + alpha * d, r - alpha * image
        if float(torch.linalg.vector_norm(r)) <= goal:
            return z
        s = preconditioner * r
        rho, before = float((r * s).sum()), rho
        d = s + (rho / before) * d
    missed = float(torch.linalg.vector_norm(r)) / max(goal / accuracy, 1e-300)
    raise ConvergenceError(
        f"conjugate gradients stopped at a relative residual of {missed:.1e}, above the "
        f"requested {accuracy:.0e}: the factors are too close to singular. Try a larger or an "
        "orthogonal initialization, or a positive damping."
    )
