"""Neural tangent kernels, Euclidean and natural."""

from typing import Any, cast

import torch
from torch import Tensor

from natgrad.directions.batch import check_inputs
from natgrad.directions.fisher_inputs import FisherOver, GaussianInputs, check_fisher_over
from natgrad.directions.rows import contract
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Gaussian, Likelihood, Root
from natgrad.linalg import default_rtol, reachable
from natgrad.parametrizations import Direct, MatrixProduct
from natgrad.parametrizations.base import LinearHypothesis, P, Parametrization
from natgrad.parametrizations.entries import are_entries
from natgrad.parametrizations.products import partial_products


def ntk(
    parametrization: Parametrization[P],
    params: P,
    x: Tensor | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """Return the neural tangent kernel J(x) J(other)ᵀ.

    Entry [a, b] is how fast output a of x moves in response to minus the loss gradient at output b
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

        >>> product = MatrixProduct(1)
        >>> ntk(product, (torch.zeros(2, 2),))[0, 1]
        tensor([[0., 1.],
                [0., 0.]])
    """
    parametrization.check(params)
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
    return parametrization.gram(params, x, other).reshape(shape)


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

    F is reduced over its inputs as the likelihood says (over all entries of a matrix always
    summed), so that outputs of a batch move by −K ∇L along natural gradient flow. For matrix
    products over all entries K is the projection on the reachable velocities: the identity at
    every depth, as long as one layer alone can move β anywhere.

    Args:
        likelihood: The loss.
        parametrization: The model.
        params: Where.
        x: Inputs; None for all entries of a completed matrix.
        other: Second inputs; default x.
        fisher_over: Inputs of the Fisher: None (the default of the parametrization), `"batch"`
            (x), `"all"` entries, or a tensor.

    Returns:
        A tensor of shape `outputs(x).shape + outputs(other).shape`, or `h.shape + h.shape`.

    Raises:
        UnsupportedError: If the combination has no exact method.
    """
    parametrization.check(params)
    check_fisher_over(fisher_over)
    matrix = isinstance(parametrization, MatrixProduct) or (
        isinstance(parametrization, Direct) and (x is None or are_entries(x))
    )
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
    fisher_x = x if isinstance(over, str) else over
    for inputs in (x, other, fisher_x):
        check_inputs(parametrization, params, inputs)
    root = likelihood.root(parametrization.predict(params, fisher_x))
    shift = root.log_weight.max()  # a common factor, restored at the end
    weight = torch.exp(root.log_weight - shift).flatten()
    left = _times_inverse_root(parametrization, params, x, fisher_x, root, weight)
    right = (
        left
        if other is x
        else _times_inverse_root(parametrization, params, other, fisher_x, root, weight)
    )
    scale = likelihood.scale(len(fisher_x)) * torch.exp(2 * shift)
    shape = parametrization.predict(params, x).shape + parametrization.predict(params, other).shape
    return (left @ right.mT / scale).reshape(shape)


def _linear(parametrization: Parametrization[P]) -> LinearHypothesis[P]:
    if not isinstance(parametrization, LinearHypothesis):
        raise InvalidInputError(
            f"{parametrization!r} has no hypothesis tensor: pass inputs x to evaluate it at."
        )
    return cast(LinearHypothesis[P], parametrization)


def _times_inverse_root(
    parametrization: Parametrization[P],
    params: P,
    x: Tensor,
    fisher_x: Tensor,
    root: Root,
    weight: Tensor,
) -> Tensor:
    """Return J(x) V S⁻¹ with F = V S² Vᵀ the Fisher's eigendecomposition, `(n k, rank)`."""
    if not parametrization.prefers_gram(params, x):
        rows = root.apply(parametrization.design(params, fisher_x).matrix).flatten(0, 1)
        _, s, vh = torch.linalg.svd(weight[:, None] * rows, full_matrices=False)
        rank = int((s > default_rtol(*rows.shape, dtype=rows.dtype) * s[0]).sum())
        j = parametrization.design(params, x).matrix.flatten(0, 1)
        whitened: Tensor = j @ vh[:rank].mT / s[:rank]
        return whitened
    kernel = contract(parametrization.gram(params, fisher_x, fisher_x), root, root)
    values, vectors = torch.linalg.eigh(weight[:, None] * kernel * weight)
    kept = values > default_rtol(*kernel.shape, dtype=kernel.dtype) * values[-1]
    cross = contract(parametrization.gram(params, x, fisher_x), Root(None, weight), root) * weight
    response: Tensor = cross @ vectors[:, kept] / values[kept]
    return response


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
    if not isinstance(likelihood, Gaussian):
        raise UnsupportedError(
            f"the natural kernel over all entries needs Gaussian noise, not {likelihood!r}."
        )
    root = likelihood.precision_root(h, 1)
    variance = 1.0 if root is None else float(root[0, 0]) ** -2
    kernel = torch.eye(h.numel(), dtype=h.dtype, device=h.device).reshape(-1, *h.shape)
    if isinstance(parametrization, MatrixProduct):
        factors = cast(Any, params)
        if not parametrization.surjective(factors):
            kernel = reachable(*partial_products(factors), kernel)
    kernel = variance * kernel.reshape(h.shape + h.shape)
    if x is None:
        return kernel
    other = x if other is None else other
    check_inputs(parametrization, params, x)
    check_inputs(parametrization, params, other)
    rows = kernel[x[:, 0], x[:, 1]]
    return rows[:, other[:, 0], other[:, 1]]
