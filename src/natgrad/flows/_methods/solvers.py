"""The solvers of `integrate`, and how `method="auto"` chooses among them."""

from natgrad._checks import choice
from natgrad.errors import InvalidInputError
from natgrad.flows._follow import Solver
from natgrad.flows._methods.adaptive import AdaptiveSolver, ChebyshevSolver, PairedSolver
from natgrad.flows._methods.completion.line_solver import LineSolver
from natgrad.flows._methods.completion.observed_solver import ObservedSolver
from natgrad.flows._methods.completion.solver import CompletionSolver
from natgrad.flows._methods.dual.solver import DualSolver
from natgrad.flows._methods.kinks.solver import KinkSolver
from natgrad.flows._methods.logistic.solver import NewtonSolver
from natgrad.flows._methods.reduced import ReducedSolver
from natgrad.flows._methods.steppers.stepper import SCIPY
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P

_ALL: tuple[Solver, ...] = (
    NewtonSolver(),
    ReducedSolver(),
    DualSolver(),
    CompletionSolver(),
    LineSolver(),
    ObservedSolver(),
    KinkSolver(),
    *map(AdaptiveSolver, SCIPY),
    PairedSolver(),
    ChebyshevSolver(),
)
SOLVERS: dict[str, Solver] = {solver.name: solver for solver in _ALL}
"""Solvers by name; `method="auto"` takes the first that returns a reason."""


def choose(method: str, problem: Problem[P], rtol: float | None) -> tuple[tuple[Solver, ...], str]:
    """Return the solver, the solvers that continue if it fails, and the reason.

    Raises:
        InvalidInputError: If there is no such method, or it does not suit the problem.
    """
    choice(method, "method", ("auto", *SOLVERS))
    if method != "auto":
        solver = SOLVERS[method]
        if not solver.suits(problem):
            raise InvalidInputError(
                f"method={method!r} is for {solver.purpose}, not for {problem.parametrization!r} "
                f"under {problem.likelihood!r}. Try method='auto'."
            )
        return (solver,), ""
    for solver in _ALL:
        reason = solver.why(problem, solver.default_rtol if rtol is None else rtol)
        if reason is not None:
            break
    found = [solver]
    while found[-1].successor is not None:
        found.append(SOLVERS[found[-1].successor])
    return tuple(found), reason or ""
