"""Residual space: rows of the Jacobian, the kernel without rows, growth, and peers.

Times are CPU seconds of this process. Contestants of the second part get as much CPU time as
`GaussNewton` took, and start from the same weights; every answer is checked.
"""

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType

import torch
from harness import Row, exponent, report
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import Linear, Module, Sequential, Tanh

import natgrad as ng
from natgrad.experiments.pinn._equations.base import Equation, Points
from natgrad.experiments.pinn._equations.poisson import Poisson
from natgrad.experiments.pinn._solve.networks import network
from natgrad.experiments.pinn._solve.peers import by_peer
from natgrad.optim._levenberg.problem import Residuals
from natgrad.optim._rows.jacobian import Jacobian
from natgrad.optim._rows.record import Recorder

SEEDS = range(350, 355)


def cpu(*calls: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the median CPU time of each call, run in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, spent in zip(calls, times, strict=True):
            began = time.process_time()
            call()
            spent.append(time.process_time() - began)
    return [statistics.median(spent) for spent in times]


def jacobian(net: Module, closure: Callable[[], Tensor]) -> Jacobian:
    params = list(net.parameters())
    recorder = Recorder(net, params, [""] * len(params))
    recorder._trusted = _Yes()
    (strips,) = recorder.jacobian({"block": recorder.run(closure)[:, None]})
    return recorder.assemble(strips)


class _Yes(dict):  # type: ignore[type-arg]
    """Blocks are checked once per run; steps after the first do not pay for it."""

    def get(self, key: object, default: object = None) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        return True


def laplacian(net: Module, x: Tensor) -> Tensor:
    u = net(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    parts = [
        torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i]
        for i in range(x.shape[1])
    ]
    return torch.stack(parts).sum(0)


def by_vmap(net: Module, x: Tensor) -> Tensor:
    """Rows by vmap(grad) of the Laplacian of one point, by forward over reverse mode."""
    params = {name: p.detach() for name, p in net.named_parameters()}

    def at(p: dict[str, Tensor], z: Tensor) -> Tensor:
        def slope(z: Tensor) -> Tensor:
            return grad(lambda z: functional_call(net, p, (z[None],))[0, 0])(z)

        eye = torch.eye(len(z), dtype=z.dtype)
        return sum(jvp(slope, (z,), (e,))[1] @ e for e in eye)  # type: ignore[return-value]

    rows = vmap(lambda z: grad(at)(params, z))(x.detach())
    return torch.cat([rows[name].flatten(1) for name in params], 1)


def rows(widths: tuple[int, ...], n: int) -> list[Row]:
    net = network(2, widths, "torch", 0)
    x = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    p = sum(t.numel() for t in net.parameters())
    found = jacobian(net, lambda: laplacian(net, x)).dense
    truth = by_vmap(net, x)
    exact = float((found - truth).abs().max() / truth.abs().max()) < 1e-12

    def plain() -> None:
        params = list(net.parameters())  # the last bias has no part in a Laplacian
        torch.autograd.grad(laplacian(net, x).square().sum(), params, allow_unused=True)

    ours, gradient, peer = cpu(
        lambda: jacobian(net, lambda: laplacian(net, x)).dense, plain, lambda: by_vmap(net, x)
    )
    detail = f"{1e3 * ours:.2f} ms; gradient {1e3 * gradient:.2f}, vmap(grad) {1e3 * peer:.2f}"
    head = f"rows of a Laplacian, P = {p}, N = {n}"
    small = p < 1000
    return [
        Row(f"{head}: rows / gradient", ours / gradient, "×", "≤ 2" if small else "",
            exact and ours <= 2 * gradient if small else None, detail),
        Row(f"{head}: vmap(grad) / rows", peer / ours, "×", "" if small else "≥ 3",
            None if small else exact and peer >= 3 * ours, ""),
    ]  # fmt: skip


def convolutions() -> Row:
    torch.manual_seed(0)
    net = Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), Tanh(), torch.nn.Conv2d(8, 8, 3, stride=2), Tanh(),
        torch.nn.Flatten(), Linear(8 * 36, 1),
    ).double()  # fmt: skip
    x = torch.randn(100, 1, 14, 14, dtype=torch.float64)
    params = {name: p.detach() for name, p in net.named_parameters()}

    def peer() -> Tensor:
        found = vmap(lambda z: grad(lambda p: functional_call(net, p, (z[None],))[0, 0])(params))(x)
        return torch.cat([found[name].flatten(1) for name in params], 1)

    def ours() -> Tensor:
        return jacobian(net, lambda: net(x)[:, 0]).dense

    exact = float((ours() - peer()).abs().max() / peer().abs().max()) < 1e-12
    mine, other = cpu(ours, peer)
    return Row("rows of a convolutional network, N = 100: vmap(grad) / rows", other / mine, "×",
               "", exact, f"{1e3 * mine:.1f} ms against {1e3 * other:.1f}")  # fmt: skip


