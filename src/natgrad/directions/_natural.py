"""The natural gradient, by the cheapest exact route."""

import torch
from torch import Tensor

from natgrad._checks import number
from natgrad.directions._batch import check_inputs, check_problem, finite_outputs
from natgrad.directions._routes.problem import Problem
from natgrad.directions._routes.rows import solve_over_batch, solve_over_inputs
from natgrad.directions._routes.structured import (
    features_by_outputs,
    lifted_over_batch,
    lifted_over_inputs,
    over_all_entries,
    over_gaussian_population,
)
from natgrad.directions.fisher_over import FisherOver, GaussianInputs, check_fisher_over
from natgrad.directions.selection import Selection, resolve_shares
from natgrad.errors import VelocityOverflowError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, detach, leaves


@torch.no_grad()
def natural(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    selection: Selection = "min_norm",
    fisher_over: FisherOver = None,
    damping: float = 0.0,
) -> P:
    """Return v with F(params) v = −∇L(params), the natural gradient direction.

    F is never formed: it shares a square root with the gradient, so v is a least-squares
    solution, found in the smallest space that the parametrization's structure allows. Where F is
    singular and −∇L has no solution, v is −F⁺∇L.

    Args:
        likelihood: The loss; its reduction does not change the direction unless damped.
        parametrization: The model.
        params: Where, in the parametrization's structure.
        batch: Inputs and labels (x, y).
        selection: Which of the solutions: `"min_norm"` ([KMH21] 5), `"equal_share"` ([BLH18] 16,
            [KMH21] 51 as corrected) or `LayerShares(weights)`.
        fisher_over: Inputs the Fisher is averaged over: `"batch"`, another tensor of inputs,
            `GaussianInputs()`, or for matrix completion `"all"` entries. None is the
            parametrization's default, which its docstring states.
        damping: λ ≥ 0; v solves (F + λI) v = −∇L instead, F reduced as the loss is. With shares,
            each layer's own block is damped.

    Raises:
        InvalidInputError: If an argument has the wrong shape, dtype, device or value.
        RankDeficientError: If a layer that shares cannot produce its share alone.
        VelocityOverflowError: If the true velocity does not fit the dtype.
        ConvergenceError: If factors of a product are too close to rank-deficient to lift through.
        UnsupportedError: If there is no exact method for the combination.

    Example:
        The natural velocity of the logits is y (1 + e^{−ys}), whatever the inputs:

        >>> from natgrad import Bernoulli, Direct
        >>> x = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 5.0]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> v = natural(Bernoulli(), Direct(), torch.zeros(3, dtype=torch.float64), (x, y))
        >>> [round(s, 12) for s in (x @ v).tolist()]
        [2.0, -2.0]
    """
    params = detach(params)
    x, y = check_problem(likelihood, parametrization, params, batch)
    shares = resolve_shares(selection, parametrization.layers(params))
    check_fisher_over(fisher_over)
    damping = number(damping, "damping", low=0)
    outputs = finite_outputs(parametrization, params, x)
    white = likelihood.whitened(outputs, y)
    problem = Problem(likelihood, parametrization, params, x, white, shares, damping, outputs.shape)
    v = _solve(problem, fisher_over)
    if not all(bool(torch.isfinite(t).all()) for t in leaves(v)):
        raise VelocityOverflowError(
            f"the natural direction overflows {leaves(v)[0].dtype}. Use a wider dtype, a positive "
            "damping, or a Euclidean direction until margins grow."
        )
    return v


def _solve(problem: Problem[P], fisher_over: FisherOver) -> P:
    """Take the cheapest exact route for these inputs of the Fisher."""
    model = problem.parametrization
    over = model.fisher_default(problem.x) if fisher_over is None else fisher_over
    if isinstance(over, str):
        if over == "all":
            return over_all_entries(problem)
        v = lifted_over_batch(problem) if model.lifted else None
        return solve_over_batch(problem) if v is None else v
    if isinstance(over, GaussianInputs):
        v = over_gaussian_population(problem, over)
        if v is not None:
            return v
        fisher_x, root = over.representatives(problem.likelihood, features_by_outputs(problem))
    else:
        check_inputs(model, problem.params, over)
        fisher_x, root = over, problem.likelihood.root(model.predict(problem.params, over))
    v = lifted_over_inputs(problem, fisher_x) if model.lifted else None
    return solve_over_inputs(problem, fisher_x, root) if v is None else v
