"""The arrays behind a figure."""

import csv
import io
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from natgrad.errors import InvalidInputError, ShapeError
from natgrad.lab.arrays import Arrays
from natgrad.lab.failures import StoreError

KINDS = ["float64", "float32", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_back_every_bit(kind, tmp_path) -> None:
    values = (100 * np.random.default_rng(0).standard_normal((3, 4))).astype(kind)
    arrays = Arrays(method=["EGD", 'a,"b"\n', "α"])
    arrays.add("x", values, "method", "time")
    arrays.save(tmp_path / "a.safetensors")
    read = Arrays.load(tmp_path / "a.safetensors")
    assert read["x"].dtype == values.dtype
    assert read["x"].tobytes() == values.tobytes()
    assert read.dims == {"x": ("method", "time")}
    assert read.coordinates == {"method": ["EGD", 'a,"b"\n', "α"]}


def test_numbers_that_are_no_numbers_and_transposed_arrays_survive(tmp_path) -> None:
    values = np.array([[np.nan, np.inf, -0.0], [-np.inf, 5e-324, 1.0]]).T
    arrays = Arrays(t=[0.1, np.inf])
    arrays.add("x", values, "row", "t")
    arrays.add("empty", np.zeros((0, 2)), "none", "t")
    arrays.save(tmp_path / "a")
    read = Arrays.load(tmp_path / "a")
    assert np.array_equal(read["x"], values, equal_nan=True)
    assert np.signbit(read["x"][2, 0])
    assert read["empty"].shape == (0, 2)
    assert read.coordinates["t"] == [0.1, np.inf]
    assert list(read) == list(arrays) == ["empty", "x"]
    assert "x" in read
    assert "y" not in read


def test_csv_is_read_by_another_reader() -> None:
    arrays = Arrays(method=["EGD, L=1", 'NGD "s"'], size=[250, 500])
    arrays.add("x", [[1.5, np.nan], [1e-300, -2.0]], "method", "size")
    rows = list(csv.reader(io.StringIO(arrays.csv("x"))))
    assert rows == [
        ["method", "size", "x"],
        ["EGD, L=1", "250", "1.5"],
        ["EGD, L=1", "500", "nan"],
        ['NGD "s"', "250", "1e-300"],
        ['NGD "s"', "500", "-2.0"],
    ]


def test_csv_numbers_axes_without_coordinates_and_keeps_every_digit() -> None:
    arrays = Arrays()
    values = np.random.default_rng(1).standard_normal(5)
    arrays.add("x", values, "step")
    rows = list(csv.reader(io.StringIO(arrays.csv("x"))))[1:]
    assert [int(step) for step, _ in rows] == [0, 1, 2, 3, 4]
    assert [float(x) for _, x in rows] == values.tolist()


def test_axes_must_fit() -> None:
    arrays = Arrays(n=[1, 2, 3])
    with pytest.raises(ShapeError, match="x has 2 axes, but got 1 names"):
        arrays.add("x", np.zeros((3, 3)), "n")
    with pytest.raises(ShapeError, match="axis n has 3 coordinates, but x has 2"):
        arrays.add("x", np.zeros(2), "n")


def test_what_was_added_does_not_change_with_its_source() -> None:
    values = np.zeros(2)
    arrays = Arrays()
    arrays.add("x", values, "n")
    values[0] = 7
    assert arrays["x"][0] == 0


@pytest.mark.parametrize("content", [b"", b"no such file at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_other_files_are_refused_with_a_sentence(content, tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"a\.safetensors"):
        Arrays.load(path)


def test_a_cut_file_is_refused(tmp_path) -> None:
    arrays = Arrays()
    arrays.add("x", np.zeros(100), "n")
    arrays.save(tmp_path / "a")
    (tmp_path / "cut").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(InvalidInputError, match="cannot be read as arrays"):
        Arrays.load(tmp_path / "cut")
    with pytest.raises(InvalidInputError, match="cannot be read as arrays"):
        Arrays.load(tmp_path / "missing")


def test_a_single_number_is_an_array_without_axes(tmp_path) -> None:
    arrays = Arrays()
    arrays.add("x", 3.0)
    assert arrays.csv("x") == "x\n3.0\n"
    arrays.save(tmp_path / "a")
    assert Arrays.load(tmp_path / "a")["x"].shape == ()


@pytest.mark.parametrize(
    "header",
    [
        "{",
        "{}",
        "3",
        '{"format": "natgrad arrays 9", "coordinates": {}, "dims": {}}',
        '{"format": "natgrad arrays 1", "coordinates": {}, "dims": {"y": ["n"]}}',
    ],
)
def test_a_file_with_another_header_is_refused(header, tmp_path) -> None:
    save_file({"x": np.zeros(3)}, tmp_path / "a", metadata={"natgrad": header})
    with pytest.raises(InvalidInputError, match="cannot be read as arrays"):
        Arrays.load(tmp_path / "a")


def test_equal_arrays_make_equal_files_in_any_order(tmp_path) -> None:
    names = ["b", "a", "zeta", "c"]
    for file, order in (("one", names), ("other", sorted(names))):
        arrays = Arrays(**{f"axis {name}": [0, 1] for name in order})
        for name in order:
            arrays.add(name, np.arange(2.0), f"axis {name}")
        arrays.save(tmp_path / file)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def sample() -> Arrays:
    arrays = Arrays(t=[0.5, 1.0])
    arrays.add("x", [1.5, -2.0], "t")
    arrays.add("n", np.array([3, 4], dtype=np.int32), "t")
    return arrays


def test_a_flipped_bit_of_any_byte_is_seen(tmp_path) -> None:
    """A changed file is refused, or gives what was written."""
    path, arrays = tmp_path / "a", sample()
    arrays.save(path)
    whole, silent = path.read_bytes(), 0
    random = np.random.default_rng(0)
    for where in range(len(whole)):
        changed = bytearray(whole)
        changed[where] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            read = Arrays.load(path)
        except InvalidInputError as error:
            assert "cannot be read as arrays" in str(error)  # noqa: PT017
            continue
        silent += 1
        assert (read.dims, read.coordinates) == (arrays.dims, arrays.coordinates)
        assert all(read[n].tobytes() == arrays[n].tobytes() for n in arrays)
    assert silent == 0


def test_files_of_the_first_version_have_no_checksum_and_are_read(tmp_path) -> None:
    header = {"format": "natgrad arrays 1", "coordinates": {"n": [1, 2]}, "dims": {"x": ["n"]}}
    path = tmp_path / "a"
    save_file({"x": np.ones(2)}, path, metadata={"natgrad": json.dumps(header)})
    assert Arrays.load(path)["x"].tolist() == [1.0, 1.0]
    for bad in ({"checksum": "0"}, {"format": "natgrad arrays 2"}):
        save_file({"x": np.ones(2)}, path, metadata={"natgrad": json.dumps(header | bad)})
        with pytest.raises(InvalidInputError, match="does not go with its checksum"):
            Arrays.load(path)


def test_arrays_that_cannot_be_written_are_named(tmp_path) -> None:
    with pytest.raises(StoreError, match="cannot write the arrays to"):
        sample().save(tmp_path / "no such folder" / "a")
