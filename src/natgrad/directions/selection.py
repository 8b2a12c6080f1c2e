"""The choice among the many natural gradients of an over-parametrized model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from natgrad._checks import describe
from natgrad._named import options
from natgrad.errors import InvalidInputError

__all__ = ["LayerShares", "Selection"]


@options
@dataclass(frozen=True)
class LayerShares:
    """Let layer l alone produce the fraction weights[l] of the natural velocity.

    Equal weights are [BLH18] (16) and [KMH21] (51) as corrected; a one-hot vector moves a single
    layer. Each layer takes the shortest direction that produces its share.

    Attributes:
        weights: One number per layer, summing to one; negative ones are allowed.

    Example:
        >>> LayerShares((0.5, 0.5)).weights
        (0.5, 0.5)
    """

    weights: tuple[float, ...]

    def __init__(self, weights: Sequence[float]) -> None:
        try:
            values = tuple(float(w) for w in weights)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise InvalidInputError(
                f"LayerShares takes one number per layer, but got {describe(weights)}."
            ) from error
        if not values or not abs(sum(values) - 1) <= 1e-9:
            raise InvalidInputError(
                f"the weights of LayerShares must sum to one, but {values} sum to {sum(values):g}."
            )
        object.__setattr__(self, "weights", values)


Selection = Literal["min_norm", "equal_share"] | LayerShares
"""`"min_norm"` ([KMH21] 5), `"equal_share"` ([BLH18] 16), or `LayerShares(weights)`."""


def resolve_shares(selection: Selection, layers: int) -> tuple[float, ...] | None:
    """Return one weight per layer, or None for the minimum norm."""
    if isinstance(selection, str) and selection == "min_norm":
        return None
    if isinstance(selection, str) and selection == "equal_share":
        return (1 / layers,) * layers
    if isinstance(selection, LayerShares):
        if len(selection.weights) != layers:
            raise InvalidInputError(
                f"LayerShares has {len(selection.weights)} weights, but the model has {layers} "
                "layers."
            )
        return selection.weights
    raise InvalidInputError(
        f"selection must be 'min_norm', 'equal_share' or LayerShares(weights), but is "
        f"{describe(selection)}."
    )
