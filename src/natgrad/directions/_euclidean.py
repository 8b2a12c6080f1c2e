"""Steepest descent in the parameters' own norm."""

from typing import cast

import torch
from torch import Tensor

from natgrad._checks import all_finite
from natgrad._named import named
from natgrad.directions._batch import check_problem, finite_outputs
from natgrad.errors import NonFiniteError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import LinearHypothesis, P, Parametrization, detach, leaves


@torch.no_grad()
@named
def euclidean(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
) -> P:
    """Return −∇L(params), the direction of gradient descent.

    Args:
        likelihood: The loss.
        parametrization: The model.
        params: The parameters, in the parametrization's structure.
        batch: Inputs and labels (x, y).

    Raises:
        InvalidInputError: If an argument has the wrong shape, dtype, device or value.

    Example:
        >>> from natgrad import Bernoulli, Direct
        >>> x, y = torch.eye(2), torch.tensor([1.0, -1.0])
        >>> euclidean(Bernoulli(), Direct(), torch.zeros(2), (x, y))
        tensor([ 0.2500, -0.2500])
    """
    params = detach(params)
    x, y = check_problem(likelihood, parametrization, params, batch)
    v = descent(likelihood, parametrization, params, x, y)
    if not all(map(all_finite, leaves(v))):
        finite_outputs(parametrization, params, x)
        raise NonFiniteError(
            "the gradient overflows although the outputs are finite; use a wider dtype or smaller "
            "parameters."
        )
    return v


def descent(
    likelihood: Likelihood, parametrization: Parametrization[P], params: P, x: Tensor, y: Tensor
) -> P:
    """Return −∇L without checks, with each product of layers formed once; flows call this."""
    if isinstance(parametrization, LinearHypothesis):
        h = parametrization.hypothesis(params)
        outputs = parametrization.evaluate(h, x)
        pulled = -likelihood.gradient(outputs, y)
        return cast(P, parametrization.pull(params, parametrization.adjoint(h, x, pulled)))
    outputs = parametrization.predict(params, x)
    return parametrization.vjp(params, x, -likelihood.gradient(outputs, y))
