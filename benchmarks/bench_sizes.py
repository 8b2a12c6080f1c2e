"""NGD's step and memory beside AdamW's, on models of 10 to 85 million parameters.

Times are process seconds on one thread. Both train a copy of one model on the same batches, step by
step in turn, over whole refresh periods, so that the share of a refresh in every step is counted.
Memory is that of all tensors that an optimizer holds between steps: everything alive except the
model, its gradients and the data.

    python benchmarks/bench_sizes.py            the 10M models and a vocabulary of 50 257, 5 minutes
    python benchmarks/bench_sizes.py --all      the 85M GPT, too
    python benchmarks/bench_sizes.py mlp-10M    one of them
    python benchmarks/bench_sizes.py small      what `diagnose` predicts for the nine small networks
"""

import argparse
import copy
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from harness import Row, show
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from natgrad.optim import NGD, Diagnosis, diagnose
from natgrad.optim import statistics as step_statistics
from natgrad.optim._trial import held_bytes

sys.path.append(str(Path(__file__).parents[1]))
from tests.optim.zoo import TASKS as ZOO

FASTER, LIGHTER, SHORT = 2.5, 16.0, 10.0


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, width = x.shape
        parts = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.out(found.transpose(1, 2).reshape(b, t, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """The GPT that everybody trains, with its own head."""

    def __init__(self, vocabulary: int, length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.last(self.blocks(h))).flatten(0, 1)


@dataclass
class Task:
    """A model and batches.

    Attributes:
        batches: Pairs of inputs and labels.
        rounds: Refresh periods to time.
    """

    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]
    rounds: int


def mlp(batch: int) -> Task:
    widths = (784, 2048, 2048, 2048, 10)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    x = torch.randn(8 * batch, 784) @ torch.diag(torch.exp(-torch.arange(784) / 100.0))
    y = (x @ torch.randn(784, 10)).argmax(1)
    batches = list(zip(x.split(batch), y.split(batch), strict=True))
    return Task(nn.Sequential(*layers[:-1]), batches, 3)


def gpt(
    vocabulary: int, width: int, depth: int, heads: int, texts: int, length: int, rounds: int
) -> Task:
    model = GPT(vocabulary, length, width, depth, heads)
    # each token is followed by one of two others
    start = torch.randint(0, vocabulary, (4 * texts, 1))
    steps = torch.randint(1, 3, (4 * texts, length)).cumsum(1)
    text = torch.cat([start, start + steps], 1) % vocabulary
    batches = [(t[:, :-1], t[:, 1:].flatten()) for t in text.split(texts)]
    return Task(model, batches, rounds)


TASKS: dict[str, Callable[[], Task]] = {
    "mlp-10M": lambda: mlp(128),
    "gpt-10M": lambda: gpt(65, 384, 6, 6, 4, 256, 2),
    "gpt-50257-words": lambda: gpt(50257, 256, 2, 4, 4, 128, 2),
    "gpt-85M": lambda: gpt(65, 768, 12, 12, 2, 256, 1),
}
LONG = ("gpt-85M",)


def held(besides: set[int]) -> int:
    """Return the bytes of all tensors that are alive, but for storages named."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), Tensor) and thing.layout == torch.strided:
            storage = thing.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(size for place, size in found.items() if place not in besides)


def places(*tensors: Tensor | None) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors if t is not None}


class Run:
    """One optimizer on its own copy of a model."""

    def __init__(self, task: Task, make: Callable[[nn.Module, nn.Module], torch.optim.Optimizer]):
        self.model, self.criterion = copy.deepcopy(task.model), nn.CrossEntropyLoss()
        self.batches, self.losses, self.seconds = task.batches, [], 0.0
        self.parts: dict[str, float] = {}
        self.optimizer = make(self.model, self.criterion)

    def step(self) -> None:
        x, y = self.batches[len(self.losses) % len(self.batches)]
        start = time.process_time()
        loss = self.criterion(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seconds += time.process_time() - start
        self.losses.append(float(loss.detach()))
        if isinstance(self.optimizer, NGD):
            for part, seconds in self.optimizer.statistics.seconds.items():
                self.parts[part] = self.parts.get(part, 0.0) + seconds

    def clear(self) -> None:
        self.seconds, self.parts = 0.0, {}

    def bytes(self, before: int) -> int:
        """Return the bytes that the optimizer holds, if `before` were alive without it."""
        self.optimizer.zero_grad()
        return held(set()) - before


def predicted(label: str, foreseen: Diagnosis, seconds: float, held: float) -> list[Row]:
    """Return what `diagnose` said before training over what was found."""
    pairs = {
        "seconds": (foreseen.seconds, seconds),
        "bytes": (foreseen.bytes_per_parameter, held),
    }
    return [
        Row(
            f"{label}: {what} that diagnose predicts / found",
            before / after,
            "",
            "0.8 to 1.25",
            0.8 <= before / after <= 1.25,
        )
        for what, (before, after) in pairs.items()
    ]


def small(name: str) -> list[Row]:
    """Return the predictions for one of the nine small networks of the tests."""
    torch.manual_seed(0)
    task = ZOO[name]()
    rows = torch.arange(task.batch)
    foreseen = diagnose(task.model, task.criterion, loss=lambda: task.loss(rows))
    optimizer = NGD(task.model, task.criterion)
    for step in range(18 + 48):
        if step == 18:
            start = time.process_time()
        loss = task.loss(torch.randint(0, task.n, (task.batch,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = (time.process_time() - start) / 48
    held = held_bytes(optimizer.state_dict()["natural"]) / foreseen.parameters
    return predicted(name, foreseen, seconds, held)


def measure(name: str, **options: object) -> list[Row]:
    torch.manual_seed(0)
    task = TASKS[name]()
    count = sum(p.numel() for p in task.model.parameters())
    x, y = task.batches[0]
    criterion = nn.CrossEntropyLoss()
    foreseen = None
    if not options and name not in LONG:
        foreseen = diagnose(task.model, criterion, loss=lambda: criterion(task.model(x), y))
    runs: list[Run] = []
    state: list[float] = []
    for make in (
        lambda model, _: torch.optim.AdamW(model.parameters(), lr=1e-3),
        lambda model, criterion: NGD(model, criterion, **options),
    ):
        alive = held(set()) + 4 * count  # the copy of the model is not the optimizer's
        runs.append(Run(task, make))
        runs[-1].step()
        state.append(runs[-1].bytes(alive) / count)
    label = f"{name}{' ' if options else ''}{', '.join(f'{k}={v}' for k, v in options.items())}"
    if options:  # they change the memory; the time of a step hardly
        return [
            Row(f"{label}: bytes a parameter", state[1], "B", f"≤ {SHORT:g}", state[1] <= SHORT)
        ]
    adam, ours = runs
    assert isinstance(ours.optimizer, NGD)
    # from the 18th step on, periods have their full length
    period = ours.optimizer.refresh_every
    ours.optimizer._core.schedule.set(steps=18, since=period, due=False)
    for run in runs:
        run.clear()
    refreshed = 0
    for _ in range(task.rounds * period):
        for run in runs:
            run.step()
        refreshed += ours.optimizer.statistics.refreshed
    assert refreshed == task.rounds
    assert ours.losses[-1] < ours.losses[0]
    steps = task.rounds * period
    spent = ", ".join(f"{part} {1e3 * s / steps:.0f}" for part, s in ours.parts.items())
    detail = (
        f"{count / 1e6:.1f}M parameters; AdamW {1e3 * adam.seconds / steps:.0f} ms, NGD "
        f"{1e3 * ours.seconds / steps:.0f} ms a step ({spent}); loss {ours.losses[0]:.3f} to "
        f"{ours.losses[-1]:.3f} (AdamW {adam.losses[-1]:.3f})"
    )
    ratio = ours.seconds / adam.seconds
    found = ours.seconds / steps, state[1]
    rows = [] if foreseen is None else predicted(label, foreseen, *found)
    return [
        Row(f"{label}: NGD step / AdamW step", ratio, "", f"≤ {FASTER}", ratio <= FASTER, detail),
        Row(f"{label}: bytes a parameter", state[1], "B", f"≤ {LIGHTER:g}", state[1] <= LIGHTER),
        Row(f"{label}: AdamW's", state[0], "B", "", None),
        *rows,
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", choices=[[], "small", *TASKS], default=[])
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    step_statistics.clock = time.process_time
    for each in given.names or ["small", *(n for n in TASKS if given.all or n not in LONG)]:
        if each == "small":
            for task in ZOO:
                show(small(task))
            continue
        show(measure(each))
        show(measure(each, state_dtype=torch.bfloat16, weight_average=None))
