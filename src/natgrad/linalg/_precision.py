"""What a dtype resolves, and the dtype that resolves more."""

import torch
from torch import Tensor


def default_rtol(*shape: int, dtype: torch.dtype) -> float:
    """Return the usual rank cut-off, largest side × machine epsilon."""
    return max(1, *shape) * torch.finfo(dtype).eps


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in double precision, on the CPU where its device has none."""
    if tensor.device.type == "mps":
        return tensor.cpu().double()
    return tensor.double()
