"""The optimizer: an adaptor between a training loop and the natural gradient."""

import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, Self

import torch
from torch.nn import Module

from natgrad._checks import function, refuse_unknown
from natgrad._named import named
from natgrad.likelihoods import Reduction
from natgrad.optim import statistics
from natgrad.optim._arguments import (
    check_average,
    check_generator,
    check_state_dtype,
    divide,
    rates_of_groups,
    trainable,
)
from natgrad.optim._capture.batch import Batch
from natgrad.optim._capture.moments import Factors
from natgrad.optim._capture.scales import scale_notes
from natgrad.optim._core import Core, Method, Whole, as_factors, as_rules, check_options
from natgrad.optim._criteria.observed import Criterion, observed
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._layers.coverage import announce
from natgrad.optim._optimizer import Resumable, unscaled
from natgrad.optim._steps.direction import rates
from natgrad.optim._steps.learned import DECAY, Lengths
from natgrad.optim._steps.measured import Measured
from natgrad.optim._steps.published import as_known_output, as_published
from natgrad.optim._steps.ruler import Ruler
from natgrad.optim.damping import Adaptation, Adaptive, Damping
from natgrad.optim.momentum import Momentum, WeightAverage
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import Closure, Learned, StepLength, warn_fixed

__all__ = ["NGD"]


