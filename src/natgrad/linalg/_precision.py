"""The precision of a dtype, and conversion to double precision."""

import torch
from torch import Tensor

from natgrad._checks import dense, describe, integer
from natgrad.errors import DtypeError


def default_rtol(*shape: int, dtype: torch.dtype) -> float:
    """Return the usual rank cut-off, largest side × machine epsilon.

    Example:
        >>> default_rtol(3, 2, dtype=torch.float64) == 3 * 2.0**-52
        True
    """
    for side in shape:
        if type(side) is not int or not 0 <= side < 2**63:
            integer(side, "each side", low=0)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise DtypeError(f"dtype must be a floating-point dtype, but is {describe(dtype)}.")
    return max(1, *shape) * torch.finfo(dtype).eps


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in double precision, on the CPU if its device does not support it.

    Example:
        >>> widen(torch.ones(2)).dtype
        torch.float64
    """
    dense(tensor, "the tensor")
    if tensor.device.type == "mps":
        return tensor.cpu().double()
    return tensor.double()
