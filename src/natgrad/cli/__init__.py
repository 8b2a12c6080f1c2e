"""The command line: one module per command, which parses its options and calls the laboratory.

At the top, these modules import only what is needed to answer `--help` and mistyped options. torch
and the laboratory's machinery are imported when there is something to compute.
"""

import difflib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FrameType

from natgrad import __version__
from natgrad.cli._common.console import complain
from natgrad.errors import NatgradError
from natgrad.lab._extra import require_lab
from natgrad.lab.failures import MissingExtraError

# The purpose of each command. Its module has the same name, except for `list`, a built-in name.
COMMANDS = {
    "list": "show the figures and presets, what each shows, how long it takes",
    "reproduce": "compute figures, judge their claims, save everything",
    "verify": "check every theorem and numbered identity, with its measured residual",
    "compare": "fit your own table: EGD at each depth, NGD, and the limits they tend to",
    "complete": "fill in your own matrix, from (row, column, value) triples",
    "atlas": "show which solution every optimizer picks, certified, on built-in data or yours",
    "playground": "open the interactive page: drag points, watch the separators move",
    "bench": "race NGD against its best peers, with equal tuning, in seconds to a target",
    "report": "write one HTML page of all results, readable offline",
    "draw": "draw a figure again from its saved arrays, computing nothing",
    "clean": "list stored files that are no longer needed, and remove them if asked",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done, with the expected results; 1: a claim or identity did not give the expected result, or
    the reader of the output went away, as `| head` does; 2: bad usage, or the extra `lab` is not
    installed; 3: cells failed; 130: interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["--version"]:
        print(f"natgrad {__version__}")
        return 0
    asked = bool(arguments) and arguments[0] in ("-h", "--help")
    if asked or not arguments:
        print(_usage(), file=sys.stdout if asked else sys.stderr)
    try:
        require_lab()
    except MissingExtraError as error:
        complain(str(error))
        return 0 if asked else 2
    if asked or not arguments:
        return 0 if asked else 2
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`natgrad --help` lists them."
        return complain(f"there is no command {name!r}. {hint}")
    module = "listing" if name == "list" else name
    command: Callable[[list[str]], int] = import_module(f"natgrad.cli._{module}").main
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = command(rest)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1  # as rich exits when it meets this
    except NatgradError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted.")
        return 130
    except SystemExit as stop:  # tyro has printed its error, or the help
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
            "`natgrad COMMAND --help` shows the options of a command.",
        ]
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
