"""The parity of ten spins on a chain, from all 1024 configurations."""

import matplotlib.pyplot as plt
import torch
from _picture import options, save
from torch.nn import Linear, Sequential, Tanh

import natgrad as ng

arguments = options(steps=150)
torch.manual_seed(100)
spins = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 10)
parity = spins.prod(1)
net = Sequential(Linear(10, 20), Tanh(), Linear(20, 1))

optimizer = ng.GaussNewton(net, ng.Bernoulli())
losses, right = [], []
while len(losses) < arguments.steps and (not losses or losses[-1] > 1e-3):
    losses.append(optimizer.step(lambda: (net(spins)[:, 0], parity)))
    with torch.no_grad():
        right.append(float((net(spins)[:, 0] * parity > 0).double().mean()))
print(f"loss {losses[-1]:.1e}, {right[-1]:.1%} right after {len(losses)} steps")

figure, (left, middle, last) = plt.subplots(1, 3, figsize=(11, 3.2))
left.semilogy(losses)
left.set(xlabel="step", ylabel="loss", title="loss")
middle.plot(right)
middle.set(xlabel="step", title="share of configurations that are right")
up = (spins.sum(1) / 2 + 5).int()
with torch.no_grad():
    last.scatter(
        up + 0.3 * torch.rand(1024) - 0.15, net(spins)[:, 0], c=parity, cmap="coolwarm", s=5
    )
last.axhline(0, color="black", linewidth=0.8)
last.set(xlabel="spins up", ylabel="logit", title="even (red) and odd (blue)")
save(figure, arguments.out / "parity.png")
