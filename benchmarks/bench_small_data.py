"""Small data: exact steps against NGD, L-BFGS and Adam, by CPU time.

Two spirals to a loss of 1e-3, Franke's function at equal CPU time, the digits of scikit-learn, and
the cost of a step of `GaussNewton` over one of `NGD`. Settings of the peers are the best of 20 on
seeds that are not reported.
"""

import math
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from harness import Row, report
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh
from torch.optim import Optimizer

import natgrad as ng

TUNED, REPORTED = range(2), range(240, 260)
TRIALS = 20
"""Settings that each peer may choose from."""
TUNING, LIMIT = 6.0, 60.0
"""CPU seconds after which a run counts as not arrived: while settings are chosen, and reported."""
STUCK = 100
"""Equal losses in a row after which a run cannot arrive any more; it counts as `LIMIT` seconds."""

Batch = tuple[Tensor, Tensor]
Trainer = Callable[[Module, ng.Bernoulli, Batch, Callable[[float], bool]], None]


def mlp(seed: int, *widths: int, dtype: torch.dtype = torch.float64) -> Sequential:
    torch.manual_seed(seed)
    layers: list[Module] = []
    for a, b in pairwise(widths):
        layers += [Linear(a, b), Tanh()]
    return Sequential(*layers[:-1]).to(dtype)


def spirals() -> Batch:
    """Return 2 × 97 points on two arms of three half turns each."""
    i = torch.arange(97, dtype=torch.float64)
    angle, radius = i * math.pi / 16, (104 - i) / 104
    arm = torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], 1)
    return torch.cat([arm, -arm]), torch.cat([torch.ones(97), -torch.ones(97)]).double()


def franke(n: int, seed: int) -> Batch:
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 2, dtype=torch.float64, generator=g)
    a, b = 9 * x[:, 0], 9 * x[:, 1]
    y = 0.75 * torch.exp(-((a - 2) ** 2 + (b - 2) ** 2) / 4)
    y += 0.75 * torch.exp(-((a + 1) ** 2) / 49 - (b + 1) / 10)
    y += 0.5 * torch.exp(-((a - 7) ** 2 + (b - 3) ** 2) / 4)
    y -= 0.2 * torch.exp(-((a - 4) ** 2) - (b - 7) ** 2)
    return x, y


def exact(
    net: Module, likelihood: ng.Gaussian, batch: Batch, done: Callable[[float], bool]
) -> None:
    x, y = batch
    optimizer = ng.GaussNewton(net, likelihood)
    while not done(optimizer.step(lambda: (net(x)[:, 0], y))):
        pass


def with_torch(make: Callable[[Module], Optimizer]) -> Trainer:
    def train(net, likelihood, batch, done):  # type: ignore[no-untyped-def]
        x, y = batch
        optimizer = make(net)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = likelihood(net(x)[:, 0], y)
            loss.backward()
            return loss

        while not done(optimizer.step(closure).item()):
            pass

    return train


def lbfgs(net: Module, lr: float = 1.0, history: int = 50, iterations: int = 5) -> Optimizer:
    return torch.optim.LBFGS(
        net.parameters(), lr=lr, max_iter=iterations, history_size=history,
        line_search_fn="strong_wolfe", tolerance_grad=0, tolerance_change=0,
    )  # fmt: skip


def adam(net: Module, lr: float, beta1: float, beta2: float) -> Optimizer:
    return torch.optim.Adam(net.parameters(), lr=lr, betas=(beta1, beta2))


Peer = Callable[[Module], Optimizer]


def trials(name: str) -> list[Peer]:
    """Return 20 settings, drawn over wide ranges."""
    source = random.Random(0)
    found: list[Peer] = []
    for _ in range(TRIALS):
        if name == "Adam":
            found.append(partial(
                adam, lr=10 ** source.uniform(-3, -1), beta1=source.choice([0.8, 0.9, 0.95]),
                beta2=source.choice([0.95, 0.99, 0.999]),
            ))  # fmt: skip
        else:
            found.append(partial(
                lbfgs, lr=10 ** source.uniform(-1, 0), history=source.choice([10, 30, 50, 100]),
                iterations=source.choice([5, 10, 20]),
            ))  # fmt: skip
    return found


def until(loss: float, seconds: float) -> tuple[Callable[[float], bool], list[float]]:
    """Return a test for the end, and a list that receives the CPU time if the loss was reached."""
    began, arrived = time.process_time(), []
    last: deque[float] = deque(maxlen=STUCK)

    def done(value: float) -> bool:
        spent = time.process_time() - began
        last.append(value)
        if value < loss:
            arrived.append(spent)
        stuck = len(last) == STUCK and len(set(last)) == 1
        return value < loss or spent > seconds or stuck or not math.isfinite(value)

    return done, arrived


