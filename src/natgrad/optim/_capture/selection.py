"""Find the criterion's inputs among the model's outputs.

Users reshape, transpose, slice and mask outputs before calling the criterion. All of these only
move numbers, so running the model again gives the criterion's inputs again once their places
are known. The places are found by sending numbers back through the graph: the gradient of
Σᵢ i · seenᵢ at an output is i if that output is the i-th input of the criterion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge


@dataclass(frozen=True)
class Output:
    """A tensor that a model returned: its numbers without their graph, and its edge in the graph.

    Attributes:
        data: The numbers.
        edge: The edge.
    """

    data: Tensor
    edge: GradientEdge

    @classmethod
    def of(cls, tensor: Tensor) -> "Output":
        """Return the numbers and the edge of a tensor with a graph."""
        return cls(tensor.detach(), get_gradient_edge(tensor))


@dataclass(frozen=True)
class Selection:
    """The places of a criterion's inputs.

    Attributes:
        source: Which of the model's outputs holds them; −1 for all outputs, concatenated.
        shape: Shape of the criterion's input.
        index: Flat places, in that shape; None if all numbers are taken in their order.
    """

    source: int
    shape: tuple[int, ...]
    index: Tensor | None = None

    def of(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return the criterion's input for other outputs of the model."""
        found = _joined(outputs) if self.source < 0 else outputs[self.source]
        if self.index is None:
            alike = found.shape[1:] == self.shape[1:]
            return found if alike else found.reshape(-1, *self.shape[1:])
        return found.reshape(-1)[self.index]


def locate(seen: Tensor, outputs: Sequence[Output], hint: Selection | None) -> Selection | None:
    """Return where a tensor's numbers are in the outputs; None if it was computed from them.

    Args:
        seen: The criterion's input, with its graph.
        outputs: What the model returned.
        hint: The result for the previous batch.

    Example:
        >>> w = torch.ones(2, 3, requires_grad=True)
        >>> out = w * torch.arange(6.0).reshape(2, 3)
        >>> locate(out.mT[1:], [Output.of(out)], None).index
        tensor([[1, 4],
                [2, 5]])
        >>> locate(2 * out, [Output.of(out)], None) is None
        True
    """
    if not seen.requires_grad or seen.ndim == 0:
        return None
    shape = tuple(seen.shape)
    for i, output in enumerate(outputs):
        if _same_numbers(seen, output):
            return Selection(i, shape)
    data = [output.data for output in outputs]
    if hint is not None and hint.shape == shape and _agrees(hint, seen, data):
        return hint
    found = _trace(seen, outputs)
    return found if found is not None and _agrees(found, seen, data) else None


def locate_parts(parts: Sequence[Tensor], outputs: Sequence[Output]) -> Selection | None:
    """Return the places of several tensors whose rows are put side by side.

    The tensors are searched one by one, because outputs may depend on each other.

    Args:
        parts: The tensors, each with as many rows.
        outputs: What the model returned.
    """
    sizes = [output.data.numel() for output in outputs]
    found: list[Tensor] = []
    for part in parts:
        selection = locate(part, outputs, None)
        if selection is None or selection.source < 0:
            return None
        places = selection.index
        if places is None:
            places = torch.arange(part.numel(), device=part.device)
        found.append((places + sum(sizes[: selection.source])).reshape(len(part), -1))
    index = torch.cat(found, 1)
    return Selection(-1, tuple(index.shape), index)


def _joined(outputs: Sequence[Tensor]) -> Tensor:
    return torch.cat([output.reshape(-1) for output in outputs])


def _same_numbers(seen: Tensor, output: Output) -> bool:
    """Return whether a tensor is an output, or all of it in another shape."""
    data = output.data
    if seen.shape == data.shape and get_gradient_edge(seen) == output.edge:
        return True
    alike = seen.numel() == data.numel() and seen.dtype == data.dtype
    near = seen.is_contiguous() and data.is_contiguous()
    return alike and near and seen.data_ptr() == data.data_ptr()


@torch.no_grad()
def _agrees(selection: Selection, seen: Tensor, outputs: Sequence[Tensor]) -> bool:
    """Return whether a selection gives exactly these numbers."""
    if selection.source >= len(outputs):
        return False
    held = outputs if selection.source < 0 else [outputs[selection.source]]
    if selection.index is not None:
        sizes = sum(output.numel() for output in held)
        if selection.index.numel() and int(selection.index.max()) >= sizes:
            return False
    return torch.equal(selection.of(outputs).to(seen.dtype), seen)


def _trace(seen: Tensor, outputs: Sequence[Output]) -> Selection | None:
    """Return the places that gradients reveal, to be verified."""
    # Numbers are sent in digits that each dtype holds exactly; the first is never zero.
    coarsest = max(torch.finfo(t.dtype).eps for t in (seen, *(o.data for o in outputs)))
    base = int(2 / coarsest) - 1
    count = torch.arange(seen.numel(), device=seen.device).reshape(seen.shape)
    digits = 1
    while base**digits < seen.numel():
        digits += 1
    back: list[list[Tensor | None]] = []
    edges: list[Any] = [output.edge for output in outputs]
    for digit in range(digits):
        sent = (count // base**digit) % base + (digit == 0)
        graded = torch.autograd.grad(
            seen, edges, sent.to(seen.dtype), retain_graph=True, allow_unused=True
        )
        back.append(list(graded))
    used = [i for i, g in enumerate(back[0]) if g is not None]
    source = used[0] if len(used) == 1 else -1
    index = torch.full((seen.numel(),), -1, device=seen.device)
    start = 0
    for i, output in enumerate(outputs):
        if i in used:
            number = sum((_whole(g[i]) * base**d for d, g in enumerate(back)), torch.tensor(0)) - 1
            places = torch.nonzero(back[0][i].reshape(-1))[:, 0]  # type: ignore[union-attr]
            numbers = number.reshape(-1)[places]
            if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(index):
                return None
            index[numbers] = places + (start if source < 0 else 0)
        start += output.data.numel()
    if not used or bool((index < 0).any()):
        return None
    return Selection(source, tuple(seen.shape), index.reshape(seen.shape))


def _whole(g: Tensor | None) -> Tensor:
    assert g is not None
    return g.double().round().long()
