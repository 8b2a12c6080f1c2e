"""The front door: `natgrad.complete`."""

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import describe, refuse_unknown
from natgrad._checks import path as as_path
from natgrad.data.triples import Table, index_table, make_table, within
from natgrad.errors import InvalidInputError
from natgrad.experiments._arguments import column, several
from natgrad.experiments.complete import cells
from natgrad.experiments.complete.experiment import (
    METHODS,
    OPTIONS,
    Complete,
    completed_matrix,
    compute,
    presets,
)
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep, in_this_process


@dataclass(frozen=True, eq=False)
class Completed:
    """A completed matrix, and how good its predictions are.

    Attributes:
        matrix: The matrix; observed entries as they were, to float32, shape `(rows, columns)`.
        rows: Labels of the rows.
        columns: Labels of the columns.
        test_error: Root mean squared error on test entries, by method; for each the choices were
            made on validation entries.
        test_entries: Number of test entries.
        depth: Number of factors chosen.
        scale: Initial scale chosen.
        effective_rank: Of the fitted product, exp of the entropy of its singular values.
        singular_values: Of the fitted product, after centring, largest first.
        notes: Sentences on what was left out.
    """

    matrix: npt.NDArray[np.float32]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    test_error: dict[str, float]
    test_entries: int
    depth: int
    scale: float
    effective_rank: float
    singular_values: npt.NDArray[np.float64]
    notes: tuple[str, ...]

    def predict(self, row: object, column: object) -> float:
        """Return one entry by its labels.

        Raises:
            InvalidInputError: If a label never occurred.
        """
        for label, known, side in ((row, self.rows, "row"), (column, self.columns, "column")):
            if str(label) not in known:
                raise InvalidInputError(f"there is no {side} {describe(label)} in the data.")
        return float(self.matrix[self.rows.index(str(row)), self.columns.index(str(column))])

    def save(self, path: str | Path) -> None:
        """Write the matrix: `.csv` (a header, a line a row), `.parquet`, or `.safetensors`.

        Raises:
            InvalidInputError: If the ending is another.
        """
        path = check_target(path)
        if path.suffix == ".csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["", *self.columns])
                for label, line in zip(self.rows, self.matrix, strict=True):
                    writer.writerow([label, *(f"{value:.7g}" for value in line.tolist())])
        elif path.suffix == ".safetensors":
            arrays = Arrays(row=self.rows, column=self.columns)
            arrays.add("completed", self.matrix, "row", "column")
            arrays.save(path)
        else:
            _write_parquet(self, path)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the matrix, for machines."""
        return {
            "shape": list(self.matrix.shape),
            "test_error": self.test_error,
            "test_entries": self.test_entries,
            "depth": self.depth,
            "scale": self.scale,
            "effective_rank": self.effective_rank,
            "singular_values": self.singular_values.tolist(),
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return a summary in sentences and a small table, for people."""
        rows, columns = self.matrix.shape
        top = ", ".join(f"{value:.3g}" for value in self.singular_values[:8])
        best = min(self.test_error.values())
        return [
            *self.notes,
            f"{rows} × {columns} matrix; chosen on held-out entries: depth {self.depth}, initial "
            f"scale {self.scale:g}.",
            f"root mean squared error on {self.test_entries} test entries:",
            *(
                f"  {name:<22} {error:.4g}{'  (best)' if error == best else ''}"
                for name, error in self.test_error.items()
            ),
            f"effective rank {self.effective_rank:.3g}; singular values {top}"
            f"{', …' if len(self.singular_values) > 8 else ''}",
        ]


def check_target(path: str | Path) -> Path:
    """Return a path that a completed matrix can be written to.

    Raises:
        InvalidInputError: If it ends otherwise, or there is no such folder.
    """
    path = as_path(path, "the path")
    if path.suffix not in (".csv", ".parquet", ".safetensors"):
        raise InvalidInputError(
            "a completed matrix is written as .csv, .parquet or .safetensors, not as "
            f"{path.name!r}."
        )
    if not path.parent.is_dir():
        raise InvalidInputError(f"there is no folder {path.parent} to write {path.name} to.")
    return path


