"""Valid calls of data and whole comparisons."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import natgrad as ng
from natgrad import data
from natgrad.data import _files as files
from natgrad.data import mnist, separable, tables, teachers, triples
from natgrad.data.completion import low_rank
from tests.poison_calls.common import (
    add,
    add_method,
    real,
    seeded,
)

FOLDER = Path(__file__).parent


# Data ---------------------------------------------------------------------------------------------

_COLUMNS: dict[str, list[str]] = {"age": ["30", "50", "40", "60"], "ill": ["no", "yes"] * 2}


def _file(name: str, content: str) -> str:
    Path(name).write_text(content)
    return name


def _no_network(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        unavailable = mnist.MnistUnavailableError("The network is not asked in tests.")
        with mock.patch.object(mnist, "_cached", side_effect=unavailable):
            return function(**arguments)

    return call


def _made() -> triples.Table:
    return triples.make_table(["a", "a", "b"], ["u", "v", "u"], [1.0, 2.0, 3.0])


_completion = lambda: low_rank(shape=(3, 3), rank=1, observed=5, seed=0)  # noqa: E731
for _method in ("train_error", "test_error"):
    add_method(
        f"natgrad.data.completion.Completion.{_method}", _completion, lambda: {"beta": real(3, 3)}
    )
add(
    "natgrad.data.completion.low_rank",
    data.completion.low_rank,
    lambda: {"shape": (3, 4), "rank": 1, "observed": 5, "seed": 0},
)
add("natgrad.data.separable.planar", separable.planar, lambda: {"n": 5})
add(
    "natgrad.data.separable.sparse_gaussian",
    separable.sparse_gaussian,
    lambda: {"n": 4, "dim": 3, "ones": 1, "seed": 0},
)
add(
    "natgrad.data.tables.read_columns",
    tables.read_columns,
    lambda: {"path": _file("a.csv", "a,b\n1,2\n")},
)
add(
    "natgrad.data.tables.labeled",
    tables.labeled,
    lambda: {"columns": _COLUMNS, "label": "ill", "classes": ("no", "yes")},
)
add(
    "natgrad.data.tables.matching",
    tables.matching,
    lambda: {"columns": _COLUMNS, "like": tables.labeled(_COLUMNS, "ill"), "label": None},
)
add(
    "natgrad.data.tables.prepare",
    tables.prepare,
    lambda: {
        "columns": _COLUMNS,
        "label": "ill",
        "classes": ("no", "yes"),
        "categories": "one-hot",
        "missing": "flag",
        "drop": (),
        "keep": (),
    },
)
add_method(
    "natgrad.data.tables.Table.further",
    lambda: tables.prepare(_COLUMNS, "ill"),
    lambda: {"columns": _COLUMNS, "label": "ill"},
)
add("natgrad.data.tables.typical_values", tables.typical_values, lambda: {"x": np.eye(2)})
add(
    "natgrad.data.tables.fill_gaps",
    tables.fill_gaps,
    lambda: {"x": np.eye(2), "values": np.ones(2)},
)
add("natgrad.data.tables.as_label", tables.as_label, lambda: {"value": "1.0"})
add(
    "natgrad.data.teachers.correlated_inputs",
    teachers.correlated_inputs,
    lambda: {"n": 3, "width": 2, "generator": seeded()},
)
for _method in ("gaussian_factors", "orthogonal_factors"):
    add(
        f"natgrad.data.teachers.{_method}",
        getattr(teachers, _method),
        lambda: {"widths": (2, 3, 1), "generator": seeded()},
    )
add(
    "natgrad.data.teachers.teach",
    teachers.teach,
    lambda: {
        "teacher": (real(3, 2), real(1, 3)),
        "generator": seeded(),
        "examples": 4,
        "tests": 2,
        "noise": 0.1,
    },
)
add(
    "natgrad.data.triples.make_table",
    triples.make_table,
    lambda: {"rows": ["a", "b"], "columns": [1, 2], "values": [1.0, None]},
)
add("natgrad.data.triples.index_table", triples.index_table, lambda: {"table": _made()})
add(
    "natgrad.data.triples.within",
    triples.within,
    lambda: {"table": _made(), "triples": triples.index_table(_made())},
)
add(
    "natgrad.data.triples.read_table",
    triples.read_table,
    lambda: {
        "path": _file("t.csv", "u,v,w\na,b,1\na,c,2\n"),
        "names": ("u", "v", "w"),
    },
)
add("natgrad.data.mnist.load", _no_network(mnist.load), lambda: {"folder": FOLDER})
add(
    "natgrad.data.mnist.parse_idx",
    mnist.parse_idx,
    lambda: {"data": bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])},
)
for _method in ("digest_of", "existing", "csv_lines"):
    add(
        f"natgrad.data._files.{_method}",
        getattr(files, _method),
        lambda: {"path": Path(_file("a.csv", "a,b\n1,2\n"))},
    )
add("natgrad.data._files.is_parquet", files.is_parquet, lambda: {"path": Path("a.csv")})
add("natgrad.data._files.is_missing", files.is_missing, lambda: {"value": "x"})


def _parquet() -> Path:
    import pyarrow
    import pyarrow.parquet

    path = Path("a.parquet")
    if not path.exists():
        pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    return path


add("natgrad.data._files.parquet_table", files.parquet_table, lambda: {"path": _parquet()})


# Whole comparisons --------------------------------------------------------------------------------

_TABLE_X = [[2.0, 1.0], [1.0, 2.0], [3.0, 1.5], [-1.0, -2.0], [-2.0, 0.5], [-1.0, -1.0]]
_TABLE_Y = ["a", "a", "a", "b", "b", "b"]
add(
    "natgrad.compare",
    ng.compare,
    lambda: {
        "x": np.array(_TABLE_X),
        "y": list(_TABLE_Y),
        "test": (np.array(_TABLE_X), list(_TABLE_Y)),
        "unlabeled": np.array(_TABLE_X),
        "names": ["u", "v"],
        "classes": ("a", "b"),
        "depths": (1,),
        "until": 1.0,
        "natural_until": 1.0,
        "scale": 0.1,
        "standardize": False,
        "intercept": False,
        "folds": 2,
        "seed": 0,
    },
)
_SEEN = [(i, j) for i in range(6) for j in range(6) if (i + 2 * j) % 5 < 4]
add(
    "natgrad.complete",
    ng.complete,
    lambda: {
        "rows": [i for i, _ in _SEEN],
        "columns": [j for _, j in _SEEN],
        "values": [float((1 + i) * (2 + j)) for i, j in _SEEN],
        "test": ([0, 2], [2, 1], [4.0, 9.0]),
        "held_out": 0.2,
        "seed": 0,
        "depths": (2,),
        "scales": (1e-1,),
        "ranks": (1,),
        "center": "none",
        "hidden": 2,
        "max_evaluations": 20,
    },
)
