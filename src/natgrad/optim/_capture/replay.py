"""Running a model again on the last batch, with the same random numbers and buffers."""

import copy
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import Module

from natgrad.optim._capture.selection import Output, Selection, locate, locate_parts


@dataclass
class Habits:
    """What the forward passes of one model have in common.

    Attributes:
        selection: Where the criterion's numbers were in the outputs of the last pass.
        differentiates: Whether the forward differentiates something itself, as the residual of a
            differential equation does, and so cannot run without gradients.
    """

    selection: Selection | None = None
    differentiates: bool = False


class Replay:
    """The arguments of one forward pass, and the state of the random numbers before it.

    Running it again draws the same dropout masks, and leaves buffers (running averages of batch
    normalization) and the global random state as they were.

    Args:
        model: The model.
        args: Positional arguments of its forward.
        kwargs: Named arguments of its forward.
        habits: What is known from earlier passes.

    Attributes:
        each: How many rows of the outputs belong to one sample, for example the positions of a
            text. 0 if that is not known; outputs are then computed for the whole batch only.
        cuts: Positions and names of the arguments that have a row for each sample. A mask may have
            as many rows by chance, so only arguments that were tested should be cut.
        draws: Whether the forward draws random numbers. Parts of a batch draw different ones.
        rounded: Whether outputs were rounded to half precision, as under autocast, whatever their
            dtype was when the criterion saw them.
    """

    def __init__(
        self,
        model: Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        habits: Habits | None = None,
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.habits = Habits() if habits is None else habits
        first = next(model.parameters()).device
        self._device = first.type
        self._gpus = [first.index] if first.type == "cuda" else []
        self._random = self._random_state()
        self._held: list[weakref.ref[Tensor]] = []
        self._outputs: list[Output] = []
        self._places: list[int] = []
        self._selection: Selection | None = None
        self._data = self._size = self.each = 0
        self.cuts: list[int | str] = []
        self.draws = self.rounded = False

    def _random_state(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in self._gpus)]

    def remember(self, output: Any) -> None:
        """Record the outputs of the forward: tensors in nested tuples, lists and mappings."""
        every = _tensors(output)
        self._places = [i for i, t in enumerate(every) if t.requires_grad]
        returned = [every[i] for i in self._places]
        self._held = [weakref.ref(t) for t in returned]
        self._outputs = [Output.of(t) for t in returned]
        states = zip(self._random, self._random_state(), strict=True)
        self.draws = not all(torch.equal(a, b) for a, b in states)
        named: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        if returned:
            self._divide(returned[0])
            self.cuts = [key for key, a in named if _sliceable(a) and len(a) == self._data]

    def _divide(self, output: Tensor) -> None:
        """Record the number of samples of an output, and its rows and numbers per sample."""
        rows = len(output) if output.ndim else 1
        lengths = [len(a) for a in (*self.args, *self.kwargs.values()) if _sliceable(a)]
        data = rows if rows in lengths else next(iter(lengths), 0)
        self._data, self.each = (data, rows // data) if data and rows % data == 0 else (0, 0)
        self._size = output.numel() // max(1, self._data)

    def alive(self) -> bool:
        """Return whether an output of that forward still exists."""
        return any(ref() is not None for ref in self._held)

    def giving(self, *seen: Tensor) -> "Replay | None":
        """Return this replay for a criterion's inputs: outputs, or numbers selected from them.

        None if the criterion was called on values computed from the outputs. Several tensors are
        put side by side.
        """
        if len(seen) == 1:
            found = locate(seen[0], self._outputs, self.habits.selection)
        else:
            found = locate_parts(seen, self._outputs)
        if found is None:
            return None
        self.habits.selection = found
        given = copy.copy(self)
        given._selection = found
        held = self._outputs if found.source < 0 else [self._outputs[found.source]]
        given.rounded = any(torch.finfo(o.data.dtype).bits < 32 for o in held)
        if found.source < 0:
            given.each = 0
        else:
            given._divide(self._outputs[found.source].data)
        return given

    def outputs(self, rows: int | None = None) -> Tensor:
        """Return the first `rows` rows of the criterion's input, at the present parameters.

        None means all rows. The caller has switched gradients off.
        """
        selection = self._selection
        assert selection is not None
        needed = self._needed(selection, rows)
        args, kwargs = self._cut(needed)
        outputs = self._run(args, kwargs)
        if needed is not None:
            held = outputs[selection.source].numel() if selection.source >= 0 else 0
            if held < needed * self._size:  # texts of unequal length
                outputs = self._run(self.args, self.kwargs)
        if selection.index is None and selection.source >= 0:
            return outputs[selection.source].reshape(-1, *selection.shape[1:])[:rows]
        if rows is not None and selection.index is not None:
            selection = replace(selection, index=selection.index[:rows])
        return selection.of(outputs)

    def _needed(self, selection: Selection, rows: int | None) -> int | None:
        """Return how many samples the first rows depend on; None for all."""
        if rows is None or not self.each:
            return None
        if selection.index is None:
            last = rows * math.prod(selection.shape[1:])
        else:
            last = int(selection.index[:rows].max()) + 1
        return min(self._data, -(-last // self._size))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Run the model; with a new graph if it differentiates something itself."""
        if not self.habits.differentiates:
            try:
                with self._undisturbed():
                    return self._picked(self.model(*args, **kwargs))
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                self.habits.differentiates = True
        with self._undisturbed(), torch.enable_grad():
            return [t.detach() for t in self._picked(self.model(*args, **kwargs))]

    def graph(self) -> Tensor:
        """Return the outputs again, with a new graph."""
        assert self._selection is not None
        with self._undisturbed(), torch.enable_grad():
            return self._selection.of(self._picked(self.model(*self.args, **self.kwargs)))

    def velocity(self, tangents: Mapping[str, Tensor]) -> Tensor:
        """Return J v, the derivative of the outputs along `tangents`, by forward-mode products.

        Args:
            tangents: v, by parameter name; parameters left out stay as they are.
        """
        with self._undisturbed(), forward_ad.dual_level():
            params = dict(self.model.named_parameters())
            dual: Any = forward_ad.make_dual
            duals = {name: dual(params[name].detach(), v) for name, v in tangents.items()}
            output = self._selected(functional_call(self.model, duals, self.args, self.kwargs))
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
            output = self._selected(functional_call(self.model, params, self.args, self.kwargs))
        leaves = list(params.values())

        def pull(u: Tensor) -> list[Tensor]:
            return list(
                torch.autograd.grad(output, leaves, u, retain_graph=True, materialize_grads=True)
            )

        return pull

    def _picked(self, output: Any) -> list[Tensor]:
        """Return the tensors that had a graph in the pass that is repeated."""
        found = _tensors(output)
        return [found[i] for i in self._places]

    def _selected(self, output: Any) -> Tensor:
        assert self._selection is not None
        return self._selection.of(self._picked(output))

    def _cut(self, data: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of this number of samples."""
        if data is None:
            return self.args, self.kwargs

        def cut(a: Any) -> Any:
            return a[:data] if _sliceable(a) and len(a) == self._data else a

        return tuple(map(cut, self.args)), {key: cut(a) for key, a in self.kwargs.items()}

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        buffers = [(b, b.clone()) for b in self.model.buffers()]
        off = torch.autocast(self._device, enabled=False)  # differences are not to be rounded
        with off, torch.random.fork_rng(devices=self._gpus):
            torch.set_rng_state(self._random[0])
            for index, state in zip(self._gpus, self._random[1:], strict=True):
                torch.cuda.set_rng_state(state, index)
            try:
                yield
            finally:
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)


def _tensors(output: Any) -> list[Tensor]:
    """Return the tensors inside tuples, lists and mappings, in their order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        return [t for value in output.values() for t in _tensors(value)]
    if isinstance(output, (tuple, list)):
        return [t for value in output for t in _tensors(value)]
    return []


def _sliceable(a: Any) -> bool:
    return isinstance(a, Tensor) and a.ndim > 0
