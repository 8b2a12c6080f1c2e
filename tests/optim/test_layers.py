"""Every supported layer, against the dense Fisher or the approximation that is stated for it."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import (
    GRU,
    LSTM,
    RNN,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    EmbeddingBag,
    Flatten,
    GroupNorm,
    LayerNorm,
    Linear,
    Module,
    PReLU,
    RMSNorm,
    Sequential,
    Tanh,
)
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from natgrad import Categorical, Gaussian, Network, reference
from natgrad.errors import ShapeError
from natgrad.optim import NGD, EqualShare, Factors, Quadratic
from natgrad.optim._capture.moments import Gather
from natgrad.optim._curvature.factor import symmetric
from natgrad.optim._layers.coverage import cover
from natgrad.optim._layers.norm import NormLayer
from tests.helpers import assert_near, for_each, generator, randn
from tests.optim.nets import backward, seeded, train, weights_of

EXACT = Factors(memory=0, source="exact", exact_output=False)


def first(module: Module, *rest: Module) -> Sequential:
    """A network that begins with a layer."""
    return Sequential(module, *rest)


def fisher_of(build, criterion, x: Tensor, *names: str) -> Tensor:  # type: ignore[no-untyped-def]
    """The block of the dense Fisher of the named parameters, averaged over data."""
    network = Network(seeded(build))
    params = network.init()
    places = torch.cat([torch.full((p.numel(),), i) for i, p in enumerate(params.values())])
    wanted = torch.cat([torch.where(places == list(params).index(n))[0] for n in names])
    return reference.fisher(criterion, network, params, x)[wanted][:, wanted]


def started(build, criterion, x: Tensor, y: Tensor, **options):  # type: ignore[no-untyped-def]
    model = seeded(build)
    optimizer = NGD(model, criterion, strict=True, **({"factors": EXACT} | options))
    backward(model, criterion, x, y)
    optimizer.step()
    return optimizer


def block(optimizer: NGD, name: str):  # type: ignore[no-untyped-def]
    return optimizer._core.preconditioner.blocks[name]


NORMS = {
    "LayerNorm": (lambda: first(LayerNorm(4), Tanh(), Linear(4, 2)), (6, 4)),
    "LayerNorm on sequences": (
        lambda: first(LayerNorm((3, 2)), Flatten(), Linear(12, 2)),
        (6, 2, 3, 2),
    ),
    "LayerNorm at every position": (
        lambda: first(LayerNorm(3), Flatten(), Linear(6, 2)),
        (6, 2, 3),
    ),
    "LayerNorm without shift": (lambda: first(LayerNorm(4, bias=False), Linear(4, 2)), (6, 4)),
    "RMSNorm": (lambda: first(RMSNorm(4), Tanh(), Linear(4, 2)), (6, 4)),
    "GroupNorm": (lambda: first(GroupNorm(2, 4), Tanh(), Flatten(), Linear(12, 2)), (6, 4, 3)),
    "BatchNorm1d": (lambda: first(BatchNorm1d(4), Tanh(), Linear(4, 2)), (6, 4)),
    "BatchNorm3d": (
        lambda: first(BatchNorm3d(2), Tanh(), Flatten(), Linear(8, 2)),
        (6, 2, 2, 1, 2),
    ),
    "BatchNorm2d": (lambda: first(BatchNorm2d(2), Tanh(), Flatten(), Linear(12, 2)), (6, 2, 2, 3)),
}


@pytest.mark.parametrize("name", NORMS)
def test_blocks_of_normalizations_are_exact(name):
    build, shape = NORMS[name]
    x, y, criterion = randn(*shape, seed=1), randn(6, 2, seed=2), Gaussian()
    optimizer = started(build, criterion, x, y, step_length=Quadratic())
    model = seeded(build)
    params, outputs, dense = list(model[0].parameters()), model(x), 0.0
    for f in outputs.reshape(-1):  # the Gaussian's Fisher is JᵀJ over outputs of all data
        row = torch.autograd.grad(f, params, retain_graph=True)
        flat = torch.cat([g.reshape(-1) for g in row])
        dense = dense + torch.outer(flat, flat) / len(x)
    assert_near(symmetric(block(optimizer, "0").errors.matrix), dense, 1e-9)


@pytest.mark.parametrize("full", [True, False])
def test_steps_of_normalizations_divide_by_the_damped_block(full, monkeypatch):
    monkeypatch.setattr("natgrad.optim._layers.norm.LARGEST_FULL_BLOCK", 1024 if full else 0)
    build, shape = NORMS["LayerNorm"]
    x, y, criterion = randn(*shape, seed=1), randn(6, 2, seed=2), Gaussian()
    model = seeded(build)
    optimizer = NGD(model, criterion, damping=0.3, factors=EXACT, step_length=EqualShare())
    assert isinstance(block(optimizer, "0").layer, NormLayer)
    backward(model, criterion, x, y)
    g = torch.cat([model[0].weight.grad, model[0].bias.grad])
    before = weights_of(model)[:2]
    optimizer.step()
    step = torch.cat([b - a for a, b in zip(before, weights_of(model)[:2], strict=True)])
    fisher = fisher_of(build, criterion, x, "0.weight", "0.bias")
    damped = (fisher if full else torch.diag(fisher.diagonal())) + 0.3 * torch.eye(8).double()
    assert_near(step, -torch.linalg.solve(damped, g) / 2, 1e-9)


def test_an_embedding_of_single_tokens_has_an_exact_diagonal_input_factor():
    """F is block-diagonal over entries; each block is its frequency times errors' moment."""
    build = lambda: first(Embedding(5, 3), Flatten(), Linear(3, 2))  # noqa: E731
    x, y = torch.tensor([[0], [1], [1], [3], [3], [3]]), randn(6, 2, seed=2)
    criterion = Gaussian()
    optimizer = started(build, criterion, x, y)
    found = block(optimizer, "0")
    assert_near(found.inputs.matrix, torch.tensor([1, 2, 0, 3, 0]).double() / 6, 1e-12)
    # The head is linear: errors do not depend on the sample, and the product is exact.
    dense = fisher_of(build, criterion, x, "0.weight")
    kron = torch.kron(torch.diag(found.inputs.matrix), symmetric(found.errors.matrix))
    assert_near(kron, dense, 1e-9)


