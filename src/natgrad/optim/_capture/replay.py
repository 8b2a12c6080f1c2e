"""Running a model again on the batch it has just seen, with the same random numbers and buffers."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import Module


class Replay:
    """The arguments of one forward pass, and the state of the random numbers before it.

    Running it again draws the same dropout masks, and leaves buffers (running averages of batch
    normalization) and the global random state as they were.

    Args:
        model: The model.
        args: Positional arguments of its forward.
        kwargs: Named arguments of its forward.

    Attributes:
        each: How many rows of the outputs belong to one sample, for example the positions of a
            text. 0 if that is not known; outputs are then computed for the whole batch only.
        cuts: Positions and names of the arguments that have a row for each sample. A mask may have
            as many rows by chance, so only what was tried should be cut.
    """

    def __init__(self, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self._random = torch.get_rng_state()
        first = next(model.parameters()).device
        self._device = first.type
        self._gpus = [first.index] if first.type == "cuda" else []
        self._gpu_random = [torch.cuda.get_rng_state(index) for index in self._gpus]
        self._output: weakref.ref[Tensor] | None = None
        self._key: Any = None
        self._data = self.each = 0
        self.cuts: list[int | str] = []

    def remember(self, output: Any) -> None:
        """Note what the forward returned: a tensor, or a tuple, list or mapping of tensors."""
        for key, value in _items(output):
            if isinstance(value, Tensor) and value.requires_grad:
                self._key, self._output = key, weakref.ref(value)
                self._data, self.each = self._divide(len(value) if value.ndim else 1)
                named: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
                self.cuts = [key for key, a in named if _sliceable(a) and len(a) == self._data]
                return

    def _divide(self, rows: int) -> tuple[int, int]:
        """Return the number of samples behind so many rows of outputs, and of rows for each."""
        lengths = [len(a) for a in (*self.args, *self.kwargs.values()) if _sliceable(a)]
        data = rows if rows in lengths else next(iter(lengths), 0)
        return (data, rows // data) if data and rows % data == 0 else (0, 0)

    def alive(self) -> bool:
        """Return whether the output of that forward still exists."""
        return self._output is not None and self._output() is not None

    def gives(self, output: Tensor) -> bool:
        """Return whether this tensor is the forward's own output, which a replay can reproduce."""
        return self._output is not None and self._output() is output

    def outputs(self, rows: int | None = None) -> Tensor:
        """Return the first `rows` rows of the model's outputs at its present parameters, or all.

        The caller has switched gradients off.
        """
        with self._undisturbed():
            args, kwargs = self._cut(rows)
            found = self._picked(self.model(*args, **kwargs))[:rows]
        short = rows is not None and len(found) < rows  # texts of unequal length
        return self.outputs()[:rows] if short else found

    def graph(self) -> Tensor:
        """Return the outputs once more, with a graph of their own."""
        with self._undisturbed(), torch.enable_grad():
            return self._picked(self.model(*self.args, **self.kwargs))

    def velocity(self, tangents: Mapping[str, Tensor]) -> Tensor:
        """Return J v, the derivative of the outputs along `tangents`, by forward-mode products.

        Args:
            tangents: v, by parameter name; parameters left out stay as they are.
        """
        with self._undisturbed(), forward_ad.dual_level():
            params = dict(self.model.named_parameters())
            dual: Any = forward_ad.make_dual
            duals = {name: dual(params[name].detach(), v) for name, v in tangents.items()}
            output = self._picked(functional_call(self.model, duals, self.args, self.kwargs))
            unpack: Any = forward_ad.unpack_dual
            tangent: Tensor | None = unpack(output).tangent
            return torch.zeros_like(output) if tangent is None else tangent

    def pullback(self, names: Sequence[str]) -> Callable[[Tensor], list[Tensor]]:
        """Return the function u ↦ Jᵀu, with J in the named parameters, which keeps a graph alive.

        Args:
            names: Which parameters.
        """
        known = dict(self.model.named_parameters())
        with self._undisturbed(), torch.enable_grad():
            params = {name: known[name].detach().requires_grad_() for name in names}
            output = self._picked(functional_call(self.model, params, self.args, self.kwargs))
        leaves = list(params.values())

        def pull(u: Tensor) -> list[Tensor]:
            return list(
                torch.autograd.grad(output, leaves, u, retain_graph=True, materialize_grads=True)
            )

        return pull

    def _picked(self, output: Any) -> Tensor:
        picked: Tensor = dict(_items(output))[self._key]
        return picked

    def _cut(self, rows: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the samples that these rows belong to."""
        if rows is None or not self.each:
            return self.args, self.kwargs
        data = -(-rows // self.each)

        def cut(a: Any) -> Any:
            return a[:data] if _sliceable(a) and len(a) == self._data else a

        return tuple(map(cut, self.args)), {key: cut(a) for key, a in self.kwargs.items()}

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        buffers = [(b, b.clone()) for b in self.model.buffers()]
        off = torch.autocast(self._device, enabled=False)  # differences are not to be rounded
        with off, torch.random.fork_rng(devices=self._gpus):
            torch.set_rng_state(self._random)
            for index, state in zip(self._gpus, self._gpu_random, strict=True):
                torch.cuda.set_rng_state(state, index)
            try:
                yield
            finally:
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)


def _items(output: Any) -> list[tuple[Any, Any]]:
    if isinstance(output, Mapping):
        return list(output.items())
    if isinstance(output, (tuple, list)):
        return list(enumerate(output))
    return [(None, output)]


def _sliceable(a: Any) -> bool:
    return isinstance(a, Tensor) and a.ndim > 0
