"""Checks of parameters, inputs and velocities, shared by the parametrizations."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from natgrad._checks import FLOATS, all_finite, dense, describe, integer, number, numbers
from natgrad._checks import dtype as check_dtype
from natgrad._checks import generator as check_generator
from natgrad.errors import (
    DeviceError,
    DtypeError,
    InvalidInputError,
    NonFiniteError,
    SaddlePointError,
    ShapeError,
)
from natgrad.parametrizations.base import Params, leaves


def check_same_structure(v: Any, params: Params) -> None:
    """Raise unless v has the structure, shapes and dtype of the parameters."""
    if type(v) is not type(params) or (isinstance(params, dict) and list(v) != list(params)):
        raise DtypeError(
            f"a direction must have the structure of the parameters, a {type(params).__name__}"
            + (f" with keys {', '.join(params)} in order" if isinstance(params, dict) else "")
            + f", but is a {type(v).__name__}."
        )
    if len(leaves(v)) != len(leaves(params)):
        raise ShapeError(f"expected {len(leaves(params))} tensors, but got {len(leaves(v))}.")
    for t, p in zip(leaves(v), leaves(params), strict=True):
        if isinstance(t, Tensor):
            dense(t, "each tensor of a direction")
        if not isinstance(t, Tensor) or t.shape != p.shape or t.dtype != p.dtype:
            got = (tuple(t.shape), t.dtype) if isinstance(t, Tensor) else type(t).__name__
            raise ShapeError(f"expected a tensor {tuple(p.shape)} of {p.dtype}, but got {got}.")


def check_lift(u: Any, h: Tensor, shares: Sequence[float] | None, layers: int) -> None:
    """Raise unless u is a velocity of h and there is one share per layer."""
    dense(u, "a velocity of the hypothesis")
    if u.shape != h.shape or u.dtype != h.dtype:
        got = (tuple(u.shape), u.dtype)
        raise ShapeError(
            f"a velocity of the hypothesis must be {tuple(h.shape)} of {h.dtype}, but is {got}."
        )
    if not all_finite(u):
        raise NonFiniteError("the velocity to lift must be finite, but holds NaN or infinity.")
    if shares is not None and abs(sum(numbers(shares, "shares", count=layers)) - 1) > 1e-9:
        raise InvalidInputError(
            f"shares must be {layers} numbers, one per layer, that sum to one, but are {shares!r}."
        )


def check_size(n: Any, name: str) -> int:
    """Return n if it is a positive integer, else raise."""
    return integer(n, name, low=1)


def check_init(factors: Sequence[Tensor]) -> None:
    """Raise unless freshly made factors are floating-point and not all zero."""
    check_leaves(factors, "initial parameters")
    check_not_saddle(factors)


def check_depth(depth: int) -> int:
    """Return depth if it is a positive integer, else raise."""
    return integer(depth, "depth", low=1)


def check_random(generator: Any, dtype: Any) -> None:
    """Raise unless factors can be drawn from the generator in the dtype."""
    check_generator(generator)
    check_dtype(dtype)


def check_leaves(tensors: Sequence[Any], name: str) -> None:
    """Raise unless all are finite floating-point tensors of one dtype and device."""
    if len(tensors) == 1 and type(tensors[0]) is Tensor and tensors[0].dtype in FLOATS:
        if all_finite(dense(tensors[0], name)):
            return
    for t in tensors:
        if not isinstance(t, Tensor):
            raise DtypeError(f"{name} must be torch tensors, but one is {describe(t)}.")
        if t.device != tensors[0].device:
            raise DeviceError(
                f"{name} are spread over {tensors[0].device} and {t.device}; move them with .to()."
            )
    for t in tensors:
        dense(t, name)
        if t.dtype not in FLOATS:
            raise DtypeError(
                f"{name} must be floating-point, float32 or float64, but one has {t.dtype}; try "
                ".double()."
            )
        if t.dtype != tensors[0].dtype:
            raise DtypeError(f"{name} mix {tensors[0].dtype} and {t.dtype}; convert with .to().")
    for t in tensors:
        if not all_finite(t):
            raise NonFiniteError(
                f"{name} must be finite, but some entries are NaN or infinite. Has the run "
                "diverged? Try smaller steps."
            )


def check_features(x: Tensor, like: Tensor, width: int) -> None:
    """Raise unless x is a batch of feature vectors `(n, width)` to match the parameters."""
    if x.ndim != 2 or x.shape[1] != width:
        raise ShapeError(
            f"inputs must have shape (n, {width}) for this hypothesis, but have {tuple(x.shape)}."
        )
    check_match(x, like)


def check_match(x: Tensor, like: Tensor) -> None:
    """Raise unless x has the parameters' dtype and device."""
    if x.device != like.device:
        raise DeviceError(
            f"inputs are on {x.device} but parameters on {like.device}; move one with .to()."
        )
    if x.dtype != like.dtype:
        raise DtypeError(
            f"inputs have dtype {x.dtype} but parameters {like.dtype}; convert one with .to()."
        )


def check_not_saddle(factors: Sequence[Tensor]) -> None:
    """Raise `SaddlePointError` if there are several factors and all are zero."""
    if len(factors) > 1 and not any(bool(w.any()) for w in factors):
        raise SaddlePointError(
            f"all {len(factors)} factors are zero: a saddle point, where every direction has zero "
            "velocity and both gradients vanish. Start elsewhere, e.g. with init_free (one factor "
            "zero, the others α > 0) or init_gaussian with a positive scale."
        )


def check_positive(value: float, name: str) -> float:
    """Return value if it is positive and finite; zero is a saddle point."""
    try:
        found = number(value, name, low=0)
    except InvalidInputError:
        raise InvalidInputError(
            f"{name} must be positive and finite, but is {describe(value)}."
        ) from None
    if found == 0:
        raise SaddlePointError(
            f"{name}=0 puts all factors at zero, a saddle point that no gradient leaves. Use a "
            "small positive value, e.g. 1e-3."
        )
    return found
