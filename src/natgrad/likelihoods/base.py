"""The geometry of a likelihood: one square root of the Fisher, shared with the gradient."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from natgrad._checks import ALL_FLOATS, choice, dense, describe, integer, require_finite
from natgrad._checks import all_finite as all_finite
from natgrad._checks import generator as check_generator
from natgrad.errors import (
    DeviceError,
    DtypeError,
    ShapeError,
    UnsupportedError,
    VelocityOverflowError,
)
from natgrad.likelihoods._root import Root, Whitened

__all__ = [
    "Likelihood",
    "Listener",
    "Reduction",
    "flatten_outputs",
    "like_outputs",
]

Reduction = Literal["mean", "sum"]
"""How the losses of single samples are reduced. Losses of several outputs are always summed."""

Listener = Callable[[Tensor, Tensor, Tensor], None]
"""The argument of `Likelihood.observe`: a function of output, labels and loss."""


class Likelihood(ABC):
    """A loss −log q(y | output), reduced over data; also a criterion, `likelihood(output, y)`.

    A new likelihood defines the abstract methods below. `fisher_product`, `mean_fisher` and
    `sampled_errors`, which the optimizer uses, follow from `root` and `sample`; they are worth
    overriding if a closed form is cheaper.

    Outputs have shape `(n,)` or `(n, …)`; internally `(n, k)`. Losses sum over outputs and are
    reduced over samples by `reduction`, so the loss is a log-likelihood for either choice.
    The Fisher is reduced likewise, and the natural direction does not depend on the choice.

    Args:
        reduction: `"mean"` (default) or `"sum"`.

    Attributes:
        constant_fisher: Whether the Fisher is the same for all outputs. If so, `precision_root`
            gives its root, and `root` the same as contrasts with weights of one.
        squares: Whether the loss is a multiple of the squared error.
        attained: Whether finite outputs minimize the loss of a sample. If not, outputs diverge
            to infinity, and flows are integrated in log time.
        divisible: Whether the loss of a part of the samples is defined.

    Example:
        >>> from natgrad import Gaussian
        >>> likelihood: Likelihood = Gaussian(reduction="sum")
        >>> likelihood(torch.zeros(2), torch.tensor([1.0, 3.0]))
        tensor(5.)
    """

    constant_fisher: bool = False
    squares: bool = False
    attained: bool = True
    divisible: bool = True

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        self.reduction: Reduction = choice(reduction, "reduction", get_args(Reduction))
        self._listeners: OrderedDict[int, Listener] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: everything except the listeners."""
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
        """Return the loss of each sample, shape `(n,)`."""
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
        """Return the factor of one sample in the reduced loss: 1/n or 1."""
        if type(n) is not int or not 0 < n < 2**63:
            n = integer(n, "n", low=1)
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
        if not _is_plain(y):
            dense(y, "labels")
        if y.ndim == 0 or y.shape[0] != f.shape[0]:
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
        white = self._whitened(f, labels)
        if not all_finite(white.target):
            raise self._overflow(f, labels)
        return white

    def _whitened(self, f: Tensor, labels: Tensor) -> Whitened:
        """Return `whitened` for the results of `prepare`, without checks; flows call this."""
        root = self.root(f)
        return Whitened(root.contrast, root.log_weight, self._target(f, labels))

    def fisher_product(self, output: Tensor, u: Tensor) -> Tensor:
        """Return Fₙ uₙ for every sample, unreduced, in the outputs' shape.

        Example:
            >>> from natgrad import Categorical
            >>> Categorical().fisher_product(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
            tensor([[ 0.2500, -0.2500]])
        """
        f = flatten_outputs(output)
        if not (isinstance(u, Tensor) and _is_plain(u)):
            dense(u, "u")
        if u.shape != output.shape or u.dtype != output.dtype:
            raise ShapeError(
                f"u must be {output.dtype} of shape {tuple(output.shape)}, as the outputs, but is "
                f"{describe(u)}."
            )
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
        require_finite(flatten_outputs(output), "outputs")
        check_generator(generator)
        return self._sampled_errors(output, generator).reshape(output.shape)

    def visible(self, like: Tensor) -> Tensor | None:
        """Return an orthonormal basis (rows) of the output directions with nonzero Fisher.

        None means all of them. `like` has one row per output, and the dtype and device wanted.
        """
        return None

    def precision_root(self, like: Tensor, k: int) -> Tensor | None:
        """Return R with RᵀR the Fisher of one sample's k outputs, if it is constant.

        R is lower triangular, in the dtype and device of `like`; None is the identity.

        Raises:
            UnsupportedError: If the Fisher depends on the outputs.
        """
        raise UnsupportedError(f"the Fisher of {self!r} depends on the outputs.")

    def gaussian_moments(self, r: float) -> tuple[float, float] | None:
        """Return E F(rz) and E F(rz) z² for z standard normal, F the Fisher of one output.

        None means that no closed form or quadrature is known. A constant Fisher needs neither.
        """
        return None

    def support(self, output: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return labels of one sample and their probabilities under the model.

        `natgrad.reference` averages score vectors over them. None is for losses quadratic in the
        outputs, whose Hessian is the Fisher.

        Args:
            output: Outputs of one sample, shape `(k,)`.

        Returns:
            m labels as the loss takes them, and probabilities `(m,)`: all labels if there are
            few, enough of them for rounding accuracy if there are infinitely many, or the nodes
            and weights of a quadrature rule.
        """
        return None

    @abstractmethod
    def root(self, output: Tensor) -> Root:
        """Return a square root of the Fisher at these outputs; no labels needed."""

    def sample(self, output: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw labels from the model's own distribution, in the form the loss takes."""
        require_finite(flatten_outputs(output), "outputs")
        check_generator(generator)
        return self._sample(output, generator)

    @abstractmethod
    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor: ...

    def _sampled_errors(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._gradient(*self.prepare(output, self._sample(output, generator)))

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        root = self.root(f)
        return root.transpose(torch.exp(2 * root.log_weight) * root.apply(u))

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the average of the blocks, times weights of rows or of single outputs."""
        root = self.root(f)
        weight = torch.exp(root.log_weight)[:, :, None]
        if weights is not None:
            weight = weight * weights.sqrt()[:, :, None]
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

    def _overflow(self, f: Tensor, y: Tensor) -> VelocityOverflowError:
        """Return the error that explains why a target is not finite."""
        return VelocityOverflowError(
            f"the natural velocity of some outputs overflows {f.dtype}. Start closer to the data, "
            "use a wider dtype, or take a Euclidean direction at first."
        )

    @abstractmethod
    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor: ...


def wide(x: Tensor) -> Tensor:
    """Convert a half-precision tensor to single precision; return others unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def like_torch(losses: Tensor, f: Tensor) -> Tensor:
    """Return losses in torch's dtype: that of the outputs, but single under autocast."""
    return losses if torch.is_autocast_enabled(f.device.type) else losses.to(f.dtype)


def _is_plain(x: Tensor) -> bool:
    """Return whether `dense` would accept this; a fast check, because losses run at every step."""
    return x.layout is torch.strided and not (x.is_nested or x.is_quantized or x.is_meta)


def flatten_outputs(output: Tensor) -> Tensor:
    """Return outputs as `(n, k)`; raise if they are invalid for every loss.

    Example:
        >>> flatten_outputs(torch.zeros(4)).shape
        torch.Size([4, 1])
    """
    if not isinstance(output, Tensor) or output.dtype not in ALL_FLOATS:
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise DtypeError(f"outputs must be a floating-point tensor, but got {kind}.")
    if not _is_plain(output):
        dense(output, "outputs")
    if output.ndim == 0 or output.numel() == 0:
        raise ShapeError(
            f"outputs must have shape (n,) or (n, …) with at least one sample, but got shape "
            f"{tuple(output.shape)}. Is the batch empty?"
        )
    return output.reshape(output.shape[0], -1)  # len() costs a call of Python


def like_outputs(f: Tensor, y: Tensor) -> Tensor:
    """Return real-valued labels in the outputs' shape `(n, k)` and dtype.

    Example:
        >>> like_outputs(torch.zeros(2, 1), torch.tensor([1, 3]))
        tensor([[1.],
                [3.]])
    """
    if y.is_complex():
        raise DtypeError(f"labels must be real, but have dtype {y.dtype}.")
    flat = y.reshape(y.shape[0], -1)
    if flat.shape != f.shape:
        raise ShapeError(
            f"labels must match the outputs, {f.shape[1]} per sample, but have "
            f"{flat.shape[1]} (shape {tuple(y.shape)})."
        )
    return flat if flat.dtype == f.dtype else flat.to(f.dtype)
