"""Weights that a module uses inside its forward, where hooks do not see them.

Recurrent layers and attention call `addmm` themselves. The products are found in the graph of
the module's outputs, each with its inputs and the edge at its result. Every use of a weight, such
as one per time step, is a separate visit.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import Module, Parameter
from torch.nn.utils.rnn import PackedSequence

from natgrad.optim._layers.linear import Layer, LinearLayer, Pass

# Largest number of graph nodes to search between a module's output and its inputs.
_FAR = 200_000
_INPUTS = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}
_CONVERSIONS = ("TBackward0", "TransposeBackward0", "ToCopyBackward0")


class FoundLayer(LinearLayer):
    """One of several weights of a module, with the bias that is added to its product.

    Args:
        name: The module's name in the model.
        module: The module.
        weight: Name of the weight in the module.
        bias: Name of its bias, or None.
        leads: Whether this is the first of the module's layers, which looks for all of them.
    """

    rank_one = False
    searches = True

    def __init__(
        self, name: str, module: Module, weight: str, bias: str | None, *, leads: bool
    ) -> None:
        self.weight_name, self.bias_name = weight, bias
        super().__init__(name, module)
        self.name = f"{name}.{weight}" if name else weight
        self.leads = leads

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: Mapping[str, Layer]
    ) -> Iterator[Pass]:
        """Yield every product with a weight of the module."""
        if not self.leads:
            return
        own = {name: layer for name, layer in layers.items() if layer.module is self.module}
        for name, x, edge, _ in products(tensors_in(output), own, tensors_in([inputs, named])):
            yield name, x, edge, False


@dataclass(frozen=True)
class Product:
    """A product that was found: its layer, input, edge, and rows of the weight.

    Attributes:
        rows: First and last row of a weight of which only a part was used; None for all.
    """

    name: str
    x: Tensor
    edge: GradientEdge
    rows: tuple[int, int] | None

    def __iter__(self) -> Iterator[Any]:
        """Make the product unpackable."""
        return iter((self.name, self.x, self.edge, self.rows))


def products(
    outputs: Sequence[Tensor],
    layers: Mapping[str, Layer],
    inputs: Sequence[Tensor],
) -> Iterator[Product]:
    """Yield the products with layers' weights between the inputs and the outputs of a module.

    Args:
        outputs: The module's outputs.
        layers: Layers to look for, by name.
        inputs: The module's inputs; the search stops there.
    """
    wanted = {id(layer.weight): name for name, layer in layers.items()}
    front: deque[Any] = deque(t.grad_fn for t in outputs if t.requires_grad)
    passed: set[Any] = {t.grad_fn for t in inputs if t.grad_fn is not None}
    while front and len(passed) < _FAR:
        node = front.popleft()
        if node is None or node in passed:
            continue
        passed.add(node)
        saved = _INPUTS.get(node.name())
        if saved is not None:
            for before, number in node.next_functions:
                leaf, rows = _leaf(before, number)
                name = wanted.get(id(leaf))
                if name is not None:
                    yield Product(name, getattr(node, saved).detach(), GradientEdge(node, 0), rows)
        front.extend(before for before, _ in node.next_functions)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in nested tuples, lists, mappings and packed sequences."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for inner in value for t in tensors_in(inner)]
    return []


def _leaf(node: Any, number: int) -> tuple[Parameter | None, tuple[int, int] | None]:
    """Return the parameter that a node only transposes, converts or divides, and which rows."""
    rows: tuple[int, int] | None = None
    for _ in range(5):
        if node is None:
            return None, None
        if hasattr(node, "variable"):
            leaf: Parameter = node.variable
            return leaf, rows
        if node.name() == "SplitWithSizesBackward0":
            sizes = list(node._saved_split_sizes)
            rows = (sum(sizes[:number]), sum(sizes[: number + 1]))
        elif node.name() == "SplitBackward0":
            size = int(node._saved_split_size)
            rows = (number * size, (number + 1) * size)
        elif node.name() not in _CONVERSIONS:
            return None, None
        node, number = node.next_functions[0]
    return None, None
