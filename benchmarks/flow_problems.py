"""Gradient flows with fields written by hand in NumPy, solved by SciPy to thirteen digits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import expit

import natgrad as ng
from natgrad.parametrizations.base import flatten

F64 = torch.float64
Field = Callable[[np.ndarray], np.ndarray]


@dataclass
class FlowProblem:
    """A gradient flow from params to a time.

    Attributes:
        likelihood: The loss.
        model: The parametrization.
        params: Parameters at time 0.
        batch: Inputs and labels.
        until: Final time.
        field: −∇L of a flat array, written by hand.
        hypothesis: What errors are measured in, of a flat array.
        log_time: Whether the reference is integrated in log(1 + t).
    """

    likelihood: Any
    model: Any
    params: Any
    batch: tuple[torch.Tensor, torch.Tensor]
    until: float
    field: Field
    hypothesis: Field
    log_time: bool = False

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return what `integrate` takes."""
        return (ng.euclidean, self.likelihood, self.model, self.params, self.batch)

    @cached_property
    def reference(self) -> np.ndarray:
        """Return the hypothesis at the end, by SciPy's DOP853 on the field written by hand."""
        start, end = flatten(self.params).numpy(), self.until

        def stretched(s: float, y: np.ndarray) -> np.ndarray:
            return np.exp(s) * self.field(y) if self.log_time else self.field(y)

        end = np.log1p(end) if self.log_time else end
        options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-15}
        return self.hypothesis(solve_ivp(stretched, (0, end), start, **options).y[:, -1])

    def solve(self, method: str, rtol: float, **options: Any) -> tuple[float, ng.Trajectory[Any]]:
        """Return the relative error of the hypothesis at the end, and the trajectory."""
        end = torch.tensor([self.until], dtype=F64)
        path = ng.integrate(
            *self.arguments, until=self.until, times=end, method=method, rtol=rtol, **options
        )
        found = self.hypothesis(flatten(path.final).numpy())
        error = np.linalg.norm(found - self.reference) / np.linalg.norm(self.reference)
        return float(error), path


