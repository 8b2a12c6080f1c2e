"""Poisson's equation in five dimensions, u = Π sin πxᵢ, on 2000 random points."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=100)
torch.manual_seed(100)
net = Sequential(Linear(5, 64), Tanh(), Linear(64, 1))
x = torch.rand(2000, 5, requires_grad=True)


def truth(x):
    return torch.sin(math.pi * x).prod(1)


def field(x):
    """0 on all faces, and symmetric under xᵢ → 1 − xᵢ as the source is, by construction."""
    z = 4 * x * (1 - x)
    return net(z)[:, 0] * z.prod(1)


def closure():
    (slope,) = torch.autograd.grad(field(x).sum(), x, create_graph=True)
    second = [
        torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(5)
    ]
    return torch.stack(second).sum(0) + 5 * math.pi**2 * truth(x.detach())


optimizer = ng.GaussNewton(net)
losses = [optimizer.step(closure) for _ in range(arguments.steps)]

others = torch.rand(4000, 5)
along = torch.full((201, 5), 0.5)
along[:, 0] = torch.linspace(0, 1, 201)
with torch.no_grad():
    error = field(others) - truth(others)
    profile = field(along)
relative = error.norm() / truth(others).norm()
print(f"relative L2 error {relative:.1e} on 4000 other points")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
axes[1].plot(along[:, 0], profile)
axes[1].set(xlabel="x₁, all others 0.5", title="solution along a line")
axes[2].hist(error, bins=60)
axes[2].set(xlabel="error at other points", title=f"relative error {relative:.1e}")
axes[2].ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
save(figure, arguments.out / "poisson5d.png")
