"""The last step kept in bfloat16 (the default in single precision) against kept in float32.

NGD takes its step along the direction that it keeps. Both kinds train from the same weights on the
same batches. Rows are the ratio of their steps to a target on validation data, bfloat16 over
float32: above one the rounding costs steps. Problems, seeds and the limit of steps can be given:

    python benchmarks/bench_rounding.py --seeds 201 202 203 classifier autoencoder
"""

import argparse
import math
import statistics
import warnings
from unittest.mock import patch

import numpy as np
import torch
from harness import Row, show

from natgrad.experiments.race import problems
from natgrad.experiments.race.entrants.ngd import criterion_of
from natgrad.experiments.race.outcomes import reached
from natgrad.experiments.race.training import shuffled
from natgrad.optim import NGD, UncoveredWarning
from natgrad.optim._steps import direction, learned

# The targets of the race of 16 November 2026, and the limit of steps; the transformer's is 2 nats.
TARGETS = {"classifier": (0.4, 120), "autoencoder": (0.0106, 240), "transformer": (2.0, 200)}
EVERY = 4


def steps_to_target(name: str, seed: int, *, rounded: bool) -> float:
    """Return the steps to the target of one run, judged by the average of its weights."""
    problem, (target, most) = problems.load(name), TARGETS[name]
    model, criterion = problem.make(seed), criterion_of(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        optimizer = NGD(model, criterion)
    batches = shuffled(len(problem.train), problem.batches[2], seed)
    shorter = direction.shorter if rounded else lambda dtype: dtype
    steps, scores = [0.0], [problem.score(model, problem.validation)[0]]
    with patch.object(direction, "shorter", shorter), patch.object(learned, "shorter", shorter):
        while steps[-1] < most and scores[-1] > target:
            for _ in range(EVERY):
                x, y = problem.batch(problem.train, next(batches))
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with optimizer.averaged():
                scores.append(problem.score(model, problem.validation)[0])
            steps.append(steps[-1] + EVERY)
    return reached(np.array(steps), np.array(scores), target)


def compare(name: str, seeds: list[int]) -> Row:
    """Return the ratio of steps on one problem, the geometric mean over seeds."""
    pairs = [
        tuple(steps_to_target(name, seed, rounded=rounded) for rounded in (True, False))
        for seed in seeds
    ]
    detail = "; ".join(f"{a:.2f} / {b:.2f}" for a, b in pairs)
    ratios = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    value = statistics.geometric_mean(ratios) if ratios else math.nan
    return Row(f"{name}: bfloat16 / float32", value, "×", "", None, f"steps {detail}")


def main() -> None:
    """Compare on the problems that were named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="*", default=["classifier", "autoencoder"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    options = parser.parse_args()
    torch.set_num_threads(1)
    show([compare(name, options.seeds) for name in options.problems])


if __name__ == "__main__":
    main()
