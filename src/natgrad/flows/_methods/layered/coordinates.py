"""All parameters of a layered model in one vector, its velocity in NumPy."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from natgrad.flows._methods.coordinates import Coordinates
from natgrad.flows._methods.layered.losses import Outputs, loss_in_outputs
from natgrad.flows._methods.layered.model import LayeredModel, layered_model
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P

Array = Any  # numpy.ndarray, whose products numpy itself types as Any


class LayeredCoordinates(Coordinates[P]):
    """Gradient flow of a layered model; of a single layer also its Jacobian."""

    def __init__(
        self,
        problem: Problem[P],
        params: P,
        model: LayeredModel,
        slope: Outputs,
        curvature: Outputs,
    ) -> None:
        super().__init__(problem, params)
        self._model, self._slope, self._curvature = model, slope, curvature
        self.arrays = self._velocity
        if model.is_linear:
            self.jacobian, self.contracts = self._jacobian, True

    def _velocity(self, flat: Array) -> Array:
        passed = self._model.forward(flat)
        return self._model.backward(flat, passed, self._slope(passed.outputs))[0]

    def _jacobian(self, flat: Array) -> Array:
        """Return −Σ xxᵀ ⊗ ∂²L/∂f², entries ordered as the weights are."""
        passed, layer = self._model.forward(flat), self._model.layers[0]
        x, blocks = passed.inputs[0], self._curvature(passed.outputs)
        if layer.bias is not None:
            x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        k, d = blocks.shape[1], x.shape[1]
        out = np.empty((d, k, d, k))
        for a in range(k):
            for b in range(a, k):
                out[:, a, :, b] = out[:, b, :, a] = -(x.T * blocks[:, a, b]) @ x
        if not layer.rows:
            return out.reshape(d * k, d * k)
        # Weights row by row, then the biases.
        inputs = layer.shape[1]
        place = np.arange(d * k).reshape(d, k)
        order = np.concatenate([place[:inputs].T.ravel(), place[inputs:].ravel()])
        return out.reshape(d * k, d * k)[np.ix_(order, order)]

    def velocity(self, y: Tensor) -> Tensor:
        """Return −∇L."""
        return torch.from_numpy(self._velocity(y.numpy()))


def coordinates_of(problem: Problem[P], params: P) -> Coordinates[P]:
    """Return all parameters in one vector, with the fastest velocity that is known."""
    model = layered_model(problem) if problem.is_euclidean and problem.weight == 1 else None
    loss = None if model is None else loss_in_outputs(problem)
    if model is None or loss is None:
        return Coordinates(problem, params)
    return LayeredCoordinates(problem, params, model, *loss)


def is_one_layer(problem: Problem[P]) -> bool:
    """Return whether `coordinates_of` will know the Jacobian."""
    model = layered_model(problem) if problem.is_euclidean else None
    return model is not None and model.is_linear and loss_in_outputs(problem) is not None
