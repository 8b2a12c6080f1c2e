"""The experiments that the command line knows."""

import difflib
from typing import Any

from natgrad._checks import instance
from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment

_EXPERIMENTS: dict[str, Experiment[Any]] = {}


def register(experiment: Experiment[Any]) -> Experiment[Any]:
    """Make an experiment known under its name, and return it."""
    instance(experiment, "an experiment", Experiment)
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def names() -> list[str]:
    """Return the names of all experiments, sorted, without importing any.

    Example:
        >>> names() == sorted(names())
        True
    """
    return sorted(_EXPERIMENTS)


def experiments() -> list[Experiment[Any]]:
    """Return all experiments, by name."""
    return [_EXPERIMENTS[name] for name in sorted(_EXPERIMENTS)]


def experiment(name: str) -> Experiment[Any]:
    """Return the experiment of a name.

    Raises:
        InvalidInputError: If there is none; the message offers the nearest.
    """
    instance(name, "the name of a figure", str)
    if name in _EXPERIMENTS:
        return _EXPERIMENTS[name]
    near = difflib.get_close_matches(name, _EXPERIMENTS, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]}?" if near else "`natgrad list` shows them all."
    raise InvalidInputError(f"there is no figure {name!r}. {hint}")
