"""Exact natural gradient steps in residual space: Levenberg–Marquardt as a torch optimizer."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import choice, function, instance, integer, number, tensor
from natgrad._named import named
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Gaussian, Likelihood
from natgrad.optim._arguments import trainable
from natgrad.optim._levenberg.aliasing import AliasingWarning, Watch
from natgrad.optim._levenberg.coefficients import trained_beside
from natgrad.optim._levenberg.linearization import (
    Linearization,
    SlowRowsWarning,
    evaluate,
    linearize,
    require_repeatable,
    same_values,
)
from natgrad.optim._levenberg.momentum import Momentum
from natgrad.optim._levenberg.problem import Outputs, Problem, Residuals, Values
from natgrad.optim._levenberg.rule import Nielsen
from natgrad.optim._levenberg.solve import Side, Solver, choose
from natgrad.optim._levenberg.statistics import GaussNewtonStatistics
from natgrad.optim._levenberg.trial import Proposal, straight
from natgrad.optim._rows.record import Recorder
from natgrad.optim._states import check_whole, checked

__all__ = ["AliasingWarning", "GaussNewton", "GaussNewtonStatistics", "SlowRowsWarning"]

Scaling = Literal["identity", "more"]
Closure = Callable[[], Any]

# λ of the first step, in units of the metric.
_START = 1e-3
# Column norms are at least this fraction of the largest one.
_SMALLEST_COLUMN = 1e-8


class GaussNewton(torch.optim.Optimizer):
    """Levenberg–Marquardt with geodesic acceleration: `loss = optimizer.step(closure)`.

    The closure returns residuals, and the loss is ½ Σ weight · mean(r²) over its blocks. With a
    likelihood it returns outputs and labels, and the loss is the likelihood's. Each step solves
    (F + λD²) v = −∇L with the exact Fisher (Gauss–Newton) matrix F of all points, on the side of
    the parameters or of the residuals, whichever is cheaper: [KMH21] Theorem 4 for your own
    network, damped. docs/gauss_newton.md explains each part.

    One call of `step` is one trial. A trial that raises the loss is undone and λ grows, so the
    loss never rises from step to step while the points stay the same.

    Use double precision (`net.double()`): in single precision errors stop near 5e-5.

    Args:
        model: The network. Rows of its Jacobian cost about two gradients if its parameters belong
            to `Linear`, `Conv1d` and `Conv2d` layers, and a backward pass per residual otherwise.
        likelihood: `Bernoulli`, `Categorical`, `Gaussian` or another `Likelihood` for closures
            that return (outputs, labels); without it, the closure returns residuals.
        coefficients: Further tensors to train beside the network's parameters, for example unknown
            coefficients of an equation. Parameters of the model are trained anyway.
        scaling: D, `"more"` (the largest norm of each column so far; default for residuals) or
            `"identity"` (default for likelihoods).
        damping: λ of the first step. Default: 1e-3 in units of the metric D.
        acceleration: Largest 2|a|/|v| of a step that is tried; default 1.5, with a likelihood
            0.75. 0 takes plain steps.
        momentum: μ; the damping is centered at μ times the last step (SPRING), less after rejected
            steps. 0 is plain Levenberg–Marquardt.
        resample: A function that draws new points for the closure.
        resample_every: Number of steps for which the points stay the same.
        held_out: A closure on other points, evaluated every ten steps. A warning tells you if the
            residuals are large between the points of the fit.
        solver: `"parameters"`, `"residuals"`, `"conjugate_gradients"`, or `"auto"` by cost.

    Attributes:
        statistics: What the last step did.

    Raises:
        InvalidInputError: If nothing can be trained.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        ... ).double()
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None].requires_grad_()
        >>> def closure():  # u' = −u, u(0) = 1
        ...     u = net(x)[:, 0]
        ...     slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0][:, 0]
        ...     return {"equation": slope + u, "start": (u[:1] - 1, 4.0)}
        >>> optimizer = GaussNewton(net)
        >>> for _ in range(80):
        ...     loss = optimizer.step(closure)
        >>> bool(loss < 1e-10), bool((net(x)[:, 0] - torch.exp(-x[:, 0])).abs().max() < 1e-5)
        (True, True)
    """

    @named
    def __init__(
        self,
        model: Module,
        likelihood: Likelihood | None = None,
        *,
        coefficients: Sequence[Tensor] = (),
        scaling: Scaling | None = None,
        damping: float | None = None,
        acceleration: float | None = None,
        momentum: float = 0.9,
        resample: Callable[[], object] | None = None,
        resample_every: int = 10,
        held_out: Closure | None = None,
        solver: Solver = "auto",
    ) -> None:
        if likelihood is not None:
            instance(likelihood, "likelihood", Likelihood)
        params = trainable(model, likelihood or Gaussian())
        extra = trained_beside(coefficients, params)
        self._params = [*params, *extra]
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        names += [f"coefficients[{i}]" for i in range(len(extra))]
        default: Scaling = "more" if likelihood is None else "identity"
        self.scaling: Scaling = choice(
            default if scaling is None else scaling, "scaling", ("identity", "more")
        )
        start = None if damping is None else number(damping, "damping", low=0, low_open=True)
        most = 1.5 if likelihood is None else 0.75
        self.acceleration = number(
            most if acceleration is None else acceleration, "acceleration", low=0
        )
        self._momentum = Momentum(number(momentum, "momentum", low=0, high=1, high_open=True))
        self.resample = None if resample is None else function(resample, "resample")
        self.resample_every = integer(resample_every, "resample_every", low=1)
        self.held_out = None if held_out is None else function(held_out, "held_out")
        self.solver: Solver = choice(
            solver, "solver", ("auto", "parameters", "residuals", "conjugate_gradients")
        )
        super().__init__(self._params, {})
        self.model, self.likelihood = model, likelihood
        self.statistics = GaussNewtonStatistics()
        self._problem: Problem = (
            Residuals(params[0]) if likelihood is None else Outputs(likelihood, params[0])
        )
        self._recorder = Recorder(model, self._params, names)
        self._start, self._rule, self._watch = start, Nielsen(start), Watch()
        self._steps = 0
        self._columns: Tensor | None = None  # largest squared norms so far, of each column
        self._kept: tuple[Tensor, Linearization, Side] | None = None
        self._repeatable = self._warned_precision = False

    def step(self, closure: Closure | None = None) -> float:  # type: ignore[override]
        """Try one step, keep it if it lowers the loss, and adapt the damping.

        Args:
            closure: Returns the residuals, or with a likelihood (outputs, labels), as functions of
                the present weights. It neither calls `backward` nor reduces to a number.

        Returns:
            The loss before the step.

        Raises:
            InvalidInputError: If the closure returns something else, differs from call to call,
                or does not depend on the weights.
            NonFiniteError: If a value is NaN or infinite before the step.
        """
        if closure is None:
            raise InvalidInputError(
                "GaussNewton.step needs a closure that returns the residuals, for example "
                "optimizer.step(lambda: net(x)[:, 0] - y)."
            )
        function(closure, "closure")
        if self.resample is not None and self._steps % self.resample_every == 0:
            self.resample()
            self._kept = None
        with torch.no_grad():
            weights = self._flat()
            try:
                return self._step(closure, weights)
            except BaseException:
                self._write(weights)
                raise

    def _step(self, closure: Closure, weights: Tensor) -> float:
        point, side = self._linearized(closure, weights)
        self._steps += 1

        def at(change: Tensor) -> Values | None:
            """Return the values at changed weights; None if they are not finite."""
            self._write(weights + change)
            values = evaluate(self._problem, closure)
            return values if bool(values.flat().isfinite().all()) else None

        proposal, damping = self._proposed(point, side, at)
        side.release()
        self.statistics = GaussNewtonStatistics(
            step=self._steps,
            loss=point.loss,
            losses=point.losses,
            new_loss=point.loss,
            predicted=proposal.predicted,
            damping=damping,
            acceleration=proposal.acceleration,
            gradient_norm=float(point.gradient.norm()),
            held_out=self._look(weights, point.loss),
            side=side.name,
            solve_error=side.error,
            notes=list(self._recorder.slow.values()),
        )
        self._judge(proposal, at)
        if self.statistics.status == "converged" and self.resample is not None:
            self._rule = self._first_rule(point)  # the next points may leave more to gain
        if self.statistics.rejected:
            self._write(weights)
            self._kept = (weights, point, side)
        else:
            self._kept = None
        return point.loss

    def _proposed(
        self, point: Linearization, side: Side, at: Callable[[Tensor], Values | None]
    ) -> tuple[Proposal, float]:
        """Return a step and its λ; without momentum if that bends the path or leads upward."""
        probe = at if self.acceleration else None
        best = partial(straight, point, side, self._rule, self._scale(), probe, self.acceleration)
        carried = self._momentum.offered()
        if carried is not None:
            before = self._rule.state_dict()
            found = best(carried)
            if not found[0].bends(self.acceleration) and found[0].promises(point.loss):
                return found
            self._rule.load_state_dict(before)
            self._momentum.dropped()
        return best(None)

    def _linearized(self, closure: Closure, weights: Tensor) -> tuple[Linearization, Side]:
        """Return the problem at the present weights; reuse the last one if nothing has changed."""
        if self._kept is not None and torch.equal(self._kept[0], weights):
            _, point, side = self._kept
            if same_values(point.values, evaluate(self._problem, closure), 1e3):
                return point, side
        point = linearize(self._problem, self._recorder, closure)
        if not self._repeatable:
            require_repeatable(point.values, evaluate(self._problem, closure))
            self._repeatable = True
        if self.scaling == "more":
            norms = point.jacobian.square_norms()
            seen = self._columns
            self._columns = norms if seen is None else torch.maximum(norms, seen)
        if self._rule.value is None:
            self._rule = self._first_rule(point)
        return point, choose(point.jacobian, self._scale(), self.solver)

    def _first_rule(self, point: Linearization) -> Nielsen:
        """Return the rule with the damping of a first step."""
        if self._start is not None:
            return Nielsen(self._start)
        unit = 1.0 if self.scaling == "more" else float(point.jacobian.square_norms().max())
        return Nielsen(_START * (unit or 1.0))

    def _scale(self) -> Tensor | None:
        """Return the diagonal of D."""
        if self._columns is None:
            return None
        scale = self._columns.sqrt()
        largest = float(scale.max())
        return scale.clamp_min(_SMALLEST_COLUMN * largest if largest else 1.0)

    def _judge(self, proposal: Proposal, at: Callable[[Tensor], Values | None]) -> None:
        """Try the step and complete the statistics; the weights are left where it leads."""
        found = self.statistics
        assert found.loss is not None
        step = proposal.step
        if not bool(step.isfinite().all()):
            self._reject("the direction overflows")
            return
        if not proposal.promises(found.loss):
            found.status, found.reason = "converged", self._converged()
            return
        if proposal.bends(self.acceleration):
            found.status = "rejected"
            found.reason = (
                f"the path bends too much at any damping tried: 2|a|/|v| = "
                f"{proposal.acceleration:.2g} is above {self.acceleration:g}"
            )
            return
        values = at(step)
        if values is None:
            self._reject("values at the new weights are not finite")
            return
        new = sum(self._problem.losses(values).values())
        found.actual = found.loss - new
        found.ratio = found.actual / proposal.predicted
        if not found.actual > 0:
            self._reject(f"the loss would rise from {found.loss:.3e} to {new:.3e}")
            return
        self._rule.accepted(found.ratio, proposal.fraction(self.acceleration))
        self._momentum.accepted(step, found.ratio, found.actual / found.loss)
        found.status, found.reason = "accepted", f"ρ = {found.ratio:.2f}"
        found.new_loss, found.step_norm = new, float(step.norm())

    def _reject(self, reason: str) -> None:
        self.statistics.status, self.statistics.reason = "rejected", reason
        self._rule.rejected()
        self._momentum.dropped()

    def _converged(self) -> str:
        """Return why no step is left, and warn once if the precision is the reason."""
        reason = "the predicted decrease is below rounding"
        if self._params[0].dtype == torch.float64:
            return reason
        reason += f" of {self._params[0].dtype}; net.double() and double inputs go further"
        if not self._warned_precision:
            self._warned_precision = True
            warnings.warn(f"GaussNewton stopped: {reason}.", UserWarning, stacklevel=5)
        return reason

    def _look(self, weights: Tensor, loss: float) -> float | None:
        """Return the loss on held-out points where it is due, and warn of aliasing."""
        if self.held_out is None or not self._watch.due(self._steps):
            return None
        self._write(weights)
        values = evaluate(self._problem, self.held_out, "held_out closure")
        held_out = sum(self._problem.losses(values).values())
        if message := self._watch.message(loss, held_out):
            warnings.warn(message, AliasingWarning, stacklevel=5)
        return held_out

    def _flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._params])

    def _write(self, weights: Tensor) -> None:
        parts = torch.split(weights, [p.numel() for p in self._params])
        for p, part in zip(self._params, parts, strict=True):
            p.copy_(part.view_as(p))

    # States ---------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse another group after construction; the optimizer covers the whole model.

        Raises:
            UnsupportedError: Always.
        """
        if "_recorder" in self.__dict__:
            raise UnsupportedError(
                "GaussNewton follows one model from the beginning: name coefficients= when "
                "constructing it, and freeze parameters with requires_grad_(False) before."
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume bit for bit, except your points."""
        state = super().state_dict()
        state["natural"] = {
            "steps": self._steps,
            "rule": self._rule.state_dict(),
            "watch": self._watch.state_dict(),
            "columns": None if self._columns is None else self._columns.clone(),
            "momentum": self._momentum.state_dict(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another run with the same model and options.

        Raises:
            InvalidInputError: If any part does not fit; nothing is loaded then.
        """
        checked(lambda: self._check_state(state_dict))
        state = state_dict["natural"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "natural"})
        self._steps = int(state["steps"])
        self._rule.load_state_dict(state["rule"])
        self._watch.load_state_dict(state["watch"])
        like, columns = self._params[0].detach(), state["columns"]
        self._momentum.load_state_dict(state["momentum"], like)
        self._columns = None if columns is None else columns.detach().clone().to(like)
        self._kept = None

    def _check_state(self, saved: Any) -> None:
        state = check_whole(saved, self.param_groups, self.state_dict()["natural"])
        integer(state["steps"], "natural.steps", low=0)
        self._rule.check_state(state["rule"], "natural.rule")
        self._watch.check_state(state["watch"], "natural.watch")
        count = sum(p.numel() for p in self._params)
        self._momentum.check_state(state["momentum"], "natural.momentum", count)
        if state["columns"] is not None:
            tensor(state["columns"], "natural.columns", shape=(count,))
