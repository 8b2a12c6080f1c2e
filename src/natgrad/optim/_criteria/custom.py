"""Custom losses: the errors of the loss itself, and its own second derivative along a step."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import choice
from natgrad._checks import function as check_function
from natgrad._named import options
from natgrad.errors import InvalidInputError, ShapeError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction, Root
from natgrad.likelihoods.base import flatten_outputs, wide

__all__ = ["Loss"]

# Largest number of outputs per sample whose whole second derivative is computed: one backward pass
# through the loss for each of them.
_FEW = 64

# Relative difference of two probes of a second derivative up to which it counts as diagonal.
_ALIKE = 1e-4


@options
class Loss(Module):
    """A criterion made from a function of outputs and labels, so that `NGD` can see its calls.

    The loss may take any number of tensors. It is not treated as a log-likelihood: the absolute
    value of its second derivative in the outputs of each sample stands in for the Fisher (the
    Gauss–Newton matrix, if the loss is convex). If a sample has more than 64 outputs that the loss
    does not treat one by one, as cross-entropies of pixels do, or if torch cannot differentiate the
    loss twice, the squared errors of the loss stand in for it.

    Args:
        function: Returns the loss, a tensor with one number.
        reduction: Whether it averages over samples, `"mean"`, or adds them up, `"sum"`.

    Example:
        >>> import natgrad as ng
        >>> _ = torch.manual_seed(0)
        >>> model, x, y = torch.nn.Linear(2, 1), torch.randn(60, 2), torch.randn(60, 1)
        >>> criterion = Loss(lambda f, y: torch.log(torch.cosh(f - y)).mean())
        >>> optimizer = ng.NGD(model, criterion)
        >>> for _ in range(40):
        ...     optimizer.zero_grad()
        ...     criterion(model(x), y).backward()
        ...     optimizer.step()
        >>> optimizer.statistics.gradient_norm < 0.01
        True
    """

    def __init__(self, function: Callable[..., Tensor], *, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.function = check_function(function, "function")
        self.reduction: Reduction = choice(reduction, "reduction", ("mean", "sum"))

    def forward(self, *args: Any) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.function(*args)
        return loss


class CustomLoss(Likelihood):
    """One call of a custom loss, as a function of the outputs that it depends on.

    Only the whole batch has a loss.

    Args:
        loss: The loss as a function of rows of outputs.
        rows: The outputs of the call, in single precision or wider.
        reduction: How samples are reduced.
    """

    divisible = False

    def __init__(
        self, loss: Callable[[Tensor], Tensor], rows: Tensor, *, reduction: Reduction
    ) -> None:
        super().__init__(reduction=reduction)
        self._loss, self._rows = loss, rows

    @cached_property
    def _errors(self) -> Tensor:
        """The derivative of every sample's loss in its outputs, each taken as independent."""
        return self._gradient(self._rows, self._rows)

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss as reduced."""
        return self._loss(output)

    def prepare(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs as rows; the labels are known."""
        return flatten_outputs(output), y

    def root(self, output: Tensor) -> Root:
        """Return the errors themselves, one contrast per sample."""
        f = flatten_outputs(output)
        errors = self._errors[: len(f)].to(f)
        return Root(errors[:, None, :], f.new_zeros(len(f), 1))

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        raise UnsupportedError("labels cannot be drawn from a custom loss.")

    def _sampled_errors(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return |H|^½ s with random signs s; its second moment is |H|, the second derivative."""
        few = output.shape[1] <= _FEW
        bend = self._bend(output) if few else self._diagonal(output, generator)
        if bend is None:
            return self._errors[: len(output)].to(output)
        if not few:
            return bend.abs().sqrt() * _signs(bend, generator)
        values, vectors = torch.linalg.eigh(bend)
        signed = values.abs().sqrt() * _signs(values, generator)
        errors: Tensor = (vectors @ signed[:, :, None])[:, :, 0]
        return errors.to(output)

    def _diagonal(self, f: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """Return the second derivative's diagonal if there is nothing beside it, else None.

        With random signs s the product H s ⊙ s is the diagonal, whatever the signs, if and only if
        H is diagonal (with probability one).
        """
        found = []
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            (first,) = torch.autograd.grad(self._loss(leaf), leaf, create_graph=True)
            for _ in range(2):
                s = _signs(f, generator)
                product = _derivative(first, leaf, s)
                if product is None:
                    return None
                found.append(product * s / self.scale(len(f)))
        one, other = found
        usable = bool(one.isfinite().all()) and bool(one.any())
        alike = (one - other).abs().max() <= _ALIKE * one.abs().max()
        return one if usable and bool(alike) else None

    def _bend(self, f: Tensor) -> Tensor | None:
        """Return the second derivative of every sample's loss; None if it vanishes or overflows."""
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            (first,) = torch.autograd.grad(self._loss(leaf), leaf, create_graph=True)
            rows = []
            for i in range(f.shape[1]):
                row = _derivative(first[:, i].sum(), leaf)
                if row is None:
                    return None
                rows.append(row)
        found = torch.stack(rows, 1) / self.scale(len(f))
        usable = bool(found.isfinite().all()) and bool(found.any())
        return (found + found.mT) / 2 if usable else None

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        """Return the second derivative times u, or the squared errors if that is negative."""
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            (first,) = torch.autograd.grad(self._loss(leaf), leaf, create_graph=True)
            found = _derivative(first, leaf, u.detach())
        errors = first.detach() / self.scale(len(f))
        squares = errors * (errors * u).sum(1, keepdim=True)
        if found is None:
            return squares
        bend = (found * u).sum(1, keepdim=True)
        return torch.where(bend > 0, found / self.scale(len(f)), squares)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        raise UnsupportedError("a custom loss has no values for single samples.")

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._loss(leaf), leaf, materialize_grads=True)
        return gradient / self.scale(len(f))

    def _fisher(self, f: Tensor) -> Tensor:
        errors = self._errors[: len(f)].to(f)
        return errors[:, :, None] * errors[:, None, :]

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        raise UnsupportedError("a custom loss has no natural velocity.")

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        return y


