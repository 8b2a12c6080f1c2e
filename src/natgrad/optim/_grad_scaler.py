"""What a `torch.amp.GradScaler` did to the gradients."""

from typing import Any

from natgrad.errors import InvalidInputError


def unscaled(optimizer: Any, *, custom: bool) -> float:
    """Return what the gradients were divided by since the criterion's scale was noted.

    Args:
        optimizer: On which a scaler leaves `grad_scale` and `found_inf`.
        custom: Whether the loss is a custom one, whose scale is not noted.

    Raises:
        InvalidInputError: If the gradients were unscaled by a scaler that is not known.
    """
    scale = getattr(optimizer, "grad_scale", None)  # a GradScaler's, if it left them scaled
    if custom:
        return 1.0 if scale is None else 1.0 / float(scale)
    if not hasattr(optimizer, "found_inf") or scale is not None:
        return 1.0
    if optimizer.scaler is None:
        raise InvalidInputError(
            "the gradients were unscaled by a GradScaler that the optimizer does not know: set "
            "optimizer.scaler = scaler, or leave out unscale_."
        )
    return float(optimizer.scaler.get_scale())
