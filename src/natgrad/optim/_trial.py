"""A few steps on one batch, undone at once: what a step will cost, and what the optimizer holds."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import InvalidInputError, NatgradError
from natgrad.optim import statistics
from natgrad.optim._capture.moments import Factors
from natgrad.optim._criteria.observed import Criterion
from natgrad.optim._layers.coverage import UncoveredWarning
from natgrad.optim.ngd import NGD

# Steps after which refreshes have their full interval.
_SETTLED = 1000
# Small models are timed again until this many seconds are spent, but at most so often.
_ENOUGH, _ROUNDS = 0.25, 9


@dataclass(frozen=True)
class Trial:
    """What the steps cost.

    Attributes:
        state_bytes: Memory of the optimizer's state.
        seconds: Of an average step over a refresh period, forward and backward included.
        plain: Of forward and backward without an optimizer.
    """

    state_bytes: int
    seconds: float
    plain: float


@contextmanager
def untouched(model: Module) -> Iterator[Callable[[], None]]:
    """Restore weights, buffers, gradients and random numbers after a `with` block.

    Gives a function that restores weights and buffers at once.
    """
    kept = [*model.parameters(), *model.buffers()]
    copies = [t.detach().clone() for t in kept]
    gradients = [p.grad for p in model.parameters()]

    @torch.no_grad()
    def restore() -> None:
        for t, copy in zip(kept, copies, strict=True):
            t.copy_(copy)

    for p in model.parameters():
        p.grad = None
    try:
        with torch.random.fork_rng([kept[0].device] if kept[0].is_cuda else []):
            yield restore
    finally:
        restore()
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad = gradient


def trial(
    model: Module,
    criterion: Criterion,
    loss: Callable[[], Tensor],
    factors: Factors,
    restore: Callable[[], None],
) -> Trial:
    """Take a few steps of `NGD` with default settings, each from the present weights.

    One refreshes the factors, as every sixth step will, and two do not; again and again if
    they are fast.

    Args:
        model: The model.
        criterion: The criterion.
        loss: Computes the loss of one batch with it.
        factors: How the factors are estimated.
        restore: Restores the weights after a step.
    """
    first = next(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        optimizer = NGD(model, criterion, factors=factors)
    every = optimizer.refresh_every

    def timed(*, step: bool = True) -> float:
        optimizer.zero_grad()
        _wait(first)
        start = statistics.clock()
        _loss(loss).backward()  # type: ignore[no-untyped-call]
        if step:
            optimizer.step()
        _wait(first)
        spent = statistics.clock() - start
        restore()
        return spent

    try:
        timed()  # allocates memory
        refresh, usual = list[float](), list[float]()
        while len(refresh) < _ROUNDS and sum(refresh + usual) < _ENOUGH:
            optimizer._core.schedule.set(steps=_SETTLED, since=every, due=False)
            refresh.append(timed())
            usual += [timed(), timed()]
        size = optimizer._core.row_bytes + held_bytes(optimizer._own_state()["natural"])
        optimizer._core.capture.paused = True
        plain = min(timed(step=False), timed(step=False))
    finally:
        optimizer.remove()
    each = (median(refresh) + (every - 1) * median(usual)) / every
    return Trial(size, each, plain)


def _loss(loss: Callable[[], Tensor]) -> Tensor:
    """Return the loss, with a sentence if it cannot be computed."""
    try:
        found: Any = loss()
    except NatgradError:
        raise
    except Exception as error:  # a model may fail in any way
        raise InvalidInputError(
            f"the loss cannot be computed: {type(error).__name__}: {str(error).rstrip('.')}."
        ) from error
    if not isinstance(found, Tensor) or not found.requires_grad or found.numel() != 1:
        raise InvalidInputError(
            "loss must return the loss of one batch, one number to differentiate."
        )
    return found


def _wait(like: Tensor) -> None:
    """Wait for the device, whose work is not done when a call returns."""
    if like.is_cuda:
        torch.cuda.synchronize(like.device)


def held_bytes(state: object) -> int:
    """Return the memory of all tensors of real numbers in a nested state.

    Example:
        >>> held_bytes({"a": torch.zeros(3), "b": {"c": torch.zeros(2), "d": 1.0}})
        20
    """
    if isinstance(state, Tensor):
        return state.numel() * state.element_size() if state.is_floating_point() else 0
    return sum(map(held_bytes, state.values())) if isinstance(state, dict) else 0
