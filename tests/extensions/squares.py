"""A difference of squares."""

from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad.errors import ShapeError
from natgrad.parametrizations import Design, LinearHypothesis
from natgrad.parametrizations._arguments import check_features, check_leaves, check_lift


class Squares(LinearHypothesis[Tensor]):
    """β = u² − v²: one tensor `(2, d)`, layers u and v, outputs x @ β for inputs `(n, d)`.

    The Jacobian of β is [diag 2u, −diag 2v] = diag q · Q with q = 2√(u² + v²).

    Example:
        >>> Squares().hypothesis(torch.tensor([[2.0], [1.0]]))
        tensor([3.])
    """

    def check(self, params: Tensor) -> None:
        check_leaves([params], "parameters")
        if params.ndim != 2 or len(params) != 2:
            raise ShapeError(f"Squares takes a tensor (2, d), not {tuple(params.shape)}.")

    def check_inputs(self, params: Tensor, x: Tensor) -> None:
        check_features(x, params, params.shape[1])

    def hypothesis(self, params: Tensor) -> Tensor:
        return params[0] ** 2 - params[1] ** 2

    def coefficients(self, params: Tensor) -> Tensor:
        return self.hypothesis(params)[:, None]

    def push(self, params: Tensor, v: Tensor) -> Tensor:
        return (_slopes(params) * v).sum(0)

    def pull(self, params: Tensor, g: Tensor) -> Tensor:
        return _slopes(params) * g

    def lift(self, params: Tensor, u: Tensor, *, shares: Sequence[float] | None = None) -> Tensor:
        check_lift(u, params[0], shares, 2)
        c = _slopes(params)
        if shares is None:
            return c * u / c.square().sum(0)
        return torch.tensor(shares, dtype=u.dtype)[:, None] * u / c

    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        return x @ h

    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        return x.mT @ u

    def layers(self, params: Tensor) -> int:
        return 2

    def restrict(self, v: Tensor, layer: int) -> Tensor:
        out = torch.zeros_like(v)
        out[layer] = v[layer]
        return out

    def design(self, params: Tensor, x: Tensor, layer: int | None = None) -> Design:
        c = _slopes(params)
        c = c if layer is None else self.restrict(c, layer)
        q = torch.linalg.vector_norm(c, dim=0)
        direction = c / q
        return Design(
            (x * q)[:, None, :], lambda z: direction * z, lambda g: (direction * g).sum(0)
        )


def _slopes(params: Tensor) -> Tensor:
    """Return the derivatives 2u and −2v."""
    return torch.stack([2 * params[0], -2 * params[1]])
