"""The hypothesis is the parameter."""

from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad._checks import number
from natgrad.errors import DtypeError, ShapeError
from natgrad.parametrizations._arguments import check_features, check_leaves, check_lift
from natgrad.parametrizations._products.entries import are_entries, check_entries, gather, scatter
from natgrad.parametrizations.base import Design, LinearHypothesis

__all__ = ["Direct"]


class Direct(LinearHypothesis[Tensor]):
    """β = w: one tensor, `(d,)` for one output or `(d, k)` for several.

    Outputs are x @ β for real inputs x `(n, d)`. For integer inputs `(n, 2)` a matrix β is read
    at the positions x instead: matrix completion at depth one.

    `fisher_over=None` means the batch's own inputs, and for positions all entries of β.

    Example:
        >>> beta = torch.zeros(2, dtype=torch.float64)
        >>> Direct().predict(beta, torch.eye(2, dtype=torch.float64))
        tensor([0., 0.], dtype=torch.float64)
    """

    def __repr__(self) -> str:
        """Return the constructor call."""
        return "Direct()"

    def reads_entries(self, x: Tensor | None = None) -> bool:
        """Return whether x holds positions."""
        return x is None or are_entries(x)

    def coefficients(self, params: Tensor) -> Tensor:
        """Return β as a matrix `(d, k)`."""
        return params[:, None] if params.ndim == 1 else params

    def check(self, params: Tensor) -> None:
        """Raise unless params is one tensor `(d,)` or `(d, k)`."""
        if not isinstance(params, Tensor):
            raise DtypeError(f"Direct takes one tensor, but got a {type(params).__name__}.")
        check_leaves([params], "parameters")
        if params.ndim not in (1, 2) or params.numel() == 0:
            raise ShapeError(
                f"Direct parameters must have shape (d,) or (d, k), but have {tuple(params.shape)}."
            )

    def check_inputs(self, params: Tensor, x: Tensor) -> None:
        """Raise unless x is `(n, d)` real, or `(n, 2)` positions for a matrix."""
        if are_entries(x) and params.ndim == 2:
            check_entries(x, params.shape[0], params.shape[1], params.device)
        else:
            check_features(x, params, params.shape[0])

    def hypothesis(self, params: Tensor) -> Tensor:
        """Return β."""
        return params

    def push(self, params: Tensor, v: Tensor) -> Tensor:
        """Return v."""
        return v

    def pull(self, params: Tensor, g: Tensor) -> Tensor:
        """Return g."""
        return g

    def lift(self, params: Tensor, u: Tensor, *, shares: Sequence[float] | None = None) -> Tensor:
        """Return u: there is one layer and nothing to choose."""
        check_lift(u, params, shares, 1)
        return u

    def natural_lift(
        self, params: Tensor, u: Tensor, shares: Sequence[float] | None, damping: float
    ) -> Tensor:
        """Return u / (1 + λ)."""
        check_lift(u, params, shares, 1)
        return u / (1 + number(damping, "damping", low=0))

    def surjective(self, params: Tensor) -> bool:
        """Return True."""
        return True

    def reachable(self, params: Tensor, u: Tensor) -> Tensor:
        """Return u."""
        return u

    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        """Return x @ h, or the entries of h at positions x."""
        return gather(h, x) if are_entries(x) else x @ h

    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return xᵀ u, or u scattered to positions x."""
        return scatter(h, x, u) if are_entries(x) else x.mT @ u

    def layers(self, params: Tensor) -> int:
        """Return 1."""
        return 1

    def restrict(self, v: Tensor, layer: int) -> Tensor:
        """Return v: there is one layer."""
        return v

    def prefers_gram(self, params: Tensor, x: Tensor) -> bool:
        """Return whether x holds positions, whose rows are unit vectors."""
        return are_entries(x)

    def gram(self, params: Tensor, x: Tensor, other: Tensor, layer: int | None = None) -> Tensor:
        """Return x·x′ per output, or 1 where positions agree; shape `(n, k, m, k)`."""
        if are_entries(x):
            same = (x[:, None, :] == other[None, :, :]).all(2).to(params.dtype)
            return same[:, None, :, None]
        k = 1 if params.ndim == 1 else params.shape[1]
        eye = torch.eye(k, dtype=x.dtype, device=x.device)
        return torch.einsum("nm,kj->nkmj", x @ other.mT, eye)

    def design(self, params: Tensor, x: Tensor, layer: int | None = None) -> Design:
        """Return x itself, once per output; for positions, rows of the identity."""
        p = params.numel()
        if are_entries(x):
            flat = x[:, 0].long() * params.shape[1] + x[:, 1].long()
            matrix = torch.nn.functional.one_hot(flat, p).to(params.dtype)[:, None, :]
        elif params.ndim == 1:
            matrix = x[:, None, :]
        else:
            eye = torch.eye(params.shape[1], dtype=x.dtype, device=x.device)
            matrix = torch.einsum("nd,kj->nkdj", x, eye).reshape(len(x), params.shape[1], p)
        return Design(matrix, lambda z: z.reshape(params.shape), lambda g: g.reshape(-1))
