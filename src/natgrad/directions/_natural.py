"""The natural gradient, by the cheapest exact route."""

from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from natgrad._checks import all_finite, number
from natgrad._named import named
from natgrad.directions._batch import (
    check_inputs,
    check_problem,
    finite_outputs,
    plainly_linear,
)
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
from natgrad.directions.metric import OutputMetric, with_metric
from natgrad.directions.selection import Selection, resolve_shares
from natgrad.errors import VelocityOverflowError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, detach, leaves


@torch.no_grad()
@named
def natural(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    selection: Selection = "min_norm",
    fisher_over: FisherOver = None,
    damping: float = 0.0,
    metric: OutputMetric = "fisher",
) -> P:
    """Return v with F(params) v = −∇L(params), the natural gradient direction.

    F is never formed: it shares a square root with the gradient, so v is a least-squares
    solution, found in the smallest space that the parametrization's structure allows. If F is
    singular and −∇L has no solution, v is −F⁺∇L.

    Args:
        likelihood: The loss; its reduction does not change the direction unless damped.
        parametrization: The model.
        params: The parameters, in the parametrization's structure.
        batch: Inputs and labels (x, y).
        selection: Which of the solutions: `"min_norm"` ([KMH21] 5), `"equal_share"` ([BLH18] 16,
            [KMH21] 51 as corrected) or `LayerShares(weights)`.
        fisher_over: Inputs the Fisher is averaged over: `"batch"`, another tensor of inputs,
            `GaussianInputs()`, or for matrix completion `"all"` entries. None is the
            parametrization's default, which its docstring states.
        damping: λ ≥ 0; v solves (F + λI) v = −∇L instead, F reduced as the loss is. With shares,
            each layer's own block is damped.
        metric: The metric on each sample's outputs: `"fisher"` (default),
            `"euclidean"`, or `Wasserstein(…)` of `natgrad.directions.metric`.

    Raises:
        InvalidInputError: If an argument has the wrong shape, dtype, device or value.
        RankDeficientError: If a layer that shares cannot produce its share alone.
        VelocityOverflowError: If the true velocity does not fit the dtype.
        ConvergenceError: If factors of a product are too close to rank-deficient.
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
    problem = (likelihood, parametrization, params, batch)
    # The answer is checked at the end, so linear problems need no other check for NaN.
    plain = plainly_linear(*problem)
    if not plain:
        check_problem(*problem)
    field, outputs = _prepare(*problem, selection, fisher_over, damping, metric, plain=plain)
    return field.at(params, outputs)


def prepare(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    selection: Selection = "min_norm",
    fisher_over: FisherOver = None,
    damping: float = 0.0,
    metric: OutputMetric = "fisher",
) -> "NaturalField[P]":
    """Check the arguments of `natural` once, and return the direction as a function of params.

    Example:
        >>> from natgrad import Direct, Gaussian
        >>> w, x, y = torch.zeros(2), torch.eye(2), torch.tensor([1.0, 2.0])
        >>> prepare(Gaussian(), Direct(), w, (x, y))(w)
        tensor([1., 2.])
    """
    problem = (likelihood, parametrization, params, batch)
    check_problem(*problem)
    return _prepare(*problem, selection, fisher_over, damping, metric)[0]


def _prepare(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    selection: Selection,
    fisher_over: FisherOver,
    damping: float,
    metric: OutputMetric,
    *,
    plain: bool = False,
) -> tuple["NaturalField[P]", Tensor]:
    """Check options and labels; return the field, and the outputs at these parameters."""
    x, y = batch
    shortest = isinstance(selection, str) and selection == "min_norm"
    shares = None if shortest else resolve_shares(selection, parametrization.layers(params))
    if fisher_over is not None:
        check_fisher_over(fisher_over)
    if isinstance(fisher_over, Tensor):
        check_inputs(parametrization, params, fisher_over)
    damping = number(damping, "damping", low=0)
    likelihood = with_metric(likelihood, metric)
    outputs = parametrization.predict(params, x)
    if plain:
        labels = likelihood._check_labels(outputs.reshape(x.shape[0], -1), y)
    else:
        labels = likelihood.prepare(outputs, y)[1]
    field = NaturalField(likelihood, parametrization, x, y, labels, shares, fisher_over, damping)
    return field, outputs


@dataclass
class NaturalField(Generic[P]):
    """The natural direction as a function of the parameters, for a problem that was checked.

    Only the answer is checked. If it is not finite, or if there is none, the parameters
    and outputs are examined to explain why.
    """

    likelihood: Likelihood
    parametrization: Parametrization[P]
    x: Tensor
    y: Tensor
    labels: Tensor
    shares: tuple[float, ...] | None
    fisher_over: FisherOver
    damping: float

    def __call__(self, params: P) -> P:
        """Return the direction at parameters of the checked structure."""
        return self.at(params, self.parametrization.predict(params, self.x))

    def at(self, params: P, outputs: Tensor) -> P:
        """Return the direction, given the outputs at the parameters."""
        if not all_finite(outputs):  # solvers may not end on NaN
            self._explain(params)
        try:
            v = self._solve(params, outputs)
        except Exception:
            self._explain(params)
            raise
        if not all(map(all_finite, leaves(v))):
            self._explain(params)
            raise VelocityOverflowError(
                f"the natural direction overflows {leaves(v)[0].dtype}. Use a wider dtype, a "
                "positive damping, or a Euclidean direction until margins grow."
            )
        return v

    def _solve(self, params: P, outputs: Tensor) -> P:
        white = self.likelihood._whitened(outputs.reshape(len(outputs), -1), self.labels)
        problem = Problem(
            self.likelihood,
            self.parametrization,
            params,
            self.x,
            white,
            self.shares,
            self.damping,
            outputs.shape,
        )
        return _solve(problem, self.fisher_over)

    def _explain(self, params: P) -> None:
        """Raise if parameters, inputs, outputs or their velocities are not finite."""
        check_problem(self.likelihood, self.parametrization, params, (self.x, self.y))
        self.likelihood.whitened(finite_outputs(self.parametrization, params, self.x), self.y)


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
        fisher_x, root = over, problem.likelihood.root(model.predict(problem.params, over))
    v = lifted_over_inputs(problem, fisher_x) if model.lifted else None
    return solve_over_inputs(problem, fisher_x, root) if v is None else v
