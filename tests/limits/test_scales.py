"""Limits scale exactly: data in any unit give the scaled answer, or a clear error."""

import pytest
import torch

from natgrad import limits
from natgrad.errors import VelocityOverflowError
from tests.helpers import F64, randn

SCALES = [1e-310, 1e-300, 1e-200, 1e-155, 1e-100, 1e-15, 1e15, 1e100, 1e155, 1e200, 1e300]
TRUE = randn(4, seed=3)
POSITIONS = torch.tensor([[0, 0], [0, 1], [1, 0], [2, 2]])


def data(n):
    x = randn(n, 4, seed=n)
    return x, torch.sign(x @ TRUE), randn(n, seed=7)


LIMITS = {
    "ℓ2 margin": (-1, lambda x, y, f, s: limits.max_margin(s * x, y)),
    "ℓ1 margin": (-1, lambda x, y, f, s: limits.max_margin(s * x, y, 1)),
    "ℓ½ margin": (-1, lambda x, y, f, s: limits.max_margin(s * x, y, 0.5)),
    "natural flow": (-1, lambda x, y, f, s: limits.natural_flow(s * x, y)),
    "inputs": (-1, lambda x, y, f, s: limits.least_squares(s * x, f)),
    "targets": (1, lambda x, y, f, s: limits.least_squares(x, s * f)),
    "both": (0, lambda x, y, f, s: limits.least_squares(s * x, s * f)),
    "pursuit": (-1, lambda x, y, f, s: limits.basis_pursuit(s * x[:3], f[:3])),
    "pursuit, targets": (1, lambda x, y, f, s: limits.basis_pursuit(x[:3], s * f[:3])),
    "completion": (1, lambda x, y, f, s: limits.nuclear_norm(POSITIONS, s * TRUE, (3, 3))),
}


@pytest.mark.parametrize("n", [3, 12])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_scale_with_the_data(name, n):
    power, limit = LIMITS[name]
    plain, overflows = limit(*data(n), 1.0), []
    size = float(plain.solution.abs().max())
    for s in SCALES:
        try:
            found = limit(*data(n), s)
        except VelocityOverflowError:
            overflows.append(s)
            continue
        # Subnormal data carry few digits.
        got = found.solution / size
        got = got / s if power > 0 else got * s if power < 0 else got
        assert torch.isfinite(found.solution).all()
        assert float((got - plain.solution / size).abs().max()) < (1e-3 if s < 1e-307 else 1e-9)
        assert found.certificate < 1e-6
    # Solutions of 1e310; and multipliers of the ℓ2 margin, which scale as the inverse square.
    allowed = [s for s in SCALES if s < (1e-150 if name == "ℓ2 margin" else 1e-305)]
    assert overflows in ([], allowed)


@pytest.mark.parametrize("scale", SCALES)
def test_separability_of_any_size(scale):
    x, y, _ = data(12)
    found = limits.separability(scale * x, y)
    assert found.kind == "separable"
    assert found.margin == pytest.approx(limits.separability(x, y).margin, rel=1e-3)


@pytest.mark.parametrize("power", [-100, -15, 15, 100])
@pytest.mark.parametrize("n", [3, 12])
@pytest.mark.parametrize("dependent", [False, True])
def test_units_of_features_change_no_margin(power, n, dependent):
    x, y, f = data(n)
    s = torch.tensor([1.0, 10.0**power, 10.0 ** (-power / 2), 1.0], dtype=F64)
    if dependent:
        x, s = torch.cat([x, 2 * x[:, :1]], 1), torch.cat([s, s.new_tensor([1e-30])])
    for limit, target in ((limits.natural_flow, y), (limits.least_squares, f)):
        truth, got = x @ limit(x, target).solution, (x * s) @ limit(x * s, target).solution
        assert float((got - truth).abs().max() / truth.abs().max()) < 1e-9
    plain, scaled = limits.separability(x, y), limits.separability(x * s, y)
    assert (plain.kind, plain.rank) == (scaled.kind, scaled.rank)
    assert bool(((x * s * y[:, None]) @ scaled.direction > 0).all())


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e-6), (F64, 1e-15)])
def test_a_small_column_is_not_dropped(dtype, scale):
    x, f = randn(30, 2, seed=1).to(dtype), randn(30, seed=2).to(dtype)
    small = x * torch.tensor([1.0, scale], dtype=dtype)
    truth, got = (x @ limits.least_squares(x, f).solution for x in (x, small))
    assert float((got - truth).norm() / truth.norm()) < 1e-5


def test_a_start_with_endless_margins():
    x, y, _ = data(12)
    with pytest.raises(VelocityOverflowError, match="beta0"):
        limits.natural_flow(1e300 * x, y, 1e300 * TRUE)
