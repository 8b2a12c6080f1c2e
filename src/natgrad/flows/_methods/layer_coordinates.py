"""Diagonal networks on logistic loss with one unknown per coordinate, in NumPy.

`dual_layers` gives every layer of a coordinate as a function of its smallest one, v. The flow is
    dv/dt = q(v) ⊙ g,  g = X̃ᵀσ(−X̃β) · scale,  β = v q(v),
d equations for L d parameters. Conserved quantities of the flow stay exact. The Jacobian is
diag(q′ g) − diag(q) X̃ᵀ diag(σσ′) X̃ diag(dβ/dv) · scale.
"""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from natgrad.flows._methods.coordinates import Coordinates
from natgrad.flows._methods.dual.layers import Layers
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P

Array = Any  # numpy.ndarray, whose products numpy itself types as Any


class LayerCoordinates(Coordinates[P]):
    """The smallest layer of every coordinate, for problems that `DualSolver` suits."""

    def __init__(self, problem: Problem[P], params: P) -> None:
        from scipy.special import expit  # imported here to keep `import natgrad` light

        super().__init__(problem, params)
        self._expit = expit
        x, y = problem.batch
        w = cast(Tensor, params)
        self._shape = w.shape
        self._layers, v = Layers.of(w.reshape(-1, x.shape[1]))
        self.start = v
        signs = problem.likelihood.prepare(problem.outputs, y)[1]
        self._x = np.ascontiguousarray((signs * x).numpy())
        self._xt = self._x.T
        self._largest = max(float(self._x.max()), -float(self._x.min()))
        self._scale = problem.likelihood.scale(len(x))
        self._signs = self._layers.signs.prod(0).numpy()
        self._delta = self._layers.delta.numpy()
        self.arrays, self.jacobian = self._velocity, self._jacobian
        self.contracts = len(self._delta) == 0

    def _layer_product(self, v: Array) -> Array:
        """Return q, the product of the other layers."""
        if len(self._delta) == 0:
            return self._signs
        if len(self._delta) == 1:
            return self._signs * np.sqrt(v * v + self._delta[0])
        return self._signs * np.sqrt(np.prod(v * v + self._delta, axis=0))

    def _log_slope(self, v: Array) -> Array:
        """Return q′/q = Σ v/(v² + δ); where v² + δ = 0 the layer stands still."""
        square = v * v + self._delta
        return np.divide(v, square, out=np.zeros_like(square), where=square > 0).sum(0)

    def _velocity(self, v: Array) -> Array:
        q = self._layer_product(v)
        return q * (self._xt @ self._expit(-(self._x @ (v * q)))) * self._scale

    def _jacobian(self, v: Array) -> Array:
        q = self._layer_product(v)
        u = self._x @ (v * q)
        weights = self._expit(-u)
        ratio = self._log_slope(v)
        g = self._scale * (self._xt @ weights)
        curvature = (self._xt * (weights * self._expit(u))) @ self._x
        out = -self._scale * q[:, None] * curvature * (q * (1 + v * ratio))
        out[np.diag_indices(len(v))] += q * ratio * g
        return out

    def velocity(self, y: Tensor) -> Tensor:
        """Return dv/dt."""
        return torch.from_numpy(self._velocity(y.numpy()))

    def params(self, y: Tensor) -> P:
        """Return all layers."""
        return cast(P, self._layers.layers(y).reshape(self._shape))

    def stands(self, y: Tensor, left: float, rtol: float) -> bool:
        """Return whether β would not move in the time left, or its gradient is rounding errors."""
        v = y.numpy()
        q = self._layer_product(v)
        weights = self._scale * self._expit(-(self._x @ (v * q)))
        g = self._xt @ weights
        speed = q * q * (1 + v * self._log_slope(v)) * g
        if np.linalg.norm(speed) * left <= 0.1 * rtol * np.linalg.norm(v * q):
            return True
        eps = 4 * np.finfo(float).eps
        if np.abs(g).max() > eps * self._largest * weights.sum():  # saves the absolute values
            return False
        return bool((np.abs(g) <= eps * (np.abs(self._xt) @ weights)).all())