def custom(
    criterion: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Any, ...]:
    """Return the outputs that a loss depends on as rows, and the loss as a function of them.

    Several outputs are put side by side, and are found one by one.

    Args:
        criterion: The criterion.
        args: Its positional arguments.
        kwargs: Its named arguments.
        reduce: How it was reduced to a sum, if the criterion does not reduce it.
    """
    places = [*((i, a) for i, a in enumerate(args)), *kwargs.items()]
    graded = {key: a for key, a in _flat(places) if isinstance(a, Tensor) and a.requires_grad}
    if not graded:
        raise InvalidInputError(
            "no tensor that the criterion was called with has a graph: it must be called on what "
            "the model returned."
        )
    tensors = list(graded.values())
    n = len(tensors[0]) if tensors[0].ndim else 1
    if n == 0:
        raise ShapeError(
            f"the criterion was called on outputs of shape {tuple(tensors[0].shape)}, without a "
            "sample. Is the batch empty?"
        )
    if any(t.numel() % n for t in tensors):
        n = 1
    rows = [t.reshape(n, -1) for t in tensors]
    joined = tensors[0] if len(rows) == 1 and tensors[0].ndim > 1 else torch.cat(rows, 1)
    # What is kept has no graph, which would live as long as the call.
    frozen = {key: _detached(a) for key, a in places}
    shapes, widths = {key: t.shape for key, t in graded.items()}, [r.shape[1] for r in rows]
    inner: Any = getattr(criterion, "function", criterion.forward)

    def again(f: Tensor) -> Tensor:
        pieces = torch.split(f.reshape(n, -1), widths, dim=1)
        shaped = {  # copies, because some losses work in place
            key: piece.reshape(shape).clone()
            for (key, shape), piece in zip(shapes.items(), pieces, strict=True)
        }
        values = {key: _put(key, a, shaped) for key, a in frozen.items()}
        named = {key: a for key, a in values.items() if isinstance(key, str)}
        returned: Tensor = inner(*(values[i] for i in range(len(args))), **named)
        return returned if reduce is None else reduce(returned)

    summed = reduce is not None or getattr(criterion, "reduction", "mean") == "sum"
    reduction: Reduction = "sum" if summed else "mean"
    parts = tensors if len(tensors) > 1 else []
    seen = wide(flatten_outputs(joined.detach()))
    return joined, CustomLoss(again, seen, reduction=reduction), *parts


def _signs(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return random signs in the shape of a tensor."""
    drawn = torch.randint(0, 2, like.shape, generator=generator, device=like.device)
    return (2 * drawn - 1).to(like)


def _derivative(of: Tensor, leaf: Tensor, along: Tensor | None = None) -> Tensor | None:
    """Return the derivative of a gradient; None if torch has none, as for `CTCLoss`."""
    if not of.requires_grad:
        return None
    try:
        found: Tensor = torch.autograd.grad(
            of, leaf, along, retain_graph=True, materialize_grads=True
        )[0]
    except RuntimeError as error:
        if "not implemented" not in str(error):
            raise
        return None
    return found


def _flat(places: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the arguments, those inside tuples and lists by paths."""
    found: list[tuple[Any, Any]] = []
    for key, a in places:
        if isinstance(a, (tuple, list)):
            found += _flat([((key, i), inner) for i, inner in enumerate(a)])
        else:
            found.append((key, a))
    return found


def _detached(a: Any) -> Any:
    """Return an argument without graphs."""
    if isinstance(a, (tuple, list)):
        return type(a)(_detached(inner) for inner in a)
    return a.detach() if isinstance(a, Tensor) else a


def _put(key: Any, a: Any, shaped: Mapping[Any, Tensor]) -> Any:
    """Return an argument with new outputs in their places."""
    if isinstance(a, (tuple, list)):
        return type(a)(_put((key, i), inner, shaped) for i, inner in enumerate(a))
    return shaped.get(key, a)
