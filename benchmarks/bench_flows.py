"""Flows against the step loops they replace: separable classification and matrix completion.

The loops are the plain ones. Those of classification are timed over a few dozen steps and
extrapolated, those of completion run to their end. End points of the flows are compared with flows
at a tighter tolerance (and, in the tests, with loops). All times are CPU seconds of one thread.
"""

import math
import statistics
import time

import torch
from harness import Row, report

import natgrad as ng
from natgrad import limits
from natgrad.flows._methods.completion.flow import completion_flow
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression

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


def cpu(call):  # type: ignore[no-untyped-def]
    """Return what a call returns and its CPU seconds."""
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def plain_steps(depth: int, x: torch.Tensor, y: torch.Tensor, steps: int) -> torch.Tensor:
    """Take steps of the loop one would write by hand."""
    w, signed = start(depth), y[:, None] * x
    for _ in range(steps):
        beta = w.prod(0)
        descent = signed.mT @ torch.sigmoid(-(signed @ beta)) / len(x)
        partial = torch.stack([torch.cat([w[:i], w[i + 1 :]]).prod(0) for i in range(depth)])
        w = w + ETA * partial * descent
    return w


def classification(n: int, depth: int, target: float, rounds: int = 3, steps: int = 60) -> Row:
    x, y = separable(n)
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(depth), start(depth), (x, y))
    end = ETA * STEPS

    def flow_to(t: float, rtol: float = RTOL):  # type: ignore[no-untyped-def]
        return ng.integrate(*args, until=t, times=torch.tensor([t]), rtol=rtol)

    flow_to(1.0)
    loops, flows, longer = [], [], []
    for _ in range(rounds):
        loops.append(cpu(lambda: plain_steps(depth, x, y, steps))[1] / steps)
        flow, seconds = cpu(lambda: flow_to(end))
        flows.append(seconds)
        longer.append(cpu(lambda: flow_to(1e12))[1])
    loop, seconds, more = (statistics.median(t) for t in (loops, flows, longer))
    tight = flow_to(end, 1e-5)
    beta, exact = flow.final.prod(0), tight.final.prod(0)
    cosine = float(torch.nn.functional.cosine_similarity(beta, exact, dim=0))
    margin, wanted = (float((y * (x @ b)).min() / b.norm()) for b in (beta, exact))
    ratio = loop * STEPS / seconds
    right = cosine >= 0.9999 and abs(margin / wanted - 1) <= 0.01
    return Row(
        f"N = {n}, L = {depth}: 2 million steps / flow to t = 1e6",
        ratio,
        "×",
        f"≥ {target:g}",
        right and ratio >= target and more <= 2 * seconds,
        f"loop {loop * STEPS:.0f} s, flow {seconds:.2f} s, {flow.evaluations} "
        f"evaluations, error estimate {flow.error_estimate:.0e}; 1 − cosine {1 - cosine:.0e}, "
        f"margin within {abs(margin / wanted - 1):.0e}; t = 1e12 costs {more / seconds:.2f}×",
    )


def natural_path(n: int, target: float) -> Row:
    """Natural gradient flow of logistic regression at 20 times, its end the linear program's."""
    x, y = separable(n)
    times = torch.logspace(0, 6, 20, dtype=torch.float64)
    zero = torch.zeros(D, dtype=torch.float64)
    flow, seconds = cpu(lambda: natural_flow_of_logistic_regression(zero, (x, y), times))
    limit = limits.natural_flow(x, y)
    held = torch.topk(y * (x @ flow.final), D, largest=False).indices
    same = set(held.tolist()) == set(limit.basis.tolist())
    gap = float((flow.final / times[-1] - limit.solution).norm() / limit.solution.norm())
    return Row(
        f"natural flow, N = {n}, 20 times to t = 1e6",
        seconds,
        "s",
        f"≤ {target:g}",
        seconds <= target and same and flow.error_estimate < 1e-9,
        f"{flow.evaluations} factorisations, error estimate {flow.error_estimate:.0e}; basis "
        f"{'equal to' if same else 'NOT'} that of the linear program, direction within {gap:.0e}",
    )


def autograd_loop(
    w: tuple[torch.Tensor, ...],
    x: torch.Tensor,
    y: torch.Tensor,
    eta: float,
    goal: float,
) -> tuple[tuple[torch.Tensor, ...], bool, int]:
    """Descend by autograd; return factors, whether the training error was met, and steps."""
    factors, steps = [f.clone().requires_grad_() for f in w], 0
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
    return tuple(f.detach() for f in factors), value <= goal, steps


def completion(depth: int, within: float, rtol: float, target: float | None) -> Row:
    """Race to a training error of 1e-6, test errors within a fraction of the exact flow's.

    The loop takes the largest rate, by halving from 0.1, that gets there: smaller ones would
    flatter us.
    """
    n, observed = 100, 2000
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

    def test(factors: tuple[torch.Tensor, ...]) -> float:
        gap = product.hypothesis(factors) - truth
        return float(gap[rest[:, 0], rest[:, 1]].square().mean())

    double = tuple(f.double() for f in w)
    exact = test(completion_flow(double, x, y.double(), rtol=1e-5).final)
    completion_flow(w, x, y, rtol=rtol)
    eta, gap = 0.1, math.inf
    while gap > within:
        eta /= 2
        (slow, arrived, steps), loop = cpu(
            lambda eta=eta: autograd_loop(w, x, y, eta, 0.5e-6 * observed)
        )
        gap = abs(test(slow) / exact - 1) if arrived else math.inf
    flows = [cpu(lambda: completion_flow(w, x, y, rtol=rtol)) for _ in range(5)]
    flow, seconds = flows[0][0], statistics.median(t for _, t in flows)
    ours = abs(test(flow.final) / exact - 1)
    ratio = loop / seconds
    return Row(
        f"completion, L = {depth}, test errors within {within:.0%}: loop / flow",
        ratio,
        "×",
        "" if target is None else f"≥ {target:g}",
        None if target is None else ratio >= target and ours <= within,
        f"loop {loop:.2f} s, {steps} steps of {eta:g}, {gap:.1%} off; flow {seconds:.3f} s, "
        f"{flow.evaluations} evaluations at rtol = {rtol:g}, {ours:.1%} off; exact {exact:.1e}",
    )


if __name__ == "__main__":
    rows = []
    for n, targets in ((500, (5000, 5000, 1000, 1000)), (2500, (5000, 5000, 2000, 2000))):
        for depth, target in zip((1, 2, 3, 4), targets, strict=True):
            rows.append(classification(n, depth, target))
    rows += [natural_path(1500, 15), natural_path(2500, 15)]
    rows += [completion(2, 0.1, 3e-2, 60), completion(2, 0.01, 2e-3, 60)]
    rows += [completion(3, 0.1, 1e-2, 20)]
    report("Flows against step loops", rows)
