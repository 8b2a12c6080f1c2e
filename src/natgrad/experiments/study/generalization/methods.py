"""The methods of the study: each trains a task down to the same training loss."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from natgrad.directions import euclidean, natural
from natgrad.errors import NatgradError, UnsupportedError
from natgrad.experiments.study.generalization.problems import FAMILIES, Family, Problem, Task
from natgrad.flows import StepRule, adam, capped, constant, descend, muon
from natgrad.optim import NGD
from natgrad.parametrizations.base import combine
from natgrad.stopping import Progress, Rule, Status, loss_below, steps_reached

CAP = 0.1  # largest relative change of a weight tensor in one natural step
STUCK = 2000  # steps without a new lowest loss after which a run gives up
EQUAL = 1e-3  # relative difference of a final training loss from the target


class Outcome(NamedTuple):
    """The end of a run.

    Attributes:
        error: Error on fresh data at the training loss of the target; NaN if it was not reached.
        steps: Steps taken; the last one is shortened so that it ends at the target.
        loss: Training loss at the end.
    """

    error: float
    steps: int
    loss: float


Train = Callable[[Task, float, float, int], Outcome]
"""A function of a task, a setting, the training loss to reach and the largest number of steps."""


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        train: Trains a task.
        settings: What is tuned, the same number for every method: step lengths, by family.
        families: The problems whose models it can train.
    """

    train: Train
    settings: Mapping[Family, tuple[float, ...]]
    families: tuple[Family, ...] = FAMILIES


class _Watch:
    """Keeps the point before the last step, and tells when the loss has not fallen for long."""

    def __init__(self, start: Any) -> None:
        self.before = self.here = start
        self.lowest, self.at = float("inf"), 0

    def __call__(self, point: Any, loss: float, step: int) -> bool:
        self.before, self.here = self.here, point
        if loss < self.lowest:
            self.lowest, self.at = loss, step
        return step - self.at >= STUCK

    def rule(self) -> Rule:
        def met(progress: Progress) -> bool:
            return self(progress.params, progress.loss, progress.steps)

        return Rule(met, f"no new lowest loss in {STUCK} steps", Status.STALLED)


def landed(loss: Callable[[Any], float], before: Any, after: Any, target: float) -> Any:
    """Return the point between two points of a run at which its loss is the target.

    Long steps would end far below it, and methods would be compared at unequal losses.

    Args:
        loss: The training loss.
        before: A point above the target.
        after: A point at or below it.
        target: The loss to find.

    Example:
        >>> point = landed(lambda w: float(w.square()), torch.tensor(2.0), torch.tensor(0.0), 1.0)
        >>> round(float(point), 3)
        1.0
    """
    low, high, point, value = 0.0, 1.0, after, loss(after)
    while abs(value / target - 1) > EQUAL:
        middle = (low + high) / 2
        if middle in (low, high):
            raise NatgradError(f"the loss jumps across {target:g} between two steps.")
        point = combine((before, after), (1 - middle, middle))
        value = loss(point)
        low, high = (middle, high) if value > target else (low, middle)
    return point


def _descent(direction: Any, rule: Callable[[float], StepRule], **options: Any) -> Train:
    def train(task: Task, setting: float, target: float, most: int) -> Outcome:
        watch = _Watch(task.start)
        run = descend(
            direction, task.likelihood, task.parametrization, task.start, task.batch,
            step=rule(setting), save_every=most,
            until=watch.rule() | loss_below(target) | steps_reached(most), **options,
        )  # fmt: skip
        if run.status is not Status.CONVERGED or not run.losses[-1] <= target:
            return Outcome(float("nan"), run.steps, float(run.losses[-1]))

        def loss(params: Any) -> float:
            return float(task.likelihood.loss(task.parametrization.predict(params, x), y))

        x, y = task.batch
        try:
            final = landed(loss, watch.before, run.final, target)
        except NatgradError:  # steps so long that the loss jumps up and down do not count
            return Outcome(float("nan"), run.steps, float(run.losses[-1]))
        return Outcome(task.error(final), run.steps, loss(final))

    return train


