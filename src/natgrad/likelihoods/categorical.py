"""Softmax cross-entropy, accurate to rounding however confident the prediction."""

from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, tensor
from natgrad._named import options
from natgrad.errors import DtypeError, LabelError, ShapeError, VelocityOverflowError
from natgrad.likelihoods._root import Root
from natgrad.likelihoods._softmax import by_rows, covary, exponentials, has_tangent, softmax
from natgrad.likelihoods.base import Likelihood, flatten_outputs, like_torch, wide

__all__ = ["Categorical"]


@options
class Categorical(Likelihood):
    """Labels y ∈ {0, …, k−1}, logits f, loss −log p_y with p = softmax(f).

    Gradient p − e_y, Fisher diag p − ppᵀ, which ignores a constant added to all logits. Its
    root works with differences to the likeliest class ∗, where it is invertible: with p′ the
    other probabilities, diag p′ − p′p′ᵀ = DᵀD for D = (I − c √p′√p′ᵀ) diag √p′,
    c = 1/(1 + √p_∗). Row k of D is √p_k times a contrast of order one, so weights are stored as
    logarithms and small probabilities cost no accuracy.

    Wherever 1 − p_y appears it is the sum of the other probabilities: for a confident prediction
    the subtraction would leave only rounding errors.

    Example:
        >>> likelihood = Categorical()
        >>> f = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
        >>> round(float(likelihood(f, torch.tensor([0, 0]))), 4)
        0.3709
    """

    attained = False

    def prepare(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `(n, k)` and class indices `(n,)`, checked."""
        if isinstance(output, Tensor) and output.ndim != 2:
            raise ShapeError(
                f"Categorical needs logits of shape (n, k), but got {tuple(output.shape)}; move "
                "further axes into the data axis."
            )
        return super().prepare(output, y)

    def root(self, output: Tensor) -> Root:
        """Return k − 1 contrasts with the likeliest class, weights √p_k as logarithms."""
        f = flatten_outputs(output)
        k = f.shape[1]
        if k < 2:
            raise ShapeError("Categorical needs at least two logits per sample; use Bernoulli.")
        p, log_p, star, others = _split(wide(f))
        root_star = p.gather(1, star).sqrt()
        # Column ∗ of every row is −1 + c (1 − p_∗) = −√p_∗.
        shared = (p / (1 + root_star)).scatter(1, star, root_star)
        eye = torch.eye(k, dtype=p.dtype, device=p.device)
        contrast = eye[others] - shared[:, None, :]  # (n, k−1, k)
        return Root(contrast.to(f.dtype), (log_p.gather(1, others) / 2).to(f.dtype))

    def visible(self, like: Tensor) -> Tensor:
        """Return k − 1 orthonormal contrasts: adding a constant to all logits changes nothing."""
        tensor(like, "like", finite=False)
        if like.ndim == 0:
            raise ShapeError("like must have one row per output, but has no dimension.")
        k = like.shape[0]
        ones = torch.full((k, 1), k**-0.5, dtype=like.dtype, device=like.device)
        rotation: Tensor = torch.linalg.qr(ones, mode="complete")[0]
        return rotation[:, 1:].mT

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the classes and their probabilities.

        Example:
            >>> Categorical().support(torch.zeros(2))
            (tensor([0, 1]), tensor([0.5000, 0.5000]))
        """
        tensor(output, "output", shape=("k",), dtypes=ALL_FLOATS)
        labels = torch.arange(len(output), device=output.device)
        return labels, torch.exp(-self.losses(output.expand(len(labels), -1), labels))

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw class indices, shape `(n,)`."""
        p = torch.softmax(flatten_outputs(output), dim=1)
        return torch.multinomial(p, 1, generator=generator)[:, 0]

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        return covary(softmax(wide(f)), wide(u)).to(f.dtype)

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        p = softmax(wide(f))
        weighted = p if weights is None else weights * p
        return _laplacian(p.mT @ weighted / len(f), f.dtype)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return like_torch(_cross_entropy(wide(f), y)[0], f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return _cross_entropy(wide(f), y)[1].to(f.dtype)

    def _fisher(self, f: Tensor) -> Tensor:
        p = softmax(wide(f))
        return _laplacian(p[:, :, None] * p[:, None, :], f.dtype)

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        label = y[:, None]
        p, _, star, others = _split(wide(f))
        p_star = p.gather(1, star)
        c = 1 / (1 + p_star.sqrt())
        target = torch.where(others == label, 1 / p.gather(1, label) - c, -c)
        return torch.where(star == label, -p_star.rsqrt(), target).to(f.dtype)

    def _overflow(self, f: Tensor, y: Tensor) -> VelocityOverflowError:
        smallest = float(_split(wide(f))[1].gather(1, y[:, None]).min())
        return VelocityOverflowError(
            f"the natural velocity 1/p_y overflows {f.dtype}: the smallest log p_y is "
            f"{smallest:.4g}. Start closer to the data, use a wider dtype, or take a Euclidean "
            "direction until probabilities grow."
        )

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        k = f.shape[1]
        if k < 2:
            raise ShapeError(
                "Categorical needs at least two logits per sample, but got one; use Bernoulli."
            )
        if y.is_floating_point() or y.dtype == torch.bool or y.is_complex():
            raise DtypeError(
                f"Categorical labels must be integer class indices, but have dtype {y.dtype}; "
                "try y.long()."
            )
        if y.ndim != 1:
            raise ShapeError(
                f"Categorical labels must have shape (n,), but have {tuple(y.shape)}; class "
                "indices, not one-hot rows."
            )
        if bool(((y < 0) | (y >= k)).any()):
            raise LabelError(
                f"Categorical labels must lie in 0…{k - 1} for {k} logits, but range from "
                f"{int(y.min())} to {int(y.max())}."
            )
        return y.long()


def _cross_entropy(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return losses −log p_y, shape `(n,)`, and their gradient p − e_y."""
    if not has_tangent(f):
        found: tuple[Tensor, Tensor] = _CrossEntropy.apply(f, y)  # type: ignore[no-untyped-call]
        return found
    label = y[:, None]
    log_p, p = torch.log_softmax(f, 1).gather(1, label), softmax(f)
    others, p_label = p.scatter(1, label, 0.0), p.gather(1, label)
    rest = others.sum(1, keepdim=True)
    losses = torch.where(p_label > 0.5, (rest / p_label).log1p(), -log_p)
    return losses[:, 0], others.scatter(1, label, -rest)


class _CrossEntropy(torch.autograd.Function):
    """Losses −log p_y and their gradient p − e_y, whose derivative in turn is the Fisher."""

    @staticmethod
    def forward(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        label, top = y[:, None], f.amax(1, keepdim=True)
        e, e_top = exponentials(f, top)
        e_label = e.gather(1, label)
        rest = e.scatter_(1, label, 0.0).sum(1, keepdim=True)
        total, behind = rest + e_label, top - f.gather(1, label)
        # For the likeliest class the loss may be tiny; for others e_label may have vanished.
        losses = torch.where(behind == 0, (rest / e_label).log1p(), (total / e_top).log() + behind)
        return losses[:, 0], e.div_(total).scatter_(1, label, -rest / total)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *by: Tensor | None) -> tuple[Tensor | None, None]:
        (by_losses, by_gradient), (f, gradient) = by, ctx.saved_tensors
        first = None if by_losses is None else by_losses[:, None] * gradient
        if by_gradient is None:
            return first, None
        second = covary(softmax(f), by_gradient)
        return (second if first is None else first + second), None

    @staticmethod
    def jvp(ctx: Any, v: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        f, gradient = ctx.saved_tensors
        return (gradient * v).sum(1), covary(softmax(f), v)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        return by_rows(_CrossEntropy, info.batch_size, in_dims, inputs)


def _laplacian(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Return diag(W 1) − W for weights W ≥ 0 of shape `(…, k, k)`, overwriting them.

    With W = ppᵀ this is diag p − ppᵀ. Its diagonal is the sum of the off-diagonal entries, so it is
    positive semi-definite for every rounding of W, and nothing cancels.
    """
    diagonal = weights.diagonal(dim1=-2, dim2=-1)
    diagonal.zero_()
    sums = weights.sum(-1)
    if weights.dtype != dtype:
        # Subtract half a subnormal: many small entries, all rounded up, would exceed the diagonal.
        info = torch.finfo(dtype)
        weights.sub_(info.tiny * info.eps / 2).clamp_(min=0)
    weights.neg_()
    diagonal.copy_(sums)
    return weights.to(dtype)


def _split(f: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return p and log p `(n, k)`, the likeliest class `(n, 1)` and the others `(n, k − 1)`."""
    p, star = softmax(f), f.argmax(1, keepdim=True)
    everyone = torch.arange(f.shape[1], device=f.device).expand(f.shape)
    others = everyone[everyone != star].reshape(len(f), -1)
    rest = p.scatter(1, star, 0.0).sum(1, keepdim=True)
    behind = f.gather(1, star) - f
    return p, -behind - (rest / p.gather(1, star)).log1p(), star, others
