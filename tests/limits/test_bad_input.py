"""Bad input through the public entries: the class of the error, and what its message names."""

import pytest
import torch

from natgrad import limits
from natgrad.errors import (
    DeviceError,
    DtypeError,
    InvalidInputError,
    LabelError,
    NonFiniteError,
    ShapeError,
    UnsupportedError,
)
from tests.helpers import F64, randn

X, Y = randn(4, 3, seed=1), torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=F64)
NAN = X.clone()
NAN[0, 0] = float("nan")
LABELLED = [limits.max_margin, limits.natural_flow, limits.separability]
REGRESSION = [limits.least_squares, limits.basis_pursuit]


@pytest.mark.parametrize("limit", [*LABELLED, *REGRESSION])
@pytest.mark.parametrize(
    ("x", "y", "error", "phrase"),
    [
        (X.tolist(), Y, DtypeError, "list"),
        (X.long(), Y, DtypeError, "int64"),
        (X[0], Y, ShapeError, r"\(n, d\)"),
        (X[:0], Y[:0], ShapeError, r"\(0, 3\)"),
        (X, Y[:3], ShapeError, r"\(4,\)"),
        (X, Y[:, None], ShapeError, r"\(4, 1\)"),
        (X, Y.tolist(), DtypeError, "Tensor"),
        (X, Y.to("meta"), DeviceError, "meta"),
        (NAN, Y, NonFiniteError, "finite"),
    ],
    ids=["list", "integers", "vector", "empty", "few", "column", "labels", "device", "nan"],
)
def test_data(limit, x, y, error, phrase):
    with pytest.raises(error, match=phrase):
        limit(x, y)


@pytest.mark.parametrize("limit", LABELLED)
def test_labels(limit):
    with pytest.raises(LabelError, match=r"one is 0.*2 \* y - 1"):
        limit(X, (Y + 1) / 2)
    with pytest.raises(LabelError, match="one is 3"):
        limit(X, 3 * Y)
    with pytest.raises(LabelError, match="nan"):
        limit(X, Y * float("nan"))


@pytest.mark.parametrize("limit", REGRESSION)
def test_targets_must_be_finite(limit):
    with pytest.raises(NonFiniteError, match="y must be finite"):
        limit(X, Y * float("inf"))


@pytest.mark.parametrize("p", [0, -1, float("nan"), "2", True])
def test_powers(p):
    with pytest.raises(UnsupportedError, match="0 < p ≤ ∞"):
        limits.max_margin(X, Y, p)


def test_other_arguments():
    with pytest.raises(InvalidInputError, match="highs"):
        limits.separability(X, Y, solver="simplex")
    with pytest.raises(InvalidInputError, match="minimum_norm"):
        limits.least_squares(X, Y, "ridge")
    with pytest.raises(ShapeError, match="beta0"):
        limits.natural_flow(X, Y, torch.zeros(2))
    with pytest.raises(NonFiniteError, match="beta0"):
        limits.natural_flow(X, Y, torch.full((3,), float("nan"), dtype=F64))
    with pytest.raises(DtypeError, match="beta0"):
        limits.natural_flow(X, Y, [0.0, 0.0, 0.0])


P, V = torch.tensor([[0, 1], [2, 2]]), torch.ones(2, dtype=F64)


@pytest.mark.parametrize(
    ("positions", "values", "shape", "error", "phrase"),
    [
        (P.double(), V, (3, 3), DtypeError, "integer positions"),
        (P, V, (2, 3), ShapeError, "inside the 2×3"),
        (P - 1, V, (3, 3), ShapeError, "inside"),
        (P, V[:1], (3, 3), ShapeError, r"\(2,\)"),
        (P, V.long(), (3, 3), DtypeError, "float"),
        (P, V * float("nan"), (3, 3), NonFiniteError, "values"),
        (P[:0], V[:0], (3, 3), ShapeError, "no observed"),
        (P, V, (3,), ShapeError, "two positive integers"),
        (P, V.to("meta"), (3, 3), DeviceError, "meta"),
        (P.tolist(), V, (3, 3), DtypeError, "torch.Tensor"),
        (P[[0, 0]], torch.tensor([1.0, 2.0]), (3, 3), InvalidInputError, "observed twice"),
    ],
)
def test_completion(positions, values, shape, error, phrase):
    with pytest.raises(error, match=phrase):
        limits.nuclear_norm(positions, values, shape)
