"""The options that make `NGD` the method of [BLH18] §5."""

import math
from typing import Any

import torch

from natgrad._checks import integer
from natgrad.errors import InvalidInputError
from natgrad.optim._capture.moments import Factors
from natgrad.optim.damping import Adaptive
from natgrad.optim.step_length import EqualShare


def as_published(
    damping: float,
    floor: float | None,
    samples: int,
    factors: Factors | None,
    precision: torch.dtype,
) -> dict[str, Any]:
    """Return the options: factors of each batch alone, √λ on both, 1/L, every step.

    Args:
        damping: λ at the start.
        floor: Smallest λ; None for one that suits the precision.
        samples: K.
        factors: Those that the user named, if any.
        precision: That of the parameters.

    Raises:
        InvalidInputError: If both `samples` and `factors` are given.
    """
    samples = integer(samples, "samples", low=1)
    if factors is not None and samples != 1:
        raise InvalidInputError(
            "samples and factors were both given: name K in "
            f"factors=Factors(samples={samples}, memory=0, exact_output=False, block=None, "
            "rows=None)."
        )
    if floor is None:
        floor = 1e-10 if precision == torch.float64 else 1e-8
    rule = Adaptive(
        start=damping,
        floor=floor,
        relative_floor=0.0,
        split="equal",
        least_share=0.0,
        reject=math.inf,
    )
    return {
        "momentum": 0.0,
        "weight_average": None,
        "step_length": EqualShare(),
        "damping": rule,
        "factors": Factors(samples=samples, memory=0.0, exact_output=False, block=None, rows=None),
        "refresh": 1,
    }


def as_known_output(samples: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the published method with the last factor in closed form.

    Args:
        samples: K, for the other layers.
        options: Those that the user named.
    """
    samples = integer(samples, "samples", low=1)
    if options.get("factors") is not None:
        return {**options, "samples": samples}
    whole = Factors(samples=samples, memory=0.0, block=None, rows=None)
    return {**options, "factors": whole}
