"""Errors of the laboratory, and records of failed cells."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from natgrad.errors import NatgradError

__all__ = [
    "CellsFailedError",
    "Failure",
    "Kind",
    "MissingExtraError",
    "SchedulerError",
    "StoreError",
    "WorkerError",
]

Kind = Literal["exception", "memory", "timeout", "killed"]


class MissingExtraError(NatgradError, ImportError):
    """The laboratory is needed, but its packages are not installed."""


class StoreError(NatgradError, OSError):
    """A file of results cannot be written: disk full, or no permission."""


class SchedulerError(NatgradError, ConnectionError):
    """A Dask scheduler does not answer, has no workers, or has ended."""


class WorkerError(NatgradError, RuntimeError):
    """Worker processes do not start, or have different sources than the sweep started with."""


@dataclass(frozen=True)
class Failure:
    """A cell without a result.

    Attributes:
        label: The cell's label.
        function: `module:function`.
        config: Canonical text of the config.
        kind: "exception", "timeout", "memory" (Python could not allocate), or "killed" (a
            signal ended the process, often because the system ran out of memory).
        message: One sentence.
        traceback: The last frames of an exception; empty for other kinds.
        attempts: How often the cell was tried.

    Example:
        >>> Failure("seed 3", "natgrad.x:run", "{}", "timeout", "it ran over 60 s.").summary
        'seed 3: it ran over 60 s.'
    """

    label: str
    function: str
    config: str
    kind: Kind
    message: str
    traceback: str = ""
    attempts: int = 1

    @property
    def summary(self) -> str:
        """Return label and message in one line."""
        return f"{self.label or self.function}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the record for `failures.json`."""
        return asdict(self)


class CellsFailedError(NatgradError, RuntimeError):
    """Some cells of a sweep failed. The others are stored, and a rerun computes only these again.

    Example:
        >>> print(CellsFailedError([Failure("seed 3", "m:f", "{}", "timeout", "over 60 s.")], 5))
        1 of 5 cells failed; first seed 3: over 60 s.
    """

    def __init__(self, failures: Sequence[Failure], cells: int) -> None:
        self.failures = list(failures)
        self.cells = cells
        super().__init__(self.failures, cells)

    def __str__(self) -> str:
        first = self.failures[0].summary
        return f"{len(self.failures)} of {self.cells} cells failed; first {first}"
