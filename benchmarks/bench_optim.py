"""The optimizer's step against plain backward and SGD, on the autoencoder of [BLH18] Fig 1D.

Times are process seconds on one thread, contestants in turn, medians over rounds. A round of NGD is
one cycle of its refresh schedule, so that the share of a refresh in every step is counted. The data
are synthetic with a spectrum like that of images: a step's time does not depend on them.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from harness import Row, exponent, report
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh
from torch.nn.functional import cross_entropy, mse_loss

from natgrad import Categorical, Gaussian
from natgrad.experiments.race.problems.networks import Convolutions, Transformer
from natgrad.likelihoods import Likelihood
from natgrad.optim import NGD, Factors, Quadratic
from natgrad.optim import statistics as step_statistics

AUTOENCODER = (784, 400, 200, 100, 50, 100, 200, 400, 784)


def network(widths: tuple[int, ...]) -> Sequential:
    torch.manual_seed(0)
    layers: list[Module] = []
    for a, b in pairwise(widths):
        layers += [Linear(a, b), Tanh()]
    return Sequential(*layers[:-1])


def images(n: int, side: int) -> Tensor:
    """Rows in [0, 1] with a decaying spectrum."""
    source = torch.Generator().manual_seed(1)
    mix = torch.randn(side, side, generator=source) * torch.exp(-torch.arange(side) / 40.0)
    return torch.sigmoid(torch.randn(n, side, generator=source) @ mix.mT)


def cpu_interleaved(*calls: Callable[[], object], rounds: int) -> list[float]:
    """Return the median process time of each call, in turn, after one round of warming up."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for call, spent in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            if turn:
                spent.append(time.process_time() - start)
    return [statistics.median(spent) for spent in times]


class Contest:
    """The same network trained by SGD through plain autograd, and by NGD with default settings.

    Both go through the same batches, again and again.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        batch: int,
        *,
        batches: int = 10,
        warm: int = 18,
        make: Callable[..., NGD] = NGD,
        **options: object,
    ) -> None:
        x = images(batches * batch, widths[0])
        teacher = torch.randn(widths[0], widths[-1], generator=torch.Generator().manual_seed(2))
        y = x if widths[-1] == widths[0] else ((x - x.mean(0)) @ teacher).argmax(1)
        self.x, self.y = x.split(batch), y.split(batch)
        self.squared = y is x
        self.plain, self.model = network(widths), network(widths)
        self.sgd = torch.optim.SGD(self.plain.parameters(), lr=1e-4)
        self.criterion = Gaussian() if self.squared else Categorical()
        self.ngd = make(self.model, self.criterion, **options)
        self.losses: list[float] = []
        self.turns = 0
        for _ in range(warm):  # until refreshes are rare
            self.natural()

    def gradient(self) -> None:
        self.turns += 1
        x, y = self.x[self.turns % len(self.x)], self.y[self.turns % len(self.x)]
        output = self.plain(x)
        if self.squared:
            loss = 0.5 * torch.nn.functional.mse_loss(output, y, reduction="sum") / len(output)
        else:
            loss = torch.nn.functional.cross_entropy(output, y)
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()

    def natural(self) -> None:
        at = len(self.losses) % len(self.x)
        loss = self.criterion(self.model(self.x[at]), self.y[at])
        self.ngd.zero_grad()
        loss.backward()
        self.ngd.step()
        self.losses.append(float(loss.detach()))

    def cycle(self, step: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(self.ngd.refresh_every):
                step()

        return run

    def ratio(self, rounds: int) -> tuple[float, float]:
        """Return seconds of a plain step, and NGD's in units of it."""
        plain, ours = cpu_interleaved(
            self.cycle(self.gradient), self.cycle(self.natural), rounds=rounds
        )
        each = len(self.x)
        assert sum(self.losses[-each:]) < sum(self.losses[:each])  # it trains
        return plain / self.ngd.refresh_every, ours / plain


def products(widths: tuple[int, ...], batch: int) -> Callable[[], None]:
    """The matrix products that one plain step cannot do without."""
    pairs = list(pairwise(widths))
    x = [torch.randn(batch, n) for n in widths]
    w = [torch.randn(b, a) for a, b in pairs]

    def run() -> None:
        for i, weight in enumerate(w):
            x[i] @ weight.mT
            x[i + 1].mT @ x[i]
            if i:
                x[i + 1] @ weight

    return run


def parts(contest: Contest, cycles: int) -> dict[str, float]:
    """Return the milliseconds of a step of NGD by part, of an average step."""
    total: dict[str, float] = {}
    steps = cycles * contest.ngd.refresh_every
    step_statistics.clock = time.process_time
    start = time.process_time()
    for _ in range(steps):
        contest.natural()
        for part, seconds in contest.ngd.statistics.seconds.items():
            total[part] = total.get(part, 0.0) + seconds
    spent = time.process_time() - start
    step_statistics.clock = time.perf_counter
    total["forward, backward, sampling"] = spent - sum(total.values())
    return {part: 1e3 * seconds / steps for part, seconds in total.items()}


def autoencoder() -> list[Row]:
    contest = Contest(AUTOENCODER, 1000)
    plain, ratio = contest.ratio(rounds=12)
    (bound,) = cpu_interleaved(products(AUTOENCODER, 1000), rounds=12)
    split = ", ".join(f"{part} {ms:.1f}" for part, ms in parts(contest, 6).items())
    every = Contest(AUTOENCODER, 1000, refresh=1).ratio(rounds=12)[1]
    return [
        Row(
            "autoencoder, batch 1000: default step / backward and SGD",
            ratio,
            "×",
            "≤ 2.5 (2 later)",
            ratio <= 2.5,
            f"plain step {1e3 * plain:.0f} ms, its matrix products alone {1e3 * bound:.0f} ms; "
            f"ours by part, ms: {split}",
        ),
        Row("the same, everything renewed at every step", every, "×", "", None),
        Row(
            "the same at batch 500",
            Contest(AUTOENCODER, 500).ratio(rounds=12)[1],
            "×",
            "",
            None,
        ),
    ]


