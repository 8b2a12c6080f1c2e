"""Gradient flows with fields written by hand in NumPy, solved by SciPy to thirteen digits."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import expit

import natgrad as ng
from natgrad.limits import natural_flow, separability
from natgrad.parametrizations.base import flatten

F64 = torch.float64
Field = Callable[[np.ndarray], np.ndarray]


class TooSlowError(Exception):
    """A solver has used up its CPU seconds."""


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
        log_time: Whether SciPy integrates in log(1 + t).
        jacobian: Jacobian of the field, where it is cheap to write.
        exact: The hypothesis at the end, where SciPy does not find it.
    """

    likelihood: Any
    model: Any
    params: Any
    batch: tuple[torch.Tensor, torch.Tensor]
    until: float
    field: Field
    hypothesis: Field
    log_time: bool = False
    jacobian: Field | None = None
    exact: Callable[[], np.ndarray] | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return what `integrate` takes."""
        return (ng.euclidean, self.likelihood, self.model, self.params, self.batch)

    @cached_property
    def reference(self) -> np.ndarray:
        """Return the hypothesis at the end, by SciPy's DOP853 on the field written by hand."""
        if self.exact is not None:
            return self.exact()
        return self.hypothesis(self.by_scipy("DOP853", 1e-13, 1e-15))

    def by_scipy(
        self, method: str, rtol: float, atol: float | None = None, seconds: float = np.inf
    ) -> np.ndarray:
        """Return the parameters at the end, by a method of SciPy on the field written by hand.

        Args:
            method: As in `scipy.integrate.solve_ivp`.
            rtol: Relative tolerance of a step.
            atol: Absolute tolerance; default that of `integrate`.
            seconds: CPU time after which `TooSlowError` is raised.
        """
        start, last = flatten(self.params).numpy(), time.process_time() + seconds
        size = float(np.sqrt(np.mean(start**2))) or 1.0

        def field(s: float, y: np.ndarray) -> np.ndarray:
            if time.process_time() > last:
                raise TooSlowError
            return np.exp(s) * self.field(y) if self.log_time else self.field(y)

        def jacobian(s: float, y: np.ndarray) -> np.ndarray:
            assert self.jacobian is not None
            return np.exp(s) * self.jacobian(y) if self.log_time else self.jacobian(y)

        options: dict[str, Any] = {
            "rtol": rtol,
            "atol": 1e-3 * rtol * size if atol is None else atol,
        }
        if self.jacobian is not None and method in ("LSODA", "BDF", "Radau"):
            options["jac"] = jacobian
        end = np.log1p(self.until) if self.log_time else self.until
        found = solve_ivp(field, (0, end), start, method=method, t_eval=[end], **options)
        return found.y[:, -1] if found.success else np.full_like(start, np.inf)

    def error(self, flat: np.ndarray) -> float:
        """Return the relative error of the hypothesis of parameters at the end."""
        gap = np.linalg.norm(self.hypothesis(flat) - self.reference)
        return float(gap / np.linalg.norm(self.reference))

    def solve(self, method: str, rtol: float, **options: Any) -> tuple[float, ng.Trajectory[Any]]:
        """Return the relative error of the hypothesis at the end, and the trajectory."""
        end = torch.tensor([self.until], dtype=F64)
        path = ng.integrate(
            *self.arguments, until=self.until, times=end, method=method, rtol=rtol, **options
        )
        return self.error(flatten(path.final).numpy()), path


