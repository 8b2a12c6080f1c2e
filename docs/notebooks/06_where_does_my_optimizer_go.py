"""
Where does my optimizer go?
===========================

On separable data the loss has no minimum: weights grow forever, in a direction
that depends on the optimizer. You run four optimizers, measure their margins in
three norms, and certify how close each is to its limit.
"""

# %%
# Thirty samples with twenty features of different scales, and random labels. With
# so many features the classes are separable.

import math

import matplotlib.pyplot as plt
import torch

import natgrad as ng
from natgrad.flows import adam, steepest

torch.manual_seed(0)
x = torch.randn(30, 20, dtype=torch.float64) * torch.logspace(
    -0.5, 0.5, 20, dtype=torch.float64
)
y = torch.sign(torch.randn(30, dtype=torch.float64))
print(ng.limits.separability(x, y).kind)

# %%
# Steepest descent in a norm uses only the gradient: in ℓ1 it is coordinate
# descent, in ℓ2 normalized gradient descent, in ℓ∞ sign descent. Steps shrink
# like 1/√k, as the theorems require. Adam with few steps of memory behaves like
# sign descent.

rules = {
    "coordinate descent": steepest(1, 0.2, decay=0.5),
    "gradient descent": steepest(2, 0.2, decay=0.5),
    "sign descent": steepest(math.inf, 0.1, decay=0.5),
    "Adam": adam(0.1, decay=0.5, beta2=0.95),
}
runs = {
    name: ng.descend(
        ng.euclidean,
        ng.Bernoulli(),
        ng.Direct(),
        torch.zeros(20, dtype=torch.float64),
        (x, y),
        step=rule,
        until=ng.stopping.steps_reached(3000),
        save_every=30,
    )
    for name, rule in rules.items()
}

# %%
# ``limits.max_margin`` computes the largest margin in each norm, with a
# certificate: the relative gap to a bound that no separator can exceed.

powers = {"ℓ1": 1, "ℓ2": 2, "ℓ∞": math.inf}
best = {name: ng.limits.max_margin(x, y, p) for name, p in powers.items()}
for name, limit in best.items():
    print(f"largest {name} margin {limit.value:.4f} to {limit.certificate:.0e}")

# %%
# The share of the largest margin that each run reaches. The largest share of each
# row names the limit.


def share(beta, name):
    margin = float(
        (y * (x @ beta)).min() / torch.linalg.vector_norm(beta, powers[name])
    )
    return margin / best[name].value


print(f"{'':20}" + "".join(f"{name:>8}" for name in powers))
table = {}
for method, run in runs.items():
    table[method] = {name: share(run.final, name) for name in powers}
    print(
        f"{method:20}"
        + "".join(f"{value:8.3f}" for value in table[method].values())
    )

# %%
# Natural gradient flow is different. It tends to the vertex of a linear program,
# which is a max margin in no norm. Theory gives it exactly.

vertex = ng.limits.natural_flow(x, y)
path = ng.integrate(
    ng.natural,
    ng.Bernoulli(),
    ng.Direct(),
    torch.zeros(20, dtype=torch.float64),
    (x, y),
    until=1e6,
)
degrees = float(torch.rad2deg(ng.diagnostics.angle(path.final, vertex.solution)))
shares = {name: share(path.final, name) for name in powers}
print(f"natural gradient: {degrees:.5f}° from the vertex")
print(
    "shares of the margins:",
    {name: f"{value:.3f}" for name, value in shares.items()},
)

# %%
# How each of them gets there:

figure, axes = plt.subplots(figsize=(6.5, 4))
own = dict(zip(runs, ("ℓ1", "ℓ2", "ℓ∞", "ℓ∞"), strict=True))
for method, run in runs.items():
    steps = 30 * torch.arange(1, len(run.states))
    values = [share(beta, own[method]) for beta in run.states[1:]]
    axes.plot(steps, values, label=f"{method}, share of the {own[method]} margin")
axes.set(
    title="Each optimizer approaches its own max margin",
    xlabel="step",
    ylim=(0, 1.05),
)
axes.legend()
plt.show()

# %%
# To place an optimizer of your own, write its step as a function of the gradient,
# or compute ``share`` for the weights that it found. The lines below check this
# page as it is. Delete them when you change it.

assert all(
    max(table[method], key=table[method].get) == norm
    for method, norm in own.items()
)
assert degrees < 0.01
