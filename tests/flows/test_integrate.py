"""Flows of every kind: agreement, orders, statuses, saving."""

import math

import pytest
import torch

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.flows.closed_forms import singular_times
from natgrad.stopping import Status
from tests.cases import MODELS, randn
from tests.limits.data import separable


def logistic(n: int, d: int, seed: int = 0):
    draw = randn(seed)
    return draw(n, d), torch.sign(draw(n))


@pytest.mark.parametrize("method", ["dopri", "dop853", "radau", "bdf", "lsoda", "rkc"])
@pytest.mark.parametrize("log_time", [False, True])
def test_methods_and_clocks_agree(method, log_time) -> None:
    x, y = logistic(8, 3)
    w = ng.Diagonal(2).init_gaussian(3, scale=0.8, generator=torch.Generator().manual_seed(1))
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(2), w, (x, y))
    exact = ng.integrate(*args, until=20.0, method="dop853", rtol=1e-11, atol=1e-13).final
    loose = 1e-6 if method in ("rkc", "bdf") else 1e-7
    got = ng.integrate(*args, until=20.0, method=method, rtol=loose, log_time=log_time)
    assert got.status == Status.TIME_REACHED
    assert float((got.final - exact).norm() / exact.norm()) < 2e-5


@pytest.mark.parametrize("direction", [ng.euclidean, ng.natural])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_every_model_flows_downhill(model, direction) -> None:
    x = model.inputs(6, seed=3)
    y = randn(4)(*model.parametrization.predict(model.params, x).shape)
    path = ng.integrate(
        direction, ng.Gaussian(), model.parametrization, model.params, (x, y), until=0.5, rtol=1e-4
    )
    assert path.status == Status.TIME_REACHED, path.detail
    assert bool((path.losses[1:] <= path.losses[:-1] + 1e-12).all())
    assert float(path.times[-1]) == 0.5


def test_saved_times_are_those_asked_for() -> None:
    x, y = logistic(8, 3)
    times = torch.logspace(-2, 3, 11, dtype=torch.float64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(3, dtype=torch.float64), (x, y))
    path = ng.integrate(*args, until=1e3, times=times, rtol=1e-9, method="dop853")
    assert torch.equal(path.times, times)
    one_by_one = ng.integrate(*args, until=float(times[5]), rtol=1e-9, method="dop853").final
    assert torch.allclose(path.at(5), one_by_one, rtol=1e-6)


def test_diagnostics_are_recorded_at_every_saved_time() -> None:
    x, y = logistic(5, 2)
    path = ng.integrate(
        ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(2, dtype=torch.float64), (x, y),
        until=5.0, record={"norm": lambda b: b.norm(), "beta": lambda b: b},
    )  # fmt: skip
    assert path.recorded["norm"].shape == path.times.shape
    assert torch.equal(path.recorded["beta"], path.states)


@pytest.mark.parametrize(
    "model", [m for m in MODELS if m.name in ("Direct", "MatrixProduct(3)", "Network, one output")]
)
def test_a_trajectory_survives_saving_bit_for_bit(model, tmp_path) -> None:
    x = model.inputs(4, seed=3)
    y = randn(4)(*model.parametrization.predict(model.params, x).shape)
    path = ng.integrate(
        ng.euclidean, ng.Gaussian(), model.parametrization, model.params, (x, y),
        until=0.1, rtol=1e-3, record={"one": lambda _: 1.0},
    )  # fmt: skip
    file = tmp_path / "path.safetensors"
    path.save(file)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        path.save(tmp_path / "no such folder" / "path.safetensors")
    back = ng.Trajectory.load(file)
    assert type(back.states) is type(path.states)
    for name in ("times", "losses"):
        assert torch.equal(getattr(back, name), getattr(path, name))
    for index in (0, -1):
        a, b = path.at(index), back.at(index)
        pairs = zip(ng.reference.flatten(a), ng.reference.flatten(b), strict=True)
        assert all(float(p) == float(q) for p, q in pairs)
    for name in ("status", "detail", "method", "evaluations", "steps", "seconds"):
        assert getattr(back, name) == getattr(path, name)
    assert torch.equal(back.recorded["one"], path.recorded["one"])


def test_a_file_that_is_no_trajectory_is_refused(tmp_path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"not a trajectory")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ng.Trajectory.load(file)


