import math

import pytest
import torch

from natgrad.errors import InvalidInputError, NatgradError, ShapeError
from natgrad.linalg.norms import Group, Lp, Metric, Nuclear, Spectral, as_norm
from tests.helpers import F64, assert_near, for_each, randn

COVARIANCE = randn(5, 5, seed=3) @ randn(5, 5, seed=3).mT + torch.eye(5, dtype=F64)
NORMS = {
    "l1": Lp(1),
    "l1.3": Lp(1.3),
    "l2": Lp(2),
    "l7": Lp(7),
    "max": Lp(math.inf),
    "rows": Group("rows", 1),
    "rows-max": Group("rows", math.inf),
    "columns": Group("columns", 1),
    "columns-max": Group("columns", math.inf),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
    "metric": Metric(COVARIANCE),
    "inverse": Metric(COVARIANCE).dual(),
}


def test_values_from_their_definitions():
    b = randn(3, 5, seed=0)
    s = torch.linalg.svdvals(b)
    expected = {
        "l1": b.abs().sum(),
        "l1.3": b.abs().pow(1.3).sum() ** (1 / 1.3),
        "l2": b.square().sum().sqrt(),
        "l7": b.abs().pow(7).sum() ** (1 / 7),
        "max": b.abs().max(),
        "rows": b.norm(dim=1).sum(),
        "rows-max": b.norm(dim=1).max(),
        "columns": b.norm(dim=0).sum(),
        "columns-max": b.norm(dim=0).max(),
        "spectral": s[0],
        "nuclear": s.sum(),
        "metric": torch.trace(b @ COVARIANCE @ b.mT).sqrt(),
        "inverse": torch.trace(b @ torch.linalg.inv(COVARIANCE) @ b.mT).sqrt(),
    }
    for_each(
        NORMS,
        lambda name: (
            pytest.approx(float(expected[name]), rel=1e-12) == NORMS[name](b)
            or pytest.fail(f"{NORMS[name](b)} is not {float(expected[name])}")
        ),
    )


def test_peaks_attain_the_dual_norm_and_nothing_exceeds_it():
    def check(name):
        norm = NORMS[name]
        for seed in range(3):
            g = randn(3, 5, seed=seed)
            v = norm.peak(g)
            assert norm(v) == pytest.approx(1, rel=1e-12)
            assert float((g * v).sum()) == pytest.approx(norm.dual()(g), rel=1e-12)
            for other in range(20):
                u = randn(3, 5, seed=100 + other)
                assert float((g * u).sum()) <= norm(u) * norm.dual()(g) * (1 + 1e-12)
        assert norm.dual().dual()(g) == pytest.approx(norm(g), rel=1e-12)

    for_each(NORMS, check)


def test_peaks_are_free_of_scale_and_zero_at_zero():
    def check(name):
        g = randn(3, 5, seed=1)
        assert_near(NORMS[name].peak(1e-200 * g), NORMS[name].peak(g), 1e-10)
        assert float(NORMS[name].peak(torch.zeros(3, 5, dtype=F64)).abs().max()) == 0
        assert NORMS[name].peak(g.float()).dtype == torch.float32

    for_each(NORMS, check)


def test_groups_by_number_of_vectors():
    b = torch.tensor([3.0, 4.0, 2.0], dtype=F64)
    assert Group(torch.tensor([5, 5, 0]))(b) == 7
    assert Group(torch.tensor([5, 5, 0]), math.inf)(b) == 5
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        Group(torch.tensor([0, 0, 1]))(randn(4, seed=0))
    with pytest.raises(InvalidInputError, match=r"1 or math\.inf"):
        Group("rows", 2)
    with pytest.raises(NatgradError, match="columns"):
        Group("column")


def test_numbers_stand_for_powers():
    assert as_norm(3) == Lp(3)
    assert as_norm(Spectral()) == Spectral()
    with pytest.raises(InvalidInputError, match="at least 1"):
        as_norm(0.5)
    with pytest.raises(ShapeError, match="matrix"):
        Spectral()(randn(3, seed=0))
