"""The kinks of a network: its ReLUs at the training inputs, with slopes that can be held fixed.

With the slopes s ∈ {0, 1} of all ReLUs fixed, a network is a smooth function of its parameters.
If a pre-activation z is zero, any s ∈ [0, 1] gives the same output, and s selects an element of
the generalized gradient.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp, vmap

from natgrad.flows._methods.layered.losses import Outputs, loss_in_outputs
from natgrad.flows._methods.layered.model import LayeredModel, Passed, layered_model
from natgrad.flows._problem import Problem
from natgrad.parametrizations import Network
from natgrad.parametrizations.base import P, unflatten

_KINKED = (torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.PReLU, torch.nn.Hardtanh)  # and ReLU6


def has_kinks(problem: Problem[P]) -> bool:
    """Return whether a module of the network has kinks, located or not."""
    model = problem.parametrization
    return isinstance(model, Network) and any(
        isinstance(m, _KINKED) for m in model.module.modules()
    )


def relus(problem: Problem[P]) -> list[torch.nn.ReLU]:
    """Return the ReLU modules of a network; none if one of them cannot be held fixed."""
    if not isinstance(problem.parametrization, Network):
        return []
    found = [m for m in problem.parametrization.module.modules() if type(m) is torch.nn.ReLU]
    calls = []
    handles = [m.register_forward_hook(lambda m, *_: calls.append(m)) for m in found]
    try:
        problem.parametrization.predict(cast(Any, problem.params), problem.batch[0])
    finally:
        for handle in handles:
            handle.remove()
    once = len(calls) == len(found) == len(set(map(id, calls)))
    return found if once and not any(m.inplace for m in found) else []


class Kinks(ABC):
    """Pre-activations and velocities of a problem with the slopes of its ReLUs held fixed.

    Attributes:
        evaluations: Number of velocities so far.
    """

    evaluations: int = 0

    @abstractmethod
    def slopes(self, y: Tensor) -> Tensor:
        """Return the slopes at parameters: 1 where a pre-activation is positive."""

    @abstractmethod
    def inputs(self, y: Tensor, slopes: Tensor) -> Tensor:
        """Return all pre-activations in one vector."""

    @abstractmethod
    def velocity(self, y: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity of the parameters, and −∂L/∂r of the outputs r of all ReLUs."""

    @abstractmethod
    def gradients(self, y: Tensor, slopes: Tensor, which: list[int]) -> Tensor:
        """Return the gradients of some pre-activations, one per row."""

    def speed(self, y: Tensor, slopes: Tensor, v: Tensor, index: int) -> float:
        """Return how fast one pre-activation changes along v."""
        return float(self.gradients(y, slopes, [index])[0] @ v)

    def sliding(self, y: Tensor, slopes: Tensor, held: list[int]) -> tuple[Tensor, Tensor]:
        """Return slopes at which the kinks `held` stay, and the velocity.

        The velocity is affine in the slope s of a pre-activation z that vanishes, −s ∂L/∂r ∇z, and
        so are the speeds of such pre-activations: Filippov's solution makes the latter zero.
        """
        if not held:
            return slopes, self.velocity(y, slopes)[0]
        base = slopes.clone()
        base[held] = 0.0
        v, signals = self.velocity(y, base)
        gradients = self.gradients(y, base, held)
        columns = signals[held, None] * gradients
        moved, start = gradients @ columns.mT, gradients @ v
        s = torch.linalg.lstsq(moved, -start[:, None], driver="gelsd").solution[:, 0]
        base[held] = s
        return base, v + s @ columns


def kinks_of(problem: Problem[Any]) -> Kinks:
    """Return the kinks of a network that `relus` accepts."""
    model = layered_model(problem)
    loss = None if model is None else loss_in_outputs(problem)
    if model is None or loss is None:
        return HookedKinks(problem)
    return LayeredKinks(model, loss[0])


