"""Rows of unit length: data whose rows differ in size by orders of magnitude need it."""

from typing import NamedTuple

import torch
from torch import Tensor


class Balanced(NamedTuple):
    """The constraint Ab ≥ 1 as R b′ ≥ h with rows of R of unit length, 0 < h ≤ 1, b = `size` b′.

    Multipliers of Ab ≥ 1 are those of R b′ ≥ h divided by `norms` (times `size` for ½‖b‖²).
    """

    rows: Tensor
    h: Tensor
    norms: Tensor
    size: float


def balance(a: Tensor) -> Balanced:
    """Return the rows of A scaled to unit length; zero rows stay."""
    norms = a.norm(dim=1)
    norms = torch.where(norms > 0, norms, 1.0)
    size = 1 / float(norms.min())
    return Balanced(a / norms[:, None], 1 / (norms * size), norms, size)