def drawn(seed: int) -> Callable[..., torch.Tensor]:
    """Return a source of normal tensors."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, dtype=F64, generator=generator)


def diagonal(n: int, d: int, depth: int, until: float, *, noise: float = 0.0) -> FlowProblem:
    """Return logistic loss of β = w₁ ⊙ ⋯ ⊙ w_L, from w₁ = 0."""
    draw = drawn(0)
    x = draw(n, d)
    y = torch.sign(x[:, : max(1, d // 10)].sum(1) + noise * draw(n))
    scale = {1: 1.0, 2: 0.1, 3: 0.1, 4: 0.2}[depth]
    params = ng.Diagonal(depth).init_free(d, scale=scale)
    if depth == 1:
        params = torch.zeros_like(params)
    signed = (y[:, None] * x).numpy()

    def field(flat: np.ndarray) -> np.ndarray:
        w = flat.reshape(depth, d)
        slope = signed.T @ expit(-(signed @ w.prod(0))) / n
        return np.stack([np.delete(w, i, 0).prod(0) * slope for i in range(depth)]).ravel()

    return FlowProblem(
        ng.Bernoulli(), ng.Diagonal(depth), params, (x, y), until, field,
        lambda flat: flat.reshape(depth, d).prod(0), True,
    )  # fmt: skip


def product(m: int, depth: int, until: float) -> FlowProblem:
    """Return completion of an m × m matrix of rank 2 from four entries in ten."""
    draw = drawn(0)
    target = draw(m, 2) @ draw(2, m)
    target *= m / target.norm()
    mask = draw(m, m) < -0.25
    size = 0.1 ** (1 / depth) * m**-0.5
    params = tuple(size * draw(m, m) for _ in range(depth))
    seen, values = mask.numpy(), (target * mask).numpy()

    def chain(flat: np.ndarray) -> list[np.ndarray]:
        out = [np.eye(m)]
        for w in flat.reshape(depth, m, m):
            out.append(out[-1] @ w)
        return out

    def field(flat: np.ndarray) -> np.ndarray:
        left = chain(flat)
        back, out = values - seen * left[-1], []
        for i in range(depth - 1, -1, -1):
            out.append(left[i].T @ back)
            back = back @ flat.reshape(depth, m, m)[i].T
        return np.stack(out[::-1]).ravel()

    return FlowProblem(
        ng.Gaussian(reduction="sum"), ng.MatrixProduct(depth), params,
        (mask.nonzero(), target[mask]), until, field, lambda flat: chain(flat)[-1],
    )  # fmt: skip


def deep_linear(until: float) -> FlowProblem:
    """Return a 10–8–8–5 linear network, inputs of scales from 1 to 0.1."""
    draw, sizes, n = drawn(0), (10, 8, 8, 5), 60
    x = draw(n, 10) * torch.logspace(0, -1, 10, dtype=F64)
    y = x @ draw(10, 5) + 0.1 * draw(n, 5)
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    params = tuple(draw(a, b) / b**0.5 for a, b in shapes)
    square, cross = (x.mT @ x / n).numpy(), (y.mT @ x / n).numpy()
    cuts = np.cumsum([a * b for a, b in shapes])[:-1]

    def layers(flat: np.ndarray) -> list[np.ndarray]:
        return [w.reshape(s) for w, s in zip(np.split(flat, cuts), shapes, strict=True)]

    def totals(flat: np.ndarray) -> list[np.ndarray]:
        out = [np.eye(10)]
        for w in layers(flat):
            out.append(w @ out[-1])
        return out

    def field(flat: np.ndarray) -> np.ndarray:
        below = totals(flat)
        back, out = cross - below[-1] @ square, []
        for w, before in zip(layers(flat)[::-1], below[-2::-1], strict=True):
            out.append((back @ before.T).ravel())
            back = w.T @ back
        return np.concatenate(out[::-1])

    return FlowProblem(
        ng.Gaussian(), ng.DeepLinear(sizes), params, (x, y), until, field,
        lambda flat: totals(flat)[-1],
    )  # fmt: skip


def softmax(until: float) -> FlowProblem:
    """Return softmax regression with four classes that overlap."""
    draw, n, d, k = drawn(0), 50, 8, 4
    x = draw(n, d)
    y = torch.argmax(x @ draw(d, k) + draw(n, k), 1)
    inputs, labels = x.numpy(), np.eye(k)[y.numpy()]

    def field(flat: np.ndarray) -> np.ndarray:
        s = inputs @ flat.reshape(d, k)
        p = np.exp(s - s.max(1, keepdims=True))
        return (inputs.T @ (labels - p / p.sum(1, keepdims=True)) / n).ravel()

    start = torch.zeros(d, k, dtype=F64)
    return FlowProblem(
        ng.Categorical(), ng.Direct(), start, (x, y), until, field, lambda flat: flat, True
    )


def tanh(until: float, *, labels: bool) -> FlowProblem:
    """Return a 4–16–1 tanh network on squared loss, or with labels on logistic loss."""
    draw, n, d, h = drawn(0), 30, 4, 16
    x = draw(n, d)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    y = torch.sign(y) if labels else y
    parts = (draw(h, d) / d**0.5, 0.1 * draw(h), draw(1, h) / h**0.5, torch.zeros(1, dtype=F64))
    module = torch.nn.Sequential(
        torch.nn.Linear(d, h), torch.nn.Tanh(), torch.nn.Linear(h, 1), torch.nn.Flatten(0)
    ).double()
    params = dict(zip((name for name, _ in module.named_parameters()), parts, strict=True))
    inputs, targets = x.numpy(), y.numpy()
    cuts = np.cumsum([h * d, h, h])

    def forward(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        w, b, a, c = np.split(flat, cuts)
        q = np.tanh(inputs @ w.reshape(h, d).T + b)
        return q, a, q @ a + c

    def field(flat: np.ndarray) -> np.ndarray:
        q, a, out = forward(flat)
        r = targets * expit(-targets * out) if labels else targets - out
        back = (r / n)[:, None] * a * (1 - q * q)
        return np.concatenate([(back.T @ inputs).ravel(), back.sum(0), q.T @ r / n, [r.sum() / n]])

    loss = ng.Bernoulli() if labels else ng.Gaussian()
    network = ng.Network(module)
    return FlowProblem(
        loss, network, params, (x, y), until, field, lambda flat: forward(flat)[2], labels
    )


PROBLEMS: dict[str, Callable[[], FlowProblem]] = {
    "logistic regression, 200 × 20, not separable": lambda: diagonal(200, 20, 1, 1e3, noise=2.0),
    "diagonal L = 1, 40 × 100": lambda: diagonal(40, 100, 1, 1e4),
    "diagonal L = 2, 40 × 100": lambda: diagonal(40, 100, 2, 1e4),
    "diagonal L = 3, 40 × 100": lambda: diagonal(40, 100, 3, 1e4),
    "diagonal L = 4, 40 × 100": lambda: diagonal(40, 100, 4, 1e4),
    "diagonal L = 2 in the plane": lambda: diagonal(6, 2, 2, 1e6),
    "diagonal L = 4 in the plane": lambda: diagonal(6, 2, 4, 1e4),
    "product L = 2, 40 × 40": lambda: product(40, 2, 20.0),
    "product L = 3, 40 × 40": lambda: product(40, 3, 20.0),
    "product L = 4, 40 × 40": lambda: product(40, 4, 20.0),
    "deep linear 10–8–8–5": lambda: deep_linear(50.0),
    "softmax, 50 × 8, 4 classes": lambda: softmax(1e3),
    "tanh network 4–16–1": lambda: tanh(100.0, labels=False),
    "tanh network, logistic loss": lambda: tanh(1e4, labels=True),
}
