"""Neural tangent kernels, Euclidean and natural."""

from typing import cast

import torch
from torch import Tensor

from natgrad._checks import instance
from natgrad._named import named
from natgrad.directions._batch import check_inputs, check_model
from natgrad.directions.fisher_over import FisherOver, GaussianInputs, check_fisher_over
from natgrad.errors import InvalidInputError, UnsupportedError, VelocityOverflowError
from natgrad.likelihoods import Likelihood
from natgrad.linalg import graded_fisher_solve
from natgrad.linalg._lstsq import condition, gram_inverse, require_finite
from natgrad.parametrizations.base import LinearHypothesis, P, Parametrization, detach


@torch.no_grad()
@named
def ntk(
    parametrization: Parametrization[P],
    params: P,
    x: Tensor | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """Return the neural tangent kernel J(x) J(other)ᵀ.

    Entry [a, b] is the speed of output a of x in response to minus the loss gradient at output b
    of `other`, along gradient flow. For matrix products K[G] = Σᵢ (AᵢAᵢᵀ) G (BᵢᵀBᵢ) in closed
    form; for networks Jacobian rows are computed in chunks.

    Args:
        parametrization: The model.
        params: Where.
        x: Inputs; None for the hypothesis itself (all entries of β), if it is linear.
        other: Second inputs; default x.

    Returns:
        A tensor of shape `outputs(x).shape + outputs(other).shape`: `(n, m)` for single outputs,
        `(n, k, m, k)` for k; with x None, `h.shape + h.shape`.

    Example:
        At depth one only the observed entry moves:

        >>> from natgrad import MatrixProduct
        >>> product = MatrixProduct(1)
        >>> ntk(product, (torch.zeros(2, 2),))[0, 1]
        tensor([[0., 1.],
                [0., 0.]])
    """
    check_model(parametrization)
    params = detach(params)
    parametrization.check(params)
    if x is None and other is not None:
        raise InvalidInputError("pass inputs x before others, or neither for the hypothesis.")
    if x is None:
        model = _linear(parametrization)
        h = model.hypothesis(params)
        eye = torch.eye(h.numel(), dtype=h.dtype, device=h.device).reshape(-1, *h.shape)
        moved = torch.stack([model.push(params, model.pull(params, e)) for e in eye])
        return moved.reshape(h.shape + h.shape)
    other = x if other is None else other
    check_inputs(parametrization, params, x)
    check_inputs(parametrization, params, other)
    shape = parametrization.predict(params, x).shape + parametrization.predict(params, other).shape
    kernel = parametrization.gram(params, x, other).reshape(shape)
    require_finite(kernel, "the neural tangent kernel")
    return kernel


@torch.no_grad()
@named
def natural_ntk(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    x: Tensor | None = None,
    other: Tensor | None = None,
    *,
    fisher_over: FisherOver = None,
) -> Tensor:
    """Return the natural neural tangent kernel J(x) F⁺ J(other)ᵀ.

    F is averaged over its inputs, times the number of data in `other` if the loss is summed (over
    all entries of a matrix it is always summed), so that outputs move by −K ∇L along natural
    gradient flow on `other`. For networks the Gram matrix is computed in chunks; if it is
    ill-conditioned, dense Jacobian rows are stored instead, n k p numbers. For matrix
    products over all entries K is the projection on the reachable velocities: the identity at
    every depth, as long as one layer alone can move β anywhere.

    Args:
        likelihood: The loss.
        parametrization: The model.
        params: Where.
        x: Inputs; None for all entries of a completed matrix.
        other: Inputs of the loss; default x.
        fisher_over: Inputs of the Fisher: None (the default of the parametrization), `"batch"`
            (those of the loss), `"all"` entries, or a tensor.

    Returns:
        A tensor of shape `outputs(x).shape + outputs(other).shape`, or `h.shape + h.shape`.

    Raises:
        UnsupportedError: If the combination has no exact method.
        VelocityOverflowError: If the kernel overflows, as it does on data of certain labels.

    Example:
        One logit and independent data: the kernel is the inverse Fisher of the logits.

        >>> from natgrad import Bernoulli, Direct
        >>> natural_ntk(Bernoulli(reduction="sum"), Direct(), torch.zeros(2), torch.eye(2))
        tensor([[4., 0.],
                [0., 4.]])
    """
    instance(likelihood, "likelihood", Likelihood)
    check_model(parametrization)
    params = detach(params)
    parametrization.check(params)
    check_fisher_over(fisher_over)
    matrix = parametrization.reads_entries(x)
    over = ("all" if matrix else "batch") if fisher_over is None else fisher_over
    if isinstance(over, str) and over == "all":
        if not matrix:
            raise UnsupportedError("fisher_over='all' needs a completed matrix.")
        return _over_all_entries(likelihood, parametrization, params, x, other)
    if x is None:
        raise InvalidInputError("natural_ntk needs inputs x unless the Fisher is over all entries.")
    if isinstance(over, GaussianInputs):
        raise UnsupportedError(
            "natural_ntk takes no GaussianInputs; pass a large sample of inputs as fisher_over."
        )
    other = x if other is None else other
    fisher_x = other if isinstance(over, str) else over
    for inputs in (x, other, fisher_x):
        check_inputs(parametrization, params, inputs)
    fisher_rows, loss_rows, rows = _jacobian_rows(parametrization, params, fisher_x, other, x)
    root = likelihood.root(parametrization.predict(params, fisher_x))
    responses = graded_fisher_solve(
        root.apply(fisher_rows).flatten(0, 1),
        root.log_weight.flatten(),
        loss_rows.flatten(0, 1),
        torch.zeros(1, dtype=rows.dtype, device=rows.device),
        torch.ones((), dtype=rows.dtype, device=rows.device),
    ).solution
    kernel = rows.flatten(0, 1) @ responses
    if not bool(torch.isfinite(kernel).all()):
        raise VelocityOverflowError(
            f"the natural neural tangent kernel overflows {kernel.dtype}. Try smaller inputs or "
            "parameters."
        )
    scale = likelihood.scale(len(other)) * len(other) / len(fisher_x)
    shape = parametrization.predict(params, x).shape + parametrization.predict(params, other).shape
    return (kernel / scale).reshape(shape)


def _jacobian_rows(parametrization: Parametrization[P], params: P, *inputs: Tensor) -> list[Tensor]:
    """Return Jacobian rows `(n, k, ·)` of several inputs, in convenient coordinates.

    Only inner products of rows matter, so the Cholesky factor of their Gram matrix, computed in
    chunks, replaces rows of many parameters. If it is ill-conditioned, the rows are used.
    """
    distinct = list({id(x): x for x in inputs}.values())
    rows: list[Tensor] | None = None
    if parametrization.prefers_gram(params, distinct[0]):
        rows = _gram_factor(parametrization, params, distinct)
    if rows is None:
        rows = [parametrization.design(params, x).matrix for x in distinct]
    by_id = {id(x): r for x, r in zip(distinct, rows, strict=True)}
    return [by_id[id(x)] for x in inputs]


def _gram_factor(
    parametrization: Parametrization[P], params: P, inputs: list[Tensor]
) -> list[Tensor] | None:
    blocks = [[parametrization.gram(params, a, b) for b in inputs] for a in inputs]
    k = blocks[0][0].shape[1]
    gram = torch.cat(
        [torch.cat([b.flatten(2).flatten(0, 1) for b in row], dim=1) for row in blocks]
    )
    inverse = gram_inverse(gram)
    if inverse is None or condition(gram, inverse) > 1e-10 / torch.finfo(gram.dtype).eps:
        return None
    factor: Tensor = torch.linalg.cholesky(gram)
    parts = torch.split(factor, [len(x) * k for x in inputs])
    return [part.reshape(-1, k, len(gram)) for part in parts]


def _linear(parametrization: Parametrization[P]) -> LinearHypothesis[P]:
    if not isinstance(parametrization, LinearHypothesis):
        raise InvalidInputError(
            f"{parametrization!r} has no hypothesis tensor: pass inputs x to evaluate it at."
        )
    return cast(LinearHypothesis[P], parametrization)


def _over_all_entries(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    x: Tensor | None,
    other: Tensor | None,
) -> Tensor:
    """Return the projection on reachable velocities, times the noise variance."""
    model = _linear(parametrization)
    h = model.hypothesis(params)
    if not likelihood.constant_fisher:
        raise UnsupportedError(
            f"the natural kernel over all entries needs Gaussian noise, not {likelihood!r}."
        )
    root = likelihood.precision_root(h, 1)
    variance = 1.0 if root is None else float(root[0, 0]) ** -2
    kernel = torch.eye(h.numel(), dtype=h.dtype, device=h.device).reshape(-1, *h.shape)
    kernel = model.reachable(params, kernel)
    kernel = variance * kernel.reshape(h.shape + h.shape)
    if x is None:
        return kernel
    other = x if other is None else other
    check_inputs(parametrization, params, x)
    check_inputs(parametrization, params, other)
    i, j = x.long().unbind(1)
    k, m = other.long().unbind(1)
    return kernel[i, j][:, k, m]
