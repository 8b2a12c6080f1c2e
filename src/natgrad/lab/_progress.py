"""Progress of a sweep: a bar on a terminal, occasional lines elsewhere, nothing if quiet.

It goes to standard error; standard output is for results.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from natgrad.lab._formats import duration

_FIRST, _EVERY = 10.0, 30.0  # seconds until the first line, and between later lines


@dataclass
class Tally:
    """Counts of a running sweep.

    Example:
        >>> tally = Tally(total=8, reused=4, done=6, elapsed=10.0)
        >>> tally.remaining  # two cells took 10 s, two are left
        10.0
        >>> print(tally)
        6 of 8 cells, 4 reused, about 10 s left
    """

    total: int
    done: int = 0
    failed: int = 0
    reused: int = 0
    elapsed: float = 0.0

    @property
    def ended(self) -> int:
        """Return how many cells have ended."""
        return self.done + self.failed

    @property
    def remaining(self) -> float | None:
        """Return the estimated seconds left; None before the first cell has been computed."""
        computed = self.ended - self.reused
        if self.ended == self.total:
            return 0.0
        return self.elapsed / computed * (self.total - self.ended) if computed else None

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} cells"]
        parts += [f"{self.reused} reused"] if self.reused else []
        parts += [f"{self.failed} failed"] if self.failed else []
        if self.ended < self.total:
            left = self.remaining
            parts += [f"about {duration(round(left))} left"] if left is not None else []
        return ", ".join(parts)


class Reporter:
    """Show the progress of sweeps.

    Args:
        quiet: Show nothing.
        console: Where to show it; by default standard error.

    Example:
        >>> import sys
        >>> with Reporter(console=Console(file=sys.stdout)).sweep("curves", Tally(2)) as display:
        ...     display.tally.done = 2
        curves: 2 of 2 cells, 0 s
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._quiet = quiet

    @contextmanager
    def sweep(self, title: str, tally: Tally) -> Iterator["Display"]:
        """Show one sweep while the block runs; the block calls `update` after each cell."""
        display: Display
        if self._quiet:
            display = Display(tally)
        elif self._console.is_terminal:
            display = Bar(title, tally, self._console)
        else:
            display = Lines(title, tally, self._console)
        try:
            yield display
        finally:
            display.finish()


class Display:
    """A sweep that shows nothing; its clock still runs."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._begin = time.monotonic()

    def update(self) -> None:
        """Record that the tally has changed."""
        self.tally.elapsed = time.monotonic() - self._begin

    def say(self, text: str) -> None:
        """Show a sentence about the sweep."""

    def finish(self) -> None:
        """Record that the sweep has ended, with or without an error."""
        self.update()


class Bar(Display):
    """A bar on a terminal."""

    def __init__(self, title: str, tally: Tally, console: Console) -> None:
        super().__init__(tally)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[tally]}", markup=False),
            console=console,
            refresh_per_second=4,
        )
        self._task: TaskID = self._progress.add_task(
            title or "sweep", total=tally.total, completed=tally.ended, tally=str(tally)
        )
        self._progress.start()

    def update(self) -> None:
        """Move the bar."""
        super().update()
        self._progress.update(self._task, completed=self.tally.ended, tally=str(self.tally))

    def say(self, text: str) -> None:
        """Show a sentence above the bar."""
        self._progress.console.print(text, markup=False)

    def finish(self) -> None:
        """Leave the bar as it stands."""
        self.update()
        self._progress.stop()


class Lines(Display):
    """Occasional lines, for logs."""

    def __init__(self, title: str, tally: Tally, console: Console) -> None:
        super().__init__(tally)
        self._title, self._console, self._next = title, console, _FIRST

    def update(self) -> None:
        """Print a line if there has been none for a while."""
        super().update()
        if self.tally.elapsed >= self._next and self.tally.ended < self.tally.total:
            self._next = self.tally.elapsed + _EVERY
            self.say(str(self.tally))

    def finish(self) -> None:
        """Print the last line."""
        super().update()
        self.say(f"{self.tally}, {duration(round(self.tally.elapsed))}")

    def say(self, text: str) -> None:
        """Print a line."""
        line = f"{self._title}: {text}" if self._title else text
        self._console.print(line, markup=False, soft_wrap=True)