def test_an_embedding_step_is_the_formula():
    build = lambda: first(Embedding(5, 3, padding_idx=0), Tanh(), Flatten(), Linear(6, 2))  # noqa: E731
    x, y = torch.tensor([[0, 1], [1, 2], [3, 4], [4, 4], [2, 0], [1, 1]]), randn(6, 2, seed=2)
    criterion, model = Gaussian(), seeded(build)
    optimizer = NGD(model, criterion, damping=0.3, factors=EXACT, step_length=EqualShare())
    backward(model, criterion, x, y)
    g, before = model[0].weight.grad.clone(), model[0].weight.detach().clone()
    optimizer.step()
    frequencies = torch.bincount(x.reshape(-1), minlength=5).double() / 12
    found = block(optimizer, "0")
    assert_near(found.inputs.matrix, frequencies, 1e-12)
    errors = symmetric(found.errors.matrix)
    pi = (frequencies.mean() / errors.diagonal().mean()).sqrt()
    root = 0.3**0.5
    left = torch.diag(1 / (frequencies + root * pi))
    right = torch.linalg.inv(errors + root / pi * torch.eye(3).double())
    assert_near(model[0].weight - before, -left @ g @ right / 2, 1e-9)
    assert torch.equal(model[0].weight[0], before[0])  # the padding's entry has no gradient


def test_slopes_and_shared_biases_have_exact_blocks():
    """PReLU and the bias of a transposed convolution: one number per channel, or for all."""
    x, y, criterion = randn(6, 3, 4, seed=1), randn(6, 2, seed=2), Gaussian()
    for build, layer, names in (
        (lambda: first(PReLU(3), Flatten(), Linear(12, 2)), "0", ["0.weight"]),
        (lambda: first(PReLU(), Flatten(), Linear(12, 2)), "0", ["0.weight"]),
        (
            lambda: first(ConvTranspose1d(3, 2, 3), Tanh(), Flatten(), Linear(12, 2)),
            "0.bias",
            ["0.bias"],
        ),
    ):
        optimizer = started(build, criterion, x, y, step_length=Quadratic())
        dense = fisher_of(build, criterion, x, *names)
        assert_near(symmetric(block(optimizer, layer).errors.matrix), dense, 1e-9)


