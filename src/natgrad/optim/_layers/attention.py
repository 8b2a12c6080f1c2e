"""`torch.nn.MultiheadAttention`, whose projections no hook sees: they are found in the graph."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import Module, Parameter

from natgrad.optim._curvature.factor import Gram, with_ones
from natgrad.optim._layers.linear import Layer, LinearLayer, Pass, wide

# Nodes of the graph to look at between an attention's output and its projections.
_FAR = 400


class AttentionLayer(LinearLayer):
    """The packed projection of self-attention: blocks of queries, keys and values, as a stack."""

    weight_name = "in_proj_weight"
    bias_name = "in_proj_bias"
    rank_one = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(3, n_out, n_in)`."""
        return 3, len(self.weight) // 3, self.fan_in + (self.bias is not None)

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why the projections have no block, or None if they have one."""
        if module.in_proj_weight is None:
            return "attention whose keys or values have a size of their own"
        return None

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: Mapping[str, Layer]
    ) -> Iterator[Pass]:
        """Yield the projections that are found in the graph of what the attention returned."""
        if output[0].requires_grad:
            names = (self.name, f"{self.name}.out_proj".lstrip("."))
            own = {name: layers[name] for name in names if name in layers}
            for name, x, edge in projections(output[0], own):
                yield name, x, edge, False

    def _stacked(self, e: Tensor) -> Tensor:
        return wide(self.error_rows(e)).reshape(-1, 3, self.shape[1]).transpose(0, 1)

    def sum_inputs(self, x: Tensor, n: int) -> tuple[Gram, int]:
        """Return Σ x̄ x̄ᵀ, the same for all three."""
        rows = wide(self.input_rows(x))
        rows = with_ones(rows) if self.bias is not None else rows
        return Gram(total=(rows.mT @ rows).expand(3, -1, -1).contiguous()), len(rows)

    def sum_errors(self, e: Tensor, x: Tensor, n: int) -> Gram:
        """Return Σ e eᵀ of queries, keys and values."""
        rows = self._stacked(e)
        return Gram(total=rows.mT @ rows)

    def sum_squares(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return Σ e² x̄² over rows of each."""
        inputs = wide(self.input_rows(x)).square()
        inputs = with_ones(inputs) if self.bias is not None else inputs
        return self._stacked(e).square().mT @ inputs


def projections(
    output: Tensor, layers: Mapping[str, Layer]
) -> Iterator[tuple[str, Tensor, GradientEdge]]:
    """Yield name, inputs and edge of each projection between an output and its inputs.

    Args:
        output: What the attention returned.
        layers: Layers to look for, by name.
    """
    wanted = {id(layer.weight): name for name, layer in layers.items()}
    front: list[Any] = [output.grad_fn]
    passed: set[Any] = set()
    while front and len(passed) < _FAR:
        node = front.pop(0)
        if node is None or node in passed:
            continue
        passed.add(node)
        saved = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}.get(node.name())
        if saved is not None:
            for before, _ in node.next_functions:
                name = wanted.get(id(_leaf(before)))
                if name is not None:
                    yield name, getattr(node, saved).detach(), GradientEdge(node, 0)
        front.extend(before for before, _ in node.next_functions)


def _leaf(node: Any) -> Parameter | None:
    """Return the parameter that a node only transposes or converts."""
    for _ in range(4):
        if node is None:
            return None
        if hasattr(node, "variable"):
            leaf: Parameter = node.variable
            return leaf
        if node.name() not in ("TBackward0", "TransposeBackward0", "ToCopyBackward0"):
            return None
        node = node.next_functions[0][0]
    return None
