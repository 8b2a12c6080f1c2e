"""NGD in the race, as published and with default settings, and its cell."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.nn import Module

from natgrad.experiments.race.config import PUBLISHED
from natgrad.experiments.race.problems import Kind, Problem, load
from natgrad.experiments.race.problems.problem import bound
from natgrad.experiments.race.training import Learning, Run, count_bytes, train
from natgrad.lab.cell import Result
from natgrad.likelihoods import Categorical, Gaussian
from natgrad.optim import NGD, Loss, UncoveredWarning


class Natural(Learning):
    """NGD; layers without Kronecker factors use its fallback."""

    def __init__(self, run: Run, problem: Problem, model: Module) -> None:
        super().__init__(problem, model, run.settings)
        settings = run.settings
        self.published = run.method == PUBLISHED
        self.criterion = criterion_of(problem)
        options: dict[str, Any] = {}
        if settings.momentum is not None:
            options["momentum"] = settings.momentum
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncoveredWarning)
            if self.published:
                options |= {"lr": settings.lr, "damping": settings.damping}
                self.optimizer = NGD.published(model, self.criterion, **options)
            else:
                self.optimizer = NGD(model, self.criterion, **options)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Learn from a batch."""
        output = self.model(x)
        loss = self.criterion(*(output if isinstance(output, tuple) else (output,)), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def scale(self, factor: float) -> None:
        """Leave the length alone: NGD has no schedule."""

    def judged(self) -> AbstractContextManager[None]:
        """Evaluate the average of the weights, as the guide says; the published method has none."""
        return super().judged() if self.published else self.optimizer.averaged()

    def size(self) -> int:
        """Return the bytes of the optimizer's state."""
        return count_bytes(self.optimizer.state_dict())


def criterion_of(problem: Problem) -> Any:
    """Return the criterion to call on the network's outputs and the labels."""
    kinds: dict[Kind, Callable[[], Any]] = {
        "squared": Gaussian,
        "categories": Categorical,
        "variational": lambda: Loss(bound),
    }
    return kinds[problem.kind]()


def natural(run: Run) -> Result:
    """Return the curve of NGD."""
    return train(run, load(run.problem), Natural)
