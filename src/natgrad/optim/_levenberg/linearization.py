"""A closure's values at the present weights, with the rows of their Jacobian."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.optim._levenberg.problem import (
    Problem,
    Values,
    Whitening,
    require_finite_values,
    require_graph,
)
from natgrad.optim._rows.jacobian import Jacobian
from natgrad.optim._rows.record import Recorder

__all__ = ["Linearization", "SlowRowsWarning", "evaluate", "linearize", "same_values"]


class SlowRowsWarning(UserWarning):
    """Some rows of the Jacobian take one backward pass each; the message says which, and why."""


@dataclass(frozen=True)
class Linearization:
    """The least-squares problem at one point: min |A v − t|².

    Attributes:
        values: What the closure returned, without graph.
        losses: Loss by block.
        whitening: Weights of the rows, and the target t.
        jacobian: A.
        gradient: Of the loss, −Aᵀt.
    """

    values: Values
    losses: dict[str, float]
    whitening: Whitening
    jacobian: Jacobian
    gradient: Tensor

    @property
    def loss(self) -> float:
        """Return the whole loss."""
        return sum(self.losses.values())


def linearize(problem: Problem, recorder: Recorder, closure: Callable[[], Any]) -> Linearization:
    """Run the closure once with recording and go backward once per column of its blocks."""
    known = len(recorder.slow)
    with torch.enable_grad():
        values = problem.read(recorder.run(closure), "closure")
        require_finite_values(values)
        require_graph(values)
        strips = recorder.jacobian(values.blocks)
    whitening = problem.whiten(values)
    jacobian = recorder.assemble(whitening.rows(strips))
    for message in list(recorder.slow.values())[known:]:
        warnings.warn(message, SlowRowsWarning, stacklevel=4)
    return Linearization(
        _without_graph(values),
        problem.losses(values),
        whitening,
        jacobian,
        -jacobian.transposed(whitening.target),
    )


def evaluate(problem: Problem, closure: Callable[[], Any], name: str = "closure") -> Values:
    """Return what the closure returns now, without graph."""
    with torch.enable_grad():
        return _without_graph(problem.read(closure(), name))


def _without_graph(values: Values) -> Values:
    blocks = {name: value.detach() for name, value in values.blocks.items()}
    return Values(blocks, values.weights, values.labels)


def same_values(one: Values, other: Values, units: float) -> bool:
    """Return whether two evaluations agree up to a number of units of rounding."""
    if one.weights != other.weights or not _same_shapes(one, other):
        return False
    a, b = one.flat(), other.flat()
    if one.labels is not None and not torch.equal(one.labels, other.labels):  # type: ignore[arg-type]
        return False
    eps = units * torch.finfo(a.dtype).eps
    return float((a - b).abs().max()) <= eps * float(a.abs().max())


def _same_shapes(one: Values, other: Values) -> bool:
    mine = {name: value.shape for name, value in one.blocks.items()}
    return mine == {name: value.shape for name, value in other.blocks.items()}


def require_repeatable(one: Values, other: Values) -> None:
    """Raise if a closure returned different values at the same weights."""
    if not same_values(one, other, 1e6):
        raise InvalidInputError(
            "the closure returned different values when it was called again at the same weights, "
            "so steps cannot be verified. Draw random points outside of the closure, redraw "
            "them with resample=, and put Dropout and BatchNorm in evaluation mode."
        )
