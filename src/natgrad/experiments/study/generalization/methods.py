"""The methods of the study: each trains a task down to the same training loss."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from natgrad.directions import euclidean, natural
from natgrad.errors import NatgradError, UnsupportedError
from natgrad.experiments.study.generalization.problems import Family, Problem, Task
from natgrad.flows import StepRule, adam, capped, constant, descend, muon
from natgrad.optim import NGD
from natgrad.stopping import Progress, Rule, Status, loss_below, steps_reached

CAP = 0.1  # largest relative change of a weight tensor in one natural step
STUCK = 2000  # steps without a new lowest loss after which a run gives up


class Outcome(NamedTuple):
    """The end of a run.

    Attributes:
        error: Error on fresh data at the training loss of the target; NaN if it was not reached.
        steps: Steps taken.
    """

    error: float
    steps: int


Train = Callable[[Task, float, float, int], Outcome]
"""A function of a task, a setting, the training loss to reach and the largest number of steps."""


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        train: Trains a task.
        settings: What is tuned, the same number for every method: step lengths, by family.
        matrices: Whether the model must have weight matrices.
    """

    train: Train
    settings: Mapping[Family, tuple[float, ...]]
    matrices: bool = False


class _Stuck:
    """Whether a loss has had no new minimum for a long time."""

    def __init__(self) -> None:
        self.lowest, self.at = float("inf"), 0

    def __call__(self, loss: float, step: int) -> bool:
        if loss < self.lowest:
            self.lowest, self.at = loss, step
        return step - self.at >= STUCK

    def rule(self) -> Rule:
        def met(progress: Progress) -> bool:
            return self(progress.loss, progress.steps)

        return Rule(met, f"no new lowest loss in {STUCK} steps", Status.STALLED)


def _descent(direction: Any, rule: Callable[[float], StepRule], **options: Any) -> Train:
    def train(task: Task, setting: float, target: float, most: int) -> Outcome:
        start = task.start
        run = descend(
            direction, task.likelihood, task.parametrization, start, task.batch,
            step=rule(setting), save_every=most,
            until=loss_below(target) | steps_reached(most) | _Stuck().rule(), **options,
        )  # fmt: skip
        reached = run.status is Status.CONVERGED and run.losses[-1] <= target
        return Outcome(task.error(run.final) if reached else float("nan"), run.steps)

    return train


def _optimizer(make: Callable[[Any, Any, float], torch.optim.Optimizer]) -> Train:
    def train(task: Task, setting: float, target: float, most: int) -> Outcome:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # published K-FAC samples labels
            return _loop(task, setting, target, most)

    def _loop(task: Task, setting: float, target: float, most: int) -> Outcome:
        if task.modular is None:
            raise UnsupportedError("this model has no module that an optimizer could train.")
        modular, back = task.modular()
        optimizer, stuck = make(modular.module, modular.criterion, setting), _Stuck()
        for step in range(most + 1):
            outputs = modular.observed(modular.module(modular.inputs))
            loss = modular.criterion(outputs, modular.labels)
            value = float(loss.detach())
            if value <= target:
                return Outcome(task.error(back(modular.module)), step)
            if not math.isfinite(value) or stuck(value, step):
                break
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            try:
                optimizer.step()
            except NatgradError:
                break
        return Outcome(float("nan"), step)

    return train


def _natural(damping: float) -> Train:
    """Return descent along (F + λ)⁺∇L with the Fisher of the training inputs; steps are capped."""
    return _descent(natural, lambda size: capped(constant(size), CAP), damping=damping)


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
    return dict.fromkeys(("classes", "matrix", "teacher", "table"), settings)


_NATURAL = _everywhere(0.1, 0.25, 0.5, 1.0)
METHODS: dict[str, Method] = {
    "EGD": Method(
        _descent(euclidean, constant),
        {
            "classes": (0.3, 1.0, 3.0, 10.0),
            "matrix": (1.0, 3.0, 10.0, 30.0),
            "teacher": (0.03, 0.1, 0.3, 1.0),
            "table": (0.03, 0.1, 0.3, 1.0),
        },
    ),
    "exact NGD": Method(_natural(0.0), _NATURAL),
    **{damped(damping): Method(_natural(damping), _NATURAL) for damping in DAMPINGS},
    "Adam": Method(_descent(euclidean, adam), _everywhere(1e-3, 3e-3, 1e-2, 3e-2)),
    "Muon": Method(_descent(euclidean, muon), _everywhere(3e-3, 1e-2, 3e-2, 1e-1), matrices=True),
    "K-FAC": Method(
        _optimizer(lambda module, criterion, lr: NGD.published(module, criterion, lr=lr)),
        _everywhere(0.1, 0.3, 1.0, 3.0),
        matrices=True,
    ),
    "NGD": Method(
        _optimizer(lambda module, criterion, lr: NGD(module, criterion, lr=lr)),
        _everywhere(0.1, 0.3, 1.0, 3.0),
        matrices=True,
    ),
}
"""Every method, each with four settings to choose from."""


def applies(method: str, problem: Problem) -> bool:
    """Return whether a method can train the problem's model: a diagonal network has no matrices.

    Example:
        >>> applies("Muon", Problem(family="classes", depth=2, n=30))
        False
    """
    return not METHODS[method].matrices or problem.family != "classes"
