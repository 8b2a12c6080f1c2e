"""The parts of an optimizer besides steps: states, weight averages, removal of hooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.optim._capture.batch import Reproduction
from natgrad.optim._core import Core, Whole
from natgrad.optim._states import check_whole, checked
from natgrad.optim._steps.learned import Lengths
from natgrad.optim._steps.measured import Measured
from natgrad.optim.damping import Adaptation
from natgrad.optim.momentum import Momentum, WeightAverage


class Resumable(torch.optim.Optimizer):
    """An optimizer that can be saved, resumed and removed; `NGD` adds the steps."""

    _core: Core
    _measured: Measured | None
    _damping: Adaptation
    _momentum: Momentum | None
    _average: WeightAverage | None
    _lengths: Lengths | None
    _params: list[Tensor]
    _whole: Whole

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the average of the weights into the model inside a `with` block.

        The running averages of batch normalization are averaged like weights. Processes divide the
        average among them: call this in every one of them.

        Raises:
            InvalidInputError: If no average is kept.

        Example:
            >>> import natgrad as ng
            >>> model = torch.nn.Linear(1, 1)
            >>> optimizer = ng.NGD(model, ng.Gaussian())
            >>> with optimizer.averaged():
            ...     prediction = model(torch.ones(1, 1))
        """
        if self._average is None:
            raise InvalidInputError(
                "no average of the weights is kept; construct NGD with weight_average=10.0."
            )
        self._average.swap()
        try:
            yield
        finally:
            self._average.swap()

    def _refit(self) -> None:
        """Follow a model of which parameters were frozen or unfrozen.

        Parameters that are in no group join the last one.
        """
        grouped = {p for group in self.param_groups for p in group["params"]}
        now = [p for p in self._core.model.parameters() if p.requires_grad]
        self.param_groups[-1]["params"] += [p for p in now if p not in grouped]
        self._params = [p for group in self.param_groups for p in group["params"]]
        self._params = [p for p in self._params if p.requires_grad]
        self._core.refit()
        if self._lengths is not None:
            self._lengths.follow(self._core.preconditioner.starts)
        self._damping.follow(self._core.preconditioner.starts)
        for part in (self._average, self._measured):
            if part is not None:
                part.follow(self._params)

    def remove(self) -> None:
        """Remove every hook from the model and the criterion; `step` cannot be used afterwards."""
        self._core.capture.remove()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse another group after construction; the optimizer covers the whole model.

        Raises:
            UnsupportedError: Always.
        """
        if "_core" in self.__dict__:
            raise UnsupportedError(
                "NGD follows one model from the beginning: name groups= when constructing it. They "
                "may hold frozen parameters, which move once requires_grad_(True) is called."
            )
        super().add_param_group(param_group)

    def consolidate(self, to: int = 0) -> None:
        """Bring the state, which processes divide among them, together in one of them.

        Call this in every process before one of them calls `state_dict`. Alone, there is nothing to
        do.

        Args:
            to: Rank of the process that will hold the whole state until the next step.

        Example:
            >>> import natgrad as ng
            >>> optimizer = ng.NGD(torch.nn.Linear(1, 1), ng.Gaussian())
            >>> optimizer.consolidate()
            >>> state = optimizer.state_dict()
        """
        self._whole.gather(self._core, self._own_state(), to)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume bit for bit, by layer name; no pickled objects.

        Raises:
            InvalidInputError: If processes hold parts of it and `consolidate` was not called.
        """
        return self._whole.get(self._core) or self._own_state()

    def _own_state(self) -> dict[str, Any]:
        """Return the state, as far as this process holds it."""
        state = super().state_dict()
        state["natural"] = {
            **self._core.state_dict(),
            **self._damping.state_dict(),
            "ruler": None if self._measured is None else self._replays.state_dict(),
        }
        for part, own, names in self._optional():
            state["natural"][part] = None if own is None else own.state_dict(names)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another run with the same model and options.

        Raises:
            InvalidInputError: If any part does not fit; nothing is loaded then.
        """
        checked(lambda: self._check_state(state_dict))
        self._whole = Whole()  # what was gathered before is another state
        state = state_dict["natural"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "natural"})
        self._core.load_state_dict(state)
        self._damping.load_state_dict(state)
        if self._measured is not None:
            self._replays.load_state_dict(state["ruler"])
        for part, own, names in self._optional():
            if own is not None:
                own.load_state_dict(state[part], names)
        if self._momentum is not None:
            for p in self._core.preconditioner.away:
                self._momentum.values.pop(p, None)

    def _check_state(self, saved: Any) -> None:
        state = check_whole(saved, self.param_groups, self._own_state()["natural"])
        self._core.check_state(state, "natural")
        self._damping.check_state(state, "natural", self._core.preconditioner.starts)
        if self._measured is not None:
            self._replays.check_state(state["ruler"], "natural.ruler", state["steps"])
        elif state["ruler"] is not None:
            raise InvalidInputError("natural.ruler must be None, as in this optimizer.")
        for part, own, names in self._optional():
            if own is not None:
                own.check_state(state[part], f"natural.{part}", names)
            elif state[part] is not None:
                raise InvalidInputError(f"natural.{part} must be None, as in this optimizer.")

    @property
    def _replays(self) -> Reproduction:
        assert self._measured is not None
        return self._measured.ruler.reproduction

    def _optional(self) -> list[tuple[str, Any, Any]]:
        """Return the optional parts, with the names that their states need."""
        names = self._core.capture.structure.names
        buffers = [] if self._average is None else self._average.buffers
        ordered = [*(names[p] for p in self._params), *buffers]
        return [
            ("average", self._average, ordered),
            ("momentum", self._momentum, names),
            ("lengths", self._lengths, names),
        ]


def unscaled(optimizer: Any, *, custom: bool) -> float:
    """Return the divisor of the gradients since the criterion's scale was recorded.

    Args:
        optimizer: The optimizer, on which a scaler sets `grad_scale` and `found_inf`.
        custom: Whether the loss is a custom one, whose scale is not recorded.

    Raises:
        InvalidInputError: If an unknown scaler has unscaled the gradients.
    """
    scale = getattr(optimizer, "grad_scale", None)  # a GradScaler's, if it left them scaled
    if custom:
        return 1.0 if scale is None else 1.0 / float(scale)
    if not hasattr(optimizer, "found_inf") or scale is not None:
        return 1.0
    if optimizer.scaler is None:
        raise InvalidInputError(
            "the gradients were unscaled by a GradScaler that the optimizer does not know: set "
            "optimizer.scaler = scaler, or leave out unscale_."
        )
    return float(optimizer.scaler.get_scale())
