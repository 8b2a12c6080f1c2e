"""The parts that the optimizer and the preconditioner share: construction and states."""

import weakref
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import describe, flag, integer, number
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim._arguments import literal, rule
from natgrad.optim._capture.hooks import Capture, Schedule
from natgrad.optim._capture.moments import Factors, Gather, Source
from natgrad.optim._criteria.observed import Observed
from natgrad.optim._curvature.batch_side import BatchSide, pays
from natgrad.optim._curvature.block import BlockDiagonal
from natgrad.optim._curvature.conjugate_gradients import ConjugateGradients
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._curvature.kronecker import KroneckerBlock
from natgrad.optim._curvature.plain import DiagonalBlock
from natgrad.optim._curvature.propagated import Chain
from natgrad.optim._distributed import World, unwrap
from natgrad.optim._layers.coverage import Coverage, announce, cover
from natgrad.optim._states import check_random
from natgrad.optim.damping import Adaptive, Damping, Falling, Fixed, Scheduled, Split
from natgrad.optim.momentum import Momentum
from natgrad.optim.step_length import EqualShare, Learned, PerLayer, Quadratic, StepLength

Method = Literal["kronecker", "whitening", "diagonal", "conjugate_gradients"]


class Core:
    """The parts that `NGD` and `Preconditioner` share: hooks, factors, inverses and their schedule.

    Args:
        model: The model.
        criterion: The criterion.
        factors: How the factors are estimated.
        refresh: Renew factors and inverses every so many steps.
        method: How directions are computed from the factors.
        solver: How the factors are inverted.
        split: How two factors share the damping.
        reduction: Reduction of a custom loss.
        strict: Raise if a parameter has no factors.
        generator: Random generator for the sampled labels.
        relative: Whether the damping is in units of each block's mean eigenvalue.
        adam: Whether parameters without a block take Adam's steps.

    Attributes:
        world: The processes that train the model.
        capture: The hooks.
        schedule: When factors and inverses are updated.
        preconditioner: The factors and their inverses.
    """

    def __init__(
        self,
        model: Module,
        criterion: Observed,
        *,
        factors: Factors,
        refresh: int,
        method: Method,
        solver: Solver,
        split: Split,
        reduction: Reduction | None,
        strict: bool,
        generator: torch.Generator | None,
        relative: bool = False,
        adam: bool = False,
    ) -> None:
        outer = model
        model, compiled, self.world = unwrap(model)
        self.model, self.likelihood = model, criterion.base
        self.strict, self.method = strict, method
        device = next(model.parameters()).device
        self.generator = generator or torch.Generator(device).manual_seed(self.world.rank)
        self._options: dict[str, Any] = {
            "factors": factors,
            "method": method,
            "solver": solver,
            "split": split,
            "relative": relative,
            "adam": adam,
            "world": self.world,
        }
        alone = method == "conjugate_gradients" or factors.source == "propagated"
        if alone and self.world.size > 1:
            raise UnsupportedError(
                "conjugate gradients and propagated factors work in one process only. Try "
                "method='kronecker' and source='sampled'."
            )
        whole = method == "conjugate_gradients"
        coverage = Coverage({}, {}, {}) if whole else _covered(model, factors)
        announce(coverage.reasons, strict)
        self.preconditioner = preconditioner(model, criterion.base, coverage, **self._options)
        gather = Gather(
            coverage,
            factors,
            self.generator,
            settled=self.preconditioner.settled,
            squares=method == "diagonal",
            traces=not adam,
        )
        self.schedule = Schedule(refresh)
        self.capture = Capture(
            model, criterion, gather, self.schedule, reduction, outer if compiled else None
        )
        self.custom = reduction is not None
        weakref.finalize(self, Capture.remove, self.capture)

    def use_rows(self, momentum: Momentum | None) -> None:
        """Compute the directions of wide layers from the rows of a batch where that pays."""
        if isinstance(self.preconditioner, BlockDiagonal):
            self.preconditioner.side = BatchSide(momentum)
            self.capture.records = pays

    @property
    def _side(self) -> BatchSide | None:
        found = self.preconditioner
        return found.side if isinstance(found, BlockDiagonal) else None

    @property
    def row_bytes(self) -> int:
        """Return the memory of directions that are kept besides the state."""
        return 0 if self._side is None else self._side.bytes

    def refit(self) -> None:
        """Cover the parameters that are trained now; blocks that are left as they were stay.

        Factors are updated with the next batch, so that new blocks get theirs.
        """
        if self.method != "conjugate_gradients":
            before, gather = self.preconditioner, self.capture.gather
            known = gather.coverage.reasons
            coverage = _covered(self.model, self._options["factors"])
            fresh = {name: why for name, why in coverage.reasons.items() if name not in known}
            announce(fresh, self.strict)
            after = preconditioner(self.model, self.likelihood, coverage, **self._options)
            assert isinstance(before, BlockDiagonal)
            assert isinstance(after, BlockDiagonal)
            after.take_over(before)
            self.preconditioner = after
            gather.coverage, gather.settled = coverage, after.settled
        self.capture.watch()
        self.schedule.set(steps=self.schedule.steps, since=self.schedule.since, due=True)

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs; this one goes on as a resumed one would."""
        if self._side is not None:
            self._side.forget()
        return {
            "method": self.method,
            "steps": self.schedule.steps,
            "since": self.schedule.since,
            "due": self.schedule.due,
            "generator": self.generator.get_state(),
            "preconditioner": self.preconditioner.state_dict(),
        }

    def check_state(self, state: Mapping[str, Any], where: str) -> None:
        """Raise unless the state can be loaded."""
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
        """Load a checked state."""
        self.preconditioner.load_state_dict(state["preconditioner"])
        steps = state["steps"]
        self.schedule.set(steps=steps, since=state["since"], due=state["due"])
        self.generator.set_state(state["generator"].cpu().contiguous())
        if self.world.size > 1:  # processes share a checkpoint, but draw different labels
            self.generator.manual_seed(steps * self.world.size + self.world.rank)
        self.capture.clear()


class Whole:
    """The state of an optimizer whose blocks are divided among processes, in one of them."""

    def __init__(self) -> None:
        self._found: tuple[int, dict[str, Any]] | None = None

    def gather(self, core: Core, own: dict[str, Any], to: int) -> None:
        """Collect the states that processes hold; each of them calls this.

        Args:
            core: The core, whose processes these are.
            own: The state of this process.
            to: The process that will have all of it.
        """
        to = integer(to, "to", low=0, high=core.world.size - 1)
        if core.world.size > 1:
            found = core.world.gather(own, to)
            whole = None if found is None else together(found, core.preconditioner.owners)
            self._found = None if whole is None else (core.schedule.steps, whole)

    def get(self, core: Core) -> dict[str, Any] | None:
        """Return the whole state; None if this process is alone.

        Raises:
            InvalidInputError: If it was not gathered here since the last step.
        """
        if core.world.size == 1:
            return None
        if self._found is None or self._found[0] != core.schedule.steps:
            raise InvalidInputError(
                "the state is divided among processes: call consolidate() in every one of them "
                "first, then state_dict() in the process that saves it, number 0 by default."
            )
        return self._found[1]


def together(parts: Sequence[dict[str, Any]], owners: Mapping[str, int]) -> dict[str, Any]:
    """Return one state from those of all processes, each of which has its own blocks."""
    whole, each = parts[0], [part.get("natural", part) for part in parts]
    natural = each[0]
    layers = natural["preconditioner"]["layers"]
    for name, owner in owners.items():
        layers[name] = each[owner]["preconditioner"]["layers"][name]
    for part, held in (("momentum", "values"), ("lengths", "tensors"), ("average", "values")):
        if natural.get(part) is not None:
            for name in natural[part][held]:
                found = [other[part][held][name] for other in each]
                natural[part][held][name] = next((t for t in found if t is not None), None)
    return whole


def preconditioner(
    model: Module,
    likelihood: Likelihood,
    coverage: Coverage,
    *,
    factors: Factors,
    method: Method,
    solver: Solver,
    split: Split,
    relative: bool,
    adam: bool,
    world: World,
) -> BlockDiagonal | ConjugateGradients:
    """Return the object that turns gradients into directions."""
    if method == "conjugate_gradients":
        return ConjugateGradients(model, likelihood, iterations=20, tolerance=1e-3)
    if adam:
        # Adam trains scale and shift of a normalization as well, at a lower cost, and the head of
        # a language model tied to its embedding better: the head's factors do not count lookups.
        found = coverage.layers.items()
        for name in [name for name, layer in found if layer.one_sided or layer.elsewhere]:
            coverage.drop(name, "moves by Adam")
    layers, memory = coverage.layers, factors.memory
    if method == "diagonal":
        diagonal = {name: DiagonalBlock(layer, memory=memory) for name, layer in layers.items()}
        return BlockDiagonal(
            coverage, diagonal, memory=memory, relative=relative, adam=adam, world=world
        )
    power = -1.0 if method == "kronecker" else -0.5
    blocks = {
        name: KroneckerBlock(
            layer, memory=memory, split=split, solver=solver, power=power, keep=factors.keep
        )
        for name, layer in layers.items()
    }
    chain = Chain(model, coverage) if factors.source == "propagated" else None
    return BlockDiagonal(
        coverage, blocks, memory=memory, relative=relative, adam=adam, chain=chain, world=world
    )


def _covered(model: Module, factors: Factors) -> Coverage:
    """Return the layers that have factors; propagated factors are not cut into blocks."""
    largest = None if factors.source == "propagated" else factors.block
    return cover(model, factors.sharing, largest=largest)


def as_rules(step_length: Any, damping: Any, method: Any) -> tuple[StepLength, Damping]:
    """Return the rules for length and damping: those given, or matching defaults.

    Raises:
        InvalidInputError: If the two rules do not work together.
    """
    blocks = literal(method, "method", Method) != "conjugate_gradients"
    rule = None if damping is None else as_damping(damping)
    if step_length is None:
        measured = isinstance(rule, Adaptive) or not blocks
        length: StepLength = Quadratic() if measured else Learned()
    else:
        length = as_step_length(step_length)
    learned = isinstance(length, Learned)
    if rule is None:
        rule = Falling() if learned else Adaptive()
    if learned and isinstance(rule, Adaptive):
        raise InvalidInputError(
            "Adaptive() needs a length that is measured: use step_length=Quadratic() with it, or "
            "damping=Falling() with Learned()."
        )
    if not blocks and (learned or isinstance(rule, Falling)):
        raise InvalidInputError(
            "Learned() and Falling() need one block per layer; conjugate gradients have none. Use "
            "step_length=Quadratic() and damping=Adaptive() with them."
        )
    return length, rule


def as_damping(damping: Any) -> Damping:
    """Return a rule: a constant, or the one given."""
    if isinstance(damping, (Real, Tensor)) and not isinstance(damping, bool):
        return Fixed(start=number(damping, "damping", low=0))
    rule(damping, "damping", (Adaptive, Falling, Fixed, Scheduled), hint="Or pass λ, a number.")
    kept: Damping = damping
    return kept


def as_step_length(step_length: Any) -> StepLength:
    """Return the rule given."""
    hint = "lr is the factor on the length."
    rule(step_length, "step_length", (Learned, Quadratic, PerLayer, EqualShare), hint=hint)
    kept: StepLength = step_length
    return kept


def as_factors(factors: Any) -> Factors:
    """Return the default way of estimating factors, or the one given."""
    if factors is None:
        return Factors()
    known = isinstance(factors, str) and factors in get_args(Source)
    rule(factors, "factors", (Factors,), hint=f"Try Factors(source={factors!r})." if known else "")
    kept: Factors = factors
    return kept


def check_options(
    refresh: Any, method: Any, solver: Any, split: Any, reduction: Any, strict: Any
) -> int:
    """Return the number of steps between refreshes; raise a typed error if it is invalid."""
    literal(method, "method", Method)
    literal(solver, "solver", Solver)
    literal(split, "split", Split)
    if reduction is not None:
        literal(reduction, "reduction", Reduction)
    flag(strict, "strict")
    return integer(refresh, "refresh", low=1)
