"""The race as an experiment: tune every contestant in the same way, then run the finals."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.race import problems
from natgrad.experiments.race.claims import claims, losses
from natgrad.experiments.race.config import (
    DEFAULT,
    KFAC,
    MINUTES,
    PEERS,
    PRESETS,
    PUBLISHED,
    TUNED,
    Race,
)
from natgrad.experiments.race.entrants import kfac_jax
from natgrad.experiments.race.entrants.ngd import natural
from natgrad.experiments.race.entrants.peers import collection, peer
from natgrad.experiments.race.entrants.spaces import space
from natgrad.experiments.race.outcomes import reached
from natgrad.experiments.race.training import Run, Settings
from natgrad.experiments.race.tuning import FIRST, Tuning, best_score, finalists, tune
from natgrad.lab._environment import environment
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import PRESETS as ALL_PRESETS
from natgrad.lab.experiment import Experiment, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS = tuple(field.name for field in fields(Settings))
_ONLY_ON = {KFAC: ("autoencoder", "digits"), PUBLISHED: ("autoencoder", "digits", "table")}
"""Contestants that race on some problems only: kfac-jax on those that its process can build."""


@dataclass(frozen=True)
class Heat:
    """One problem of the race, and the contestants that can race on it."""

    problem: str
    budget: float
    batches: tuple[int, ...]
    contestants: tuple[str, ...]


def compute(config: Race, sweep: Sweep) -> Arrays:
    """Return curves, seconds to the target, and every trial."""
    heats, notes = prepare(config)
    found = []
    for heat in heats:
        tables, further = _heat(config, heat, str(environment()["cpu"]), sweep)
        found.append(tables)
        notes += further
    arrays = Arrays(
        problem=[heat.problem for heat in heats],
        entrant=[*config.contestants, DEFAULT],
        contestant=list(config.contestants),
        seed=[FIRST + k for k in range(config.seeds)],
        trial=list(range(config.draws + config.refinements)),
        look=list(range(config.points + 1)),
        setting=list(_SETTINGS),
        note=notes,
    )
    for name, dims in _DIMS.items():
        arrays.add(name, np.stack([part[name] for part in found]), "problem", *dims)
    arrays.add("budget", [heat.budget for heat in heats], "problem")
    return arrays


def prepare(config: Race) -> tuple[list[Heat], list[str]]:
    """Return the heats that can run here, and sentences on those that cannot.

    Raises:
        InvalidInputError: If no problem can, or a package of the peers is missing.
    """
    if {"SOAP", "Shampoo"} & set(config.contestants):
        collection()
    absent, notes = set(), []
    if KFAC in config.contestants and set(config.problems) & set(_ONLY_ON[KFAC]):
        try:
            kfac_jax.environment()
        except kfac_jax.PeerUnavailableError as error:
            absent.add(KFAC)
            notes.append(f"kfac-jax did not race: {error}")
    heats = []
    for name, budget in zip(config.problems, config.budgets, strict=True):
        try:
            problem = problems.load(name)
        except InvalidInputError as error:
            notes.append(f"The problem {name} was left out: {error}")
            continue
        racing = tuple(
            who
            for who in config.contestants
            if who not in absent and name in _ONLY_ON.get(who, (name,))
        )
        heats.append(Heat(name, budget, problem.batches, racing))
    if not heats:
        raise InvalidInputError(f"no problem can be raced here. {' '.join(notes)}")
    return heats, notes


# The arrays of a heat, with their axes after that of the problem.
_DIMS: dict[str, tuple[str, ...]] = {
    "target": (),
    "tuned": ("contestant",),
    "raced": ("entrant",),
    "trial_settings": ("contestant", "trial", "setting"),
    "trial_best": ("contestant", "trial"),
    "trial_begun": ("contestant", "trial"),
    "whole_seconds": ("contestant", "trial"),
    "whole_best": ("contestant", "trial"),
    "whole_final": ("contestant", "trial"),
    "chosen": ("contestant",),
    "seconds": ("entrant", "seed", "look"),
    "score": ("entrant", "seed", "look"),
    "steps": ("entrant", "seed", "look"),
    "time_to_target": ("entrant", "seed"),
    "steps_to_target": ("entrant", "seed"),
    "best": ("entrant", "seed"),
    "final": ("entrant", "seed"),
    "test": ("entrant", "seed"),
    "test_error": ("entrant", "seed"),
    "bytes": ("entrant", "seed"),
    "product": ("entrant", "seed"),
    "begun": ("entrant", "seed"),
}


def _heat(config: Race, heat: Heat, machine: str, sweep: Sweep) -> tuple[dict[str, Any], list[str]]:
    """Tune and race on one problem; return its arrays, and sentences on its tuning."""

    def cell(who: str, settings: Settings, budget: float, seed: int, *, test: bool) -> Cell:
        run = Run(
            problem=heat.problem,
            method=DEFAULT if who == TUNED else who,
            settings=settings,
            seed=seed,
            budget=budget,
            # as often in short runs as in whole ones: evaluations take time, too
            points=max(1, round(config.points * budget / heat.budget)),
            test=test,
            machine=machine,
        )
        return Cell(_runner(who), run, f"{heat.problem}, {who}, seed {seed}")

    def trial(who: str, settings: Settings, budget: float, seed: int) -> Cell:
        return cell(who, settings, budget, seed, test=False)

    spaces = {who: space(who, heat.problem, heat.batches) for who in heat.contestants}
    found, target = tune(config, spaces, heat.budget, trial, sweep, heat.problem)
    chosen = {who: found[who].settings[found[who].chosen] for who in finalists(config, found)}
    chosen[DEFAULT] = spaces[TUNED].first
    racing = [who for who in chosen if who != TUNED or chosen[TUNED] != chosen[DEFAULT]]
    finals = [(who, seed) for seed in range(FIRST, FIRST + config.seeds) for who in racing]
    cells = [cell(who, chosen[who], heat.budget, seed, test=True) for who, seed in finals]
    results = dict(zip(finals, sweep(cells, f"{heat.problem}: finals"), strict=True))
    if TUNED not in racing:  # tuning found nothing better than the default settings
        results |= {(TUNED, seed): results[DEFAULT, seed] for _, seed in finals}
    tables = _empty(config)
    tables["target"] = target
    for who, tuning in found.items():
        _enter_tuning(tables, config.contestants.index(who), tuning, target)
    for (who, seed), result in results.items():
        at = [*config.contestants, DEFAULT].index(who), seed - FIRST
        _enter_final(tables, at, target, result)
    return tables, _edges(heat.problem, found)


def _edges(problem: str, found: dict[str, Tuning]) -> list[str]:
    names = [who for who, tuning in found.items() if who in PEERS and tuning.on_edge()]
    if not names:
        return []
    return [f"{problem}: the best rate is at the edge of what was tried for {', '.join(names)}."]


def _runner(who: str) -> Callable[[Run], Result]:
    if who == KFAC:
        return kfac_jax.kfac
    return peer if who in PEERS else natural


def _empty(config: Race) -> dict[str, Any]:
    sizes = {
        "entrant": len(config.contestants) + 1,
        "contestant": len(config.contestants),
        "trial": config.draws + config.refinements,
        "setting": len(_SETTINGS),
        "seed": config.seeds,
        "look": config.points + 1,
    }
    tables: dict[str, Any] = {
        name: np.full([sizes[dim] for dim in dims], np.nan) for name, dims in _DIMS.items()
    }
    for name in ("raced", "tuned"):
        tables[name] = np.zeros(tables[name].shape, dtype=bool)
    return tables


def _enter_tuning(tables: dict[str, Any], c: int, tuning: Tuning, target: float) -> None:
    tables["tuned"][c], tables["chosen"][c] = True, tuning.chosen
    for k, (settings, short) in enumerate(zip(tuning.settings, tuning.short, strict=True)):
        values = [getattr(settings, name) for name in _SETTINGS]
        tables["trial_settings"][c, k] = [np.nan if value is None else value for value in values]
        tables["trial_best"][c, k] = best_score(short)
        tables["trial_begun"][c, k] = short["begun"]
    for k, whole in tuning.whole.items():
        tables["whole_seconds"][c, k] = reached(whole["seconds"], whole["score"], target)
        tables["whole_best"][c, k] = np.min(whole["score"])
        tables["whole_final"][c, k] = whole["score"][-1]


def _enter_final(
    tables: dict[str, Any], at: tuple[int, int], target: float, result: Result
) -> None:
    tables["raced"][at[0]] = True
    for curve in ("seconds", "score", "steps"):
        tables[curve][at][: len(result[curve])] = result[curve]
    for quantity in ("test", "test_error", "product", "begun"):
        tables[quantity][at] = result[quantity]
    tables["bytes"][at] = result.get("bytes", np.nan)  # kfac-jax does not say
    tables["best"][at], tables["final"][at] = np.min(result["score"]), result["score"][-1]
    tables["time_to_target"][at] = reached(result["seconds"], result["score"], target)
    tables["steps_to_target"][at] = reached(result["steps"], result["score"], target)


def draw(config: Race, arrays: Arrays) -> "Figure":
    """Return ratios of seconds to the target, and curves."""
    from natgrad.experiments.race.draw import picture

    return picture(arrays)


RACE = Experiment(
    name="race",
    title="Seconds to a target: NGD and its peers, tuned in the same way",
    source="natgrad bench",
    presets={name: PRESETS[name] for name in ALL_PRESETS},
    minutes={name: MINUTES[name] for name in ALL_PRESETS},
    compute=compute,
    claims=claims,
    draw=draw,
    departures=losses,
)
"""The race; `natgrad bench` runs it."""
