"""Deep matrix factorization, [KMH21] §2.2, §4 and B.4."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from natgrad._checks import describe, integer, number
from natgrad._named import options
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.linalg import reachable
from natgrad.parametrizations._arguments import (
    check_depth,
    check_init,
    check_lift,
    check_not_saddle,
    check_positive,
    check_random,
    check_size,
)
from natgrad.parametrizations._products.entries import check_entries, gather, scatter
from natgrad.parametrizations._products.lift import (
    Lift,
    check_factors,
    flattening,
    partial_products,
    product,
    pull,
    push,
    random_orthogonal,
    refuse_rounding,
    refuse_unreachable,
)
from natgrad.parametrizations.base import Design, LinearHypothesis, detach

__all__ = ["MatrixProduct"]


@options
class MatrixProduct(LinearHypothesis[tuple[Tensor, ...]]):
    """β = W₁⋯W_L, a product of matrices, evaluated at positions `(n, 2)` (row, column).

    The parameters are a tuple of matrices. They may be rectangular, and a narrow one is a
    bottleneck.

    Lifting a velocity of β to Gaussian factors loses about one digit per layer by cancellation.
    Undamped natural directions are checked in double precision. An answer that misses the velocity
    by more than 1e-3 in float32, or 1e-6 in float64, is refused with `ConvergenceError` or
    `RankDeficientError`. For Gaussian 12 × 12 factors with an equal share in float32, this happens
    from depths of 8 to 10 on.

    `fisher_over=None` means all entries of β, observed or not ([KMH21] §4: with Gaussian noise and
    a summed loss the Fisher of β is then the identity). `fisher_over="batch"` means only the
    observed entries (Gauss–Newton on them). §2.3 and §4 of the paper disagree on which is meant.

    Args:
        depth: L ≥ 1.

    Example:
        >>> product = MatrixProduct(depth=2)
        >>> w = product.init_gaussian((3, 3), generator=torch.Generator().manual_seed(0))
        >>> product.hypothesis(w).shape
        torch.Size([3, 3])
    """

    def __init__(self, depth: int) -> None:
        self.depth = check_depth(depth)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"MatrixProduct(depth={self.depth})"

    def reads_entries(self, x: Tensor | None = None) -> bool:
        """Return True: all inputs are positions."""
        return True

    def init_gaussian(
        self,
        shape: tuple[int, int],
        *,
        scale: float = 1e-3,
        hidden: int | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, ...]:
        """Return normal factors of standard deviation scale^{1/L}/√(columns).

        Args:
            shape: Shape of β.
            scale: Size of the product: its entries have standard deviation scale/√columns.
            hidden: Width between factors; by default the larger side of β.
            generator: Source of randomness.
            dtype: Precision.

        Example:
            >>> [tuple(w.shape) for w in MatrixProduct(2).init_gaussian((3, 4), hidden=2)]
            [(3, 2), (2, 4)]
        """
        root = check_positive(scale, "scale") ** (1 / self.depth)
        check_random(generator, dtype)
        factors = tuple(
            root / b**0.5 * torch.randn(a, b, dtype=dtype, generator=generator)
            for a, b in self._shapes(shape, hidden)
        )
        check_init(factors)
        return factors

    def init_orthogonal(
        self,
        shape: tuple[int, int],
        *,
        scale: float = 1.0,
        hidden: int | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, ...]:
        """Return random (semi-)orthogonal factors whose product has singular values `scale`.

        Example:
            >>> w = MatrixProduct(2).init_orthogonal((3, 3), scale=4.0)
            >>> torch.linalg.svdvals(w[0] @ w[1]).round(decimals=6)
            tensor([4., 4., 4.], dtype=torch.float64)
        """
        root = check_positive(scale, "scale") ** (1 / self.depth)
        check_random(generator, dtype)
        return tuple(
            root * random_orthogonal(a, b, generator, dtype) for a, b in self._shapes(shape, hidden)
        )

    def init_collapsed(
        self,
        shape: tuple[int, int],
        *,
        from_depth: int,
        scale: float = 1e-3,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, ...]:
        """Return a deeper Gaussian product multiplied down to L factors ([KMH21] Fig 5 right).

        Args:
            shape: Shape of β.
            from_depth: Depth of the deeper product, a multiple of L.
            scale: As in `init_gaussian` of the deeper product.
            generator: Source of randomness.
            dtype: Precision.

        Example:
            >>> len(MatrixProduct(2).init_collapsed((3, 3), from_depth=6))
            2
        """
        if integer(from_depth, "from_depth") < 1 or from_depth % self.depth:
            raise InvalidInputError(
                f"from_depth must be a multiple of depth {self.depth}, but is {from_depth}."
            )
        deep = MatrixProduct(from_depth).init_gaussian(
            shape, scale=scale, generator=generator, dtype=dtype
        )
        size = from_depth // self.depth
        groups = (deep[i : i + size] for i in range(0, from_depth, size))
        return tuple(product(group) for group in groups)

    def _shapes(self, shape: tuple[int, int], hidden: int | None) -> list[tuple[int, int]]:
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise InvalidInputError(f"shape must be (rows, columns), but is {describe(shape)}.")
        rows, columns = (check_size(n, "each side of shape") for n in shape)
        width = max(rows, columns) if hidden is None else check_size(hidden, "hidden")
        widths = [rows, *[width] * (self.depth - 1), columns]
        return list(pairwise(widths))

    def check(self, params: tuple[Tensor, ...]) -> None:
        """Raise unless params is a tuple of L matrices that chain, not all zero."""
        check_factors(params, self.depth, f"MatrixProduct(depth={self.depth})")
        for i, (a, b) in enumerate(pairwise(params)):
            if a.shape[1] != b.shape[0]:
                raise ShapeError(
                    f"factors do not chain in β = W₁⋯W_L: W_{i + 1} is {tuple(a.shape)} but "
                    f"W_{i + 2} is {tuple(b.shape)}."
                )
        check_not_saddle(params)

    def check_inputs(self, params: tuple[Tensor, ...], x: Tensor) -> None:
        """Raise unless x holds integer positions inside β."""
        check_entries(x, params[0].shape[0], params[-1].shape[1], params[0].device)

    def hypothesis(self, params: tuple[Tensor, ...]) -> Tensor:
        """Return β."""
        return product(params)

    def push(self, params: tuple[Tensor, ...], v: tuple[Tensor, ...]) -> Tensor:
        """Return Σ Aᵢ vᵢ Bᵢ."""
        return push(*partial_products(params), v)

    def pull(self, params: tuple[Tensor, ...], g: Tensor) -> tuple[Tensor, ...]:
        """Return Aᵢᵀ g Bᵢᵀ for every factor."""
        return tuple(pull(*partial_products(params), g))

    def lift(
        self,
        params: tuple[Tensor, ...],
        u: Tensor,
        *,
        shares: Sequence[float] | None = None,
        damping: float = 0.0,
    ) -> tuple[Tensor, ...]:
        """Return v with Σ Aᵢ vᵢ Bᵢ = u: the shortest, or shares_i · Aᵢ⁺ u Bᵢ⁺.

        Args:
            params: W₁…W_L.
            u: Target velocity, in the shape of β.
            shares: One weight per factor, summing to one; None for the shortest.
            damping: λ ≥ 0; minimizes ‖Jv − u‖² + λ‖v‖² instead.

        Raises:
            RankDeficientError: If u cannot be reached.
        """
        params = detach(params)
        check_lift(u, self.hypothesis(params), shares, self.depth)
        damping = number(damping, "damping", low=0)
        problem = Lift(*partial_products(params), u, damping=damping)
        v = tuple(problem.solve(shares))
        if shares is None and not damping:
            refuse_unreachable(self.push(params, v), u)
        return v

    def natural_lift(
        self, params: tuple[Tensor, ...], u: Tensor, shares: Sequence[float] | None, damping: float
    ) -> tuple[Tensor, ...]:
        """Return `lift` of the nearest reachable velocity: least squares.

        Raises:
            ConvergenceError: If rounding to the dtype makes the answer too inaccurate.
        """
        check_lift(u, self.hypothesis(params), shares, self.depth)
        damping = number(damping, "damping", low=0)
        v = tuple(Lift(*partial_products(params), u, damping=damping).solve(shares))
        if not damping:
            refuse_rounding(params, v, u)
        return v

    def surjective(self, params: tuple[Tensor, ...]) -> bool:
        """Return whether every velocity of β can be reached."""
        params = detach(params)
        return Lift(*partial_products(params), self.hypothesis(params)).surjective()

    def reachable(self, params: tuple[Tensor, ...], u: Tensor) -> Tensor:
        """Return the nearest velocities of β that can be reached."""
        return u if self.surjective(params) else reachable(*partial_products(params), u)

    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the entries of h at x."""
        return gather(h, x)

    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return u scattered to positions x."""
        return scatter(h, x, u)

    def layers(self, params: tuple[Tensor, ...]) -> int:
        """Return L."""
        return self.depth

    def restrict(self, v: tuple[Tensor, ...], layer: int) -> tuple[Tensor, ...]:
        """Return v with every factor but one set to zero."""
        integer(layer, "layer", low=0, high=self.depth - 1)
        return tuple(t if i == layer else torch.zeros_like(t) for i, t in enumerate(v))

    def prefers_gram(self, params: tuple[Tensor, ...], x: Tensor) -> bool:
        """Return True: the kernel has a closed form."""
        return True

    def design(self, params: tuple[Tensor, ...], x: Tensor, layer: int | None = None) -> Design:
        """Return dense rows Aᵢ[r]ᵀ ⊗ Bᵢ[:, c] for every observation (r, c)."""
        left, right = partial_products(params)
        beta, x = self.hypothesis(params), x.long()
        chosen = range(self.depth) if layer is None else [layer]
        pieces = []
        for i in chosen:
            a, b = left[i], right[i]
            rows = _rows(a, x[:, 0], beta.shape[0], beta)
            columns = _rows(None if b is None else b.mT, x[:, 1], beta.shape[1], beta)
            pieces.append(torch.einsum("na,nb->nab", rows, columns).reshape(len(x), -1))
        matrix = torch.cat(pieces, dim=1)[:, None, :]
        return Design(matrix, *flattening(params, layer))

    def gram(
        self, params: tuple[Tensor, ...], x: Tensor, other: Tensor, layer: int | None = None
    ) -> Tensor:
        """Return Σᵢ (AᵢAᵢᵀ)[r, r'] (BᵢᵀBᵢ)[c, c'], shape `(n, 1, m, 1)`."""
        left, right = partial_products(params)
        beta, x, other = self.hypothesis(params), x.long(), other.long()
        total = beta.new_zeros(len(x), len(other))
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            if layer in (None, i):
                rows = _gram(a, beta.shape[0], beta)
                columns = _gram(None if b is None else b.mT, beta.shape[1], beta)
                total += (
                    rows[x[:, 0][:, None], other[None, :, 0]]
                    * columns[x[:, 1][:, None], other[None, :, 1]]
                )
        return total[:, None, :, None]


def _rows(a: Tensor | None, index: Tensor, size: int, like: Tensor) -> Tensor:
    if a is None:
        return torch.nn.functional.one_hot(index, size).to(like.dtype)
    return a[index]


def _gram(a: Tensor | None, size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device) if a is None else a @ a.mT