class NGD(Resumable):
    """Natural gradient descent: `loss = criterion(model(x), y)`, `backward()`, `step()`.

    Each layer's Fisher block is approximated by a Kronecker product: the second moments of its
    inputs, and of errors sampled from the model. The direction is [BLH18] (20),
    d = (Λ̃ + γ̃)⁻¹ G (Λ + γ)⁻¹, where G is an average of gradients. The step length is learned per
    layer, from the slope that is left after each step. Nothing needs tuning; docs/optimizer.md
    explains each part.

    Call the criterion on the model's outputs in training mode; the optimizer then knows outputs,
    labels and reduction. For a loss that it cannot see, pass a likelihood that stands in for the
    loss, its `reduction`, and a closure for `step` if steps that raise the loss should be undone.

    Damping and statistics refer to the average loss over samples, whatever the reduction.

    Args:
        model: The model, also inside `torch.compile` or `DistributedDataParallel`. Parameters of
            layers without a block take Adam steps, or plain gradient steps if lengths are measured,
            and a warning names them. docs/losses_and_layers.md lists the layers with a block.
        likelihood: The criterion: `torch.nn.CrossEntropyLoss(...)` or another of torch's, a
            `Likelihood` such as `Categorical()`, a custom loss as a module (`natgrad.optim.Loss`
            wraps a function), or a list of criteria whose losses are added.
        lr: Factor on the step length; schedulers may change it. Learned lengths compensate for a
            constant factor, but not for one below a half.
        weight_decay: Shrinks weights after each step, independently of the loss. A step of learned
            length s multiplies them by 1 / (1 + weight_decay · min(s, 0.1)²), unless it is a
            whole natural step; the default is 0.3. With measured lengths they are multiplied by
            1 − lr · weight_decay; the default is 0.
        groups: Parameters with their own lr or weight_decay, as mappings with `params`. All other
            parameters share the options above. Unequal rates change the direction; the length is
            the best one along the changed direction, times the largest rate.
        momentum: μ < 1, the weight of the past in the average of gradients from which directions
            are computed; 0 uses the gradient of this batch alone. Batches of a single sample are
            not averaged until a larger batch has started an average.
        step_length: `Learned()` (default), one length per layer; or a measured one: `Quadratic()`,
            `PerLayer()`, or `EqualShare()`, lr/L.
        damping: `Falling()` (default) if lengths are learned, `Adaptive()` if they are measured;
            `Fixed`, `Scheduled`, or a number for `Fixed`.
        factors: How the Kronecker factors are estimated.
        refresh: Steps between updates of factors and inverses; shorter at the beginning. With
            measured lengths also measure ρ and adapt λ then, and when the inverses no longer fit.
        method: `"kronecker"`; for comparison `"whitening"` with inverse square roots of the
            factors, `"diagonal"`, and `"conjugate_gradients"` with the whole Fisher.
        solver: How factors are inverted; `"auto"` chooses by cost.
        weight_average: a, the weight a/(k + a) of step k in an average of the weights. Evaluate the
            model inside `with optimizer.averaged():`. None keeps no average.
        state_dtype: `torch.bfloat16` halves the memory of the average of gradients, from 4 to 2
            bytes per parameter. By default it has the parameters' precision. The last step is
            always kept, and taken, in bfloat16 if parameters are in float32; that costs no steps.
        reduction: Reduction of a loss that is not the likelihood itself.
        strict: Raise, instead of warning, if a parameter has no Kronecker factors.
        generator: Random generator for the sampled labels; by default a new one with seed 0.

    Attributes:
        statistics: What the last step did.
        scaler: Your `torch.amp.GradScaler`, if you call its `unscale_` before `step`.

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
        >>> for _ in range(30):
        ...     loss = criterion(model(x), y)
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool(loss < 0.05), optimizer.statistics.step
        (True, 30)
    """

    # A GradScaler leaves the gradients scaled if this is set; the optimizer knows the scale.
    _step_supports_amp_scaling = True

    @named
    def __init__(
        self,
        model: Module,
        likelihood: Criterion = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        lr: float = 1.0,
        weight_decay: float | None = None,
        groups: Sequence[Mapping[str, Any]] | None = None,
        momentum: float = 0.8,
        step_length: StepLength | None = None,
        damping: Damping | float | None = None,
        factors: Factors | None = None,
        refresh: int = 6,
        method: Method = "kronecker",
        solver: Solver = "auto",
        weight_average: float | None = 10.0,
        state_dtype: torch.dtype | None = None,
        reduction: Reduction | None = None,
        strict: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        params = trainable(model, likelihood)
        self.step_length, self.damping = as_rules(step_length, damping, method)
        if weight_decay is None:
            weight_decay = DECAY if isinstance(self.step_length, Learned) else 0.0
        defaults = rates_of_groups(lr, weight_decay, momentum)
        check_average(weight_average)
        self.factors, split = as_factors(factors), self.damping.split
        refresh = check_options(refresh, method, solver, split, reduction, strict)
        check_generator(generator, params[0])
        check_state_dtype(state_dtype)
        super().__init__(divide(model, params, groups), defaults)
        criterion = observed(likelihood)
        self.model, self.likelihood = model, criterion.base
        self.refresh_every, self.method = refresh, method
        self.statistics = StepStatistics()
        self.scaler: torch.amp.GradScaler | None = None
        self._core = Core(
            model,
            criterion,
            factors=self.factors,
            refresh=refresh,
            method=method,
            solver=solver,
            split=split,
            reduction=reduction,
            strict=strict,
            generator=generator,
            relative=self.damping._relative,
            adam=isinstance(self.step_length, Learned),
        )
        self.generator = self._core.generator
        self._whole = Whole()
        self._momentum = Momentum(defaults["momentum"], state_dtype) if momentum else None
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._params = params
        self._average = None
        if weight_average is not None:
            core, holders = self._core, self._core.preconditioner.holders
            exponent = float(weight_average)
            self._average = WeightAverage(core.model, params, exponent, core.world, holders)
        self._lengths, self._measured = None, None
        if isinstance(self.step_length, Learned):
            found, world = self._core.preconditioner, self._core.world
            self._lengths = Lengths(self.step_length, found.starts, world, found.owners)
        else:
            ruler = Ruler(self.step_length, custom=reduction is not None)
            self._measured = Measured(ruler, params, self.damping.reject)
        if self._core.world.size == 1:  # DistributedDataParallel does not follow either
            self._core.capture.refit = weakref.WeakMethod(self._refit)
            self._core.use_rows(self._momentum)
        self._damping = Adaptation(self.damping)
        self._warned = False

    @classmethod
    @named
    def published(
        cls,
        model: Module,
        likelihood: Criterion = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        lr: float = 1.0,
        damping: float = 0.1,
        floor: float | None = None,
        samples: int = 1,
        **options: Any,
    ) -> Self:
        """Return the method of [BLH18] §5: (20) and (21) at every step, and nothing more.

        It uses the factors of each batch alone, every Λ̃ from errors sampled `samples` times, √λ on
        both factors, and an equal share of 1/L for every layer. There are two corrections: the
        predicted decrease of (21) has the sign of a decrease and counts α once, and λ has a floor,
        without which it diverges. `known_output` does not sample the last Λ̃.

        Args:
            model: The model.
            likelihood: The likelihood.
            lr: α.
            damping: λ at the start.
            floor: Smallest λ; default 1e-8 in single and 1e-10 in double precision.
            samples: K; if you pass `factors`, set K there.
            **options: Further options of `NGD`, for example `factors` and `reduction`.

        Raises:
            InvalidInputError: If both `samples` and `factors` are given.

        Example:
            >>> import natgrad as ng
            >>> optimizer = NGD.published(torch.nn.Linear(2, 1), ng.Gaussian())
            >>> optimizer.damping.split, optimizer.factors.memory, optimizer.factors.exact_output
            ('equal', 0.0, False)
        """
        precision = trainable(model, likelihood)[0].dtype
        refuse_unknown(options, ["samples", *inspect.signature(cls).parameters], "NGD.published")
        rules = as_published(damping, floor, samples, options.get("factors"), precision)
        return cls(model, likelihood, lr=lr, **(rules | options))

    @classmethod
    @named
    def known_output(
        cls,
        model: Module,
        likelihood: Criterion = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        samples: int = 1,
        **options: Any,
    ) -> Self:
        """Return `published`, but with the last layer's Λ̃ in closed form instead of sampled.

        That factor is the likelihood's own Fisher, the first term of (14). If sampled, it is the
        noisiest factor of a network with many outputs; docs/notebook.md has numbers.

        Args:
            model: The model.
            likelihood: The likelihood.
            samples: K, for the other layers.
            **options: Those of `published`.

        Example:
            >>> import natgrad as ng
            >>> NGD.known_output(torch.nn.Linear(2, 1), ng.Gaussian()).factors.exact_output
            True
        """
        options = as_known_output(samples, options)
        return cls.published(model, likelihood, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one damped natural step from the gradients of the last backward pass.

        Args:
            closure: Clears the gradients, computes the loss, calls `backward` and returns the loss.
                Only a custom loss needs it, to measure the decrease of a step.

        Returns:
            What the closure returned.

        Raises:
            NonFiniteError: If loss or gradient is NaN or infinite; the weights are untouched.
            InvalidInputError: If the criterion was not called on the model's outputs, or the model
                has changed since the optimizer was constructed.
        """
        core, capture = self._core, self._core.capture
        if core.world.size == 1 and capture.structure.refrozen():
            self._refit()
        capture.structure.check()
        returned = None
        if closure is not None:
            function(closure, "closure")
            with torch.enable_grad():
                returned = closure()
        scaled = hasattr(self, "found_inf") or hasattr(self, "grad_scale")  # by a GradScaler
        if scaled and bool(getattr(self, "found_inf", False)):
            capture.clear()
            self.statistics = StepStatistics(step=core.schedule.steps, notes=["skipped: overflow"])
            return returned
        unscale = unscaled(self, custom=core.custom) if scaled else 1.0
        batch = capture.batch(core.world, unscaled=unscale)
        loss = batch.loss()
        if loss is None and returned is not None:
            loss = batch.average_of(returned)
        capture.paused = True
        try:
            with torch.autocast(self._params[0].device.type, enabled=False):
                self.statistics = self._step(batch, loss, closure)
        finally:
            capture.paused = False
        adapts = isinstance(self.damping, Adaptive) or self._measured is not None
        if adapts and not self._warned:
            self._warned = warn_fixed(self.statistics.notes)
        return returned

    def _step(self, batch: Batch, loss: float | None, closure: Closure | None) -> StepStatistics:
        core, params, damping = self._core, self._params, self._damping.value
        seen = StepStatistics(
            step=core.schedule.steps + 1,
            loss=loss,
            damping=damping,
            refreshed=core.schedule.wanted,
        )
        norms, seen.gradient_norm = batch.gradient_norms(params, loss, seen.step)
        if self._lengths is not None and self._lengths.raised(loss, batch.n, self.damping.reject):
            return self._undo(self._lengths, seen)
        scales = scale_notes(batch) if seen.step == 1 else []
        marks = [("start", statistics.clock())]
        core.preconditioner.observe(batch.total)
        if self._lengths is not None:
            self._lengths.learn(batch)
        if seen.refreshed:
            if hidden := core.preconditioner.update(batch, self.likelihood):
                announce(hidden, core.strict)
            marks.append(("factors", statistics.clock()))
            core.preconditioner.refresh(damping, self._damping.raised)
            marks.append(("inverses", statistics.clock()))

        if self._momentum is not None:  # schedulers such as OneCycleLR change it with the rate
            self._momentum.factor = float(self.param_groups[0]["momentum"])
        # A single sample keeps its rank-one form as long as there is no average of gradients.
        single = batch.n == 1 and self._momentum is not None and not self._momentum.values
        momentum = None if single else self._momentum
        if away := core.preconditioner.away:  # other processes average the gradients of these
            params = [p for p in params if p not in away]
        rate, own = rates(self.param_groups)
        apart = core.preconditioner.begin(batch.rows if own is None else {})
        with momentum.averaged(params, batch.total, apart) if momentum else nullcontext():
            direction = core.preconditioner.direction(batch, None if momentum else norms)
            direction.require_finite(seen.step, damping)
            possible: dict[str, float] = {}
            if self._lengths is not None:
                bounded = batch.squares and self.method != "whitening"
                possible = self._lengths.apply(direction, loss if bounded else None)
            if own is not None:
                direction.weigh(own, batch.total, core.world)
        marks.append(("direction", statistics.clock()))
        if self._lengths is not None:
            self._lengths.take(direction, rate, own, groups=self.param_groups, seen=seen)
            if momentum:
                momentum.advance(0.0)
        elif self._measured is not None:
            self._measured.take(
                batch,
                direction,
                rate,
                momentum=momentum,
                past=self._momentum,
                groups=self.param_groups,
                closure=closure,
                seen=seen,
                marks=marks,
            )
        marks.append(("update", statistics.clock()))
        stale = self._damping.adapt(
            seen.step,
            -math.inf if seen.rejected else seen.ratio,
            seen.share,
            refreshed=seen.refreshed,
            rejected=seen.rejected,
            since=core.schedule.since,
            depth=direction.depth,
            scale=core.preconditioner.scale,
            possible=possible,
        )
        if core.world.size > 1:  # processes must agree, and may differ in the last bit
            stale = core.world.sum([stale])[0] > 0
        core.schedule.advance(due=stale)
        if self._average is not None:
            self._average.update()
        seen.notes = scales + seen.notes
        seen.seconds = {part: end - start for (_, start), (part, end) in pairwise(marks)}
        return seen

    def _undo(self, lengths: Lengths, seen: StepStatistics) -> StepStatistics:
        """Undo the last step of learned length, and skip the batch whose loss rose."""
        if self._average is not None:
            self._average.retract()
        lengths.undo()
        if self._momentum is not None:
            self._momentum.reset()
        self._core.schedule.advance(due=True)
        seen.refreshed, seen.rejected = False, True
        seen.notes = ["the loss rose after the last step: it was undone, and this batch not used"]
        return seen
