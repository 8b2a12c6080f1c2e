"""What Figure 3 measures in a response."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

METHODS = ("egf", "egd", "ngf", "ngd")


def off_entry(response: Floats) -> Floats:
    """Return the largest response elsewhere over that of the observed entry."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest


def off_cross(response: Floats) -> Floats:
    """Return the same outside the observed entry's row and column."""
    middle = response.shape[-1] // 2
    rest = response.copy()
    rest[..., middle, :] = 0
    rest[..., :, middle] = 0
    largest: Floats = np.abs(rest).max(axis=(-2, -1)) / np.abs(response[..., middle, middle])
    return largest
