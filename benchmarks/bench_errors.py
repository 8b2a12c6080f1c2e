"""Errors of labels drawn from the model (the Fisher) against those of the data (the empirical one).

On each problem of the race both train from the same weights on the same batches, in turn, for the
same CPU seconds. Rows are the ratio of their scores on validation data, sampled over empirical:
below one the Fisher is better. Names of problems, seconds and seeds can be given:

    python benchmarks/bench_errors.py --seconds 4 --seeds 301 302 noisy table
"""

import argparse
import math
import statistics
import warnings

import torch
from harness import Row, show

from natgrad.errors import InvalidInputError
from natgrad.experiments.race import problems
from natgrad.experiments.race._clock import Clock
from natgrad.experiments.race.config import PRESETS
from natgrad.experiments.race.entrants.ngd import criterion_of
from natgrad.experiments.race.training import shuffled
from natgrad.optim import NGD, Factors, UncoveredWarning


def score(problem: problems.Problem, source: str, seed: int, seconds: float) -> tuple[float, int]:
    """Return the score of the average of the weights after these seconds, and the steps taken."""
    model, criterion = problem.make(seed), criterion_of(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        optimizer = NGD(model, criterion, factors=Factors(source=source))
    batches = shuffled(len(problem.train), problem.batches[2], seed)
    clock, steps = Clock(), 0
    while clock.seconds < seconds:
        with clock.running():
            x, y = problem.batch(problem.train, next(batches))
            output = model(x)
            optimizer.zero_grad()
            criterion(*(output if isinstance(output, tuple) else (output,)), y).backward()
            optimizer.step()
        steps += 1
    with optimizer.averaged():
        return problem.score(model, problem.validation)[0], steps


def compare(name: str, seconds: float, seeds: list[int]) -> Row:
    """Return the ratio of scores on one problem, the geometric mean over seeds."""
    problem = problems.load(name)
    if problem.kind == "variational":
        return Row(
            f"{name}: not comparable", math.nan, "", "", None, "a custom loss has no sampled errors"
        )
    ratios, details = [], []
    for seed in seeds:
        (sampled, k), (empirical, m) = (
            score(problem, source, seed, seconds) for source in ("sampled", "empirical")
        )
        ratios.append(sampled / empirical)
        details.append(f"{sampled:.4g} / {empirical:.4g} in {k} / {m} steps")
    return Row(f"{name}: sampled / empirical", statistics.geometric_mean(ratios), "×", "", None,
               "; ".join(details))  # fmt: skip


def main() -> None:
    """Compare on the problems that were named."""
    known = PRESETS["paper"].problems
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="*", default=known, choices=[*known, []])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[301])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.problems or known:
        try:
            budget = min(options.seconds, PRESETS["paper"].part(name).budgets[0])
            rows.append(compare(name, budget, options.seeds))
        except InvalidInputError as error:  # its data are not here
            rows.append(Row(f"{name}: left out", math.nan, "", "", None, str(error)))
    show(rows)


if __name__ == "__main__":
    main()
