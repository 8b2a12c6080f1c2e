"""Margins certified without a solver: weights of the samples bound the margin of all separators."""

import math
from dataclasses import dataclass

from torch import Tensor

from natgrad._checks import instance, tensor
from natgrad._named import named
from natgrad.errors import InvalidInputError, ShapeError, VelocityOverflowError
from natgrad.likelihoods import Likelihood
from natgrad.limits._inputs import check_targets, class_rows, signed_rows
from natgrad.limits._solvers.scaling import scaled, unit_size
from natgrad.linalg._precision import widen
from natgrad.linalg.norms import Norm, as_norm


@dataclass(frozen=True)
class Certified:
    """A margin, and a bound that no separator exceeds.

    Attributes:
        margin: min over samples of yₙ xₙ·β / ‖β‖, or of (β_y − β_c)·xₙ / ‖β‖.
        bound: ‖X̃ᵀλ‖* / Σλ ≥ every margin in this norm.
        fraction: margin / bound: at least this share of the largest margin is reached.

    Example:
        >>> import torch
        >>> from natgrad.limits import certify
        >>> x, y = torch.eye(2), torch.ones(2)
        >>> certify(torch.ones(2), torch.ones(2), x, y).fraction >= 1 - 1e-7
        True
    """

    margin: float
    bound: float
    fraction: float


@named
def certify(beta: Tensor, weights: Tensor, x: Tensor, y: Tensor, p: float | Norm = 2) -> Certified:
    """Return the margin of β and the bound on all margins that weights λ prove.

    Weak duality: minₙ yₙ xₙ·β / ‖β‖ ≤ ‖X̃ᵀλ‖* / Σλ for every β and every λ ≥ 0. No solver is
    involved. Descents provide weights: the gradient of the loss is −X̃ᵀλ, where λ are the
    `gradient_weights`, and their average along a descent in the norm tends to the best λ.

    Args:
        beta: A separator, shape `(d,)`, or one row per class, shape `(k, d)`.
        weights: λ ≥ 0, not all zero: shape `(n,)`, or `(n, k)` with several classes, where the
            entries at the rows' own classes are ignored.
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, or integer classes if β has one row per class.
        p: A power in [1, ∞], or any norm of `natgrad.linalg.norms`.

    Raises:
        InvalidInputError: If a weight is negative, all are zero, or β is zero.

    Example:
        >>> import torch
        >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> found = certify(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), x, torch.ones(2))
        >>> round(found.margin, 4), round(found.bound, 4)
        (0.8944, 0.8944)
    """
    norm = as_norm(p)
    tensor(beta, "beta", shape=None)
    if beta.ndim == 1:
        a = signed_rows(x, y)
        lam = widen(check_targets(weights, x, "weights"))
    else:
        a, wrong, k = class_rows(x, y, _rows(beta))
        given = widen(tensor(weights, "weights", shape=(len(x), k))).cpu()
        lam = given[wrong]
    if beta.shape[-1] != x.shape[1]:
        raise ShapeError(f"beta has {beta.shape[-1]} features, but X has {x.shape[1]}.")
    if not (bool((lam >= 0).all()) and 0 < float(lam.sum()) < float("inf")):
        raise InvalidInputError("weights must be finite, at least 0, and not all zero.")
    b = widen(beta.detach()).cpu()
    if not bool(b.any()):
        raise InvalidInputError("beta is zero: it separates nothing and has no margin.")
    (b, _), (a, size) = unit_size(b), unit_size(a)
    lam = lam / lam.sum()
    margin = float((a @ b.reshape(-1)).min()) / norm(b)
    bound = norm.dual()((a.mT @ lam).reshape(b.shape))
    found = Certified(scaled(margin, size), scaled(bound, size), margin / bound if bound else 0.0)
    if not math.isfinite(found.bound):
        raise VelocityOverflowError("the bound overflows float64. Divide X by a constant first.")
    return found


def _rows(beta: Tensor) -> int:
    if beta.ndim != 2 or len(beta) < 2:
        raise ShapeError(
            f"beta must have shape (d,), or (k, d) for k ≥ 2 classes, but has {tuple(beta.shape)}."
        )
    return len(beta)


@named
def gradient_weights(likelihood: Likelihood, outputs: Tensor, y: Tensor) -> Tensor:
    """Return λ ≥ 0 with Σλ = 1 such that −X̃ᵀλ is along the gradient of the loss in β.

    For `Bernoulli` λₙ ∝ σ(−yₙsₙ), for `Categorical` λ_{nc} ∝ p_c, c ≠ yₙ. Late in a descent they
    concentrate on the support vectors; averaged over a normalized descent they certify its margin.

    Args:
        likelihood: `Bernoulli` or `Categorical`.
        outputs: Logits, shape `(n,)` or `(n, k)`.
        y: Labels, in the form that the likelihood accepts.

    Returns:
        Tensor: Shape `(n,)`, or `(n, k)` with zeros at the rows' own classes.

    Example:
        >>> import torch
        >>> from natgrad import Bernoulli
        >>> gradient_weights(Bernoulli(), torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor([0.5000, 0.5000])
    """
    instance(likelihood, "likelihood", Likelihood)
    gradient = likelihood.gradient(outputs, y)
    lam = gradient.clamp(min=0) if gradient.ndim > y.ndim else gradient.abs()
    if likelihood.attained or not 0 < float(lam.sum()) < math.inf:
        raise InvalidInputError(
            "gradient weights need the loss of a classifier, Bernoulli or Categorical, with a "
            f"gradient that has not vanished; {likelihood!r} has none here."
        )
    return lam / lam.sum()
