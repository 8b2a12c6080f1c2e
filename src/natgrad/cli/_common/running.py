"""Options and exit codes shared by all commands that compute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from natgrad.cli._common.claims import print_failures
from natgrad.cli._common.console import complain
from natgrad.lab.failures import CellsFailedError, Failure

if TYPE_CHECKING:
    from natgrad.lab.sweep import Sweeper

MakeSweeper = Callable[[], "Sweeper"]


@dataclass(frozen=True, kw_only=True)
class Running:
    """Options of all commands that compute: where to run, and what to show."""

    out: Path = Path("runs")
    """Folder for results and for the store of finished cells."""
    engine: Literal["local", "serial", "dask"] = "local"
    """Where cells run: in several processes, in this process, or on a Dask cluster."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of processes; by default one for each core."""
    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Address of a running Dask scheduler, such as tcp://host:8786; without it, dask starts one."""
    timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Seconds after which a cell is stopped and counts as failed; by default never."""
    fresh: bool = False
    """Compute every cell again, including stored ones."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print only a JSON summary to standard output."""


def with_engine(options: Running, work: Callable[[MakeSweeper], int]) -> int:
    """Start the engine, do the work with its sweepers, and return the exit code."""
    # Imported here, so that mistyped options do not wait for torch.
    from natgrad.lab.engines import start_engine
    from natgrad.lab.engines._base import check_timeout
    from natgrad.lab.sweep import Reporter, Store, Sweeper

    check_timeout(options.timeout)  # before anything is started
    try:
        with start_engine(
            options.engine, workers=options.workers, scheduler=options.scheduler
        ) as engine:
            return work(
                lambda: Sweeper(
                    engine,
                    Store(options.out / "store"),
                    fresh=options.fresh,
                    timeout=options.timeout,
                    reporter=Reporter(quiet=options.quiet or options.json),
                )
            )
    except CellsFailedError as error:
        return report_failures(error.failures)
    except KeyboardInterrupt:
        complain(
            f"interrupted. Finished cells are kept in {options.out / 'store'}; the same command "
            "continues from there."
        )
        return 130


def report_failures(failures: Sequence[Failure]) -> int:
    """Print the cells that failed; return the exit code for failed cells."""
    print_failures(Console(stderr=True, highlight=False), failures)
    complain(f"{len(failures)} cells failed; the same command tries only those again.")
    return 3
