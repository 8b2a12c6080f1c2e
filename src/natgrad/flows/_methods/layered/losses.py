"""Slopes and curvatures of losses in the outputs, in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from natgrad.flows._problem import Problem
from natgrad.likelihoods import Bernoulli, Categorical, Gaussian

Array = Any  # numpy.ndarray, whose products numpy itself types as Any
Outputs = Callable[[Array], Array]
"""A function of outputs `(n, k)`."""

_SPREAD = 600.0  # of all logits, up to which one shift keeps exponentials in range


def loss_in_outputs(problem: Problem[Any]) -> tuple[Outputs, Outputs] | None:
    """Return −∂L/∂f `(n, k)` and ∂²L/∂f² `(n, k, k)` of one sample each; None for other losses."""
    likelihood = problem.likelihood
    f, y = likelihood.prepare(problem.outputs, problem.batch[1])
    scale, labels = likelihood.scale(len(f)), y.numpy()
    if type(likelihood) is Gaussian and likelihood.covariance is None:
        return _squared(labels, scale)
    if type(likelihood) is Bernoulli:
        return _logistic(labels, scale)
    if type(likelihood) is Categorical:
        return _softmax(labels, scale, f.shape[1])
    return None


def _squared(y: Array, scale: float) -> tuple[Outputs, Outputs]:
    same = np.broadcast_to(scale * np.eye(y.shape[1]), (len(y), y.shape[1], y.shape[1]))
    return lambda f: scale * (y - f), lambda f: same


def _logistic(y: Array, scale: float) -> tuple[Outputs, Outputs]:
    from scipy.special import expit  # imported here to keep `import natgrad` light

    k, signed = np.eye(y.shape[1]), scale * y

    def curvature(f: Array) -> Array:
        return (scale * expit(f) * expit(-f))[:, :, None] * k

    return lambda f: signed * expit(-y * f), curvature


def _softmax(y: Array, scale: float, classes: int) -> tuple[Outputs, Outputs]:
    label = y[:, None] == np.arange(classes)
    others = scale * ~label

    # Products with ones are sums along the short axis, ten times as fast as `sum`.
    ones = np.ones((classes, 1))

    def probabilities(f: Array) -> Array:
        top = f.max()
        if top - f.min() > _SPREAD:
            top = f.max(1, keepdims=True)
        p = np.exp(f - top)
        p /= p @ ones
        return p

    def slope(f: Array) -> Array:
        p = others * probabilities(f)
        # 1 − p of the label is the sum of the others, which does not cancel.
        return label * (p @ ones) - p

    def curvature(f: Array) -> Array:
        p = probabilities(f)
        return scale * (p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :])

    return slope, curvature
