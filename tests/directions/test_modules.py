"""Networks made of what people use, against the dense reference; float32; refusals."""

import pytest
import torch
from torch import nn

import natgrad as ng
from natgrad import reference
from natgrad.errors import ModuleError
from tests.cases import randn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.read = nn.Linear(8, 1)

    def forward(self, x):
        tokens = x.reshape(len(x), 4, 8)
        return self.read(self.attend(tokens, tokens, tokens, need_weights=False)[0].mean(1))


def modules() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return {
        "attention": Attention(),
        "encoder": nn.Sequential(nn.Unflatten(1, (4, 8)), encoder, nn.Flatten(), nn.Linear(32, 1)),
        "convolution": nn.Sequential(
            nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(12, 1),
        ),
        "norms": nn.Sequential(
            nn.Linear(32, 6), nn.LayerNorm(6), nn.Tanh(), nn.BatchNorm1d(6), nn.Linear(6, 1)
        ),
        "weight-norm": nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(32, 5)), nn.Tanh(), nn.Linear(5, 1)
        ),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's vmap of weight norm
@pytest.mark.parametrize("name", ["attention", "encoder", "convolution", "norms", "weight-norm"])
def test_velocity_of_logits_through_common_layers(name) -> None:
    network = ng.Network(modules()[name].double().eval())
    params = network.init()
    x, y = randn(1)(5, 32), torch.sign(randn(2)(5, 1))
    v = ng.natural(ng.Bernoulli(), network, params, (x, y))
    s = network.predict(params, x)
    j = reference.jacobian(network, params, x).flatten(0, 1)
    moved = (j @ reference.flatten(v))[:, None]
    wanted = y / torch.sigmoid(y * s)
    assert float((moved - wanted).norm() / wanted.norm()) < 1e-10
    # Shortest: in the span of the Jacobian's rows.
    flat = reference.flatten(v)
    inside = j.mT @ torch.linalg.lstsq(j.mT, flat).solution
    assert float((inside - flat).norm() / flat.norm()) < 1e-7


@pytest.mark.parametrize("n", [60, 150])
def test_float32_networks_take_the_kernel_and_keep_their_digits(n, monkeypatch) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(200, 64), nn.Tanh(), nn.Linear(64, 1))
    network = ng.Network(module)
    monkeypatch.setattr(
        ng.Network, "design", lambda *_: pytest.fail("dense rows where the kernel would do")
    )
    x, y = torch.randn(n, 200), torch.sign(torch.randn(n, 1))
    params = network.init()
    v = ng.natural(ng.Bernoulli(), network, params, (x, y))
    wanted = y / torch.sigmoid(y * network.predict(params, x))
    error = (network.jvp(params, x, v) - wanted).norm() / wanted.norm()
    assert float(error) < 1e-5


class Wrong(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(3, 1)

    def forward(self, x):
        out = self.inner(x)
        if self.kind == "casts":
            return out.float()
        if self.kind == "numpy":
            return torch.from_numpy(out.numpy())
        raise KeyError("nothing here")


@pytest.mark.parametrize("kind", ["casts", "numpy", "raises"])
def test_modules_that_cannot_be_differentiated_are_refused(kind) -> None:
    network = ng.Network(Wrong(kind).double())
    batch = torch.zeros(2, 3).double(), torch.ones(2, 1).double()
    with pytest.raises(ModuleError):
        ng.natural(ng.Bernoulli(), network, network.init(), batch)


def test_frozen_lazy_and_inference() -> None:
    frozen = nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(ModuleError, match="frozen"):
        ng.Network(frozen).init()
    with pytest.raises(ModuleError, match="lazy"):
        ng.Network(nn.LazyLinear(1))
    network = ng.Network(nn.Linear(2, 1).double())
    batch = torch.zeros(2, 2).double(), torch.ones(2, 1).double()
    with torch.inference_mode(), pytest.raises(ModuleError, match="inference_mode"):
        ng.natural(ng.Bernoulli(), network, network.init(), batch)


@pytest.mark.parametrize("damping", [0.0, 1e-3])
@pytest.mark.parametrize("n", [6, 12, 13, 14, 40])
def test_solves_on_the_side_of_outputs_and_of_parameters_agree(n, damping, monkeypatch) -> None:
    """13 parameters: fewer, as many and more outputs."""
    draw = randn(3)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(draw(*p.shape))
    network = ng.Network(module)
    params, x = network.init(), draw(n, 2)
    y = torch.sign(draw(n, 1))
    assert network.prefers_gram(params, x) == (n < 13)
    found = {}
    for kernel in (True, False):
        monkeypatch.setattr(ng.Network, "prefers_gram", lambda *_, kernel=kernel: kernel)
        v = ng.natural(ng.Bernoulli(), network, params, (x, y), damping=damping)
        found[kernel] = reference.flatten(v)
    scale = found[False].norm()
    assert float((found[True] - found[False]).norm() / scale) < 1e-7
    moved, wanted = (network.jvp(params, x, reference.unflatten(v, params)) for v in found.values())
    assert float((moved - wanted).norm() / wanted.norm()) < 1e-9


class Twice(nn.Module):
    """A layer whose weight is also used outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))) + (x @ self.first.weight.mT)[:, :2].square()


@pytest.mark.parametrize("frozen", [(), ("0.bias",), ("0.weight", "2.bias")], ids=str)
def test_linearized_layers_equal_the_dense_jacobian(frozen) -> None:
    draw = randn(5)
    network = ng.Network(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
    params = {name: p for name, p in network.init().items() if name not in frozen}
    x, u = draw(5, 3), draw(5, 2)
    v = {name: draw(*p.shape) for name, p in params.items()}
    j = reference.jacobian(network, params, x)
    for inside in (torch.no_grad(), torch.enable_grad()):
        with inside:
            at = network.linearized(params, x)
            pairs = [
                (at.gram(), torch.einsum("nkp,mjp->nkmj", j, j)),
                (at.push(v), j @ reference.flatten(v)),
                (reference.flatten(at.pull(u)), torch.einsum("nkp,nk->p", j, u)),
                (at.design().matrix, j),
            ]
        for ours, true in pairs:
            torch.testing.assert_close(ours, true, rtol=1e-12, atol=1e-12)


def test_layers_whose_weight_is_used_elsewhere_go_by_rows() -> None:
    torch.manual_seed(0)
    network = ng.Network(Twice().double())
    params, x = network.init(), randn(6)(5, 3)
    assert network.linearized(params, x) is None
    j = reference.jacobian(network, params, x)
    torch.testing.assert_close(network.gram(params, x, x), torch.einsum("nkp,mjp->nkmj", j, j))