def _optimizer(make: Callable[[Any, Any, float], NGD]) -> Train:
    def train(task: Task, setting: float, target: float, most: int) -> Outcome:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # published K-FAC samples labels
            return _loop(task, setting, target, most)

    def _loop(task: Task, setting: float, target: float, most: int) -> Outcome:
        if task.modular is None:
            raise UnsupportedError("this model has no module that an optimizer could train.")
        modular, back = task.modular()
        weights = list(modular.module.parameters())

        def point() -> Tensor:
            return parameters_to_vector(weights).detach().clone()

        @torch.no_grad()
        def loss_at(vector: Tensor) -> float:
            vector_to_parameters(vector, weights)
            return float(loss())

        def loss() -> Tensor:
            outputs = modular.observed(modular.module(modular.inputs))
            return modular.criterion(outputs, modular.labels)

        optimizer, watch = make(modular.module, modular.criterion, setting), _Watch(point())
        for step in range(most + 1):
            present = loss()
            value = float(present.detach())
            stuck = watch(point(), value, step)
            if value <= target:
                optimizer.remove()  # the hooks
                try:
                    final = landed(loss_at, watch.before, watch.here, target)
                except NatgradError:
                    break
                vector_to_parameters(final, weights)
                return Outcome(task.error(back(modular.module)), step, float(loss().detach()))
            if not math.isfinite(value) or stuck:
                break
            optimizer.zero_grad()
            present.backward()  # type: ignore[no-untyped-call]
            try:
                optimizer.step()
            except NatgradError:
                break
        return Outcome(float("nan"), step, value)

    return train


def _natural(damping: float, over: Literal["batch", "all"] = "batch") -> Train:
    """Return descent along (F + λ)⁺∇L with the Fisher of the training inputs; steps are capped.

    Args:
        damping: λ.
        over: What the Fisher is averaged over; "all" for all entries of a matrix.
    """
    along = partial(natural, fisher_over="batch" if over == "batch" else None)
    return _descent(along, lambda size: capped(constant(size), CAP), damping=damping)


DAMPINGS = (1e-3, 1e-2, 1e-1, 1.0)
"""λ of damped natural gradient descent: from nearly exact to nearly gradient descent."""


def damped(damping: float) -> str:
    """Return the name of damped natural gradient descent.

    Example:
        >>> damped(0.01)
        'damped NGD, λ = 0.01'
    """
    return f"damped NGD, λ = {damping:g}"


def _everywhere(*settings: float) -> dict[Family, tuple[float, ...]]:
    return dict.fromkeys(FAMILIES, settings)


_EUCLIDEAN: dict[Family, tuple[float, ...]] = {
    "classes": (0.3, 1.0, 3.0, 10.0),
    "matrix": (1.0, 3.0, 10.0, 30.0),
    "teacher": (0.03, 0.1, 0.3, 1.0),
    "table": (0.03, 0.1, 0.3, 1.0),
}


def _between(damping: float) -> dict[Family, tuple[float, ...]]:
    """Return steps along (F + λ)⁻¹∇L that grow with λ, from natural ones to λ times EGD's."""
    return {
        family: tuple(size * (1 + damping * steps[-1]) for size in (0.1, 0.25, 0.5, 1.0))
        for family, steps in _EUCLIDEAN.items()
    }


_LAYERED: tuple[Family, ...] = ("matrix", "teacher", "table")  # models with weight matrices
METHODS: dict[str, Method] = {
    "EGD": Method(_descent(euclidean, constant), _EUCLIDEAN),
    "exact NGD": Method(_natural(0.0), _between(0.0)),
    **{damped(damping): Method(_natural(damping), _between(damping)) for damping in DAMPINGS},
    "exact NGD, all entries": Method(_natural(0.0, "all"), _between(0.0), families=("matrix",)),
    "Adam": Method(_descent(euclidean, adam), _everywhere(1e-3, 3e-3, 1e-2, 3e-2)),
    "Muon": Method(
        _descent(euclidean, muon), _everywhere(3e-3, 1e-2, 3e-2, 1e-1), families=_LAYERED
    ),
    "K-FAC": Method(
        _optimizer(lambda module, criterion, lr: NGD.published(module, criterion, lr=lr)),
        _everywhere(0.1, 0.3, 1.0, 3.0),
        families=_LAYERED,
    ),
    "NGD": Method(
        _optimizer(lambda module, criterion, lr: NGD(module, criterion, lr=lr)),
        _everywhere(0.1, 0.3, 1.0, 3.0),
        families=_LAYERED,
    ),
}
"""Every method, each with four settings to choose from."""


def applies(method: str, problem: Problem) -> bool:
    """Return whether a method can train the problem's model: a diagonal network has no matrices.

    The Fisher over all entries is that of a matrix.

    Example:
        >>> applies("Muon", Problem(family="classes", depth=2, n=30))
        False
    """
    return problem.family in METHODS[method].families
