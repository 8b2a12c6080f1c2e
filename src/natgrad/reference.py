"""Dense autograd references: slow, and obviously right.

Everything here is written from the definitions with automatic differentiation, shares no code
with the structured solvers, and works on any object with a `predict(params, x)` method. Use it to
check natgrad, or your own model, in double precision and at small sizes.

Parameters are flattened leaf by leaf, row-major.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import grad, hessian, jacrev

from natgrad._checks import dense, describe, instance, number, require_finite, tensor
from natgrad._named import named
from natgrad.errors import DtypeError, ShapeError, UnsupportedError
from natgrad.likelihoods import Likelihood

__all__ = ["Model", "fisher", "flatten", "gradient", "jacobian", "natural", "unflatten"]


class Model(Protocol):
    """Any object with a method `predict(params, x)`.

    Example:
        >>> from natgrad import Direct
        >>> model: Model = Direct()
        >>> model.predict(torch.ones(2), torch.eye(2))
        tensor([1., 1.])
    """

    def predict(self, params: Any, x: Tensor) -> Tensor:
        """Return outputs at inputs x."""


@named
def flatten(params: Any) -> Tensor:
    """Return all leaves of a tensor, tuple or dict as one vector.

    Example:
        >>> flatten((torch.ones(2), torch.zeros(1, 2)))
        tensor([1., 1., 0., 0.])
    """
    leaves = _leaves(params, "params")
    dtypes = {t.dtype for t in leaves}
    if len(dtypes) > 1:
        raise DtypeError(
            f"params must have one dtype, but mix {', '.join(sorted(map(str, dtypes)))}."
        )
    return torch.cat([t.reshape(-1) for t in leaves])


@named
def unflatten(vector: Tensor, like: Any) -> Any:
    """Return a vector in the structure of `like`; the inverse of `flatten`.

    Example:
        >>> unflatten(torch.arange(3.0), {"a": torch.zeros(1), "b": torch.zeros(2)})
        {'a': tensor([0.]), 'b': tensor([1., 2.])}
    """
    items = _leaves(like, "like")
    size = sum(t.numel() for t in items)
    if tuple(dense(vector, "vector").shape) != (size,):
        raise ShapeError(
            f"vector must have shape ({size},), one entry per parameter, but has "
            f"{tuple(vector.shape)}."
        )
    out, start = [], 0
    for t in items:
        out.append(vector[start : start + t.numel()].reshape(t.shape))
        start += t.numel()
    if isinstance(like, Tensor):
        return out[0]
    return dict(zip(like.keys(), out, strict=True)) if isinstance(like, Mapping) else tuple(out)


@named
def jacobian(model: Model, params: Any, x: Tensor) -> Tensor:
    """Return the Jacobian of the outputs, shape `(n, k, p)`.

    Example:
        >>> from natgrad import Direct
        >>> jacobian(Direct(), torch.zeros(2), torch.tensor([[3.0, 4.0]]))
        tensor([[[3., 4.]]])
    """
    _check(model, params, x)
    rows: Tensor = jacrev(lambda w: _outputs(model, unflatten(w, params), x))(flatten(params))
    return rows


@named
def gradient(
    likelihood: Likelihood, model: Model, params: Any, batch: tuple[Tensor, Tensor]
) -> Tensor:
    """Return ∇L as a vector `(p,)`.

    Example:
        >>> from natgrad import Bernoulli, Direct
        >>> gradient(Bernoulli(), Direct(), torch.zeros(2), (torch.eye(2), torch.ones(2)))
        tensor([-0.2500, -0.2500])
    """
    x, y = _pair(batch)
    instance(likelihood, "likelihood", Likelihood)
    _check(model, params, x)
    w = flatten(params).detach().clone().requires_grad_(True)
    loss = likelihood(model.predict(unflatten(w, params), x), y)
    found = torch.autograd.grad(loss, w)[0]
    require_finite(found, "the gradient")
    return found


@named
def fisher(
    likelihood: Likelihood, model: Model, params: Any, x: Tensor, *, factor: float | None = None
) -> Tensor:
    """Return the Fisher matrix `(p, p)`, [BLH18] (5): expected outer product of score vectors.

    Labels are averaged over the model's own distribution, which `Likelihood.support` lists. For
    Gaussian noise the Hessian of the loss in the outputs is taken instead.

    Args:
        likelihood: The loss.
        model: The model.
        params: The parameters.
        x: Inputs over which the Fisher is averaged.
        factor: Weight of each input; by default that of the loss, 1/n or 1.

    Example:
        >>> from natgrad import Bernoulli, Direct
        >>> fisher(Bernoulli(reduction="sum"), Direct(), torch.zeros(1), torch.ones(1, 1))
        tensor([[0.2500]])
    """
    instance(likelihood, "likelihood", Likelihood)
    j = jacobian(model, params, x)
    outputs = _outputs(model, params, x)
    weight = likelihood.scale(len(x)) if factor is None else number(factor, "factor")
    blocks = torch.stack([_output_fisher(likelihood, f) for f in outputs])
    found = weight * torch.einsum("nkp,nkj,njq->pq", j, blocks, j)
    require_finite(found, "the Fisher matrix")
    return found


@named
def natural(
    likelihood: Likelihood,
    model: Model,
    params: Any,
    batch: tuple[Tensor, Tensor],
    *,
    fisher_x: Tensor | None = None,
    factor: float | None = None,
    damping: float = 0.0,
    rtol: float = 1e-12,
) -> Any:
    """Return −F⁺∇L in the parameters' structure, by the pseudo-inverse of the dense Fisher.

    Args:
        likelihood: The loss.
        model: The model.
        params: The parameters.
        batch: Inputs and labels.
        fisher_x: Inputs over which the Fisher is averaged; by default the batch's.
        factor: Weight of each of those inputs; see `fisher`.
        damping: λ, added to the Fisher's diagonal.
        rtol: Eigenvalues at or below rtol × the largest count as zero.

    Example:
        >>> from natgrad import Bernoulli, Direct
        >>> x, y = torch.eye(2).double(), torch.tensor([1.0, -1.0]).double()
        >>> natural(Bernoulli(), Direct(), torch.zeros(2).double(), (x, y))
        tensor([ 2., -2.], dtype=torch.float64)
    """
    damping, rtol = number(damping, "damping", low=0), number(rtol, "rtol", low=0)
    batch = _pair(batch)
    f = fisher(likelihood, model, params, batch[0] if fisher_x is None else fisher_x, factor=factor)
    g = gradient(likelihood, model, params, batch)
    if damping:
        v = -torch.linalg.solve(f + damping * torch.eye(len(g)).to(f), g)
    else:
        v = -torch.linalg.pinv(f, rtol=rtol, hermitian=True) @ g
    require_finite(v, "the natural direction")
    return unflatten(v, params)


def _outputs(model: Model, params: Any, x: Tensor) -> Tensor:
    outputs = model.predict(params, x)
    if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(x):
        raise ShapeError(
            f"predict must return one row of outputs per sample, {len(x)} in all, but returns "
            f"{describe(outputs)}."
        )
    return outputs.reshape(len(x), -1)


def _leaves(params: Any, name: str) -> list[Tensor]:
    """Return the tensors of a structure; refuse anything else."""
    if isinstance(params, Tensor):
        return [dense(params, name)]
    if not isinstance(params, (tuple, list, Mapping)) or not params:
        raise DtypeError(
            f"{name} must be a tensor, or a tuple or dict of them, but is {describe(params)}."
        )
    values = params.values() if isinstance(params, Mapping) else params
    return [dense(t, f"each tensor of {name}") for t in values]


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DtypeError(f"batch must be a pair (x, y) of tensors, but is {describe(batch)}.")
    return batch[0], dense(batch[1], "labels")


def _check(model: Any, params: Any, x: Any) -> None:
    """Raise unless the model predicts, and parameters and inputs are finite numbers."""
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        raise DtypeError(f"model must have a method predict(params, x), but is {describe(model)}.")
    for t in _leaves(params, "params"):
        tensor(t, "each tensor of params")
    if dense(x, "x").ndim == 0 or x.numel() == 0:
        raise ShapeError(f"x must hold at least one sample, but has shape {tuple(x.shape)}.")
    if x.is_floating_point():
        tensor(x, "x")


def _output_fisher(likelihood: Likelihood, f: Tensor) -> Tensor:
    """Return the Fisher block `(k, k)` of one sample's outputs."""
    listed = likelihood.support(f)
    if listed is None:
        if not likelihood.constant_fisher:
            raise UnsupportedError(
                f"the reference averages over labels, but {likelihood!r} lists none. Define its "
                "method support()."
            )
        block: Tensor = hessian(lambda s: likelihood.losses(s[None], f[None].detach())[0])(f)
        return block
    labels, probabilities = listed
    copies = f.expand(len(labels), len(f))
    scores: Tensor = grad(lambda s: likelihood.losses(s, labels).sum())(copies)
    return torch.einsum("m,mk,mj->kj", probabilities, scores, scores)