class HookedKinks(Kinks):
    """Any network: hooks replace the ReLUs, and autograd differentiates."""

    def __init__(self, problem: Problem[Any]) -> None:
        self._problem, self._relus = problem, relus(problem)
        self._shapes: list[torch.Size] = []

    def _split(self, flat: Tensor) -> list[Tensor]:
        """Return one number per ReLU in the shapes of the modules' inputs."""
        parts = torch.split(flat, [shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    @contextmanager
    def _hooked(
        self, slopes: Tensor | None, seen: list[Tensor], probe: Tensor | None = None
    ) -> Iterator[None]:
        """Collect the inputs of all ReLUs; apply slopes instead of them, and add a probe."""
        parts = None if slopes is None else self._split(slopes)
        added = None if probe is None else self._split(probe)

        def hook(index: int) -> Any:
            def call(_: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
                seen.append(inputs[0])
                out = output if parts is None else inputs[0] * parts[index]
                return out if added is None else out + added[index]

            return call

        handles = [m.register_forward_hook(hook(i)) for i, m in enumerate(self._relus)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _inputs(self, y: Tensor, slopes: Tensor | None) -> list[Tensor]:
        seen: list[Tensor] = []
        with self._hooked(slopes, seen):
            self._predict(y)
        return seen

    def _predict(self, y: Tensor) -> Tensor:
        params = unflatten(y, self._problem.params)
        return self._problem.parametrization.predict(params, self._problem.batch[0])

    def slopes(self, y: Tensor) -> Tensor:
        """Return the slopes at parameters."""
        seen = self._inputs(y, None)
        self._shapes = [z.shape for z in seen]
        return torch.cat([(z > 0).to(y).flatten() for z in seen])

    def inputs(self, y: Tensor, slopes: Tensor) -> Tensor:
        """Return all pre-activations in one vector."""
        return torch.cat([z.flatten() for z in self._inputs(y, slopes)])

    def velocity(self, y: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity, and −∂L/∂r of all ReLUs."""
        self.evaluations += 1
        likelihood, labels = self._problem.likelihood, self._problem.batch[1]

        def outputs(at: Tensor, probe: Tensor) -> Tensor:
            with self._hooked(slopes, [], probe):
                return self._predict(at)

        pulling: Any = vjp(outputs, y, torch.zeros_like(slopes))
        out, pull = pulling
        v, signals = pull(-likelihood.gradient(out, labels))
        return v, signals

    def gradients(self, y: Tensor, slopes: Tensor, which: list[int]) -> Tensor:
        """Return the gradients of some pre-activations, by one batched backward pass."""
        pull = vjp(lambda at: self.inputs(at, slopes)[which], y)[1]
        out: Tensor = vmap(pull)(torch.eye(len(which)).to(y))[0]
        return out


class LayeredKinks(Kinks):
    """A layered model, in NumPy."""

    def __init__(self, model: LayeredModel, slope: Outputs) -> None:
        self._model, self._slope = model, slope
        self._shapes: list[tuple[int, ...]] = []

    def _forward(self, y: Tensor, slopes: Tensor) -> Passed:
        cuts = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        parts = np.split(slopes.numpy(), cuts)
        shaped = [part.reshape(s) for part, s in zip(parts, self._shapes, strict=True)]
        return self._model.forward(y.numpy(), shaped)

    def slopes(self, y: Tensor) -> Tensor:
        """Return the slopes at parameters."""
        before = self._model.forward(y.numpy()).before
        self._shapes = [z.shape for z in before]
        return _joined([(z > 0).astype(float) for z in before])

    def inputs(self, y: Tensor, slopes: Tensor) -> Tensor:
        """Return all pre-activations in one vector."""
        return _joined(self._forward(y, slopes).before)

    def velocity(self, y: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity, and −∂L/∂r of all ReLUs."""
        self.evaluations += 1
        passed = self._forward(y, slopes)
        v, signals = self._model.backward(y.numpy(), passed, self._slope(passed.outputs))
        return torch.from_numpy(v), _joined(signals)

    def gradients(self, y: Tensor, slopes: Tensor, which: list[int]) -> Tensor:
        """Return the gradients of some pre-activations, one sample and unit at a time."""
        passed, rows = self._forward(y, slopes), []
        sizes = np.cumsum([0, *(int(np.prod(shape)) for shape in self._shapes)])
        for index in which:
            layer = int(np.searchsorted(sizes, index, side="right")) - 1
            n, unit = divmod(index - int(sizes[layer]), self._shapes[layer][1])
            rows.append(self._model.gradient_before(y.numpy(), passed, layer, n, unit))
        return torch.from_numpy(np.stack(rows))


def _joined(parts: list[Any]) -> Tensor:
    return torch.from_numpy(np.concatenate([part.ravel() for part in parts]))
