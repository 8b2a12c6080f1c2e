"""Tuning: short runs, refinements, runs of the whole budget, and the target they set."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from natgrad.experiments.race.config import PEERS, Race
from natgrad.experiments.race.entrants.spaces import Space
from natgrad.experiments.race.outcomes import rank, reached
from natgrad.experiments.race.training import Settings
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

MakeCell = Callable[[str, Settings, float, int], Cell]
"""Makes the cell of a contestant's trial with these settings, this budget and this seed."""

SEEDS = range(0, -1000, -1)
"""Seeds of the tuning; trials use the first."""

FIRST = 11
"""First seed of the finals. Those below were used to try out the rules of the race."""


@dataclass
class Tuning:
    """What one contestant tried.

    Attributes:
        settings: The settings of its short runs.
        short: The results of these.
        whole: The results of runs of the whole budget, by number of the short run.
        chosen: The number of the settings for the finals.
        rank: Seconds to the target and best score with these settings, the key of a ranking.
    """

    settings: list[Settings] = field(default_factory=list)
    short: list[Result] = field(default_factory=list)
    whole: dict[int, Result] = field(default_factory=dict)
    chosen: int = 0
    rank: tuple[float, float] = (math.inf, math.inf)

    def scores(self) -> list[float]:
        """Return the best score of each short run; infinite if it diverged."""
        return [best_score(result) for result in self.short]

    def on_edge(self) -> bool:
        """Return whether the chosen rate is the lowest or the highest that was tried."""
        rates = {s.lr for s in self.settings if s.lr is not None}
        best = self.settings[self.chosen].lr
        return best is not None and len(rates) > 1 and best in (min(rates), max(rates))


def best_score(result: Result) -> float:
    """Return the lowest score of a run; infinite if it diverged."""
    score = result["score"]
    return float(np.min(score)) if math.isfinite(score[-1]) else math.inf


def tune(
    config: Race,
    spaces: Mapping[str, Space],
    budget: float,
    cell: MakeCell,
    sweep: Sweep,
    title: str,
) -> tuple[dict[str, Tuning], float]:
    """Return what every contestant tried, and the target.

    All get the same numbers of runs, and take turns. Short runs have a schedule of their own
    length. The target is fixed before any run of the finals. First the lowest score that any peer
    reached by `config.mark` of the budget ranks the whole runs. That run may have been lucky, so
    the best peers run again with further seeds; the target is the lowest median of their scores.

    Args:
        config: The race.
        spaces: Where each contestant's settings are drawn from.
        budget: Seconds of a whole run.
        cell: Makes a trial.
        sweep: Runs the trials.
        title: What to call the sweep.
    """
    found = {who: Tuning() for who in spaces}

    def run(drawn: Sequence[tuple[str, Settings]], seconds: float, name: str) -> list[Result]:
        made = [cell(who, settings, seconds, SEEDS[0]) for who, settings in drawn]
        return sweep(made, f"{title}: {name}")

    draws = {who: space.draw(config.draws) for who, space in spaces.items()}
    rounds = [[(who, draws[who][k]) for who in spaces] for k in range(config.draws)]
    first = [each for drawn in rounds for each in drawn]
    short = config.short * budget
    _enter(found, first, run(first, short, "tuning"))
    for _ in range(config.refinements):
        further = [
            (who, space.refine(list(zip(found[who].settings, found[who].scores(), strict=True))))
            for who, space in spaces.items()
        ]
        _enter(found, further, run(further, short, "tuning near the best"))
    kept = {who: _best(tuning, config.whole) for who, tuning in found.items()}
    order = [(who, kept[who][k]) for k in range(config.whole) for who in spaces]
    whole = run([(who, found[who].settings[k]) for who, k in order], budget, "whole runs")
    for (who, k), result in zip(order, whole, strict=True):
        found[who].whole[k] = result
    mark = config.mark * budget
    peers = [tuning for who, tuning in found.items() if who in PEERS]
    lowest = min(by(mark, result) for tuning in peers for result in tuning.whole.values())
    _choose(found, lowest)
    best = [who for who in finalists(config, found) if who in PEERS]
    order = [(who, seed) for seed in SEEDS[1 : config.marks + 1] for who in best]
    again = [cell(who, found[who].settings[found[who].chosen], budget, s) for who, s in order]
    scores: dict[str, list[float]] = {who: [] for who in best}
    for (who, _), result in zip(order, sweep(again, f"{title}: the target"), strict=True):
        scores[who].append(by(mark, result))
    target = min([float(np.median(each)) for each in scores.values() if each] or [lowest])
    _choose(found, target)
    return found, target


def by(seconds: float, result: Result) -> float:
    """Return the lowest score of a run by this time."""
    return float(np.min(result["score"][result["seconds"] <= seconds]))


def _choose(found: Mapping[str, Tuning], target: float) -> None:
    """Choose every contestant's settings, by seconds to a target, then by the best score."""
    for tuning in found.values():
        ranks = {k: _rank(result, target) for k, result in tuning.whole.items()}
        tuning.chosen = min(ranks, key=ranks.__getitem__)
        tuning.rank = ranks[tuning.chosen]


def finalists(config: Race, found: Mapping[str, Tuning]) -> list[str]:
    """Return the contestants of the finals: the best peers, and all others."""
    peers = sorted((who for who in found if who in PEERS), key=lambda who: found[who].rank)
    return [who for who in found if who in peers[: config.finalists] or who not in PEERS]


def _enter(
    found: Mapping[str, Tuning], drawn: Sequence[tuple[str, Settings]], results: Sequence[Result]
) -> None:
    for (who, settings), result in zip(drawn, results, strict=True):
        found[who].settings.append(settings)
        found[who].short.append(result)


def _best(tuning: Tuning, count: int) -> list[int]:
    scores = tuning.scores()
    return sorted(range(len(scores)), key=scores.__getitem__)[:count]


def _rank(result: Result, target: float) -> tuple[float, float]:
    return rank(reached(result["seconds"], result["score"], target), result["score"])
