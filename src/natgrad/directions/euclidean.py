"""Steepest descent in the parameters' own norm."""

import torch
from torch import Tensor

from natgrad.directions.batch import check_problem, finite_outputs
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, detach, leaves, rebuild


@torch.no_grad()
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
        params: Where, in the parametrization's structure.
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
    gradient = likelihood.gradient(finite_outputs(parametrization, params, x), y)
    ascent = parametrization.vjp(params, x, gradient)
    return rebuild([-t for t in leaves(ascent)], params)
