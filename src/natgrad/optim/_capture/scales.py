"""Notes about inputs and targets that are not standardized."""

import torch
from torch import Tensor

from natgrad.optim._capture.batch import Batch, Call

# Steps are known to suffer above this root mean square or ratio of standard deviations.
_LARGE, _UNEQUAL = 10.0, 100.0


def scale_notes(batch: Batch) -> list[str]:
    """Return a note for a table of inputs, and one for targets, that were not standardized.

    Args:
        batch: The first batch.
    """
    call = batch.largest
    tables = [] if call.replay is None else [*call.replay.args, *call.replay.kwargs.values()]
    found = [note for x in tables if (note := _inputs(x))][:1]
    note = _targets(call)
    return [*found, note] if note else found


def _inputs(x: object) -> str | None:
    if not (isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point() and len(x) > 1):
        return None
    spread = x.detach().double().std(0)
    size = float(x.detach().double().square().mean(0).sqrt().max())
    moving = spread[spread > 0]
    ratio = float(moving.max() / moving.min()) if len(moving) else 1.0
    if not (size > _LARGE or ratio > _UNEQUAL):
        return None
    return (
        f"the inputs are not standardized: a column has a root mean square of {size:.3g}, and "
        f"standard deviations differ by {ratio:.3g}. Subtract each column's mean and divide by its "
        "standard deviation, or the model may stay at a constant prediction"
    )


def _targets(call: Call) -> str | None:
    """Return a note if residuals are large under a constant Fisher: steps scale with them."""
    if not call.likelihood.constant_fisher or call.y is None:
        return None
    f = call.output.float() if call.output.dtype != torch.float64 else call.output
    gradient = call.likelihood.gradient(f, call.y).reshape(len(f), -1)
    information = call.likelihood.mean_fisher(f).diagonal()
    residual = gradient / call.likelihood.scale(len(f)) / information
    size = float(residual.square().mean().sqrt())
    if not size > _LARGE:
        return None
    return (
        f"the targets are not standardized: residuals have a root mean square of {size:.3g}. "
        "Subtract the targets' mean and divide by their standard deviation"
    )
