"""torch's own criteria, each as rows, a likelihood and weights."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    Module,
    MSELoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
)
from torch.nn import functional as F

from natgrad.errors import InvalidInputError
from natgrad.likelihoods import Bernoulli, Categorical, Gaussian, Huber, Likelihood, Poisson
from natgrad.optim._criteria.bound import Bound, Losses

Rows = tuple[Tensor, Likelihood]
"""The outputs as rows, with their graph, and the loss of these rows."""

Recipe = Callable[[Module, Tensor, Tensor], Rows]


def cross_entropy(criterion: Module, logits: Tensor, target: Tensor) -> Rows:
    """`CrossEntropyLoss` of class indices or probabilities, any axes, weights, smoothing."""
    assert isinstance(criterion, CrossEntropyLoss)
    weight, smooth = criterion.weight, criterion.label_smoothing
    rows = _classes_last(logits)
    k = rows.shape[1]
    each = torch.ones(k, device=rows.device) if weight is None else weight
    if target.is_floating_point():
        labels = _classes_last(target)
        soft = (1 - smooth) * labels + smooth / k
        weights, total = (soft * each).sum(1), float(len(rows))
    else:
        rows, labels = _kept(rows, target.reshape(-1), criterion.ignore_index)
        own = each[labels]
        weights, total = (1 - smooth) * own + smooth * each.mean(), float(own.sum())

    def losses(f: Tensor) -> Tensor:
        own = None if weight is None else weight.to(f.dtype)
        y = labels[: len(f)]
        y = y.to(f.dtype) if y.is_floating_point() else y
        return F.cross_entropy(f, y, weight=own, label_smoothing=smooth, reduction="none")

    plain = weight is None and not target.is_floating_point()
    return _reduced(criterion, rows, Categorical(), losses, 1.0 if plain else weights, total)


def negative_log_likelihood(criterion: Module, log_p: Tensor, target: Tensor) -> Rows:
    """`NLLLoss` of log-probabilities, which are normalized logits."""
    assert isinstance(criterion, NLLLoss)
    rows, labels = _kept(_classes_last(log_p), target.reshape(-1), criterion.ignore_index)
    _normalized(rows, "NLLLoss", "along the axis of classes")
    weight = criterion.weight

    def losses(f: Tensor) -> Tensor:
        own = None if weight is None else weight.to(f.dtype)
        return F.nll_loss(f, labels[: len(f)], weight=own, reduction="none")

    if weight is None:
        return _reduced(criterion, rows, Categorical(), losses, 1.0, float(len(rows)))
    own = weight[labels]
    return _reduced(criterion, rows, Categorical(), losses, own, float(own.sum()))


def binary_cross_entropy(criterion: Module, logits: Tensor, target: Tensor) -> Rows:
    """`BCEWithLogitsLoss` of labels from 0 to 1, soft ones too, `weight` and `pos_weight`."""
    assert isinstance(criterion, BCEWithLogitsLoss)
    weight, positive = criterion.weight, criterion.pos_weight
    each = torch.ones_like(target) if weight is None else weight.expand(target.shape)
    up = target if positive is None else positive * target
    weights = (each * (up + 1 - target)).reshape(len(target), -1)
    labels, factors = target, each

    def losses(f: Tensor) -> Tensor:
        y, w = (t[: len(f)].to(f.dtype) for t in (labels, factors))
        p = None if positive is None else positive.to(f.dtype)
        found = F.binary_cross_entropy_with_logits(
            f.reshape(y.shape), y, weight=w, pos_weight=p, reduction="none"
        )
        return found.reshape(len(f), -1).sum(1)

    plain = weight is None and positive is None
    rows = logits.reshape(len(logits), -1)
    return _averaged(criterion, rows, Bernoulli(), losses, 1.0 if plain else weights)


def _elementwise(
    base: Likelihood, weight: float, loss: Callable[[Tensor, Tensor], Tensor]
) -> Recipe:
    """Return the recipe of a loss that treats all numbers alike."""

    def recipe(criterion: Module, output: Tensor, target: Tensor) -> Rows:
        rows = output.reshape(len(output), -1)
        labels = target.expand(output.shape).reshape(len(output), -1)

        def losses(f: Tensor) -> Tensor:
            return loss(f, labels[: len(f)].to(f.dtype)).sum(1)

        return _averaged(criterion, rows, base, losses, weight)

    return recipe


def squared_error(criterion: Module, output: Tensor, target: Tensor) -> Rows:
    """`MSELoss`: twice the Gaussian loss, also averaged over outputs."""
    recipe = _elementwise(Gaussian(), 2.0, lambda f, y: (f - y).square())
    return recipe(criterion, output, target)


class _Laplace(Gaussian):
    """Labels with Laplace noise: the Fisher is one, but the loss is no square."""

    squares = False


def absolute_error(criterion: Module, output: Tensor, target: Tensor) -> Rows:
    """`L1Loss`."""
    recipe = _elementwise(_Laplace(), 1.0, lambda f, y: (f - y).abs())
    return recipe(criterion, output, target)


def huber(criterion: Module, output: Tensor, target: Tensor) -> Rows:
    """`HuberLoss`."""
    assert isinstance(criterion, HuberLoss)
    delta = criterion.delta
    recipe = _elementwise(
        Huber(delta), 1.0, lambda f, y: F.huber_loss(f, y, reduction="none", delta=delta)
    )
    return recipe(criterion, output, target)


def smooth_absolute_error(criterion: Module, output: Tensor, target: Tensor) -> Rows:
    """`SmoothL1Loss`: the Huber loss with δ = β, divided by β; for β = 0, `L1Loss`."""
    assert isinstance(criterion, SmoothL1Loss)
    beta = float(criterion.beta)
    if beta == 0:
        return absolute_error(criterion, output, target)
    recipe = _elementwise(
        Huber(beta), 1 / beta, lambda f, y: F.smooth_l1_loss(f, y, reduction="none", beta=beta)
    )
    return recipe(criterion, output, target)


def poisson(criterion: Module, output: Tensor, target: Tensor) -> Rows:
    """`PoissonNLLLoss` of log-rates."""
    assert isinstance(criterion, PoissonNLLLoss)
    full, eps = criterion.full, criterion.eps

    def loss(f: Tensor, y: Tensor) -> Tensor:
        return F.poisson_nll_loss(f, y, log_input=True, full=full, eps=eps, reduction="none")

    return _elementwise(Poisson(), 1.0, loss)(criterion, output, target)


def divergence(criterion: Module, log_p: Tensor, target: Tensor) -> Rows:
    """`KLDivLoss` of log-probabilities over the last axis: `NLLLoss` of soft labels."""
    assert isinstance(criterion, KLDivLoss)
    rows, labels = (t.reshape(-1, log_p.shape[-1]) for t in (log_p, target.expand(log_p.shape)))
    _normalized(rows, "KLDivLoss", "along the last axis")
    logged = criterion.log_target

    def losses(f: Tensor) -> Tensor:
        y = labels[: len(f)].to(f.dtype)
        return F.kl_div(f, y, reduction="none", log_target=logged).sum(1)

    weights = (labels.exp() if logged else labels).sum(1)
    total = len(log_p) if criterion.reduction == "batchmean" else log_p.numel()
    return _reduced(criterion, rows, Categorical(), losses, weights, float(total))


RECIPES: dict[type[Module], tuple[Recipe, Callable[[], Likelihood]]] = {
    CrossEntropyLoss: (cross_entropy, Categorical),
    NLLLoss: (negative_log_likelihood, Categorical),
    KLDivLoss: (divergence, Categorical),
    BCEWithLogitsLoss: (binary_cross_entropy, lambda: Bernoulli(zero_one=True)),
    MSELoss: (squared_error, Gaussian),
    L1Loss: (absolute_error, Gaussian),
    HuberLoss: (huber, Gaussian),
    SmoothL1Loss: (smooth_absolute_error, Gaussian),
    PoissonNLLLoss: (poisson, Poisson),
}
"""The recipe of each criterion, and a likelihood with its outputs and labels."""


def recipe_of(criterion: Module) -> tuple[Recipe, Callable[[], Likelihood]] | None:
    """Return the recipe of a criterion of torch's, or None for any other."""
    if isinstance(criterion, PoissonNLLLoss) and not criterion.log_input:
        return None
    for kind, found in RECIPES.items():
        if isinstance(criterion, kind) and type(criterion).forward is kind.forward:
            return found
    return None


