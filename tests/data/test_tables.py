"""Tables of users: read right, and refused with a sentence that says what to do."""

import builtins
from pathlib import Path

import numpy as np
import pytest

from natgrad.data.tables import as_label, labeled, matching, read_columns
from natgrad.errors import InvalidInputError, LabelError

GOOD = {"a": ["1", "2", "3", "4"], "b": ["0", "1", "1", "0"], "y": ["no", "yes", "no", "yes"]}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_by_any_separator(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeff" + "a,b\n1,x\n2,y\n".replace(",", separator), encoding="utf-8")
    assert read_columns(path) == {"a": ["1", "2"], "b": ["x", "y"]}


def test_quoted_fields_keep_their_separators(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,"b, too"\n1,"x, y"\n')
    assert read_columns(path) == {"a": ["1"], "b, too": ["x, y"]}


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {"a": [1.5, None, 3.0, 4.0, 7.0], "b": [1, 2, 2, 5, 1], "y": list("uuuvv")}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    one, two = (labeled(read_columns(tmp_path / f"t.{kind}"), "y") for kind in ("parquet", "csv"))
    assert np.array_equal(one.x, two.x)
    assert np.array_equal(one.y, two.y)
    assert one.names == two.names == ("a", "b")
    assert one.notes == two.notes == ("1 of 5 rows has missing values and was left out.",)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInputError, match=r"natgrad\[tables\]"):
        read_columns(path)


def test_other_encodings_get_advice(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(InvalidInputError, match="Save it in the encoding UTF-8"):
        read_columns(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a header and at least one more line"),
        ("a,b\n", "a header and at least one more line"),
        ("a,a\n1,2\n", "more than one column 'a'"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields where the header has 2"),
        ('a,b\n1,"2\n', "cannot be read as CSV"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        read_columns(path)


def test_files_that_are_no_text_and_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    (tmp_path / "t.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_columns(tmp_path / "t.csv")
    pytest.importorskip("pyarrow")
    with pytest.raises(InvalidInputError, match="as Parquet"):
        read_columns(tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match="there is no file"):
        read_columns(tmp_path / "gone.csv")


def test_features_and_labels() -> None:
    found = labeled(GOOD, "y")
    assert found.names == ("a", "b")
    assert found.x.tolist() == [[1, 0], [2, 1], [3, 1], [4, 0]]
    assert found.y.tolist() == [-1, 1, -1, 1]
    assert found.notes == ()


def test_two_of_many_classes_the_second_positive() -> None:
    table = {"a": list(range(6)), "y": [3, 8, 5, 8, 3, 5]}
    found = labeled(table, "y", classes=("8", "3"))
    assert found.x[:, 0].tolist() == [0, 1, 3, 4]
    assert found.y.tolist() == [1, -1, -1, 1]
    assert found.notes == ("2 of 6 rows have no label '8' or '3' and were left out.",)


def test_what_cannot_be_used_is_named() -> None:
    table = GOOD | {"name": list("pqrs"), "city": list("tuvw"), "same": ["7"] * 4}
    notes = labeled(table, "y").notes
    assert notes == (
        "2 columns hold text and were left out; encode them as numbers to use them: "
        "'name', 'city'.",
        "Column 'same' holds one value and was left out.",
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (GOOD | {"y": ["no"] * 4}, "must hold two labels, but holds 1: 'no'. There is nothing"),
        (GOOD | {"y": list("pqrr")}, "holds 3: 'p', 'q', 'r'. Name two of them"),
        (GOOD | {"y": [""] * 4}, "holds 0: none"),
        (GOOD | {"y": ["no", "no", "no", "yes"]}, "class 'yes' of column 'y' has 1 usable row;"),
    ],
)
def test_labels_that_are_not_two_classes(table: dict[str, list[str]], words: str) -> None:
    with pytest.raises(LabelError, match=words):
        labeled(table, "y")


def test_classes_that_are_not_there() -> None:
    with pytest.raises(LabelError, match="no label 'maybe'; it has 'no', 'yes'"):
        labeled(GOOD, "y", classes=("no", "maybe"))
    with pytest.raises(LabelError, match="both are 'no'"):
        labeled(GOOD, "y", classes=("no", "no"))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"y": GOOD["y"], "name": list("pqrs")}, "there must be columns of numbers"),
        ({"y": GOOD["y"], "a": ["3"] * 4}, "every feature is constant"),
        ({"y": GOOD["y"], "a": ["", "na", "?", "NaN"]}, "every row has missing values"),
        ({"y": GOOD["y"], "a": ["1", "inf", "2", "3"]}, "column 'a' holds an infinite number"),
    ],
)
def test_features_that_teach_nothing(table: dict[str, list[str]], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        labeled(table, "y")


def test_a_column_that_is_not_there_suggests_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"no column 'target'\. Did you mean 'targets'"):
        labeled({"a": [1], "targets": [0]}, "target")


def test_further_tables_must_match() -> None:
    like = labeled(GOOD, "y")
    table = {"b": ["1", "", "0"], "a": ["5", "6", "7"], "y": ["yes", "no", "perhaps"], "c": "xyz"}
    x, y, out = matching(table, like, "y")
    assert (x.tolist(), y.tolist(), out) == ([[5, 1]], [1], 2)
    with pytest.raises(InvalidInputError, match="no column 'b'"):
        matching({"a": ["1"], "y": ["no"]}, like, "y")
    with pytest.raises(InvalidInputError, match="column 'b' holds text here"):
        matching(table | {"b": list("uvw")}, like, "y")
    with pytest.raises(InvalidInputError, match="or a label 'no' or 'yes'"):
        matching(table | {"y": ["?"] * 3}, like, "y")


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (1.0, "1"), ("01.0", "1"), (0.5, "0.5"), (True, "True")]
)
def test_labels_as_text(value: object, text: str) -> None:
    assert as_label(value) == text
