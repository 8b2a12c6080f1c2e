"""Separators of two or more classes, their scores and their probabilities."""

import math
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from natgrad._checks import integer, number, tensor
from natgrad.errors import ConvergenceError, InvalidInputError, LabelError
from natgrad.fits.penalties import fit_penalty
from natgrad.fits.separators import Separator, fit_separator
from natgrad.limits import SeparabilityError, multiclass_max_margin

__all__ = ["PENALTIES", "balanced_rows", "fit_classes", "log_probabilities", "predicted"]

PENALTIES = ("ℓ2 penalty", "ℓ1 penalty")
"""Methods with a strength instead of a time."""

_JOINT = {"ℓ2 max margin": 2, "ℓ1 max margin": 1}
_POWERS = {"ℓ2 penalty": 2, "ℓ1 penalty": 1}


def fit_classes(
    method: str,
    x: Tensor,
    labels: Tensor,
    classes: int,
    *,
    inputs: Tensor | None = None,
    until: float = 1e6,
    natural_until: float = 10.0,
    scale: float = 0.1,
    times: Tensor | None = None,
    free: int = 0,
) -> Separator:
    """Fit one method to two or more classes.

    Two classes have one separator, positive for the second class. With more, the max margins are
    joint (`limits.multiclass_max_margin`), and all other methods fit one separator for each class
    against the rest. The largest score decides.

    Args:
        method: One of `methods` or of `PENALTIES`.
        x: Inputs, float64, `(n, d)`.
        labels: Index of each row's class, `(n,)`.
        classes: Number of classes.
        inputs: Inputs over which the population Fisher is averaged; by default `x`.
        until: Final time of EGD, on the mean loss.
        natural_until: Final time of NGD.
        scale: Initial value of all factors of EGD except the first, which is zero.
        times: Increasing times at which the separators of a flow are wanted; for a penalty, the
            inverse strengths 1/λ, which it needs.
        free: How many of the first features carry no penalty.

    Returns:
        Separator: `beta` is `(1, d)` for two classes, else `(classes, d)`; `path` has a leading
        axis of times. `beta` is NaN where the method has no answer.

    Raises:
        InvalidInputError: If there is no such method, or an argument cannot be used.

    Example:
        >>> x = torch.eye(3, dtype=torch.float64)
        >>> found = fit_classes("ℓ2 max margin", x, torch.arange(3), 3)
        >>> predicted(x @ found.beta.mT).tolist()
        [0, 1, 2]
    """
    x = tensor(x, "x", shape=("n", "d"), dtypes=(torch.float64,))
    classes = integer(classes, "classes", low=2)
    labels = _codes(labels, len(x), classes)

    def one(k: int) -> Separator:
        signs = torch.where(labels == k, 1.0, -1.0).double()
        if method in _POWERS:
            if times is None:
                raise InvalidInputError(f"{method} needs times: its inverse strengths 1/λ.")
            path = fit_penalty(_POWERS[method], x, signs, 1 / times, free=free)  # type: ignore[arg-type]
            return Separator(path[-1], path=path)
        return fit_separator(
            method,
            x,
            signs,
            inputs=inputs,
            until=until,
            natural_until=natural_until,
            scale=scale,
            times=times,
        )

    if classes == 2:
        found = [one(1)]
    elif isinstance(method, str) and method in _JOINT:
        return _joint(x, labels, classes, _JOINT[method])
    else:
        found = [one(k) for k in range(classes)]
    ends = [each.early for each in found if not math.isnan(each.early)]
    paths = [each.path for each in found if each.path is not None]
    return Separator(
        torch.stack([each.beta for each in found]),
        min(ends, default=math.nan),
        torch.stack(paths, dim=1) if paths else None,
    )


def predicted(scores: Tensor) -> Tensor:
    """Return the index of the class with the largest score; one column is that of the second.

    Example:
        >>> predicted(torch.tensor([[-1.0], [2.0]])).tolist()
        [0, 1]
    """
    tensor(scores, "scores")
    _has_columns(scores)
    if scores.shape[-1] == 1:
        return (scores[..., 0] > 0).long()
    found: Tensor = scores.argmax(-1)
    return found


def log_probabilities(scores: Tensor, *, coupling: float = 0.0) -> Tensor:
    """Return the logarithms of the classes' probabilities, `(…, classes)`.

    Two classes have σ(s). With more, each class has σ(s_c) / σ(−s_c)^coupling, divided by their
    sum. Coupling 0 is right if each σ(s_c) is the probability of its class. Coupling 1 is softmax,
    which trusts only the odds: better for a class that lies between others, whose own separator
    says little. Held-out rows can choose between the two.

    Args:
        scores: One column for two classes, else one for each class, `(…, n, k)`.
        coupling: From 0 to 1.

    Example:
        >>> log_probabilities(torch.zeros(1, 1)).exp()
        tensor([[0.5000, 0.5000]])
        >>> log_probabilities(torch.tensor([[5.0, -0.5, -5.0]])).exp()[0, 0] < 0.73
        tensor(True)
        >>> log_probabilities(torch.tensor([[5.0, -0.5, -5.0]]), coupling=1.0).exp()[0, 0] > 0.99
        tensor(True)
    """
    tensor(scores, "scores")
    _has_columns(scores)
    coupling = number(coupling, "coupling", low=0, high=1)
    if scores.shape[-1] == 1:
        return torch.cat([logsigmoid(-scores), logsigmoid(scores)], dim=-1)
    return torch.log_softmax(logsigmoid(scores) - coupling * logsigmoid(-scores), dim=-1)


def balanced_rows(labels: Tensor, classes: int) -> Tensor:
    """Return indices of rows, repeated so that all classes have about equally many.

    Repeating a row r times gives it the weight r in every mean. Repeats are small whole numbers,
    the smallest for which the classes' sums differ by at most a tenth, or thirds of the ratio.

    Args:
        labels: Index of each row's class.
        classes: Number of classes.

    Example:
        >>> balanced_rows(torch.tensor([0, 0, 0, 0, 1, 1]), 2).tolist()
        [0, 1, 2, 3, 4, 4, 5, 5]
    """
    classes = integer(classes, "classes", low=2)
    labels = _codes(labels, None, classes)
    counts = torch.bincount(labels, minlength=classes).clamp(min=1).tolist()
    ratios = [Fraction(max(counts), count) for count in counts]
    for base in (1, 2, 3):
        repeats = [max(1, round(base * ratio)) for ratio in ratios]
        off = [float(r / (base * ratio)) for r, ratio in zip(repeats, ratios, strict=True)]
        if max(off) / min(off) <= 1.1:
            break
    return torch.arange(len(labels)).repeat_interleave(torch.tensor(repeats)[labels])


def _has_columns(scores: Tensor) -> None:
    if scores.ndim < 2 or scores.shape[-1] == 0:
        raise InvalidInputError(
            f"scores must have shape (…, n, classes), but have {tuple(scores.shape)}."
        )


def _codes(labels: Tensor, rows: int | None, classes: int) -> Tensor:
    labels = tensor(labels, "labels", shape=("n" if rows is None else rows,), dtypes=(torch.int64,))
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise LabelError(f"labels must be integers from 0 to {classes - 1}.")
    return labels


def _joint(x: Tensor, labels: Tensor, classes: int, p: int) -> Separator:
    try:
        return Separator(multiclass_max_margin(x, labels, p, classes=classes).solution)
    except (SeparabilityError, ConvergenceError):
        return Separator(torch.full((classes, x.shape[1]), math.nan, dtype=torch.float64))