def kernel() -> Row:
    """The same kernel by factors and by chunks of rows."""
    net = network(2, (128, 128), "torch", 0)
    x = torch.rand(800, 2, dtype=torch.float64)
    found = jacobian(net, lambda: net(x)[:, 0])
    ones = torch.ones(found.shape[1], dtype=torch.float64)
    exact = float((found.kernel() - found.kernel(ones)).abs().max()) < 1e-10
    factors, by_rows = cpu(found.kernel, lambda: found.kernel(ones), rounds=3)
    head = "kernel at width 128, N = 800: by rows / without rows"
    detail = f"{1e3 * factors:.0f} ms against {1e3 * by_rows:.0f}"
    return Row(head, by_rows / factors, "×", "> 1", exact and by_rows > factors, detail)


_MEMORY = """
import torch
from torch.nn import Linear, Sequential, Tanh
import natgrad as ng
torch.set_num_threads(1)
net = Sequential(Linear(10, 216), Tanh(), Linear(216, 216), Tanh(), Linear(216, 1)).double()
x = torch.randn(2000, 10, dtype=torch.float64)
small = Linear(10, 12).double()  # imports, threads and pools of memory
ng.GaussNewton(small, scaling={scaling!r}).step(lambda: small(x[:8]))
for _ in range(2):
    torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
def peak():  # of this program; ru_maxrss would begin with the peak of the one that started it
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith("VmHWM"))
before = peak()
optimizer = ng.GaussNewton(net, scaling={scaling!r}, damping=1.0)
optimizer.step(lambda: net(x)[:, 0] - 1)
assert optimizer.statistics.side == "residuals"
assert optimizer.statistics.status == "accepted"
print((peak() - before) * 1024)
"""


def memory(scaling: str) -> Row:
    """The growth of a fresh process during one step, in units of N² doubles."""
    script = _MEMORY.format(scaling=scaling)
    # Freed blocks go back at once, so that the peak is what was alive and not what malloc kept.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env
    )
    ratio = int(out.stdout) / (2000**2 * 8)
    head = f"memory of a step, N = 2000, P = 49 465, {scaling} metric"
    detail = f"{int(out.stdout) / 2**20:.0f} MiB; N² doubles are 31 MiB"
    return Row(head, ratio, "N²", "≤ 3", ratio <= 3, detail)


def step_and_product(width: int, n: int) -> tuple[int, float, float]:
    """Return P, CPU time of a step, and that of its matrix product and Cholesky factor alone."""
    net = network(2, (width, width), "torch", 0)
    x = torch.rand(n, 2, dtype=torch.float64)
    y = torch.sin(x.sum(1))
    optimizer = ng.GaussNewton(net, damping=1e3)
    p = sum(t.numel() for t in net.parameters())
    a = torch.randn(n, p, dtype=torch.float64)
    square = torch.eye(min(n, p), dtype=torch.float64)

    def product() -> None:
        _ = a.mT @ a if p <= n else a @ a.mT
        torch.linalg.cholesky(square)

    step, alone = cpu(lambda: optimizer.step(lambda: net(x)[:, 0] - y), product, rounds=3)
    return p, step, alone


