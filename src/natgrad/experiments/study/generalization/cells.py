"""Cells of the study: choose a step length on some draws, compare the methods on others."""

import math
from dataclasses import dataclass

import numpy as np

from natgrad.experiments.study.generalization.config import Generalization
from natgrad.experiments.study.generalization.methods import METHODS, Outcome, applies
from natgrad.experiments.study.generalization.problems import PROBLEMS, TARGETS, Problem, draw
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

FIRST_DRAW = 1000  # of tuning; seeds of the comparison count from 0
TOLERANCE = 0.05  # of the error, relative: a shorter run is worth that much
WORTH = 4  # times the steps of the fastest setting: a longer run is not worth more


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """One method on one problem, with all its settings, on the draws of tuning."""

    problem: Problem
    method: str
    draws: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One method on one problem, with its chosen setting, on the draws of the comparison."""

    problem: Problem
    method: str
    setting: float
    seeds: int
    most: int


def compute(config: Generalization, sweep: Sweep) -> Arrays:
    """Return errors, steps and losses of every method, problem and seed; NaN if not reached."""
    problems = PROBLEMS[:: config.every]
    pairs = [(p, m) for p in problems for m in METHODS if applies(m, p)]
    tuned = sweep(
        [
            Cell(
                tune, Tuning(problem=p, method=m, draws=config.draws, most=config.most), _name(p, m)
            )
            for p, m in pairs
        ],
        "tuning",
    )
    settings = [float(result["setting"]) for result in tuned]
    compared = sweep(
        [
            Cell(
                compare,
                Comparison(problem=p, method=m, setting=s, seeds=config.seeds, most=config.most),
                _name(p, m),
            )
            for (p, m), s in zip(pairs, settings, strict=True)
        ],
        "comparison",
    )
    shape = (len(problems), len(METHODS))
    arrays = Arrays(
        problem=[p.name for p in problems], method=list(METHODS), seed=range(config.seeds)
    )
    names = list(METHODS)
    chosen, edge = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    error, steps, loss = (np.full((*shape, config.seeds), np.nan) for _ in range(3))
    for (p, m), setting, result in zip(pairs, settings, compared, strict=True):
        at = problems.index(p), names.index(m)
        grid = METHODS[m].settings[p.family]
        chosen[at], edge[at] = setting, setting in (grid[0], grid[-1])
        error[at], steps[at], loss[at] = (result[key] for key in ("error", "steps", "loss"))
    arrays.add("setting", chosen, "problem", "method")
    arrays.add("edge", edge, "problem", "method")
    arrays.add("error", error, "problem", "method", "seed")
    arrays.add("steps", steps, "problem", "method", "seed")
    arrays.add("loss", loss, "problem", "method", "seed")
    return arrays


def tune(config: Tuning) -> Result:
    """Return the fastest setting among those with nearly the lowest error.

    Settings that arrive most often come first. Among them, the median error may exceed the lowest
    one by `TOLERANCE`; the setting with the fewest steps is chosen. The longest steps are tried
    first, and others may take `WORTH` times as many steps as the fastest that always arrived.
    """
    settings = METHODS[config.method].settings[config.problem.family]
    late = Outcome(math.nan, config.most, math.nan)
    found = {setting: [late] * config.draws for setting in settings}
    most = config.most
    for setting in sorted(settings, reverse=True):
        found[setting] = [
            train(config.problem, config.method, setting, FIRST_DRAW + d, most)
            for d in range(config.draws)
        ]
        arrivals = [outcome.steps for outcome in found[setting] if np.isfinite(outcome.error)]
        if len(arrivals) == config.draws:
            most = min(most, math.ceil(WORTH * max(np.median(arrivals), 1)))
        elif not arrivals and most < config.most:
            break  # shorter steps take longer still
    rows = [found[setting] for setting in settings]
    errors = np.array([[outcome.error for outcome in row] for row in rows])
    steps = np.array([np.median([outcome.steps for outcome in row]) for row in rows])
    arrived = np.isfinite(errors).sum(1)
    center = np.median(np.where(np.isfinite(errors), errors, np.inf), axis=1)
    center = np.where(arrived == arrived.max(), center, np.inf)
    near = np.flatnonzero(center <= (1 + TOLERANCE) * center.min())
    return {"setting": np.asarray(settings[near[steps[near].argmin()]]), "errors": errors}


def compare(config: Comparison) -> Result:
    """Return errors, steps and final training losses, one of each per seed."""
    runs = [
        train(config.problem, config.method, config.setting, seed, config.most)
        for seed in range(config.seeds)
    ]
    return {
        "error": np.array([run.error for run in runs]),
        "steps": np.array([float(run.steps) for run in runs]),
        "loss": np.array([run.loss for run in runs]),
    }


def train(problem: Problem, method: str, setting: float, seed: int, most: int) -> Outcome:
    """Return the outcome of one run."""
    target = TARGETS[problem.family]
    return METHODS[method].train(draw(problem, seed), setting, target, most)


def _name(problem: Problem, method: str) -> str:
    return f"{method}: {problem.name}"
