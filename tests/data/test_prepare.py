"""Columns as features: nothing is lost in silence, and every step can be undone."""

import math

import numpy as np
import pytest

from natgrad.data.tables import fill_gaps, prepare, typical_values
from natgrad.errors import DtypeError, InvalidInputError, LabelError, ShapeError

N = 24
TITANIC = {
    "id": [str(k) for k in range(1, N + 1)],
    "name": [f"passenger {k}" for k in range(N)],
    "sex": ["male", "female"] * (N // 2),
    "port": ["S", "C", "Q", "S", "", "S"] * (N // 6),
    "age": [str(20 + k) if k % 5 else "" for k in range(N)],
    "fare": [str(k * k) for k in range(N)],
    "fare in cents": [str(100 * k * k) for k in range(N)],
    "ship": ["Titanic"] * N,
    "survived": ["no", "yes", "yes"] * (N // 3),
}


def done(table, column: str) -> str:
    return "; ".join(step.done for step in table.steps if step.column == column)


def test_texts_and_gaps_are_used_and_what_says_nothing_is_named() -> None:
    table = prepare(TITANIC, "survived")
    assert table.x.shape == (N, 7)
    assert table.names == (
        "sex=male", "port=(missing)", "port=C", "port=Q", "port=S", "age", "fare",
    )  # fmt: skip
    assert table.x[:, 0].tolist() == [1.0, 0.0] * (N // 2)
    assert np.isnan(table.x[:, 5]).sum() == 5
    assert done(table, "id") == "left out: it counts the rows, as an identifier does"
    assert done(table, "name") == f"left out: {N} different texts in {N} rows"
    assert done(table, "ship=Titanic") == "left out: it has one value"
    assert done(table, "fare in cents") == "left out: a copy of 'fare' in other units"
    assert done(table, "age") == "5 gaps filled with the median"


def test_every_step_can_be_undone() -> None:
    table = prepare(TITANIC, "survived")
    for step in table.steps:
        option, _, value = step.undo.partition("=")
        options = {option: [value] if option == "keep" else value}
        again = prepare(TITANIC, "survived", **options)
        assert step not in again.steps, step
    kept = prepare(TITANIC, "survived", keep=["id", "fare in cents", "ship", "name"])
    assert {"id", "fare in cents", "ship=Titanic", "name=passenger 3"} <= set(kept.names)


def test_gaps_are_filled_flagged_or_rows_left_out() -> None:
    flagged = prepare(TITANIC, "survived", missing="flag")
    flag = flagged.x[:, flagged.names.index("age is missing")]
    assert flag.tolist() == np.isnan(flagged.x[:, flagged.names.index("age")]).tolist()
    dropped = prepare(TITANIC, "survived", missing="drop")
    assert len(dropped.x) == N - 5
    assert not np.isnan(dropped.x).any()
    assert done(dropped, "rows") == f"5 of {N} left out: missing values"


def test_columns_may_be_left_out() -> None:
    table = prepare(TITANIC, "survived", drop=["sex", "fare"], categories="drop")
    assert table.names == ("age", "fare in cents")
    assert done(table, "sex") == "left out as asked"
    with pytest.raises(InvalidInputError, match=r"no column 'sx'\. Did you mean 'sex'"):
        prepare(TITANIC, "survived", drop=["sx"])
    with pytest.raises(InvalidInputError, match="drop names 'survived', which is the column of"):
        prepare(TITANIC, "survived", drop=["survived"])


def test_rare_levels_share_a_column() -> None:
    city = ["Rome"] * 30 + ["Oslo"] * 20 + [f"village {k}" for k in range(40)]
    table = {"city": city, "y": [0, 1] * 45}
    found = prepare(table, "y")
    assert found.names == ("city=Oslo", "city=Rome", "city=(other)")
    assert found.x.sum(axis=0).tolist() == [20, 30, 40]
    assert len(prepare(table, "y", keep=["city"]).names) == 42
    x, labels, out = found.further({"city": ["Rome", "Paris"]}, None)
    assert (x.tolist(), labels.tolist(), out) == ([[0, 1, 0], [0, 0, 1]], [-1, -1], 0)


def test_numbers_with_a_few_texts_get_a_hint() -> None:
    values = [str(k / 7) for k in range(40)]
    values[3] = values[30] = "unknown"
    step = prepare({"a": values, "c": [1, 2] * 20, "y": [0, 0, 1, 1] * 10}, "y").steps[0]
    assert step.done.endswith("most are numbers, but not 'unknown': empty those fields")


def test_more_than_two_classes_in_order() -> None:
    table = {"a": list(range(9)), "b": [1, 0, 2] * 3, "y": ["10", "9", "x"] * 3}
    found = prepare(table, "y", keep=["a"])
    assert found.classes == ("9", "10", "x")
    assert found.labels.tolist() == [1, 0, 2] * 3
    two = prepare(table, "y", classes=("x", "9"))
    assert two.labels.tolist() == [1, 0] * 3
    assert done(two, "rows") == "3 of 9 left out: no label among 'x', '9'"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "fare", "classes": ("0", "1")}, "class '0' of column 'fare' has 1 usable row;"),
        ({"label": "ship"}, "holds 1: 'Titanic'. There is nothing to separate"),
        ({"label": "survived", "classes": ("no", "maybe")}, "no label 'maybe'"),
        ({"label": "survived", "classes": ("no", "no")}, "two different classes"),
        ({"label": "survived", "classes": ("no",)}, "two or more labels"),
        ({"label": "survived", "missing": "guess"}, "'fill', 'flag' or 'drop'"),
        ({"label": "survived", "drop": 3}, "drop must be a tuple of names"),
        ({"label": "survived", "drop": [*list(TITANIC)[:-1]]}, "columns to learn from"),
    ],
)
def test_bad_tables_get_a_sentence(change, words) -> None:
    with pytest.raises((InvalidInputError, LabelError, DtypeError), match=words):
        prepare(TITANIC, **change)


