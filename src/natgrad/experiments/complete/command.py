"""What `natgrad complete` does between its options and its output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from natgrad.data._files import digest_of
from natgrad.experiments.complete.cells import Data
from natgrad.experiments.complete.completed import Completed, check_target, completed
from natgrad.experiments.complete.experiment import experiment
from natgrad.experiments.complete.fitting import Centring
from natgrad.lab._run import Request, run
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.experiment import Preset
from natgrad.lab.sweep import Sweeper


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How to complete a table."""

    test: Path | None = None
    """A table of further entries to judge by; without it a share of DATA is kept for that."""
    names: tuple[str, str, str] | None = None
    """Names of the columns that hold row, column and value; by default the first three."""
    centring: Centring = "mean"
    """What to subtract before fitting: nothing, the overall mean, or row and column means."""
    depths: tuple[int, ...] | None = None
    """Numbers of factors to choose from; the preset says by default."""
    scales: tuple[float, ...] | None = None
    """Initial scales to choose from; the preset says by default."""
    hidden: int = 64
    """Width between factors: the highest rank there is to find."""
    held_out: float = 0.1
    """Share of the entries to choose by, and to judge by."""
    seed: int = 0
    """Seed of the division and of initial factors."""
    save: Path | None = None
    """File for the completed matrix (.csv, .parquet, .safetensors); else beside the report."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out.

    Attributes:
        completed: The matrix and its errors.
        report: What `report.json` holds.
        saved: Where the matrix was written.
    """

    completed: Completed
    report: dict[str, Any]
    saved: Path


def complete_table(
    data: Path,
    options: TableOptions,
    *,
    preset: Preset,
    out: Path,
    sweep: Sweeper,
    command: tuple[str, ...] = (),
) -> Outcome:
    """Complete a file of (row, column, value), leave report, picture and matrix below `out`.

    Args:
        data: CSV or Parquet.
        options: How.
        preset: How many settings to choose from.
        out: Folder for results.
        sweep: Where cells run.
        command: What was typed; the report says it.

    Raises:
        InvalidInputError: If a file cannot be read or completed; the message says why.
        CellsFailedError: If cells failed.
    """
    if options.save is not None:
        check_target(options.save)  # before the work, not after
    given = Data(
        path=str(data.resolve()),
        digest=digest_of(data),
        test_path=None if options.test is None else str(options.test.resolve()),
        test_digest=None if options.test is None else digest_of(options.test),
        names=options.names,
        held_out=options.held_out,
        seed=options.seed,
    )
    chosen: dict[str, Any] = {"centring": options.centring, "hidden": options.hidden}
    chosen |= {"depths": options.depths} if options.depths else {}
    chosen |= {"scales": options.scales} if options.scales else {}
    this = experiment(given, **chosen)
    request = Request(this, preset, this.presets[preset], command)
    report = run(request, out, sweep)
    folder = RunFolder(out / this.folder)
    found = completed(request.config, folder.arrays(), sweep)
    saved = folder.path / "completed.csv" if options.save is None else options.save
    found.save(saved)
    return Outcome(found, report, saved)
