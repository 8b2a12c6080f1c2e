"""Margins in any norm, as shares of the largest."""

from collections.abc import Mapping

import torch
from torch import Tensor

from natgrad._checks import dense, describe, number
from natgrad._named import named
from natgrad.diagnostics._inputs import check_labelled, check_real, check_same_length, fits
from natgrad.errors import DtypeError, InvalidInputError, LabelError, ShapeError
from natgrad.linalg.norms import Norm, as_norm


@named
def norm_margin(beta: Tensor, x: Tensor, y: Tensor, p: float | Norm = 2) -> float:
    """Return the margin of one separator in any norm, of two classes or of many.

    Args:
        beta: Shape `(d,)`; or `(k, d)`, one row per class.
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1; integer classes if β has one row per class.
        p: A power in [1, ∞], or a norm of `natgrad.linalg.norms`.

    Returns:
        float: minₙ yₙ xₙ·β / ‖β‖, or min over n and c ≠ yₙ of (β_y − β_c)·xₙ / ‖β‖; NaN for β = 0.

    Example:
        >>> from natgrad.linalg.norms import Spectral
        >>> x, y = torch.eye(2), torch.tensor([0, 1])
        >>> norm_margin(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), x, y, Spectral())
        1.0
    """
    norm = as_norm(p)
    beta = check_real(beta, "beta")
    size, scale = beta.abs().max(), check_real(x, "X", 2).abs().max().clamp(min=1e-300)
    if size == 0:
        return float("nan")
    unit = beta / size  # so that nothing overflows on the way
    least = _least(unit, x / scale, y)
    return float(fits(least.double() / norm(unit) * scale.double(), "a margin"))


def _least(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the smallest margin, not divided by any length."""
    if beta.ndim == 1:
        x, y = check_labelled(x, y)
        beta, x = check_same_length(beta, x, ("beta", "X"))
        return (y.to(x.dtype) * (x @ beta)).min()
    if beta.ndim != 2 or len(beta) < 2:
        raise ShapeError(
            f"beta must have shape (d,), or (k, d) for k ≥ 2 classes, but has {tuple(beta.shape)}."
        )
    beta, x = check_same_length(beta, x, ("beta", "X"))
    dense(y, "labels")
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ShapeError(
            f"X must have shape (n, d) and y (n,), but have {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise DtypeError(f"labels must be integer classes, but are {y.dtype}; try y.long().")
    if int(y.min()) < 0 or int(y.max()) >= len(beta):
        raise LabelError(f"labels must lie in 0…{len(beta) - 1} for β of {len(beta)} rows.")
    scores = x @ beta.mT
    own = scores.gather(1, y.long()[:, None])
    others = scores.scatter(1, y.long()[:, None], -torch.inf)
    return (own - others).min()


@named
def margin_fractions(
    beta: Tensor, x: Tensor, y: Tensor, best: Mapping[float | Norm, float]
) -> dict[float | Norm, float]:
    """Return the margin of a separator in several norms, as shares of the largest in each.

    Which of them is one says which norm an optimizer maximizes the margin in.

    Args:
        beta: Shape `(d,)`; or `(k, d)`, one row per class.
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1; integer classes if β has one row per class.
        best: The largest margin in each norm, e.g. the `value` of `limits.max_margin`.

    Returns:
        dict: One share per norm, at most one; NaN for β = 0.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.ones(1)
        >>> found = margin_fractions(torch.tensor([3.0, 4.0]), x, y, {2: 5.0, float("inf"): 7.0})
        >>> {p: round(share, 3) for p, share in found.items()}
        {2: 1.0, inf: 0.893}
    """
    if not isinstance(best, Mapping) or not best:
        raise DtypeError(
            "best must map norms to their largest margins, e.g. {2: max_margin(x, y).value}, but "
            f"is {describe(best)}."
        )
    found = {}
    for p, value in best.items():
        largest = number(value, "a largest margin", low=0, low_open=True)
        found[p] = norm_margin(beta, x, y, p) / largest
        if found[p] > 1 + 1e-6:
            raise InvalidInputError(
                f"the margin in {as_norm(p)!r} is {found[p]:.6g} times the largest that was given: "
                "best belongs to other data, or to another norm."
            )
    return found
