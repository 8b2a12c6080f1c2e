"""Flows against the step loops they replace: separable classification and matrix completion.

The loops are the plain ones, timed over a few hundred steps and extrapolated; end points of the
flows are compared with tighter ones of another tolerance (and, in the tests, with the loops).
"""

import math
import time

import torch
from harness import Row, report

import natgrad as ng
from natgrad.flows import loss_below, time_reached

D, ONES, STEPS, ETA = 1000, 20, 2_000_000, 0.5
RTOL = 1e-2  # what the accuracy asked for, 1e-4 of the cosine and 1 % of the margin, needs
SCALES = {1: 1.0, 2: 0.1, 3: 0.1, 4: 0.2}


def separable(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, D, dtype=torch.float64, generator=generator)
    return x, torch.sign(x[:, :ONES].sum(1))


def start(depth: int) -> torch.Tensor:
    if depth == 1:
        return torch.zeros(1, D, dtype=torch.float64)
    return ng.Diagonal(depth).init_free(D, scale=SCALES[depth])


def plain_step_seconds(depth: int, x: torch.Tensor, y: torch.Tensor, steps: int = 150) -> float:
    """Return the time of one step of the loop one would write by hand."""
    w, signed = start(depth), y[:, None] * x
    begin = time.perf_counter()
    for _ in range(steps):
        beta = w.prod(0)
        descent = signed.mT @ torch.sigmoid(-(signed @ beta)) / len(x)
        partial = torch.stack([torch.cat([w[:i], w[i + 1 :]]).prod(0) for i in range(depth)])
        w = w + ETA * partial * descent
    return (time.perf_counter() - begin) / steps


def classification(n: int, depth: int, target: float) -> list[Row]:
    x, y = separable(n)
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(depth), start(depth), (x, y))
    end = ETA * STEPS
    once = torch.tensor([end])
    ng.integrate(*args, until=1.0)
    per_step = plain_step_seconds(depth, x, y)
    flow = ng.integrate(*args, until=end, times=once, rtol=RTOL)
    later = ng.integrate(*args, until=1e12, times=torch.tensor([1e12]), rtol=RTOL)
    tight = ng.integrate(*args, until=end, times=once, rtol=1e-5)
    beta, exact = flow.final.prod(0), tight.final.prod(0)
    cosine = float(torch.nn.functional.cosine_similarity(beta, exact, dim=0))
    margin, wanted = (float((y * (x @ b)).min() / b.norm()) for b in (beta, exact))
    ratio = per_step * STEPS / flow.seconds
    right = cosine >= 0.9999 and abs(margin / wanted - 1) <= 0.01
    more = later.seconds / flow.seconds
    return [
        Row(
            f"N = {n}, L = {depth}: 2 million steps / flow to t = 1e6",
            ratio,
            "×",
            f"≥ {target:g}",
            right and ratio >= target,
            f"loop {per_step * STEPS:.0f} s, flow {flow.seconds:.2f} s, {flow.evaluations} "
            f"evaluations, error estimate {flow.error_estimate:.0e}; 1 − cosine {1 - cosine:.0e}, "
            f"margin within {abs(margin / wanted - 1):.0e}; t = 1e12 costs {more:.2f}×",
        )
    ]


def autograd_loop(
    depth: int,
    w: tuple[torch.Tensor, ...],
    x: torch.Tensor,
    y: torch.Tensor,
    eta: float,
    goal: float,
) -> tuple[tuple[torch.Tensor, ...], float, int]:
    """Descend by autograd until the training error is met; return factors, seconds and steps."""
    factors = [f.clone().requires_grad_() for f in w]
    begin, steps = time.perf_counter(), 0
    while True:
        beta = factors[0]
        for f in factors[1:]:
            beta = beta @ f
        loss = 0.5 * (beta[x[:, 0], x[:, 1]] - y).square().sum()
        value = loss.item()
        if not math.isfinite(value) or value <= goal or steps > 100_000:
            break
        gradients = torch.autograd.grad(loss, factors)
        with torch.no_grad():
            for f, g in zip(factors, gradients, strict=True):
                f -= eta * g
        steps += 1
    seconds = time.perf_counter() - begin if value <= goal else math.inf
    return tuple(f.detach() for f in factors), seconds, steps


def completion(depth: int, target: float, n: int = 100, observed: int = 2000) -> Row:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 5, generator=generator) for _ in range(2))
    truth = a @ b.mT
    truth = truth * (n / truth.norm())
    order = torch.randperm(n * n, generator=generator)
    positions = torch.cartesian_prod(torch.arange(n), torch.arange(n))[order]
    x, rest = positions[:observed], positions[observed:]
    y = truth[x[:, 0], x[:, 1]]
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((n, n), scale=1e-3, generator=generator, dtype=torch.float32)
    goal = 0.5e-6 * observed

    def test(factors: tuple[torch.Tensor, ...]) -> float:
        gap = product.hypothesis(factors) - truth
        return float(gap[rest[:, 0], rest[:, 1]].square().mean())

    def flow_at(rtol: float):  # type: ignore[no-untyped-def]
        return ng.integrate(
            ng.euclidean, ng.Gaussian(reduction="sum"), product, w, (x, y),
            until=loss_below(goal) | time_reached(1e6), times=torch.tensor([1e6]),
            rtol=rtol, atol=1e-2 * rtol,
        )  # fmt: skip

    # Equal test error: both within a tenth of the flow at a tight tolerance. The loop takes the
    # largest rate, by halving, that gets there.
    exact = test(flow_at(1e-4).final)
    flow = flow_at(1e-2)
    assert abs(test(flow.final) / exact - 1) < 0.1
    eta, seconds, slow = 0.1, math.inf, w
    while not math.isfinite(seconds) or abs(test(slow) / exact - 1) >= 0.1:
        eta /= 2
        slow, seconds, steps = autograd_loop(depth, w, x, y, eta, goal)
    ratio = seconds / flow.seconds
    return Row(
        f"completion 100×100, N = {observed}, L = {depth}: autograd loop / flow",
        ratio,
        "×",
        f"≥ {target:g}",
        ratio >= target,
        f"loop {seconds:.2f} s, {steps} steps of {eta:g}; flow {flow.seconds:.2f} s, "
        f"{flow.evaluations} evaluations; test error {test(slow):.1e} and {test(flow.final):.1e}",
    )


if __name__ == "__main__":
    rows = []
    for n, targets in ((500, (5000, 5000, 1000, 1000)), (2500, (5000, 5000, 2000, 2000))):
        for depth, target in zip((1, 2, 3, 4), targets, strict=True):
            rows += classification(n, depth, target)
    rows += [completion(2, 60), completion(3, 20)]
    report("Flows against step loops", rows)
