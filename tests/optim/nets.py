"""Small networks, batches and loops that the optimizer's tests share."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Conv2d, Flatten, Linear, Module, Parameter, Sequential, Tanh

from natgrad.likelihoods import Likelihood
from natgrad.optim import NGD
from natgrad.optim._curvature.factor import symmetric
from tests.helpers import F64, generator, randn


def seeded(build: Callable[[], Module], seed: int = 0, dtype: torch.dtype = F64) -> Module:
    """A module in training mode, with weights of standard deviation 1/√(fan-in)."""
    made = build().to(dtype)
    source = generator(seed)
    with torch.no_grad():
        for p in made.parameters():
            scale = 1.0 if p.ndim < 2 else p[0].numel() ** -0.5
            p.copy_(scale * torch.randn(p.shape, dtype=F64, generator=source))
    return made.train()


def linear_chain(*widths: int, bias: bool = False, seed: int = 0) -> Sequential:
    """A deep linear network of square-ish weights near the identity, far from singular."""
    layers = [Linear(a, b, bias=bias).double() for a, b in pairwise(widths)]
    source = generator(seed)
    with torch.no_grad():
        for layer in layers:
            noise = torch.randn(layer.weight.shape, dtype=F64, generator=source)
            layer.weight.copy_(torch.eye(*layer.weight.shape, dtype=F64) + 0.2 * noise)
            if bias:
                layer.bias.copy_(torch.randn(layer.bias.shape, dtype=F64, generator=source))
    return Sequential(*layers)


def mlp(*widths: int, bias: bool = True) -> Sequential:
    layers: list[Module] = []
    for a, b in pairwise(widths):
        layers += [Linear(a, b, bias=bias), Tanh()]
    return Sequential(*layers[:-1])


def conv_net() -> Sequential:
    return Sequential(
        Conv2d(2, 3, 3, stride=2, padding=1, dilation=1),
        Tanh(),
        Conv2d(3, 2, 2, bias=False),
        Tanh(),
        Flatten(),
        Linear(8, 3),
    )


def images(n: int, seed: int = 0) -> Tensor:
    return randn(n, 2, 6, 6, seed=seed)


def backward(model: Module, criterion: Likelihood, x: Tensor, y: Tensor) -> Tensor:
    for p in model.parameters():
        p.grad = None
    loss = criterion(model(x), y)
    loss.backward()
    return loss.detach()


def train(optimizer: NGD, criterion: Likelihood, x: Tensor, y: Tensor, steps: int) -> list[float]:
    """The plain loop on one batch; returns the losses before each step."""
    losses = []
    for _ in range(steps):
        loss = criterion(optimizer.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def factors_of(optimizer: NGD) -> dict[str, tuple[Tensor, Tensor]]:
    """(Λ, Λ̃) of every layer, symmetric."""
    blocks = optimizer._core.preconditioner.blocks
    return {
        name: (symmetric(block.inputs.matrix), symmetric(block.errors.matrix))
        for name, block in blocks.items()
    }


def weights_of(model: Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def joint(gradients: dict[str, Tensor], name: str) -> Tensor:
    """Weight and bias of one layer as one matrix, the bias last."""
    weight = gradients[f"{name}.weight"].flatten(1)
    bias = gradients.get(f"{name}.bias")
    return weight if bias is None else torch.cat([weight, bias[:, None]], dim=1)


class Scale(Module):
    """A layer that the optimizer does not know, with a parameter."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight
