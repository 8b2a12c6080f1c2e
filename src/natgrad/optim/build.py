"""Checks the arguments of the optimizer, and makes its parts."""

import math
from typing import Literal, get_args

from torch import Tensor
from torch.nn import Module

from natgrad.errors import DtypeError, InvalidInputError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.optim.blocks import DiagonalBlock, KroneckerBlock
from natgrad.optim.chain import Chain
from natgrad.optim.conjugate_gradients import ConjugateGradients
from natgrad.optim.coverage import Coverage
from natgrad.optim.damping import Adaptive, Damping, Fixed, Split
from natgrad.optim.factors import Factors
from natgrad.optim.inverses import Solver
from natgrad.optim.preconditioners import BlockDiagonal

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


def as_damping(damping: Damping | float | None) -> Damping:
    """Return a rule: the default one, a constant, or the one given."""
    if damping is None:
        return Adaptive()
    return Fixed(start=float(damping)) if isinstance(damping, (int, float)) else damping


def check(
    model: Module,
    likelihood: Likelihood,
    lr: float,
    weight_decay: float,
    refresh: int,
    method: str,
    solver: str,
    reduction: str | None,
) -> list[Tensor]:
    """Return the trainable parameters, or raise a typed error."""
    if not isinstance(model, Module):
        raise DtypeError(f"model must be a torch.nn.Module, but is a {type(model).__name__}.")
    if not isinstance(likelihood, Likelihood):
        raise DtypeError(
            "the second argument must be a likelihood such as natgrad.Categorical(), but is a "
            f"{type(likelihood).__name__}; for a loss of your own also name reduction=."
        )
    params: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not params:
        raise InvalidInputError("the model has no trainable parameter.")
    if not 0 < lr < math.inf:
        raise InvalidInputError(f"lr must be positive, but is {lr!r}.")
    if not 0 <= weight_decay < math.inf:
        raise InvalidInputError(f"weight_decay must be at least 0, but is {weight_decay!r}.")
    if type(refresh) is not int or refresh < 1:
        raise InvalidInputError(f"refresh must be a positive number of steps, but is {refresh!r}.")
    for name, value, known in (("method", method, Method), ("solver", solver, Solver)):
        if value not in get_args(known):
            raise InvalidInputError(
                f"{name} must be one of {', '.join(get_args(known))}, but is {value!r}."
            )
    if reduction not in (None, *get_args(Reduction)):
        raise InvalidInputError(f"reduction must be 'mean' or 'sum', but is {reduction!r}.")
    return params
