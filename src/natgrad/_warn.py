"""Warnings that point at the line of the user, however deep inside natgrad they arise."""

import sys
import warnings
from pathlib import Path

import torch

_OURS = (str(Path(__file__).parent), str(Path(torch.__file__).parent))


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost frame that is neither natgrad's nor torch's.

    Example:
        >>> with warnings.catch_warnings(record=True) as record:
        ...     warnings.simplefilter("always")
        ...     warn_user("look here", UserWarning)
        >>> record[0].filename
        '<doctest ...>'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