def test_dates_and_empty_columns_are_named() -> None:
    days = [f"2020-01-{day:02d}" for day in range(1, 31)]
    table = {"y": ["a", "b"] * 15, "x": [1, 2, 4] * 10, "when": days, "none": [None] * 30}
    found = prepare(table, "y")
    assert "they are dates" in done(found, "when")
    assert done(found, "none") == "left out: it has no value"


def test_a_quantity_is_no_label() -> None:
    with pytest.raises(LabelError, match=r"different label in each row.*Is another column meant"):
        prepare({"a": [1, 2] * 4, "y": list("abcdefgh")}, "y")
    with pytest.raises(LabelError, match=r"holds 60 different labels.*If it is a quantity"):
        prepare({"a": [1, 2] * 30, "y": list(range(60))}, "y")


def test_further_rows_have_the_same_features() -> None:
    table = prepare(TITANIC, "survived")
    rows = {name: values[:4] for name, values in TITANIC.items() if name not in ("ship", "id")}
    x, labels, out = table.further(rows, "survived")
    assert np.array_equal(x, table.x[:4], equal_nan=True)
    assert labels.tolist() == table.labels[:4].tolist()
    assert out == 0
    _, labels, out = table.further(rows | {"survived": ["no", "", "yes", "perhaps"]}, "survived")
    assert (labels.tolist(), out) == ([0, 1], 2)
    with pytest.raises(InvalidInputError, match="column 'fare' holds text here"):
        table.further(rows | {"fare": list("abcd")}, None)
    with pytest.raises(InvalidInputError, match="no row of the further table can be used"):
        table.further(rows | {"survived": ["?"] * 4}, "survived")


def test_marks_of_pandas_are_gaps() -> None:
    pandas = pytest.importorskip("pandas")
    table = {"a": [1, pandas.NA, 3, 5], "b": ["u", None, pandas.NaT, "v"], "y": [0, 1, 0, 1]}
    found = prepare(table, "y")
    assert np.isnan(found.x[1, found.names.index("a")])
    assert found.x[:, found.names.index("b=(missing)")].tolist() == [0, 1, 1, 0]


def test_medians_fill_gaps() -> None:
    x = np.array([[1.0, math.nan], [2.0, 5.0], [9.0, 7.0], [math.nan, math.nan]])
    usual = typical_values(x)
    assert usual.tolist() == [2.0, 6.0]
    assert fill_gaps(x, usual).tolist() == [[1, 6], [2, 5], [9, 7], [2, 6]]
    with pytest.raises(ShapeError, match="2 numbers, one for each column"):
        fill_gaps(x, usual[:1])