TRANSPOSED = {
    "1d": (lambda: ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), (5, 2, 4)),
    "1d dilated": (lambda: ConvTranspose1d(2, 3, 2, dilation=3, bias=False), (5, 2, 4)),
    "2d": (lambda: ConvTranspose2d(2, 3, (2, 3), stride=(2, 1), padding=(0, 1)), (5, 2, 3, 4)),
    "3d": (lambda: ConvTranspose3d(2, 3, 2, stride=2, dilation=2), (5, 2, 2, 3, 2)),
}


def test_rows_of_transposed_convolutions_give_the_gradient():
    """Σ over rows of errors times inputs is the gradient of the kernel, whatever the options."""

    def check(name: str) -> None:
        make, shape = TRANSPOSED[name]
        conv, x = seeded(make), randn(*shape, seed=3)
        layer = cover(Sequential(conv)).layers["0"]
        out = conv(x)
        e = randn(*out.shape, seed=4)
        out.backward(e)
        g = layer.error_rows(e).mT @ layer.input_rows(x)
        assert_near(layer.matrix(conv.weight.grad, None), g, 1e-10)
        assert torch.equal(layer.split(layer.matrix(conv.weight, None))[0], conv.weight)

    for_each(list(TRANSPOSED), check)


@pytest.mark.parametrize("kind", [ConvTranspose1d, ConvTranspose2d])
def test_a_transposed_convolution_of_one_position_is_exact_for_one_sample(kind):
    spatial = (3,) if kind is ConvTranspose1d else (3, 2)
    size = 2 * 3 * (1 if kind is ConvTranspose1d else 2)
    build = lambda: first(kind(4, 2, spatial), Tanh(), Flatten(), Linear(size, 3))  # noqa: E731
    x, y = randn(1, 4, *[1] * len(spatial), seed=4), torch.tensor([1])
    optimizer = started(build, Categorical(), x, y)
    dense = fisher_of(build, Categorical(), x, "0.weight")
    found = block(optimizer, "0")
    inputs, errors = symmetric(found.inputs.matrix), symmetric(found.errors.matrix)
    assert_near(torch.kron(inputs, errors), dense, 1e-9)


BAGS = {
    "rows": (torch.tensor([[0, 1], [1, 3], [4, 3], [2, 0]]), None, {}),
    "offsets": (torch.tensor([0, 1, 3, 4, 2, 0]), torch.tensor([0, 1, 4, 5]), {}),
    "average": (torch.tensor([0, 1, 3, 4, 2, 0]), torch.tensor([0, 1, 4, 5]), {"mode": "mean"}),
    "padding": (torch.tensor([[0, 1], [1, 3], [4, 2], [2, 0]]), None, {"padding_idx": 2}),
}


class Bag(Module):
    def __init__(self, offsets: Tensor | None, options: dict[str, object]) -> None:
        super().__init__()
        self.offsets, options = offsets, {"mode": "sum"} | options
        self.bag, self.head = EmbeddingBag(5, 3, **options), Linear(3, 2)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bag(x, self.offsets))


def test_bags_count_each_entry_with_the_errors_of_its_bag():
    """The diagonal blocks of entries that no bag holds twice are those of the dense Fisher."""

    def check(name: str) -> None:
        x, offsets, options = BAGS[name]
        build = partial(Bag, offsets, options)
        y, criterion = randn(4, 2, seed=2), Gaussian()
        optimizer = started(build, criterion, x, y, method="diagonal")
        squares = block(optimizer, "bag").squares.matrix.mT
        model = seeded(build)
        dense = torch.zeros(15, dtype=squares.dtype)
        for f in model(x).reshape(-1):
            (g,) = torch.autograd.grad(f, model.bag.weight, retain_graph=True)
            dense += g.reshape(-1) ** 2 / 4
        assert_near(squares.reshape(-1), dense, 1e-9)
        # The head is linear: with sums, every bag has the same errors.
        kronecker = block(started(build, criterion, x, y), "bag")
        kept = x[x != 2] if name == "padding" else x
        counts = torch.bincount(kept.reshape(-1), minlength=5).double()
        assert_near(kronecker.inputs.matrix, counts / counts.sum(), 1e-12)

    for_each(list(BAGS), check)


