"""Coordinates of a flow for an integrator: one vector, its velocity, and a map to parameters."""

from collections.abc import Callable
from copy import copy
from typing import Generic

import numpy as np
from torch import Tensor

from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P, flatten, unflatten

Arrays = Callable[[np.ndarray], np.ndarray]


class Coordinates(Generic[P]):
    """All parameters in one vector.

    Attributes:
        start: The vector at time 0, or at the end of another solver.
        arrays: The velocity as a function of NumPy arrays, if that is faster.
        jacobian: Its Jacobian, if it is known.
        contracts: Whether two solutions never move apart: gradient flow of a convex loss.
    """

    arrays: Arrays | None = None
    jacobian: Arrays | None = None
    contracts: bool = False

    def __init__(self, problem: Problem[P], params: P) -> None:
        self._problem, self._like = problem, params
        self.start: Tensor = flatten(params)

    def at(self, t: float) -> "Coordinates[P]":
        """Return these coordinates at another time, which only affects scheduled damping."""
        if self._problem.schedule is None:
            return self
        later = copy(self)
        later._problem = self._problem.at(t)
        return later

    def velocity(self, y: Tensor) -> Tensor:
        """Return dy/dt at a vector."""
        return flatten(self._problem.velocity(unflatten(y, self._like)))

    def params(self, y: Tensor) -> P:
        """Return the parameters at a vector."""
        return unflatten(y, self._like)

    def stands(self, y: Tensor, left: float, rtol: float) -> bool:
        """Return whether the flow does not move in the remaining time."""
        return False
