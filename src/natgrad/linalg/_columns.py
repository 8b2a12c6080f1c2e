"""Columns scaled to one size by powers of two, without rounding.

A rank means little if one column is 10¹⁵ times as large as the next, because rounding errors of the
larger column hide the smaller one. The rank of columns of one size does not depend on the units of
the features.
"""

import torch
from torch import Tensor

# Columns whose largest entries are within this power of two of each other are left as they are.
_ALIKE = 4


def column_exponents(a: Tensor) -> Tensor | None:
    """Return eⱼ such that column j divided by 2^eⱼ has a largest entry in [½, 1).

    The result is None if all columns already have similar sizes. Columns of zeros get the largest
    eⱼ.

    Example:
        >>> column_exponents(torch.tensor([[1.0, 1e-6], [3.0, 2e-6]]))
        tensor([  2., -18.], dtype=torch.float64)
        >>> column_exponents(torch.eye(2)) is None
        True
    """
    if a.numel() == 0:
        return None
    largest = a.abs().amax(0)
    top = largest.max()
    # One comparison is enough in almost every case, and ratios cost less than exponents.
    if bool(((largest * 2.0**_ALIKE >= top) | (largest == 0)).all()):
        return None
    exponents = torch.frexp(largest)[1].double()
    return torch.where(largest > 0, exponents, exponents[largest > 0].max())


def times_power(x: Tensor, exponents: Tensor | float) -> Tensor:
    """Return x · 2^e, exactly where the result is a normal number of x's dtype.

    The factor is applied in two halves, because 2^e itself may be beyond the range of the dtype.
    """
    e = torch.as_tensor(exponents, dtype=torch.float64, device=x.device)
    half = torch.floor(e / 2)
    return x * torch.exp2(half).to(x.dtype) * torch.exp2(e - half).to(x.dtype)
