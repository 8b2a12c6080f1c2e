"""What came, in words."""

from __future__ import annotations

import sys
from numbers import Real
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST = 60
_PRINTED = (str, bytes, Real, complex, type(None))


def describe(value: object) -> str:
    """Return a short name of what came instead of what was expected; never raises.

    Example:
        >>> describe([1, 2]), describe([[1]]), describe(float), describe("adam")
        ('[1, 2]', 'a list of length 1', 'the class float', "'adam'")
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if is_tensor(value):
        if value.is_nested:  # Has no shape.
            return "a nested tensor"
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    items = value if isinstance(value, (tuple, list)) and len(value) < 9 else [value]
    if all(isinstance(v, _PRINTED) for v in items):
        try:
            text = repr(value)
        except ValueError:  # an integer of thousands of digits
            return f"a {type(value).__name__} too long to print"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if isinstance(value, (tuple, list, dict, set)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a {type(value).__name__}"


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether the value is a tensor, which it cannot be before torch is imported."""
    loaded = sys.modules.get("torch")
    return loaded is not None and isinstance(value, loaded.Tensor)
