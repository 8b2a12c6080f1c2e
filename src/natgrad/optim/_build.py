"""Checks the options of the optimizer, and makes its parts."""

from numbers import Real
from typing import Any, Literal, get_args

from torch import Tensor
from torch.nn import Module

from natgrad._checks import flag, integer, number
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim._arguments import literal, rule
from natgrad.optim._capture.sources import Source
from natgrad.optim._curvature.block import DiagonalBlock, KroneckerBlock
from natgrad.optim._curvature.conjugate_gradients import ConjugateGradients
from natgrad.optim._curvature.factor import Factors
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._curvature.preconditioners import BlockDiagonal
from natgrad.optim._curvature.propagated import Chain
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim.damping import Adaptive, Damping, Fixed, Scheduled, Split
from natgrad.optim.step_length import EqualShare, PerLayer, Quadratic, StepLength

Method = Literal["kronecker", "whitening", "diagonal", "conjugate_gradients"]


def preconditioner(
    model: Module,
    likelihood: Likelihood,
    coverage: Coverage,
    *,
    factors: Factors,
    method: Method,
    solver: Solver,
    split: Split,
) -> BlockDiagonal | ConjugateGradients:
    """Return what turns gradients into directions."""
    if method == "conjugate_gradients":
        return ConjugateGradients(model, likelihood, iterations=20, tolerance=1e-3)
    layers, memory = coverage.layers, factors.memory
    if method == "diagonal":
        diagonal = {name: DiagonalBlock(layer, memory=memory) for name, layer in layers.items()}
        return BlockDiagonal(coverage, diagonal, memory=memory)
    power = -1.0 if method == "kronecker" else -0.5
    blocks = {
        name: KroneckerBlock(
            layer, memory=memory, split=split, solver=solver, power=power, keep=factors.keep
        )
        for name, layer in layers.items()
    }
    chain = Chain(model, coverage) if factors.source == "propagated" else None
    return BlockDiagonal(coverage, blocks, memory=memory, chain=chain)


def as_damping(damping: Any) -> Damping:
    """Return a rule: the default one, a constant, or the one given."""
    if damping is None:
        return Adaptive()
    if isinstance(damping, (Real, Tensor)) and not isinstance(damping, bool):
        return Fixed(start=number(damping, "damping", low=0))
    rule(damping, "damping", (Adaptive, Fixed, Scheduled), hint="Or pass λ, a number.")
    kept: Damping = damping
    return kept


def as_step_length(step_length: Any) -> StepLength:
    """Return a rule: the default one, or the one given."""
    if step_length is None:
        return Quadratic()
    hint = "lr is the factor on the length."
    rule(step_length, "step_length", (Quadratic, PerLayer, EqualShare), hint=hint)
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
    """Return the number of steps between refreshes; raise a typed error at a wrong option."""
    literal(method, "method", Method)
    literal(solver, "solver", Solver)
    literal(split, "split", Split)
    if reduction is not None:
        literal(reduction, "reduction", Reduction)
    flag(strict, "strict")
    return integer(refresh, "refresh", low=1)
