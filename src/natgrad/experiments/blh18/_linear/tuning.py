"""Trials of learning rates in parallel: one network per rate, all trained on the same batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from natgrad.experiments.blh18._contest import MOMENTUM
from natgrad.experiments.blh18._linear.problems import Problem, make
from natgrad.experiments.blh18._rates import Rule
from natgrad.lab.cell import Result

_BETA = (0.9, 0.999)  # of Adam
_EPSILON = 1e-8


@dataclass(frozen=True)
class Grid:
    """One trial for each rate.

    Attributes:
        problem: What to learn.
        rule: The method.
        batch: Batch size M.
        rates: Learning rates.
        passes: Passes over the training data.
    """

    problem: Problem
    rule: Rule
    batch: int
    rates: tuple[float, ...]
    passes: int


class Updates:
    """SGD, momentum or Adam on stacks of weights, with one rate per network of the stack.

    Args:
        rule: The method.
        rates: Shape `(rates, 1, 1)`.
        weights: W₁ … W_L, each of shape `(rates, out, in)`; changed in place.
    """

    def __init__(self, rule: Rule, rates: Tensor, weights: Sequence[Tensor]) -> None:
        self.rule, self.rates, self.weights = rule, rates, weights
        self.first = [torch.zeros_like(w) for w in weights]
        self.second = [torch.zeros_like(w) for w in weights]
        self.steps = 0

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Take one step."""
        self.steps += 1
        for w, g, m, v in zip(self.weights, gradients, self.first, self.second, strict=True):
            if self.rule == "SGD":
                w.sub_(self.rates * g)
            elif self.rule == "momentum":
                w.sub_(self.rates * m.mul_(MOMENTUM).add_(g))
            else:
                m.lerp_(g, 1 - _BETA[0])
                v.mul_(_BETA[1]).addcmul_(g, g, value=1 - _BETA[1])
                root = (v / (1 - _BETA[1] ** self.steps)).sqrt_().add_(_EPSILON)
                w.sub_(self.rates / (1 - _BETA[0] ** self.steps) * m / root)


def gradients(weights: Sequence[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    """Return gradients of ½|y − W_L ⋯ W₁ x|², averaged over samples, per network of the stack."""
    layers = [x.expand(len(weights[0]), -1, -1)]
    for w in weights:
        layers.append(layers[-1] @ w.mT)
    error = (layers.pop() - y) / len(x)
    found: list[Tensor] = []
    for w in reversed(weights):
        found.append(error.mT @ layers.pop())
        if layers:
            error = error @ w
    return found[::-1]


def grid(config: Grid) -> Result:
    """Return the mean squared validation error at the end, infinite for rates that diverge."""
    task = make(config.problem)
    x, y = task.train
    stack = [w.expand(len(config.rates), -1, -1).clone() for w in task.start]
    update = Updates(config.rule, torch.tensor(config.rates)[:, None, None], stack)
    generator = torch.Generator().manual_seed(config.problem.seed)
    for _ in range(config.passes):
        order = torch.randperm(len(x), generator=generator)
        for first in range(0, len(x), config.batch):
            rows = order[first : first + config.batch]
            update(gradients(stack, x[rows], y[rows]))
    inputs, targets = task.validation
    outputs = inputs.expand(len(config.rates), -1, -1)
    for w in stack:
        outputs = outputs @ w.mT
    errors = (outputs - targets).double().square().mean((1, 2))
    return {"validation": torch.nan_to_num(errors, nan=np.inf).numpy()}
