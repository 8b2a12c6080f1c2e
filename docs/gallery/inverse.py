"""An unknown coefficient: κ of u_t = κ u_xx from 200 observations with noise."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=100)
torch.manual_seed(100)
net = Sequential(Linear(2, 32), Tanh(), Linear(32, 1))
kappa = torch.nn.Parameter(torch.tensor(1.0))  # the truth is 0.25

t = (torch.arange(25) + 0.5) / 25
x = torch.cartesian_prod(t, t).requires_grad_()  # place, time
start = torch.stack([t, torch.zeros(25)], 1)
ends = torch.cat([torch.stack([torch.full((25,), side), t], 1) for side in (0.0, 1.0)])
observed = torch.rand(200, 2)
data = torch.exp(-0.25 * math.pi**2 * observed[:, 1]) * torch.sin(math.pi * observed[:, 0])
data = data + 0.01 * torch.randn(200)


def closure():
    u = net(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    return {
        "equation": (slope[:, 1] - kappa * second[:, 0], 100.0),
        "start": (net(start)[:, 0] - torch.sin(math.pi * start[:, 0]), 400.0),
        "ends": (net(ends)[:, 0], 400.0),
        "data": net(observed)[:, 0] - data,
    }


optimizer = ng.GaussNewton(net, coefficients=[kappa])
path = []
for _ in range(arguments.steps):
    optimizer.step(closure)
    path.append(kappa.item())
print(f"κ = {path[-1]:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
left.plot(path)
left.axhline(0.25, color="black", linewidth=0.8)
left.set(xlabel="step", ylabel="κ", title=f"coefficient, at the end {path[-1]:.4f}")
image = right.scatter(*observed.T, c=data, s=12)
right.set(xlabel="x", ylabel="t", title="observations, noise 0.01")
figure.colorbar(image, ax=right)
save(figure, arguments.out / "inverse.png")
