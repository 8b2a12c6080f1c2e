"""The heat equation u_t = 0.25 u_xx, u = sin πx at t = 0 and 0 at both ends."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=150)
torch.manual_seed(100)
net = Sequential(Linear(2, 64), Tanh(), Linear(64, 1))

t = (torch.arange(30) + 0.5) / 30
x = torch.cartesian_prod(t, t).requires_grad_()  # place, time
start = torch.stack([t, torch.zeros(30)], 1)
ends = torch.cat([torch.stack([torch.full((30,), side), t], 1) for side in (0.0, 1.0)])


def truth(x):
    return torch.exp(-0.25 * math.pi**2 * x[:, 1]) * torch.sin(math.pi * x[:, 0])


def closure():
    u = net(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    return {
        "equation": slope[:, 1] - 0.25 * second[:, 0],
        "start": (net(start)[:, 0] - truth(start), 4.0),
        "ends": (net(ends)[:, 0], 4.0),
    }


optimizer = ng.GaussNewton(net)
losses = [optimizer.step(closure) for _ in range(arguments.steps)]

place, time = torch.linspace(0, 1, 81), torch.linspace(0, 1, 81)
points = torch.cartesian_prod(place, time)
with torch.no_grad():
    u = net(points)[:, 0]
error = u - truth(points)
print(f"relative L2 error {error.norm() / truth(points).norm():.1e}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
for i in (0, 20, 40, 80):
    axes[1].plot(place, u.reshape(81, 81)[:, i], label=f"t = {float(time[i]):.2f}")
axes[1].legend()
axes[1].set(xlabel="x", title="solution")
image = axes[2].imshow(error.reshape(81, 81), origin="lower", extent=(0, 1, 0, 1), cmap="coolwarm")
figure.colorbar(image, ax=axes[2])
axes[2].set(xlabel="t", ylabel="x", title="error")
save(figure, arguments.out / "heat.png")
