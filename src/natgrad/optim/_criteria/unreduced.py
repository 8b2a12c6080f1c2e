"""Criteria with `reduction="none"`: losses that the caller reduces, with any weights.

The weights are known when the backward pass reaches the losses. They may have either sign, as in
policy gradients; their size multiplies the Fisher.
"""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import CrossEntropyLoss, KLDivLoss, Module, NLLLoss

from natgrad.optim._criteria.bound import Bound
from natgrad.optim._criteria.custom import custom
from natgrad.optim._criteria.recognized import Recipe, Rows


def weighted_rows(
    criterion: Module, recipe: Recipe, output: Tensor, target: Tensor, weights: Tensor
) -> tuple[Rows, float]:
    """Return rows of outputs with a loss, and the factor on it that was differentiated.

    Rows whose labels are classes do not count if their weight is zero.

    Args:
        criterion: A criterion of torch's.
        recipe: Its recipe.
        output: Its outputs.
        target: Its labels.
        weights: Derivatives of the total with respect to the losses, in their shape, not all zero.
    """
    summed: Any = copy.copy(criterion)
    summed.reduction = "sum"
    by_class = isinstance(criterion, (CrossEntropyLoss, NLLLoss))
    each = weights.reshape(-1, 1) if by_class else weights.reshape(len(weights), -1)
    if by_class and not target.is_floating_point():
        target = target.masked_fill(weights == 0, summed.ignore_index)
        each = each[target.reshape(-1) != summed.ignore_index]
    rows, bound = recipe(summed, output, target)
    assert isinstance(bound, Bound)
    each, factor = _spread(each, len(rows))

    def losses(f: Tensor) -> Tensor:
        own = each[: len(f)].to(f)
        if own.shape[1] == 1:
            return own[:, 0] * bound.of_rows(f)
        found = criterion.forward(
            f.reshape(len(f), *output.shape[1:]), target.expand(output.shape)[: len(f)]
        )
        weighed: Tensor = own * found.reshape(own.shape)
        return weighed.sum(1)

    return (rows, Bound(bound.base, losses, bound.weights * each.abs(), reduction="sum")), factor


def weighted_custom(
    criterion: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], weights: Tensor
) -> tuple[tuple[Any, ...], Tensor, float]:
    """Return what `custom` does, the loss, and the factor on it that was differentiated."""
    each, factor = _spread(weights, len(weights) if weights.ndim else 1)

    def total(losses: Tensor) -> Tensor:
        return (each.to(losses) * losses).sum()

    loss = total(criterion.forward(*args, **kwargs))
    return custom(criterion, args, kwargs, total), loss, factor


def suits(criterion: Module, output: Tensor, target: Tensor) -> bool:
    """Return whether the losses of a criterion belong to rows or to single outputs."""
    return (
        output.requires_grad and not target.requires_grad and not isinstance(criterion, KLDivLoss)
    )


def _spread(weights: Tensor, n: int) -> tuple[Tensor, float]:
    """Return weights over a factor, and the factor; the sum of absolute weights is then n.

    Example:
        >>> import torch
        >>> _spread(torch.tensor([0.5, 0.0, -0.5]), 2)
        (tensor([ 1.,  0., -1.]), 0.5)
    """
    factor = float(weights.abs().sum()) / n
    return weights / factor, factor
