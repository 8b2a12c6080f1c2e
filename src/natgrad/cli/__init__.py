"""The command line: thin, every command a function of its options."""

import difflib
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FrameType

from natgrad import __version__
from natgrad.cli._console import complain
from natgrad.errors import NatgradError

# What each command is for; its module has the same name, but for `list`, which is a built-in.
COMMANDS = {
    "list": "the figures and presets, what each shows, how long it takes",
    "reproduce": "compute figures, judge their claims, save everything",
    "verify": "every theorem and numbered identity, with its measured residual",
    "compare": "your own table: what EGD at each depth, NGD and the limits make of it",
    "complete": "your own incomplete matrix, from (row, column, value) triples",
    "bench": "NGD against its best peers, all tuned alike, in seconds to a target",
    "report": "one HTML page of all results, readable offline",
    "draw": "a figure again from its saved arrays, computing nothing",
    "clean": "what the store can do without, listed, then removed if asked",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done, and as expected; 1: a claim or identity came out otherwise; 2: bad usage; 3: cells
    failed; 130: interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"natgrad {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`natgrad --help` lists them."
        return complain(f"there is no command {name!r}. {hint}")
    module = "listing" if name == "list" else name
    command: Callable[[list[str]], int] = import_module(f"natgrad.cli._{module}").main
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return command(rest)
    except NatgradError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted.")
        return 130
    except SystemExit as stop:  # tyro has printed its complaint, or the help
        return stop.code if isinstance(stop.code, int) else 2
    finally:
        signal.signal(signal.SIGTERM, before)


def _usage() -> str:
    lines = [f"  {name:<11} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: natgrad COMMAND [OPTIONS]",
            "",
            "Exact natural gradients, and the solutions they pick.",
            "",
            *lines,
            "",
            "natgrad COMMAND --help shows the options of a command; natgrad --version the version.",
        ]
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
