"""Diagonal linear networks, [KMH21] §2.1, §3 and B.2."""

from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad._named import options
from natgrad.errors import DtypeError, RankDeficientError, ShapeError
from natgrad.parametrizations._arguments import (
    check_depth,
    check_features,
    check_init,
    check_leaves,
    check_lift,
    check_not_saddle,
    check_positive,
    check_random,
    check_size,
)
from natgrad.parametrizations._guard import guarded
from natgrad.parametrizations.base import Design, LinearHypothesis

__all__ = ["Diagonal"]


@options
class Diagonal(LinearHypothesis[Tensor]):
    """β = w₁ ⊙ ⋯ ⊙ w_L: one tensor `(L, d)`, outputs x @ β for inputs `(n, d)`.

    With c_l = ⊙_{k≠l} w_k the Jacobian of β is [diag c₁ … diag c_L] = diag q · Q, where q = √Σ c_l²
    and Q has orthonormal rows. So least squares on x diag q, of width d instead of L d, gives the
    minimum-norm direction. [KMH21] (26)–(31), corrected as in docs/paper_map.md.

    `fisher_over=None` means the batch's own inputs.

    Args:
        depth: L ≥ 1.

    Example:
        >>> network = Diagonal(depth=3)
        >>> w = network.init_free(2, scale=0.5)
        >>> network.hypothesis(w)
        tensor([0., 0.], dtype=torch.float64)
    """

    def __init__(self, depth: int) -> None:
        self.depth = check_depth(depth)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"Diagonal(depth={self.depth})"

    def init_free(
        self, dim: int, *, scale: float = 0.1, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """Return w₁ = 0 and the others `scale`, so that β = 0 and every sign can be reached.

        Example:
            >>> Diagonal(2).init_free(2, scale=0.5)
            tensor([[0.0000, 0.0000],
                    [0.5000, 0.5000]], dtype=torch.float64)
        """
        w = self.init_tied(dim, scale=scale, dtype=dtype)
        w[0] = 0
        return w

    def init_tied(
        self, dim: int, *, scale: float = 0.1, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """Return all factors equal to `scale`, so that β stays non-negative along gradient flow.

        Example:
            >>> Diagonal(2).init_tied(1, scale=0.5)
            tensor([[0.5000],
                    [0.5000]], dtype=torch.float64)
        """
        shape = (self.depth, check_size(dim, "dim"))
        check_random(None, dtype)
        w = torch.full(shape, check_positive(scale, "scale"), dtype=dtype)
        check_init(list(w))
        return w

    def init_gaussian(
        self,
        dim: int,
        *,
        scale: float = 0.1,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Tensor:
        """Return independent normal factors with standard deviation `scale`.

        Example:
            >>> Diagonal(3).init_gaussian(4, generator=torch.Generator().manual_seed(0)).shape
            torch.Size([3, 4])
        """
        scale = check_positive(scale, "scale")
        shape = (self.depth, check_size(dim, "dim"))
        check_random(generator, dtype)
        w = scale * torch.randn(shape, dtype=dtype, generator=generator)
        check_init(list(w))
        return w

    def check(self, params: Tensor) -> None:
        """Raise unless params is one tensor `(L, d)`, not all zero."""
        if not isinstance(params, Tensor):
            raise DtypeError(f"Diagonal takes one tensor (L, d), not a {type(params).__name__}.")
        check_leaves([params], "parameters")
        if params.ndim != 2 or params.shape[0] != self.depth or params.numel() == 0:
            raise ShapeError(
                f"Diagonal(depth={self.depth}) parameters must have shape ({self.depth}, d), but "
                f"have {tuple(params.shape)}."
            )
        if not params.any():
            check_not_saddle(list(params))

    def check_inputs(self, params: Tensor, x: Tensor) -> None:
        """Raise unless x is `(n, d)`."""
        check_features(x, params, params.shape[1])

    def hypothesis(self, params: Tensor) -> Tensor:
        """Return β, shape `(d,)`."""
        return params.prod(0)

    def coefficients(self, params: Tensor) -> Tensor:
        """Return β as a matrix `(d, 1)`."""
        return self.hypothesis(params)[:, None]

    @guarded
    def partial_products(self, params: Tensor) -> Tensor:
        """Return c, shape `(L, d)`: row l is the product of all factors except the l-th."""
        return self._partial_products(params)

    def _partial_products(self, params: Tensor) -> Tensor:
        ones = torch.ones_like(params[:1])
        before = torch.cat([ones, params[:-1]]).cumprod(0)
        after = torch.cat([ones, params.flip(0)[:-1]]).cumprod(0).flip(0)
        return before * after

    def push(self, params: Tensor, v: Tensor) -> Tensor:
        """Return Σ_l c_l ⊙ v_l."""
        return (self._partial_products(params) * v).sum(0)

    def pull(self, params: Tensor, g: Tensor) -> Tensor:
        """Return c_l ⊙ g in each layer. [KMH21] (37), corrected."""
        return self._partial_products(params) * g

    def lift(self, params: Tensor, u: Tensor, *, shares: Sequence[float] | None = None) -> Tensor:
        """Return v with Σ c_l ⊙ v_l = u: c_l u / Σ c² (shortest), or shares_l · u / c_l.

        Raises:
            RankDeficientError: If u moves a coordinate on which the needed products vanish.
        """
        check_lift(u, params[0], shares, self.depth)
        c = self._partial_products(params)
        if shares is None:
            q, direction = _polar(c)
            self._refuse_zero(q, u, "the partial product of every layer")
            return direction * torch.where(q > 0, u / torch.where(q > 0, q, 1.0), 0.0)
        v = torch.zeros_like(params)
        for layer, share in enumerate(shares):
            if share:
                self._refuse_zero(c[layer], u, f"the other layers' product for layer {layer + 1}")
                v[layer] = torch.where(c[layer] == 0, 0.0, share * u / c[layer])
        return v

    @staticmethod
    def _refuse_zero(c: Tensor, u: Tensor, what: str) -> None:
        stuck = int(((c == 0) & (u != 0)).sum())
        if stuck:
            raise RankDeficientError(
                f"{what} vanishes on {stuck} of {len(u)} coordinates that must move. Try "
                "selection='min_norm', or an initialization without zeros there."
            )

    def surjective(self, params: Tensor) -> bool:
        """Return whether every velocity of β can be reached."""
        return bool((self._partial_products(params) != 0).any(0).all())

    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        """Return x @ h."""
        return x @ h

    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return xᵀ u."""
        return x.mT @ u

    def layers(self, params: Tensor) -> int:
        """Return L."""
        return self.depth

    def restrict(self, v: Tensor, layer: int) -> Tensor:
        """Return v with every row but one set to zero."""
        out = torch.zeros_like(v)
        out[layer] = v[layer]
        return out

    def design(self, params: Tensor, x: Tensor, layer: int | None = None) -> Design:
        """Return x diag q, or x diag c_l for one layer; width d."""
        c = self._partial_products(params)
        if layer is not None:
            only = torch.zeros_like(c)
            only[layer] = 1
            return Design(
                (x * c[layer])[:, None, :], lambda z: only * z, lambda g: (only * g).sum(0)
            )
        q, direction = _polar(c)
        return Design(
            (x * q)[:, None, :], lambda z: direction * z, lambda g: (direction * g).sum(0)
        )


def _polar(c: Tensor) -> tuple[Tensor, Tensor]:
    """Return q = √Σ_l c_l², shape `(d,)`, and c/q (0 where q = 0), without under- or overflow."""
    largest = c.abs().amax(0)
    scaled = c / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=0)
    return largest * norm, scaled / torch.where(norm > 0, norm, 1.0)
