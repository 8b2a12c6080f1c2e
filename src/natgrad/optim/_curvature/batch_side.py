"""Directions of wide layers from the rows of a batch, where these are fewer than the sides.

The gradient of a linear layer is g = EᵀX, with n rows of errors and inputs. With inverses whose
blocks have sides b, (Λ̃ + γ̃)⁻¹ g (Λ + γ)⁻¹ costs 2 n_in n_out (b_in + b_out) operations by the
factors, and 2 n (n_in b_in + n_out b_out + n_in n_out) by the rows, as the product of two thin
matrices. The direction is not that of g alone but of a combination of g and an average ḡ of past
gradients. It is linear in both, so the direction of ḡ is kept and averaged like ḡ itself, as long
as the inverses stay; when they change, it is computed once by the factors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from natgrad.optim._capture.moments import Visit
from natgrad.optim._curvature.factor import with_ones
from natgrad.optim._curvature.kronecker import KroneckerBlock
from natgrad.optim._layers.linear import Layer, LinearLayer, wide
from natgrad.optim.momentum import Momentum

# The directions that are kept take four bytes per parameter. They must save this factor of
# operations, in layers with so many weights.
_GAIN, _LARGE = 2.5, 2**19

# A gradient and the product of its rows differ by rounding, in units of its precision.
_ROUNDING = 30

Rows = Mapping[str, Sequence[Visit]]
"""Passes through layers, by name, with the errors that came back."""


def pays(layer: Layer, rows: int) -> bool:
    """Return whether the direction of a layer costs much less by rows than by factors.

    Example:
        >>> wide, narrow = (LinearLayer("", torch.nn.Linear(n, n)) for n in (1000, 100))
        >>> pays(wide, 100), pays(wide, 1000), pays(narrow, 10)
        (True, False, False)
    """
    if type(layer) is not LinearLayer or layer.weight.numel() < _LARGE:
        return False
    n_out, n_in = layer.shape
    right, left = (shape[-1] for shape in layer.factor_shapes)
    by_rows = rows * (n_in * right + n_out * left + n_in * n_out)
    return n_in * n_out * (right + left) >= _GAIN * by_rows


@dataclass
class Kept:
    """The direction of an average of gradients.

    Attributes:
        value: (Λ̃ + γ̃)⁻¹ ḡ (Λ + γ)⁻¹, where ḡ is the average, of the average loss.
        slope: The inner product of ḡ and `value`.
        inverses: The inverses that it was computed with.
        average: The averages of which ḡ is one.
        gradients: Number of gradients in it.
    """

    value: Tensor
    slope: Tensor
    inverses: tuple[object, object]
    average: object
    gradients: int

    @classmethod
    def by(cls, block: KroneckerBlock, momentum: Momentum, value: Tensor, slope: Tensor) -> Self:
        """Return that of the present average, by the present inverses."""
        inverses = block.left.product, block.right.product
        return cls(value, slope, inverses, momentum.values, momentum.gradients)

    def fits(self, block: KroneckerBlock, momentum: Momentum) -> bool:
        """Return whether it is that of the present average, by the present inverses."""
        left, right = self.inverses
        known = left is block.left.product and right is block.right.product
        return known and self.average is momentum.values and self.gradients == momentum.gradients


class BatchSide:
    """Computes directions from rows; keeps those of averages of gradients.

    Args:
        momentum: The average of gradients, if there is one.

    Attributes:
        rows: Inputs, with a one for the bias, and errors of the layers that move by rows in this
            step, by name.
        kept: Directions of averages, by name.
    """

    def __init__(self, momentum: Momentum | None) -> None:
        self.momentum = momentum
        self.kept: dict[str, Kept] = {}
        self.rows: dict[str, tuple[Tensor, Tensor]] = {}

    @property
    def bytes(self) -> int:
        """Return the memory of the directions that are kept."""
        return sum(k.value.numel() * k.value.element_size() for k in self.kept.values())

    def forget(self) -> None:
        """Forget all directions; the next ones are computed by the factors."""
        self.kept = {}

    def begin(self, rows: Rows, blocks: Mapping[str, object]) -> set[Tensor]:
        """Take the rows of a batch; return the parameters whose gradients are their products.

        Args:
            rows: Rows of layers.
            blocks: All blocks, by name.
        """
        self.rows, params = {}, set[Tensor]()
        for name, block in blocks.items():
            if name not in rows or not isinstance(block, KroneckerBlock) or not block.ready:
                continue
            layer = block.layer
            x = torch.cat([layer.input_rows(visit.x) for visit in rows[name]])
            e = torch.cat(
                [layer.error_rows(torch.stack(visit.errors).sum(0)) for visit in rows[name]]
            )
            if pays(layer, len(x)) and self._together(layer) and (c := self._times(layer, x, e)):
                self.rows[name] = (x if layer.bias is None else with_ones(x)), c * e
                params |= set(layer.parameters)
        self.kept = {name: kept for name, kept in self.kept.items() if name in self.rows}
        return params

    def _together(self, layer: Layer) -> bool:
        """Return whether gradients of all of its parameters were averaged so far, or of none."""
        averaged = {} if self.momentum is None else self.momentum.values
        return len({p in averaged for p in layer.parameters}) == 1

    def _times(self, layer: Layer, x: Tensor, e: Tensor) -> float | None:
        """Return c if `.grad` is c times EᵀX up to rounding, else None.

        It is not if other losses or penalties contribute, if its entries were clipped, or if
        rows of other batches were added. The test is a product with random signs.
        """
        weight, bias = layer.weight.grad, None if layer.bias is None else layer.bias.grad
        if weight is None or (bias is None) != (layer.bias is None):
            return None
        if not x.dtype == e.dtype == weight.dtype == wide(weight).dtype or len(x) != len(e):
            return None
        drawn = torch.randint(2, (x.shape[1],), generator=torch.Generator().manual_seed(0))
        signs = (2 * drawn - 1).to(weight)
        inner = x @ signs
        products, found = [inner @ e], [weight @ signs]
        if bias is not None:
            products.append(e.sum(0))
            found.append(bias)
        product, gradient = torch.cat(products).double(), torch.cat(found).double()
        size = float(product @ product)
        times = float(product @ gradient) / size if size > 0 else 0.0
        largest = float(torch.linalg.vector_norm(e)) * float(torch.linalg.vector_norm(inner))
        allowed = _ROUNDING * torch.finfo(weight.dtype).eps * abs(times) * largest
        apart = float(torch.linalg.vector_norm(gradient - times * product))
        return times if times and apart <= allowed else None

    def direction(self, block: KroneckerBlock, total: float) -> tuple[Tensor, Tensor]:
        """Return a block's direction as one matrix, and its slope; the block must have rows.

        Args:
            block: The block.
            total: Divisor that turns `.grad` into the gradient of the average loss.
        """
        x, e = self.rows.pop(block.layer.name)
        e = e / total
        left, right = block.left.product, block.right.product
        assert left is not None
        assert right is not None
        u, v = left.left(e.mT), right.right(x)
        own = ((e @ u) * (x @ v.mT)).sum()
        past = self._past(block, total)
        if self.momentum is None or past is None:
            d = u @ v
            self._keep(block, d.clone(), own)
            return d, own
        old, fresh = self.momentum.ahead()
        cross = _inner(block.layer, past.value) / total
        d = torch.addmm(past.value, u, v, beta=old, alpha=1 - old)
        slope = (1 - old) ** 2 * own + 2 * old * (1 - old) * cross + old**2 * past.slope
        # (1 − f) Pḡ + f Pg, where d is (1 − old) Pg + old Pḡ
        value = past.value.lerp_(d, fresh / (1 - old))
        bend = (1 - fresh) ** 2 * past.slope + 2 * fresh * (1 - fresh) * cross + fresh**2 * own
        self._keep(block, value, bend)
        return d, slope

    def _past(self, block: KroneckerBlock, total: float) -> Kept | None:
        """Return the direction of the average so far; None if there is none."""
        if self.momentum is None or block.layer.weight not in self.momentum.values:
            return None
        kept = self.kept.get(block.layer.name)
        if kept is not None and kept.fits(block, self.momentum):
            return kept
        layer, values = block.layer, self.momentum.values
        bias = None if layer.bias is None else values[layer.bias].to(layer.weight.dtype)
        mean = layer.matrix(values[layer.weight].to(layer.weight.dtype), bias) / total
        value = block.direction(mean)
        slope = torch.dot(mean.reshape(-1), value.reshape(-1))
        return Kept.by(block, self.momentum, value, slope)

    def _keep(self, block: KroneckerBlock, value: Tensor, slope: Tensor) -> None:
        """Keep the direction of the average that the gradient of this step will have joined."""
        if self.momentum is not None:
            kept = Kept.by(block, self.momentum, value, slope)
            kept.gradients += 1
            self.kept[block.layer.name] = kept


def _inner(layer: Layer, d: Tensor) -> Tensor:
    """Return the inner product of `.grad` and a direction."""
    pairs = zip(layer.parameters, layer.split(d), strict=True)
    return torch.stack([(p.grad * part).sum() for p, part in pairs if p.grad is not None]).sum()