RACE: dict[str, tuple[Callable[[], Module], int, tuple[int, ...], int]] = {
    "autoencoder": (lambda: network(AUTOENCODER), 1000, (784,), 0),
    "classifier": (Convolutions, 250, (784,), 10),
    "transformer": (lambda: Transformer(96, 64), 32, (64,), 96),
}
"""The race's networks: how each is made, its batch, the shape of a sample, classes (0: itself)."""

SETTINGS: dict[str, dict[str, Any]] = {
    "measured lengths, whole factors of all rows": {
        "step_length": Quadratic(),
        "factors": Factors(block=None, rows=None),
    },
    "the same, factors in blocks": {"step_length": Quadratic(), "factors": Factors(rows=None)},
    "the same, of enough rows": {"step_length": Quadratic()},
    "default: learned lengths": {},
    "default, but whole factors": {"factors": Factors(block=None)},
    "default, but all rows": {"factors": Factors(rows=None)},
    "default, but refreshed at every third step": {"refresh": 3},
    "default, but empirical Fisher": {"factors": Factors(source="empirical")},
    "default, but no average of the weights": {"weight_average": None},
}
"""From the most expensive step to the default, then the default with one part changed."""


def cycle(
    model: Module, optimizer: torch.optim.Optimizer, loss: Callable[..., Any], x: Tensor, y: Tensor
) -> None:
    """Take as many steps as a cycle of refreshes has."""
    for _ in range(6):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def race_networks() -> list[Row]:
    """Return a step of each setting over a plain one, on the networks of the race."""
    rows = []
    for name, (make, batch, shape, classes) in RACE.items():
        source = torch.Generator().manual_seed(0)
        x = images(batch, 784) if shape == (784,) else torch.randint(0, classes, (batch, *shape))
        y = x if not classes else torch.randint(0, classes, (batch,), generator=source)
        y = x.flatten() if not x.is_floating_point() else y
        criterion: Likelihood = Categorical() if classes else Gaussian()
        loss = cross_entropy if classes else mse_loss
        model = make()
        sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
        calls = [partial(cycle, model, sgd, loss, x, y)]
        for options in SETTINGS.values():
            model = make()
            calls.append(partial(cycle, model, NGD(model, criterion, **options), criterion, x, y))
            for _ in range(4):
                calls[-1]()
        base, *ours = cpu_interleaved(*calls, rounds=6)
        for setting, seconds in zip(SETTINGS, ours, strict=True):
            goal = "≤ 1.4" if setting.startswith("default:") else ""
            ratio, met = seconds / base, None
            if goal:
                met = ratio <= 1.4
            rows.append(Row(f"{name}, batch {batch}: {setting}", ratio, "×", goal, met))
    return rows


def growth() -> list[Row]:
    widths, plain, ours = [100, 300, 1000, 2000], [], []
    for width in widths:
        seconds, ratio = Contest((width,) * 4 + (10,), 1000, batches=1).ratio(rounds=3)
        plain.append(seconds)
        ours.append(seconds * ratio)
    ratios = ", ".join(f"{n}: {b / a:.1f}" for n, a, b in zip(widths, plain, ours, strict=True))
    rows = [
        Row(
            "growth exponent of a step with width, batch 1000",
            exponent(widths, ours),
            "",
            "",
            None,
            f"plain step {exponent(widths, plain):.2f}; ratios {ratios}",
        )
    ]
    depths, found = [2, 4, 8, 16], []
    for depth in depths:
        found.append(Contest((200,) * depth + (10,), 1000, batches=1).ratio(rounds=5)[1])
    detail = ", ".join(f"{n}: {r:.1f}" for n, r in zip(depths, found, strict=True))
    rows.append(Row("ratio at depth 16, width 200", found[-1], "×", "", None, f"depth {detail}"))
    return rows


def single() -> list[Row]:
    widths = [100, 300, 1000, 2000]
    rows = []
    for name, make, damping in (
        ("eq. 20 as published", NGD.published, {"damping": 1.0, "floor": 1.0, "lr": 0.2}),
        ("default step", NGD, {}),
    ):
        # At first the damping moves, and every inverse with it: wait until both have settled.
        contests = [
            Contest(sizes, 1, warm=120, make=make, **damping)
            for sizes in (AUTOENCODER, *((width,) * 4 + (10,) for width in widths))
        ]
        (seconds, ratio), *wider = [contest.ratio(rounds=25) for contest in contests]
        detail = ", ".join(f"{n}: {r:.1f}" for n, (_, r) in zip(widths, wider, strict=True))
        how = "; λ ≥ 1, α = 0.2, or single samples undo each other" if make is not NGD else ""
        plain, ours = [s for s, _ in wider], [s * r for s, r in wider]
        rows += [
            Row(
                f"batch size 1, autoencoder: {name} / backward and SGD",
                ratio,
                "×",
                "",
                None,
                f"plain step {1e3 * seconds:.1f} ms{how}",
            ),
            Row(
                f"batch size 1, width {widths[-1]}: {name} / backward and SGD",
                wider[-1][1],
                "×",
                "",
                None,
                f"at widths {detail}; seconds grow as width to the {exponent(widths, ours):.2f}, "
                f"of a plain step to the {exponent(widths, plain):.2f}",
            ),
        ]
    return rows


if __name__ == "__main__":
    report("Optimizer", [*race_networks(), *autoencoder(), *single(), *growth()])