def growth() -> list[Row]:
    """Exponents of a step's time, beside the time of its matrix product alone."""
    by_n = [(n, *step_and_product(32, n)[1:]) for n in (500, 1000, 2000, 4000)]
    by_p = [step_and_product(width, 1000) for width in (8, 16, 32, 64)]
    found = []
    for name, fixed, measured in (("N", "P = 1185", by_n), ("P", "N = 1000", by_p)):
        counts, spent, _ = (list(column) for column in zip(*measured, strict=True))
        detail = "; ".join(
            f"{name} = {c}: {1e3 * s:.0f} ms ({1e3 * b:.0f} in product and Cholesky)"
            for c, s, b in measured
        )
        head = f"exponent of a step's time in {name} ({fixed})"
        found.append(Row(head, exponent(counts, spent), "", "", None, detail))
    return found


def extras() -> list[Row]:
    """What `held_out` and `resample`, both every ten steps, add to a step of 2-D Poisson."""
    equation = Poisson()
    source = torch.Generator().manual_seed(1)
    held = equation.drawn(900, source)

    def run(watched: bool, drawn: bool) -> Callable[[], object]:
        net = network(2, (32,), "torch", 0)
        points = equation.drawn(900, source)  # 900 inside and 150 on the sides, as in each draw
        optimizer = ng.GaussNewton(
            net,
            held_out=(lambda: equation.blocks(net, held)) if watched else None,
            resample=(lambda: points.update(equation.drawn(900, source))) if drawn else None,
        )
        return lambda: [optimizer.step(lambda: equation.blocks(net, points)) for _ in range(20)]

    plain, watched, drawn = cpu(run(False, False), run(True, False), run(False, True), rounds=3)
    return [
        Row("a step with held-out points / without", watched / plain, "×", "", None, ""),
        Row("a step with points drawn anew / without", drawn / plain, "×", "", None, ""),
    ]


# Peers --------------------------------------------------------------------------------------------


def engd(equation: Equation, net: Module, points: Points, seconds: float) -> None:
    """Energy natural gradients as published: F⁺∇L by least squares, and 30 halvings of the step."""
    params = list(net.parameters())
    sizes = [p.numel() for p in params]
    problem, recorder = Residuals(params[0]), Recorder(net, params, [""] * len(params))
    until = time.process_time() + seconds

    def write(x: Tensor) -> None:
        with torch.no_grad():
            for p, part in zip(params, torch.split(x, sizes), strict=True):
                p.copy_(part.view_as(p))

    def loss(x: Tensor) -> float:
        write(x)
        value = sum(problem.losses(problem.read(equation.blocks(net, points), "")).values())
        return value if math.isfinite(value) else math.inf

    theta = torch.cat([p.detach().reshape(-1) for p in params])
    while time.process_time() < until:
        write(theta)
        values = problem.read(recorder.run(lambda: equation.blocks(net, points)), "")
        white = problem.whiten(values)
        found = recorder.assemble(white.rows(recorder.jacobian(values.blocks)))
        v = torch.linalg.lstsq(
            found.gram(), found.transposed(white.target)[:, None], driver="gelsd"
        ).solution[:, 0]
        candidates = [theta + 0.5**k * v for k in range(31)]
        losses = [loss(c) for c in candidates]
        theta = candidates[losses.index(min(losses))]
    write(theta)


