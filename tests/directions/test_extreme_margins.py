"""Bernoulli directions where every weight underflows: exact arithmetic is the judge."""

import mpmath
import pytest
import torch

import natgrad as ng
from natgrad.errors import VelocityOverflowError
from tests.cases import randn


def exact_direction(x, y, margins) -> torch.Tensor:
    """Solve F v = −∇L of logistic regression in rational-like arithmetic of 4000 digits.

    Only for N ≥ D with independent columns; margins are taken as given, not recomputed.
    """
    with mpmath.workdps(4000):
        rows = mpmath.matrix((y[:, None] * x).tolist())
        fisher = mpmath.matrix(x.shape[1], x.shape[1])
        descent = mpmath.matrix(x.shape[1], 1)
        for n, margin in enumerate(margins.tolist()):
            rest = 1 / (1 + mpmath.exp(mpmath.mpf(margin)))  # φ(−u)
            for i in range(x.shape[1]):
                descent[i] += rows[n, i] * rest
                for j in range(x.shape[1]):
                    fisher[i, j] += rows[n, i] * rows[n, j] * rest * (1 - rest)
        solution = mpmath.lu_solve(fisher, descent)
        return torch.tensor([float(v) for v in solution], dtype=torch.float64)


def margins_between(low: float, high: float, n: int, d: int, seed: int):
    """Return rows whose margins with β spread evenly over [low, high], and β."""
    draw = randn(seed)
    beta, x = draw(d), draw(n, d)
    y = torch.sign(draw(n))
    wanted = torch.linspace(low, high, n, dtype=torch.float64)[torch.randperm(n)]
    along = (wanted - y * (x @ beta)) / (beta @ beta)
    x = x + (y * along)[:, None] * beta
    return x, y, beta


