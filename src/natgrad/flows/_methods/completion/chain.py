"""The factors of a completed matrix in one vector, and their explicit gradient."""

from itertools import pairwise

import torch
from torch import Tensor

from natgrad.flows._methods.completion.observed import Residual

Factors = tuple[Tensor, ...]


class Chain:
    """Factors in one vector, and −∇L there."""

    def __init__(self, factors: Factors, residual: Residual) -> None:
        self.shapes = [w.shape for w in factors]
        self.sizes = [w.numel() for w in factors]
        self.residual = residual
        self.state = torch.cat([w.reshape(-1) for w in factors])
        like = factors[0]
        pairs = list(pairwise(factors))
        self._left = [like.new_empty(like.shape[0], w.shape[1]) for w, _ in pairs]
        self._left[:1] = []  # the product of the first factor is itself
        self._backward = [like.new_empty(like.shape[0], b.shape[0]) for _, b in pairs]
        self._eye = torch.eye(like.shape[1] if not pairs else 0).to(like)  # of a single factor

    def split(self, flat: Tensor) -> list[Tensor]:
        """Return views of the layers."""
        parts = torch.split(flat, self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def field(self, state: Tensor, out: Tensor) -> None:
        """Write −∇L(state), and keep the residual at this state."""
        w, g = self.split(state), self.split(out)
        if len(w) == 1:  # β = W₁ = W₁ · I
            self.residual.update(w[0], self._eye)
            g[0].copy_(self.residual.times(self._eye))
            return
        lefts = [w[0]]
        for factor, buffer in zip(w[1:-1], self._left, strict=True):
            lefts.append(torch.mm(lefts[-1], factor, out=buffer))
        self.residual.update(lefts[-1], w[-1])
        if len(w) == 2:
            self.residual.pull(w[0], w[1], g[0], g[1])
            return
        back = self._backward[-1]
        self.residual.pull(lefts[-1], w[-1], back, g[-1])
        for i in range(len(w) - 2, 0, -1):
            torch.mm(lefts[i - 1].mT, back, out=g[i])
            target = self._backward[i - 1] if i > 1 else g[0]
            back = torch.mm(back, w[i].mT, out=target)

    def norms(self, flat: Tensor) -> Tensor:
        """Return the Frobenius norm of every layer."""
        return torch.stack(
            [torch.linalg.vector_norm(part) for part in torch.split(flat, self.sizes)]
        )
