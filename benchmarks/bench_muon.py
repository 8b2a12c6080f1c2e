"""Muon with the settings of the race of 16 November 2026, against NGD with default settings.

Rows are the ratio of seconds to the targets of that race, which are nearer than those of the
present one, on the clock of the race: above one NGD is faster. Both start from the same weights,
in turn. Problems and seeds can be given:

    python benchmarks/bench_muon.py --seeds 201 202 203 autoencoder
"""

import argparse
import statistics

import numpy as np
import torch
from harness import Row, show

from natgrad.experiments.race.config import DEFAULT, PRESETS
from natgrad.experiments.race.entrants.ngd import natural
from natgrad.experiments.race.entrants.peers import peer
from natgrad.experiments.race.outcomes import reached
from natgrad.experiments.race.problems import load
from natgrad.experiments.race.training import Run, Settings

# The target, what its tuning found for Muon, and by how much NGD is meant to be ahead.
RACED = {
    "autoencoder": (
        0.0106,
        Settings(batch=1000, lr=0.0611, horizon=1.0, momentum=0.95, head=False),
        3.0,
    ),
    "classifier": (0.4, Settings(batch=125, lr=0.0327, momentum=0.95, head=False), None),
    "transformer": (2.0, Settings(batch=16, lr=0.0327, momentum=0.95, head=False), None),
}


def seconds(name: str, method: str, settings: Settings, seed: int) -> float:
    """Return the seconds to the target of one run; its budget if it does not arrive."""
    budget = PRESETS["paper"].part(name).budgets[0]
    run = Run(
        problem=name,
        method=method,
        settings=settings,
        seed=seed,
        budget=budget,
        points=80,
        test=False,
        machine="",
    )
    found = (natural if method == DEFAULT else peer)(run)
    return min(budget, reached(found["seconds"], found["score"], RACED[name][0]))


def compare(name: str, seeds: list[int]) -> Row:
    """Return the ratio on one problem, the geometric mean over seeds."""
    _, settings, aim = RACED[name]
    default = Settings(batch=load(name).batches[2])
    pairs = [
        (seconds(name, "Muon", settings, seed), seconds(name, DEFAULT, default, seed))
        for seed in seeds
    ]
    value = statistics.geometric_mean(float(np.divide(*pair)) for pair in pairs)
    detail = "; ".join(f"{a:.3g} / {b:.3g}" for a, b in pairs)
    met = None if aim is None else value >= aim
    return Row(f"{name}: Muon / NGD", value, "×", f"≥ {aim:g}" if aim else "", met, f"s {detail}")


def main() -> None:
    """Compare on the problems that were named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="*", default=[*RACED])
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    options = parser.parse_args()
    torch.set_num_threads(1)
    show([compare(name, options.seeds) for name in options.problems])


if __name__ == "__main__":
    main()
