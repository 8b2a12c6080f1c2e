"""Complete a matrix: tune on validation entries, test on others, refit the choice to all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natgrad._checks import refuse_unknown
from natgrad._renamed import renamed
from natgrad.experiments._results import refuse_to_overwrite
from natgrad.experiments.complete._choose import Once, completed_matrix, compute
from natgrad.experiments.complete._tables import data_of, digest, divide, in_memory, load
from natgrad.experiments.complete.config import (
    OPTIONS,
    RENAMED,
    SIZES,
    Choices,
    Complete,
    Data,
    TableOptions,
)
from natgrad.experiments.complete.result import METHODS, Completed, check_target, completed
from natgrad.lab._run import Request, run
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Preset, in_this_process
from natgrad.lab.sweep import Sweeper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["complete", "complete_table", "completed_matrix", "compute", "experiment"]

_SET = {field.name for field in fields(Choices) if field.default is not None}


@renamed(**RENAMED)
def complete(
    rows: Iterable[Any],
    columns: Iterable[Any],
    values: Iterable[Any],
    *,
    test: tuple[Iterable[Any], Iterable[Any], Iterable[Any]] | None = None,
    **options: Any,
) -> Completed:
    """Complete a matrix from some of its entries by a deep product, fitted by gradient flow.

    Centering, depth, initial scale and stopping time are chosen on held-out entries. The result is
    an average of products, each fitted without one of ten folds and stopped by it. The test error
    is reported beside those of plain factorization and of the nuclear norm, whose settings are
    chosen on held-out entries too. Rows and columns without entries are predicted by means. This
    needs the memory of a few matrices of the size of the completed one.

    Args:
        rows: Label of each entry's row.
        columns: Label of its column.
        values: Its value; missing ones (None, NaN) are left out, repeated entries averaged.
        test: Rows, columns and values of test entries; by default a share is held out.
        options: Fields of `natgrad.experiments.complete.config.Choices`: `center`, `depths`,
            `scales`, `hidden`, `ranks`, `max_evaluations`, `held_out`, `seed`, `clip`.

    Raises:
        InvalidInputError: If there is nothing to complete, or too little to complete it from.

    Example:
        >>> import torch
        >>> a, b = torch.arange(1.0, 21), torch.linspace(-1, 1, 20)
        >>> seen = [(i, j) for i in range(20) for j in range(20) if (3 * i + 7 * j) % 5 < 3]
        >>> found = complete(
        ...     [f"row {i}" for i, j in seen],
        ...     [j for i, j in seen],
        ...     [float(a[i] * b[j]) for i, j in seen],
        ...     depths=(2,), scales=(1e-3,), ranks=(1,), center="none", clip=False,
        ... )
        >>> abs(found.predict("row 9", 3) - float(a[9] * b[3])) < 0.2
        True
        >>> found.top("row 9", 2)[0][0]
        '18'
    """
    refuse_unknown(options, OPTIONS, "complete")
    triples, judged = in_memory(rows, columns, values, test)
    config = presets(Data(path="", digest=""), **options)["quick"]
    loaded = divide(triples, judged, config.how)
    config = replace(config, data=Data(path="", digest=digest(loaded)))
    sweep = Once(in_this_process)
    arrays = compute(config, sweep, loaded)
    return completed(arrays, completed_matrix(config, arrays, sweep, loaded), loaded)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A completed table in a file.

    Attributes:
        completed: The matrix and its errors.
        report: The contents of `report.json`.
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
    """Complete a file of (row, column, value), and write report, picture and matrix to `out`.

    Args:
        data: CSV or Parquet.
        options: How to complete the matrix.
        preset: Preset that sets the options that are None.
        out: Folder for results.
        sweep: Runs the cells.
        command: The command as typed, for the report.

    Raises:
        InvalidInputError: If a file cannot be read or completed; the message says why.
        CellsFailedError: If cells failed.
    """
    if options.save is not None:
        # Before the fits, not after them.
        check_target(options.save, "long" if options.long else "wide")
    given = data_of(data, test=options.test, names=options.names)
    this = experiment(given, **options.choices)
    request = Request(this, preset, this.presets[preset], command)
    if not options.force:
        refuse_to_overwrite(out / this.folder, request.config)
    report = run(request, out, sweep)
    folder = RunFolder(out / this.folder)
    config, arrays = request.config, folder.arrays()
    matrix = completed_matrix(config, arrays, sweep)
    found = completed(arrays, matrix, load(config.data, config.how))
    saved = folder.path / "completed.csv" if options.save is None else options.save
    found.save(saved)
    if options.long:
        found.save(saved.with_name(f"{saved.stem}-long{saved.suffix}"), layout="long")
    return Outcome(found, report, saved)


def presets(data: Data, **options: Any) -> Mapping[Preset, Complete]:
    """Return a config for each preset, which sets the options that are None."""
    refuse_unknown(options, OPTIONS, "complete")
    given = {name: value for name, value in options.items() if value is not None or name in _SET}
    return {name: Complete(data=data, **(dict(SIZES[name]) | given)) for name in PRESETS}


def experiment(data: Data, **options: Any) -> Experiment[Complete]:
    """Return the experiment for a table."""
    stem = Path(data.path).stem if data.path else "table"
    return Experiment(
        name=f"complete/{stem}",
        title=f"Completing {stem}: a deep product, nuclear norm, plain factors and means",
        source="natgrad complete",
        presets=presets(data, **options),
        minutes={"smoke": 0.1, "quick": 1.0, "paper": 3.0},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=lambda config, arrays: load(config.data, config.how).notes,
    )


def claims(config: Complete, arrays: Arrays) -> Sequence[Claim]:
    """Return the test error relative to each other method's, as claims that are not judged."""
    errors = arrays["test_error"]
    many = len(load(config.data, config.how).test)
    return [
        Claim(
            id=f"against-{name.replace(' ', '-')}",
            statement=f"root mean squared error of the deep product over that of {name}",
            source="natgrad complete",
            value=float(errors[0] / errors[k]),
            relation="<=",
            bound=1.0,
            n=many,
            presets=(),
        )
        for k, name in enumerate(METHODS[1:], 1)
    ]


def draw(config: Complete, arrays: Arrays) -> "Figure":
    """Return errors, held-out curves and singular values."""
    from natgrad.experiments.complete.draw import picture

    return picture(arrays)
