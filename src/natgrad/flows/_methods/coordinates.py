"""What an integrator sees of a flow: one vector, its velocity, and the way back to parameters."""

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
        start: The vector at time 0, or where another solver ended.
        arrays: The velocity as a function of NumPy arrays, where that is faster.
        jacobian: Its Jacobian, where that is known.
    """

    arrays: Arrays | None = None
    jacobian: Arrays | None = None

    def __init__(self, problem: Problem[P], params: P) -> None:
        self._problem, self._like = problem, params
        self.start: Tensor = flatten(params)

    def at(self, t: float) -> "Coordinates[P]":
        """Return these coordinates at another time, which matters to scheduled damping alone."""
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
        """Return whether the flow would not move in the time left."""
        return False
