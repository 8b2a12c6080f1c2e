"""Each check returns what it accepts in one type, and refuses the rest with one sentence."""

import math
import subprocess
import sys
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from natgrad import _checks
from natgrad.errors import (
    DeviceError,
    DtypeError,
    InvalidInputError,
    NatgradError,
    NonFiniteError,
    ShapeError,
)

NO_NUMBERS = [
    None,
    object(),
    "1",
    b"1",
    True,
    [],
    {},
    1j,
    Decimal(1),
    float,
    torch.ones(2),
    torch.tensor(True),
    torch.tensor(1j),
    torch.empty((), device="meta"),
    np.array([object()]),
]


def exotic_tensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.ones(2, 2)
        return {
            "sparse_coo": dense.to_sparse(),
            "sparse_csr": dense.to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(dense, 1.0, 0, torch.qint8),
            "meta": dense.to("meta"),
            "nested": torch.nested.nested_tensor([dense[0], dense[0, :1]]),
            "jagged": torch.nested.nested_tensor([dense[0], dense[0, :1]], layout=torch.jagged),
        }


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), Fraction(1)])
def test_numbers_of_all_libraries_become_floats(value):
    found = _checks.number(value, "x")
    assert type(found) is float
    assert found == 1


def test_a_tensor_without_dimensions_is_a_number():
    assert _checks.number(torch.tensor(2.0, requires_grad=True), "x") == 2


@pytest.mark.parametrize("value", NO_NUMBERS, ids=_checks.describe)
def test_what_is_no_number(value):
    for check in (_checks.number, _checks.integer):
        with pytest.raises(DtypeError, match=r"^x must be .*\.$"):
            check(value, "x")


TOO_LARGE = [math.nan, math.inf, -math.inf, 10**400, -(10**5000)]


@pytest.mark.parametrize("value", TOO_LARGE, ids=["nan", "inf", "-inf", "huge", "longer"])
def test_numbers_that_are_not_finite(value):
    with pytest.raises(InvalidInputError, match=r"^x must be a number and finite, but is .*\.$"):
        _checks.number(value, "x")


def test_an_infinity_where_it_is_allowed():
    assert _checks.number(math.inf, "x", low=0, infinite=True) == math.inf
    with pytest.raises(InvalidInputError):
        _checks.number(-math.inf, "x", low=0, infinite=True)


def test_bounds_in_words():
    with pytest.raises(InvalidInputError, match="a number above 0 and at most 1, but is 0"):
        _checks.number(0, "x", low=0, high=1, low_open=True)
    with pytest.raises(InvalidInputError, match="a number of at least 0 and below 1, but is 1"):
        _checks.number(1, "x", low=0, high=1, high_open=True)
    with pytest.raises(InvalidInputError, match="an integer of at least 1, but is 0"):
        _checks.integer(0, "x", low=1)


def test_integers():
    assert type(_checks.integer(np.int32(3), "x")) is int
    for value in (10**400, 10**5000, -(10**400)):
        with pytest.raises(InvalidInputError, match="fits 64 bits"):
            _checks.integer(value, "x")
    with pytest.raises(DtypeError):
        _checks.integer(3.0, "x")


def test_sequences_of_numbers():
    for value in ((1, 2), [1.0, 2.0], np.array([1, 2]), torch.tensor([1.0, 2.0])):
        assert _checks.numbers(value, "x", count=2) == (1.0, 2.0)
    with pytest.raises(ShapeError):
        _checks.numbers([1], "x", count=2)
    for value in ("12", b"12", {1, 2}, 3, np.float64(1), torch.tensor(1.0), [[1]], None):
        with pytest.raises(DtypeError):
            _checks.numbers(value, "x")


def test_flags_and_choices():
    assert _checks.flag(False, "x") is False
    with pytest.raises(DtypeError, match="must be True or False, but is 1"):
        _checks.flag(1, "x")
    assert _checks.choice("sum", "x", ("mean", "sum")) == "sum"
    with pytest.raises(InvalidInputError, match="Did you mean 'mean'"):
        _checks.choice("Mean", "x", ("mean", "sum"))
    with pytest.raises(DtypeError):
        _checks.choice(["sum"], "x", ("mean", "sum"))


def test_unknown_options():
    _checks.refuse_unknown({"rtol": 1}, ["rtol"], "natural")
    with pytest.raises(InvalidInputError, match="natural has no option 'rtoll'"):
        _checks.refuse_unknown({"rtoll": 1}, ["rtol"], "natural")
    with pytest.raises(InvalidInputError, match="There are no options"):
        _checks.refuse_unknown({"rtoll": 1}, [], "euclidean")


def test_a_class_in_place_of_its_instance():
    with pytest.raises(DtypeError, match=r"but is the class int; try int\(…\)\."):
        _checks.instance(int, "x", int)


def test_generators():
    generator = torch.Generator()
    assert _checks.generator(generator) is generator
    assert _checks.generator(None) is None
    for value in (0, torch.Generator, None):
        with pytest.raises(DtypeError, match="manual_seed"):
            _checks.generator(value, optional=False)


@pytest.mark.parametrize("kind", exotic_tensors())
def test_exotic_tensors_get_one_sentence(kind):
    value = exotic_tensors()[kind]
    for check in (_checks.dense, _checks.tensor, _checks.number, _checks.numbers):
        with pytest.raises((DtypeError, DeviceError), match=r"^x must [^\n]*\.$"):
            check(value, "x")


def test_tensors():
    good = torch.zeros(2, 3).expand(2, 3)
    assert _checks.tensor(good, "x", shape=("n", 3)) is good
    assert _checks.tensor(torch.zeros(0), "x", empty=True).numel() == 0
    half = torch.zeros(1, dtype=torch.float16)
    assert _checks.tensor(half, "x", dtypes=_checks.ALL_FLOATS) is half
    for bad, error in (
        (torch.zeros(2), ShapeError),
        (torch.zeros(2, 2), ShapeError),
        (torch.zeros(0, 3), ShapeError),
        (torch.full((1, 3), math.nan), NonFiniteError),
        (torch.zeros(2, 3, dtype=torch.int64), DtypeError),
        (torch.zeros(2, 3, dtype=torch.complex64), DtypeError),
        ([[0.0, 0.0, 0.0]], DtypeError),
    ):
        with pytest.raises(error, match=r"^x must .*\.$"):
            _checks.tensor(bad, "x", shape=("n", 3))


def test_two_tensors_of_one_kind():
    _checks.same_kind(torch.zeros(1), torch.zeros(2), "y", "X")
    with pytest.raises(DtypeError, match="y must have the dtype of X"):
        _checks.same_kind(torch.zeros(1), torch.zeros(1).double(), "y", "X")
    with pytest.raises(DeviceError, match="y must be on the device of X"):
        _checks.same_kind(torch.zeros(1), torch.zeros(1, device="meta"), "y", "X")


def test_no_value_is_too_strange_to_describe():
    class Strange:
        def __repr__(self):
            raise RuntimeError

    for value in (Strange(), [Strange()], 10**5000, "x" * 10**6, *exotic_tensors().values()):
        assert len(_checks.describe(value)) < 100
    with pytest.raises(NatgradError):
        _checks.number(Strange(), "x")


def test_checks_do_not_import_torch():
    code = (
        "import sys, natgrad._checks as c; c.describe([1]); c.number(1, 'a')"
        "; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
