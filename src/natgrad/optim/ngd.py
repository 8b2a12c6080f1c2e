"""The optimizer: an adaptor between a training loop and the natural gradient."""

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import InvalidInputError, NonFiniteError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim.averaging import WeightAverage
from natgrad.optim.batch import Batch
from natgrad.optim.build import Method, as_damping, check, preconditioner
from natgrad.optim.capture import Call, Capture
from natgrad.optim.damping import Adaptive, Damping
from natgrad.optim.direction import Direction
from natgrad.optim.factors import Factors
from natgrad.optim.gather import Gather
from natgrad.optim.inverses import Solver
from natgrad.optim.layers import Coverage, announce, cover
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.steplength import (
    EqualShare,
    Quadratic,
    QuadraticModel,
    Ruler,
    StepLength,
    equal_shares,
)

# Steps at the beginning that all refresh: the factors change fastest there.
_WARM_UP = 10
# αL below which the inverses no longer fit the batch, and are renewed out of turn.
_STALE = 0.1


class NGD(torch.optim.Optimizer):
    """Natural gradient descent: `loss = criterion(model(x), y)`, `backward()`, `step()`.

    Every layer's Fisher block is a Kronecker product of the second moments of its inputs and of
    errors sampled from the model; the direction is [BLH18] (20), d = (Λ̃ + γ̃)⁻¹ G (Λ + γ)⁻¹ with
    π-corrected damping, and its length the minimum of the quadratic model. Nothing needs tuning;
    docs/optimizer.md says why each part is there.

    The likelihood is the criterion. Call it on the model's outputs in training mode; the optimizer
    then knows outputs, labels and reduction. With a loss of your own name `reduction`, and pass a
    closure to `step` if the damping is to adapt.

    Damping and statistics refer to the average loss over data, whatever the reduction.

    Args:
        model: The model. Linear and Conv2d layers have Kronecker factors; other parameters take
            plain gradient steps, and a warning names them.
        likelihood: `Gaussian`, `Bernoulli`, `Categorical` or another `Likelihood`.
        lr: Factor on the step length; schedulers may change it.
        step_length: `Quadratic()` (default), or `EqualShare()`, lr/L.
        damping: `Adaptive()` (default), `Fixed`, `Scheduled`, or a number for `Fixed`.
        factors: How the Kronecker factors are estimated.
        refresh: Renew factors and inverses, and measure ρ, every so many steps (and at each of the
            first ten, and when the inverses no longer fit).
        method: `"kronecker"`; for comparison `"whitening"` with inverse square roots of the
            factors, `"diagonal"`, and `"conjugate_gradients"` with the whole Fisher.
        solver: How factors are inverted; `"auto"` chooses by cost.
        weight_average: a, to keep an average of the weights with a/(k + a); see `averaged`.
        reduction: Reduction of a loss that is not the likelihood itself.
        strict: Raise, instead of warning, if some parameter has no Kronecker factors.
        generator: Source of the sampled labels; default one of its own, with seed 0.

    Attributes:
        statistics: What the last step did.

    Raises:
        UnsupportedError: With `strict`, or if the model does not suit `factors.source`.

    Example:
        >>> import natgrad as ng
        >>> _ = torch.manual_seed(0)
        >>> from torch.nn import Linear, Sequential, Tanh
        >>> model = Sequential(Linear(2, 8), Tanh(), Linear(8, 2))
        >>> x = torch.randn(64, 2)
        >>> y = (x[:, 0] > 0).long()
        >>> criterion = ng.Categorical()
        >>> optimizer = NGD(model, criterion)
        >>> for _ in range(10):
        ...     loss = criterion(model(x), y)
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool(loss < 0.05), optimizer.statistics.step
        (True, 10)
    """

    def __init__(
        self,
        model: Module,
        likelihood: Likelihood,
        *,
        lr: float = 1.0,
        step_length: StepLength | None = None,
        damping: Damping | float | None = None,
        factors: Factors | None = None,
        refresh: int = 4,
        method: Method = "kronecker",
        solver: Solver = "auto",
        weight_average: float | None = None,
        reduction: Reduction | None = None,
        strict: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        params = check(model, likelihood, lr, refresh, method, solver, reduction)
        super().__init__(params, {"lr": float(lr)})
        self.model, self.likelihood = model, likelihood
        self.step_length = Quadratic() if step_length is None else step_length
        self.damping = as_damping(damping)
        self.factors = Factors() if factors is None else factors
        self.refresh_every, self.method, self.strict = refresh, method, strict
        self.generator = generator or torch.Generator(params[0].device).manual_seed(0)
        self.statistics = StepStatistics()
        self._coverage = Coverage({}, {}, {}) if method == "conjugate_gradients" else cover(model)
        announce(self._coverage.reasons, strict)
        self._preconditioner = preconditioner(
            model,
            likelihood,
            self._coverage,
            factors=self.factors,
            method=method,
            solver=solver,
            split=self.damping.split,
        )
        gather = Gather(self._coverage, self.factors, self.generator, squares=method == "diagonal")
        self._capture = Capture(model, likelihood, gather, reduction)
        self._foreign = reduction is not None
        weakref.finalize(self, Capture.remove, self._capture)
        self._average = None if weight_average is None else WeightAverage(params, weight_average)
        self._before = [torch.empty_like(p) for p in params]
        self._steps, self._value = 0, self.damping.start
        self._ratio: float | None = None
        self._due = False
        self._ruler = Ruler(self.step_length, likelihood)

    @classmethod
    def published(
        cls,
        model: Module,
        likelihood: Likelihood,
        *,
        lr: float = 1.0,
        damping: float = 0.1,
        floor: float | None = None,
        samples: int = 1,
        **options: Any,
    ) -> Self:
        """Return the method of [BLH18] §5: (20) and (21) at every step, and nothing more.

        Factors of each batch alone, errors sampled `samples` times, √λ on both factors, an equal
        share of 1/L for every layer. Two corrections: the predicted decrease of (21) has the sign
        of a decrease and counts α once, and λ has a floor, without which it runs away.

        Args:
            model: The model.
            likelihood: The likelihood.
            lr: α.
            damping: λ at the start.
            floor: Smallest λ; default 1e-8 in single and 1e-10 in double precision.
            samples: K.
            **options: Passed on, `factors` and `reduction` for example.

        Example:
            >>> import natgrad as ng
            >>> optimizer = NGD.published(torch.nn.Linear(2, 1), ng.Gaussian())
            >>> optimizer.damping.split, optimizer.factors.memory, optimizer.refresh_every
            ('equal', 0.0, 1)
        """
        double = next(model.parameters()).dtype == torch.float64
        floor = (1e-10 if double else 1e-8) if floor is None else floor
        rule = Adaptive(start=damping, floor=floor, split="equal", least_share=0.0, reject=math.inf)
        defaults: dict[str, Any] = {
            "step_length": EqualShare(),
            "damping": rule,
            "factors": Factors(samples=samples, memory=0.0, exact_output=False),
            "refresh": 1,
        }
        return cls(model, likelihood, lr=lr, **(defaults | options))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one damped natural step from the gradients of the last backward pass.

        Args:
            closure: Clears the gradients, computes the loss, calls `backward` and returns it. Only
                a foreign loss needs it, to measure what a step achieved.

        Returns:
            What the closure returned.

        Raises:
            NonFiniteError: If loss or gradient is NaN or infinite; the weights are untouched.
            InvalidInputError: If the criterion was not called on the model's outputs.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        batch = Batch(self._calls())
        refresh, self._capture.paused = self._capture.wanted, True
        try:
            self._step(batch, refresh, closure, loss)
        finally:
            self._capture.paused = False
        return loss

    def _step(
        self,
        batch: Batch,
        refresh: bool,
        closure: Callable[[], Any] | None,
        closure_loss: Any,
    ) -> None:
        stats = StepStatistics(step=self._steps + 1, damping=self._value, refreshed=refresh)
        self.statistics = stats
        stats.loss = batch.loss()
        if stats.loss is None and closure_loss is not None:
            stats.loss = float(closure_loss.detach()) / (batch.calls[0].unit * batch.n)
        self._refuse_non_finite(batch)
        if refresh:
            with stats.timed("factors"):
                announce(self._preconditioner.update(batch, self.likelihood), self.strict)
                self._capture.gather.settled = self._preconditioner.settled
            with stats.timed("inverses"):
                self._preconditioner.refresh(self._value)
        with stats.timed("direction"):
            direction = self._preconditioner.direction(batch)
        if not math.isfinite(direction.slope):
            raise NonFiniteError(
                f"the natural direction overflows at step {stats.step} with damping "
                f"{self._value:.2e}. Raise the damping or its floor; the weights are untouched."
            )
        before = self._save(direction)
        with stats.timed("length"):
            model = self._model(batch, direction)
        with stats.timed("update"):
            torch._foreach_copy_(direction.params, before)
            direction.move(stats.length)
        if refresh:
            with stats.timed("ratio"):
                self._measure(batch, direction, model, closure)
            if stats.rejected:
                torch._foreach_copy_(direction.params, before)
        self._advance()

    def _calls(self) -> list[Call]:
        calls = self._capture.take()
        if not calls:
            how = (
                "Run the model's forward in training mode."
                if self._foreign
                else "Compute the loss as criterion(model(x), y), in training mode and with the "
                "likelihood given to NGD, or name reduction= to use a loss of your own."
            )
            raise InvalidInputError(
                f"step {self._steps + 1} found no batch that was back-propagated since the last "
                f"one. {how}"
            )
        return calls

    def _refuse_non_finite(self, batch: Batch) -> None:
        grads = [p.grad for p in self._params() if p.grad is not None]
        norms = torch._foreach_norm(grads)
        size = float(torch.stack([n.double().cpu() for n in norms]).norm()) if grads else 0.0
        stats = self.statistics
        stats.gradient_norm = size / batch.total if batch.total else math.nan
        for name, value in (("loss", stats.loss), ("gradient", stats.gradient_norm)):
            if value is not None and not math.isfinite(value):
                raise NonFiniteError(
                    f"the {name} is {value} at step {stats.step}: the step is refused and the "
                    "weights are untouched. Look for a diverged run, an overflow or missing values "
                    "in the batch; skip it, or continue from a checkpoint with more damping."
                )

    def _save(self, direction: Direction) -> list[Tensor]:
        """Copy the parameters that will move, into buffers that stay."""
        place = {id(p): held for p, held in zip(self._params(), self._before, strict=True)}
        before = [place[id(p)] for p in direction.params]
        torch._foreach_copy_(before, direction.params)
        return before

    def _model(self, batch: Batch, direction: Direction) -> QuadraticModel:
        """Return the quadratic model, and set the step's length; the parameters may have moved."""
        stats, lr = self.statistics, float(self.param_groups[0]["lr"])
        if stats.refreshed:
            self._ruler.reproduces(batch.largest)  # can only be found out before the step
        model = self._ruler.model(batch.largest, direction, self._value)
        if model is None:
            stats.notes.append(
                "the model does not reproduce its outputs, or they do not go straight to the "
                "criterion: equal shares instead of the quadratic model"
            )
            model = equal_shares(direction)
        stats.share, stats.length = model.share, lr * model.alpha
        stats.predicted = model.decrease(stats.length)
        stats.step_norm = stats.length * math.sqrt(direction.square)
        return model

    def _measure(
        self,
        batch: Batch,
        direction: Direction,
        model: QuadraticModel,
        closure: Callable[[], Any] | None,
    ) -> None:
        """Compare the loss after the step with the model's prediction."""
        stats = self.statistics
        losses = self._losses(batch, model, closure)
        if losses is None:
            stats.notes.append(
                "the loss after the step cannot be measured, so the damping does not adapt: pass a "
                "closure to step()"
            )
            return
        before, after = losses
        stats.actual = before - after
        if abs(stats.predicted) <= self._ruler.rounding(batch.largest, before):
            stats.notes.append("the predicted decrease is lost in rounding: the damping stays")
            return
        stats.ratio = stats.actual / stats.predicted
        stats.rejected = not after - before <= self.damping.reject * abs(before)
        self._ratio = stats.ratio if stats.predicted >= 0 and not stats.rejected else -math.inf
        if stats.rejected:
            stats.step_norm = 0.0

    def _losses(
        self, batch: Batch, model: QuadraticModel, closure: Callable[[], Any] | None
    ) -> tuple[float, float] | None:
        """Return the loss before the step and now, on the data that the model is about."""
        before = self.statistics.loss
        if self._foreign:
            if closure is None or before is None:
                return None
            return before, self._closure_loss(batch, closure)
        if not all(self._ruler.reproduces(call) for call in batch.calls):
            return None
        if model.rows is not None:
            return self._ruler.losses(batch.largest, model.rows)
        after = batch.loss_again(self.likelihood)
        return None if before is None or after is None else (before, after)

    def _closure_loss(self, batch: Batch, closure: Callable[[], Any]) -> float:
        held = [p.grad for p in self._params()]
        for p in self._params():
            p.grad = None
        try:
            with torch.enable_grad():
                loss = float(closure().detach())
        finally:
            for p, grad in zip(self._params(), held, strict=True):
                p.grad = grad
        return loss / (batch.calls[0].unit * batch.n)

    def _advance(self) -> None:
        """Count the step, adapt the damping, and decide what the next batch is asked for."""
        stats = self.statistics
        self._steps += 1
        self._value = self.damping.after(self._steps, self._value, self._ratio, stats.share)
        self._due = stats.rejected or stats.share < _STALE
        self._set_wanted()
        if self._average is not None:
            self._average.update(self._params())

    def _set_wanted(self) -> None:
        since = self._steps - _WARM_UP
        self._capture.wanted = since < 0 or since % self.refresh_every == 0 or self._due

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the average of the weights into the model, for the time of a `with` block.

        Raises:
            InvalidInputError: If no average is kept.

        Example:
            >>> import natgrad as ng
            >>> model = torch.nn.Linear(1, 1)
            >>> optimizer = NGD(model, ng.Gaussian(), weight_average=6.0)
            >>> with optimizer.averaged():
            ...     prediction = model(torch.ones(1, 1))
        """
        if self._average is None:
            raise InvalidInputError(
                "no average of the weights is kept; construct NGD with weight_average=6.0."
            )
        self._average.swap(self._params())
        try:
            yield
        finally:
            self._average.swap(self._params())

    def remove(self) -> None:
        """Remove every hook from the model and the criterion; the optimizer can step no more."""
        self._capture.remove()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse a second group: the optimizer follows the whole model.

        Raises:
            UnsupportedError: Always, after construction.
        """
        if self.param_groups:
            raise UnsupportedError(
                "NGD optimizes one model as a whole; freeze parameters with requires_grad_(False) "
                "before constructing it instead of adding groups."
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, layers keyed by module name; no pickled objects.

        The generator's state is in it, so that a run continues bit for bit.
        """
        state = super().state_dict()
        average = self._average
        state["natural"] = {
            "steps": self._steps,
            "damping": self._value,
            "ratio": self._ratio,
            "due": self._due,
            "rows": self._ruler.rows,
            "generator": self.generator.get_state(),
            "preconditioner": self._preconditioner.state_dict(),
            "average": None if average is None else average.state_dict(self._names()),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of another run with the same model and options.

        Raises:
            InvalidInputError: If the state is not one of NGD's, or of another model.
        """
        state = state_dict.get("natural")
        if state is None:
            raise InvalidInputError(
                "this state_dict has no key 'natural': it was saved by another optimizer."
            )
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "natural"})
        self._preconditioner.load_state_dict(state["preconditioner"])
        self._steps, self._value = state["steps"], state["damping"]
        self._ratio, self._due, self._ruler.rows = state["ratio"], state["due"], state["rows"]
        self.generator.set_state(state["generator"].cpu())
        if self._average is not None and state["average"] is not None:
            self._average.load_state_dict(state["average"], self._names())
        self._capture.clear()
        self._set_wanted()

    def _params(self) -> list[Any]:
        params: list[Any] = self.param_groups[0]["params"]
        return params

    def _names(self) -> list[str]:
        names = {id(p): name for name, p in self.model.named_parameters()}
        return [names[id(p)] for p in self._params()]
