"""A model of DeepXDE, −Δu = 2π² sin πx sin πy with u = 0 on the sides, trained by GaussNewton.

Needs `pip install deepxde`. DeepXDE describes the equation and draws the points. `residuals` below
is all that is needed to pass them on: it evaluates each condition at its own points, so that every
residual belongs to one row of the network's input.
"""

import os
from itertools import pairwise

os.environ.setdefault("DDE_BACKEND", "pytorch")

import deepxde as dde
import matplotlib.pyplot as plt
import numpy as np
import torch
from _picture import options, save

import natgrad as ng

arguments = options(steps=150)
dde.config.set_default_float("float64")
dde.config.set_random_seed(100)
WEIGHTS = [1.0, 4.0]


def truth(x):
    return np.sin(np.pi * x).prod(1, keepdims=True)


def equation(x, u):
    second = [dde.grad.hessian(u, x, i=i, j=i) for i in (0, 1)]
    return second[0] + second[1] + 2 * np.pi**2 * torch.sin(np.pi * x).prod(1, keepdim=True)


square = dde.geometry.Rectangle([0, 0], [1, 1])
sides = dde.icbc.DirichletBC(square, lambda x: 0, lambda x, on_boundary: on_boundary)
data = dde.data.PDE(square, equation, sides, num_domain=900, num_boundary=120)
net = dde.nn.FNN([2, 32, 1], "tanh", "Glorot normal")
model = dde.Model(data, net)


def residuals(model, weights):
    """Return a closure for `GaussNewton` with one block per boundary condition, and the equation.

    `weights` are DeepXDE's loss weights: those of the equation, then those of the conditions.
    """
    data, net = model.data, model.net
    starts = np.cumsum([0, *data.num_bcs])
    parts = [data.train_x[a:b] for a, b in pairwise(starts)]
    inside = torch.as_tensor(data.train_x[starts[-1] :]).requires_grad_()

    def closure():
        dde.grad.clear()  # DeepXDE keeps derivatives of earlier calls
        found = data.pde(inside, net(inside))
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        for condition, part in zip(data.bcs, parts, strict=True):
            x = torch.as_tensor(part).requires_grad_()
            found.append(condition.error(part, x, net(x), 0, len(part)))
        named = zip(found, weights, strict=True)
        return {f"residual {i}": (r, weight) for i, (r, weight) in enumerate(named)}

    return closure


optimizer = ng.GaussNewton(net)
closure = residuals(model, WEIGHTS)
losses = [optimizer.step(closure) for _ in range(arguments.steps)]

# DeepXDE's own functions work on the trained network, and its loss is twice that of GaussNewton.
model.compile("adam", lr=1e-3, loss_weights=WEIGHTS)
history, _ = model.train(iterations=0, verbose=0)
assert np.isclose(sum(history.loss_train[0]), 2 * optimizer.statistics.new_loss)
grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 81)] * 2, indexing="ij"), -1).reshape(-1, 2)
u = model.predict(grid)
error = u - truth(grid)
print(f"relative L2 error {np.linalg.norm(error) / np.linalg.norm(truth(grid)):.1e}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].semilogy(losses)
axes[0].set(xlabel="step", ylabel="loss", title="loss")
for panel, values, title in ((axes[1], u, "solution"), (axes[2], error, "error")):
    image = panel.imshow(values.reshape(81, 81).T, origin="lower", extent=(0, 1, 0, 1))
    figure.colorbar(image, ax=panel)
    panel.set(title=title, xlabel="x", ylabel="y")
save(figure, arguments.out / "with_deepxde.png")
