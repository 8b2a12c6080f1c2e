"""Softmax cross-entropy."""

import torch
from torch import Tensor

from natgrad.errors import DtypeError, LabelError, ShapeError, VelocityOverflowError
from natgrad.likelihoods.base import Likelihood, Root, flatten_outputs


class Categorical(Likelihood):
    """Labels y ∈ {0, …, k−1}, logits f, loss −log p_y with p = softmax(f).

    Gradient p − e_y, Fisher diag p − ppᵀ, which is blind to a constant added to all logits. Its
    root works with differences to the likeliest class ∗, where it is invertible: with p′ the
    other probabilities, diag p′ − p′p′ᵀ = DᵀD for D = (I − c √p′√p′ᵀ) diag √p′,
    c = 1/(1 + √p_∗). Row k of D is √p_k times a contrast of order one, so weights stay apart as
    logarithms and small probabilities cost no accuracy.

    Example:
        >>> likelihood = Categorical()
        >>> f = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
        >>> round(float(likelihood(f, torch.tensor([0, 0]))), 4)
        0.3709
    """

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
            raise ShapeError("Categorical needs at least two logits per datum; use Bernoulli.")
        log_p, star, others = _split(f)
        eye = torch.eye(k, dtype=f.dtype, device=f.device)
        difference = eye[others] - eye[star][:, None, :]  # (n, k−1, k)
        p_others = torch.gather(log_p, 1, others).exp()
        average = torch.einsum("nr,nrk->nk", p_others, difference)
        contrast = difference - (_c(log_p, star) * average)[:, None, :]
        return Root(contrast, torch.gather(log_p, 1, others) / 2)

    def visible(self, like: Tensor) -> Tensor:
        """Return k − 1 orthonormal contrasts: adding a constant to all logits changes nothing."""
        k = like.shape[0]
        ones = torch.full((k, 1), k**-0.5, dtype=like.dtype, device=like.device)
        rotation: Tensor = torch.linalg.qr(ones, mode="complete")[0]
        return rotation[:, 1:].mT

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw class indices, shape `(n,)`."""
        p = torch.softmax(flatten_outputs(output), dim=1)
        return torch.multinomial(p, 1, generator=generator)[:, 0]

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        p = torch.softmax(f, dim=1)
        return p * (u - (p * u).sum(1, keepdim=True))

    def _mean_fisher(self, f: Tensor) -> Tensor:
        p = torch.softmax(f, dim=1)
        return torch.diag(p.mean(0)) - p.mT @ p / len(f)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return -torch.gather(torch.log_softmax(f, dim=1), 1, y[:, None])[:, 0]

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        p = torch.softmax(f, dim=1)
        log_p = torch.log_softmax(f, dim=1)
        rest = -torch.expm1(torch.gather(log_p, 1, y[:, None]))  # 1 − p_y without cancellation
        return p.scatter(1, y[:, None], -rest)

    def _fisher(self, f: Tensor) -> Tensor:
        p = torch.softmax(f, dim=1)
        off = p[:, :, None] * p[:, None, :]
        off = off - torch.diag_embed(off.diagonal(dim1=1, dim2=2))
        return torch.diag_embed(off.sum(2)) - off  # p(1 − p) without cancellation

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        log_p, star, others = _split(f)
        root_star = (torch.gather(log_p, 1, star[:, None]) / 2).exp()
        is_label = others == y[:, None]
        missed = torch.where(is_label, (-torch.gather(log_p, 1, others)).exp(), 0.0)
        target = torch.where(
            (star == y)[:, None], -1 / root_star, missed - 1 + _c(log_p, star) * root_star
        )
        if not bool(torch.isfinite(target).all()):
            smallest = float(torch.gather(log_p, 1, y[:, None]).min())
            raise VelocityOverflowError(
                f"the natural velocity 1/p_y overflows {f.dtype}: the smallest log p_y is "
                f"{smallest:.4g}. Start closer to the data, use a wider dtype, or take a Euclidean "
                "direction until probabilities grow."
            )
        return target

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        k = f.shape[1]
        if k < 2:
            raise ShapeError(
                "Categorical needs at least two logits per datum, but got one; use Bernoulli."
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


def _split(f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p `(n, k)`, the likeliest class `(n,)` and the others `(n, k − 1)`."""
    log_p = torch.log_softmax(f, dim=1)
    star = log_p.argmax(1)
    everyone = torch.arange(f.shape[1], device=f.device).expand(f.shape)
    others = everyone[everyone != star[:, None]].reshape(len(f), -1)
    return log_p, star, others


def _c(log_p: Tensor, star: Tensor) -> Tensor:
    """Return c = 1/(1 + √p_∗), shape `(n, 1)`."""
    return 1 / (1 + (torch.gather(log_p, 1, star[:, None]) / 2).exp())