def _normalized(rows: Tensor, name: str, where: str) -> None:
    """Raise unless rows are log-probabilities."""
    excess = float(rows.detach().logsumexp(1).abs().max()) if len(rows) else 0.0
    if excess > 0.1:
        raise InvalidInputError(
            f"{name} needs log-probabilities {where}, but the exponentials of some row do not add "
            "up to one. Put log_softmax in front, or use CrossEntropyLoss."
        )


def _classes_last(x: Tensor) -> Tensor:
    """Return `(n, k, …)`, or `(k,)`, as rows of k."""
    if x.ndim == 2:
        return x
    return x[None] if x.ndim == 1 else x.movedim(1, -1).reshape(-1, x.shape[1])


def _kept(rows: Tensor, labels: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    """Return rows and labels without ignored rows."""
    kept = labels != ignored
    if bool(kept.all()):
        return rows, labels
    if not bool(kept.any()):
        raise InvalidInputError(
            f"all labels of the batch are ignore_index, {ignored}: there is nothing to learn. "
            "Leave out such batches."
        )
    return rows[kept], labels[kept]


def _reduced(
    criterion: Module,
    rows: Tensor,
    base: Likelihood,
    losses: Losses,
    weights: Tensor | float,
    total: float,
) -> Rows:
    """Return a loss whose average is a sum over rows divided by `total`."""
    if criterion.reduction == "sum":
        factor = 1.0
    else:
        factor = len(rows) / total
    weights = factor * weights if isinstance(weights, float) else factor * weights.detach()[:, None]

    def scaled(f: Tensor) -> Tensor:
        found = losses(f)
        return found if factor == 1 else factor * found

    reduction = "sum" if criterion.reduction == "sum" else "mean"
    return rows, Bound(base, scaled, weights, reduction=reduction)  # type: ignore[arg-type]


def _averaged(
    criterion: Module, rows: Tensor, base: Likelihood, losses: Losses, weights: Tensor | float
) -> Rows:
    """Return a loss that is averaged over outputs as well as over rows, unless it is summed."""
    mean = criterion.reduction == "mean"
    factor = 1.0 / rows.shape[1] if mean else 1.0
    reduction = "mean" if mean else "sum"
    bound = Bound(
        base,
        lambda f: factor * losses(f),
        factor * weights,
        reduction=reduction,  # type: ignore[arg-type]
    )
    return rows, bound
