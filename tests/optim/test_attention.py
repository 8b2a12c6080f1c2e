"""`torch.nn.MultiheadAttention` against the same attention written with Linear layers."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, MultiheadAttention, TransformerEncoderLayer

from natgrad import Gaussian
from natgrad.optim import NGD, Factors, UncoveredWarning
from natgrad.optim._curvature.factor import symmetric
from tests.helpers import assert_near, randn
from tests.optim.nets import backward, seeded, train

EXACT = Factors(memory=0, source="exact", exact_output=False)
X, Y = randn(6, 5, 4, seed=1), randn(6, 2, seed=2)


class Packed(Module):
    def __init__(self, *, batch_first: bool = True, weights: bool = False) -> None:
        super().__init__()
        self.attention = MultiheadAttention(4, 2, batch_first=batch_first)
        self.last, self.weights = Linear(4, 2), weights

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.attention.batch_first else x.transpose(0, 1)
        h = self.attention(x, x, x, need_weights=self.weights)[0]
        h = h if self.attention.batch_first else h.transpose(0, 1)
        return self.last(h.tanh().mean(1))


class Written(Module):
    """The same from Linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (Linear(4, 4) for _ in range(4))
        self.last = Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (2, 2)).transpose(1, 2) for f in (self.q, self.k, self.v))
        h = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.last(self.out(h.transpose(1, 2).flatten(2)).tanh().mean(1))


def copy(packed: Packed) -> Written:
    written = Written().double().train()
    with torch.no_grad():
        for i, layer in enumerate((written.q, written.k, written.v)):
            layer.weight.copy_(packed.attention.in_proj_weight[4 * i : 4 * i + 4])
            layer.bias.copy_(packed.attention.in_proj_bias[4 * i : 4 * i + 4])
        written.out.load_state_dict(packed.attention.out_proj.state_dict())
        written.last.load_state_dict(packed.last.state_dict())
    return written


def blocks(model: Module, **options):  # type: ignore[no-untyped-def]
    optimizer = NGD(model, Gaussian(), strict=True, factors=EXACT, **options)
    backward(model, optimizer.likelihood, X, Y)
    optimizer.step()
    return optimizer._core.preconditioner.blocks


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": False}, {"weights": True}, {"batch_first": False, "weights": True}],
    ids=["plain", "sequence-first", "weights", "both"],
)
def test_factors_are_those_of_linear_layers(options):
    packed = seeded(lambda: Packed(**options))
    found, written = blocks(packed), blocks(copy(seeded(lambda: Packed(**options))))
    stack = found["attention"]
    for i, name in enumerate("qkv"):
        assert_near(symmetric(stack.inputs.matrix[i]), symmetric(written[name].inputs.matrix), 1e-9)
        assert_near(symmetric(stack.errors.matrix[i]), symmetric(written[name].errors.matrix), 1e-9)
    for ours, theirs in ((found["attention.out_proj"], written["out"]), (found["last"],) * 2):
        assert_near(symmetric(ours.errors.matrix), symmetric(theirs.errors.matrix), 1e-9)
        assert_near(symmetric(ours.inputs.matrix), symmetric(theirs.inputs.matrix), 1e-9)


def test_squares_are_those_of_linear_layers():
    found = blocks(seeded(Packed), method="diagonal")["attention"].squares.matrix
    written = blocks(copy(seeded(Packed)), method="diagonal")
    for i, name in enumerate("qkv"):
        assert_near(found[i], written[name].squares.matrix, 1e-9)


def test_a_transformer_layer_is_covered_and_trains():
    class Encoder(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
            self.last = Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.layer(x).mean(1))

    model, criterion = seeded(Encoder), Gaussian()
    losses = train(NGD(model, criterion, strict=True), criterion, X, Y, 25)
    assert losses[-1] < 0.5 * losses[0]


class Cross(Module):
    def __init__(self, **options: int) -> None:
        super().__init__()
        self.attention, self.last = (
            MultiheadAttention(4, 2, batch_first=True, **options),
            Linear(4, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attention(x, x[:, :2], x[:, :2], need_weights=False)[0].mean(1))


class WrittenCross(Written):
    """The same from Linear layers: queries of all positions, keys and values of the first two."""

    def forward(self, x: Tensor) -> Tensor:
        inputs = (x, x[:, :2], x[:, :2])
        layers = zip((self.q, self.k, self.v), inputs, strict=True)
        q, k, v = (f(a).unflatten(2, (2, 2)).transpose(1, 2) for f, a in layers)
        h = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.last(self.out(h.transpose(1, 2).flatten(2)).mean(1))


@pytest.mark.parametrize("method", ["kronecker", "diagonal"])
def test_cross_attention_is_that_of_linear_layers(method):
    """Keys and values have inputs of their own, here fewer than the queries."""
    cross = seeded(Cross)
    written = WrittenCross().double().train()
    written.load_state_dict(copy(cross).state_dict())
    found, apart = blocks(cross, method=method), blocks(written, method=method)
    for i, name in enumerate("qkv"):
        if method == "diagonal":
            assert_near(found["attention"].squares.matrix[i], apart[name].squares.matrix, 1e-9)
            continue
        for side in ("inputs", "errors"):
            ours, theirs = getattr(found["attention"], side), getattr(apart[name], side)
            assert_near(symmetric(ours.matrix[i]), symmetric(theirs.matrix), 1e-9)


def test_projections_with_sizes_of_their_own_see_their_inputs():
    class Sizes(Cross):
        def forward(self, x: Tensor) -> Tensor:
            keys = x[:, :2, :3]
            return self.last(self.attention(x, keys, keys, need_weights=False)[0].mean(1))

    with pytest.warns(UncoveredWarning, match="in_proj_bias"):
        optimizer = NGD(seeded(lambda: Sizes(kdim=3, vdim=3)), Gaussian(), factors=EXACT)
    backward(optimizer.model, optimizer.likelihood, X, Y)
    optimizer.step()
    found = optimizer._core.preconditioner.blocks
    for kind, x in (("q", X), ("k", X[:, :2, :3]), ("v", X[:, :2, :3])):
        rows = x.reshape(-1, x.shape[-1])
        inputs = symmetric(found[f"attention.{kind}_proj_weight"].inputs.matrix)
        assert_near(inputs, rows.mT @ rows / len(rows), 1e-9)
