"""Regression on 400 samples of Franke's function."""

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=150)
torch.manual_seed(100)
net = Sequential(Linear(2, 20), Tanh(), Linear(20, 20), Tanh(), Linear(20, 1))


def franke(x):
    a, b = 9 * x[:, 0], 9 * x[:, 1]
    return (
        0.75 * torch.exp(-((a - 2) ** 2 + (b - 2) ** 2) / 4)
        + 0.75 * torch.exp(-((a + 1) ** 2) / 49 - (b + 1) / 10)
        + 0.5 * torch.exp(-((a - 7) ** 2 + (b - 3) ** 2) / 4)
        - 0.2 * torch.exp(-((a - 4) ** 2) - (b - 7) ** 2)
    )


x = torch.rand(400, 2)
y = franke(x)
optimizer = ng.GaussNewton(net)
losses = [optimizer.step(lambda: net(x)[:, 0] - y) for _ in range(arguments.steps)]

grid = torch.linspace(0, 1, 81)
points = torch.cartesian_prod(grid, grid)
with torch.no_grad():
    error = net(points)[:, 0] - franke(points)
print(f"root mean square error on a grid {error.square().mean().sqrt():.1e}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
for panel, values, title in ((axes[1], franke(points) + error, "fit"), (axes[2], error, "error")):
    image = panel.imshow(values.reshape(81, 81).T, origin="lower", extent=(0, 1, 0, 1))
    figure.colorbar(image, ax=panel)
    panel.set(title=title)
axes[1].scatter(*x.T, s=2, color="white")
save(figure, arguments.out / "franke.png")