class _Residuals(Module):
    """Weighted residuals of 2-D Poisson as outputs: the form that torch-levenberg-marquardt fits.

    Inputs are a point, the weights of Δu + f and of u, and f.
    """

    def __init__(self, net: Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        def value(z: Tensor) -> Tensor:
            return self.net(z[None])[0, 0]

        def laplacian(z: Tensor) -> Tensor:
            eye = torch.eye(2, dtype=z.dtype)
            return sum(jvp(grad(value), (z,), (e,))[1] @ e for e in eye)  # type: ignore[return-value]

        equation = vmap(laplacian)(x[:, :2]) + x[:, 4]
        return (x[:, 2] * equation + x[:, 3] * self.net(x[:, :2])[:, 0])[:, None]


def published_lm(equation: Equation, net: Module, points: Points, seconds: float) -> None:
    """torch-levenberg-marquardt with default settings; rows by vmap(jacrev)."""
    for name, unused in (("pytorch_lightning", "LightningModule"), ("torchmetrics", "Metric")):
        module = ModuleType(name)  # for its loops over data sets, which are not used here
        setattr(module, unused, object)
        sys.modules.setdefault(name, module)
    from torch_levenberg_marquardt.training import LevenbergMarquardtModule

    inside, faces = points["interior"].detach(), points["boundary"]
    weight = (equation.weights["boundary"] / len(faces)) ** 0.5
    first = torch.zeros(len(inside), 3, dtype=torch.float64)
    first[:, 0], first[:, 2] = len(inside) ** -0.5, 2 * math.pi**2 * equation.truth(inside)
    second = torch.tensor([[0.0, weight, 0.0]], dtype=torch.float64).expand(len(faces), 3)
    x = torch.cat([torch.cat([inside, first], 1), torch.cat([faces, second], 1)])
    residuals = _Residuals(net)
    blocks = equation.blocks(net, points).values()
    ours = sum(w * float(r.detach().square().mean()) for r, w in blocks)
    assert math.isclose(float(residuals(x).detach().square().sum()), ours, rel_tol=1e-10)
    method = LevenbergMarquardtModule(residuals)
    until = time.process_time() + seconds
    while time.process_time() < until:
        method.training_step(x, torch.zeros(len(x), 1, dtype=torch.float64))


LABELS = {
    "scipy": "SciPy lm with our rows",
    "lbfgs": "torch L-BFGS",
    "adam": "Adam",
    "engd": "ENGD",
    "published_lm": "torch-levenberg-marquardt",
}


def race(seed: int) -> dict[str, float]:
    """Return the errors of one seed; peers get the CPU time of 200 steps."""
    equation = Poisson()
    points = equation.fixed(30)
    net = network(2, (32,), "torch", seed)
    optimizer = ng.GaussNewton(net)
    began = time.process_time()
    for _ in range(200):
        optimizer.step(lambda: equation.blocks(net, points))
    spent = time.process_time() - began
    errors = {"ours": equation.error(net)}
    for name in LABELS:
        net = network(2, (32,), "torch", seed)
        own = {"engd": engd, "published_lm": published_lm}.get(name, partial(by_peer, name))
        own(equation, net, points, spent)
        errors[name] = equation.error(net)
    return errors


def poisson() -> list[Row]:
    runs = [race(seed) for seed in SEEDS]
    ours = [run["ours"] for run in runs]
    median, found = statistics.median(ours), []
    for name, label in LABELS.items():
        theirs = [run[name] for run in runs]
        ratio, middle = statistics.median(theirs) / median, statistics.median(theirs)
        target, met = ("≥ 20", ratio >= 20) if name == "scipy" else ("", None)
        head = f"2-D Poisson at equal CPU: error of {label} / ours"
        detail = (
            f"medians {middle:.1e} and {median:.1e}; worst {max(theirs):.1e} and {max(ours):.1e}"
        )
        found.append(Row(head, ratio, "×", target, met, detail))
    return found


if __name__ == "__main__":
    found = [*rows((32,), 1020), *rows((64, 64), 500), convolutions(), kernel()]
    found += [memory("identity"), memory("more"), *growth(), *extras(), *poisson()]
    report("Residual space", found)
