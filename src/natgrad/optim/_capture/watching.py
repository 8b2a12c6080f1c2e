"""Forward hooks on layers: they record what passes through each of them."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from natgrad.optim._capture.moments import Visit
from natgrad.optim._layers.linear import Layer
from natgrad.optim._layers.recurrent import restore, unfused

if TYPE_CHECKING:
    from natgrad.optim._capture.hooks import Capture


def watch_layers(
    this: "weakref.ref[Capture]", layers: Mapping[str, Layer]
) -> list[RemovableHandle]:
    """Record every pass through layers in the `visits` of a capture; return the hooks.

    Args:
        this: The capture, weakly: a model does not keep its optimizer alive.
        layers: By name.
    """

    def watch(name: str) -> Callable[[Module, Any, dict[str, Any], Any], None]:
        def after(module: Module, inputs: Any, named: dict[str, Any], output: Any) -> None:
            capture = this()
            if capture is None or capture.paused or not capture.follows(name, module):
                return
            layers = capture.gather.coverage.layers
            for key, x, edge, called in layers[name].passes(inputs, named, output, layers):
                visit = Visit(x, edge, called=called)
                capture.visits.setdefault(key, []).append(visit)
                rows = x.numel() // max(1, x.shape[-1]) if called and layers[key].rank_one else None
                if rows is not None and capture.records(layers[key], rows):
                    _record(output, visit.errors)

        return after

    handles = []
    for name, layer in layers.items():
        for module in (layer.module, *layer.also):
            handles.append(module.register_forward_hook(watch(name), with_kwargs=True))
    for module in {layer.module for layer in layers.values() if layer.fused}:
        handles += _unfuse(this, module)
    return handles


def _record(output: Tensor, errors: list[Tensor]) -> None:
    """Add what comes back to a tensor to a list; the graph must not hold what holds the graph."""

    def back(e: Tensor) -> None:
        errors.append(e.detach())

    output.register_hook(back)  # type: ignore[no-untyped-call]


def _unfuse(this: "weakref.ref[Capture]", module: Module) -> list[RemovableHandle]:
    """Run a module without fused kernels if the graph is searched for its products."""
    held: list[tuple[bool, bool]] = []

    def before(*_: Any) -> None:
        capture = this()
        active = capture is not None and not capture.paused and capture.active()
        held.append(unfused(active and capture is not None and capture.schedule.wanted))

    def after(*_: Any) -> None:
        restore(held.pop())

    return [
        module.register_forward_pre_hook(before),
        module.register_forward_hook(after, always_call=True),
    ]
