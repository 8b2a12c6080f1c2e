import math

import numpy as np
import pytest
import torch

from natgrad.data.completion import low_rank
from natgrad.data.triples import index_table, make_table, read_table, within
from natgrad.errors import InvalidInputError


def test_matrix_has_the_rank_size_and_number_of_entries_asked_for():
    problem = low_rank(shape=(30, 20), rank=3, observed=150, seed=4)
    values = torch.linalg.svdvals(problem.truth)
    assert int((values > 1e-10 * values[0]).sum()) == 3
    assert float(problem.truth.square().mean()) == pytest.approx(1.0, rel=1e-12)
    assert len(problem.positions) == len(problem.values) == 150
    rows, columns = problem.positions.unbind(1)
    assert torch.equal(problem.truth[rows, columns], problem.values)


def test_errors_are_means_over_their_own_entries():
    problem = low_rank(shape=(6, 5), rank=2, observed=7, seed=0)
    beta = torch.where(problem.observed, problem.truth + 2, problem.truth - 3)
    assert problem.train_error(beta) == pytest.approx(4.0)
    assert problem.test_error(beta) == pytest.approx(9.0)


@pytest.mark.parametrize("options", [{"rank": 0}, {"rank": 6}, {"observed": 0}, {"observed": 30}])
def test_impossible_problems_are_refused(options):
    asked = {"shape": (6, 5), "rank": 2, "observed": 10, "seed": 0} | options
    with pytest.raises(InvalidInputError):
        low_rank(**asked)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "a,x,1\na,y,2\nb,x,3\n",
        "user,film,stars\na,x,1\na,y,2\nb,x,3\n",
        "user;film;stars\na;x;1\na;y;2\nb;x;3\n",
        "user\tfilm\tstars\tday\na\tx\t1\tmon\na\ty\t2\ttue\nb\tx\t3\tmon\n",
        "\ufeffvalue,column,row\n1,x,a\n2,y,a\n3,x,b\n\n",
        '"row","column","value"\n"a","x",1\n"a","y",2\n"b","x",3\n',
    ],
    ids=["bare", "header", "semicolon", "tab and more", "named, any order, BOM", "quoted"],
)
def test_csv_in_many_dialects(tmp_path, text):
    triples = index_table(read_table(write(tmp_path / "t.csv", text)))
    assert triples.rows == ("a", "b")
    assert triples.columns == ("x", "y")
    assert triples.positions.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert triples.values.tolist() == [1, 2, 3]
    assert triples.notes == ()


def test_columns_by_name(tmp_path):
    path = write(tmp_path / "t.csv", "id,gene,cell,level\n0,g1,c1,5\n1,g2,c1,6\n")
    assert read_table(path, ("gene", "cell", "level")).rows == ("g1", "g2")
    with pytest.raises(InvalidInputError, match="no column 'levle'; it has 'id', 'gene'"):
        read_table(path, ("gene", "cell", "levle"))


def test_missing_values_are_left_out_and_repeated_entries_averaged():
    table = make_table("aabbc", "xxyyx", [1.0, 4.0, None, float("nan"), 7.0])
    triples = index_table(table)
    assert triples.rows == ("a", "c")
    assert triples.columns == ("x",)
    assert triples.values.tolist() == [2.5, 7.0]
    assert [note.split()[0] for note in triples.notes] == ["2", "1"]


def test_missing_values_in_csv(tmp_path):
    text = "r,c,v\na,x,\na,y,NA\nb,x,3\nb,y,nan\n"
    table = read_table(write(tmp_path / "t.csv", text))
    assert np.isnan(table.values).tolist() == [True, True, False, True]


def test_whole_numbers_as_labels_are_put_in_order():
    triples = index_table(make_table([10, 2, 10], ["b", "a", "a"], [1.0, 2.0, 3.0]))
    assert triples.rows == ("2", "10")
    assert triples.columns == ("b", "a")
    assert triples.positions.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert triples.values.tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "at least three columns"),
        ("r,c,v\na,x,1\na,y,two\n", "'two' in line 3 is not a number"),
        ("r,c,v\na,x,1\na,y,inf\n", "infinite"),
        ("r,c,v\na,x,1\na,y\n", "2 fields where the first has 3"),
        ("r,c,v\na,x,\n", "all are missing"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path, text, said):
    with pytest.raises(InvalidInputError, match=said):
        index_table(read_table(write(tmp_path / "t.csv", text)))


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(InvalidInputError, match="there is no file"):
        read_table(tmp_path / "nothing.csv")
    (tmp_path / "t.csv").write_bytes(b"a,b,\xff\xfe\n")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_table(tmp_path / "t.csv")


def test_lengths_must_agree():
    with pytest.raises(InvalidInputError, match="one row and one column for each value"):
        make_table("ab", "x", [1.0, 2.0])


def test_test_entries_outside_are_counted():
    triples = index_table(make_table("ab", "xy", [1.0, 2.0]))
    positions, values, outside = within(
        make_table("aabz", "yzxx", [5.0, 6.0, math.nan, 8.0]), triples
    )
    assert positions.tolist() == [[0, 1]]
    assert values.tolist() == [5.0]
    assert outside == 2
    with pytest.raises(InvalidInputError, match="none of the 1 test entries"):
        within(make_table("q", "x", [1.0]), triples)


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra `tables`")
    import pyarrow

    table = pyarrow.table({"u": ["a", "b"], "i": [7, 8], "v": [1.5, None]})
    parquet.write_table(table, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.rows == ("a", "b")
    assert read.columns == ("7", "8")
    assert read.values[0] == 1.5
    assert np.isnan(read.values[1])


def test_parquet_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInputError, match=r"natgrad\[tables\]"):
        read_table(write(tmp_path / "t.parquet", ""))
