"""Equations: truths satisfy them, and every figure runs at its smallest size."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.nn import Module

from natgrad.experiments import GROUPS
from natgrad.experiments.pinn._equations.allen_cahn import AllenCahn
from natgrad.experiments.pinn._equations.base import Equation
from natgrad.experiments.pinn._equations.burgers import Burgers
from natgrad.experiments.pinn._equations.heat import Heat
from natgrad.experiments.pinn._equations.helmholtz import Helmholtz
from natgrad.experiments.pinn._equations.poisson import Poisson, PoissonInside
from natgrad.experiments.pinn._solve.networks import network
from natgrad.experiments.pinn._solve.peers import PEERS, by_peer
from natgrad.lab.experiment import in_this_process
from natgrad.lab.registry import experiment
from tests.helpers import for_each, generator

CLOSED = [Poisson(2), Poisson(5), PoissonInside(3), Heat(), Helmholtz()]


class Truth(Module):
    """The true solution in place of a network."""

    def __init__(self, equation: Equation) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, x: Tensor) -> Tensor:
        return self.equation.truth(x)[:, None]


def test_true_solutions_have_no_residual(monkeypatch):
    def check(equation: Equation) -> None:
        net = Truth(equation)
        # Where an ansatz is used, the truth stands for the field itself.
        monkeypatch.setattr(type(equation), "field", lambda self, net, x: net(x)[:, 0])
        for points in (equation.fixed(6), equation.drawn(40, generator(0))):
            for name, r in equation.residuals(net, points).items():
                assert float(r.detach().abs().max()) < 1e-11, name
        monkeypatch.undo()

    for_each(CLOSED, check)


def test_an_ansatz_has_its_sides_by_construction():
    net = network(2, (4,), "torch", 0)
    burgers, side = Burgers(), torch.tensor([[-1.0, 0.3], [1.0, 0.7], [0.25, 0.0]]).double()
    assert burgers.field(net, side).tolist() == pytest.approx(
        [0, 0, -math.sin(math.pi / 4)], abs=1e-14
    )
    allen_cahn, net = AllenCahn(), network(3, (4,), "torch", 0)
    u = allen_cahn.field(net, torch.tensor([[-1.0, 0.3], [1.0, 0.3], [0.3, 0.0]]).double())
    assert u[0].item() == pytest.approx(u[1].item())
    assert u[2].item() == pytest.approx(0.09 * math.cos(0.3 * math.pi))
    inside = PoissonInside(2)
    faces = inside.drawn(30, generator(1))["boundary"]
    assert float(inside.field(network(2, (4,), "torch", 0), faces).detach().abs().max()) == 0


def test_burgers_by_an_independent_method():
    """Lines in space with second-order differences, at a tenth of the resolution of the shock."""
    equation = Burgers()
    n = 2001
    x = np.linspace(-1, 1, n)
    h = x[1] - x[0]

    def flow(_: float, u: np.ndarray) -> np.ndarray:
        full = np.concatenate([[0.0], u, [0.0]])
        slope = (full[2:] - full[:-2]) / (2 * h)
        bend = (full[2:] - 2 * u + full[:-2]) / h**2
        return np.asarray(-u * slope + equation.viscosity * bend)

    band = {"lband": 1, "uband": 1}
    start = -np.sin(math.pi * x)[1:-1]
    found = solve_ivp(flow, (0, 0.4), start, "LSODA", rtol=1e-7, atol=1e-9, **band).y[:, -1]
    points = np.stack([x[1:-1], np.full(n - 2, 0.4)], 1)
    truth = equation.truth(torch.as_tensor(points)).numpy()
    assert np.linalg.norm(found - truth) / np.linalg.norm(truth) < 2e-3


def test_allen_cahn_by_an_independent_method():
    equation = AllenCahn()
    n = 512
    x = -1 + 2 * np.arange(n) / n

    def flow(_: float, u: np.ndarray) -> np.ndarray:
        bend = (np.roll(u, -1) - 2 * u + np.roll(u, 1)) * (n / 2) ** 2
        return np.asarray(1e-4 * bend + 5 * (u - u**3))

    start = x**2 * np.cos(math.pi * x)
    found = solve_ivp(flow, (0, 1), start, "RK45", rtol=1e-8, atol=1e-10).y[::2, -1]
    truth = equation.truth(equation.judged()).reshape(-1, 41)[:, -1].numpy()
    assert np.linalg.norm(found - truth) / np.linalg.norm(truth) < 2e-3


@pytest.mark.parametrize("name", GROUPS["pinn"])
def test_the_smallest_size_runs(name):
    figure = experiment(f"pinn/{name}")
    config = figure.presets["smoke"]
    arrays = figure.compute(config, in_this_process)
    claims = figure.claims(config, arrays)
    assert len({claim.id for claim in claims}) == len(claims)
    assert all(math.isfinite(claim.value) for claim in claims)
    assert figure.departures(config, arrays)
    assert figure.draw(config, arrays).axes


def test_peers_lower_the_error_in_the_time_they_are_given():
    equation = Poisson(2)
    points = equation.fixed(8)

    def check(peer: str) -> None:
        net = network(2, (8,), "torch", 0)
        before = equation.error(net)
        by_peer(peer, equation, net, points, seconds=0.3)
        assert equation.error(net) < before

    for_each(PEERS, check)