class TestStatus:
    def test_converged_by_a_rule(self) -> None:
        x, y = logistic(3, 6)
        path = ng.integrate(
            ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(6, dtype=torch.float64), (x, y),
            until=ng.stopping.loss_below(1e-3) | ng.stopping.time_reached(1e9),
        )  # fmt: skip
        assert path.status == Status.CONVERGED
        assert float(path.losses[-1]) <= 1e-3

    def test_stalled_when_evaluations_run_out(self) -> None:
        x, y = logistic(8, 3)
        path = ng.integrate(
            ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(3, dtype=torch.float64), (x, y),
            until=1e9, max_evaluations=20,
        )  # fmt: skip
        assert path.status == Status.STALLED
        assert "20 evaluations" in path.detail

    def test_singular_when_the_straight_line_meets_determinant_zero(self) -> None:
        """W(t) goes straight from 1 to −1; the two-layer factors cannot pass through zero."""
        network = ng.DeepLinear((1, 1, 1))
        w = (torch.tensor([[1.0]]).double(), torch.tensor([[1.0]]).double())
        x = torch.tensor([[1.0], [2.0]]).double()
        path = ng.integrate(ng.natural, ng.Gaussian(), network, w, (x, -x), until=5.0, rtol=1e-8)
        assert path.status == Status.SINGULAR
        # −1 + 2 e^{−t} = 0 at t = log 2.
        assert float(path.times[-1]) == pytest.approx(math.log(2), abs=1e-8)
        assert "t = 0.693147" in path.detail

    @pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow)])
    def test_singular_where_the_closed_form_says(self, depth) -> None:
        """Square networks of two kinds of depth meet det W = 0 at the first singular time."""
        network = ng.DeepLinear((2,) * (depth + 1))
        w = network.init_orthogonal(generator=torch.Generator().manual_seed(depth))
        x = randn(3)(20, 2)
        total = network.hypothesis(w)
        optimum = total @ torch.tensor([[-0.7, 0.1], [0.2, 1.3]]).double()
        (when,) = singular_times(total, optimum).tolist()
        path = ng.integrate(
            ng.natural, ng.Gaussian(), network, w, (x, x @ optimum.mT), until=9.0, rtol=1e-8
        )
        assert path.status == Status.SINGULAR
        assert float(path.times[-1]) == pytest.approx(when, abs=1e-6)

    def test_a_trial_step_too_far_is_no_divergence(self) -> None:
        """Explicit steps that land where the velocity overflows are taken shorter."""
        x, y = separable(40, 3)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), ng.Direct(), -5 * torch.ones(3).double(), (x, y),
            until=50.0, method="dopri", rtol=1e-2, atol=1e2,
        )  # fmt: skip
        assert path.status == Status.TIME_REACHED

    def test_diverged_when_the_velocity_overflows(self) -> None:
        x = torch.eye(2, dtype=torch.float64)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), ng.Direct(), torch.tensor([-800.0, 0.0]).double(),
            (x, torch.ones(2, dtype=torch.float64)), until=1.0, method="dop853",
        )  # fmt: skip
        assert path.status == Status.DIVERGED

    def test_stalled_when_no_time_is_long_enough(self) -> None:
        x, y = torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(2).double(), (x, y),
            until=ng.stopping.loss_below(-1.0),
        )  # fmt: skip
        assert path.status == Status.STALLED
        assert "overflows" in path.detail
        assert bool(torch.isfinite(path.states).all())


def test_theorem_4_along_the_whole_flow() -> None:
    """log(1 + e^{ys}) = t + c: logits of an over-parametrized tanh network, closed form."""
    draw = randn(7)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1)
    ).double()
    network = ng.Network(module)
    params = {name: 0.7 * draw(*p.shape) for name, p in network.init().items()}
    x, y = draw(8, 3), torch.sign(draw(8, 1))
    path = ng.integrate(ng.natural, ng.Bernoulli(), network, params, (x, y), until=10.0, rtol=1e-6)
    start = y * network.predict(params, x)
    a = 10.0 + torch.log1p(torch.exp(start))
    wanted = a + torch.log(-torch.expm1(-a))
    assert torch.allclose(y * network.predict(path.final, x), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"until": -1.0}, "final time must be a number above 0"),
        ({"until": math.inf}, "finite"),
        ({"until": 1.0, "method": "euler"}, "method must be"),
        ({"until": 1.0, "times": torch.tensor([1.0, 0.5])}, "increase"),
    ],
)
def test_bad_requests_are_refused(bad, words) -> None:
    x, y = logistic(4, 2)
    with pytest.raises(InvalidInputError, match=words):
        ng.integrate(
            ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(2).double(), (x, y), **bad
        )


@pytest.mark.parametrize("bad", [{"rtol": -1.0}, {"rtol": 0.0}, {"atol": -1.0}, {"rtol": math.nan}])
def test_accuracies_that_mean_nothing_are_refused(bad):
    x, y = torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    given = (ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(2, dtype=torch.float64), (x, y))
    with pytest.raises(InvalidInputError, match=f"{next(iter(bad))} must be"):
        ng.integrate(*given, until=1.0, **bad)
