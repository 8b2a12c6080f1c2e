"""Rows of the Jacobian: recorded ones against single backward passes and vmap(grad)."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, vmap
from torch.nn import Conv1d, Conv2d, Flatten, LayerNorm, Linear, Module, Sequential, Tanh

from natgrad.optim._rows import jacobian as module_of_jacobian
from natgrad.optim._rows.jacobian import Jacobian, contrasted
from natgrad.optim._rows.layers import recorded_layers
from natgrad.optim._rows.record import Recorder
from tests.helpers import assert_near, for_each, randn
from tests.optim.nets import conv_net, images, mlp, seeded

TOLERANCE = 1e-12


def derivative(u: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


def laplacian(net: Module, x: Tensor) -> Tensor:
    u = net(x)
    slopes = derivative(u, x)
    return sum(derivative(slopes[:, i], x)[:, i] for i in range(x.shape[1]))  # type: ignore[return-value]


def points(n: int, d: int, seed: int = 5) -> Tensor:
    return randn(n, d, seed=seed).requires_grad_()


@dataclass(frozen=True)
class Case:
    name: str
    net: Callable[[], Module]
    closure: Callable[[Module], Tensor]
    recorded: bool = True

    def __str__(self) -> str:
        return self.name


class Twice(Module):
    """One layer used twice, and a bias that another layer shares."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.last = Linear(2, 4), Linear(4, 4), Linear(4, 1)
        self.other = Linear(4, 4)
        self.other.bias = self.shared.bias

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.shared(x))
        return self.last(torch.tanh(self.other(torch.tanh(self.shared(x)))))


def _fourth_order(net: Module) -> Tensor:
    x = points(6, 1)
    u = net(x)[:, 0]
    for _ in range(4):
        u = derivative(u, x)[:, 0]
    return u + net(x)[:, 0] ** 2


def _periodic(net: Module) -> Tensor:
    left, right = points(5, 2, seed=1), points(5, 2, seed=2)
    return net(left)[:, 0] - net(right)[:, 0] + derivative(net(left), left)[:, 1]


def _stacked(net: Module) -> Tensor:
    both = net(torch.cat([points(5, 2, seed=1), points(5, 2, seed=2)]))[:, 0]
    return both[:5] - both[5:]


def _functional(net: Module) -> Tensor:
    params = dict(net.named_parameters())

    def u(z: Tensor) -> Tensor:
        return functional_call(net, params, (z[None],))[0, 0]

    return vmap(lambda z: hessian(u)(z).diagonal().sum() + u(z))(points(5, 2).detach())


def _frozen() -> Module:
    net = mlp(2, 4, 1)
    net[0].weight.requires_grad_(False)
    net[2].bias.requires_grad_(False)
    return net


CASES = [
    Case("outputs", lambda: mlp(3, 5, 2), lambda net: net(points(7, 3))),
    Case("laplacian", lambda: mlp(2, 5, 4, 1), lambda net: laplacian(net, points(7, 2))),
    Case("fourth order", lambda: mlp(1, 4, 1), _fourth_order),
    Case("gradient", lambda: mlp(2, 4, 1), lambda net: derivative(net(x := points(6, 2)), x)),
    Case("two calls", lambda: mlp(2, 4, 1), _periodic),
    Case("shared layers", Twice, lambda net: laplacian(net, points(6, 2))),
    Case("frozen", _frozen, lambda net: laplacian(net, points(6, 2))),
    Case("without bias", lambda: mlp(2, 4, 1, bias=False), lambda net: net(points(6, 2))),
    Case("positions", lambda: mlp(3, 4, 2), lambda net: net(randn(5, 6, 3, seed=1)).sum((1, 2))),
    Case("images", conv_net, lambda net: net(images(4))),
    Case(
        "signals",
        lambda: Sequential(Conv1d(2, 3, 3, stride=2, padding=1, dilation=2), Tanh(), Flatten()),
        lambda net: net(randn(3, 2, 9, seed=0))[:, :3],
    ),
    Case(
        "norm",
        lambda: Sequential(Linear(2, 4), LayerNorm(4), Tanh(), Linear(4, 1)),
        lambda net: laplacian(net, points(6, 2)),
    ),
    Case(
        "groups",
        lambda: Sequential(Conv2d(2, 4, 3, groups=2), Tanh(), Flatten(), Linear(64, 1)),
        lambda net: net(images(3)),
    ),
    Case("stacked inputs", lambda: mlp(2, 4, 1), _stacked, recorded=False),
    Case("torch.func", lambda: mlp(2, 4, 1), _functional, recorded=False),
    Case(
        "mixed samples",
        lambda: mlp(2, 4, 1),
        lambda net: (u := net(points(6, 2))[:, 0]) - u.mean(),
        recorded=False,
    ),
]


def build(case: Case) -> tuple[Module, list[Tensor], Recorder]:
    net = seeded(case.net)
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    params = [p for _, p in named]
    return net, params, Recorder(net, params, [n for n, _ in named])


