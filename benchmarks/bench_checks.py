"""Cost of checks: `natural` and the same direction prepared once, timed in turn.

    python benchmarks/bench_checks.py

Bound: checks take at most 5 % of `natural` at (n, d) = (40, 20).
"""

import time

import torch

import natgrad as ng
from natgrad.directions._natural import prepare

ROUNDS = 3000


def main() -> None:
    """Print the share of the time of `natural` that its checks take."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 20, dtype=torch.float64, generator=draw)
    y = torch.sign(torch.randn(40, dtype=torch.float64, generator=draw))
    for model, shape in ((ng.Direct(), (20,)), (ng.Diagonal(2), (2, 20))):
        w = 0.3 * torch.randn(*shape, dtype=torch.float64, generator=draw)
        problem = (ng.Bernoulli(), model, w, (x, y))
        field = torch.no_grad()(prepare(*problem))
        assert torch.equal(field(w), ng.natural(*problem))
        checked, bare = _best(lambda p=problem: ng.natural(*p), lambda f=field, w=w: f(w))
        share = (checked - bare) / checked
        print(
            f"{model!r}: natural {1e6 * checked:.0f} µs, prepared {1e6 * bare:.0f} µs, checks "
            f"{100 * share:.1f} % (bound 5 %)"
        )


def _best(*calls) -> list[float]:
    """Return the shortest time of each call, timed in turn."""
    times = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            times[i] = min(times[i], time.process_time() - start)
    return times


if __name__ == "__main__":
    main()
