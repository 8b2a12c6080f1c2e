"""The result of a completion: the matrix, and how good its predictions are."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from natgrad._checks import choice, describe, integer, number
from natgrad._checks import path as as_path
from natgrad._show import as_table, axes_or_new
from natgrad.errors import InvalidInputError
from natgrad.experiments._arguments import column
from natgrad.experiments.complete._tables import Loaded
from natgrad.lab.arrays import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["METHODS", "SHARES", "Completed", "check_target", "completed"]

Layout = Literal["wide", "long"]

METHODS = (
    "deep product",
    "nuclear norm",
    "plain factorization",
    "row and column means",
    "overall mean",
)

SHARES = np.linspace(0, 1, 201)
"""Shares at which quantiles of residuals are kept."""


@dataclass(frozen=True, eq=False, repr=False)
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
        singular_values: Singular values of the deep product minus row and column means, largest
            first.
        notes: Sentences on what was left out.
        centers: Weight of each centering in the deep product.
        fold_errors: Root mean squared error on each fold, by products that did not see it.
        observed: Row and column of each observed entry, shape `(n, 2)`.
        residual_quantiles: Quantiles of value − prediction at entries of the folds, by products
            that did not see them, at 201 equal steps from 0 to 1.
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
    centers: dict[str, float]
    fold_errors: npt.NDArray[np.float64]
    observed: npt.NDArray[np.int64]
    residual_quantiles: npt.NDArray[np.float64]

    def predict(
        self, rows: Any, columns: Any, *, unknown: Literal["refuse", "means"] = "refuse"
    ) -> Any:
        """Return entries by their labels: a float for two labels, an array for sequences.

        Args:
            rows: A label, or a sequence, an array or a series of labels.
            columns: The same, of the same length; one label goes with every row.
            unknown: What to do with labels that never occurred: raise an error, or predict them
                by the mean of the known row or column, or by the overall mean.

        Raises:
            InvalidInputError: If lengths differ, or a label never occurred.
        """
        choice(unknown, "unknown", ("refuse", "means"))
        i, one_row = self._places(rows, "row", unknown)
        j, one_column = self._places(columns, "column", unknown)
        if one_row and one_column:
            return float(self._at(i, j)[0])
        if len(i) != len(j) and not (one_row or one_column):
            raise InvalidInputError(
                f"there must be one column for each row, but there are {len(i)} rows and {len(j)} "
                "columns."
            )
        return self._at(*np.broadcast_arrays(i, j))

    def interval(self, rows: Any, columns: Any, *, level: float = 0.9) -> Any:
        """Return the lower and the upper end of an interval for each entry.

        The interval is the prediction plus quantiles of the residuals on the folds. It contains a
        share of about `level` of new values on average over all entries. It has the same width for
        all of them, so it is too wide for some rows and too narrow for others.

        Args:
            rows: As for `predict`.
            columns: As for `predict`.
            level: Share of the values inside, between 0 and 1.

        Raises:
            InvalidInputError: If a label never occurred, or the level is not such a share.
        """
        level = number(level, "level", low=0, low_open=True, high=1, high_open=True)
        ends = np.interp([(1 - level) / 2, (1 + level) / 2], SHARES, self.residual_quantiles)
        value = self.predict(rows, columns)
        return value + float(ends[0]), value + float(ends[1])

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the test error of each method as a bar; return the axes.

        Args:
            ax: Axes to draw on; by default new ones.
        """
        ax = axes_or_new(ax)
        names, errors = list(self.test_error), list(self.test_error.values())
        where = range(len(names))
        ax.barh([-k for k in where], errors, height=0.6)
        ax.set_yticks([-k for k in where], names)
        for k, error in enumerate(errors):
            ax.text(error, -k, f" {error:.4g}", va="center", fontsize=8)
        ax.set_xlim(0, 1.15 * max(errors))
        ax.set_xlabel(f"root mean squared error on {self.test_entries} test entries")
        return ax

    def _places(self, labels: Any, side: str, unknown: str) -> tuple[npt.NDArray[np.int64], bool]:
        """Return positions of labels, −1 for unknown ones, and whether it was a single label."""
        single = isinstance(labels, str) or not isinstance(labels, Iterable)
        given = [labels] if single else column(labels, f"{side}s")
        known = self._known[side]
        found = np.array([known.get(str(label), -1) for label in given], dtype=np.int64)
        if unknown == "refuse" and (found < 0).any():
            label = given[int((found < 0).argmax())]
            raise InvalidInputError(f"there is no {side} {describe(label)} in the data.")
        return found, single

    @cached_property
    def _known(self) -> dict[str, dict[str, int]]:
        sides = (("row", self.rows), ("column", self.columns))
        return {side: {label: k for k, label in enumerate(known)} for side, known in sides}

    def _at(self, i: npt.NDArray[np.int64], j: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        found = self.matrix[i, j].astype(np.float64)
        if (i < 0).any() or (j < 0).any():
            over_columns = np.append(self.matrix.mean(1, dtype=np.float64), self.matrix.mean())
            over_rows = np.append(self.matrix.mean(0, dtype=np.float64), self.matrix.mean())
            found = np.where(j < 0, over_columns[i], np.where(i < 0, over_rows[j], found))
        return found

    def top(self, row: Any, k: int = 10) -> list[tuple[str, float]]:
        """Return the k unobserved columns of a row with the largest predictions, and these.

        Raises:
            InvalidInputError: If the label of the row never occurred.
        """
        (i,), _ = self._places(str(row), "row", "refuse")
        line = self.matrix[i].astype(np.float64)
        seen = self.observed[self.observed[:, 0] == i, 1]
        line[seen] = -np.inf
        order = np.argsort(-line, kind="stable")[: integer(k, "k", low=1)]
        return [(self.columns[j], float(line[j])) for j in order if np.isfinite(line[j])]

    def save(self, path: str | Path, *, layout: Layout = "wide") -> None:
        """Write the matrix: `.csv` (a header, one line per row), `.parquet`, or `.safetensors`.

        Args:
            path: The file.
            layout: "wide" for one line per row; "long" for one line per entry, with columns row,
                column, value, and observed (1 or 0), as `.csv` or `.parquet`.

        Raises:
            InvalidInputError: If the path has another ending.
        """
        path = check_target(path, layout)
        if path.suffix == ".safetensors":
            arrays = Arrays(row=self.rows, column=self.columns)
            arrays.add("completed", self.matrix, "row", "column")
            arrays.save(path)
        elif path.suffix == ".parquet":
            _write_parquet(self._long() if layout == "long" else self._wide(), path)
        else:
            lines = self._long_lines() if layout == "long" else self._wide_lines()
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(lines)

    def _wide(self) -> list[tuple[str, Any]]:
        return [("row", self.rows), *zip(self.columns, self.matrix.T.copy(), strict=True)]

    def _wide_lines(self) -> Iterator[tuple[str, ...]]:
        yield ("", *self.columns)
        for label, line in zip(self.rows, self.matrix, strict=True):
            yield (label, *(f"{value:.7g}" for value in line.tolist()))

    def _long(self) -> list[tuple[str, Any]]:
        return [
            ("row", np.repeat(self.rows, len(self.columns))),
            ("column", np.tile(self.columns, len(self.rows))),
            ("value", self.matrix.ravel()),
            ("observed", self._seen.ravel().astype(np.int8)),
        ]

    def _long_lines(self) -> Iterator[tuple[Any, ...]]:
        yield ("row", "column", "value", "observed")
        for label, line, known in zip(self.rows, self.matrix, self._seen, strict=True):
            values = (f"{value:.7g}" for value in line.tolist())
            cells = zip(self.columns, values, known.astype(int).tolist(), strict=True)
            yield from ((label, *cell) for cell in cells)

    @property
    def _seen(self) -> npt.NDArray[np.bool_]:
        seen = np.zeros(self.matrix.shape, dtype=bool)
        seen[self.observed[:, 0], self.observed[:, 1]] = True
        return seen

    def __repr__(self) -> str:
        """Return the summary."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows, columns = self.matrix.shape
        errors = [(name, f"{error:.4g}") for name, error in self.test_error.items()]
        low, high = (float(self.residual_quantiles[k]) for k in (10, -11))
        facts = [
            ("depth, initial scale", f"{self.depth}, {self.scale:g}"),
            ("centering", self._centered()),
            ("error on the folds", f"{self.fold_errors.mean():.4g} ± {self.fold_errors.std():.2g}"),
            ("nine of ten residuals on the folds", f"between {low:.3g} and {high:.3g}"),
            ("effective rank", f"{self.effective_rank:.3g}"),
            *(("note", note) for note in self.notes),
        ]
        title = f"{rows} × {columns} matrix, {len(self.observed)} entries observed"
        head = ("method", f"error on {self.test_entries} test entries")
        return as_table(title, errors, head) + as_table("Deep product", facts)

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
            "centers": self.centers,
            "fold_errors": self.fold_errors.tolist(),
        }

    def lines(self) -> list[str]:
        """Return a readable summary: sentences and a small table."""
        rows, columns = self.matrix.shape
        top = ", ".join(f"{value:.3g}" for value in self.singular_values[:8])
        best = min(self.test_error.values())
        return [
            *self.notes,
            f"{rows} × {columns} matrix; chosen on held-out entries: depth {self.depth}, initial "
            f"scale {self.scale:g}, {self._centered()}.",
            f"root mean squared error on {self.test_entries} test entries:",
            *(
                f"  {name:<22} {error:.4g}{'  (best)' if error == best else ''}"
                for name, error in self.test_error.items()
            ),
            f"error on {len(self.fold_errors)} folds, each predicted by products that did not see "
            f"it: {self.fold_errors.mean():.4g} ± {self.fold_errors.std():.2g}",
            f"nine of ten values lie {self.residual_quantiles[10]:+.3g} … "
            f"{self.residual_quantiles[-11]:+.3g} from their prediction",
            f"effective rank {self.effective_rank:.3g}; singular values {top}"
            f"{', …' if len(self.singular_values) > 8 else ''}",
        ]

    def _centered(self) -> str:
        words = {"none": "nothing", "mean": "the mean", "means": "row and column means"}
        used = [(words[name], weight) for name, weight in self.centers.items() if weight > 0]
        if len(used) == 1:
            return f"after subtracting {used[0][0]}"
        return "an average of fits after subtracting " + " and ".join(
            f"{name} ({weight:.0%})" for name, weight in used
        )


def check_target(path: str | Path, layout: Layout = "wide") -> Path:
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
    if choice(layout, "layout", get_args(Layout)) == "long" and path.suffix == ".safetensors":
        raise InvalidInputError(
            f"the long layout is written as .csv or .parquet, not as {path.name!r}."
        )
    if not path.parent.is_dir():
        raise InvalidInputError(f"there is no folder {path.parent} to write {path.name} to.")
    return path


def _write_parquet(columns: list[tuple[str, Any]], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidInputError(
            f"writing {path} needs pyarrow: pip install 'natgrad[tables]', or choose .csv."
        ) from error
    names, values = zip(*columns, strict=True)
    table = pyarrow.Table.from_arrays([pyarrow.array(each) for each in values], names=names)
    pyarrow.parquet.write_table(table, path)


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
        dict(zip(arrays.coordinates["center"], arrays["center_weight"].tolist(), strict=True)),
        arrays["fold_error"],
        loaded.triples.positions.numpy(),
        arrays["residual_quantile"],
    )