def _write_parquet(completed: Completed, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidInputError(
            f"writing {path} needs pyarrow: pip install 'natgrad[tables]', or choose .csv."
        ) from error
    names = ["row", *completed.columns]
    columns = [pyarrow.array(completed.rows), *map(pyarrow.array, completed.matrix.T.copy())]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)


def complete(
    rows: Iterable[Any],
    columns: Iterable[Any],
    values: Iterable[Any],
    *,
    test: tuple[Iterable[Any], Iterable[Any], Iterable[Any]] | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Completed:
    """Complete a matrix from some of its entries by a product of factors along gradient flow.

    Depth, initial scale and stopping time are chosen on held-out entries; so are the rank of plain
    factorisation and the penalty of the nuclear norm, which it is judged against on test entries.
    Memory: a few matrices of the size of the completed one.

    Args:
        rows: Label of each entry's row.
        columns: Label of its column.
        values: Its value; missing ones (None, NaN) are left out, repeated entries averaged.
        test: Three further sequences to judge by; else a share of the entries is kept for that.
        held_out: Share of the entries to choose by, and to judge by.
        seed: Seed of the division and of initial factors.
        options: Fields of `natgrad.experiments.complete.experiment.Complete`, such as `centring`,
            `depths`, `scales`, `hidden`.

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
        ...     depths=(2,), scales=(1e-3,), ranks=(1,), centring="none",
        ... )
        >>> abs(found.predict("row 9", 3) - float(a[9] * b[3])) < 0.2
        True
    """
    refuse_unknown(options, OPTIONS, "complete")
    triples = index_table(_table(rows, columns, values))
    judged = None
    if test is not None:
        rows, columns, values = several(test, "test", ("rows", "columns", "values"))
        judged = within(_table(rows, columns, values, "test "), triples)
    data = cells.Data(path="", digest="", held_out=held_out, seed=seed)
    loaded = cells.divide(triples, judged, data.held_out, data.seed)
    data = replace(data, digest=_digest(loaded))
    config = presets(data, **options)["quick"]
    arrays = compute(config, in_this_process, loaded)
    return completed(config, arrays, in_this_process, loaded)


def _table(rows: Any, columns: Any, values: Any, of: str = "") -> Table:
    """Return three sequences as a table."""
    return make_table(
        column(rows, f"{of}rows"), column(columns, f"{of}columns"), column(values, f"{of}values")
    )


def completed(
    config: Complete, arrays: Arrays, sweep: Sweep, given: cells.Loaded | None = None
) -> Completed:
    """Return the completed matrix of an experiment's arrays, fitted to all entries.

    Args:
        config: How it was completed.
        arrays: What came out.
        sweep: Where the last fit runs.
        given: The table, if it lies in memory; else it is read from the file of the config.
    """
    loaded = given or cells.load(config.data)
    errors = arrays["test_error"].tolist()
    return Completed(
        completed_matrix(config, arrays, sweep, given),
        loaded.triples.rows,
        loaded.triples.columns,
        dict(zip(METHODS, errors, strict=True)),
        len(loaded.test),
        int(arrays["chosen_depth"]),
        float(arrays["chosen_scale"]),
        float(arrays["effective_rank"]),
        arrays["singular_values"],
        loaded.notes,
    )


def _digest(loaded: cells.Loaded) -> str:
    hasher = hashlib.sha256(f"{loaded.triples.shape} {loaded.own_test}".encode())
    for entries in (loaded.train, loaded.validation, loaded.test):
        hasher.update(f"{len(entries)} ".encode() + entries.positions.numpy().tobytes())
        hasher.update(entries.values.numpy().tobytes())
    return hasher.hexdigest()