def rows_of(case: Case) -> tuple[Jacobian, Tensor, Recorder]:
    """The Jacobian, and the same by one plain backward pass per value."""
    net, params, recorder = build(case)

    def closure() -> Tensor:
        values = case.closure(net)
        return values.reshape(len(values), -1)

    values = recorder.run(closure)
    (strips,) = recorder.jacobian({"block": values})
    plain = closure()
    assert_near(values, plain, 1e-13)
    each = [
        torch.cat(
            [
                g.reshape(-1)
                for g in torch.autograd.grad(
                    value, params, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            ]
        )
        for value in plain.mT.reshape(-1)
    ]
    return recorder.assemble(strips), torch.stack(each), recorder


def test_rows_are_those_of_single_backward_passes():
    def check(case: Case) -> None:
        jacobian, truth, recorder = rows_of(case)
        assert_near(jacobian.dense, truth, TOLERANCE)
        assert (False in recorder._trusted.values()) is not case.recorded

    for_each(CASES, check)


def test_rows_are_those_of_vmap_of_grad():
    net, _, recorder = build(CASES[1])
    x = points(7, 2)
    (strips,) = recorder.jacobian({"block": recorder.run(lambda: laplacian(net, x))[:, None]})
    names = [name for name, _ in net.named_parameters()]

    def at(p: dict[str, Tensor], z: Tensor) -> Tensor:
        return hessian(lambda z: functional_call(net, p, (z[None],))[0, 0])(z).diagonal().sum()

    named = {name: p.detach() for name, p in net.named_parameters()}
    truth = vmap(lambda z: grad(at)(named, z))(x.detach())
    columns = torch.cat([truth[name].flatten(1) for name in names], 1)
    assert_near(recorder.assemble(strips).dense, columns, TOLERANCE)


@pytest.mark.parametrize("formed", [False, True])
def test_operator_products_need_no_rows_but_use_those_of_a_tiny_jacobian(monkeypatch, formed):
    if not formed:
        monkeypatch.setattr(module_of_jacobian, "TINY", 0)

    def check(case: Case) -> None:
        jacobian, truth, _ = rows_of(case)
        n, p = truth.shape
        v, z = randn(p, seed=1), randn(n, seed=2)
        metric = randn(p, seed=3).square() + 0.1
        assert_near(jacobian.times(v), truth @ v)
        assert_near(jacobian.transposed(z), truth.mT @ z)
        assert_near(jacobian.kernel(), truth @ truth.mT)
        assert_near(jacobian.kernel(metric), (truth / metric) @ truth.mT)
        assert_near(jacobian.square_norms(), truth.square().sum(0))
        assert ("dense" in jacobian.__dict__) is formed
        assert_near(jacobian.gram(), truth.mT @ truth)

    for_each(CASES, check)


def test_wide_layers_give_the_kernel_without_rows(monkeypatch):
    """Also in chunks of rows, which many strips and channels need."""
    case = Case("wide", lambda: mlp(2, 70, 70, 2), lambda net: net(points(9, 2)))
    jacobian, truth, _ = rows_of(case)
    assert jacobian._shorter_as_factors(2)  # the weights between the hidden layers
    monkeypatch.setattr(module_of_jacobian, "TINY", 0)
    taken = []
    inner = module_of_jacobian.Outer.inner
    monkeypatch.setattr(
        module_of_jacobian.Outer,
        "inner",
        lambda self, other: taken.append(len(self.errors)) or inner(self, other),
    )
    assert_near(jacobian.kernel(), truth @ truth.mT)
    assert len(taken) > 3


def test_gram_of_many_rows_is_summed_in_chunks(monkeypatch):
    jacobian, truth, _ = rows_of(CASES[1])
    monkeypatch.setattr(module_of_jacobian, "DENSE", 5 * truth.shape[1])
    assert not jacobian.small
    assert_near(jacobian.gram(), truth.mT @ truth)
    assert "dense" not in jacobian.__dict__


def test_contrasts_mix_the_columns_of_a_sample():
    def check(case: Case) -> None:
        net, _, recorder = build(case)
        values = recorder.run(lambda: case.closure(net))
        (strips,) = recorder.jacobian({"block": values})
        n, k = values.shape
        contrast = randn(n, 3, k, seed=4)
        rows = recorder.assemble(strips).dense.reshape(k, n, -1)
        mixed = torch.einsum("nrk,knp->rnp", contrast, rows).flatten(0, 1)
        assert_near(recorder.assemble(contrasted(strips, contrast)).dense, mixed)

    for_each([CASES[0], CASES[3], CASES[9]], check)


def test_layers_are_left_as_they_were():
    net, _, recorder = build(CASES[1])
    recorder.run(lambda: net(points(3, 2)))
    assert not any("forward" in layer.__dict__ for layer in net.modules())
    assert list(recorder_layers := recorded_layers(net)) == ["0", "2", "4"]
    assert all(type(layer) is Linear for layer in recorder_layers.values())
