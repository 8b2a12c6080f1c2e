"""From a training loop to directions: what the optimizer and the preconditioner share."""

import math
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import describe, flag, integer
from natgrad.errors import InvalidInputError, NonFiniteError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim._build import Method, preconditioner
from natgrad.optim._capture.batch import Batch
from natgrad.optim._capture.hooks import Capture
from natgrad.optim._capture.moments import Gather
from natgrad.optim._curvature.factor import Factors
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._direction import Direction
from natgrad.optim._distributed import unwrap
from natgrad.optim._layers.coverage import Coverage, announce, cover
from natgrad.optim._states import check_random
from natgrad.optim._structure import Structure
from natgrad.optim.damping import Split
from natgrad.optim.statistics import StepStatistics

# Steps after which the interval between refreshes grows by one, until it is what was asked for: the
# factors change fastest at the beginning.
_GROWTH = 3


class Core:
    """Hooks, factors and their inverses, and the schedule of their refreshes.

    Args:
        model: The model.
        likelihood: The likelihood.
        factors: How the factors are estimated.
        refresh: Renew factors and inverses every so many steps.
        method: What is made of the factors.
        solver: How they are inverted.
        split: How two factors share the damping.
        reduction: Of a foreign loss.
        strict: Raise if some parameter has no factors.
        generator: Source of the sampled labels.

    Attributes:
        steps: Number of steps taken.
        since: Number of steps since the last refresh, the one that refreshed included.
        due: Whether the next batch must renew everything, whatever the schedule.
    """

    def __init__(
        self,
        model: Module,
        likelihood: Likelihood,
        *,
        factors: Factors,
        refresh: int,
        method: Method,
        solver: Solver,
        split: Split,
        reduction: Reduction | None,
        strict: bool,
        generator: torch.Generator | None,
    ) -> None:
        outer = model
        model, compiled, self.world = unwrap(model)
        self.model, self.likelihood = model, likelihood
        self.refresh_every, self.strict, self.method = refresh, strict, method
        device = next(model.parameters()).device
        self.generator = generator or torch.Generator(device).manual_seed(self.world.rank)
        alone = method == "conjugate_gradients" or factors.source == "propagated"
        if alone and self.world.size > 1:
            raise UnsupportedError(
                "conjugate gradients and propagated factors work in one process only. Try "
                "method='kronecker' and source='sampled'."
            )
        whole = method == "conjugate_gradients"
        coverage = Coverage({}, {}, {}) if whole else cover(model, factors.sharing)
        announce(coverage.reasons, strict)
        self.structure = Structure(model, coverage.layers)
        self.preconditioner = preconditioner(
            model,
            likelihood,
            coverage,
            factors=factors,
            method=method,
            solver=solver,
            split=split,
        )
        gather = Gather(coverage, factors, self.generator, squares=method == "diagonal")
        self.capture = Capture(model, likelihood, gather, reduction, outer if compiled else None)
        self.foreign = reduction is not None
        weakref.finalize(self, Capture.remove, self.capture)
        self.steps, self.since, self.due = 0, 0, False

    def batch(self, unscaled: float = 1.0) -> Batch:
        """Return what was back-propagated since the last time.

        Raises:
            InvalidInputError: If nothing was.
        """
        calls = self.capture.take()
        if not calls:
            how = (
                "Run the model's forward in training mode."
                if self.foreign
                else "Compute the loss as criterion(model(x), y), in training mode and with the "
                "likelihood given to NGD, or name reduction= to use a loss of your own."
            )
            raise InvalidInputError(
                f"step {self.steps + 1} found no batch that was back-propagated since the last "
                f"one. {how}"
            )
        return Batch(calls, unscaled=unscaled, world=self.world)

    def renew(
        self, batch: Batch, damping: float, params: list[Tensor], stats: StepStatistics
    ) -> dict[Tensor, float]:
        """Renew factors and inverses if that is due, and return the norms of the gradients.

        Raises:
            NonFiniteError: If loss or gradient is NaN or infinite; nothing has changed.
        """
        norms = _refuse_non_finite(batch, params, stats)
        if stats.refreshed:
            with stats.timed("factors"):
                announce(self.preconditioner.update(batch, self.likelihood), self.strict)
                self.capture.gather.settled = self.preconditioner.settled
            with stats.timed("inverses"):
                self.preconditioner.refresh(damping, self.world)
        return norms

    def direction(
        self, batch: Batch, norms: dict[Tensor, float] | None, stats: StepStatistics
    ) -> Direction:
        """Return the direction for the gradients that `.grad` holds.

        Args:
            batch: The batch.
            norms: Norms of the gradients; None if they are not of this batch alone.
            stats: Takes the time.

        Raises:
            NonFiniteError: If it is NaN or infinite.
        """
        with stats.timed("direction"):
            direction = self.preconditioner.direction(batch, norms)
        if not math.isfinite(direction.slope):
            raise NonFiniteError(
                f"the natural direction overflows at step {stats.step} with damping "
                f"{stats.damping:.2e}. Raise the damping or its floor; the weights are untouched."
            )
        return direction

    def advance(self, *, due: bool) -> None:
        """Count the step, and decide what the next batch is asked for."""
        self.since = 1 if self.capture.wanted else self.since + 1
        self.steps, self.due = self.steps + 1, due
        self._set_wanted()

    def _set_wanted(self) -> None:
        every = min(self.refresh_every, 1 + self.steps // _GROWTH)
        self.capture.wanted = self.due or self.steps == 0 or self.since >= every

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs."""
        return {
            "method": self.method,
            "steps": self.steps,
            "since": self.since,
            "due": self.due,
            "generator": self.generator.get_state(),
            "preconditioner": self.preconditioner.state_dict(),
        }

    def check_state(self, state: Mapping[str, Any], where: str) -> None:
        """Raise unless a state can be loaded."""
        if state["method"] != self.method:
            raise InvalidInputError(
                f"{where}.method must be {self.method!r}, but is {describe(state['method'])}."
            )
        steps = integer(state["steps"], f"{where}.steps", low=0)
        integer(state["since"], f"{where}.since", low=0, high=steps)
        flag(state["due"], f"{where}.due")
        check_random(state["generator"], f"{where}.generator", self.generator)
        self.preconditioner.check_state(state["preconditioner"], f"{where}.preconditioner")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        self.preconditioner.load_state_dict(state["preconditioner"])
        self.steps, self.since, self.due = state["steps"], state["since"], state["due"]
        self.generator.set_state(state["generator"].cpu())
        if self.world.size > 1:  # the processes share a checkpoint, but not their draws
            self.generator.manual_seed(self.steps * self.world.size + self.world.rank)
        self.capture.clear()
        self._set_wanted()


def _refuse_non_finite(
    batch: Batch, params: list[Tensor], stats: StepStatistics
) -> dict[Tensor, float]:
    """Return the norm of every gradient, unless one of them or the loss is not finite."""
    moved = [p for p in params if p.grad is not None]
    if not moved:
        raise InvalidInputError(
            f"step {stats.step} found no gradient. Call backward() between zero_grad() and step()."
        )
    if any(p.grad.is_sparse for p in moved if p.grad is not None):
        raise UnsupportedError(
            "some gradient is sparse. Construct the embeddings with sparse=False."
        )
    found = [_norm(p.grad) for p in moved if p.grad is not None]
    norms = torch.stack([n.double().cpu() for n in found]).tolist() if moved else []
    stats.gradient_norm = math.hypot(*norms) / batch.total if batch.total else math.nan
    for name, value in (("loss", stats.loss), ("gradient", stats.gradient_norm)):
        if value is not None and not math.isfinite(value):
            raise NonFiniteError(
                f"the {name} is {value} at step {stats.step}: the step is refused and the "
                "weights are untouched. Look for a diverged run, an overflow or missing values "
                "in the batch; skip it, or continue from a checkpoint with more damping."
            )
    return dict(zip(moved, norms, strict=True))


def _norm(g: Tensor) -> Tensor:
    """Return ‖g‖, by rows: millions of squares added up in one go lose digits."""
    rows = torch.linalg.vector_norm(g.flatten(1), dim=1) if g.ndim > 1 else g
    norm: Tensor = torch.linalg.vector_norm(rows)
    return norm
