"""The race as an experiment: tune every contestant in the same way, then run the finals."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.race import _kfac_jax, problems
from natgrad.experiments.race._ngd import natural
from natgrad.experiments.race._peers import collection, peer
from natgrad.experiments.race.claims import claims, losses
from natgrad.experiments.race.config import (
    DEFAULT,
    KFAC,
    MINUTES,
    PEERS,
    PRESETS,
    UNTUNED,
    Race,
)
from natgrad.experiments.race.contestants import space
from natgrad.experiments.race.outcomes import rank, reached
from natgrad.experiments.race.training import Run, Settings
from natgrad.lab._environment import environment
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import PRESETS as ALL_PRESETS
from natgrad.lab.experiment import Experiment, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TUNING_SEED = 0
"""Seed of all trials; the finals use the seeds from 1 on."""

_SETTINGS = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True)
class Heat:
    """One problem of the race, and the contestants that can race on it."""

    problem: str
    target: float
    budget: float
    batches: tuple[int, ...]
    contestants: tuple[str, ...]


def compute(config: Race, sweep: Sweep) -> Arrays:
    """Return curves, seconds to the target, and every trial."""
    heats, notes = prepare(config)
    arrays = Arrays(
        problem=[heat.problem for heat in heats],
        entrant=[*config.contestants, UNTUNED],
        contestant=list(config.contestants),
        seed=[TUNING_SEED + 1 + k for k in range(config.seeds)],
        trial=list(range(config.trials)),
        look=list(range(config.points + 1)),
        setting=list(_SETTINGS),
        note=notes,
    )
    machine = str(environment()["cpu"])
    found = [_heat(config, heat, machine, sweep) for heat in heats]
    for name, dims in _DIMS.items():
        arrays.add(name, np.stack([part[name] for part in found]), "problem", *dims)
    arrays.add("target", [heat.target for heat in heats], "problem")
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
    if KFAC in config.contestants:
        try:
            _kfac_jax.environment()
        except _kfac_jax.PeerUnavailableError as error:
            absent.add(KFAC)
            notes.append(f"kfac-jax did not race: {error}")
    heats = []
    for name, target, budget in zip(config.problems, config.targets, config.budgets, strict=True):
        try:
            problem = problems.load(name)
        except InvalidInputError as error:
            notes.append(f"The problem {name} was left out: {error}")
            continue
        absent_here = absent if name in _KFAC_PROBLEMS else absent | {KFAC}
        racing = tuple(who for who in config.contestants if who not in absent_here)
        heats.append(Heat(name, target, budget, problem.batches, racing))
    if not heats:
        raise InvalidInputError(f"no problem can be raced here. {' '.join(notes)}")
    return heats, notes


_KFAC_PROBLEMS = ("autoencoder", "digits")  # those that its process can build

# The arrays of a heat, with their axes after that of the problem.
_DIMS: dict[str, tuple[str, ...]] = {
    "raced": ("entrant",),
    "trial_settings": ("contestant", "trial", "setting"),
    "trial_seconds": ("contestant", "trial"),
    "trial_best": ("contestant", "trial"),
    "trial_begun": ("contestant", "trial"),
    "chosen": ("entrant",),
    "seconds": ("entrant", "seed", "look"),
    "score": ("entrant", "seed", "look"),
    "steps": ("entrant", "seed", "look"),
    "time_to_target": ("entrant", "seed"),
    "steps_to_target": ("entrant", "seed"),
    "test": ("entrant", "seed"),
    "test_error": ("entrant", "seed"),
    "product": ("entrant", "seed"),
    "begun": ("entrant", "seed"),
}


def _heat(config: Race, heat: Heat, machine: str, sweep: Sweep) -> dict[str, Any]:
    """Tune and race on one problem: contestants take turns trial by trial, then seed by seed."""
    drawn = {
        who: space(who, heat.problem, heat.batches).draw(config.trials) for who in heat.contestants
    }

    def cell(who: str, settings: Settings, seed: int, *, final: bool) -> Cell:
        run = Run(
            problem=heat.problem,
            method=who,
            settings=settings,
            seed=seed,
            budget=heat.budget,
            points=config.points,
            target=heat.target,
            stop=not final,
            test=final,
            machine=machine,
        )
        return Cell(_runner(who), run, f"{heat.problem}, {who}, seed {seed}")

    order = [(who, k) for k in range(config.trials) for who in heat.contestants]
    cells = [cell(who, drawn[who][k], TUNING_SEED, final=False) for who, k in order]
    trials = dict(zip(order, sweep(cells, f"{heat.problem}: tuning"), strict=True))
    ranks = {at: _rank(result, heat.target) for at, result in trials.items()}
    best = {
        who: min(
            range(config.trials), key=[ranks[who, k] for k in range(config.trials)].__getitem__
        )
        for who in heat.contestants
    }
    entrants = {who: (who, best[who]) for who in heat.contestants}
    entrants[UNTUNED] = (DEFAULT, 0)
    finals = [(name, seed) for seed in range(1, config.seeds + 1) for name in entrants]
    cells = [
        cell(entrants[name][0], drawn[entrants[name][0]][entrants[name][1]], seed, final=True)
        for name, seed in finals
    ]
    results = dict(zip(finals, sweep(cells, f"{heat.problem}: finals"), strict=True))
    tables = _empty(config)
    for (who, k), result in trials.items():
        _enter_trial(tables, config, heat, who, k, drawn[who][k], result)
    for (name, seed), result in results.items():
        _enter_final(tables, config, heat, name, seed, entrants[name][1], result)
    return tables


def _runner(who: str) -> Callable[[Run], Result]:
    if who == KFAC:
        return _kfac_jax.kfac
    return peer if who in PEERS else natural


def _rank(result: Result, target: float) -> tuple[float, float]:
    return rank(reached(result["seconds"], result["score"], target), result["score"])


def _empty(config: Race) -> dict[str, Any]:
    sizes = {
        "entrant": len(config.contestants) + 1,
        "contestant": len(config.contestants),
        "trial": config.trials,
        "setting": len(_SETTINGS),
        "seed": config.seeds,
        "look": config.points + 1,
    }
    tables: dict[str, Any] = {
        name: np.full([sizes[dim] for dim in dims], np.nan) for name, dims in _DIMS.items()
    }
    tables["raced"] = np.zeros(sizes["entrant"], dtype=bool)
    return tables


def _enter_trial(
    tables: dict[str, Any],
    config: Race,
    heat: Heat,
    who: str,
    k: int,
    settings: Settings,
    result: Result,
) -> None:
    at = config.contestants.index(who), k
    values = [getattr(settings, name) for name in _SETTINGS]
    tables["trial_settings"][at] = [np.nan if value is None else value for value in values]
    tables["trial_seconds"][at] = reached(result["seconds"], result["score"], heat.target)
    tables["trial_best"][at] = np.min(result["score"])
    tables["trial_begun"][at] = result["begun"]


def _enter_final(
    tables: dict[str, Any],
    config: Race,
    heat: Heat,
    name: str,
    seed: int,
    chosen: int,
    result: Result,
) -> None:
    e = [*config.contestants, UNTUNED].index(name)
    at = e, seed - 1
    tables["raced"][e], tables["chosen"][e] = True, chosen
    for curve in ("seconds", "score", "steps"):
        tables[curve][at][: len(result[curve])] = result[curve]
    for quantity in ("test", "test_error", "product", "begun"):
        tables[quantity][at] = result[quantity]
    tables["time_to_target"][at] = reached(result["seconds"], result["score"], heat.target)
    tables["steps_to_target"][at] = reached(result["steps"], result["score"], heat.target)


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
