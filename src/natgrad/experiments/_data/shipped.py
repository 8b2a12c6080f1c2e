"""Small tables that come with scikit-learn, so nothing is fetched."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.errors import InvalidInputError


def diabetes() -> tuple[Tensor, Tensor]:
    """Return 442 patients: ten measurements, and the course of their disease a year later.

    Columns and outcome are standardized; float32, shapes `(442, 10)` and `(442, 1)`.

    Raises:
        InvalidInputError: If scikit-learn is not installed.

    Example:
        >>> x, y = diabetes()
        >>> x.shape, bool(abs(y.mean()) < 1e-6)
        (torch.Size([442, 10]), True)
    """
    table = _datasets().load_diabetes(scaled=False)
    return _standardized(table.data), _standardized(table.target[:, None])


def digits() -> tuple[Tensor, Tensor]:
    """Return 1797 handwritten digits: 64 pixels in [0, 1], float32, and labels 0…9.

    Raises:
        InvalidInputError: If scikit-learn is not installed.

    Example:
        >>> x, y = digits()
        >>> x.shape, float(x.max())
        (torch.Size([1797, 64]), 1.0)
    """
    table = _datasets().load_digits()
    return torch.from_numpy(table.data).float() / 16, torch.from_numpy(table.target).long()


def _datasets() -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InvalidInputError(
            "this table comes with scikit-learn, which is not installed; pip install "
            "scikit-learn, or natgrad[bench]."
        ) from error
    return datasets


def _standardized(values: npt.NDArray[np.float64]) -> Tensor:
    rows = torch.from_numpy(values)
    return ((rows - rows.mean(0)) / rows.std(0)).float()
