"""Capture of a training step: removable hooks on the model and the criterion.

Forward hooks record the inputs of every covered layer and the graph edge at its output. When
the criterion is called, while the graph exists, errors drawn from the model are sent back to
those edges. Edges, unlike tensors, are not changed by a later in-place activation. Computing
gradients at edges computes no gradient of a weight, so `.grad` comes from the user's own pass.

Nothing is recorded in evaluation mode or without gradients.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction
from natgrad.likelihoods.base import all_finite
from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._capture.graph import ancestors
from natgrad.optim._capture.moments import Gather, Visit
from natgrad.optim._capture.replay import Habits, Replay
from natgrad.optim._capture.watching import watch_layers
from natgrad.optim._criteria.observed import Observed
from natgrad.optim._distributed import World
from natgrad.optim._layers.linear import Layer

# Steps after which the interval between refreshes grows by one, up to the requested interval: the
# factors change fastest at the beginning.
_GROWTH = 3


class Schedule:
    """When factors and inverses are updated.

    Args:
        every: Renew them every so many steps, more often at the beginning.

    Attributes:
        steps: Number of steps taken.
        since: Number of steps since the last refresh, the one that refreshed included.
        due: Whether the next batch must update everything, whatever the interval.
        wanted: Whether the next batch updates everything.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.set(steps=0, since=0, due=False)

    def set(self, *, steps: int, since: int, due: bool) -> None:
        """Set these numbers, and decide whether the next batch updates the factors."""
        self.steps, self.since, self.due = steps, since, due
        every = min(self.every, 1 + steps // _GROWTH)
        self.wanted = due or steps == 0 or since >= every

    def advance(self, *, due: bool) -> None:
        """Count a step."""
        self.set(steps=self.steps + 1, since=1 if self.wanted else self.since + 1, due=due)


class Capture:
    """Hooks on a model's layers and on its criterion; collects a `Call` for every batch.

    Args:
        model: The model.
        criterion: The criterion.
        gather: Computes the sums over a batch.
        schedule: When these sums are needed.
        reduction: Reduction of a custom loss; None if the likelihood is the criterion.
        compiled: The wrapper of `torch.compile`, if the model is called through one. Inside it
            there are no edges to send errors to: batches whose moments are needed are run again,
            uncompiled.

    Attributes:
        paused: Whether the hooks do nothing.
        visits: The passes through each layer since the outputs of the last forward were used.
        structure: The model's structure when the hooks were installed.
        refit: Called before a forward pass if parameters were frozen or unfrozen.
        records: Whether the errors of so many rows of a layer are recorded in `backward`.
    """

    def __init__(
        self,
        model: Module,
        criterion: Observed,
        gather: Gather,
        schedule: Schedule,
        reduction: Reduction | None,
        compiled: Module | None = None,
    ) -> None:
        self.model, self.criterion, self.compiled = model, criterion, compiled
        self.gather, self.schedule, self.reduction = gather, schedule, reduction
        self.paused = False
        self._entry = model if compiled is None else compiled
        self._calls: list[tuple[Call, Callable[[], object]]] = []
        self.visits: dict[str, list[Visit]] = {}
        self._replay: Replay | None = None
        self._habits = Habits()
        self.refit: Callable[[], Callable[[], None] | None] = lambda: None
        self.records: Callable[[Layer, int], bool] = lambda layer, rows: False
        self._layer_handles: list[RemovableHandle] = []
        self.watch()
        self._handles = self._install(weakref.ref(self))

    def _install(self, this: "weakref.ref[Capture]") -> list[RemovableHandle]:
        """Install the hooks; weakly, so that the model does not keep the optimizer alive."""

        def before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            capture = this()
            if capture is not None and not capture.paused and capture._enters(module):
                refit = capture.refit()
                if refit is not None and capture.structure.refrozen():
                    refit()
                capture._begin(args, kwargs)

        def after(module: Module, _: Any, output: Any) -> None:
            capture = this()
            if capture is not None and not capture.paused and capture._enters(module):
                capture._end(output)

        def listen(
            likelihood: Likelihood,
            output: Tensor,
            y: Tensor,
            loss: Tensor,
            *parts: Tensor,
            weight: float | None = None,
        ) -> None:
            capture = this()
            if capture is None or capture.paused or not capture.active():
                return
            if loss.requires_grad and capture._saw(output):
                capture._criterion_called(likelihood, output, y, loss, parts or (output,), weight)

        handles = [self._entry.register_forward_pre_hook(before, with_kwargs=True)]
        handles.append(self._entry.register_forward_hook(after))
        if self.reduction is None:
            handles += self.criterion.watch(listen)
        return handles

    def watch(self) -> None:
        """Install the hooks on the layers that have blocks now, in place of former ones."""
        layers = self.gather.coverage.layers
        for handle in self._layer_handles:
            handle.remove()
        self.structure = Structure(self.model, layers)
        self._layer_handles = []
        if self.compiled is None:
            self._layer_handles = watch_layers(weakref.ref(self), layers)

    def _enters(self, module: Module) -> bool:
        """Return whether this module is the one that the user calls, and capture is active."""
        return self._entry is module and self.active()

    def follows(self, name: str, module: Module) -> bool:
        """Return whether a module is this model's; a copy of the model has copies of the hooks."""
        layer = self.gather.coverage.layers.get(name)
        if layer is None or not (layer.module is module or module in layer.also):
            return False
        return (self.schedule.wanted or not layer.searches) and self.active()

    def remove(self) -> None:
        """Remove every hook."""
        for handle in (*self._handles, *self._layer_handles):
            handle.remove()
        self._handles, self._layer_handles = [], []
        self.clear()

    def clear(self) -> None:
        """Discard what was recorded."""
        self._calls, self.visits, self._replay = [], {}, None

    def batch(self, world: World, *, unscaled: float = 1.0) -> Batch:
        """Return the batch that was back-propagated since the last call, and discard it.

        Args:
            world: The processes that each hold a part of the batch.
            unscaled: Divisor of the gradients since then.

        Raises:
            InvalidInputError: If nothing was back-propagated.
        """
        calls = [call for call, _ in self._calls if call.weight is not None]
        rows = {name: seen for name, seen in self.visits.items() if all(v.errors for v in seen)}
        self.clear()
        if not calls:
            how = (
                "Run the model's forward in training mode."
                if self.reduction is not None
                else "Compute the loss as criterion(model(x), y), in training mode and with the "
                "likelihood given to NGD, or name reduction= to use a custom loss."
            )
            raise InvalidInputError(
                f"step {self.schedule.steps + 1} found no batch that was back-propagated since the "
                f"last one. {how}"
            )
        return Batch(calls, unscaled=unscaled, world=world, rows=rows)

    def active(self) -> bool:
        """Return whether the model is trained: in training mode, with gradients, uncompiled."""
        on = self.model.training and torch.is_grad_enabled()
        return on and not torch.compiler.is_compiling()

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        known = self._replay is not None and self._replay.alive()
        # A criterion cannot be called on a forward pass whose outputs are gone, and one that was
        # called on all of them will not be called again.
        self.visits = {
            name: kept
            for name, seen in self.visits.items()
            if known and (kept := [visit for visit in seen if not visit.used])
        }
        self._replay = Replay(self.model, args, kwargs, self._habits)

    def _saw(self, output: Tensor) -> bool:
        """Return whether outputs come from this model, not from another with the same criterion."""
        if not self.visits:
            return self._replay is not None and self._replay.giving(output) is not None
        nodes = {visit.edge.node for seen in self.visits.values() for visit in seen}
        return any(node in nodes for node in ancestors(output))

    def _reached(self, output: Tensor) -> dict[str, list[Visit]]:
        """Return the visits of the layers that computed these outputs."""
        nodes = set(ancestors(output))
        found = {
            name: [visit for visit in seen if visit.edge.node in nodes]
            for name, seen in self.visits.items()
        }
        return {name: seen for name, seen in found.items() if seen}

    def _end(self, output: Any) -> None:
        if self._replay is not None:
            self._replay.remember(output)
        if self.reduction is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        unit = 1.0 / len(output) if self.reduction == "mean" else 1.0
        call = Call(output.detach(), None, None, unit, self.criterion.base)

        def used(_: Tensor) -> None:
            call.weight = 1.0

        output.register_hook(used)  # type: ignore[no-untyped-call]
        self._collect(call, output, (output,), weakref.ref(output))

    def _criterion_called(
        self,
        likelihood: Likelihood,
        output: Tensor,
        y: Tensor,
        loss: Tensor,
        parts: Sequence[Tensor],
        weight: float | None,
    ) -> None:
        seen = loss.detach().clone()  # the user may divide the loss in place
        call = Call(output.detach(), y, seen, likelihood.scale(len(output)), likelihood, weight)

        def used(gradient: Tensor) -> None:
            call.weight = float(gradient) + (call.weight or 0.0)

        if weight is None:
            loss.register_hook(used)  # type: ignore[no-untyped-call]
        self._collect(call, output, parts, weakref.ref(loss))

    def _collect(
        self, call: Call, output: Tensor, parts: Sequence[Tensor], alive: Callable[[], object]
    ) -> None:
        """Send errors back while the graph is alive; drop calls that can no longer matter."""
        replay = None if self._replay is None else self._replay.giving(*parts)
        if self.compiled is not None and self.schedule.wanted:
            output = self._run_uncompiled(replay)
        # Walking the graph takes time, so do it only if the result is used.
        needed = self.schedule.wanted or call.n == 1
        visits = self._reached(output) if needed else self.visits
        for visit in (visit for seen in visits.values() for visit in seen):
            visit.used = True
        if call.n == 1:
            alone = {name: seen[0] for name, seen in visits.items() if len(seen) == 1}
            call.single = {name: visit.x for name, visit in alone.items() if visit.called}
        if self.schedule.wanted and all_finite(call.output):  # the step will refuse what is not
            call.moments, call.traces = self.gather(call.likelihood, output, call.y, visits)
        for visit in (visit for seen in self.visits.values() for visit in seen):
            visit.errors.clear()  # those so far were not errors of the loss
        if replay is not None and not call.likelihood.divisible:
            replay.each = 0
        call.replay = replay
        self._calls = [(c, a) for c, a in self._calls if c.weight is not None or a() is not None]
        self._calls.append((call, alive))

    def _run_uncompiled(self, replay: Replay | None) -> Tensor:
        """Return the same outputs with a new graph, and record the inputs of the layers."""
        if replay is None:
            raise UnsupportedError(
                "the criterion needs the compiled model's own outputs; compute what comes after "
                "them inside the model, or do not compile it."
            )
        handles = watch_layers(weakref.ref(self), self.gather.coverage.layers)
        try:
            return replay.graph()
        finally:
            for handle in handles:
                handle.remove()


class Structure:
    """A model's parameters and layers at the construction of the optimizer.

    Args:
        model: The model.
        layers: Its layers with hooks, by name.

    Attributes:
        names: Name of every parameter.
    """

    def __init__(self, model: Module, layers: Mapping[str, Layer]) -> None:
        self.model = model
        self._params = _parameters(dict(model.named_modules()))
        self._looks = {name: _look(p) for name, p in self._params.items()}
        hooked = {layer.module for layer in layers.values()}
        self._modules = {name: m for name, m in model.named_modules() if m in hooked}
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}

    def refrozen(self) -> bool:
        """Return whether a parameter was frozen or unfrozen."""
        return any(p.requires_grad != self._looks[name][-1] for name, p in self._params.items())

    def check(self) -> None:
        """Raise if the model has changed since the optimizer was constructed.

        Raises:
            InvalidInputError: If parameters or layers were added, removed, replaced, converted,
                moved, frozen or unfrozen.

        Example:
            >>> model = torch.nn.Linear(2, 1)
            >>> structure = Structure(model, {})
            >>> structure.check()
            >>> _ = model.double()
            >>> structure.check()
            Traceback (most recent call last):
            ...
            natgrad.errors.InvalidInputError: the model has changed since the optimizer was ...
        """
        found = self._change()
        if found is not None:
            raise InvalidInputError(
                f"the model has changed since the optimizer was constructed: {found}. The step is "
                "refused and the weights are untouched. Undo the change, or construct a new "
                "optimizer, whose state starts empty."
            )

    def _change(self) -> str | None:
        modules = dict(self.model.named_modules())
        now = _parameters(modules)
        if now.keys() != self._params.keys():
            added = [name for name in now if name not in self._params]
            lost = [name for name in self._params if name not in now]
            return " and ".join(
                f"{', '.join(map(repr, names))} {'are' if len(names) > 1 else 'is'} {what}"
                for names, what in ((added, "new"), (lost, "gone"))
                if names
            )
        for name, p in self._params.items():
            if now[name] is not p:
                return f"{name!r} is another tensor (load weights without assign=True)"
            if _look(p) != self._looks[name]:
                return _difference(name, self._looks[name], _look(p))
        for name, module in self._modules.items():
            if modules[name] is not module:
                return f"the layer {name!r} is another module"
        return None


def _parameters(modules: Mapping[str, Module]) -> dict[str, Tensor]:
    """Return all parameters by name; tied parameters appear under each of their names."""
    return {
        f"{name}.{key}" if name else key: p
        for name, module in modules.items()
        for key, p in module._parameters.items()
        if p is not None
    }


def _look(p: Tensor) -> tuple[object, ...]:
    return p.shape, p.dtype, p.device, p.requires_grad


def _difference(name: str, before: tuple[object, ...], now: tuple[object, ...]) -> str:
    for what, a, b in zip(("shape", "dtype", "device"), before, now, strict=False):
        if a != b:
            a, b = (tuple(x) if isinstance(x, torch.Size) else x for x in (a, b))
            return f"the {what} of {name!r} was {a} and is {b}"
    if now[-1]:
        return f"{name!r} was frozen and now requires a gradient"
    return f"{name!r} is frozen (to freeze parameters temporarily, set their group to lr=0 instead)"
