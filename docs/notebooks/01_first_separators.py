"""
First separators
================

Many lines separate two classes of points. Which one does an optimizer pick? You
train linear classifiers with gradient descent and with natural gradient descent,
at several depths, and compare the answers with the limits that theory predicts.
"""

# %%
# Forty points in the plane, those of Figure 2 in *Depth without the magic*.

import math

import matplotlib.pyplot as plt
import torch

import natgrad as ng

x, y = ng.data.separable.planar(40).batch

# %%
# A linear classifier has coefficients β. A diagonal network of depth L writes
# them as a product of L factors, β = w₁ ⊙ … ⊙ w_L. It represents the same
# classifiers. ``integrate`` follows the flow, the limit of small steps, up to
# time 10¹² in a second. EGD is gradient descent (Euclidean), and NGD is natural
# gradient descent.

times = torch.logspace(-1, 12, 40, dtype=torch.float64)


def train(direction, depth):
    network = ng.Diagonal(depth)
    # The first factor starts at 0, the others at 0.1.
    start = network.init_free(2, scale=0.1)
    problem = ng.Bernoulli(), network, start, (x, y)
    path = ng.integrate(direction, *problem, until=1e12, times=times, rtol=1e-4)
    return path.states.prod(1)  # β at each time


paths = {f"EGD, depth {depth}": train(ng.euclidean, depth) for depth in (1, 2, 4)}
paths |= {f"NGD, depth {depth}": train(ng.natural, depth) for depth in (1, 3)}

# %%
# Every method separates the two classes. EGD picks a different line at each
# depth; NGD picks the same line at both depths.

figure, axes = plt.subplots(figsize=(5, 4.5))
for label, color in ((1, "tab:gray"), (-1, "black")):
    axes.scatter(*x[y == label].T, s=18, color=color)
size = float(x.abs().max())
across = torch.linspace(-2 * size, 2 * size, 2, dtype=x.dtype)
for name, path in paths.items():
    b = path[-1] / path[-1].norm()
    style = "--" if name == "NGD, depth 3" else "-"
    axes.plot(-b[1] * across, b[0] * across, style, label=name)
axes.set(xlim=(-size, size), ylim=(-size, size))
axes.set(title="Which line separates the points?")
axes.legend(loc="lower left")
plt.show()

# %%
# Theory predicts the lines. Gradient flow at depth 1 tends to the ℓ2 max margin,
# at depth 2 to the ℓ1 max margin, and natural gradient flow tends to the vertex
# of a linear program. The functions in ``limits`` compute these with solvers that
# know nothing of training.

limits = {
    "ℓ2 max margin": ng.limits.max_margin(x, y, p=2),
    "ℓ1 max margin": ng.limits.max_margin(x, y, p=1),
    "vertex": ng.limits.natural_flow(x, y),
}
for name, limit in limits.items():
    print(f"{name:14} certified to {limit.certificate:.0e}")

# %%
# Compare the angles of β. At depth 2 the limit is approached so slowly, like
# 1/log t, that no training will ever reach it. At depth 4 the classifier uses the
# first feature alone, for good.


def degrees(beta):
    return torch.rad2deg(torch.atan2(beta[..., 1], beta[..., 0]))


figure, axes = plt.subplots(figsize=(6.5, 4))
for name, path in paths.items():
    style = "--" if name == "NGD, depth 3" else "-"
    axes.plot(times, degrees(path), style, label=name)
for name, limit in limits.items():
    height = float(degrees(limit.solution))
    axes.axhline(height, color="black", linewidth=0.7, linestyle=":")
    axes.text(0.12, height + 0.6, name, fontsize=8)
axes.set(xscale="log", xlabel="time", ylim=(-2, 42))
axes.set(ylabel="angle of β in degrees")
axes.set(title="Each method has its own limit")
axes.legend()
plt.show()

# %%
# Now it is your turn. Move a point, use another depth, or start from ``scale=3``:
# then depth makes almost no difference at first. The lines below check this page as
# it is. Delete them when you change it.


def gap(method, limit, when=-1):
    return abs(
        float(degrees(paths[method][when]) - degrees(limits[limit].solution))
    )


assert gap("EGD, depth 1", "ℓ2 max margin") < 0.05
assert gap("EGD, depth 2", "ℓ1 max margin") < gap(
    "EGD, depth 2", "ℓ1 max margin", when=20
)
assert gap("NGD, depth 1", "vertex") < 1e-3
assert gap("NGD, depth 3", "vertex") < 1e-3
assert math.isclose(float(paths["EGD, depth 4"][-1, 1]), 0, abs_tol=0.01)
