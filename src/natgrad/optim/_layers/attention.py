"""`torch.nn.MultiheadAttention`: its projections are found in the graph; hooks do not see them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module

from natgrad.optim._curvature.factor import Gram, with_ones
from natgrad.optim._layers.found import FoundLayer, products, tensors_in
from natgrad.optim._layers.linear import Layer, LinearLayer, Pass, wide


@dataclass(frozen=True)
class Projected:
    """The inputs of some of the three projections.

    Attributes:
        x: The inputs.
        first: Number of the first projection that took them.
        last: Number after the last projection that took them.
        times: Rows of the queries divided by rows of these inputs.
    """

    x: Tensor
    first: int = 0
    last: int = 3
    times: float = 1.0

    def __len__(self) -> int:
        """Return 0: rows of one sample are not together."""
        return 0


class AttentionLayer(LinearLayer):
    """The packed projection: blocks of queries, keys and values, as a stack.

    In cross-attention, keys and values have their own inputs.
    """

    weight_name = "in_proj_weight"
    bias_name = "in_proj_bias"
    rank_one = False
    searches = True

    @classmethod
    def all_of(cls, name: str, module: Module) -> list[Layer]:
        """Return the packed projection, or three if keys or values have their own sizes."""
        if module.in_proj_weight is not None:
            return [cls(name, module)]
        weights = [f"{kind}_proj_weight" for kind in "qkv"]
        return [
            SeparateLayer(name, module, weight, None, leads=i == 0)
            for i, weight in enumerate(weights)
        ]

    def rows_each(self, x: Any) -> int:
        """Return 0: the inputs are not one tensor of which a part could be used."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(3, n_out, n_in)`."""
        return 3, len(self.weight) // 3, self.fan_in + (self.bias is not None)

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: Mapping[str, Layer]
    ) -> Iterator[Pass]:
        """Yield the projections found in the graph of the attention's outputs."""
        own = _with_output(self.name, self, layers)
        found = list(products(tensors_in(output[0]), own, tensors_in([inputs, named])))
        queries = [len(p.x) for p in found if p.name == self.name and (p.rows or (0, 0))[0] == 0]
        size = len(self.weight) // 3
        for name, x, edge, rows in found:
            if name != self.name:
                yield name, x, edge, False
            else:
                first, last = (0, 3) if rows is None else (rows[0] // size, rows[1] // size)
                times = queries[0] / len(x) if queries else 1.0
                yield name, Projected(x, first, last, times), edge, False  # type: ignore[misc]

    def _inputs(self, p: Projected) -> Tensor:
        rows = wide(LinearLayer.input_rows(self, p.x))
        return with_ones(rows) if self.bias is not None else rows

    def _stacked(self, e: Tensor, p: Projected) -> Tensor:
        rows = wide(LinearLayer.error_rows(self, e))
        return rows.reshape(-1, p.last - p.first, self.shape[1]).transpose(0, 1)

    def _placed(self, part: Tensor, p: Projected) -> Tensor:
        """Return matrices of some projections with zeros for the others."""
        if (p.first, p.last) == (0, 3):
            return part
        whole = part.new_zeros(3, *part.shape[1:])
        whole[p.first : p.last] = part
        return whole

    def input_rows(self, x: Any) -> Tensor:
        """Return the inputs; none for keys and values that have their own inputs."""
        return LinearLayer.input_rows(self, x.x[: len(x.x) if x.first == 0 else 0])

    def sum_inputs(self, x: Any, n: int) -> tuple[Gram, int]:
        """Return Σ x̄ x̄ᵀ of each, in units of the rows of the queries."""
        rows = self._inputs(x)
        gram = x.times * (rows.mT @ rows).expand(x.last - x.first, -1, -1)
        return Gram(total=self._placed(gram.contiguous(), x)), len(rows) if x.first == 0 else 0

    def sum_errors(self, e: Tensor, x: Any, n: int) -> Gram:
        """Return Σ e eᵀ of queries, keys and values."""
        rows = self._stacked(e, x)
        return Gram(total=self._placed(rows.mT @ rows, x))

    def sum_squares(self, e: Tensor, x: Any, n: int) -> Tensor:
        """Return Σ e² x̄² over rows of each."""
        squares = self._stacked(e, x).square().mT @ self._inputs(x).square()
        return self._placed(squares, x)


class SeparateLayer(FoundLayer):
    """A projection of queries, keys or values with its own weight."""

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: Mapping[str, Layer]
    ) -> Iterator[Pass]:
        """Yield the three projections and that of the output."""
        if self.leads:
            name = self.name.rpartition(".")[0]
            own = _with_output(name, self, layers)
            for key, x, edge, _ in products(
                tensors_in(output[0]), own, tensors_in([inputs, named])
            ):
                yield key, x, edge, False


def _with_output(name: str, layer: Layer, layers: Mapping[str, Layer]) -> dict[str, Layer]:
    """Return the layers of an attention, and that of its output, which is a module of its own."""
    last = f"{name}.out_proj".lstrip(".")
    return {
        key: other for key, other in layers.items() if other.module is layer.module or key == last
    }
