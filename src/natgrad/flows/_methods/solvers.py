"""The solvers of `integrate`, and how `method="auto"` chooses among them."""

from natgrad._checks import choice
from natgrad.errors import InvalidInputError
from natgrad.flows._follow import Solver
from natgrad.flows._methods.adaptive import AdaptiveSolver, ChebyshevSolver
from natgrad.flows._methods.dual_solver import DualSolver
from natgrad.flows._methods.newton import NewtonSolver
from natgrad.flows._methods.steppers import SCIPY
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P

_ALL = (DualSolver(), NewtonSolver(), ChebyshevSolver(), *map(AdaptiveSolver, SCIPY))
SOLVERS: dict[str, Solver] = {solver.name: solver for solver in _ALL}
"""By name; `method="auto"` takes the first that prefers the problem."""


def choose(method: str, problem: Problem[P]) -> tuple[Solver, ...]:
    """Return the solver to use, and those that take over where it fails.

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
        return (solver,)
    found = [next(solver for solver in _ALL if solver.preferred(problem))]
    while found[-1].successor is not None:
        found.append(SOLVERS[found[-1].successor])
    return tuple(found)
