"""The optimizer: an adaptor between a training loop and the natural gradient."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import function, integer, number, refuse_unknown
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim._adaptation import Adaptation
from natgrad.optim._arguments import check_generator, named, trainable
from natgrad.optim._averaging import Backup, WeightAverage
from natgrad.optim._build import Method, as_damping, as_factors, as_step_length, check_options
from natgrad.optim._capture.batch import Batch
from natgrad.optim._core import Core
from natgrad.optim._curvature.factor import Factors
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._grad_scaler import unscaled
from natgrad.optim._groups import decay, divide, rates
from natgrad.optim._ruler import Ruler
from natgrad.optim._states import check_whole, checked
from natgrad.optim._trial import Closure, Trial, mean_loss
from natgrad.optim.damping import Adaptive, Damping
from natgrad.optim.momentum import Momentum
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import EqualShare, StepLength


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
        model: The model, also inside `torch.compile` or `DistributedDataParallel`. Parameters of
            layers without a block (docs/optimizer.md has the table) take plain gradient steps, and
            a warning names them.
        likelihood: `Gaussian`, `Bernoulli`, `Categorical` or another `Likelihood`.
        lr: Factor on the step length; schedulers may change it.
        weight_decay: Shrinks weights by 1 − lr · weight_decay at each step, apart from the loss.
        groups: Parameters with an lr or weight_decay of their own, as mappings with `params`; all
            others share the options above. Unequal rates bend the direction, and its length is
            the best along what comes out, times the largest rate.
        momentum: μ < 1, the part of the past in an average of gradients that directions are made
            of; 0 for the gradient of this batch alone. Single data, when nothing is averaged yet,
            keep their rank-one form and are not averaged.
        step_length: `Quadratic()` (default), `PerLayer()`, or `EqualShare()`, lr/L.
        damping: `Adaptive()` (default), `Fixed`, `Scheduled`, or a number for `Fixed`.
        factors: How the Kronecker factors are estimated.
        refresh: Renew factors and inverses, measure ρ and adapt λ every so many steps (more often
            at the beginning, and when the inverses no longer fit).
        method: `"kronecker"`; for comparison `"whitening"` with inverse square roots of the
            factors, `"diagonal"`, and `"conjugate_gradients"` with the whole Fisher.
        solver: How factors are inverted; `"auto"` chooses by cost.
        weight_average: a, to keep an average of the weights with a/(k + a); see `averaged`.
        reduction: Reduction of a loss that is not the likelihood itself.
        strict: Raise, instead of warning, if some parameter has no Kronecker factors.
        generator: Source of the sampled labels; default one of its own, with seed 0.

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
        >>> for _ in range(12):
        ...     loss = criterion(model(x), y)
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> bool(loss < 0.05), optimizer.statistics.step
        (True, 12)
    """

    # Tells a GradScaler to leave the gradients scaled: the optimizer knows the loss's scale.
    _step_supports_amp_scaling = True

    @named
    def __init__(
        self,
        model: Module,
        likelihood: Likelihood = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        lr: float = 1.0,
        weight_decay: float = 0.0,
        groups: Sequence[Mapping[str, Any]] | None = None,
        momentum: float = 0.8,
        step_length: StepLength | None = None,
        damping: Damping | float | None = None,
        factors: Factors | None = None,
        refresh: int = 6,
        method: Method = "kronecker",
        solver: Solver = "auto",
        weight_average: float | None = None,
        reduction: Reduction | None = None,
        strict: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        params = trainable(model, likelihood)
        defaults = {
            "lr": number(lr, "lr", low=0, low_open=True),
            "weight_decay": number(weight_decay, "weight_decay", low=0),
        }
        momentum = number(momentum, "momentum", low=0, high=1, high_open=True)
        if weight_average is not None:
            weight_average = number(weight_average, "weight_average", low=0, low_open=True)
        self.step_length, self.damping = as_step_length(step_length), as_damping(damping)
        self.factors, split = as_factors(factors), self.damping.split
        refresh = check_options(refresh, method, solver, split, reduction, strict)
        check_generator(generator, params[0])
        super().__init__(divide(model, params, groups), defaults)
        self.model, self.likelihood = model, likelihood
        self.refresh_every, self.method = refresh, method
        self.statistics = StepStatistics()
        self.scaler: torch.amp.GradScaler | None = None
        self._core = Core(
            model,
            likelihood,
            factors=self.factors,
            refresh=refresh,
            method=method,
            solver=solver,
            split=split,
            reduction=reduction,
            strict=strict,
            generator=generator,
        )
        self.generator = self._core.generator
        self._ruler = Ruler(self.step_length, likelihood)
        self._momentum = Momentum(momentum) if momentum else None
        self._trial = Trial(
            self._ruler, self.damping, self._momentum, foreign=reduction is not None
        )
        params = self._params()
        self._average = None if weight_average is None else WeightAverage(params, weight_average)
        self._backup = Backup(params)
        self._names = [self._core.structure.names[p] for p in params]
        self._adaptation = Adaptation(self.damping)

    @classmethod
    @named
    def published(
        cls,
        model: Module,
        likelihood: Likelihood = None,  # type: ignore[assignment]  # missing: a sentence
        *,
        lr: float = 1.0,
        damping: float = 0.1,
        floor: float | None = None,
        samples: int = 1,
        **options: Any,
    ) -> Self:
        """Return the method of [BLH18] §5: (20) and (21) at every step, and nothing more.

        Factors of each batch alone, every Λ̃ from errors sampled `samples` times, √λ on both
        factors, an equal share of 1/L for every layer. Two corrections: the predicted decrease of
        (21) has the sign of a decrease and counts α once, and λ has a floor, without which it runs
        away. `known_output` does not sample the last Λ̃.

        Args:
            model: The model.
            likelihood: The likelihood.
            lr: α.
            damping: λ at the start.
            floor: Smallest λ; default 1e-8 in single and 1e-10 in double precision.
            samples: K; to pass `factors`, name K there.
            **options: Passed on, `factors` and `reduction` for example.

        Raises:
            InvalidInputError: If both `samples` and `factors` are given.

        Example:
            >>> import natgrad as ng
            >>> optimizer = NGD.published(torch.nn.Linear(2, 1), ng.Gaussian())
            >>> optimizer.damping.split, optimizer.factors.memory, optimizer.factors.exact_output
            ('equal', 0.0, False)
        """
        double = trainable(model, likelihood)[0].dtype == torch.float64
        refuse_unknown(options, ["samples", *inspect.signature(cls).parameters], "NGD.published")
        samples = integer(samples, "samples", low=1)
        if options.get("factors") is not None and samples != 1:
            raise InvalidInputError("samples and factors were both given: name Factors(samples=…).")
        floor = (1e-10 if double else 1e-8) if floor is None else floor
        rule = Adaptive(
            start=damping,
            floor=floor,
            relative_floor=0.0,
            split="equal",
            least_share=0.0,
            reject=math.inf,
        )
        defaults: dict[str, Any] = {
            "momentum": 0.0,
            "step_length": EqualShare(),
            "damping": rule,
            "factors": Factors(samples=samples, memory=0.0, exact_output=False),
            "refresh": 1,
        }
        return cls(model, likelihood, lr=lr, **(defaults | options))

    @classmethod
    def known_output(
        cls, model: Module, likelihood: Likelihood, *, samples: int = 1, **options: Any
    ) -> Self:
        """Return `published`, but with the last layer's Λ̃ in closed form instead of sampled.

        That factor is the likelihood's own Fisher, with which (14) begins. Sampled, it is the
        noisiest of all where a network has many outputs; docs/optimizer.md has numbers.

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
        if "factors" not in options:
            options["factors"], samples = Factors(samples=samples, memory=0.0), 1
        return cls.published(model, likelihood, samples=samples, **options)

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
            InvalidInputError: If the criterion was not called on the model's outputs, or the model
                has changed since the optimizer was constructed.
        """
        self._core.structure.check()
        loss = None
        if closure is not None:
            function(closure, "closure")
            with torch.enable_grad():
                loss = closure()
        capture = self._core.capture
        if bool(getattr(self, "found_inf", False)):  # a GradScaler's word, which will scale down
            capture.clear()
            self.statistics = StepStatistics(step=self._core.steps, notes=["skipped: overflow"])
            return loss
        batch = self._core.batch(unscaled(self, foreign=self._core.foreign))
        stats = StepStatistics(
            step=self._core.steps + 1, damping=self._adaptation.value, refreshed=capture.wanted
        )
        self.statistics, capture.paused = stats, True
        off = torch.autocast(self._params()[0].device.type, enabled=False)
        try:
            stats.loss = batch.loss()
            if stats.loss is None and loss is not None:
                stats.loss = mean_loss(batch, loss)
            with off:
                self._step(batch, closure, stats)
        finally:
            capture.paused = False
        return loss

    def _step(self, batch: Batch, closure: Closure | None, stats: StepStatistics) -> None:
        norms = self._core.renew(batch, stats.damping, self._params(), stats)
        rate, own = rates(self.param_groups)
        # A single sample keeps its rank-one form while there is no average to spoil it.
        single = batch.n == 1 and self._momentum is not None and not self._momentum.values
        momentum = None if single else self._momentum
        average = momentum.averaged(self._params(), batch.total) if momentum else nullcontext()
        with average:
            direction = self._core.direction(batch, None if momentum else norms, stats)
            if own is not None:
                direction.weigh(own, batch.total)
        if momentum:
            direction.meet(batch.total)
        disturbed = [] if isinstance(self.step_length, EqualShare) else direction.disturbed
        kept = direction.params if stats.refreshed else disturbed
        self._backup.save(kept)
        try:
            with stats.timed("length"):
                model = self._trial.lengthen(batch, direction, rate, stats)
        finally:
            self._backup.restore(disturbed)
        with stats.timed("update"):
            direction.move(stats.length)
        ratio = None
        if stats.refreshed:
            with stats.timed("ratio"):
                ratio = self._trial.judge(batch, model, closure, self._params(), stats)
        scale = self._core.preconditioner.scale if ratio is not None else 0.0
        stale = self._adaptation.adapt(
            ratio, stats, since=self._core.since, depth=direction.depth, scale=scale
        )
        if stats.rejected:
            self._backup.restore(kept)
        else:
            decay(self.param_groups)
        (due,) = batch.world.sum([stale])  # processes must agree, and may differ in the last bit
        self._core.advance(due=due > 0)
        if momentum:
            # Lengths of single layers are inside d; the share says what part of a step they make.
            part = model.share / (direction.depth * model.alpha) if model.alpha else 0.0
            # Below half the slope of the average, the minimum along it is above where one stands.
            lost = stats.rejected or direction.batch_slope < direction.slope / 2
            momentum.advance(1.0 if lost else stats.length * part)
        if self._average is not None:
            self._average.update(self._params())

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
        self._core.capture.remove()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse another group after construction: the optimizer follows the whole model.

        Raises:
            UnsupportedError: Always.
        """
        if "_core" in self.__dict__:
            raise UnsupportedError(
                "NGD follows one model from the beginning: name groups= when constructing it, and "
                "freeze parameters with requires_grad_(False) before."
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a run needs to resume bit for bit, layers by name; no pickled objects."""
        state = super().state_dict()
        state["natural"] = {
            **self._core.state_dict(),
            **self._adaptation.state_dict(),
            "ruler": self._ruler.state_dict(),
        }
        for part, own, names in self._optional():
            state["natural"][part] = None if own is None else own.state_dict(names)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of another run with the same model and options.

        Raises:
            InvalidInputError: If it does not fit in any part; nothing is loaded then.
        """
        checked(lambda: self._check_state(state_dict))
        state = state_dict["natural"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "natural"})
        self._core.load_state_dict(state)
        self._adaptation.load_state_dict(state)
        self._ruler.load_state_dict(state["ruler"])
        for part, own, names in self._optional():
            if own is not None:
                own.load_state_dict(state[part], names)

    def _check_state(self, saved: Any) -> None:
        state = check_whole(saved, self.param_groups, self.state_dict()["natural"])
        self._core.check_state(state, "natural")
        self._adaptation.check_state(state, "natural")
        self._ruler.check_state(state["ruler"], "natural.ruler", state["steps"])
        for part, own, names in self._optional():
            if own is not None:
                own.check_state(state[part], f"natural.{part}", names)
            elif state[part] is not None:
                raise InvalidInputError(f"natural.{part} must be None, as in this optimizer.")

    def _optional(self) -> list[tuple[str, Any, Any]]:
        """Return the parts that not every optimizer has, with the names that their states need."""
        names = self._core.structure.names
        return [("average", self._average, self._names), ("momentum", self._momentum, names)]

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]
