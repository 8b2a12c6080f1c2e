"""Walks through the graph that autograd recorded."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge


def ancestors(output: Tensor) -> Iterator[Any]:
    """Yield the graph nodes that computed a tensor."""
    front, passed = [output.grad_fn], set()
    while front:
        node = front.pop()
        if node is not None and node not in passed:
            passed.add(node)
            yield node
            front.extend(before for before, _ in node.next_functions)


def behind_views(edge: GradientEdge) -> GradientEdge:
    """Return the edge behind nodes that only reshape their input."""
    node = edge.node
    while node.name() in ("ViewBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0"):
        before, number = node.next_functions[0]
        if before is None:
            break
        edge, node = GradientEdge(before, number), before
    return edge
