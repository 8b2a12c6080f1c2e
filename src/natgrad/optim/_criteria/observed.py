"""Observers for the calls of any kind of criterion."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from natgrad._checks import describe
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.likelihoods import Gaussian, Likelihood
from natgrad.optim._criteria.custom import custom
from natgrad.optim._criteria.recognized import recipe_of
from natgrad.optim._criteria.unreduced import suits, weighted_custom, weighted_rows

Criterion = Likelihood | Module | Sequence[Any]
"""The type of `NGD`'s second argument; the members of a sequence are criteria, too."""

Heard = Callable[..., None]
"""Called with the likelihood of a call, its outputs as rows, their labels, and the loss; also with
the tensors from which the rows were made, if there are several, and with `weight`, the derivative
of the total in the loss, if that is known already."""


class Observed(ABC):
    """A criterion whose calls can be observed.

    Attributes:
        base: A likelihood with the same outputs, for use before the first call.
    """

    base: Likelihood

    @abstractmethod
    def watch(self, heard: Heard) -> list[RemovableHandle]:
        """Call a function after every call of the criterion, until the handles are removed."""


class OfLikelihood(Observed):
    """A likelihood, which is its own criterion."""

    def __init__(self, likelihood: Likelihood) -> None:
        self.base = likelihood

    def watch(self, heard: Heard) -> list[RemovableHandle]:
        """Observe the calls of the likelihood."""
        return [self.base.observe(partial(heard, self.base))]


class OfModule(Observed):
    """A criterion that is a module: torch's or a custom one."""

    def __init__(self, criterion: Module) -> None:
        self.criterion, self._recipe = criterion, recipe_of(criterion)
        self.base = Gaussian() if self._recipe is None else self._recipe[1]()
        reduction = getattr(criterion, "reduction", "mean")
        if reduction not in ("mean", "sum", "batchmean", "none"):
            raise InvalidInputError(
                f"{type(criterion).__name__}(reduction={reduction!r}) does not say how its losses "
                "are averaged. Use 'mean', 'sum' or 'none'."
            )
        self._unreduced = reduction == "none"

    def watch(self, heard: Heard) -> list[RemovableHandle]:
        """Hook the module's forward."""

        def after(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Any) -> None:
            if (
                not torch.is_grad_enabled()
                or not isinstance(loss, Tensor)
                or not loss.requires_grad
            ):
                return
            if self._unreduced:  # how the caller reduces the losses is known in the backward pass
                loss.register_hook(partial(self._reduced, heard, args, kwargs))  # type: ignore[no-untyped-call]
                return
            rows, likelihood, *parts = self._rows(args, kwargs, loss)
            heard(likelihood, rows, rows.detach().new_empty(len(rows), 0), loss, *parts)

        return [self.criterion.register_forward_hook(after, with_kwargs=True)]

    def _reduced(
        self, heard: Heard, args: tuple[Any, ...], kwargs: Mapping[str, Any], weights: Tensor
    ) -> None:
        """Tell of losses without reduction, given the derivative of the total in each of them."""
        weights = weights.detach()
        if not bool(weights.any()):
            return
        with torch.enable_grad():
            given = inspect.signature(self.criterion.forward).bind(*args, **kwargs).arguments
            output, target = list(given.values())[:2]
            if self._recipe is not None and suits(self.criterion, output, target):
                (rows, likelihood), factor = weighted_rows(
                    self.criterion, self._recipe[0], output, target, weights
                )
                parts, loss = [], likelihood(rows, rows.detach().new_empty(len(rows), 0))
            else:
                found, loss, factor = weighted_custom(self.criterion, args, kwargs, weights)
                rows, likelihood, *parts = found
            labels = rows.detach().new_empty(len(rows), 0)
            heard(likelihood, rows, labels, loss, *parts, weight=factor)

    def _rows(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], loss: Tensor
    ) -> tuple[Any, ...]:
        if loss.numel() != 1:
            raise ShapeError(
                f"{type(self.criterion).__name__} returned a loss of shape {tuple(loss.shape)}, "
                "but must return one number."
            )
        if self._recipe is not None:
            given = inspect.signature(self.criterion.forward).bind(*args, **kwargs).arguments
            output, target = list(given.values())[:2]
            if output.requires_grad and not target.requires_grad:
                return self._recipe[0](self.criterion, output, target)
        return custom(self.criterion, args, kwargs)


class Several(Observed):
    """Several criteria, whose losses are added: one for each head of a model."""

    def __init__(self, parts: Sequence[Observed]) -> None:
        self.parts, self.base = parts, parts[0].base

    def watch(self, heard: Heard) -> list[RemovableHandle]:
        """Observe the calls of all criteria."""
        return [handle for part in self.parts for handle in part.watch(heard)]


def observed(criterion: Any) -> Observed:
    """Return an observable criterion.

    Args:
        criterion: A likelihood, a criterion of torch's, another module that computes a loss, or a
            list of such for a loss that is their sum.

    Raises:
        DtypeError: If it is something else.

    Example:
        >>> observed(torch.nn.MSELoss()).base
        Gaussian(reduction='mean')
    """
    if isinstance(criterion, Likelihood):
        return OfLikelihood(criterion)
    if isinstance(criterion, Module):
        return OfModule(criterion)
    if isinstance(criterion, (list, tuple)) and criterion:
        return Several([observed(part) for part in criterion])
    kind = criterion.__name__ if isinstance(criterion, type) else type(criterion).__name__
    hint = ""
    if isinstance(criterion, type) and issubclass(criterion, (Likelihood, Module)):
        hint = f" Did you mean {kind}()?"
    elif callable(criterion):
        hint = (
            " The calls of a function cannot be seen: wrap it, loss = natgrad.optim.Loss(function),"
            " and call the wrapped one."
        )
    raise DtypeError(
        "the second argument must be a criterion such as torch.nn.CrossEntropyLoss() or "
        f"natgrad.Categorical(), but is {describe(criterion)}.{hint}"
    )
