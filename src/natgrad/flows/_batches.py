"""Mini-batches of a descent: which samples each step uses."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

Order = Literal["shuffle", "cyclic", "replacement"]
ORDERS = ("shuffle", "cyclic", "replacement")


def indices(n: int, size: int, order: Order, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Yield the samples of one mini-batch after another, endlessly.

    Args:
        n: Number of samples.
        size: Samples per mini-batch. The last one of an epoch may be smaller.
        order: `"shuffle"` (a new permutation per epoch), `"cyclic"` (the samples in turn) or
            `"replacement"` (independent draws).
        generator: Random generator; None is torch's global one.

    Example:
        >>> batches = indices(3, 2, "cyclic", None)
        >>> [next(batches).tolist() for _ in range(3)]
        [[0, 1], [2], [0, 1]]
    """
    device = torch.device("cpu") if generator is None else generator.device
    while True:
        if order == "replacement":
            yield torch.randint(n, (size,), generator=generator, device=device)
            continue
        shuffled = order == "shuffle"
        epoch = torch.randperm(n, generator=generator, device=device) if shuffled else None
        yield from torch.split(torch.arange(n) if epoch is None else epoch, size)
