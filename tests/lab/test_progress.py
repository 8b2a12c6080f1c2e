"""What people see of a sweep under way."""

import io

import pytest
from rich.console import Console

from natgrad.lab import _progress as progress
from natgrad.lab._formats import duration
from natgrad.lab._progress import Reporter, Tally


class Clock:
    """A clock that the test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress.time, "monotonic", made)
    return made


def reporter(*, terminal: bool, quiet: bool = False) -> tuple[Reporter, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    return Reporter(quiet=quiet, console=console), text


def test_the_estimate_counts_what_was_computed_and_not_what_was_reused() -> None:
    tally = Tally(total=110, done=60, reused=50, failed=10, elapsed=40.0)
    assert tally.remaining == 80.0  # 20 computed in 40 s, 40 to come
    assert Tally(total=10, done=5, reused=5).remaining is None
    assert Tally(total=5, done=5, reused=5).remaining == 0.0


def test_words() -> None:
    assert str(Tally(total=3)) == "0 of 3 cells"
    assert str(Tally(3, done=2, failed=1)) == "2 of 3 cells, 1 failed"
    assert [duration(s) for s in (0.04, 59.4, 59.6, 3600)] == [
        "0.04 s",
        "59 s",
        "1 min 0 s",
        "1 h 0 min",
    ]


def test_elsewhere_than_on_a_terminal_there_are_lines_now_and_then(clock) -> None:
    shown, text = reporter(terminal=False)
    tally = Tally(total=200)
    with shown.sweep("curves [a]", tally) as display:
        for _ in range(100):
            clock.now += 0.5
            tally.done += 1
            display.update()
        tally.failed = 100
    lines = text.getvalue().splitlines()
    assert lines == [
        "curves [a]: 20 of 200 cells, about 1 min 30 s left",
        "curves [a]: 80 of 200 cells, about 1 min 0 s left",
        "curves [a]: 100 of 200 cells, 100 failed, 50 s",
    ]


def test_on_a_terminal_there_is_a_bar(clock) -> None:
    shown, text = reporter(terminal=True)
    tally = Tally(total=4, done=1, reused=1)
    with shown.sweep("curves [a]", tally) as display:
        clock.now += 3
        tally.done = 3
        display.update()
        tally.done, tally.failed = 3, 1
    last = [line for line in text.getvalue().splitlines() if "cells" in line][-1]
    assert "curves [a]" in last
    assert "━" in last
    assert "3 of 4 cells, 1 reused, 1 failed" in last


def test_quiet_shows_nothing(clock) -> None:
    for terminal in (False, True):
        shown, text = reporter(terminal=terminal, quiet=True)
        with shown.sweep("curves", Tally(total=1)) as display:
            clock.now += 100
            display.update()
        assert text.getvalue() == ""


def test_progress_goes_to_standard_error(capfd) -> None:
    with Reporter().sweep("curves", Tally(total=1, done=1)):
        pass
    out, error = capfd.readouterr()
    assert out == ""
    assert error == "curves: 1 of 1 cells, 0 s\n"


def test_an_interrupted_sweep_ends_its_display(clock) -> None:
    shown, text = reporter(terminal=False)
    with pytest.raises(KeyboardInterrupt), shown.sweep("curves", Tally(total=2)):
        raise KeyboardInterrupt
    assert text.getvalue() == "curves: 0 of 2 cells, 0 s\n"
