"""Layers as the optimizer uses them: input rows, output errors, and one matrix.

A layer's parameters form one matrix W̄ of shape `(n_out, n_in)`; the bias is its last column. Its
Fisher block is approximated by Λ ⊗ Λ̃, the second moments of the layer's input rows (with a one
appended if there is a bias) and of the errors at its outputs. A weight used at many
positions of one sample (sequences, convolutions) has one row per position ("expand"), or one row
per sample with inputs averaged and errors summed over positions ("reduce"; Eschenhagen et al.
2023).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import Module, Parameter

from natgrad.optim._curvature.factor import Gram, factor_shape, with_ones

# Norm of small weights relative to that of a direction, below which first steps are shorter; and
# the shortest of them, for weights that begin at zero.
_USUAL, _LEAST = 0.3, 0.01

Sharing = Literal["expand", "reduce"]
"""How the positions at which one sample uses a weight are counted."""


Pass = tuple[str, Tensor, GradientEdge, bool]
"""A layer's name, its inputs, the graph's edge at its output, and whether its own forward ran."""


class Layer(ABC):
    """One module whose weight (and trainable bias, if any) form a single matrix.

    Args:
        name: The module's name in the model.
        module: The module.

    Attributes:
        sharing: How positions are counted.
        largest: Largest side of a block on the diagonal of a factor; None keeps factors whole.
        one_sided: Whether the input factor is one, so that only the error factor is damped.
        rank_one: Whether the gradient of one row is an outer product of errors and inputs.
        searches: Whether its passes are found by searching the graph, which takes time.
        fused: Whether its module has fused kernels, which have no graph inside.
        also: Other modules with the same weight and bias.
        elsewhere: Whether other modules use the weight in another way, which factors do not count.
        weight_name: Name of the weight in the module.
        bias_name: Name of the bias in the module; None if it cannot have one.
        named: The parameters that W̄ is made of, by their names in the model.
        parameters: The same as a list.
    """

    sharing: Sharing = "expand"
    largest: int | None = None
    one_sided = False
    rank_one = False
    searches = False
    fused = False
    weight_name = "weight"
    bias_name: str | None = "bias"

    def __init__(self, name: str, module: Module) -> None:
        self.name, self.module = name, module
        self.also: list[Module] = []
        self.elsewhere = False
        self.weight: Parameter = self.own_weight(module)
        bias = None if self.bias_name is None else getattr(module, self.bias_name, None)
        self.bias: Parameter | None = bias if bias is not None and bias.requires_grad else None
        self.fan_in = self.weight[0].numel()
        prefix = f"{name}." if name else ""
        kinds = {self.weight_name: self.weight, self.bias_name: self.bias}
        self.named = {f"{prefix}{kind}": p for kind, p in kinds.items() if p is not None}
        self.parameters = list(self.named.values())

    def own_weight(self, module: Module) -> Parameter:
        """Return the parameter in the shape of the weight."""
        weight: Parameter = getattr(module, self.weight_name)
        return weight

    @classmethod
    def of(cls, name: str, module: Module) -> "Layer":
        """Return the layer of a module."""
        return cls(name, module)

    @classmethod
    def all_of(cls, name: str, module: Module) -> "list[Layer]":
        """Return the layers of a module: most have one, recurrent ones several."""
        return [cls.of(name, module)]

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why a module of this kind has no block, or None if it has one."""
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(n_out, n_in)` of W̄, the bias's column included."""
        return len(self.weight), self.fan_in + (self.bias is not None)

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of Λ and Λ̃."""
        *stack, n_out, n_in = self.shape
        if stack:
            return (*stack, n_in, n_in), (*stack, n_out, n_out)
        return factor_shape(n_in, self.largest), factor_shape(n_out, self.largest)

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """Return the sides of Λ and Λ̃ if these are stacks of diagonal blocks, else None."""
        if len(self.shape) > 2:
            return None, None
        inputs, errors = self.factor_shapes
        return (
            self.shape[1] if len(inputs) == 3 else None,
            self.shape[0] if len(errors) == 3 else None,
        )

    def norm(self, d: Tensor | None = None) -> float:
        """Return the norm of a direction whose length is learned: √min(m, n) · √max(1, m/n).

        Args:
            d: The direction, shape `shape`, for layers whose norm depends on it.
        """
        *stack, m, n = self.shape
        return math.sqrt(math.prod(stack) * min(m, n) * max(1.0, m / n))

    def start(self) -> float:
        """Return the first length of a step in units of the usual one: less for small weights.

        A first step with `Learned().start` then changes weights by at most a tenth of their norm.
        Weights as torch initializes them have about 0.58 times the norm of a direction.
        """
        squares = sum(float(wide(p.detach()).square().sum()) for p in self.parameters)
        relative = math.sqrt(squares) / self.norm()
        return min(1.0, max(_LEAST, relative / _USUAL))

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: "Mapping[str, Layer]"
    ) -> "Iterator[Pass]":
        """Yield the passes through layers in one forward of the module, if it has a graph.

        Args:
            inputs: Positional arguments of the forward.
            named: Named arguments.
            output: The module's output.
            layers: All layers of the model, by name.
        """
        if output.requires_grad:
            x: Tensor = inputs[0] if inputs else named["input"]
            yield self.name, x.detach(), get_gradient_edge(output), True

    @abstractmethod
    def input_rows(self, x: Tensor) -> Tensor:
        """Return the layer's inputs, one row per position, shape `(r, fan_in)`."""

    @abstractmethod
    def error_rows(self, e: Tensor) -> Tensor:
        """Return the errors at the layer's output, one row per position, `(r, n_out)`."""

    def rows_each(self, x: Tensor) -> int:
        """Return the number of rows per entry along the first axis of the inputs.

        0 if entries along that axis are not alike, so that a part of them does not represent
        all.
        """
        return 0

    def stride(self, x: Tensor, rows: int | None) -> int:
        """Return which entries along the first axis are enough: every k-th one.

        Args:
            x: What entered the layer.
            rows: Number of rows that are enough, unless four times a side of W̄ is more.
        """
        each = 0 if rows is None or self.sharing == "reduce" else self.rows_each(x)
        if rows is None or not each:
            return 1
        return max(1, len(x) // max(8, -(-max(rows, 4 * max(self.shape)) // each)))

    def reduced(self, rows: Tensor, n: int, *, mean: bool) -> Tensor:
        """Return rows as they are counted: all, or their average or sum over each sample."""
        if self.sharing == "expand" or len(rows) == n or len(rows) % n:
            return rows
        each = rows.reshape(n, -1, rows.shape[-1])
        return each.mean(1) if mean else each.sum(1)

    def sum_inputs(self, x: Tensor, n: int) -> tuple[Gram, int]:
        """Return Σ x̄ x̄ᵀ over rows, and how many rows there are.

        Args:
            x: What entered the layer.
            n: Number of samples of the batch.
        """
        rows = self.reduced(wide(self.input_rows(x)), n, mean=True)
        gram = Gram.of(rows, ones=self.bias is not None, largest=self.largest)
        return gram, len(rows)

    def sum_errors(self, e: Tensor, x: Tensor, n: int) -> Gram:
        """Return Σ e eᵀ over rows.

        Args:
            e: What came back to the layer's output.
            x: What entered the layer.
            n: Number of samples of the batch.
        """
        rows = self.reduced(wide(self.error_rows(e)), n, mean=False)
        return Gram.of(rows, largest=self.largest)

    def sum_squares(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return Σ e² x̄² over rows, in the shape of W̄."""
        inputs = wide(self.input_rows(x)).square()
        inputs = with_ones(inputs) if self.bias is not None else inputs
        return wide(self.error_rows(e)).square().mT @ inputs

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return a weight-shaped and a bias-shaped tensor as one matrix W̄."""
        flat = weight.reshape(*self.shape[:-1], -1)
        if self.bias is None:
            return flat
        out = flat.new_empty(self.shape) if out is None else out
        out[..., :-1].copy_(flat)
        column = out[..., -1]
        column.copy_(bias.reshape(column.shape) if bias is not None else torch.zeros_like(column))
        return out

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return a matrix as tensors in the shapes of `parameters`."""
        if self.bias is None:
            return [matrix.reshape(self.weight.shape)]
        weight, bias = matrix[..., :-1], matrix[..., -1]
        return [weight.reshape(self.weight.shape), bias.reshape(self.bias.shape)]

    def gradient(self, out: Tensor | None = None) -> Tensor | None:
        """Return `.grad` as a matrix, or None if the last backward pass left none."""
        if self.weight.grad is None:
            return None
        return self.matrix(self.weight.grad, None if self.bias is None else self.bias.grad, out)


class LinearLayer(Layer):
    """`torch.nn.Linear`, inputs with any leading dimensions."""

    rank_one = True

    def rows_each(self, x: Tensor) -> int:
        """Return the product of the axes between the first and the last."""
        return math.prod(x.shape[1:-1]) if x.ndim > 1 else 0

    def input_rows(self, x: Tensor) -> Tensor:
        """Return inputs with leading dimensions flattened."""
        return x.reshape(-1, x.shape[-1])

    def error_rows(self, e: Tensor) -> Tensor:
        """Return errors with leading dimensions flattened."""
        return e.reshape(-1, e.shape[-1])


class TurnedLayer(LinearLayer):
    """A linear layer whose weight has the shape `(n_in, n_out)`: `Conv1D` of transformers."""

    rank_one = False

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module)
        self.fan_in = len(self.weight)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(n_out, n_in)` of W̄, the bias's column included."""
        return self.weight.shape[1], self.fan_in + (self.bias is not None)

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return a weight-shaped and a bias-shaped tensor as one matrix W̄."""
        return super().matrix(weight.mT, bias, out)

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return a matrix as tensors in the shapes of `parameters`."""
        parts = [matrix] if self.bias is None else [matrix[:, :-1], matrix[:, -1]]
        return [parts[0].mT, *parts[1:]]


class Conv1D(Module):
    """Stands for the class of this name in transformers, which need not be installed."""


def wide(rows: Tensor) -> Tensor:
    """Return rows in float32 or wider."""
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
