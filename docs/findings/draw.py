"""Draw the pictures of the findings that need no experiment: `python docs/findings/draw.py`.

The other pictures are panels of figures; `docs/_pictures.py` cuts them out of a folder of runs.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import natgrad as ng
from natgrad.flows import decaying_damping, midpoint
from natgrad.verify._findings import layerwise

OUT = Path(__file__).parent / "pictures"
DTYPE = torch.float64


def vertex() -> Figure:
    """β(t)/t in the plane of separators, with the polygon that holds all separators."""
    x, y = ng.data.separable.planar(40).batch
    rows = y.unsqueeze(1) * x
    limit, times = ng.limits.natural_flow(x, y), torch.logspace(-1, 4, 60, dtype=DTYPE)
    start = torch.zeros(2, dtype=DTYPE)
    path = ng.integrate(
        ng.natural, ng.Bernoulli(), ng.Direct(), start, (x, y), until=1e4, times=times
    )
    beta = path.states / times.unsqueeze(1)
    figure, (axes,) = _panels()
    grid = np.meshgrid(np.linspace(0, 2.2, 300), np.linspace(-0.6, 1.6, 300))
    inside = (rows.numpy() @ np.stack([g.ravel() for g in grid]) >= 1).all(0)
    axes.contourf(*grid, inside.reshape(300, 300), levels=[0.5, 1.5], colors=["#dbe9f6"])
    axes.text(1.25, 0.25, "separators with\nall margins ≥ 1", fontsize=9)
    axes.plot(*beta[times > 0.5].T, color="#c44e00", label="natural gradient flow, β(t)/t")
    axes.plot(*limit.solution, "o", color="#7a0c0c", label="vertex of the linear program")
    margin = ng.limits.max_margin(x, y).solution
    axes.plot(*margin, "s", color="#1f5fa8", label="ℓ2 max margin")
    axes.set(xlim=(0, 2.2), ylim=(-0.6, 1.6), xlabel="b₁", ylabel="b₂")
    axes.set(title="The flow ends at a corner")
    axes.legend()
    return figure


def shortest_l1() -> Figure:
    """The distance to the shortest ℓ1 interpolant over time, by depth."""
    x, y = _few(4, 5, 12)
    goal = ng.limits.basis_pursuit(x, y).solution
    times = torch.logspace(0.3, 8, 40, dtype=DTYPE)
    figure, (axes,) = _panels()
    for depth in (1, 2, 3, 4):
        w = ng.Diagonal(depth).init_free(12, scale=1.0)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), ng.Diagonal(depth), w, (x, y), until=1e8, times=times,
            rtol=1e-10,
        )  # fmt: skip
        gap = (path.states.prod(1) / times.unsqueeze(1) - goal).norm(dim=1) / goal.norm()
        axes.plot(times[: len(gap)], gap, label=f"NGD, depth {depth}")
    axes.set(xscale="log", yscale="log", xlabel="time t", ylabel="relative distance")
    axes.set(title="How far β(t)/t is from the shortest ℓ1 interpolant")
    axes.legend()
    return figure


def depth_below_d() -> Figure:
    """Logits and coefficients of two depths on 4 samples with 12 features."""
    x, y = _few(0, 4, 12)
    figure, (left, right) = _panels(2)
    for depth, shift in ((1, -0.2), (3, 0.2)):
        w = ng.Diagonal(depth).init_free(12, scale=0.5)
        path = ng.integrate(
            ng.natural, ng.Bernoulli(), ng.Diagonal(depth), w, (x, y), until=6.0, rtol=1e-8
        )
        beta = path.final.prod(0)
        left.bar(np.arange(1, 5) + shift, y * (x @ beta), width=0.38, label=f"depth {depth}")
        right.bar(np.arange(1, 13) + shift, beta, width=0.38, label=f"depth {depth}")
    left.set(title="The training logits are equal …", xlabel="sample", ylabel="y × logit")
    right.set(title="… the coefficients are not", xlabel="feature", ylabel="β")
    right.legend()
    return figure


def regularization_path() -> Figure:
    """Natural flow with damping λ₀e^{−t}, and ridge regressions with that penalty."""
    from scipy.optimize import minimize

    x, y = _few(1, 20, 5)
    rows, scale = (y.unsqueeze(1) * x).numpy(), 0.1
    center = -rows.mean(0) / 2 / scale  # ∇L(0)/λ₀
    times = torch.linspace(0, 8, 81, dtype=DTYPE)
    path = ng.integrate(
        ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(5, dtype=DTYPE), (x, y), until=8.0,
        times=times, damping=decaying_damping(scale), rtol=1e-8,
    )  # fmt: skip

    def ridge(t: float) -> Any:
        def loss(b: Any) -> tuple[float, Any]:
            u, away = rows @ b, b - center
            slope = -rows.T @ (1 / (1 + np.exp(u))) / len(rows)
            penalty = scale * np.exp(-t)
            value = np.logaddexp(0, -u).mean() + penalty * away @ away / 2
            return float(value), slope + penalty * away

        return minimize(loss, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9}).x

    figure, (axes,) = _panels()
    for k, color in enumerate(("#c44e00", "#1f5fa8", "#2a7f3f", "#8a4fa0", "#777777")):
        axes.plot(times, path.states[:, k], color=color, lw=1.8)
        dots = np.arange(1, 9)
        axes.plot(dots, [ridge(t)[k] for t in dots], "o", mfc="none", color=color, ms=8)
    axes.plot([], [], color="#333333", label="natural flow, damping λ₀e⁻ᵗ")
    axes.plot([], [], "o", mfc="none", color="#333333", label="ridge regression, penalty λ₀e⁻ᵗ")
    axes.set(xlabel="time t", ylabel="coordinates of β")
    axes.set(title="Each moment of the flow is a regularized estimate")
    axes.legend()
    return figure


def bottleneck() -> Figure:
    """The loss of a 5-2-5 network under two natural gradients."""
    network, generator = ng.DeepLinear((5, 2, 5)), torch.Generator().manual_seed(0)
    teacher = network.init_gaussian(generator=generator)
    x = torch.randn(50, 5, dtype=DTYPE, generator=generator)
    y = network.predict(teacher, x)
    noise = (torch.randn(a.shape, dtype=DTYPE, generator=generator) for a in teacher)
    w = tuple(a + 0.1 * b for a, b in zip(teacher, noise, strict=True))
    times = torch.linspace(0, 8, 60, dtype=DTYPE)
    figure, (axes,) = _panels()
    for direction, name in ((ng.natural, "exact, e⁻²ᵗ"), (layerwise, "layerwise (10), e⁻ᵗ")):
        args: Any = (direction, ng.Gaussian(), network, w, (x, y))
        path = ng.integrate(*args, until=8.0, times=times, method="dop853", rtol=1e-7)
        axes.plot(times, path.losses / path.losses[0], label=name)
    axes.set(yscale="log", xlabel="time t", ylabel="loss / initial loss")
    axes.set(title="A bottleneck of two: widths 5–2–5")
    axes.legend()
    return figure


def singular() -> Figure:
    """A scalar network of two layers on its way from 1 to −1."""
    times = np.linspace(0, 2.5, 100)
    line = -1 + 2 * np.exp(-times)
    meets = times < np.log(2)
    figure, (axes,) = _panels()
    axes.plot(times[meets], line[meets], label="w₂w₁ of the network")
    axes.plot(times[~meets], line[~meets], ":", color="gray", label="its straight line")
    axes.plot(np.log(2), 0, "o", color="#7a0c0c")
    words, arrow = "singular at t = log 2:\nthe flow ends", {"arrowstyle": "->"}
    axes.annotate(words, (np.log(2), 0), (1.1, 0.45), arrowprops=arrow)
    axes.axhline(-1, color="black", linewidth=0.7)
    axes.text(2.1, -0.95, "target")
    axes.set(xlabel="time t", ylabel="w₂w₁", title="From 1 to −1 a product must pass 0")
    axes.legend(loc="lower left")
    return figure


def counterexample() -> Figure:
    """The max margins of the same samples in two coordinate systems, as margins of the samples."""
    x = torch.tensor([[2.0, -3.0], [1.0, -4.0]], dtype=DTYPE)
    y = torch.ones(2, dtype=DTYPE)
    a = torch.tensor([[1.0, 2.0], [-1.0, 0.0]], dtype=DTYPE)
    figure, (axes,) = _panels()
    methods = {"ℓ2 max margin": ng.limits.max_margin, "NGD": ng.limits.natural_flow}
    for k, (name, limit) in enumerate(methods.items()):
        for j, inputs in enumerate((x, x @ a.mT)):
            b = limit(inputs, y).solution
            place = np.array([0, 1]) + 2.6 * k + (j - 0.5) * 0.36
            color = ("#1f5fa8", "#c44e00")[j]
            axes.bar(place, inputs @ b, width=0.33, color=color)
        axes.text(2.6 * k + 0.5, 1.85, name, ha="center", weight="bold")
    axes.set_xticks([0, 1, 2.6, 3.6], ["sample 1", "sample 2"] * 2)
    axes.bar(0, 0, color="#1f5fa8", label="coordinates x")
    axes.bar(0, 0, color="#c44e00", label="coordinates Ax")
    axes.set(
        ylabel="logit",
        xlim=(-0.6, 5.9),
        ylim=(0, 2.1),
        title="The same samples in other coordinates",
    )
    axes.legend(loc="center right")
    return figure


def finite_steps() -> Figure:
    """The gap between depths 1 and 2 at a fixed time, by step size."""
    x, y = _few(3, 12, 4)
    w = torch.stack([torch.full((4,), 0.7, dtype=DTYPE), torch.linspace(0.4, 1, 4, dtype=DTYPE)])
    sizes = [0.2 / 2**k for k in range(6)]
    figure, (axes,) = _panels()
    for name, rule in (("Euler steps", lambda h: h), ("midpoint steps", midpoint)):
        gaps = []
        for h in sizes:
            ends = [
                ng.descend(
                    ng.natural, ng.Bernoulli(), model, start, (x, y), step=rule(h), until=1.0
                )
                for model, start in ((ng.Direct(), w.prod(0)), (ng.Diagonal(2), w))
            ]
            gaps.append(float((ends[0].final - ends[1].final.prod(0)).norm()))
        axes.plot(sizes, gaps, "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="step η", ylabel="distance at t = 1")
    axes.set(title="How far depth 2 is from depth 1")
    axes.legend()
    return figure


def balancedness() -> Figure:
    """Conserved quantities of two natural gradients and of gradient flow."""
    generator = torch.Generator().manual_seed(1)
    w = tuple(torch.randn(6, 6, dtype=DTYPE, generator=generator) / 2 for _ in range(2))
    seen = torch.nonzero(torch.rand(6, 6, generator=generator) < 0.6)
    values = torch.randn(len(seen), dtype=DTYPE, generator=generator)
    product, times = ng.MatrixProduct(2), torch.linspace(0.0, 1.0, 30, dtype=DTYPE)[1:]
    figure, (axes,) = _panels()
    first = w[0].T @ w[0] - w[1] @ w[1].T
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "gradient flow": (ng.euclidean, {}),
        "natural, minimum norm": (ng.natural, {"method": "dop853"}),
        "natural, equal share": (ng.natural, {"method": "dop853", "selection": "equal_share"}),
    }
    for name, (direction, options) in kinds.items():
        path = ng.integrate(
            direction, ng.Gaussian(reduction="sum"), product, w, (seen, values), until=1.0,
            times=times, rtol=1e-8, **options,
        )  # fmt: skip
        a, b = path.states
        drift = (a.mT @ a - b @ b.mT - first).flatten(1).norm(dim=1) / first.norm()
        axes.plot(path.times, drift.clamp(min=1e-12), label=name)
    axes.set(yscale="log", xlabel="time t", ylabel="relative drift", ylim=(1e-12, 10))
    axes.text(0.06, 0.3, "ends at det β = 0")
    axes.set(title="Drift of W₁ᵀW₁ − W₂W₂ᵀ")
    axes.legend(loc="center right")
    return figure


def _panels(many: int = 1) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(5.4 if many == 1 else 4.2 * many, 3.5), layout="constrained")
    return figure, list(figure.subplots(1, many, squeeze=False)[0])


def _few(seed: int, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=DTYPE, generator=generator)
    return x, torch.sign(x[:, 0] + 0.3 * x[:, 1])


DRAWINGS = (
    vertex,
    shortest_l1,
    depth_below_d,
    regularization_path,
    bottleneck,
    singular,
    counterexample,
    finite_steps,
    balancedness,
)

if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for drawing in DRAWINGS:
        if not sys.argv[1:] or drawing.__name__ in sys.argv[1:]:
            drawing().savefig(OUT / f"{drawing.__name__}.png", dpi=110)
