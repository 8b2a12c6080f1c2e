"""Gradients of layered models in NumPy, against autograd."""

import pytest
import torch
from torch import nn

import natgrad as ng
from natgrad.flows._methods.coordinates import Coordinates
from natgrad.flows._methods.kinks.network import HookedKinks, LayeredKinks, kinks_of
from natgrad.flows._methods.layered.coordinates import LayeredCoordinates, coordinates_of
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import flatten
from tests.cases import randn


def network(*parts: nn.Module) -> ng.Network:
    return ng.Network(nn.Sequential(*parts).double())


MODELS = {
    "direct": lambda: ng.Direct(),
    "deep linear": lambda: ng.DeepLinear((3, 4, 2)),
    "one layer": lambda: network(nn.Linear(3, 2)),
    "one layer without biases": lambda: network(nn.Linear(3, 2, bias=False)),
    "tanh and sigmoid": lambda: network(
        nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5, bias=False), nn.Sigmoid(), nn.Linear(5, 2)
    ),
    "relu": lambda: network(
        nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
    ),
}
LOSSES = {
    "squared": lambda: (ng.Gaussian(), randn(1)(7, 2)),
    "squared, summed": lambda: (ng.Gaussian(reduction="sum"), randn(1)(7, 2)),
    "logistic": lambda: (ng.Bernoulli(), torch.sign(randn(1)(7, 2))),
    "softmax": lambda: (ng.Categorical(), torch.tensor([0, 1, 1, 0, 1, 0, 0])),
}


def problem(model: ng.Network, loss: str) -> Problem:
    draw = randn(0)
    likelihood, y = LOSSES[loss]()
    if isinstance(model, ng.Network):
        params = {name: draw(*p.shape) for name, p in model.init().items()}
    elif isinstance(model, ng.Direct):
        params = draw(3, 2)
    else:
        params = tuple(draw(a, b) for a, b in ((4, 3), (2, 4)))
    return Problem.checked(ng.euclidean, likelihood, model, params, (draw(7, 3), y), {})


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
def test_velocities_are_those_of_autograd(name, loss) -> None:
    asked = problem(MODELS[name](), loss)
    found, exact = coordinates_of(asked, asked.params), Coordinates(asked, asked.params)
    assert isinstance(found, LayeredCoordinates)
    y = flatten(asked.params)
    assert torch.allclose(found.velocity(y), exact.velocity(y), rtol=1e-12, atol=1e-15)
    assert (found.jacobian is not None) == (
        name in ("direct", "one layer", "one layer without biases")
    )
    if found.jacobian is not None:
        jacobian = torch.autograd.functional.jacobian(exact.velocity, y)
        assert torch.allclose(torch.from_numpy(found.jacobian(y.numpy())), jacobian, atol=1e-13)


def test_kinks_in_numpy_are_those_of_hooks() -> None:
    asked = problem(MODELS["relu"](), "squared")
    fast, slow = kinks_of(asked), HookedKinks(asked)
    assert isinstance(fast, LayeredKinks)
    y = flatten(asked.params)
    slopes = slow.slopes(y)
    assert torch.equal(fast.slopes(y), slopes)
    assert torch.allclose(fast.inputs(y, slopes), slow.inputs(y, slopes))
    for a, b in zip(fast.velocity(y, slopes), slow.velocity(y, slopes), strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-15)
    which = [0, 5, 27, 28, 40, 55]  # of both layers
    assert torch.allclose(fast.gradients(y, slopes, which), slow.gradients(y, slopes, which))
    v = randn(2)(len(y))
    for a, b in zip(
        fast.sliding(y, slopes, [3, 30]), slow.sliding(y, slopes, [3, 30]), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-9)
    assert fast.speed(y, slopes, v, 30) == pytest.approx(slow.speed(y, slopes, v, 30))


class Twice(nn.Sequential):
    """A sequential module with a forward pass of its own."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 2)).double()
    module.register_forward_hook(lambda m, x, out: 2 * out)
    return module


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 2)).double()


@pytest.mark.parametrize(
    "module",
    [
        Twice(nn.Linear(3, 2)).double(),
        hooked(),
        tied(),
        nn.Sequential(nn.Linear(3, 2), nn.GELU()).double(),
    ],
    ids=["own forward", "hooks", "tied", "GELU"],
)
def test_other_modules_are_left_to_autograd(module) -> None:
    asked = problem(ng.Network(module), "squared")
    assert type(coordinates_of(asked, asked.params)) is Coordinates


def test_frozen_parameters_and_single_precision_are_left_to_autograd() -> None:
    asked = problem(MODELS["one layer"](), "squared")
    some = {"0.weight": asked.params["0.weight"]}
    with torch.no_grad():
        frozen = Problem.checked(*args(asked, some), {})
        assert type(coordinates_of(frozen, some)) is Coordinates
    single = asked.params["0.weight"].mT.float()
    x, y = (t.float() for t in asked.batch)
    narrow = Problem.checked(ng.euclidean, asked.likelihood, ng.Direct(), single, (x, y), {})
    assert type(coordinates_of(narrow, single)) is Coordinates


def args(asked: Problem, params):
    return asked.direction, asked.likelihood, asked.parametrization, params, asked.batch
