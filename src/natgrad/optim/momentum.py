"""Averages over steps: of gradients, for directions, and of weights, for evaluation."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import ALL_FLOATS, integer, tensor
from natgrad.errors import InvalidInputError
from natgrad.optim._distributed import World
from natgrad.optim._states import entries, real

__all__ = ["Momentum"]

# Weight of the latest length in the average that limits the length of steps.
_LATEST = 0.1


class Momentum:
    """An average of gradients with Nesterov's look-ahead.

    The average is ḡ ← ḡ + (g − ḡ)/W with W ← μW + 1, where W is the effective number of batches,
    from one at the first step to 1/(1 − μ). The direction is computed from (μW ḡ + g)/(μW + 1), the
    next average if the next gradient equals this one. Averaging comes *before* the length is
    measured: a direction that depends less on this batch allows a longer step. μ is `factor`, or
    1 − α after a step of length α if that is less: a full step, α = 1, makes all earlier gradients
    obsolete. The average also restarts after a step that was undone or is expected to raise the
    loss.

    Lengths of single batches vary. With an average, the next gradient no longer corrects a step
    that is much too long. So a step is at most as long as the (geometric) average of the last ten.

    Args:
        factor: The largest μ.
        dtype: Precision of ḡ; None for that of the gradients.

    Attributes:
        values: ḡ by parameter, in the units of the last `.grad`.
        weight: W.
        gradients: Number of gradients in the average.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> momentum = Momentum(0.5)
        >>> for slope in (2.0, 5.0):
        ...     w.grad = torch.tensor([slope])
        ...     with momentum.averaged([w], total=1.0):
        ...         print(w.grad)
        ...     momentum.advance(0.0)
        tensor([2.])
        tensor([4.5714])
        >>> momentum.values[w], w.grad
        (tensor([4.]), tensor([5.]))
    """

    def __init__(self, factor: float, dtype: torch.dtype | None = None) -> None:
        self.factor, self.dtype = factor, dtype
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.values: dict[Tensor, Tensor] = {}
        self.weight, self.gradients, self._mu = 0.0, 0, self.factor
        self._total = 1.0
        self._lengths, self._log = 0, 0.0
        self._seen: dict[Tensor, Tensor] = {}

    def ahead(self) -> tuple[float, float]:
        """Return the weights of ḡ in the look-ahead and of the gradient in the next ḡ."""
        weight = self._mu * self.weight + 1
        past = self.factor * weight
        # (μW ḡ + g)/(μW + 1) with the next ḡ, written in terms of the present ḡ
        return past * (1 - 1 / weight) / (past + 1), 1 / weight

    @contextmanager
    def averaged(
        self, params: Sequence[Tensor], total: float, apart: Set[Tensor] = frozenset()
    ) -> Iterator[None]:
        """Replace gradients by averages with look-ahead, inside a `with` block.

        `advance` adds the gradients to the average; it is not called if the step is refused.

        Args:
            params: The parameters.
            total: Divisor that turns `.grad` into the gradient of the average loss.
            apart: Parameters whose gradients are averaged, but not replaced.
        """
        self._seen = held = {p: p.grad for p in params if p.grad is not None}
        self._rescale(total)
        old, _ = self.ahead()
        known = [p for p in held if p in self.values and p not in apart]
        if known:
            given, values = [held[p] for p in known], [self.values[p] for p in known]
            if self.dtype is None:
                found = torch._foreach_lerp(given, values, old)
            else:  # torch's lerp does not mix precisions, but its sum does
                found = torch._foreach_mul(given, 1 - old)
                torch._foreach_add_(found, values, alpha=old)
            for p, ahead in zip(known, found, strict=True):
                p.grad = ahead
        try:
            yield
        finally:
            for p, gradient in held.items():
                p.grad = gradient

    def _rescale(self, total: float) -> None:
        """Convert the averages to the units of the present gradients."""
        if self.values and total != self._total and total and self._total:
            torch._foreach_mul_(list(self.values.values()), total / self._total)
        self._total = total

    def shorten(self, alpha: float) -> float:
        """Return α, or the average α if that is shorter."""
        if not 0 < alpha < math.inf:
            return alpha
        self._lengths += 1
        self._log += max(_LATEST, 1 / self._lengths) * (math.log(alpha) - self._log)
        return min(alpha, math.exp(self._log))

    def advance(self, length: float) -> None:
        """Add the gradients to the average, and record α; α = 1 starts a new average."""
        self.weight = self._mu * self.weight + 1
        self.gradients += 1
        known = [p for p in self._seen if p in self.values]
        if known:
            values, fresh = [self.values[p] for p in known], [self._seen[p] for p in known]
            if self.dtype is None:
                torch._foreach_lerp_(values, fresh, 1 / self.weight)
            else:
                for value, g in zip(values, fresh, strict=True):
                    value.copy_(torch.lerp(value.to(g.dtype), g, 1 / self.weight))
        for p in self._seen.keys() - self.values.keys():
            self.values[p] = self._seen[p].to(self.dtype or p.dtype, copy=True)
        self._seen = {}
        self._mu = min(self.factor, max(0.0, 1 - length))

    def state_dict(self, names: Mapping[Tensor, str]) -> dict[str, Any]:
        """Return the averages by name (None without a gradient so far), and numbers."""
        return {
            "weight": self.weight,
            "mu": self._mu,
            "total": self._total,
            "lengths": self._lengths,
            "log": self._log,
            "values": {name: self.values.get(p) for p, name in names.items()},
        }

    def check_state(self, state: Any, where: str, names: Mapping[Tensor, str]) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("weight", "mu", "total", "lengths", "log", "values"))
        weight = real(state["weight"], f"{where}.weight", low=0)
        real(state["mu"], f"{where}.mu", low=0, high=1)
        real(state["total"], f"{where}.total")
        real(state["log"], f"{where}.log")
        integer(state["lengths"], f"{where}.lengths", low=0)
        values = entries(state["values"], f"{where}.values", names.values())
        for p, name in names.items():
            if values[name] is not None:
                path = f"{where}.values.{name}"
                tensor(values[name], path, shape=tuple(p.shape), dtypes=ALL_FLOATS, empty=True)
        if weight and all(value is None for value in values.values()):
            raise InvalidInputError(f"{where}.values must hold an average of weight {weight:g}.")

    def load_state_dict(self, state: Mapping[str, Any], names: Mapping[Tensor, str]) -> None:
        """Load a checked state."""
        self.reset()
        self.weight, self._mu, self._total = state["weight"], state["mu"], state["total"]
        self._lengths, self._log = state["lengths"], state["log"]
        kept = {name: p for p, name in names.items()}
        self.values = {
            kept[name]: torch.empty_like(kept[name], dtype=self.dtype).copy_(value)
            for name, value in state["values"].items()
            if value is not None
        }


class WeightAverage:
    """θ̄ ← θ̄ + (a/(k + a)) (θ − θ̄) after step k: an average over the last part of the run.

    The weights of past steps grow like k^{a−1}, so that about the last 1/a of all steps counts,
    at any time (Shamir and Zhang 2013). It removes noise from the last weights without
    a schedule that depends on the length of the run. Floating-point buffers, such as the running
    averages of batch normalization, are averaged, too.

    Args:
        model: The model.
        params: Its parameters.
        exponent: a; larger forgets faster.
        world: The processes that train the model.
        owners: The process that holds the average of a parameter; every process holds the others.

    Attributes:
        values: The averages of parameters and buffers; None where another process holds one. While
            the average is in the model, the weights.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> average = WeightAverage(model, [model.weight], 1.0)
        >>> for value in (3.0, 0.0):
        ...     _ = torch.nn.init.constant_(model.weight, value)
        ...     average.update()
        >>> average.values
        [tensor([[1.]])]
    """

    def __init__(
        self,
        model: Module,
        params: Sequence[Tensor],
        exponent: float,
        world: World | None = None,
        owners: Mapping[Tensor, int] | None = None,
    ) -> None:
        self.exponent, self.steps, self._inside = exponent, 0, False
        self._model, self._params = model, list(params)
        self._world = World() if world is None else world
        self._owners = {} if owners is None else owners
        self.buffers = [name for name, b in model.named_buffers() if b.is_floating_point()]
        self.values = [None if self._away(t) else t.detach().clone() for t in self._moving()]

    def _away(self, t: Tensor) -> bool:
        """Return whether another process holds the average of a parameter or buffer."""
        return self._owners.get(t, self._world.rank) != self._world.rank

    def follow(self, params: Sequence[Tensor]) -> None:
        """Average other parameters; those that are new start at their present values."""
        held = dict(zip(self._params, self.values, strict=False))
        buffers = self.values[len(self._params) :]
        self._params = list(params)
        self.values = [*(held[p] if p in held else p.detach().clone() for p in params), *buffers]

    def _moving(self) -> list[Tensor]:
        """Return parameters and buffers; a module may replace a buffer by another tensor."""
        if not self.buffers:
            return self._params
        held = dict(self._model.named_buffers())
        return [*self._params, *(held[name] for name in self.buffers)]

    @torch.no_grad()
    def update(self) -> None:
        """Add the present weights to the average."""
        self.steps += 1
        weight = self.exponent / (self.steps + self.exponent)
        pairs = zip(self.values, self._moving(), strict=True)
        held = [(value, t) for value, t in pairs if value is not None]
        torch._foreach_lerp_([value for value, _ in held], [t for _, t in held], weight)

    @torch.no_grad()
    def retract(self) -> None:
        """Take the present parameters out of the average: their step is about to be undone."""
        weight = self.exponent / (self.steps + self.exponent)
        pairs = zip(self.values, self._params, strict=False)
        held = [(value, p) for value, p in pairs if value is not None]
        values, present = [value for value, _ in held], [p for _, p in held]
        torch._foreach_lerp_(values, present, -weight / (1 - weight))
        self.steps -= 1

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the average and the weights; processes exchange what each of them holds."""
        for i, (p, value) in enumerate(zip(self._moving(), self.values, strict=True)):
            held = p.clone()
            if value is not None:
                p.copy_(value)
            if p in self._owners and not self._inside:
                sent = p.detach().contiguous()
                self._world.send([sent], self._owners[p])
                p.copy_(sent)
            self.values[i] = None if self._away(p) and self._inside else held
        self._inside = not self._inside

    def state_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the averages by name, and the number of steps."""
        return {"steps": self.steps, "values": dict(zip(names, self.values, strict=True))}

    def check_state(self, state: Any, where: str, names: Sequence[str]) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("steps", "values"))
        integer(state["steps"], f"{where}.steps", low=0)
        saved = entries(state["values"], f"{where}.values", names)
        for name, own in zip(names, self._moving(), strict=True):
            tensor(
                saved[name],
                f"{where}.values.{name}",
                shape=tuple(own.shape),
                dtypes=ALL_FLOATS,
                empty=True,
            )

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Load a checked state."""
        self.steps = state["steps"]
        with torch.no_grad():
            for name, value in zip(names, self.values, strict=True):
                if value is not None:
                    value.copy_(state["values"][name])
