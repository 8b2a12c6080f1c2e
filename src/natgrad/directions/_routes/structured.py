"""Natural directions by structure: solve for the velocity of the hypothesis, then lift it."""

import math
from typing import cast

import torch
from torch import Tensor

from natgrad.directions._routes.problem import Problem
from natgrad.directions._routes.rows import normal_solve
from natgrad.directions.fisher_over import GaussianInputs
from natgrad.errors import UnsupportedError
from natgrad.linalg._columns import column_exponents
from natgrad.linalg._graded import bare_graded_lstsq
from natgrad.linalg._lstsq import bare_lstsq
from natgrad.linalg._precision import default_rtol
from natgrad.parametrizations.base import LiftedHypothesis, LinearHypothesis, P
from natgrad.parametrizations.propagation import input_root


def lifted_over_batch(problem: Problem[P]) -> P | None:
    """Move W = W_L⋯W₁ along its lifted natural velocity; None if that is not exact.

    Only the row space of x matters: with an orthonormal basis Q of it the layers must produce
    the velocity times Q. [BLH18] (10)–(16) with Σ = xᵀx/N.
    """
    likelihood, x, white = problem.likelihood, problem.x, problem.white
    if _badly_scaled(x):
        return None
    network = cast(LiftedHypothesis[P], problem.parametrization)
    outputs, inputs = problem.outputs, x.shape[1]
    precision = None
    if likelihood.constant_fisher:
        precision = likelihood.precision_root(x, outputs)
        fit = bare_lstsq(x, _residual(precision, white.target))
        u, spans = fit.solution.mT, fit.rank == inputs
    elif problem.damping:
        return None
    else:
        eye = torch.eye(outputs, dtype=x.dtype, device=x.device)
        evaluation = torch.einsum("kj,nd->nkjd", eye, x).reshape(len(x), outputs, -1)
        rows = white.apply(evaluation).flatten(0, 1)
        fit = bare_graded_lstsq(rows, white.target.flatten(), white.log_weight.flatten())
        u, spans = fit.solution.reshape(outputs, inputs), False
    basis = right_root = None
    if not spans or problem.damping or problem.shares is None:
        right_root, basis = input_root(x)  # shares of spanning inputs need no metric
    lift = network.problem(
        problem.params,
        u,
        basis=basis,
        contrast=likelihood.visible(u),
        left_root=precision,
        right_root=right_root,
        damping=problem.mean_damping,
    )
    if not likelihood.constant_fisher and not lift.surjective():
        return None
    return network.solve(lift, problem.shares)


def lifted_over_inputs(problem: Problem[P], fisher_x: Tensor) -> P | None:
    """Move W along ⟨(y − Wx) xᵀ⟩ Σ⁻¹ with Σ of other inputs; None if those do not span."""
    if not problem.likelihood.constant_fisher or len(fisher_x) < fisher_x.shape[1]:
        return None
    if _badly_scaled(fisher_x):
        return None
    singular = torch.linalg.svdvals(fisher_x)
    rtol = default_rtol(*fisher_x.shape, dtype=fisher_x.dtype)
    if float(singular[-1]) <= rtol * float(singular[0]):
        return None
    network = cast(LiftedHypothesis[P], problem.parametrization)
    precision = problem.likelihood.precision_root(fisher_x, problem.outputs)
    cross = problem.x.mT @ _residual(precision, problem.white.target) / len(problem.x)
    u = normal_solve(fisher_x / len(fisher_x) ** 0.5, cross)[0].mT
    lift = network.problem(
        problem.params,
        u,
        left_root=precision,
        right_root=input_root(fisher_x)[0],
        damping=problem.mean_damping,
    )
    return network.solve(lift, problem.shares)


def _badly_scaled(x: Tensor) -> bool:
    """Return whether features differ so much in size that a lift of W loses the small ones.

    The lift solves for W in one norm for all of its columns; Jacobian rows need no such norm.
    """
    exponents = column_exponents(x)
    if exponents is None:
        return False
    digits = -math.log2(torch.finfo(x.dtype).eps)
    return float(exponents.max() - exponents.min()) > 0.4 * digits


def _residual(precision_root: Tensor | None, whitened: Tensor) -> Tensor:
    """Return y − f from Σ̃^{−1/2}(y − f)."""
    if precision_root is None:
        return whitened
    rows: Tensor = torch.linalg.solve_triangular(precision_root, whitened.mT, upper=False)
    return rows.mT


def over_all_entries(problem: Problem[P]) -> P:
    """Solve with one Fisher term for every entry of the matrix, observed or not ([KMH21] §4).

    That Fisher is diagonal, so each observed entry has its own velocity, and the others have none.
    """
    model, x = problem.parametrization, problem.x
    if not model.reads_entries(x):
        raise UnsupportedError(
            "fisher_over='all' means all entries of a completed matrix; it needs Direct or "
            f"MatrixProduct with integer positions as inputs, not {model!r}."
        )
    model, params = cast(LinearHypothesis[P], model), problem.params
    beta = model.hypothesis(params)
    velocity, damping = problem.white.target[:, 0], problem.sum_damping
    if problem.likelihood.constant_fisher:
        root = problem.likelihood.precision_root(beta, 1)
        if root is not None:
            velocity, damping = velocity / root[0, 0], damping / float(root[0, 0]) ** 2
    elif damping or not model.surjective(params):
        raise UnsupportedError(
            f"{problem.likelihood!r} over all entries weighs each differently: there is no "
            "structured solution with damping or with factors that lack rank. Try "
            "fisher_over='batch'."
        )
    u = model.adjoint(beta, x, velocity)
    return model.natural_lift(params, u, problem.shares, damping)


def over_gaussian_population(problem: Problem[P], inputs: GaussianInputs) -> P | None:
    """Return the lifted velocity F(β)⁻¹(−∇L) in O(d) past the gradient; None without closed form.

    Raises:
        UnsupportedError: If outputs are not linear in real-valued inputs.
    """
    features_by_outputs(problem)
    model, params = cast(LinearHypothesis[P], problem.parametrization), problem.params
    beta = model.hypothesis(params)
    if problem.damping or beta.ndim != 1 or not model.surjective(params):
        return None
    white = problem.white
    terms = white.transpose(torch.exp(2 * white.log_weight) * white.target) / len(problem.x)
    descent = model.adjoint(beta, problem.x, terms.reshape(len(terms), *beta.shape[1:]))
    u = inputs.solve_identity(problem.likelihood, beta, descent)
    return None if u is None else model.lift(params, u, shares=problem.shares)


def features_by_outputs(problem: Problem[P]) -> Tensor:
    """Return the linear hypothesis as a matrix `(d, k)`.

    Raises:
        UnsupportedError: If outputs are not linear in real-valued inputs.
    """
    model = problem.parametrization
    h = None if model.reads_entries(problem.x) else model.coefficients(problem.params)
    if h is None:
        raise UnsupportedError(
            "GaussianInputs needs outputs linear in real-valued inputs (Direct, Diagonal, "
            f"DeepLinear), not {model!r}. Pass a large sample of inputs instead."
        )
    return h
