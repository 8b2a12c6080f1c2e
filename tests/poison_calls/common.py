"""The table, and the small data that its calls share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.poison import Call


def real(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def x() -> Tensor:
    return real(4, 2)


def signs() -> Tensor:
    return torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


def separable_x() -> Tensor:
    return (
        signs()[:, None] * torch.tensor([[2.0, 1.0], [1.0, 3.0], [2.0, 2.0], [1.0, 1.0]]).double()
    )


def positions() -> Tensor:
    return torch.tensor([[0, 0], [0, 1], [1, 1]])


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)
    ).double()


def batch() -> tuple[Tensor, Tensor]:
    return x(), signs()


TABLE: dict[str, Callable[[], Call]] = {}


def add(name: str, function: Callable[..., Any], make: Callable[[], dict[str, Any]]) -> None:
    """Enter a function and a maker of its arguments."""
    TABLE[name] = lambda: (function, make())


def add_method(
    name: str, owner: Callable[[], Any], make: Callable[[], dict[str, Any]] = dict
) -> None:
    """Enter a method of an object that is made afresh for each call."""
    TABLE[name] = lambda: (getattr(owner(), name.rpartition(".")[2]), make())
