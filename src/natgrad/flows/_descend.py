"""The papers' discrete methods: step after step along a direction."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import choice, integer
from natgrad._checks import generator as check_generator
from natgrad._named import named
from natgrad.errors import InvalidInputError, NatgradError, UnsupportedError
from natgrad.flows._batches import ORDERS, Order, indices
from natgrad.flows._options import check_options
from natgrad.flows._problem import Direction, Problem
from natgrad.flows._recorder import Reached, Record, Recorder
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.constant import constant
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization
from natgrad.stopping import Rule, Status, as_rule


@torch.no_grad()
@named
def descend(
    direction: Direction,
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    step: float | StepRule,
    until: float | Rule,
    save_every: int = 1,
    record: Record | None = None,
    max_steps: int = 10_000_000,
    batch_size: int | None = None,
    order: Order = "shuffle",
    generator: torch.Generator | None = None,
    **options: Any,
) -> Trajectory[P]:
    """Step params ← params + η · direction until a stopping rule is met.

    Time is the sum of step lengths, for the loss as reduced. A normalized step of η along
    −∇ log L takes the time in which the loss falls that far, Δt = η (1/L₁ − 1/L₀)/ln(L₀/L₁).

    With `batch_size` every step uses a mini-batch: stochastic descent. The gradient of a mini-batch
    is an unbiased estimate of that of the whole loss, so time keeps its meaning: a summed loss of
    b samples out of n counts n/b times. A natural direction uses the Fisher of its mini-batch. Step
    rules compare losses on the mini-batch of their step. Saved losses and stopping rules use
    all samples; a stopping rule that needs the loss evaluates it after every step.

    A trajectory is not a checkpoint. A descent that starts from its `final` starts a new epoch, in
    a new order, and its rule starts anew: momentum and averages are zero.

    Args:
        direction: `euclidean` or `natural`.
        likelihood: The loss.
        parametrization: The model.
        params: Parameters at the start.
        batch: Inputs and labels.
        step: Step length η, or a rule: `constant`, `midpoint`, `armijo`, `normalized`, `steepest`,
            `momentum`, `adam`, `shampoo`, `muon`, `diagonal_fisher`, `kfac`, or one of them
            `capped`.
        until: Final time, or a stopping rule.
        save_every: Steps between saved states (the first and last are always saved).
        record: Diagnostics to save, by name: functions of the parameters.
        max_steps: Give up (status stalled) after this number of steps.
        batch_size: Samples per step; default all of them, without `order` and `generator`. The last
            mini-batch of an epoch may be smaller.
        order: Which samples a mini-batch takes: `"shuffle"`, each once per epoch in a new random
            order; `"cyclic"`, each once per epoch in the order of the batch; `"replacement"`,
            independent draws.
        generator: Random generator for the order; default torch's global one.
        **options: Passed to `direction`: `selection`, `fisher_over`, `metric` and `damping` of
            `natural`, the last also as a schedule; `euclidean` has none.

    Returns:
        The trajectory; `error_estimate` is NaN, because a descent is not an approximation.

    Example:
        >>> from natgrad import Direct, Gaussian, euclidean
        >>> from natgrad.stopping import steps_reached
        >>> x, y = torch.eye(2), torch.tensor([1.0, 2.0])
        >>> args = (euclidean, Gaussian(reduction="sum"), Direct(), torch.zeros(2), (x, y))
        >>> descend(*args, step=0.5, until=steps_reached(1)).final
        tensor([0.5000, 1.0000])
    """
    check_options(direction, options, descend)
    problem = Problem.checked(direction, likelihood, parametrization, params, batch, options)
    integer(save_every, "save_every", low=1)
    integer(max_steps, "max_steps", low=1)
    choice(order, "order", ORDERS)
    check_generator(generator)
    parts: Iterator[Tensor] | None = None
    if batch_size is None:
        if generator is not None or order != "shuffle":
            raise InvalidInputError(
                "order and generator are for mini-batches, but batch_size is None: every step uses "
                f"all {len(batch[0])} samples. Give batch_size, or leave them out."
            )
    else:
        n = len(batch[0])
        parts = indices(n, integer(batch_size, "batch_size", low=1, high=n), order, generator)
    rule, stepping = as_rule(until), step if isinstance(step, StepRule) else constant(step)
    stepping = stepping.fresh()
    recorder = Recorder(likelihood, parametrization, batch, None, record)
    here, t, steps, evaluations, size = problem.params, 0.0, 0, 0, stepping.size
    loss, seen = problem.loss(here)[0], problem
    recorder.save(t, here)
    status, detail = Status.STALLED, f"gave up after {max_steps} steps"
    try:
        while steps < max_steps:
            if parts is not None:
                seen = problem.on(next(parts))
                loss = seen.loss(here)[0] if stepping.looks_at_loss else math.nan
            taken = stepping.take(seen.at(t), here, loss, size)
            evaluations += 1 if taken is None else taken.directions
            if taken is None:
                status, detail = Status.STALLED, f"no step lowers the loss at t = {t:.6g}"
                break
            if not math.isfinite(taken.loss):
                status, detail = Status.DIVERGED, f"the loss overflows at step {steps + 1}"
                break
            here, loss, size = taken.params, taken.loss, taken.size
            t, steps = t + taken.elapsed, steps + 1
            if steps % save_every == 0:
                recorder.save(t, here)
            progress = recorder.progress(t, steps, partial(_same, here))
            if parts is None:
                progress.loss, progress.outputs = loss, taken.outputs
            if rule.met(progress):
                status, detail = rule.status, f"{rule.reason} after {steps} steps"
                break
    except UnsupportedError:  # no step length works
        raise
    except NatgradError as error:
        status, detail = Status.DIVERGED, f"at step {steps + 1}: {error}"
    method = "descent" if batch_size is None else f"descent, mini-batches of {batch_size}, {order}"
    return recorder.finish(Reached(here, t, steps, evaluations, method, status, detail))


def _same(params: P) -> P:
    return params
