"""Two spirals, told apart by exact steps on logits."""

import math

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=400)
torch.manual_seed(100)
net = Sequential(Linear(2, 32), Tanh(), Linear(32, 32), Tanh(), Linear(32, 1))

i = torch.arange(97.0)
angle, radius = i * math.pi / 16, (104 - i) / 104
arm = torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1)
x, y = torch.cat([arm, -arm]), torch.cat([torch.ones(97), -torch.ones(97)])

optimizer = ng.GaussNewton(net, ng.Bernoulli())
losses = []
while len(losses) < arguments.steps and (not losses or losses[-1] > 1e-4):
    losses.append(optimizer.step(lambda: (net(x)[:, 0], y)))
print(f"loss {losses[-1]:.1e} after {len(losses)} steps")

grid = torch.linspace(-1.1, 1.1, 161)
with torch.no_grad():
    p = torch.sigmoid(net(torch.cartesian_prod(grid, grid))).reshape(161, 161)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6))
left.semilogy(losses)
left.set(xlabel="step", ylabel="loss", title="loss")
right.imshow(p.T, origin="lower", extent=(-1.1, 1.1, -1.1, 1.1), cmap="coolwarm")
right.scatter(*arm.T, s=8, color="#67001f")
right.scatter(*-arm.T, s=8, color="#053061")
right.set(title="probability of the first arm")
save(figure, arguments.out / "spirals.png")
