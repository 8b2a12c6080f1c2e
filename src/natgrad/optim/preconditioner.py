"""The natural gradient for another optimizer to follow."""

from itertools import pairwise
from typing import Any

import torch
from torch.nn import Module

from natgrad._checks import number
from natgrad._named import named
from natgrad.likelihoods import Reduction
from natgrad.optim import statistics
from natgrad.optim._arguments import check_generator, trainable
from natgrad.optim._capture.moments import Factors
from natgrad.optim._core import Core, Whole, as_factors, check_options
from natgrad.optim._criteria.observed import Criterion, observed
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._layers.coverage import announce
from natgrad.optim._states import checked, entries, real
from natgrad.optim.damping import Split
from natgrad.optim.statistics import StepStatistics

__all__ = ["Preconditioner"]


class Preconditioner:
    """Replaces `.grad` by the natural gradient: `backward()`, `precondition()`, any `step()`.

    The direction is that of `NGD` with a fixed damping. The optimizer that follows sets length,
    momentum and schedule. `.grad` becomes (Λ̃ + γ̃)⁻¹ G (Λ + γ)⁻¹ of the average loss.

    Args:
        model: The model.
        likelihood: The criterion, as in `NGD`, or a stand-in for another loss with `reduction`.
        damping: λ.
        factors: How the Kronecker factors are estimated.
        refresh: Calls between updates of factors and inverses; shorter at the beginning.
        solver: How factors are inverted.
        split: How two factors share the damping.
        reduction: Reduction of a loss that is not the likelihood itself.
        strict: Raise if a parameter has no block.
        generator: Random generator for the sampled labels.

    Attributes:
        statistics: What the last call did.

    Example:
        >>> import natgrad as ng
        >>> _ = torch.manual_seed(0)
        >>> model, criterion = torch.nn.Linear(3, 1), ng.Gaussian()
        >>> precondition = Preconditioner(model, criterion, damping=1e-6)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> x = torch.randn(50, 3)
        >>> y = x @ torch.tensor([[1.0], [2.0], [3.0]])
        >>> loss = criterion(model(x), y)
        >>> loss.backward()
        >>> precondition()
        >>> optimizer.step()  # one natural step solves a linear problem
        >>> float(criterion(model(x), y).detach()) < 1e-3
        True
    """

    @named
    def __init__(
        self,
        model: Module,
        likelihood: Criterion = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        damping: float = 0.01,
        factors: Factors | None = None,
        refresh: int = 6,
        solver: Solver = "auto",
        split: Split = "pi",
        reduction: Reduction | None = None,
        strict: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.params = trainable(model, likelihood)
        self.damping = number(damping, "damping", low=0, low_open=True)
        refresh = check_options(refresh, "kronecker", solver, split, reduction, strict)
        check_generator(generator, self.params[0])
        self.statistics, self._whole = StepStatistics(), Whole()
        self._core = Core(
            model,
            observed(likelihood),
            factors=as_factors(factors),
            refresh=refresh,
            method="kronecker",
            solver=solver,
            split=split,
            reduction=reduction,
            strict=strict,
            generator=generator,
        )

    @torch.no_grad()
    def __call__(self) -> None:
        """Replace the gradients of the last backward pass by natural ones.

        Raises:
            NonFiniteError: If loss or gradient is NaN or infinite; `.grad` is untouched.
            InvalidInputError: If the criterion was not called on the model's outputs, or the model
                has changed since.
        """
        core, capture = self._core, self._core.capture
        capture.structure.check()
        batch = capture.batch(core.world)
        step, refreshed, loss = core.schedule.steps + 1, core.schedule.wanted, batch.loss()
        capture.paused = True
        try:
            norms, gradient_norm = batch.gradient_norms(self.params, loss, step)
            marks = [("start", statistics.clock())]
            if refreshed:
                if hidden := core.preconditioner.update(batch, core.likelihood):
                    announce(hidden, core.strict)
                marks.append(("factors", statistics.clock()))
                core.preconditioner.refresh(self.damping, {})
                marks.append(("inverses", statistics.clock()))
            direction = core.preconditioner.direction(batch, norms)
            direction.require_finite(step, self.damping)
            marks.append(("direction", statistics.clock()))
        finally:
            capture.paused = False
        for part in direction.parts:
            for p, d in zip(part.params, part.dense(), strict=True):
                assert p.grad is not None
                p.grad.copy_(d)
        core.schedule.advance(due=False)
        self.statistics = StepStatistics(
            step=step,
            loss=loss,
            damping=self.damping,
            gradient_norm=gradient_norm,
            refreshed=refreshed,
            seconds={part: end - start for (_, start), (part, end) in pairwise(marks)},
        )

    def remove(self) -> None:
        """Remove every hook from the model and the criterion."""
        self._core.capture.remove()

    def consolidate(self, to: int = 0) -> None:
        """Bring the state, which processes divide among them, together in one of them.

        Call this in every process before one of them calls `state_dict`.

        Args:
            to: Rank of the process that will hold the whole state until the next call.
        """
        self._whole.gather(self._core, self._own_state(), to)

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, layers keyed by module name.

        Raises:
            InvalidInputError: If processes hold parts of it and `consolidate` was not called.
        """
        return self._whole.get(self._core) or self._own_state()

    def _own_state(self) -> dict[str, Any]:
        return self._core.state_dict() | {"damping": self.damping}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of another run with the same model and options.

        Raises:
            InvalidInputError: If the state does not fit; nothing is loaded then.
        """
        checked(lambda: self._check_state(state))
        self._whole = Whole()  # what was gathered before is another state
        self._core.load_state_dict(state)
        self.damping = state["damping"]

    def _check_state(self, state: Any) -> None:
        entries(state, "it", self._own_state())
        real(state["damping"], "damping", low=0, low_open=True)
        self._core.check_state(state, "it")
