"""From values with a graph to strips of rows: recorded where possible, checked, else slower."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.optim._rows.jacobian import Jacobian, Strip
from natgrad.optim._rows.layers import recorded, recorded_layers
from natgrad.optim._rows.pieces import Dense, Outer, Piece
from natgrad.optim._rows.slow import BATCH, by_columns, slow_rows
from natgrad.optim._rows.tape import Pair, Phase, Tape

__all__ = ["Recorder"]

T = TypeVar("T")

# Recorded rows must reproduce a plain gradient to this many units of rounding, relative.
_AGREEMENT = 1e4


class Recorder:
    """Rows of a model's values in all of its parameters.

    Args:
        model: Whose layers are recorded.
        params: All parameters in the order of the columns: the model's trainable ones, and others.
        names: Their names, for messages.

    Attributes:
        slow: Why some rows took a slower route, by block or parameter.
    """

    def __init__(self, model: Module, params: Sequence[Tensor], names: Sequence[str]) -> None:
        self.params, self.names = list(params), list(names)
        self.layers = recorded_layers(model)
        self.slow: dict[str, str] = {}
        self._tape = Tape()
        self._trusted: dict[tuple[object, ...], bool] = {}
        where = {id(p): i for i, p in enumerate(self.params)}
        # Position of weight and bias of each recorded layer; None for frozen ones.
        self._owned: list[tuple[int | None, int | None]] = []
        for layer in self.layers.values():
            own = dict(layer.named_parameters(recurse=False))
            self._owned.append((where.get(id(own["weight"])), where.get(id(own.get("bias")))))
        covered = {i for pair in self._owned for i in pair if i is not None}
        self._rest = [i for i in range(len(self.params)) if i not in covered]
        self._covered = sorted(covered)

    def run(self, closure: Callable[[], T]) -> T:
        """Return what the closure returns, with products of layers recorded."""
        self._tape = Tape()
        with recorded(self.layers, self._tape), torch.enable_grad():
            return closure()

    def jacobian(self, values: Mapping[str, Tensor]) -> list[list[Strip]]:
        """Return one strip for each column of each block of values `(n, k)`, from `run`."""
        return [self._block(name, value) for name, value in values.items()]

    def assemble(self, strips: Sequence[Strip]) -> Jacobian:
        """Return the Jacobian of strips, possibly weighted; what `run` recorded is freed."""
        self._tape = Tape()
        return Jacobian(strips, [p.numel() for p in self.params], self.params[0])

    def _block(self, name: str, value: Tensor) -> list[Strip]:
        key = (name, value.shape)
        if self._trusted.get(key) is False:
            return self._slow_block(value)
        columns = [value[:, k] for k in range(value.shape[1])]
        pairs = [self._record(column) for column in columns]
        if key not in self._trusted or not self._fit(pairs, len(value)):
            self._trusted[key] = self._fit(pairs, len(value)) and self._agree(value, pairs)
            if not self._trusted[key]:
                if len(value) > BATCH:
                    self._name_block(name)
                return self._slow_block(value)
        return [self._strip(c, p) for c, p in zip(columns, pairs, strict=True)]

    def _record(self, column: Tensor) -> dict[int, list[Pair]]:
        """Return the pairs of one backward pass from the sum of a column."""
        if not self._covered:
            return {}
        tape, inputs = self._tape, [self.params[i] for i in self._covered]
        tape.pairs = {}
        with self._phase("record"):
            torch.autograd.grad(column.sum(), inputs, retain_graph=True, allow_unused=True)
        return tape.pairs

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        self._tape.phase = phase
        try:
            yield
        finally:
            self._tape.phase = "closure"

    def _fit(self, pairs: Sequence[Mapping[int, list[Pair]]], n: int) -> bool:
        """Return whether every pair has one row for each residual."""
        every = [pair for column in pairs for group in column.values() for pair in group]
        return all(len(e) == n and len(x) == n for e, x, _ in every)

    def _agree(self, value: Tensor, pairs: Sequence[Mapping[int, list[Pair]]]) -> bool:
        """Return whether recorded rows give the gradient of a random combination of values."""
        inputs = [self.params[i] for i in self._covered]
        if not inputs:
            return True
        source = torch.Generator().manual_seed(0)
        u = torch.randn(value.shape, generator=source, dtype=torch.float64).to(value)
        with self._phase("gradient"):
            grads = torch.autograd.grad(
                value, inputs, u, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        found = {i: torch.zeros_like(self.params[i]).reshape(-1) for i in self._covered}
        size = dict.fromkeys(self._covered, 0.0)
        for k, column in enumerate(pairs):
            for i, piece in self._pieces(column).items():
                found[i] += piece.transposed(u[:, k])
                size[i] += float(piece.transposed(u[:, k].abs()).abs().max())
        eps = _AGREEMENT * torch.finfo(value.dtype).eps
        return all(
            float((found[i] - grad.reshape(-1)).abs().max())
            <= eps * max(size[i], float(grad.abs().max()))
            for i, grad in zip(self._covered, grads, strict=True)
        )

    def _pieces(self, pairs: Mapping[int, list[Pair]]) -> dict[int, Piece]:
        """Return pieces of the recorded parameters; several layers may share one."""
        outer: dict[int, list[tuple[Tensor, Tensor]]] = {}
        dense: dict[int, Tensor] = {}
        for key, group in pairs.items():
            weight, bias = self._owned[key]
            if weight is not None:
                outer.setdefault(weight, []).extend((e, x) for e, x, _ in group)
            if bias is not None and any(counts for *_, counts in group):
                rows = torch.stack([e.sum(1) for e, _, counts in group if counts]).sum(0)
                dense[bias] = dense[bias] + rows if bias in dense else rows
        found: dict[int, Piece] = {i: Outer.of(group) for i, group in outer.items()}
        return found | {i: Dense(rows) for i, rows in dense.items()}

    def _strip(self, column: Tensor, pairs: Mapping[int, list[Pair]]) -> Strip:
        pieces = self._pieces(pairs)
        if self._rest:
            rest = slow_rows(column, [self.params[i] for i in self._rest])
            pieces |= {i: Dense(rows) for i, rows in zip(self._rest, rest, strict=True)}
            if not by_columns(column, [self.params[i] for i in self._rest]) and len(column) > BATCH:
                self._name_rest()
        return Strip(len(column), pieces)

    def _name_block(self, name: str) -> None:
        self.slow[name] = (
            f"residuals of block {name!r} do not belong to rows of the model's inputs one by one, "
            "so each takes a backward pass of its own. Evaluate the model on tensors with one row "
            "per residual, and differentiate with torch.autograd.grad(create_graph=True)."
        )

    def _name_rest(self) -> None:
        listed = ", ".join(self.names[i] for i in self._rest[:4])
        more = f" and {len(self._rest) - 4} more" if len(self._rest) > 4 else ""
        self.slow["parameters"] = (
            f"rows in {listed}{more} take a backward pass per residual: only weights and biases of "
            "torch.nn.Linear, Conv1d and Conv2d (one group, zero padding) are recorded."
        )

    def _slow_block(self, value: Tensor) -> list[Strip]:
        columns = [value[:, k] for k in range(value.shape[1])]
        with self._phase("gradient"):
            every = [slow_rows(column, self.params) for column in columns]
        return [
            Strip(len(value), {i: Dense(rows) for i, rows in enumerate(found)}) for found in every
        ]
