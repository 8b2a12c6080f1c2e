"""Options under their old names work for one more release, and warn."""

import pytest
import torch

import natgrad as ng
from natgrad.data import tables
from natgrad.errors import InvalidInputError
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression

X = torch.tensor([[1.0, 0.2, 0.1], [-0.5, -1.0, 0.3]]).double()
Y = torch.tensor([1.0, -1.0]).double()
CORNERS = (torch.tensor([[0, 0], [0, 1], [1, 0]]), torch.tensor([1.0, 0.5, 0.5]).double(), (2, 2))
CASES = [
    (ng.limits.max_margin, (X, Y), "tolerance", "rtol", 1e-8),
    (ng.limits.basis_pursuit, (X, Y), "tolerance", "rtol", 1e-8),
    (ng.limits.nuclear_norm, CORNERS, "tolerance", "rtol", 1e-5),
    (ng.limits.nuclear_norm, CORNERS, "iterations", "max_evaluations", 500),
    (
        natural_flow_of_logistic_regression,
        (torch.zeros(3).double(), (X, Y), torch.tensor([1.0])),
        "tolerance",
        "rtol",
        1e-9,
    ),
]


@pytest.mark.parametrize(
    ("function", "args", "old", "new", "value"), CASES, ids=lambda v: getattr(v, "__name__", None)
)
def test_the_old_name_still_works_and_warns(function, args, old, new, value):
    now = function(*args, **{new: value})
    with pytest.warns(DeprecationWarning, match=f"{function.__name__} calls this option {new} now"):
        before = function(*args, **{old: value})
    pick = "solution" if hasattr(now, "solution") else "final"
    assert torch.equal(getattr(now, pick), getattr(before, pick))
    with pytest.raises(InvalidInputError, match=f"both {new} and {old}"):
        function(*args, **{old: value, new: value})


def test_tables_had_british_names():
    for old, new in (("Labelled", "Labeled"), ("labelled", "labeled")):
        with pytest.warns(DeprecationWarning, match=rf"tables\.{old} is now .*\.{new}"):
            assert getattr(tables, old) is getattr(tables, new)
