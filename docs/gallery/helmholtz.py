"""The Helmholtz equation Δu + k²u = f on the unit square, k = 4π; u = sin πx sin 4πy."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=400)
torch.manual_seed(100)
net = Sequential(Linear(2, 64), Tanh(), Linear(64, 1))
k2 = (4 * math.pi) ** 2

t = (torch.arange(30) + 0.5) / 30
x = torch.cartesian_prod(t, t).requires_grad_()
low, high = torch.zeros(30), torch.ones(30)
sides = [(t, low), (t, high), (low, t), (high, t)]
boundary = torch.cat([torch.stack(side, 1) for side in sides])


def truth(x):
    return torch.sin(math.pi * x[:, 0]) * torch.sin(4 * math.pi * x[:, 1])


def closure():
    u = net(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    second = [torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in (0, 1)]
    source = (k2 - 17 * math.pi**2) * truth(x.detach())
    residual = second[0] + second[1] + k2 * u[:, 0] - source
    return {"interior": residual, "boundary": (net(boundary)[:, 0], 1000.0)}


optimizer = ng.GaussNewton(net)
losses = [optimizer.step(closure) for _ in range(arguments.steps)]

grid = torch.linspace(0, 1, 81)
points = torch.cartesian_prod(grid, grid)
with torch.no_grad():
    u = net(points)[:, 0]
error = u - truth(points)
print(f"relative L2 error {error.norm() / truth(points).norm():.1e}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
for panel, values, title in ((axes[1], u, "solution"), (axes[2], error, "error")):
    image = panel.imshow(
        values.reshape(81, 81).T, origin="lower", extent=(0, 1, 0, 1), cmap="coolwarm"
    )
    figure.colorbar(image, ax=panel)
    panel.set(title=title, xlabel="x", ylabel="y")
save(figure, arguments.out / "helmholtz.png")
