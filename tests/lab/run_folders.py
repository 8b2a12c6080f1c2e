"""Run folders made of toy arrays, for the tests of what reads and shows them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.lab import figures
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

SIZES = [250, 500, 1000, 2500]
METHODS = ["EGD L=1", "EGD L=2", "EGD L=3", "NGD", "NGD population"]
ENVIRONMENT = {"python": "3.11.7", "torch": "2.13.0", "threads": 1, "cpu": "a processor"}


@dataclass(frozen=True, kw_only=True)
class Toy:
    """Accuracy against size."""

    dim: int = 1000
    depths: tuple[int, ...] = (1, 2, 3)
    rate: float = 1e-6
    end: float = float("inf")
    note: str = 'a "quoted" \\ word'


def toy_arrays(seeds: int = 5) -> Arrays:
    rng = np.random.default_rng(0)
    grid = np.log(np.array(SIZES) / 200.0)
    arrays = Arrays(method=METHODS, seed=list(range(seeds)), size=SIZES)
    level = np.array([0.15, 0.24, 0.3, 0.07, 0.12])[:, None, None]
    noise = 0.01 * rng.standard_normal((len(METHODS), seeds, len(SIZES)))
    accuracy = 0.55 + 0.44 * (1 - np.exp(-8 * level * grid)) + noise
    arrays.add("accuracy", accuracy, "method", "seed", "size")
    arrays.add("margin", accuracy[:, :, -1] - 0.5, "method", "seed")
    return arrays


def toy_picture(arrays: Arrays) -> dict[str, bytes]:
    with figures.style():
        figure, (left, right) = figures.panels(2)
        for values, method in zip(arrays["accuracy"], METHODS, strict=True):
            figures.band(left, SIZES, values, label=method, **figures.look(method))
            figures.band(
                right, SIZES, 1 - values, center="median", label=method, **figures.look(method)
            )
        left.set(title="Depth helps gradient descent only", xlabel="examples $N$")
        left.set_ylabel("test accuracy")
        right.set(title="and the error falls as a power", xlabel="examples $N$", xscale="log")
        right.set(ylabel="test error", yscale="log")
        figures.label_ticks(right.xaxis, SIZES)
        figures.legend(figure, columns=5)
    return figures.render(figure)


@cache
def one_picture() -> dict[str, bytes]:
    """The picture that most runs share, drawn once."""
    return toy_picture(toy_arrays())


def toy_claims(arrays: Arrays) -> list[Claim]:
    final = arrays["accuracy"][:, :, -1]
    return [
        Claim(
            id="depth-helps",
            statement="Gradient descent of depth 3 reaches 95 % with 2500 examples",
            source="[KMH21] Figure 4",
            relation=">=",
            bound=0.9,
            **over_seeds(final[2]),
        ),
        Claim(
            id="depth-is-nothing",
            statement="Depth 2 does no better than depth 1",
            source="[KMH21] §3",
            relation="<=",
            bound=1e-3,
            expected=False,
            **over_seeds(final[1] - final[0]),
        ),
        Claim(
            id="natural-within",
            statement="Natural gradient stays in the middle of the range",
            source="natgrad",
            relation="within",
            bound=(-1.0, 1.0),
            **over_seeds(final[3]),
        ),
    ]


def write_run(out: Path, name: str = "toy-lines", **changes: Any) -> RunFolder:
    """Write a complete run; `changes` replace entries of its report, or give `config`, `arrays`
    or `pictures`."""
    config = changes.pop("config", Toy())
    arrays = changes.pop("arrays", None) or toy_arrays()
    pictures = changes.pop("pictures", None) or one_picture()
    preset = changes.pop("preset", "paper")
    report = {
        "figure": name.replace("-", "/", 1),
        "title": "Depth helps gradient descent and leaves natural gradient alone",
        "source": "[KMH21] Figure 4",
        "preset": preset,
        "options": {},
        "seconds": 200.4,
        "seeds": 5,
        "claims": [claim.to_json(preset) for claim in toy_claims(toy_arrays())],
        "departures": ["The paper prints no seed; ours are 0 to 4."],
        "environment": ENVIRONMENT,
        "revision": "0123abc",
        "cells": {"done": 25, "reused": 5},
    } | changes
    folder = RunFolder(out / name)
    folder.write(config=config, report=report, arrays=arrays, pictures=pictures)
    return folder
