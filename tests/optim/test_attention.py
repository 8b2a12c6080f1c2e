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


def test_attention_to_something_else_is_named_and_takes_plain_steps():
    model, criterion = seeded(Cross), Gaussian()
    optimizer = NGD(model, criterion)
    with pytest.warns(UncoveredWarning, match="attention.in_proj_weight"):
        train(optimizer, criterion, X, Y, 1)
    losses = train(optimizer, criterion, X, Y, 10)
    assert losses[-1] < losses[0]
    with pytest.warns(UncoveredWarning, match="size of their own"):
        NGD(Cross(kdim=3, vdim=3).double(), criterion)
