"""The registry of experiments that the command line offers."""

import difflib
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

from natgrad._checks import instance
from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment

__all__ = ["expand", "experiment", "experiments", "names", "names_by_default", "register"]

_TABLE = "natgrad.experiments"
"""Module whose `FIGURES` gives the module of each figure, and `BY_DEFAULT` the groups that run
without being named, and `FIRST` the figure that runs before all others. Named here, imported on
demand."""


class _Experiments(MutableMapping[str, Experiment[Any]]):
    """Experiments by name. A figure of the table is imported on first use."""

    def __init__(self) -> None:
        self._known: dict[str, Experiment[Any]] = {}

    def __getitem__(self, name: str) -> Experiment[Any]:
        if name not in self._known:
            self._known[name] = import_module(_figures()[name]).EXPERIMENT
        return self._known[name]

    def __setitem__(self, name: str, experiment: Experiment[Any]) -> None:
        self._known[name] = experiment

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:  # without importing the figure
        return name in self._known or name in _figures()

    def __iter__(self) -> Iterator[str]:
        return iter({**_figures(), **self._known})

    def __len__(self) -> int:
        return len({**_figures(), **self._known})


def _figures() -> Mapping[str, str]:
    figures: Mapping[str, str] = import_module(_TABLE).FIGURES
    return figures


_EXPERIMENTS: MutableMapping[str, Experiment[Any]] = _Experiments()


def register(experiment: Experiment[Any]) -> Experiment[Any]:
    """Register an experiment under its name, and return it.

    Example:
        >>> figure = experiment("kmh21/fig4")
        >>> register(figure) is figure
        True
    """
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


def names_by_default(every: bool = False) -> list[str]:
    """Return the figures that run if none is named, in the order in which they run.

    Args:
        every: Return all figures; by default the papers' own, and registered ones.

    Example:
        >>> names_by_default()[0], "pinn/poisson" in names_by_default()
        ('kmh21/fig2', False)
    """
    table = import_module(_TABLE)
    wanted = [
        name
        for name in names()
        if every or name not in table.FIGURES or name.partition("/")[0] in table.BY_DEFAULT
    ]
    return sorted(wanted, key=lambda name: name != table.FIRST)


def expand(name: str) -> list[str]:
    """Return the figures of a group, or the name itself if it is no group.

    Example:
        >>> expand("blh18")
        ['blh18/fig1a', 'blh18/fig1b', 'blh18/fig1c', 'blh18/fig1d']
    """
    instance(name, "the name of a figure", str)
    return [one for one in names() if one.partition("/")[0] == name] or [name]


def experiments() -> list[Experiment[Any]]:
    """Return all experiments: the papers' own first, in the order of the papers.

    Example:
        >>> [figure.name for figure in experiments()][:2]
        ['kmh21/fig1', 'kmh21/fig2']
    """
    return list(_EXPERIMENTS.values())


def experiment(name: str) -> Experiment[Any]:
    """Return the experiment of a name; no other figure is imported.

    Raises:
        InvalidInputError: If there is none; the message suggests the nearest name.

    Example:
        >>> experiment("kmh21/fig2").name
        'kmh21/fig2'
    """
    instance(name, "the name of a figure", str)
    if name in _EXPERIMENTS:
        return _EXPERIMENTS[name]
    near = difflib.get_close_matches(name, _EXPERIMENTS, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]}?" if near else "`natgrad list` shows them all."
    raise InvalidInputError(f"there is no figure {name!r}. {hint}")
