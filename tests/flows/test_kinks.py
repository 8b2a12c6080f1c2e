"""ReLU networks: kinks are crossed where the flow crosses them, or the flow slides along them."""

import math

import pytest
import torch
from torch import nn

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.stopping import Status
from tests.cases import randn

F64 = torch.float64


class Bowl(nn.Module):
    """Outputs |w| + u, whatever the input, with one kink at w = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(1.0))
        self.relu = nn.ReLU()

    def forward(self, x):
        return (2 * self.relu(self.w) - self.w + self.u) * torch.ones_like(x[:, 0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_flow_slides_where_both_sides_point_at_the_kink(sign) -> None:
    """½(|w| + u)² from (½, 1): the kink is met at e^{−2t} = 1/3, then u = ½ e^{−(t − t₁)}."""
    network = ng.Network(Bowl().double())
    start = {"w": torch.tensor(sign * 0.5).double(), "u": torch.tensor(1.0).double()}
    x, y = torch.ones(1, 1, dtype=F64), torch.zeros(1, dtype=F64)
    times = torch.tensor([0.2, 0.5, 1.0, 3.0], dtype=F64)
    args = (ng.euclidean, ng.Gaussian(), network, start, (x, y))
    path = ng.integrate(*args, until=3.0, times=times, rtol=1e-9)
    met = math.log(3) / 2
    for i, t in enumerate(times.tolist()):
        gone = 0.75 * -math.expm1(-2 * min(t, met))
        u = 1 - gone if t < met else 0.5 * math.exp(-(t - met))
        assert float(path.at(i)["u"]) == pytest.approx(u, rel=1e-8)
        assert float(path.at(i)["w"]) == pytest.approx(sign * (0.5 - gone), abs=1e-8)
    assert path.status == Status.SLID
    assert path.status.reached
    assert "slid along 1, on 1 of them now" in path.detail
    assert "kinks" in path.method


def network_and_data():
    draw = randn(3)
    module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0)).double()
    network = ng.Network(module)
    params = {name: 0.7 * draw(*p.shape) for name, p in module.named_parameters()}
    x = draw(12, 2)
    return network, params, (x, torch.sin(2 * x[:, 0]) + x[:, 1])


def test_the_flow_is_the_limit_of_small_steps() -> None:
    network, params, batch = network_and_data()
    args = (ng.euclidean, ng.Gaussian(), network, params, batch)
    path = ng.integrate(*args, until=12.0, rtol=1e-7)
    assert path.status == Status.TIME_REACHED
    crossed = int(path.detail.split("crossed ")[1].split()[0])
    assert crossed >= 3
    outputs = network.predict(path.final, batch[0])
    gaps = []
    for step in (1e-2, 5e-3):
        steps = ng.descend(*args, step=step, until=12.0 - step / 2, save_every=10**6)
        gaps.append(float((network.predict(steps.final, batch[0]) - outputs).norm()))
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.2)  # first order, towards the flow
    assert gaps[1] < 1e-3 * float(outputs.norm())


def test_saved_times_around_kinks_are_those_of_shorter_flows() -> None:
    network, params, batch = network_and_data()
    args = (ng.euclidean, ng.Gaussian(), network, params, batch)
    times = torch.linspace(0.1, 2.0, 4, dtype=F64)
    path = ng.integrate(*args, until=2.0, times=times, rtol=1e-8)
    assert torch.equal(path.times, times)
    for i in (0, 2):
        alone = ng.integrate(*args, until=float(times[i]), rtol=1e-8).final
        a, b = (network.predict(p, batch[0]) for p in (path.at(i), alone))
        assert torch.allclose(a, b, rtol=1e-6)


def test_networks_without_relu_modules_are_refused() -> None:
    network = ng.Network(nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Flatten(0)).double())
    x = randn(0)(4, 2)
    with pytest.raises(InvalidInputError, match="ReLU modules"):
        ng.integrate(
            ng.euclidean, ng.Gaussian(), network, network.init(), (x, x[:, 0]), until=1.0,
            method="kinks",
        )  # fmt: skip


# Natural flows


def separable(activation):
    """Eight samples and a network with more parameters, from the same start."""
    draw = randn(0)
    module = nn.Sequential(nn.Linear(2, 24), activation, nn.Linear(24, 1), nn.Flatten(0)).double()
    network = ng.Network(module)
    params = {name: 0.5 * draw(*p.shape) for name, p in module.named_parameters()}
    x = draw(8, 2)
    return network, params, (x, torch.sign(draw(8)))


def missing(activation, t, end):
    """Distance of the margins from m(t) = log((1 + e^{m₀}) e^t − 1), of ṁ = 1 + e^{−m}."""
    network, params, (x, y) = separable(activation)
    path = end((ng.natural, ng.Bernoulli(), network, params, (x, y)))
    assert path.status.reached
    due = torch.log((1 + torch.exp(y * network.predict(params, x))) * math.exp(t) - 1)
    return float((y * network.predict(path.final, x) - due).abs().max())


def test_a_smoothed_network_reaches_the_margins_of_the_natural_flow():
    def error(beta):
        return missing(nn.Softplus(beta), 20.0, lambda args: ng.integrate(*args, until=20.0))

    assert error(2) < 1e-5
    assert error(20) < 1e-5


def test_natural_steps_reach_them_in_the_limit_with_softplus_but_not_with_relu():
    def error(activation, step):
        steps = round(5.0 / step)
        rule = ng.stopping.steps_reached(steps)
        return missing(
            activation, 5.0,
            lambda args: ng.descend(*args, step=step, until=rule, save_every=steps),
        )  # fmt: skip

    smooth = [error(nn.Softplus(20), step) for step in (0.01, 0.005)]
    assert smooth[0] < 0.1
    assert smooth[0] / smooth[1] == pytest.approx(2, rel=0.2)
    kinked = [error(nn.ReLU(), step) for step in (0.01, 0.005)]
    assert min(kinked) > 1


def test_a_natural_flow_that_stalls_at_kinks_says_so():
    def stalled(activation):
        network, params, batch = separable(activation)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), network, params, batch, until=20.0, max_evaluations=100
        )
        assert path.status == Status.STALLED
        return path.detail

    assert "kinks" in stalled(nn.ReLU())
    assert "Softplus" in stalled(nn.LeakyReLU())
    assert "kinks" not in stalled(nn.Softplus(20))
