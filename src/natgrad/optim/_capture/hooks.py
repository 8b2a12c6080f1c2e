"""What the optimizer sees of a training step: removable hooks on the model and the criterion.

Forward hooks note the inputs of every covered layer and the edge of the graph at its output; when
the criterion is called, while the graph is alive, errors drawn from the model are sent back to
those edges. Edges, unlike tensors, are not changed by a later in-place activation, and asking for
gradients at edges computes no gradient of any weight: `.grad` is left to the user's own pass.

Nothing is noted in evaluation mode or without gradients.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from natgrad.errors import UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.likelihoods.base import all_finite
from natgrad.optim._capture.moments import Gather, Moments, Visit
from natgrad.optim._capture.replay import Replay
from natgrad.optim._layers.attention import AttentionLayer, projections


@dataclass
class Call:
    """One call of the criterion, or one forward pass under a foreign loss.

    Attributes:
        output: What the likelihood saw, detached.
        y: The labels; None under a foreign loss.
        loss: The loss as reduced; None under a foreign loss.
        unit: Factor of one datum in the loss as reduced, 1/n or 1.
        weight: Derivative of what was differentiated in this loss; None before backward.
        moments: Sums of every layer, if they were wanted.
        traces: Squared norms of sampled gradients of parameters without factors, if wanted.
        single: The inputs of every layer, if there is a single datum.
        replay: How to run the model again; None if that is not possible.
    """

    output: Tensor
    y: Tensor | None
    loss: Tensor | None
    unit: float
    weight: float | None = None
    moments: dict[str, Moments] = field(default_factory=dict)
    traces: dict[str, float] = field(default_factory=dict)
    single: dict[str, Tensor] = field(default_factory=dict)
    replay: Replay | None = None

    @property
    def n(self) -> int:
        """Return the number of data."""
        return len(self.output)


class Capture:
    """Hooks on a model's layers and on its criterion; collects a `Call` for every batch.

    Args:
        model: The model.
        likelihood: The criterion.
        gather: What is summed over a batch.
        reduction: Of a foreign loss; None if the likelihood itself is called as the criterion.
        compiled: The wrapper of `torch.compile`, if the model is called through one. Inside it
            there are no edges to send errors to: batches whose moments are wanted are run again,
            uncompiled.

    Attributes:
        wanted: Whether the next batch's moments are wanted.
        paused: Whether the hooks look away.
    """

    def __init__(
        self,
        model: Module,
        likelihood: Likelihood,
        gather: Gather,
        reduction: Reduction | None,
        compiled: Module | None = None,
    ) -> None:
        self.model, self.likelihood, self.compiled = model, likelihood, compiled
        self.gather, self.reduction = gather, reduction
        self.wanted, self.paused = True, False
        self._calls: list[tuple[Call, Callable[[], object]]] = []
        self._visits: dict[str, list[Visit]] = {}
        self._replay: Replay | None = None
        self._handles = self._install(weakref.ref(self))

    def _install(self, this: "weakref.ref[Capture]") -> list[RemovableHandle]:
        """Install the hooks; weakly, so that the model does not keep the optimizer alive."""

        def active() -> "Capture | None":
            capture = this()
            return capture if capture is not None and capture._active() else None

        def before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if (capture := active()) is not None and capture._entry is module:
                capture._begin(args, kwargs)

        def after(module: Module, _: Any, output: Any) -> None:
            if (capture := active()) is not None and capture._entry is module:
                capture._end(output)

        def listen(output: Tensor, y: Tensor, loss: Tensor) -> None:
            capture = active()
            if capture is not None and loss.requires_grad and capture._saw(output):
                capture._criterion_called(output, y, loss)

        entry = self._entry
        handles = [entry.register_forward_pre_hook(before, with_kwargs=True)]
        if self.compiled is None:
            handles += self._watch_layers(this)
        handles.append(entry.register_forward_hook(after))
        if self.reduction is None:
            handles.append(self.likelihood.observe(listen))
        return handles

    @property
    def _entry(self) -> Module:
        return self.model if self.compiled is None else self.compiled

    def _follows(self, name: str, module: Module) -> bool:
        """Return whether a module is this model's; a copy of the model has copies of the hooks."""
        layer = self.gather.coverage.layers.get(name)
        return layer is not None and layer.module is module and self._active()

    def _watch_layers(self, this: "weakref.ref[Capture]") -> list[RemovableHandle]:
        def layer_hook(name: str) -> Callable[[Module, Any, dict[str, Any], Tensor], None]:
            def after(module: Module, inputs: Any, named: dict[str, Any], output: Tensor) -> None:
                capture = this()
                known = capture is not None and capture._follows(name, module)
                if capture is not None and known and output.requires_grad:
                    x: Tensor = inputs[0] if inputs else named["input"]
                    visit = Visit(x.detach(), get_gradient_edge(output))
                    capture._visits.setdefault(name, []).append(visit)

            return after

        def attention_hook(name: str) -> Callable[[Module, Any, Any, tuple[Tensor, ...]], None]:
            def after(module: Module, _: Any, named: Any, output: tuple[Tensor, ...]) -> None:
                capture = this()
                if capture is None or not capture._follows(name, module):
                    return
                if not output[0].requires_grad:
                    return
                layers = capture.gather.coverage.layers
                own = {k: layers[k] for k in (name, f"{name}.out_proj".lstrip(".")) if k in layers}
                for key, x, edge in projections(output[0], own):
                    visit = Visit(x, edge, called=False)
                    capture._visits.setdefault(key, []).append(visit)

            return after

        return [
            layer.module.register_forward_hook(
                attention_hook(name) if isinstance(layer, AttentionLayer) else layer_hook(name),
                with_kwargs=True,
            )
            for name, layer in self.gather.coverage.layers.items()
        ]

    def remove(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.clear()

    def clear(self) -> None:
        """Forget what was seen."""
        self._calls, self._visits, self._replay = [], {}, None

    def take(self) -> list[Call]:
        """Return the calls that were back-propagated since the last time, and forget them."""
        calls = [call for call, _ in self._calls if call.weight is not None]
        self.clear()
        return calls

    def _active(self) -> bool:
        on = self.model.training and torch.is_grad_enabled() and not self.paused
        return on and not torch.compiler.is_compiling()

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._replay is None or not self._replay.alive():
            # Nobody can call the criterion on the previous forward any more.
            self._visits = {}
        self._replay = Replay(self.model, args, kwargs)

    def _saw(self, output: Tensor) -> bool:
        """Return whether outputs come from this model, not from another with the same criterion."""
        if not self._visits:
            return self._replay is not None and self._replay.gives(output)
        nodes = {visit.edge.node for seen in self._visits.values() for visit in seen}
        front, passed = [output.grad_fn], set()
        while front:
            node = front.pop()
            if node in nodes:
                return True
            if node is not None and node not in passed:
                passed.add(node)
                front.extend(before for before, _ in node.next_functions)
        return False

    def _end(self, output: Any) -> None:
        if self._replay is not None:
            self._replay.remember(output)
        if self.reduction is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        unit = 1.0 / len(output) if self.reduction == "mean" else 1.0
        call = Call(output.detach(), None, None, unit)

        def used(_: Tensor) -> None:
            call.weight = 1.0

        output.register_hook(used)  # type: ignore[no-untyped-call]
        self._collect(call, output, weakref.ref(output))

    def _criterion_called(self, output: Tensor, y: Tensor, loss: Tensor) -> None:
        call = Call(output.detach(), y, loss.detach(), self.likelihood.scale(len(output)))

        def used(gradient: Tensor) -> None:
            call.weight = float(gradient) + (call.weight or 0.0)

        loss.register_hook(used)  # type: ignore[no-untyped-call]
        self._collect(call, output, weakref.ref(loss))

    def _collect(self, call: Call, output: Tensor, alive: Callable[[], object]) -> None:
        """Send errors back while the graph is alive; drop calls that can no longer matter."""
        known = self._replay is not None and self._replay.gives(output)
        replay = self._replay if known else None
        if self.compiled is not None and self.wanted:
            output = self._run_uncompiled(output)
        visits, self._visits = self._visits, {}
        if call.n == 1:
            call.single = {
                name: seen[0].x
                for name, seen in visits.items()
                if len(seen) == 1 and seen[0].called
            }
        if self.wanted and all_finite(call.output):  # the step will refuse what is not
            call.moments, call.traces = self.gather(self.likelihood, output, call.y, visits)
        if replay is not None:
            call.replay = replay
        self._calls = [(c, a) for c, a in self._calls if c.weight is not None or a() is not None]
        self._calls.append((call, alive))

    def _run_uncompiled(self, output: Tensor) -> Tensor:
        """Return the same outputs with a graph of their own, and note what passes the layers."""
        if self._replay is None or not self._replay.gives(output):
            raise UnsupportedError(
                "the criterion needs the compiled model's own outputs; compute what comes after "
                "them inside the model, or do not compile it."
            )
        handles = self._watch_layers(weakref.ref(self))
        try:
            return self._replay.graph()
        finally:
            for handle in handles:
                handle.remove()
