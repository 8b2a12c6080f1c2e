"""The peers of the race that run on torch, and their cell.

This module does not import NGD, so the peers' stored results stay valid when NGD changes.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import Conv2d, Linear, Module

from natgrad.errors import InvalidInputError
from natgrad.experiments.race._muon import Muon
from natgrad.experiments.race.problems import Problem, load
from natgrad.experiments.race.training import Learning, Run, train
from natgrad.lab.cell import Result

_RMSPROP = 3  # LayerWiseGrafting.RMSPROP of pytorch-optimizer
Optimizers = Sequence[torch.optim.Optimizer]


class Peer(Learning):
    """Plain backpropagation with torch optimizers."""

    def __init__(self, run: Run, problem: Problem, model: Module) -> None:
        super().__init__(problem, model, run.settings)
        assert run.settings.lr is not None
        self.optimizers = OPTIMIZERS[run.method](model, run.settings.lr)
        self._rates = [
            [group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers
        ]

    def step(self, x: Tensor, y: Tensor) -> None:
        """Learn from a batch."""
        loss = self.problem.loss(self.model(x), y)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()

    def scale(self, factor: float) -> None:
        """Set the learning rates to this factor of the initial ones."""
        for optimizer, rates in zip(self.optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = factor * rate


def _sgd(model: Module, lr: float) -> Optimizers:
    return [torch.optim.SGD(model.parameters(), lr=lr)]


def _nesterov(model: Module, lr: float) -> Optimizers:
    return [torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)]


def _adamw(model: Module, lr: float) -> Optimizers:
    return [torch.optim.AdamW(model.parameters(), lr=lr)]


def _muon(model: Module, lr: float) -> Optimizers:
    """Return Muon for the weights of layers, AdamW for the rest: embeddings, head, vectors."""
    matrices: list[Tensor] = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, Linear | Conv2d) and not name.endswith("head")
    ]
    taken = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in taken]
    return [Muon(matrices, lr=lr), torch.optim.AdamW(rest, lr=0.1 * lr)]


def _soap(model: Module, lr: float) -> Optimizers:
    return [collection().SOAP(model.parameters(), lr=lr)]


def _shampoo(model: Module, lr: float) -> Optimizers:
    """Return Shampoo with RMSprop's step lengths.

    The roots are updated every ten steps. The package's default, every thousand, is meant for runs
    of many thousand steps.
    """
    return [
        collection().ScalableShampoo(
            model.parameters(),
            lr=lr,
            betas=(0.9, 0.95),
            moving_average_for_momentum=True,
            start_preconditioning_step=10,
            preconditioning_compute_steps=10,
            graft_type=_RMSPROP,
        )
    ]


def collection() -> Any:
    """Return the package pytorch-optimizer.

    Raises:
        InvalidInputError: If it is not installed.
    """
    try:
        return import_module("pytorch_optimizer")
    except ImportError as error:
        raise InvalidInputError(
            "SOAP and Shampoo come from pytorch-optimizer, which is not installed; pip install "
            "natgrad[bench]."
        ) from error


OPTIMIZERS: dict[str, Callable[[Module, float], Optimizers]] = {
    "SGD": _sgd,
    "Nesterov": _nesterov,
    "AdamW": _adamw,
    "Muon": _muon,
    "SOAP": _soap,
    "Shampoo": _shampoo,
}
"""Makes the optimizers of each peer, from a network and a learning rate."""


def peer(run: Run) -> Result:
    """Return the curve of a peer."""
    return train(run, load(run.problem), Peer)
