"""Models made of linear layers and activations, and their gradients, in NumPy.

A small network takes a few microseconds of arithmetic, and autograd ten times as much to arrange
it. These are `Direct`, `DeepLinear`, and a `Network` whose module is a `torch.nn.Sequential` of
`Linear`, `Tanh`, `Sigmoid`, `ReLU` and `Flatten`, all parameters trained, in double precision.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from natgrad.flows._problem import Problem
from natgrad.parametrizations import DeepLinear, Direct, Network
from natgrad.parametrizations.base import leaves

Array = Any  # numpy.ndarray, whose products numpy itself types as Any
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Layer:
    """One linear map with its activation.

    Attributes:
        weight: Place of the weights in the vector of all parameters.
        shape: Their shape.
        rows: Whether they are `(outputs, inputs)`, as in torch, or `(inputs, outputs)`.
        bias: Place of the biases; None without.
        activation: `"tanh"`, `"sigmoid"`, `"relu"`, or nothing.
    """

    weight: slice
    shape: tuple[int, int]
    rows: bool = True
    bias: slice | None = None
    activation: str = ""

    def matrix(self, flat: Array) -> Array:
        """Return the weights as `(inputs, outputs)`."""
        w = flat[self.weight].reshape(self.shape)
        return w.T if self.rows else w


@dataclass(frozen=True)
class Passed:
    """What a forward pass leaves for the backward pass.

    Attributes:
        inputs: Inputs of every layer; None is the identity matrix.
        slopes: Derivatives of every activation; None where there is none.
        before: Pre-activations of the ReLUs.
        outputs: Outputs `(n, k)`.
    """

    inputs: list[Array]
    slopes: list[Array | None]
    before: list[Array]
    outputs: Array


class LayeredModel:
    """A sequence of layers at inputs `(n, d)`; None is the identity matrix."""

    def __init__(self, layers: list[Layer], x: Array | None, size: int) -> None:
        from scipy.special import expit  # imported here to keep `import natgrad` light

        self.layers, self._x, self.size = layers, x, size
        self._expit: Callable[[Array], Array] = expit

    @property
    def is_linear(self) -> bool:
        """Return whether the outputs are linear in the parameters."""
        return len(self.layers) == 1 and not self.layers[0].activation

    def forward(self, flat: Array, relus: list[Array] | None = None) -> Passed:
        """Return the outputs; with `relus`, these are the slopes of the ReLUs."""
        h, inputs, slopes = self._x, [], []
        before: list[Array] = []
        for layer in self.layers:
            inputs.append(h)
            h = layer.matrix(flat) if h is None else h @ layer.matrix(flat)
            if layer.bias is not None:
                h = h + flat[layer.bias]
            slope = None
            if layer.activation == "tanh":
                h = np.tanh(h)
                slope = 1 - h * h
            elif layer.activation == "sigmoid":
                h = self._expit(h)
                slope = h * (1 - h)
            elif layer.activation == "relu":
                slope = (h > 0).astype(float) if relus is None else relus[len(before)]
                before.append(h)
                h = h * slope
            slopes.append(slope)
        return Passed(inputs, slopes, before, h)

    def backward(self, flat: Array, passed: Passed, signal: Array) -> tuple[Array, list[Array]]:
        """Return the sum of Jᵀ signal over samples, and the signals at the outputs of the ReLUs."""
        out, at_relus = np.empty(self.size), []
        for i in range(len(self.layers) - 1, -1, -1):
            layer, slope = self.layers[i], passed.slopes[i]
            if layer.activation == "relu":
                at_relus.append(signal)
            if slope is not None:
                signal = signal * slope
            h, weight = passed.inputs[i], out[layer.weight].reshape(layer.shape)
            if h is None:
                weight[:] = signal.T if layer.rows else signal
            else:
                np.matmul(*((signal.T, h) if layer.rows else (h.T, signal)), out=weight)
            if layer.bias is not None:
                np.sum(signal, axis=0, out=out[layer.bias])
            if i:
                signal = signal @ layer.matrix(flat).T
        return out, at_relus[::-1]

    def gradient_before(self, flat: Array, passed: Passed, which: int, n: int, j: int) -> Array:
        """Return the gradient of one ReLU's pre-activation, of unit j at sample n."""
        out = np.zeros(self.size)
        last = [i for i, layer in enumerate(self.layers) if layer.activation == "relu"][which]
        signal = np.zeros(passed.before[which].shape[1])
        signal[j] = 1.0
        for i in range(last, -1, -1):
            layer, slope = self.layers[i], passed.slopes[i]
            if slope is not None and i < last:
                signal = signal * slope[n]
            h = passed.inputs[i][n]
            a, b = (signal, h) if layer.rows else (h, signal)
            out[layer.weight] = np.outer(a, b).ravel()
            if layer.bias is not None:
                out[layer.bias] = signal
            signal = layer.matrix(flat) @ signal
        return out


def layered_model(problem: Problem[Any]) -> LayeredModel | None:
    """Return the model of a problem in layers; None if it is another one."""
    x = problem.batch[0]
    tensors = [*leaves(problem.params), x]
    plain = all(t.dtype == torch.float64 and t.device.type == "cpu" for t in tensors)
    if not plain or x.ndim != 2:
        return None
    layers = _layers(problem)
    if layers is None:
        return None
    size = sum(leaf.numel() for leaf in leaves(problem.params))
    return LayeredModel(layers, np.ascontiguousarray(x.numpy()), size)


def _layers(problem: Problem[Any]) -> list[Layer] | None:
    params, model = problem.params, problem.parametrization
    if type(model) is Direct:
        (w,) = leaves(params)
        shape = (w.shape[0], 1 if w.ndim == 1 else w.shape[1])
        return [Layer(slice(0, w.numel()), shape, rows=False)]
    if type(model) is DeepLinear:
        weights = leaves(params)
        return [
            Layer(place, (w.shape[0], w.shape[1]))
            for place, w in zip(places(weights), weights, strict=True)
        ]
    return _sequential(model.module, params) if type(model) is Network else None


def places(tensors: Sequence[Tensor]) -> list[slice]:
    """Return where each tensor is in the vector of all."""
    ends = list(accumulate(t.numel() for t in tensors))
    return [slice(end - t.numel(), end) for t, end in zip(tensors, ends, strict=True)]


def _sequential(module: nn.Module, params: dict[str, Tensor]) -> list[Layer] | None:
    """Return the layers of a sequential module; None if any part of it is something else."""
    where = dict(zip(params, places(list(params.values())), strict=True))
    parts = dict(module.named_children())
    own = dict(module.named_parameters())
    known = (
        type(module) is nn.Sequential and len(parts) == len(module) and own.keys() == where.keys()
    )
    if not known or any(getattr(m, hooks) for m in module.modules() for hooks in _HOOKS):
        return None
    layers: list[Layer] = []
    names = {nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.ReLU: "relu"}
    for index, (name, part) in enumerate(parts.items()):
        if type(part) is nn.Linear:
            bias = where.get(f"{name}.bias")
            shape = (part.out_features, part.in_features)
            layers.append(Layer(where[f"{name}.weight"], shape, True, bias))
        elif type(part) in names and layers and not layers[-1].activation:
            last = layers[-1]
            layers[-1] = Layer(last.weight, last.shape, True, last.bias, names[type(part)])
        elif not (type(part) is nn.Flatten and index == len(parts) - 1 and layers):
            return None
    return layers or None