def race_spirals() -> list[Row]:
    """CPU seconds to a loss of 1e-3; a peer's best of 20 settings on seeds that are not reported.

    A run that has not arrived counts as `LIMIT` seconds.
    """
    batch = spirals()

    def seconds(train: Trainer, seed: int, limit: float) -> float:
        done, arrived = until(1e-3, limit)
        train(mlp(seed, 2, 32, 32, 1), ng.Bernoulli(), batch, done)
        return arrived[0] if arrived else limit

    def tuned(name: str) -> Peer:
        best, least = None, 2 * TUNING
        for peer in trials(name):
            spent = 0.0
            for seed in TUNED:  # a setting that is behind already is given up
                spent += seconds(with_torch(peer), seed, min(TUNING, max(least - spent, 0.1)))
            if best is None or spent < least:
                best, least = peer, spent
        assert best is not None
        return best

    peers = {name: tuned(name) for name in ("L-BFGS", "Adam")}
    methods = {"ours": exact} | {name: with_torch(peer) for name, peer in peers.items()}
    spent: dict[str, list[float]] = {name: [] for name in methods}
    for seed in REPORTED:  # in turn
        for name, train in methods.items():
            spent[name].append(seconds(train, seed, LIMIT))
    ours, arrived = spent["ours"], sum(s < LIMIT for s in spent["ours"])
    median = statistics.median(ours)
    rows = [
        Row("two spirals: seeds of 20 that arrive at 1e-3", arrived, "", "20", arrived == 20,
            f"median {median:.2f} s, slowest {max(ours):.2f} s")
    ]  # fmt: skip
    for name, peer in peers.items():
        theirs = spent[name]
        ratio = statistics.median(theirs) / median
        settings = ", ".join(f"{k} {v:.3g}" for k, v in peer.keywords.items())  # type: ignore[attr-defined]
        detail = f"{sum(s < LIMIT for s in theirs)} of 20 arrive within {LIMIT:g} s; {settings}"
        head = f"two spirals: median CPU of {name}, tuned / ours"
        rows.append(Row(head, ratio, "×", "≥ 2", ratio >= 2, detail))
    return rows


def race_franke() -> list[Row]:
    batch, test = franke(400, 0), franke(2000, 1)

    def error(train: Trainer, seed: int, seconds: float) -> float:
        net = mlp(seed, 2, 20, 20, 1)
        train(net, ng.Gaussian(), batch, until(0.0, seconds)[0])
        with torch.no_grad():
            return float((net(test[0])[:, 0] - test[1]).square().mean().sqrt())

    found = {
        name: statistics.median(error(train, seed, 3.0) for seed in REPORTED[:3])
        for name, train in (("ours", exact), ("L-BFGS", with_torch(lbfgs)))
    }
    ratio = found["L-BFGS"] / found["ours"]
    detail = f"test RMSE {found['L-BFGS']:.1e} and {found['ours']:.1e}, 3 s each, medians of 3"
    return [Row("Franke: test error of L-BFGS / ours", ratio, "×", "≥ 50", ratio >= 50, detail)]


def step_costs() -> list[Row]:
    """A step of GaussNewton over one of NGD with its forward and backward pass."""
    rows = []
    for width, n, k in ((32, 900, 1), (64, 500, 1), (64, 1000, 1), (64, 2000, 1), (128, 1000, 1)):
        net = mlp(0, 2, width, k) if width == 32 else mlp(0, 2, width, width, k)
        x = torch.rand(n, 2, dtype=torch.float64)
        y = torch.sin(3 * x.sum(1, keepdim=True))
        spent = []
        for method in ("exact", "ngd"):
            likelihood = ng.Gaussian()
            if method == "exact":
                gauss = ng.GaussNewton(net, likelihood)
                step = lambda: gauss.step(lambda: (net(x), y))  # noqa: B023, E731
            else:
                ngd = ng.NGD(net, likelihood)

                def step() -> None:
                    ngd.zero_grad()  # noqa: B023
                    likelihood(net(x), y).backward()  # noqa: B023
                    ngd.step()  # noqa: B023

            step()
            began = time.process_time()
            for _ in range(4):
                step()
            spent.append((time.process_time() - began) / 4)
        p = sum(t.numel() for t in net.parameters())
        detail = f"{1e3 * spent[0]:.0f} ms and {1e3 * spent[1]:.1f} ms"
        head = f"a step at P = {p}, N = {n}: GaussNewton / NGD"
        rows.append(Row(head, spent[0] / spent[1], "×", "", None, detail))
    return rows


def race_digits() -> list[Row]:
    """CPU seconds to a loss of 0.01 on 250 digits, 64-32-10."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.as_tensor(data.data[:250] / 16.0)
    y = torch.as_tensor(data.target[:250])
    likelihood, spent = ng.Categorical(), {}
    for method in ("GaussNewton", "NGD"):
        net = mlp(0, 64, 32, 10)
        done, arrived = until(0.01, 60.0)
        if method == "GaussNewton":
            gauss = ng.GaussNewton(net, likelihood)
            while not done(gauss.step(lambda: (net(x), y))):  # noqa: B023
                pass
        else:
            ngd, loss = ng.NGD(net, likelihood), 1e9
            while not done(loss):
                ngd.zero_grad()
                value = likelihood(net(x), y)
                value.backward()
                ngd.step()
                loss = float(value.detach())
        spent[method] = arrived[0] if arrived else math.inf
    ratio = spent["GaussNewton"] / spent["NGD"]
    detail = f"{spent['GaussNewton']:.2f} s and {spent['NGD']:.2f} s; 2500 logits, P = 2410"
    return [
        Row("250 digits to a loss of 0.01: CPU of GaussNewton / NGD", ratio, "×", "", None, detail)
    ]


if __name__ == "__main__":
    report("Small data", [*step_costs(), *race_digits(), *race_franke(), *race_spirals()])
