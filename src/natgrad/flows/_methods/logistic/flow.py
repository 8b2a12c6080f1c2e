"""Natural gradient flow of logistic regression: in closed form, or along a Newton path."""

import torch
from torch import Tensor

from natgrad._checks import describe, number, tensor
from natgrad._named import named
from natgrad.errors import LabelError, ShapeError
from natgrad.flows._methods.logistic.newton_path import NewtonPath
from natgrad.linalg import lstsq
from natgrad.linalg._precision import widen


@named
def natural_logits(s: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
    """Return logits at time t under natural gradient flow with a full-row-rank Jacobian.

    [KMH21] (63)–(73), corrected: with s̃ = y ⊙ s, ds̃/dt = 1 + e^{−s̃} and s̃(t) = a + log(1 − e^{−a}),
    a = t + log(1 + e^{s̃(0)}). Time is that of a mean loss with a mean Fisher, or sum with sum.

    Args:
        s: Logits at time 0, shape `(n,)`.
        y: Labels ±1.
        t: Time, a number or shape `(m, 1)` for several.

    Example:
        >>> natural_logits(torch.zeros(1), torch.ones(1), 1e4)
        tensor([10000.6934])
    """
    tensor(s, "logits")
    tensor(y, "labels", shape=tuple(s.shape))
    if not bool((y.abs() == 1).all()):
        wrong = float(y[y.abs() != 1].flatten()[0])
        raise LabelError(f"labels must be −1 or +1, but one is {wrong:g}.")
    if isinstance(t, Tensor):
        fits = tensor(t, "t").ndim == 0 or t.shape[-1] in (1, s.shape[-1])
        if not fits or t.ndim > 2 or bool((t < 0).any()):
            raise ShapeError(f"t must be a number or have shape (m, 1), but is {describe(t)}.")
    else:
        t = number(t, "t", low=0)
    a = t + torch.nn.functional.softplus(y * s)
    return y * (a + torch.log(-torch.expm1(-a)))


class LogisticFlow:
    """Natural gradient flow of logistic regression at increasing times.

    Uses `natural_logits` if the rows are independent, else a `NewtonPath` in their span.

    Args:
        beta: β(0), shape `(d,)`.
        x: Inputs, shape `(n, d)`.
        y: Labels ±1, shape `(n, 1)`.
        tolerance: See `NewtonPath`.

    Attributes:
        path: The Newton path, or None if none is needed.
    """

    def __init__(self, beta: Tensor, x: Tensor, y: Tensor, tolerance: float = 1e-11) -> None:
        self._beta, self._x, self._y = widen(beta), widen(x), widen(y)
        self._like = beta
        self.path: NewtonPath | None = None
        self._basis: Tensor | None = None
        self._rank = lstsq(self._x, self._x.new_ones(len(x))).rank
        if self._rank == len(x):
            self._inverse = lstsq(self._x, torch.eye(len(x)).to(self._x)).solution
        if not 0 < self._rank < len(x):
            return
        signed, start = self._y * self._x, self._beta
        if self._rank < x.shape[1]:
            rows: Tensor = torch.linalg.svd(signed, full_matrices=False)[2]
            self._basis = rows[: self._rank].mT.contiguous()
            signed, start = signed @ self._basis, self._basis.mT @ start
        self.path = NewtonPath(signed, start, tolerance)
        self._start = start

    @property
    def evaluations(self) -> int:
        """Return the number of matrices factorized."""
        return 0 if self.path is None else self.path.factors

    @property
    def error(self) -> float:
        """Return the largest error of a margin found so far, relative to the largest margin."""
        return 0.0 if self.path is None else self.path.error

    def at(self, t: float) -> Tensor:
        """Return β(t); t must not be smaller than in the last call."""
        if self.path is not None:
            moved = self.path.advance(t) - self._start
            moved = moved if self._basis is None else self._basis @ moved
        elif self._rank == 0:
            moved = torch.zeros_like(self._beta)
        else:
            s, y = self._x @ self._beta, self._y[:, 0]
            moved = self._inverse @ (natural_logits(s, y, t) - s)
        return (self._beta + moved).to(self._like)
