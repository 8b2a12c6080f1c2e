"""The peers of the race that run on torch, and their cell.

This module does not import NGD, so the peers' stored results stay valid when NGD changes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import Conv2d, Embedding, Linear, Module, RNNBase

from natgrad.errors import InvalidInputError
from natgrad.experiments.race.entrants.muon import Muon
from natgrad.experiments.race.problems import Problem, load
from natgrad.experiments.race.training import Learning, Run, Settings, count_bytes, train
from natgrad.lab.cell import Result

_RMSPROP = 3  # LayerWiseGrafting.RMSPROP of pytorch-optimizer
Optimizers = Sequence[torch.optim.Optimizer]


class Average:
    """θ̄ ← θ̄ + (a/(k + a)) (θ − θ̄) after step k, of the weights and floating-point buffers.

    Args:
        model: The network.
        exponent: a.

    Example:
        >>> model = Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> average = Average(model, 1.0)
        >>> for value in (3.0, 0.0):
        ...     _ = torch.nn.init.constant_(model.weight, value)
        ...     average.update()
        >>> with average.inside():
        ...     print(model.weight.item())
        1.0
    """

    def __init__(self, model: Module, exponent: float) -> None:
        found = [*model.parameters(), *model.buffers()]
        self._moving = [t.detach() for t in found if t.is_floating_point()]
        self.values = [t.clone() for t in self._moving]
        self._exponent, self._steps = exponent, 0

    @torch.no_grad()
    def update(self) -> None:
        """Add the present weights."""
        self._steps += 1
        weight = self._exponent / (self._steps + self._exponent)
        torch._foreach_lerp_(self.values, self._moving, weight)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Put the average into the network inside the block."""
        held = [t.clone() for t in self._moving]
        torch._foreach_copy_(self._moving, self.values)
        try:
            yield
        finally:
            torch._foreach_copy_(self._moving, held)


class Peer(Learning):
    """Plain backpropagation with torch optimizers."""

    def __init__(self, run: Run, problem: Problem, model: Module) -> None:
        super().__init__(problem, model, run.settings)
        self.optimizers = OPTIMIZERS[run.method](model, run.settings)
        average = run.settings.average
        self.average = None if average is None else Average(model, average)
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
        if self.average is not None:
            self.average.update()

    def judged(self) -> AbstractContextManager[None]:
        """Evaluate the average of the weights, if there is one."""
        return super().judged() if self.average is None else self.average.inside()

    def size(self) -> int:
        """Return the bytes of the optimizers' state, and of the average."""
        kept = [] if self.average is None else self.average.values
        return count_bytes([[dict(o.state) for o in self.optimizers], kept])

    def scale(self, factor: float) -> None:
        """Set the learning rates to this factor of the initial ones."""
        for optimizer, rates in zip(self.optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = factor * rate


def _rate(settings: Settings) -> float:
    assert settings.lr is not None
    return settings.lr


def _momentum(settings: Settings) -> float:
    assert settings.momentum is not None
    return settings.momentum


def _sgd(model: Module, settings: Settings) -> Optimizers:
    """Return SGD, with Nesterov's momentum if there is one."""
    mu = _momentum(settings)
    return [torch.optim.SGD(model.parameters(), lr=_rate(settings), momentum=mu, nesterov=mu > 0)]


def _adamw(model: Module, settings: Settings) -> Optimizers:
    betas = (_momentum(settings), 0.99)
    return [torch.optim.AdamW(model.parameters(), lr=_rate(settings), betas=betas)]


def _muon(model: Module, settings: Settings) -> Optimizers:
    """Return Muon for the weights of layers, AdamW for the rest: embeddings, vectors, a head."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, Embedding)}
    matrices: list[Tensor] = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, Linear | Conv2d)
        and (settings.head or not name.endswith("head"))
        and id(module.weight) not in tables
    ]
    for module in model.modules():
        if isinstance(module, RNNBase):  # their gates are stacked into one matrix
            matrices += [p for p in module.parameters() if p.ndim == 2]
    taken = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in taken]
    lr, mu = _rate(settings), _momentum(settings)
    return [Muon(matrices, lr=lr, momentum=mu), torch.optim.AdamW(rest, lr=0.2 * lr)]


def _soap(model: Module, settings: Settings) -> Optimizers:
    betas = (_momentum(settings), 0.95)
    return [collection().SOAP(model.parameters(), lr=_rate(settings), betas=betas)]


def _shampoo(model: Module, settings: Settings) -> Optimizers:
    """Return Shampoo with RMSprop's step lengths.

    The roots are updated every ten steps. The package's default, every thousand, is meant for runs
    of many thousand steps.
    """
    return [
        collection().ScalableShampoo(
            model.parameters(),
            lr=_rate(settings),
            betas=(_momentum(settings), 0.95),
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


OPTIMIZERS: dict[str, Callable[[Module, Settings], Optimizers]] = {
    "SGD": _sgd,
    "AdamW": _adamw,
    "Muon": _muon,
    "SOAP": _soap,
    "Shampoo": _shampoo,
}
"""Makes the optimizers of each peer, from a network and settings."""


def peer(run: Run) -> Result:
    """Return the curve of a peer."""
    return train(run, load(run.problem), Peer)