@pytest.mark.parametrize(
    ("low", "high"), [(0, 5), (-20, 30), (0, 50), (500, 2000), (0, 1500), (-600, 900), (1999, 2000)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_more_data_than_features(low, high, seed) -> None:
    torch.manual_seed(seed)
    x, y, beta = margins_between(low, high, 12, 4, seed)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    exact = exact_direction(x, y, y * (x @ beta))
    assert float((v - exact).norm() / exact.norm()) < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("low", "high"), [(500, 2000), (-50, 1450)])
def test_fewer_data_than_features_weights_cancel(low, high, depth, dtype) -> None:
    torch.manual_seed(0)
    x, y, beta = margins_between(low, high, 5, 9, 3)
    w = torch.ones(depth, 9, dtype=torch.float64)
    w[0] = beta
    x, y, w = x.to(dtype), y.to(dtype), w.to(dtype)
    v = ng.natural(ng.Bernoulli(), ng.Diagonal(depth), w, (x, y))
    network = ng.Diagonal(depth)
    u = y * network.predict(w, x)
    wanted = 1 + torch.exp(-u)
    error = (y * network.jvp(w, x, v) - wanted).abs().max() / wanted.abs().max()
    assert float(error) < (1e-4 if dtype == torch.float32 else 1e-12)


def test_float32_more_data_than_features() -> None:
    torch.manual_seed(0)
    x, y, beta = margins_between(500, 2000, 12, 4, 5)
    x, y, beta = x.float(), y.float(), beta.float()
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    assert v.dtype == torch.float32
    exact = exact_direction(x.double(), y.double(), (y * (x @ beta)).double())
    assert float((v.double() - exact).norm() / exact.norm()) < 1e-5


def test_exactly_dependent_heavy_rows_leave_the_rest_to_lighter_ones() -> None:
    heavy = torch.tensor([[1.0, 2, 0], [1, 2, 0], [2, 4, 0]], dtype=torch.float64)
    light = torch.tensor([[3.0, -1, 1], [1, 1, 5], [0, 2, 1], [1, 0, 3]], dtype=torch.float64)
    beta = torch.tensor([100.0, 50.0, 500.0], dtype=torch.float64)
    x, y = torch.cat([heavy, light]), torch.ones(7, dtype=torch.float64)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    exact = exact_direction(x, y, x @ beta)
    assert float((v - exact).norm() / exact.norm()) < 1e-12


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, -720.0), (torch.float32, -90.0)])
def test_overflowing_velocity_is_a_typed_error(dtype, margin) -> None:
    x = torch.eye(2, dtype=dtype)
    beta = torch.tensor([margin, 1.0], dtype=dtype)
    with pytest.raises(VelocityOverflowError, match="overflows"):
        ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, torch.ones(2, dtype=dtype)))


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float64, -690.0), (torch.float32, -80.0)])
@pytest.mark.parametrize("n", [2, 5])
def test_largest_representable_velocity_is_right(dtype, margin, n) -> None:
    x = torch.eye(2, dtype=dtype).repeat(n, 1)[:n]
    beta = torch.tensor([margin, 1.0], dtype=dtype)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, torch.ones(n, dtype=dtype)))
    exact = 1 + torch.exp(-beta.double())
    assert torch.allclose(v.double(), exact, rtol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("damping", [1e-300, 1e-30, 1.0])
def test_damping_at_extreme_margins(damping) -> None:
    torch.manual_seed(1)
    x, y, beta = margins_between(200, 900, 9, 3, 7)
    v = ng.natural(ng.Bernoulli(reduction="sum"), ng.Direct(), beta, (x, y), damping=damping)
    with mpmath.workdps(3000):
        rows = mpmath.matrix((y[:, None] * x).tolist())
        matrix, descent = mpmath.eye(3) * mpmath.mpf(damping), mpmath.matrix(3, 1)
        for n, margin in enumerate((y * (x @ beta)).tolist()):
            rest = 1 / (1 + mpmath.exp(mpmath.mpf(margin)))
            for i in range(3):
                descent[i] += rows[n, i] * rest
                for j in range(3):
                    matrix[i, j] += rows[n, i] * rows[n, j] * rest * (1 - rest)
        exact = [float(t) for t in mpmath.lu_solve(matrix, descent)]
    expected = torch.tensor(exact, dtype=torch.float64)
    assert float((v - expected).abs().max()) <= 1e-10 * float(expected.abs().max())


def test_fisher_over_other_inputs_at_extreme_margins() -> None:
    torch.manual_seed(2)
    x, y, beta = margins_between(600, 1200, 5, 3, 8)
    fisher_x, _, _ = margins_between(600, 1900, 14, 3, 8)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y), fisher_over=fisher_x)
    with mpmath.workdps(4000):
        matrix, descent = mpmath.matrix(3, 3), mpmath.matrix(3, 1)
        for row, s in zip(fisher_x.tolist(), (fisher_x @ beta).tolist(), strict=True):
            p = 1 / (1 + mpmath.exp(mpmath.mpf(s)))
            for i in range(3):
                for j in range(3):
                    matrix[i, j] += mpmath.mpf(row[i]) * row[j] * p * (1 - p) / 14
        margins = (y * (x @ beta)).tolist()
        for row, label, margin in zip(x.tolist(), y.tolist(), margins, strict=True):
            p = 1 / (1 + mpmath.exp(mpmath.mpf(margin)))
            for i in range(3):
                descent[i] += label * mpmath.mpf(row[i]) * p / 5
        exact = [float(t) for t in mpmath.lu_solve(matrix, descent)]
    expected = torch.tensor(exact, dtype=torch.float64)
    assert float((v - expected).norm() / expected.norm()) < 1e-10


def test_categorical_with_probabilities_that_underflow() -> None:
    """Two classes are the logistic model in the difference of logits."""
    torch.manual_seed(3)
    x, y, beta = margins_between(300, 1800, 12, 4, 9)
    two = torch.stack([beta / 2, -beta / 2], dim=1)
    labels = (y < 0).long()
    v = ng.natural(ng.Categorical(), ng.Direct(), two, (x, labels))
    exact = exact_direction(x, y, y * (x @ beta))
    moved = v[:, 0] - v[:, 1]
    assert float((moved - exact).norm() / exact.norm()) < 1e-10
