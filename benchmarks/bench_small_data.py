"""Small data: exact steps against NGD, L-BFGS and Adam, by CPU time.

Two spirals to a loss of 1e-3, Franke's function at equal CPU time, the digits of scikit-learn, and
the cost of a step of `GaussNewton` over one of `NGD`. Rates of the peers are the best of a few on
seeds that are not reported.
"""

import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from harness import Row, report
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh

import natgrad as ng

TUNED, REPORTED = range(2), range(100, 120)
RATES = (3e-3, 1e-2, 3e-2)
LIMIT = 10.0
"""CPU seconds after which a run of a peer counts as not arrived."""

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


def with_torch(make: Callable[[Module], torch.optim.Optimizer]) -> Trainer:
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


def lbfgs(net: Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(
        net.parameters(), max_iter=5, history_size=50, line_search_fn="strong_wolfe",
        tolerance_grad=0, tolerance_change=0,
    )  # fmt: skip


def adam(rate: float) -> Callable[[Module], torch.optim.Optimizer]:
    return lambda net: torch.optim.Adam(net.parameters(), lr=rate)


def until(loss: float, seconds: float) -> tuple[Callable[[float], bool], list[float]]:
    """Return a test for the end, and a list that receives the CPU time if the loss was reached."""
    began, arrived = time.process_time(), []

    def done(value: float) -> bool:
        spent = time.process_time() - began
        if value < loss:
            arrived.append(spent)
        return value < loss or spent > seconds or not math.isfinite(value)

    return done, arrived


def race_spirals() -> list[Row]:
    batch = spirals()

    def seconds(train: Trainer, seeds: range) -> list[float]:
        found = []
        for seed in seeds:
            done, arrived = until(1e-3, LIMIT)
            train(mlp(seed, 2, 32, 32, 1), ng.Bernoulli(), batch, done)
            found.append(arrived[0] if arrived else math.inf)
        return found

    tuned = {rate: seconds(with_torch(adam(rate)), TUNED) for rate in RATES}
    rate = min(RATES, key=lambda r: (statistics.median(tuned[r]), r))
    ours = seconds(exact, REPORTED)
    rows = [
        Row("two spirals: seeds of 20 that arrive at 1e-3", sum(map(math.isfinite, ours)), "", "20",
            all(map(math.isfinite, ours)), f"median {statistics.median(ours):.2f} s")
    ]  # fmt: skip
    for name, make in (("L-BFGS", lbfgs), (f"Adam, rate {rate:g}", adam(rate))):
        theirs = seconds(with_torch(make), REPORTED[:5])
        reached = sum(map(math.isfinite, theirs))
        middle = min(statistics.median(theirs), LIMIT)  # non-arrivals count at the limit
        ratio = middle / statistics.median(ours)
        rows.append(Row(f"two spirals: CPU of {name} / ours", ratio, "×", "≥ 2", ratio >= 2,
                        f"{reached} of 5 seeds arrive within {LIMIT:g} s"))  # fmt: skip
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