def drawn(seed: int) -> Callable[..., torch.Tensor]:
    """Return a source of normal tensors."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, dtype=F64, generator=generator)


def diagonal(
    n: int, d: int, depth: int, until: float, *, noise: float = 0.0, seed: int = 0
) -> FlowProblem:
    """Return logistic loss of β = w₁ ⊙ ⋯ ⊙ w_L, from w₁ = 0."""
    draw = drawn(seed)
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

    def jacobian(flat: np.ndarray) -> np.ndarray:
        w = flat.reshape(depth, d)
        weights = expit(-(signed @ w.prod(0)))
        slope, curvature = (
            signed.T @ weights / n,
            (signed.T * (weights * (1 - weights))) @ signed / n,
        )
        rest = [np.delete(w, i, 0).prod(0) for i in range(depth)]
        out = -np.block([[p[:, None] * curvature * q for q in rest] for p in rest])
        for i, j in itertools.permutations(range(depth), 2):
            place = (np.arange(d) + i * d, np.arange(d) + j * d)
            out[place] += np.delete(w, (i, j), 0).prod(0) * slope
        return out

    return FlowProblem(
        ng.Bernoulli(), ng.Diagonal(depth), params, (x, y), until, field,
        lambda flat: flat.reshape(depth, d).prod(0), True, jacobian,
    )  # fmt: skip


def product(m: int, depth: int, until: float, *, seed: int = 0) -> FlowProblem:
    """Return completion of an m × m matrix of rank 2 from four entries in ten."""
    draw = drawn(seed)
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


def deep_linear(until: float, *, seed: int = 0) -> FlowProblem:
    """Return a 10–8–8–5 linear network, inputs of scales from 1 to 0.1."""
    draw, sizes, n = drawn(seed), (10, 8, 8, 5), 60
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


def softmax(until: float, *, seed: int = 0, n: int = 50, d: int = 8, k: int = 4) -> FlowProblem:
    """Return softmax regression with classes that overlap."""
    draw = drawn(seed)
    x = draw(n, d)
    y = torch.argmax(x @ draw(d, k) + draw(n, k), 1)
    inputs, labels = x.numpy(), np.eye(k)[y.numpy()]

    def probabilities(flat: np.ndarray) -> np.ndarray:
        s = inputs @ flat.reshape(d, k)
        p = np.exp(s - s.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def field(flat: np.ndarray) -> np.ndarray:
        return (inputs.T @ (labels - probabilities(flat)) / n).ravel()

    def jacobian(flat: np.ndarray) -> np.ndarray:
        p = probabilities(flat)
        out = np.empty((d, k, d, k))
        for a, b in itertools.product(range(k), repeat=2):
            out[:, a, :, b] = -(inputs.T * (p[:, a] * ((a == b) - p[:, b]))) @ inputs / n
        return out.reshape(d * k, d * k)

    start = torch.zeros(d, k, dtype=F64)
    return FlowProblem(
        ng.Categorical(),
        ng.Direct(),
        start,
        (x, y),
        until,
        field,
        lambda flat: flat,
        True,
        jacobian,
    )


def tanh(until: float, *, labels: bool, seed: int = 0) -> FlowProblem:
    """Return a 4–16–1 tanh network on squared loss, or with labels on logistic loss."""
    draw, n, d, h = drawn(seed), 30, 4, 16
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


class ReluFlow:
    """Gradient flow of a d–h–1 ReLU network on squared loss, kinks located and slid along by hand.

    With K = X Xᵀ + 1 the pre-activation of unit j at sample i moves at (aⱼ/n) Σ_m K_im r_m s_mj,
    where r are residuals and s the slopes of the ReLUs, 0 or 1. Slopes of pre-activations that stay
    at zero are those for which this speed vanishes.
    """

    def __init__(self, inputs: np.ndarray, targets: np.ndarray, h: int) -> None:
        self.x, self.y, self.h = inputs, targets, h
        self.kernel = inputs @ inputs.T + 1
        self.cuts = np.cumsum([h * inputs.shape[1], h, h])

    def forward(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pre-activations, last weights and outputs."""
        w, b, a, c = np.split(flat, self.cuts)
        z = self.x @ w.reshape(self.h, -1).T + b
        return z, a, np.maximum(z, 0) @ a + c

    def field(self, flat: np.ndarray, slopes: np.ndarray | None = None) -> np.ndarray:
        """Return −∇L, with the slopes of all ReLUs given or found."""
        z, a, out = self.forward(flat)
        slopes = z > 0 if slopes is None else slopes
        r = (self.y - out) / len(self.y)
        back = r[:, None] * a * slopes
        parts = [(back.T @ self.x).ravel(), back.sum(0), (slopes * z).T @ r, [r.sum()]]
        return np.concatenate(parts)

    def filled(self, flat: np.ndarray, slopes: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Return the slopes with which the pre-activations that are held stay at zero."""
        r, slopes = self.y - self.forward(flat)[2], slopes.astype(float)
        for j in np.nonzero(held.any(0))[0]:
            on = held[:, j]
            rest = self.kernel[np.ix_(on, ~on)] @ (r[~on] * slopes[~on, j])
            slopes[on, j] = np.linalg.solve(self.kernel[np.ix_(on, on)] * r[on], -rest)
        return slopes

    def speed(self, flat: np.ndarray, slopes: np.ndarray, i: int, j: int) -> float:
        """Return how fast one pre-activation moves."""
        _, a, out = self.forward(flat)
        return float(a[j] * self.kernel[i] @ ((self.y - out) * slopes[:, j]))

    def end(self, start: np.ndarray, until: float) -> np.ndarray:
        """Return the parameters at the end, by DOP853 at 1e-12 from kink to kink."""
        slopes = (self.forward(start)[0] > 0).astype(float)
        held = np.zeros(slopes.shape, dtype=bool)
        # How far past a kink it is noticed: each restart begins on the right side of zero.
        slack = np.full(slopes.shape, 1e-12)
        t, flat = 0.0, start

        def room(_: float, y: np.ndarray) -> np.ndarray:
            found = self.filled(y, slopes, held)
            z = self.forward(y)[0] * (2 * slopes - 1)
            return slack + np.where(held, np.minimum(found, 1 - found), z)

        def field(_: float, y: np.ndarray) -> np.ndarray:
            return self.field(y, self.filled(y, slopes, held))

        def nearest(t: float, y: np.ndarray) -> float:
            return float(room(t, y).min())

        nearest.terminal, nearest.direction = True, -1  # type: ignore[attr-defined]
        while t < until:
            run = solve_ivp(
                field, (t, until), flat, method="DOP853", rtol=1e-12, atol=1e-14,
                events=nearest, max_step=0.05,
            )  # fmt: skip
            t, flat = run.t[-1], run.y[:, -1]
            if run.status != 1:
                continue
            i, j = np.unravel_index(room(t, flat).argmin(), held.shape)
            if held[i, j]:
                self._release(flat, slopes, held, slack, i, j)
                continue
            flipped = np.abs(slopes - _one(held, i, j))
            sides = [
                self.speed(flat, self.filled(flat, one, held), i, j) for one in (slopes, flipped)
            ]
            if sides[0] * sides[1] >= 0:
                slopes = flipped
            else:
                held[i, j] = True
            while True:  # other slopes on the same unit jump with this one
                found = self.filled(flat, slopes, held)
                worst = np.unravel_index(np.abs(found - 0.5).argmax(), held.shape)
                if abs(found[worst] - 0.5) <= 0.5:
                    break
                self._release(flat, slopes, held, slack, *worst)
        return flat

    def _release(self, flat, slopes, held, slack, i, j) -> None:  # type: ignore[no-untyped-def]
        """Let one pre-activation leave its kink, on the side to which its slope points."""
        slopes[i, j] = float(self.filled(flat, slopes, held)[i, j] > 0.5)
        held[i, j], slack[i, j] = False, slack[i, j] + 3e-12


def _one(like: np.ndarray, i: int, j: int) -> np.ndarray:
    out = np.zeros(like.shape, dtype=bool)
    out[i, j] = True
    return out


def relu(until: float, *, seed: int = 0, n: int = 30, h: int = 16) -> FlowProblem:
    """Return a 4–h–1 ReLU network on squared loss."""
    draw, d = drawn(seed), 4
    x = draw(n, d)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    parts = (draw(h, d) / d**0.5, 0.1 * draw(h), draw(1, h) / h**0.5, torch.zeros(1, dtype=F64))
    module = torch.nn.Sequential(
        torch.nn.Linear(d, h), torch.nn.ReLU(), torch.nn.Linear(h, 1), torch.nn.Flatten(0)
    ).double()
    params = dict(zip((name for name, _ in module.named_parameters()), parts, strict=True))
    flow, start = ReluFlow(x.numpy(), y.numpy(), h), flatten(params).numpy()
    return FlowProblem(
        ng.Gaussian(), ng.Network(module), params, (x, y), until, flow.field,
        lambda flat: flow.forward(flat)[2],
        exact=lambda: flow.forward(flow.end(start, until))[2],
    )  # fmt: skip


Made = Callable[[int], FlowProblem]
"""From a seed to a problem."""

PROBLEMS: dict[str, Made] = {
    "logistic regression, 1000 × 50, not separable": lambda s: diagonal(
        1000, 50, 1, 1e3, noise=2.0, seed=s
    ),
    "diagonal L = 1, 200 × 500": lambda s: diagonal(200, 500, 1, 1e4, seed=s),
    "diagonal L = 2, 200 × 500": lambda s: diagonal(200, 500, 2, 1e4, seed=s),
    "diagonal L = 3, 200 × 500": lambda s: diagonal(200, 500, 3, 1e4, seed=s),
    "diagonal L = 4, 200 × 500": lambda s: diagonal(200, 500, 4, 1e4, seed=s),
    "diagonal L = 2 in the plane": lambda s: diagonal(6, 2, 2, 1e6, seed=s),
    "diagonal L = 4 in the plane": lambda s: diagonal(6, 2, 4, 1e4, seed=s),
    "product L = 2, 40 × 40": lambda s: product(40, 2, 20.0, seed=s),
    "product L = 3, 40 × 40": lambda s: product(40, 3, 20.0, seed=s),
    "product L = 4, 40 × 40": lambda s: product(40, 4, 20.0, seed=s),
    "deep linear 10–8–8–5": lambda s: deep_linear(50.0, seed=s),
    "softmax, 300 × 20, 5 classes": lambda s: softmax(1e3, seed=s, n=300, d=20, k=5),
    "tanh network 4–16–1": lambda s: tanh(100.0, labels=False, seed=s),
    "tanh network, logistic loss": lambda s: tanh(1e4, labels=True, seed=s),
    "ReLU network 4–16–1": lambda s: relu(10.0, seed=s),
}
"""Problems on which speed is compared, with seed 0; tolerances of methods were chosen on them."""

SEEDS = (101, 102, 103)
FRESH: dict[str, Made] = {
    "logistic regression, 90 × 12": lambda s: diagonal(90, 12, 1, 300.0, noise=1.0, seed=s),
    "diagonal L = 1, 25 × 60": lambda s: diagonal(25, 60, 1, 1e5, seed=s),
    "diagonal L = 2, 30 × 80": lambda s: diagonal(30, 80, 2, 1e5, seed=s),
    "diagonal L = 3, 30 × 50": lambda s: diagonal(30, 50, 3, 3e3, seed=s),
    "diagonal L = 4, 25 × 70": lambda s: diagonal(25, 70, 4, 3e3, seed=s),
    "diagonal L = 3 in three dimensions": lambda s: diagonal(9, 3, 3, 1e5, seed=s),
    "product L = 2, 25 × 25": lambda s: product(25, 2, 15.0, seed=s),
    "product L = 3, 25 × 25": lambda s: product(25, 3, 15.0, seed=s),
    "product L = 4, 15 × 15": lambda s: product(15, 4, 10.0, seed=s),
    "deep linear": lambda s: deep_linear(30.0, seed=s),
    "softmax": lambda s: softmax(300.0, seed=s),
    "tanh network": lambda s: tanh(30.0, labels=False, seed=s),
    "tanh network, logistic": lambda s: tanh(1e3, labels=True, seed=s),
    "ReLU network": lambda s: relu(5.0, seed=s, n=20, h=8),
}
"""Other sizes and times, for accuracy, with seeds that chose nothing."""


def integers(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows in −2…2 with random labels; a third has duplicates, a third is symmetric."""
    draw = torch.Generator().manual_seed(seed)
    n = int(torch.randint(3, 11, (1,), generator=draw))
    d = int(torch.randint(2, 5, (1,), generator=draw))
    x = torch.randint(-2, 3, (n, d), generator=draw).double()
    y = 2.0 * torch.randint(0, 2, (n,), generator=draw).double() - 1
    if seed % 3 == 1:
        x, y = torch.cat([x, x[:2]]), torch.cat([y, y[:2]])
    if seed % 3 == 2:
        x, y = torch.cat([x, -x]), torch.cat([y, -y])
    return x, y


def integers_end(seed: int) -> str:
    """Return the kind of an integer set whose natural flow ends where it must, else nothing.

    Logits that separate grow along the linear program; the others end at their optimum.
    """
    x, y = integers(seed)
    found = separability(x, y)
    times = torch.tensor([5e3, 1e4], dtype=F64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(x.shape[1], dtype=F64), (x, y))
    path = ng.integrate(*args, until=1e4, times=times)
    held, signed = ~found.separated, y[:, None] * x
    right = path.status == "time reached"
    if right and found.kind != "not separable":
        limit = natural_flow(x, y).solution
        slope = (path.at(1) - path.at(0)) / 5e3
        right = float((slope - limit).norm()) < 1e-6 * max(1.0, float(limit.norm()))
    gradient = signed[held].mT @ torch.sigmoid(-(signed[held] @ path.final))
    return found.kind if right and float(gradient.norm()) < 1e-8 else ""
