"""Checks of arguments, made once at the public border.

Each returns the value it checked, in the type the code below works with, or raises an error of
`natgrad.errors` whose sentence says what was expected and what came.

The command line checks its arguments here before it needs torch, so nothing here imports torch
until a tensor comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natgrad._checks._described import describe, is_tensor
from natgrad._checks._tensors import (
    all_finite,
    dense,
    dtype,
    floats,
    generator,
    require_finite,
    same_kind,
    tensor,
)
from natgrad._checks._values import (
    LARGEST_INTEGER,
    choice,
    flag,
    function,
    instance,
    integer,
    integers,
    nearest,
    number,
    numbers,
    path,
    refuse_unknown,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "ALL_FLOATS",
    "FLOATS",
    "LARGEST_INTEGER",
    "all_finite",
    "choice",
    "dense",
    "describe",
    "dtype",
    "flag",
    "function",
    "generator",
    "instance",
    "integer",
    "integers",
    "is_tensor",
    "nearest",
    "number",
    "numbers",
    "path",
    "refuse_unknown",
    "require_finite",
    "same_kind",
    "tensor",
]

FLOATS: tuple[torch.dtype, ...]
"""The dtypes of all computations."""
ALL_FLOATS: tuple[torch.dtype, ...]
"""The dtypes of what is only read, such as a network's outputs."""


def __getattr__(name: str) -> Any:
    """Return `FLOATS` or `ALL_FLOATS`, which need torch."""
    if name not in ("FLOATS", "ALL_FLOATS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import torch

    return floats() if name == "FLOATS" else (torch.bfloat16, torch.float16, *floats())
