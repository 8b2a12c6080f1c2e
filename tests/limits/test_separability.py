import pytest
import torch

from natgrad.limits import separability
from tests.helpers import DTYPES, F64, assert_near, randn
from tests.limits.data import deficient, not_separable, quasi, separable, shuffled, signed

CASES = {
    "separable-wide": (*separable(8, 20), "separable"),
    "separable-square": (*separable(20, 20), "separable"),
    "separable-tall": (*separable(60, 8), "separable"),
    "separable-deficient-tall": (*deficient(40, 12, 4), "separable"),
    "separable-deficient-wide": (*deficient(12, 40, 4), "separable"),
    "quasi": (*shuffled(*quasi(40, 7), seed=3), "quasi-separable"),
    "quasi-few": (*quasi(3, 5), "quasi-separable"),
    "not-tall": (*not_separable(60, 5), "not separable"),
    "not-deficient": (
        not_separable(60, 5)[0] @ randn(5, 9, seed=2),
        not_separable(60, 5)[1],
        "not separable",
    ),
    "duplicates-of-both-labels": (
        torch.ones(2, 3, dtype=F64),
        torch.tensor([1.0, -1.0], dtype=F64),
        "not separable",
    ),
}


@pytest.mark.parametrize("solver", ["interior", "highs"])
@pytest.mark.parametrize("name", CASES)
def test_kind_and_both_certificates_checked_from_scratch(name, solver):
    x, y, kind = CASES[name]
    found = separability(x, y, solver=solver)
    assert found.kind == kind
    a, s = signed(x, y), found.separated
    assert found.rank == int(torch.linalg.matrix_rank(x))
    assert found.rank_deficient == (found.rank < x.shape[1])
    if bool(s.any()):  # a direction that separates S strictly and leaves the others at zero
        margins = (a @ found.direction) / a.norm(dim=1)
        assert float(margins[s].min()) == pytest.approx(found.margin, rel=1e-9)
        assert found.margin > 1e-6
        assert bool((margins[~s].abs() < 1e-12).all())
    if not bool(s.all()):  # Gordan's multipliers, strictly positive on the rest
        lam = found.multipliers
        assert bool((lam[~s] > 0).all())
        assert bool((lam[s] == 0).all())
        assert float(lam.sum()) == pytest.approx(1)
        assert float((a.mT @ lam).abs().max()) < 1e-12
    assert found.residual < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_solvers_agree_on_the_split(seed):
    x, y = shuffled(*quasi(30, 6, seed=10 * seed), seed=seed)
    ours, highs = separability(x, y), separability(x, y, solver="highs")
    assert torch.equal(ours.separated, highs.separated)
    assert int((~ours.separated).sum()) == 6


def test_a_zero_row_cannot_be_separated():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=F64)
    found = separability(x, torch.ones(2, dtype=F64))
    assert found.kind == "quasi-separable"
    assert found.separated.tolist() == [True, False]


def test_all_zero_inputs():
    found = separability(torch.zeros(3, 2), torch.ones(3))
    assert (found.kind, found.rank) == ("not separable", 0)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scale_of_the_data_does_not_matter(scale):
    x, y = quasi(30, 6)
    found = separability(scale * x, y)
    assert torch.equal(found.separated, separability(x, y).separated)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_kept(dtype):
    x, y = separable(30, 5)
    found = separability(x.to(dtype), y.to(dtype))
    assert found.direction.dtype == found.multipliers.dtype == dtype
    assert_near(found.direction.norm(), torch.tensor(1.0, dtype=F64), 1e-6)


@pytest.mark.slow
def test_large_data_that_are_not_separable_are_proven_so():
    found = separability(*not_separable(3000, 500))
    assert (found.kind, found.solver) == ("not separable", "interior point")
    assert found.residual < 1e-12


@pytest.mark.parametrize("size", [1e-200, 1e155, 1e300])
def test_the_verdict_does_not_depend_on_the_unit(size):
    x = randn(20, 3, seed=1)
    assert separability(size * x, torch.sign(x[:, 0])).kind == "separable"
    assert separability(size * x, torch.sign(randn(20, seed=2))).kind == "not separable"
