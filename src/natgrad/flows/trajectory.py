"""The result of a flow or a descent: times, states, diagnostics, and why it stopped."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from natgrad._checks import integer
from natgrad._checks import path as as_path
from natgrad._checksum import Raw, checksum, verify
from natgrad._show import as_table, axes_or_new
from natgrad.errors import InvalidInputError
from natgrad.parametrizations.base import P, Params, leaves, rebuild
from natgrad.stopping import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Trajectory"]

_FORMAT = "natgrad trajectory 2"
_WITHOUT_CHECKSUM = "natgrad trajectory 1"  # what natgrad 0.1 wrote


@dataclass(frozen=True, repr=False)
class Trajectory(Generic[P]):
    """A path of parameters at saved times.

    Attributes:
        times: Saved times, shape `(s,)`, in the units of the loss as reduced.
        states: Parameters at those times, each leaf with a leading axis `s`.
        losses: The loss at those times.
        recorded: Diagnostics at those times, by name.
        status: Why it ended.
        detail: The same in a sentence; for a singular flow, the time of the singularity.
        method: The method that computed it.
        evaluations: Evaluations of the direction.
        steps: Accepted steps.
        error_estimate: Sum of the local error estimates, relative to the state; 0 for closed
            forms, NaN for a descent and for a method that failed before its first step.
        seconds: Wall-clock time.

    Example:
        >>> path = Trajectory(torch.tensor([0.0, 1.0]), torch.zeros(2, 3), torch.ones(2))
        >>> path.final
        tensor([0., 0., 0.])
    """

    times: Tensor
    states: P
    losses: Tensor
    recorded: dict[str, Tensor] = field(default_factory=dict)
    status: Status = Status.TIME_REACHED
    detail: str = ""
    method: str = ""
    evaluations: int = 0
    steps: int = 0
    error_estimate: float = float("nan")
    seconds: float = 0.0

    def __len__(self) -> int:
        """Return the number of saved times."""
        return len(self.times)

    def at(self, index: int) -> P:
        """Return the parameters at one saved time.

        Raises:
            InvalidInputError: If there is no such time.

        Example:
            >>> path = Trajectory(torch.tensor([0.0, 1.0]), torch.eye(2), torch.ones(2))
            >>> path.at(0), path.at(-1)
            (tensor([1., 0.]), tensor([0., 1.]))
        """
        index = integer(index, "index", low=-len(self), high=len(self) - 1)
        return rebuild([leaf[index] for leaf in leaves(self.states)], self.states)

    @property
    def final(self) -> P:
        """Return the parameters at the last saved time."""
        return self.at(-1)

    def __repr__(self) -> str:
        """Return a summary, without the states."""
        return "Trajectory(" + ", ".join(f"{name}: {value}" for name, value in self._facts()) + ")"

    def _repr_html_(self) -> str:
        return as_table("Trajectory", self._facts())

    def _facts(self) -> list[tuple[str, object]]:
        numbers = sum(leaf[0].numel() for leaf in leaves(self.states)) if len(self) else 0
        ends = (0, -1) if len(self) else ()
        times, losses = ([float(t[k]) for k in ends] for t in (self.times, self.losses))
        return [
            ("status", self.status.value),
            *([("detail", self.detail)] if self.detail else []),
            *([("method", self.method)] if self.method else []),
            ("saved times", len(self)),
            ("t", " … ".join(f"{t:.4g}" for t in times)),
            ("loss", " → ".join(f"{loss:.4g}" for loss in losses)),
            ("parameters", numbers),
            *([("recorded", ", ".join(self.recorded))] if self.recorded else []),
            ("evaluations", self.evaluations),
            ("steps", self.steps),
        ]

    def plot(self, name: str | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the loss, or a recorded diagnostic, against time; return the axes.

        Args:
            name: Name of a recorded diagnostic with one number per time; by default the loss.
            ax: Axes to draw on; by default new ones.

        Raises:
            InvalidInputError: If nothing of this name was recorded, or it is not a number.

        Example:
            >>> path = Trajectory(torch.tensor([0.0, 1.0]), torch.eye(2), torch.tensor([1.0, 0.1]))
            >>> path.plot().get_yscale()
            'log'
        """
        if name is not None and (not isinstance(name, str) or name not in self.recorded):
            known = ", ".join(map(repr, self.recorded)) or "nothing"
            raise InvalidInputError(f"no diagnostic {name!r} was recorded, but {known}.")
        values = self.losses if name is None else self.recorded[name]
        if values.ndim != 1:
            raise InvalidInputError(
                f"{name!r} has shape {tuple(values.shape[1:])} at each time; only numbers can be "
                "drawn."
            )
        ax = axes_or_new(ax)
        times, values = self.times.detach().cpu().double(), values.detach().cpu().double()
        ax.plot(times.numpy(), values.numpy(), marker="o" if len(self) < 30 else None)
        if len(self) > 2 and float(times[-1]) > 50 * float(times[times > 0].min()):
            ax.set_xscale("symlog", linthresh=float(times[times > 0].min()))
        if bool((values > 0).all()):
            ax.set_yscale("log")
        ax.set_xlabel("time t")
        ax.set_ylabel("loss" if name is None else name)
        return ax

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file; `load` gives it back bit for bit.

        Raises:
            InvalidInputError: If the file cannot be written.
        """
        path = as_path(path, "the path")
        structure: list[str] | str
        if isinstance(self.states, Tensor):
            structure = "tensor"
        elif isinstance(self.states, dict):
            structure = list(self.states)
        else:
            structure = "tuple"
        header: dict[str, Any] = {
            "format": _FORMAT,
            "structure": structure,
            "status": self.status.value,
            "detail": self.detail,
            "method": self.method,
            "evaluations": self.evaluations,
            "steps": self.steps,
        }
        try:
            tensors = {f"states.{i}": t for i, t in enumerate(leaves(self.states))}
            tensors |= {f"recorded.{name}": t for name, t in self.recorded.items()}
            tensors |= {"times": self.times, "losses": self.losses}
            # Numbers as tensors too: text would round them, and NaN is no JSON.
            numbers = (self.error_estimate, self.seconds)
            tensors["numbers"] = torch.tensor(numbers, dtype=torch.float64)
            # Copies: safetensors refuses tensors that share memory, as a recorded state may.
            tensors = {name: t.detach().clone().contiguous() for name, t in tensors.items()}
            header["checksum"] = checksum(header, _raw(tensors))
            # One entry: safetensors writes several in an order that changes from file to file.
            save_file(tensors, str(path), metadata={"natgrad": json.dumps(header, sort_keys=True)})
        except Exception as error:  # safetensors raises a class of its own that it does not export
            raise InvalidInputError(
                f"the trajectory cannot be written to {path}: {error}. Is there such a folder, and "
                "room in it?"
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory[Any]":
        """Read a file that `save` wrote.

        Files of natgrad 0.1 have no checksum and are read without one; all others must match
        theirs.

        Raises:
            InvalidInputError: If the file is not a trajectory, or has been altered.
        """
        path = as_path(path, "the path")
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            header = _header(metadata)
            verify(header, _raw(tensors), now=_FORMAT, before=_WITHOUT_CHECKSUM)
            return cls._restored(header, tensors)
        except Exception as error:  # safetensors raises a class of its own that it does not export
            raise InvalidInputError(
                f"{path} cannot be read as a trajectory: {type(error).__name__}: {error}"
            ) from error

    @classmethod
    def _restored(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Trajectory[Any]":
        count = sum(name.startswith("states.") for name in tensors)
        parts = [tensors[f"states.{i}"] for i in range(count)]
        structure = header["structure"]
        states: Params
        if structure == "tensor":
            states = parts[0]
        elif structure == "tuple":
            states = tuple(parts)
        else:
            states = dict(zip(structure, parts, strict=True))
        recorded = {
            name.removeprefix("recorded."): t
            for name, t in sorted(tensors.items())
            if name.startswith("recorded.")
        }
        error_estimate, seconds = tensors["numbers"].tolist()
        return Trajectory[Any](
            tensors["times"],
            states,
            tensors["losses"],
            recorded,
            Status(header["status"]),
            header["detail"],
            header["method"],
            header["evaluations"],
            header["steps"],
            error_estimate,
            seconds,
        )


def _header(metadata: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a file."""
    if "natgrad" in metadata:
        header = json.loads(metadata["natgrad"])
    elif metadata.get("format") == _WITHOUT_CHECKSUM:
        header = json.loads(metadata["header"]) | {"format": _WITHOUT_CHECKSUM}
    else:
        raise ValueError(f"its format is {metadata.get('format')!r}, not {_FORMAT!r}")
    return header  # type: ignore[no-any-return]


def _raw(tensors: dict[str, Tensor]) -> list[Raw]:
    """Return tensors as `checksum` takes them."""
    flat = {name: t.cpu().reshape(-1).view(torch.uint8) for name, t in tensors.items()}
    return [
        (name, str(t.dtype), tuple(t.shape), flat[name].numpy().tobytes())
        for name, t in tensors.items()
    ]
