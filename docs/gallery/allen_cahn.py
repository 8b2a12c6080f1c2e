"""Allen and Cahn's equation u_t = 1e-4 u_xx + 5 (u − u³), periodic in x: new points."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=160)
torch.manual_seed(100)
net = Sequential(
    Linear(3, 20), Tanh(), Linear(20, 20), Tanh(), Linear(20, 20), Tanh(), Linear(20, 1)
)
points = {}


def draw():
    """A third of the points is near x = ±1, where the slope of u jumps at t = 0."""
    z = torch.quasirandom.SobolEngine(2, True, len(losses)).draw(2500, dtype=torch.float64)
    place = 2 * z[:, 0] - 1
    near = place.sign() * (1 - torch.exp(-6 * place.abs()))
    z[:, 0] = torch.where(torch.arange(2500) % 3 == 0, near, place)
    points["x"] = z.requires_grad_()


def field(x):
    """x² cos πx at t = 0 and periodic by construction; the jump of the slope is smoothed."""
    place, time = x[:, 0], x[:, 1]
    width = torch.sqrt(4e-4 * time + 1e-30)
    d = 1 - place.abs()
    d = d * torch.erf(d / width) + width / math.sqrt(math.pi) * torch.exp(-((d / width) ** 2))
    features = torch.stack([torch.cos(math.pi * place), torch.sin(math.pi * place), time], 1)
    return -((1 - d) ** 2) * torch.cos(math.pi * d) + time * net(features)[:, 0]


def closure():
    x = points["x"]
    u = field(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    residual = slope[:, 1] - 1e-4 * second[:, 0] - 5 * (u - u**3)
    return torch.exp(2.5 * (1 - x[:, 1].detach())) * residual  # errors at early times grow


losses = []
optimizer = ng.GaussNewton(net, resample=draw)
for _ in range(arguments.steps):
    losses.append(optimizer.step(closure))
print(f"loss {losses[-1]:.1e}")

place, time = torch.linspace(-1, 1, 301), torch.linspace(0, 1, 101)
with torch.no_grad():
    u = field(torch.cartesian_prod(place, time)).reshape(301, 101)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
image = axes[1].imshow(u, origin="lower", extent=(0, 1, -1, 1), aspect="auto", cmap="coolwarm")
figure.colorbar(image, ax=axes[1])
axes[1].set(xlabel="t", ylabel="x", title="solution")
for i in (0, 20, 50, 100):
    axes[2].plot(place, u[:, i], label=f"t = {float(time[i]):.2f}")
axes[2].legend()
axes[2].set(xlabel="x", title="profiles")
save(figure, arguments.out / "allen_cahn.png")
