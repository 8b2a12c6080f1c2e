"""Complete a matrix: tune on validation entries, test on others, refit the choice to all."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from natgrad._checks import refuse_unknown
from natgrad._renamed import renamed
from natgrad.diagnostics import effective_rank
from natgrad.experiments.complete import _cells as cells
from natgrad.experiments.complete._tables import (
    Loaded,
    Part,
    data_of,
    digest,
    divide,
    in_memory,
    load,
)
from natgrad.experiments.complete.config import (
    OPTIONS,
    RENAMED,
    SIZES,
    Centering,
    Choices,
    Complete,
    Data,
    TableOptions,
)
from natgrad.experiments.complete.result import METHODS, Completed, check_target, completed
from natgrad.lab._run import Request, run
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Preset, Sweep, in_this_process
from natgrad.lab.sweep import Sweeper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["complete", "complete_table", "compute", "experiment"]

_PLAIN_SCALE = 1e-3
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

    Depth, initial scale and stopping time are chosen on held-out entries. The test error is
    reported beside those of plain factorization and of the nuclear norm. Their rank and penalty are
    chosen in the same way. This needs the memory of a few matrices of the size of the completed
    one.

    Args:
        rows: Label of each entry's row.
        columns: Label of its column.
        values: Its value; missing ones (None, NaN) are left out, repeated entries averaged.
        test: Rows, columns and values of test entries; by default a share is held out.
        options: Fields of `natgrad.experiments.complete.config.Choices`: `center`, `depths`,
            `scales`, `hidden`, `ranks`, `max_evaluations`, `held_out`, `seed`.

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
        ...     depths=(2,), scales=(1e-3,), ranks=(1,), center="none",
        ... )
        >>> abs(found.predict("row 9", 3) - float(a[9] * b[3])) < 0.2
        True
    """
    refuse_unknown(options, OPTIONS, "complete")
    triples, judged = in_memory(rows, columns, values, test)
    config = presets(Data(path="", digest=""), **options)["quick"]
    loaded = divide(triples, judged, config.how)
    config = replace(config, data=Data(path="", digest=digest(loaded)))
    arrays = compute(config, in_this_process, loaded)
    return completed(arrays, completed_matrix(config, arrays, in_this_process, loaded), loaded)


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
        check_target(options.save)  # before the fits, not after them
    given = data_of(data, test=options.test, names=options.names)
    this = experiment(given, **options.choices)
    request = Request(this, preset, this.presets[preset], command)
    report = run(request, out, sweep)
    folder = RunFolder(out / this.folder)
    config, arrays = request.config, folder.arrays()
    matrix = completed_matrix(config, arrays, sweep)
    found = completed(arrays, matrix, load(config.data, config.how))
    saved = folder.path / "completed.csv" if options.save is None else options.save
    found.save(saved)
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


def compute(config: Complete, sweep: Sweep, given: Loaded | None = None) -> Arrays:
    """Choose settings on validation entries, refit without the test entries, test on those.

    Args:
        config: How to complete.
        sweep: Runs the cells.
        given: The table, if it is in memory; else it is read from the config's file.
    """
    asking = _Asking(config, given)
    deep = [(depth, scale) for depth in config.depths for scale in config.scales]
    asked = [
        *(asking.product("tune", depth, scale, config.hidden) for depth, scale in deep),
        *(asking.product("tune", 2, _PLAIN_SCALE, rank) for rank in config.ranks),
        asking.nuclear("tune", None),
    ]
    tuned = sweep(asked, "tuning")
    of_deep, of_plain = tuned[: len(deep)], tuned[len(deep) : -1]
    best = _best(of_deep)
    rank = _best(of_plain)
    depth, scale = deep[best]
    final = [
        asking.product("test", depth, scale, config.hidden, _work(of_deep[best])),
        asking.nuclear("test", float(tuned[-1]["penalty"])),
        asking.product("test", 2, _PLAIN_SCALE, config.ranks[rank], _work(of_plain[rank])),
        asking.means("means"),
        asking.means("mean"),
    ]
    judged = sweep(final, "testing")
    values = np.asarray(judged[0]["values"])
    arrays = Arrays(
        method=METHODS,
        depth=config.depths,
        scale=config.scales,
        rank=config.ranks,
        axis=["time", "error"],
    )
    arrays.add("test_error", np.stack([result["error"] for result in judged]), "method")
    shape = (len(config.depths), len(config.scales))
    errors = np.stack([result["error"] for result in of_deep]).reshape(shape)
    arrays.add("validation_error", errors, "depth", "scale")
    curves = np.stack([result["curve"] for result in of_deep]).reshape(*shape, 2, -1)
    arrays.add("validation_curve", curves, "depth", "scale", "axis", "point")
    plain = np.stack([result["error"] for result in of_plain])
    arrays.add("validation_error_plain", plain, "rank")
    arrays.add("chosen_depth", depth)
    arrays.add("chosen_scale", scale)
    arrays.add("chosen_rank", config.ranks[rank])
    arrays.add("chosen_penalty", tuned[-1]["penalty"])
    arrays.add("work", _work(of_deep[best]))
    arrays.add("singular_values", values, "value")
    arrays.add("effective_rank", float(effective_rank(torch.diag(torch.from_numpy(values)))))
    return arrays


def _best(results: Sequence[Result]) -> int:
    return int(np.argmin([float(result["error"]) for result in results]))


def _work(result: Result) -> float:
    """Return time × entries at which the fit was best."""
    return float(result["work"])


class _Asking:
    """Makes the cells of one table, and refuses a bad table before any cell runs."""

    def __init__(self, config: Complete, given: Loaded | None) -> None:
        self._config, self._given = config, given
        self._loaded = given or load(config.data, config.how)

    def product(
        self, part: Part, depth: int, scale: float, hidden: int, work: float = math.inf
    ) -> Cell:
        until = work if math.isinf(work) else work / len(self._loaded.part(part))
        config = cells.ProductConfig(
            data=self._config.data,
            how=self._config.how,
            part=part,
            center=self._config.center,
            depth=depth,
            scale=scale,
            hidden=hidden,
            until=until,
            max_evaluations=self._config.max_evaluations,
        )
        label = f"{part}: L={depth}, α={scale:g}, width {hidden}"
        return Cell(cells.product, config, label, self._given)

    def nuclear(self, part: Part, penalty: float | None) -> Cell:
        config = cells.NuclearConfig(
            data=self._config.data,
            how=self._config.how,
            part=part,
            center=self._config.center,
            width=self._config.hidden,
            penalty=penalty,
        )
        return Cell(cells.nuclear, config, f"{part}: nuclear norm", self._given)

    def means(self, center: Centering) -> Cell:
        config = cells.MeansConfig(
            data=self._config.data, how=self._config.how, part="test", center=center
        )
        return Cell(cells.means, config, f"test: {center}", self._given)


def completed_matrix(
    config: Complete, arrays: Arrays, sweep: Sweep, given: Loaded | None = None
) -> np.ndarray:
    """Return the matrix completed by the chosen product, fitted to all entries."""
    asking = _Asking(config, given)
    depth, scale = int(arrays["chosen_depth"]), float(arrays["chosen_scale"])
    cell = asking.product("all", depth, scale, config.hidden, float(arrays["work"]))
    (result,) = sweep([cell], "completing")
    return np.asarray(result["matrix"])


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
