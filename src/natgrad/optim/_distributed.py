"""Several processes that train one model together, or one alone."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import Module

from natgrad._warn import warn_user


class World:
    """A single process; sums over processes change nothing.

    Attributes:
        size: Number of processes.
        rank: Number of this process.

    Example:
        >>> World().sum([1.0, 2.0])
        [1.0, 2.0]
    """

    size, rank = 1, 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums of numbers over processes."""
        return list(values)

    def share(self, owner: int | None) -> float:
        """Return the share of this process in a sum over those that hold something: one or all."""
        return 1.0 / self.size if owner is None else float(owner == self.rank)

    def add_up(self, tensors: Sequence[Tensor], to: int | None = None) -> None:
        """Replace tensors by their sums over processes, in all of them or in one."""

    def gather(self, value: Any, to: int) -> list[Any] | None:
        """Return the values of all processes in one of them, None in the others."""
        return [value]

    def send(self, tensors: Sequence[Tensor], source: int) -> None:
        """Replace tensors by those of one process."""


class Ranks(World):
    """The processes of a `DistributedDataParallel` model, which hold parts of one batch.

    Args:
        group: The process group.
        device: Where numbers are summed.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        self.group, self.device = group, device
        self.size, self.rank = distributed.get_world_size(group), distributed.get_rank(group)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums of numbers over processes."""
        held = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        self.add_up([held])
        out: list[float] = held.tolist()
        return out

    def add_up(self, tensors: Sequence[Tensor], to: int | None = None) -> None:
        """Replace tensors by their sums over processes, in all of them or in one."""
        for tensor in tensors:
            if to is None:
                self._try(partial(distributed.all_reduce, tensor, group=self.group))
            else:
                target = distributed.get_global_rank(self.group, to)
                self._try(partial(distributed.reduce, tensor, target, group=self.group))

    def gather(self, value: Any, to: int) -> list[Any] | None:
        """Return the values of all processes in one of them, None in the others."""
        found: list[Any] | None = [None] * self.size if to == self.rank else None
        target = distributed.get_global_rank(self.group, to)
        self._try(partial(distributed.gather_object, value, found, target, group=self.group))
        return found

    def send(self, tensors: Sequence[Tensor], source: int) -> None:
        """Replace tensors by those of one process."""
        origin = distributed.get_global_rank(self.group, source)
        for tensor in tensors:
            self._try(partial(distributed.broadcast, tensor, origin, group=self.group))

    def _try(self, exchange: Callable[[], object]) -> None:
        try:
            exchange()
        except RuntimeError as error:
            raise RuntimeError(
                f"process {self.rank} of {self.size} lost another one in the middle of a step; "
                "this run cannot go on. Start all of them again from the last checkpoint."
            ) from error


def unwrap(model: Module) -> tuple[Module, bool, World]:
    """Return the model inside wrappers, whether it is compiled, and the processes that train it.

    Example:
        >>> inner, compiled, world = unwrap(torch.nn.Linear(1, 1))
        >>> type(inner).__name__, compiled, world.size
        ('Linear', False, 1)
    """
    compiled, world = False, World()
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            world = Ranks(model.process_group, next(model.parameters()).device)
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), Module):  # torch.compile's wrapper
            compiled, model = True, model._orig_mod  # type: ignore[assignment]
        else:
            _warn_if_alone(world)
            return model, compiled, world


def _warn_if_alone(world: World) -> None:
    if world.size == 1 and distributed.is_available() and distributed.is_initialized():
        if (size := distributed.get_world_size()) > 1:
            warn_user(
                f"{size} processes run, but the model is not a DistributedDataParallel one: "
                "factors and step lengths are those of this process alone, and copies of one model "
                "drift apart. Wrap the model first and give NGD the wrapped one.",
                UserWarning,
            )
