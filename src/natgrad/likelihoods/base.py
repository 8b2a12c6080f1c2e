"""What a likelihood must say about its geometry: one square root, shared with the gradient."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from natgrad.errors import DeviceError, DtypeError, InvalidInputError, ShapeError
from natgrad.linalg._lstsq import require_finite

Reduction = Literal["mean", "sum"]
"""How the losses of single data are reduced: over data only, outputs always sum."""

Listener = Callable[[Tensor, Tensor, Tensor], None]
"""What `Likelihood.observe` takes: a function of output, labels and loss."""


@dataclass(frozen=True)
class Root:
    """A square root of the Fisher, datum by datum, with its scale kept apart as logarithms.

    The Fisher of datum n is Fₙ = Σᵣ e^{2 ℓₙᵣ} cₙᵣ cₙᵣᵀ. Logarithms, because any weight underflows
    on confidently classified data although the natural direction stays finite. ℓ and c are each
    accurate to rounding; a weight e^{2ℓ} taken from them is so up to a factor of 2 |ℓ|.

    Attributes:
        contrast: Rows cₙᵣ acting on one datum's outputs, shape `(n, r, k)` or `(1, r, k)`;
            None is the identity, r = k.
        log_weight: ℓ, shape `(n, r)`.
    """

    contrast: Tensor | None
    log_weight: Tensor

    def apply(self, outputs: Tensor) -> Tensor:
        """Return C u: contrasts of outputs, `(n, k, …)` to `(n, r, …)`."""
        if self.contrast is None:
            return outputs
        return torch.einsum("nrk,nk...->nr...", self.contrast.expand(len(outputs), -1, -1), outputs)

    def transpose(self, rows: Tensor) -> Tensor:
        """Return Cᵀ z, `(n, r)` to `(n, k)`."""
        if self.contrast is None:
            return rows
        return torch.einsum("nrk,nr->nk", self.contrast.expand(len(rows), -1, -1), rows)


@dataclass(frozen=True)
class Whitened(Root):
    """A `Root` and the targets that tie it to the gradient.

    The loss gradient of datum n is −Σᵣ e^{2 ℓₙᵣ} cₙᵣ bₙᵣ, so the natural direction is the least
    squares solution of c·(J v) = b with weights e^{ℓ}, and F is never formed.

    Attributes:
        target: b, shape `(n, r)`: the natural velocity of each contrast.
    """

    target: Tensor


class Likelihood(ABC):
    """A loss −log q(y | output), reduced over data; also a criterion, `likelihood(output, y)`.

    A new one defines the methods below that are abstract; `fisher_product`, `mean_fisher` and
    `sampled_errors`, which the optimizer uses, follow from `root` and `sample` and are worth
    overriding where a closed form is cheaper.

    Outputs have shape `(n,)` or `(n, …)`; internally `(n, k)`. Losses sum over outputs and are
    reduced over data by `reduction`, so that the loss is a log-likelihood whichever is chosen.
    The Fisher is reduced likewise, and the natural direction does not depend on the choice.

    Args:
        reduction: `"mean"` (default) or `"sum"`.

    Attributes:
        constant_fisher: Whether the Fisher is the same for all outputs.
        attained: Whether finite outputs minimize the loss of a sample. Where none do, outputs run
            to infinity, and flows are integrated in the logarithm of time.
    """

    constant_fisher: bool = False
    attained: bool = True

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        if reduction not in get_args(Reduction):
            raise InvalidInputError(f"reduction must be 'mean' or 'sum', but got {reduction!r}.")
        self.reduction: Reduction = reduction
        self._listeners: OrderedDict[int, Listener] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps: everything but the listeners."""
        return self.__dict__ | {"_listeners": OrderedDict()}

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"{type(self).__name__}(reduction={self.reduction!r})"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the reduced loss; differentiable by autograd."""
        f, target = self.prepare(output, y)
        losses = self._losses(f, target)
        loss = losses.mean() if self.reduction == "mean" else losses.sum()
        for listener in tuple(self._listeners.values()):
            listener(output, y, loss)
        return loss

    def observe(self, listener: Listener) -> RemovableHandle:
        """Call `listener(output, y, loss)` after every call of the criterion, until removed.

        Example:
            >>> from natgrad import Gaussian
            >>> criterion, seen = Gaussian(), []
            >>> handle = criterion.observe(lambda output, y, loss: seen.append(float(loss)))
            >>> _ = criterion(torch.zeros(1, 1), torch.full((1, 1), 2.0))
            >>> handle.remove()
            >>> _ = criterion(torch.zeros(1, 1), torch.ones(1, 1))
            >>> seen
            [2.0]
        """
        handle = RemovableHandle(self._listeners)
        self._listeners[handle.id] = listener
        return handle

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the reduced loss; the same as calling the likelihood."""
        return self(output, y)

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each datum, shape `(n,)`."""
        return self._losses(*self.prepare(output, y))

    def gradient(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the reduced loss in the outputs, in their shape."""
        f, target = self.prepare(output, y)
        return (self.scale(len(f)) * self._gradient(f, target)).reshape(output.shape)

    def fisher(self, output: Tensor) -> Tensor:
        """Return the Fisher's blocks in output space, shape `(n, k, k)`, reduced as the loss."""
        f = flatten_outputs(output)
        return self.scale(len(f)) * self._fisher(f)

    def scale(self, n: int) -> float:
        """Return the factor of one datum in the reduced loss: 1/n or 1."""
        return 1.0 / n if self.reduction == "mean" else 1.0

    def prepare(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs as `(n, k)` and labels checked and shaped to match."""
        f = flatten_outputs(output)
        if not isinstance(y, Tensor):
            raise DtypeError(f"labels must be a torch.Tensor, but got {type(y).__name__}.")
        if y.device != f.device:
            raise DeviceError(
                f"outputs are on {f.device} but labels on {y.device}; move one with .to()."
            )
        if y.ndim == 0 or len(y) != len(f):
            raise ShapeError(
                f"labels must pair up with the {len(f)} outputs, but have shape {tuple(y.shape)}."
            )
        if y.ndim == output.ndim and y.ndim > 2 and y.shape != output.shape:
            raise ShapeError(
                f"labels of shape {tuple(y.shape)} do not match outputs of {tuple(output.shape)}."
            )
        return f, self._check_labels(f, y)

    def whitened(self, output: Tensor, y: Tensor) -> Whitened:
        """Return the square root of the Fisher and the targets that give the gradient with it.

        Raises:
            VelocityOverflowError: If the natural velocity itself overflows the dtype.
        """
        f, labels = self.prepare(output, y)
        require_finite(f, "outputs")
        root = self.root(f)
        return Whitened(root.contrast, root.log_weight, self._target(f, labels))

    def fisher_product(self, output: Tensor, u: Tensor) -> Tensor:
        """Return Fₙ uₙ for every datum, unreduced, in the outputs' shape.

        Example:
            >>> from natgrad import Categorical
            >>> Categorical().fisher_product(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
            tensor([[ 0.2500, -0.2500]])
        """
        f = flatten_outputs(output)
        return self._fisher_product(f, u.reshape(f.shape)).reshape(output.shape)

    def mean_fisher(self, output: Tensor) -> Tensor:
        """Return the average over data of the Fisher's blocks, unreduced, shape `(k, k)`.

        Example:
            >>> from natgrad import Bernoulli
            >>> Bernoulli().mean_fisher(torch.zeros(3, 1))
            tensor([[0.2500]])
        """
        return self._mean_fisher(flatten_outputs(output))

    def sampled_errors(self, output: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return ∂ℓₙ/∂fₙ at labels drawn from the model, unreduced, in the outputs' shape.

        Their covariance given the outputs is the Fisher.

        Example:
            >>> from natgrad import Bernoulli
            >>> Bernoulli().sampled_errors(torch.zeros(2, 1)).abs()
            tensor([[0.5000],
                    [0.5000]])
        """
        if not all_finite(flatten_outputs(output)):
            require_finite(output, "outputs")
        return self._sampled_errors(output, generator).reshape(output.shape)

    def visible(self, like: Tensor) -> Tensor | None:
        """Return an orthonormal basis (rows) of the output directions the Fisher sees.

        None means all of them. `like` has one row an output, and the dtype and device wanted.
        """
        return None

    @abstractmethod
    def root(self, output: Tensor) -> Root:
        """Return a square root of the Fisher at these outputs; no labels needed."""

    def sample(self, output: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw labels from the model's own distribution, in the form the loss takes."""
        require_finite(flatten_outputs(output), "outputs")
        return self._sample(output, generator)

    @abstractmethod
    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor: ...

    def _sampled_errors(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._gradient(*self.prepare(output, self._sample(output, generator)))

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        root = self.root(f)
        return root.transpose(torch.exp(2 * root.log_weight) * root.apply(u))

    def _mean_fisher(self, f: Tensor) -> Tensor:
        root = self.root(f)
        weight = torch.exp(root.log_weight)[:, :, None]
        contrast = (
            torch.eye(f.shape[1], dtype=f.dtype, device=f.device)[None]
            if root.contrast is None
            else root.contrast
        )
        rows = (weight * contrast).flatten(0, 1)
        return rows.mT @ rows / len(f)

    @abstractmethod
    def _losses(self, f: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _gradient(self, f: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _fisher(self, f: Tensor) -> Tensor: ...

    @abstractmethod
    def _target(self, f: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor: ...


def all_finite(x: Tensor) -> bool:
    """Return whether no entry is NaN or infinite, in one pass over the entries if so."""
    # A NaN or an infinity always shows in the sum; a sum may also overflow by itself.
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def wide(x: Tensor) -> Tensor:
    """Return a tensor in half precision in single precision, others as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def like_torch(losses: Tensor, f: Tensor) -> Tensor:
    """Return losses in the dtype of torch's: that of the outputs, but single under autocast."""
    return losses if torch.is_autocast_enabled(f.device.type) else losses.to(f.dtype)


def flatten_outputs(output: Tensor) -> Tensor:
    """Return outputs as `(n, k)`, refusing what no loss can take."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise DtypeError(f"outputs must be a floating-point tensor, but got {kind}.")
    if output.ndim == 0 or output.numel() == 0:
        raise ShapeError(
            f"outputs must have shape (n,) or (n, …) with at least one datum, but got shape "
            f"{tuple(output.shape)}. Is the batch empty?"
        )
    return output.reshape(len(output), -1)


def like_outputs(f: Tensor, y: Tensor) -> Tensor:
    """Return real-valued labels in the outputs' shape `(n, k)` and dtype."""
    if y.is_complex():
        raise DtypeError(f"labels must be real, but have dtype {y.dtype}.")
    flat = y.reshape(len(y), -1)
    if flat.shape != f.shape:
        raise ShapeError(
            f"labels must match the outputs, {f.shape[1]} per datum, but have "
            f"{flat.shape[1]} (shape {tuple(y.shape)})."
        )
    return flat.to(f.dtype)
