"""The result of a completion: the matrix, and how good its predictions are."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import describe
from natgrad._checks import path as as_path
from natgrad.errors import InvalidInputError
from natgrad.experiments.complete._tables import Loaded
from natgrad.lab.arrays import Arrays

__all__ = ["METHODS", "Completed", "check_target", "completed"]

METHODS = (
    "deep product",
    "nuclear norm",
    "plain factorization",
    "row and column means",
    "overall mean",
)


@dataclass(frozen=True, eq=False)
class Completed:
    """A completed matrix, and how good its predictions are.

    Attributes:
        matrix: The matrix, `(rows, columns)`; observed entries are kept, rounded to float32.
        rows: Labels of the rows.
        columns: Labels of the columns.
        test_error: Root mean squared error on test entries, by method; the settings of each were
            chosen on validation entries.
        test_entries: Number of test entries.
        depth: Number of factors chosen.
        scale: Initial scale chosen.
        effective_rank: exp of the entropy of the fitted product's singular values.
        singular_values: Singular values of the fitted product, after centering, largest first.
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
        """Write the matrix: `.csv` (a header, one line per row), `.parquet`, or `.safetensors`.

        Raises:
            InvalidInputError: If the path has another ending.
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
        """Return everything except the matrix as a dictionary of plain values."""
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
        """Return a readable summary: sentences and a small table."""
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
        InvalidInputError: If it has another ending, or there is no such folder.
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


def completed(arrays: Arrays, matrix: npt.NDArray[np.float32], loaded: Loaded) -> Completed:
    """Return the result in an experiment's arrays.

    Args:
        arrays: The arrays of the experiment.
        matrix: The completed matrix.
        loaded: The table.
    """
    errors = arrays["test_error"].tolist()
    return Completed(
        matrix,
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