class Recurrent(Module):
    """A recurrent layer with a head on its last output."""

    def __init__(self, kind: type[Module], **options: object) -> None:
        super().__init__()
        self.inner = kind(2, 3, batch_first=True, **options)
        self.head = Linear(6 if options.get("bidirectional") else 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_recurrent_layers_of_one_step_are_exact_for_one_sample(kind):
    build = partial(Recurrent, kind)
    x, y, criterion = randn(1, 1, 2, seed=4), torch.tensor([1]), Categorical()
    optimizer = started(build, criterion, x, y)
    dense = fisher_of(build, criterion, x, "inner.weight_ih_l0")
    found = block(optimizer, "inner.weight_ih_l0")
    inputs, errors = symmetric(found.inputs.matrix), symmetric(found.errors.matrix)
    assert_near(torch.kron(errors, inputs[:-1, :-1]), dense, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_rows_of_recurrent_layers_give_the_gradients(kind, dtype):
    """Every use of every matrix is found: errors times inputs, summed over uses, is the gradient.

    Also where torch has a fused kernel, and for all levels and directions.
    """
    options = {"num_layers": 2, "bidirectional": True}
    model = seeded(partial(Recurrent, kind, **options), dtype=dtype)
    x = randn(5, 4, 2, seed=5, dtype=dtype)
    criterion = Gaussian()
    optimizer = NGD(model, criterion, strict=True)
    held: dict[str, list[object]] = {}
    capture = optimizer._core.capture
    gather = capture.gather._sum

    def noted(likelihood, output, y, visits):  # type: ignore[no-untyped-def]
        held.update({name: list(seen) for name, seen in visits.items()})
        return gather(likelihood, output, y, visits)

    capture.gather._sum = noted
    output = model(x)
    loss = criterion(output, randn(5, 2, seed=6, dtype=dtype))
    layers = capture.gather.coverage.layers
    assert len(layers) == 9
    edges = [(name, v) for name, seen in held.items() for v in seen]
    errors = torch.autograd.grad(loss, [v.edge for _, v in edges], retain_graph=True)
    loss.backward()
    for name, layer in layers.items():
        found = 0.0
        for (key, visit), e in zip(edges, errors, strict=True):
            if key == name:
                rows = torch.nn.functional.pad(layer.input_rows(visit.x), (0, 1), value=1.0)
                found = found + layer.error_rows(e).mT @ rows
        assert_near(layer.gradient(), found, 1e-9 if dtype == torch.float64 else 1e-4)


def test_fused_kernels_are_switched_on_again():
    before = torch._C._get_mkldnn_enabled()
    model = seeded(partial(Recurrent, LSTM), dtype=torch.float32)
    _optimizer = NGD(model, Gaussian())
    model(torch.zeros(2, 3, 2))
    with pytest.raises(RuntimeError):
        model(torch.zeros(2, 3, 7))
    assert torch._C._get_mkldnn_enabled() == before


class Tied(Module):
    """A language model whose head is its table of embeddings."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.table, self.inner = Embedding(7, 4), Linear(4, 4)
        self.head = Linear(4, 7, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.inner(self.table(tokens)).tanh()).flatten(0, 1)


def test_a_tied_weight_moves_by_adam_where_lengths_are_learned():
    model = seeded(partial(Tied, True))
    optimizer = NGD(model, Categorical(), strict=True, factors=Factors(source="exact"))
    assert list(optimizer._core.preconditioner.blocks) == ["inner"]
    x = torch.randint(0, 7, (20, 5), generator=generator(9))
    losses = train(optimizer, optimizer.likelihood, x, ((x + 1) % 7).reshape(-1), 40)
    assert losses[-1] < 0.1


def test_a_tied_weight_has_the_block_of_the_head():
    x = torch.randint(0, 7, (20, 5), generator=generator(9))
    y = ((x + 1) % 7).reshape(-1)
    criterion, found = Categorical(), {}
    for tied in (True, False):
        model = Tied(tied).double()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(0.5 * randn(*p.shape, seed=p.numel()))
            model.head.weight.copy_(model.table.weight)
        optimizer = NGD(model, criterion, factors=EXACT, strict=True, step_length=Quadratic())
        backward(model, criterion, x, y)
        optimizer.step()
        found[tied] = block(optimizer, "head")
    for side in ("inputs", "errors"):
        ours, theirs = (getattr(found[tied], side).matrix for tied in (True, False))
        assert_near(symmetric(ours), symmetric(theirs), 1e-9)
    model = seeded(partial(Tied, True))
    optimizer = NGD(model, criterion, strict=True, step_length=Quadratic())
    losses = train(optimizer, criterion, x, y, 40)
    assert losses[-1] < 0.1


def test_twins_count_both_uses():
    """Two modules with one weight are one module used twice."""

    class Twins(Module):
        def __init__(self, apart: bool) -> None:
            super().__init__()
            self.a, self.head = Linear(3, 3, bias=False), Linear(3, 2)
            self.b = Linear(3, 3, bias=False) if apart else self.a
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.b(self.a(x).tanh()).tanh())

    x, y, criterion = randn(6, 3, seed=1), randn(6, 2, seed=2), Gaussian()
    one, two = (block(started(partial(Twins, apart), criterion, x, y), "a") for apart in (0, 1))
    assert_near(symmetric(one.inputs.matrix), symmetric(two.inputs.matrix), 1e-12)
    assert_near(symmetric(one.errors.matrix), symmetric(two.errors.matrix), 1e-12)


CONVOLUTIONS = {
    "Conv1d": (lambda: Conv1d(2, 4, 3, stride=2, padding=1, dilation=1), (5, 2, 7), 16),
    "Conv1d dilated": (lambda: Conv1d(2, 4, 2, dilation=3, bias=False), (5, 2, 6), 12),
    "Conv1d circular": (lambda: Conv1d(2, 4, 3, padding=1, padding_mode="circular"), (5, 2, 5), 20),
    "Conv2d": (lambda: Conv2d(2, 4, (2, 3), stride=(2, 1), padding=(1, 0)), (5, 2, 4, 4), 24),
    "Conv3d": (
        lambda: Conv3d(2, 4, (2, 1, 2), stride=(1, 2, 1), padding=(1, 0, 0), dilation=(1, 1, 2)),
        (5, 2, 2, 3, 4),
        24,
    ),
    "Conv2d same": (lambda: Conv2d(2, 4, 3, padding="same", dilation=2), (5, 2, 3, 3), 36),
}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_patches_are_what_the_kernel_sees(name, groups):
    """The layer's rows, times its matrix, are the convolution; groups apart."""
    make, shape, _ = CONVOLUTIONS[name]
    conv = seeded(make)
    conv = seeded(lambda: type(conv)(2, 4, conv.kernel_size, **options(conv, groups)))
    x = randn(*shape, seed=3)
    optimizer = NGD(Sequential(conv, Flatten()), Gaussian())
    layer = block(optimizer, "0").layer
    with torch.no_grad():
        rows = layer.patches(x)
        weight = conv.weight.reshape(groups, 4 // groups, -1)
        out = torch.einsum("gok,ngkp->ngop", weight, rows.unflatten(1, (groups, -1)))
        bias = 0 if conv.bias is None else conv.bias[:, None]
        assert_near(out.flatten(1, 2) + bias, conv(x).flatten(2), 1e-12)


def options(conv: Module, groups: int) -> dict[str, object]:
    names = ("stride", "padding", "dilation", "padding_mode")
    found = {name: getattr(conv, name) for name in names}
    return found | {"groups": groups, "bias": conv.bias is not None}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", [Conv1d, Conv2d, Conv3d])
def test_a_convolution_with_one_position_is_exact_for_one_sample(kind, groups):
    """One position, one sample: Λ ⊗ Λ̃ of every group is the dense Fisher's block."""
    spatial = {Conv1d: (3,), Conv2d: (3, 2), Conv3d: (2, 1, 2)}[kind]
    build = lambda: first(kind(4, 4, spatial, groups=groups), Tanh(), Flatten(), Linear(4, 3))  # noqa: E731
    x, y, criterion = randn(1, 4, *spatial, seed=4), torch.tensor([1]), Categorical()
    optimizer = started(build, criterion, x, y)
    dense = fisher_of(build, criterion, x, "0.weight")
    found = block(optimizer, "0")
    inputs, errors = symmetric(found.inputs.matrix), symmetric(found.errors.matrix)
    if groups == 1:
        inputs, errors = inputs[None], errors[None]
    size = len(dense) // groups
    for k in range(groups):
        own = slice(k * size, (k + 1) * size)
        assert_near(torch.kron(errors[k], inputs[k][:-1, :-1]), dense[own, own], 1e-9)


def test_groups_are_convolutions_side_by_side():
    """A step of a grouped convolution equals those of separate ones, batch and positions many."""
    x, y = randn(5, 4, 6, seed=5), randn(5, 2, seed=6)
    whole = seeded(lambda: Conv1d(4, 6, 3, groups=2))
    parts = [seeded(lambda: Conv1d(2, 3, 3)) for _ in range(2)]
    head = seeded(lambda: Linear(24, 2))
    with torch.no_grad():
        for k, part in enumerate(parts):
            part.weight.copy_(whole.weight[3 * k : 3 * k + 3])
            part.bias.copy_(whole.bias[3 * k : 3 * k + 3])

    class Side(Module):
        def __init__(self, convolutions: list[Module]) -> None:
            super().__init__()
            self.convolutions = torch.nn.ModuleList(convolutions)

        def forward(self, x: Tensor) -> Tensor:
            pieces = x.chunk(len(self.convolutions), dim=1)
            found = [c(p) for c, p in zip(self.convolutions, pieces, strict=True)]
            return head_of(torch.cat(found, dim=1))

    def head_of(h: Tensor) -> Tensor:
        return torch.nn.functional.linear(h.tanh().flatten(1), head.weight.detach())

    factors = []
    for model in (Side([whole]), Side(parts)):
        criterion = Gaussian()
        optimizer = NGD(model, criterion, factors=EXACT)
        backward(model, criterion, x, y)
        optimizer.step()
        blocks = list(optimizer._core.preconditioner.blocks.values())
        factors.append(
            [
                torch.stack([symmetric(m) for m in each])
                if each[0].ndim == 2
                else symmetric(each[0])
                for each in ([b.inputs.matrix for b in blocks], [b.errors.matrix for b in blocks])
            ]
        )
    for together, apart in zip(*factors, strict=True):
        assert_near(together, apart, 1e-10)


def test_reduced_sharing_is_exact_where_only_the_average_matters():
    """Positions averaged at the end of a linear network: KFAC-reduce is the dense Fisher."""

    class Mean(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).mean(1)

    x, y, criterion = randn(6, 4, 3, seed=7), randn(6, 2, seed=8), Gaussian()
    reduce = Factors(memory=0, source="exact", exact_output=False, sharing="reduce")
    optimizer = started(Mean, criterion, x, y, factors=reduce)
    dense = fisher_of(Mean, criterion, x, "inner.weight")
    found = block(optimizer, "inner")
    inputs, errors = symmetric(found.inputs.matrix), symmetric(found.errors.matrix)
    assert_near(torch.kron(errors, inputs[:-1, :-1]), dense, 1e-9)
    expand = started(Mean, criterion, x, y)
    other = block(expand, "inner")
    kron = torch.kron(symmetric(other.errors.matrix), symmetric(other.inputs.matrix)[:-1, :-1])
    assert float((kron - dense).norm()) > 0.1 * float(dense.norm())


@pytest.mark.parametrize("method", ["kronecker", "whitening", "diagonal"])
def test_a_network_of_everything_trains(method):
    class Everything(Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = Embedding(7, 4)
            self.norm, self.conv = LayerNorm(4), Conv1d(4, 4, 3, padding=1, groups=2)
            self.last_norm, self.head = BatchNorm1d(4), Linear(4, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            h = self.conv(self.norm(self.table(tokens)).mT).tanh().mean(2)
            return self.head(self.last_norm(h))

    x = torch.randint(0, 7, (40, 5), generator=generator(9))
    y = x.sum(1) % 3
    model, criterion = seeded(Everything), Categorical()
    optimizer = NGD(model, criterion, method=method, strict=True)
    losses = train(optimizer, criterion, x, y, 40)
    assert losses[-1] < 0.6 * losses[0]


def test_the_diagonal_of_every_layer_is_that_of_the_dense_fisher():
    """One position per sample, so that the squares are the Fisher's diagonal for every kind."""
    for build, x in (
        (
            lambda: first(Embedding(5, 3), Flatten(), Linear(3, 2)),
            torch.tensor([[0], [3], [3], [4]]),
        ),
        (lambda: first(LayerNorm(4), Tanh(), Linear(4, 2)), randn(4, 4, seed=10)),
        (
            lambda: first(Conv1d(4, 4, 3, groups=2), Flatten(), Linear(4, 2)),
            randn(4, 4, 3, seed=11),
        ),
    ):
        criterion, y = Gaussian(), randn(4, 2, seed=12)
        optimizer = started(build, criterion, x, y, method="diagonal", step_length=Quadratic())
        network = Network(seeded(build))
        diagonal = reference.fisher(criterion, network, network.init(), x).diagonal()
        found = []
        for each in optimizer._core.preconditioner.blocks.values():
            found += [t.reshape(-1) for t in each.layer.split(each.squares.matrix)]
        assert_near(torch.cat(found), diagonal, 1e-9)


class Positions(Module):
    """A table of positions, looked up once for all data or for each; an output for each or one."""

    def __init__(self, shared: bool, pooled: bool = False) -> None:
        super().__init__()
        self.shared, self.pooled = shared, pooled
        self.table, self.head = Embedding(4, 3), Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(4)
        if not self.shared:
            place = place.expand(len(x), 4)
        places = self.table(place).expand(len(x), 4, 3)
        out = self.head(torch.cat([x, places], 2).tanh())
        return out.mean(1) if self.pooled else out.reshape(-1, 2)


@pytest.mark.parametrize("pooled", [False, True])
def test_rows_that_data_share_count_as_often_as_they_are_used(pooled):
    x, y, criterion = randn(6, 4, 2, seed=5), randn(6 if pooled else 24, 2, seed=6), Gaussian()
    found = {}
    for shared in (True, False):
        many = Factors(memory=0, samples=4000, exact_output=False)
        build = partial(Positions, shared, pooled)
        found[shared] = block(started(build, criterion, x, y, factors=many), "table")
    assert_near(found[True].inputs.matrix, found[False].inputs.matrix, 1e-12)
    errors = {shared: symmetric(each.errors.matrix) for shared, each in found.items()}
    gap = (errors[True] - errors[False]).norm() / errors[False].norm()
    assert float(gap) < 0.05  # 1/√4000 of each entry


def test_empirical_errors_at_rows_that_data_share_get_random_signs(monkeypatch):
    x, y, criterion = randn(6, 4, 2, seed=5), randn(6, 2, seed=6), Gaussian()
    empirical = Factors(memory=0, source="empirical")

    def factor(shared):
        build = partial(Positions, shared, pooled=True)
        optimizer = started(build, criterion, x, y, factors=empirical)
        return symmetric(block(optimizer, "table").errors.matrix)

    drawn = Gather._signs(SimpleNamespace(generator=torch.Generator()), torch.zeros(100, 2, 3))
    assert drawn.shape == (100, 1, 1)
    assert set(drawn.flatten().tolist()) == {-1.0, 1.0}
    found = []
    for signs in product((1.0, -1.0), repeat=6):  # their expectation
        column = torch.tensor(signs)[:, None]
        monkeypatch.setattr(Gather, "_signs", lambda self, errors, column=column: column)
        found.append(factor(shared=True))
    assert_near(torch.stack(found).mean(0), factor(shared=False), 1e-12)


def test_shared_rows_are_refused_where_errors_are_not_independent():
    x, y = randn(6, 4, 2, seed=5), randn(24, 2, seed=6)
    with pytest.raises(ShapeError, match="expand them to one each"):
        started(lambda: Positions(True), Gaussian(), x, y)


def normed(norm: Callable[[Module], Module], module: Module) -> Sequential:
    """A network that begins with a layer whose weight is computed."""
    net = first(norm(module), Tanh(), Flatten(), Linear(4, 3)).double()
    with torch.no_grad():
        for _ in range(2000):  # until the power iteration of spectral norm has converged
            _ = net[0].weight
        if norm is weight_norm:  # magnitudes that are not the norms
            net[0].parametrizations.weight.original0.mul_(1.7)
    return net


NORMED = {"Linear": lambda: Linear(3, 4, bias=False), "Conv1d": lambda: Conv1d(2, 4, 2, bias=False)}


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_computed_weights_have_the_chained_block_of_the_effective_weight(norm, name):
    """One sample: JᵀFJ is the dense block; under spectral norm wherever σ does not change."""
    build = lambda: normed(norm, NORMED[name]())  # noqa: E731
    shape = (1, 3) if name == "Linear" else (1, 2, 2)
    x, y, criterion = randn(*shape, seed=4), torch.tensor([1]), Categorical()
    torch.manual_seed(0)
    net = build()
    started_from = copy.deepcopy(net.state_dict())
    optimizer = NGD(net, criterion, strict=True, factors=EXACT)
    backward(net, criterion, x, y)
    optimizer.step()
    found, module = block(optimizer, "0"), net[0]
    inputs, errors = symmetric(found.inputs.matrix), symmetric(found.errors.matrix)
    kinds = module.parametrizations.weight
    names = [f"0.parametrizations.weight.{key}" for key, _ in kinds.named_parameters()]
    model = net.eval()  # in training mode the power iteration goes on
    model.load_state_dict(started_from)
    values = tuple(p.detach() for p in kinds.parameters())

    def logits(*given: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(names, given, strict=True)), x)[0]

    parts = torch.autograd.functional.jacobian(logits, values)
    J = torch.cat([part.flatten(1) for part in parts], 1)
    p = logits(*values).softmax(0).detach()
    dense = J.mT @ (torch.diag(p) - torch.outer(p, p)) @ J
    if norm is weight_norm:
        pieces = torch.autograd.functional.jacobian(kinds[0], values)
        size = values[-1].numel()
        chain = torch.cat([piece.reshape(size, -1) for piece in pieces], 1)
        assert_near(chain.mT @ torch.kron(errors, inputs) @ chain, dense, 1e-9)
        return
    original = values[0]
    u, sigma, v = torch.linalg.svd(original.flatten(1))
    along = torch.outer(u[:, 0], v[0]).reshape(-1, 1)
    still = torch.eye(len(along)) - along @ along.mT
    block_of_v = torch.kron(errors, inputs) / sigma[0] ** 2
    assert_near(still @ block_of_v @ still, still @ dense @ still, 1e-6)


@pytest.mark.parametrize("name", NORMED)
def test_a_step_under_weight_norm_moves_the_weight_as_without_it(name):
    """J d = (Λ̃ + γ̃)⁻¹ G (Λ + γ)⁻¹ with the gradient G in the effective weight."""
    build = lambda: normed(weight_norm, NORMED[name]())  # noqa: E731
    shape = (9, 3) if name == "Linear" else (9, 2, 2)
    x, y, criterion = randn(*shape, seed=4), torch.arange(9) % 3, Categorical()
    model, rule = seeded(build), {"step_length": EqualShare(), "damping": 0.1, "momentum": 0.0}
    optimizer = NGD(model, criterion, strict=True, lr=1e-6, factors=EXACT, **rule)
    before = model[0].weight.detach().clone()
    backward(model, criterion, x, y)
    optimizer.step()
    moved = (before - model[0].weight.detach()).flatten(1) / (1e-6 / 2)
    plain = first(NORMED[name](), Tanh(), Flatten(), seeded(build)[3])
    with torch.no_grad():
        plain[0].weight.data = before
    backward(plain, criterion, x, y)
    wanted = block(optimizer, "0").direction(plain[0].weight.grad.flatten(1))
    assert_near(moved, wanted, 1e-5)


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_networks_with_computed_weights_train(norm):
    torch.manual_seed(0)
    model = Sequential(norm(Conv1d(2, 6, 2)), Tanh(), Flatten(), norm(Linear(18, 12)), Tanh())
    model.append(Linear(12, 3))
    x, y = torch.randn(60, 2, 4), torch.arange(60) % 3
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = NGD(model, criterion, strict=True)
    losses = train(optimizer, criterion, x, y, 25)
    # a norm of one bounds the logits
    assert losses[-1] < (0.2 if norm is weight_norm else 0.85) * losses[0]


class Conv1D(Module):
    """A copy of the class in transformers: the forward of GPT-2's linear layers."""

    __module__ = "transformers.pytorch_utils"

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_in, n_out))
        self.bias = torch.nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


@pytest.mark.parametrize("step_length", [None, Quadratic()])
def test_a_turned_weight_takes_the_steps_of_a_linear_layer(step_length):
    x, y = randn(6, 5, 3, seed=1), randn(6, 5, 2, seed=2)
    linear = seeded(lambda: Sequential(Linear(3, 7), Tanh(), Linear(7, 2)))
    turned = Sequential(Conv1D(7, 3), Tanh(), Conv1D(2, 7)).double()
    with torch.no_grad():
        for a, b in ((linear[0], turned[0]), (linear[2], turned[2])):
            b.weight.copy_(a.weight.mT)
            b.bias.copy_(a.bias)
    for model in (linear, turned):
        criterion = Gaussian()
        optimizer = NGD(model, criterion, step_length=step_length, strict=True)
        for _ in range(8):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    assert_near(turned[0].weight, linear[0].weight.mT, 1e-8)
    assert_near(turned[2].weight, linear[2].weight.mT, 1e-8)
    assert_near(turned[2].bias, linear[2].bias, 1e-8)
