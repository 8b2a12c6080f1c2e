"""The solver for gradient flow of matrix completion, with explicit gradients."""

from typing import cast

import numpy as np
import torch
from torch import Tensor

from natgrad.flows._methods.adaptive import PairedSolver
from natgrad.flows._methods.completion.chain import Chain, Factors
from natgrad.flows._methods.completion.observed import DenseResidual, residual
from natgrad.flows._methods.coordinates import Arrays, Coordinates
from natgrad.flows._methods.layered.model import Layer, LayeredModel, places
from natgrad.flows._problem import Problem
from natgrad.likelihoods import Gaussian
from natgrad.parametrizations import MatrixProduct
from natgrad.parametrizations.base import P


def is_completion(problem: Problem[P]) -> bool:
    """Return whether this is completion with squared loss, each entry observed once."""
    x = problem.batch[0]
    return (
        isinstance(problem.likelihood, Gaussian)
        and problem.likelihood.covariance is None
        and isinstance(problem.parametrization, MatrixProduct)
        and len(torch.unique(x, dim=0)) == len(x)
    )


class CompletionSolver(PairedSolver):
    """The pair of explicit methods, with products of factors formed once per gradient."""

    purpose = "euclidean flows of MatrixProduct under Gaussian, each entry observed once"

    def __init__(self) -> None:
        super().__init__()
        self.name = "completion"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is gradient flow of matrix completion."""
        return problem.is_euclidean and is_completion(problem)

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for problems that it suits."""
        return "for matrix completion" if self.suits(problem) else None

    def coordinates(self, problem: Problem[P], params: P) -> Coordinates[P]:
        """Return the factors in one vector."""
        return ChainCoordinates(problem, params)


class ChainCoordinates(Coordinates[P]):
    """A `Chain`, in the time of the loss as reduced."""

    def __init__(self, problem: Problem[P], params: P) -> None:
        super().__init__(problem, params)
        factors = cast(Factors, params)
        x, y = problem.batch
        shape = (factors[0].shape[0], factors[-1].shape[1])
        left = residual(x, y.reshape(-1).to(factors[0]), shape)
        self._chain = Chain(factors, left)
        self._scale = problem.likelihood.scale(len(x))
        if isinstance(left, DenseResidual) and left.matrix.dtype == torch.float64:
            if left.matrix.device.type == "cpu":
                self.arrays = _array_field(factors, left, self._scale)

    def velocity(self, y: Tensor) -> Tensor:
        """Return −∇L."""
        if self.arrays is not None:
            return torch.from_numpy(self.arrays(y.numpy()))
        out = torch.empty_like(y)
        self._chain.field(y, out)
        return out if self._scale == 1 else out.mul_(self._scale)


def _array_field(factors: Factors, left: DenseResidual, scale: float) -> Arrays:
    """Return −∇L of all factors in one array: NumPy calls a small product sooner than torch."""
    mask, target = scale * left.mask.numpy(), scale * left.target.numpy()
    layers = [
        Layer(place, (w.shape[0], w.shape[1]), rows=False)
        for place, w in zip(places(factors), factors, strict=True)
    ]
    model = LayeredModel(layers, None, sum(w.numel() for w in factors))

    def field(flat: np.ndarray) -> np.ndarray:
        passed = model.forward(flat)
        found: np.ndarray = model.backward(flat, passed, target - mask * passed.outputs)[0]
        return found

    return field
