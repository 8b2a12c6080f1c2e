"""NGD in the race, as published and with default settings, and its cell."""

import warnings
from contextlib import AbstractContextManager

from torch import Tensor
from torch.nn import Module

from natgrad.experiments.race.problems import Problem, load
from natgrad.experiments.race.training import Learning, Run, train
from natgrad.lab.cell import Result
from natgrad.likelihoods import Categorical, Gaussian, Likelihood
from natgrad.optim import NGD, UncoveredWarning


class Natural(Learning):
    """NGD; layers without Kronecker factors use its fallback."""

    def __init__(self, run: Run, problem: Problem, model: Module) -> None:
        super().__init__(problem, model, run.settings)
        settings = run.settings
        assert settings.lr is not None
        self.criterion: Likelihood = Gaussian() if problem.kind == "squared" else Categorical()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncoveredWarning)
            if run.method == "NGD published":
                assert settings.damping is not None
                self.optimizer = NGD.published(
                    model, self.criterion, lr=settings.lr, damping=settings.damping
                )
            else:
                self.optimizer = NGD(
                    model, self.criterion, lr=settings.lr, weight_average=settings.average
                )

    def step(self, x: Tensor, y: Tensor) -> None:
        """Learn from a batch."""
        loss = self.criterion(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def scale(self, factor: float) -> None:
        """Set the factor on the step length."""
        assert self.settings.lr is not None
        for group in self.optimizer.param_groups:
            group["lr"] = factor * self.settings.lr

    def judged(self) -> AbstractContextManager[None]:
        """Evaluate the average of the weights, if one is kept."""
        return super().judged() if self.settings.average is None else self.optimizer.averaged()


def natural(run: Run) -> Result:
    """Return the curve of NGD."""
    return train(run, load(run.problem), Natural)
