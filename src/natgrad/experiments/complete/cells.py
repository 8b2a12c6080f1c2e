"""Cells of `natgrad complete`: one model, fitted to one part of a user's table."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad._checks import integer, number
from natgrad.data._files import digest_of
from natgrad.data.triples import Triples, index_table, read_table, within
from natgrad.errors import InvalidInputError
from natgrad.experiments.complete.baselines import SoftImpute, penalties
from natgrad.experiments.complete.fitting import (
    Centre,
    Centring,
    Entries,
    fit_product,
    halves,
    predict,
    rmse,
    spectrum,
)

Arrays = dict[str, npt.NDArray[Any]]

Part = Literal["tune", "test", "all"]
"""Which entries are fitted: all but validation and test, all but test, or all."""

CURVE = 100
_FEWEST = 20
_LARGEST = 25_000_000


@dataclass(frozen=True, kw_only=True)
class Data:
    """A user's table, named by content as well as by path, and how it is divided."""

    path: str
    digest: str
    test_path: str | None = None
    test_digest: str | None = None
    names: tuple[str, str, str] | None = None
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot divide a table."""
        share = number(self.held_out, "held_out", low=0, low_open=True, high=0.5, high_open=True)
        object.__setattr__(self, "held_out", share)
        object.__setattr__(self, "seed", integer(self.seed, "seed", low=0))


@dataclass(frozen=True, eq=False)
class Loaded:
    """A table divided into parts.

    Attributes:
        triples: All observed entries, with labels.
        train: Entries to fit while tuning.
        validation: Entries to choose by.
        test: Entries to judge by.
        own_test: Whether the test entries came in a file of their own.
        notes: Sentences on what was left out.
    """

    triples: Triples
    train: Entries
    validation: Entries
    test: Entries
    own_test: bool
    notes: tuple[str, ...]

    def part(self, part: Part) -> Entries:
        """Return the entries to fit."""
        if part == "tune":
            return self.train
        both = [self.train, self.validation]
        if part == "all" and not self.own_test:
            both.append(self.test)
        return Entries(
            self.train.shape,
            torch.cat([entries.positions for entries in both]),
            torch.cat([entries.values for entries in both]),
        )


@lru_cache(maxsize=1)
def load(data: Data) -> Loaded:
    """Read and divide a table.

    Raises:
        InvalidInputError: If it cannot be completed; the message says why.
    """
    if digest_of(data.path) != data.digest:
        raise InvalidInputError(f"{data.path} has changed since the run began; start again.")
    triples = index_table(read_table(data.path, data.names))
    test = None
    if data.test_path is not None:
        if digest_of(data.test_path) != data.test_digest:
            raise InvalidInputError(f"{data.test_path} has changed since the run began.")
        test = within(read_table(data.test_path, data.names), triples)
    return divide(triples, test, data.held_out, data.seed)


def divide(
    triples: Triples, test: tuple[Tensor, Tensor, int] | None, held_out: float, seed: int
) -> Loaded:
    """Check a table and divide it at random; test entries are taken from it unless given."""
    check(triples)
    notes = list(triples.notes)
    entries = Entries(triples.shape, triples.positions, triples.values)
    order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(seed))
    many = max(1, round(held_out * len(entries)))
    if test is None:
        judged = entries.at(order[:many])
        order = order[many:]
    else:
        positions, values, outside = test
        seen = torch.isin(
            _index(positions, triples.shape), _index(entries.positions, entries.shape)
        )
        if bool(seen.all()):
            raise InvalidInputError(
                "every test entry is among the data, or in rows or columns that they never "
                "mention: nothing is left to judge by."
            )
        if bool(seen.any()):
            notes.append(f"{int(seen.sum())} test entries are among the data and were left out.")
        judged = Entries(triples.shape, positions[~seen], values[~seen])
        if outside:
            notes.append(
                f"{outside} test entries lie in rows or columns that the data never mention; no "
                "method can predict them, and they were left out."
            )
    if len(order) - many < 2:
        raise InvalidInputError(
            f"held_out = {held_out:g} leaves {max(len(order) - many, 0)} of {len(entries)} entries "
            "to fit. Hold out a smaller share."
        )
    if len(entries) < sum(triples.shape):
        notes.append(
            f"there are fewer entries ({len(entries)}) than rows and columns together "
            f"({sum(triples.shape)}): not even a matrix of rank one is determined."
        )
    return Loaded(
        triples,
        entries.at(order[many:]),
        entries.at(order[:many]),
        judged,
        test is not None,
        tuple(notes),
    )


def _index(positions: Tensor, shape: tuple[int, int]) -> Tensor:
    return positions[:, 0] * shape[1] + positions[:, 1]


def check(triples: Triples) -> None:
    """Raise a sentence unless the table can be completed."""
    if float(triples.values.abs().max() if len(triples.values) else 0) > 1e30:
        raise InvalidInputError(
            "values beyond 1e30 leave the range of single precision, in which products are fitted. "
            "Rescale them."
        )
    rows, columns = triples.shape
    many, size = len(triples.values), rows * columns
    if min(rows, columns) < 2:
        raise InvalidInputError(
            f"a matrix to complete has at least two rows and two columns, but this one is {rows} × "
            f"{columns}."
        )
    if many < _FEWEST:
        raise InvalidInputError(
            f"{many} entries are too few: some must be held out to choose by and to judge by. Give "
            f"at least {_FEWEST}."
        )
    if size > _LARGEST:
        raise InvalidInputError(
            f"the completed matrix would have {rows} × {columns} = {size:.2g} entries; more than "
            f"{_LARGEST:.2g} are refused. Take fewer rows or columns."
        )
    if many == size:
        raise InvalidInputError(
            f"all {size} entries of the {rows} × {columns} matrix are observed: there is nothing "
            "to complete."
        )
    if bool((triples.values == triples.values[0]).all()):
        raise InvalidInputError(
            f"every observed value is {float(triples.values[0]):g}: so is every prediction, and "
            "there is nothing to choose."
        )


@dataclass(frozen=True, kw_only=True)
class ProductConfig:
    """A product of factors; depth two with a narrow width is plain factorisation."""

    data: Data
    part: Part
    centring: Centring
    depth: int
    scale: float
    hidden: int
    until: float = math.inf
    """Longest time; tuning finds it."""
    max_evaluations: int = 3000


def product(config: ProductConfig, loaded: Loaded | None = None) -> Arrays:
    """Fit it: to the best state on validation entries, or up to the time found so.

    A table in memory is an argument; a table in a file is read where the cell runs.
    """
    loaded = loaded or load(config.data)
    entries = loaded.part(config.part)
    centre = Centre.of(entries, config.centring)
    tuning = config.part == "tune"
    fit = fit_product(
        centre.standardised(entries),
        depth=config.depth,
        scale=config.scale,
        hidden=min(config.hidden, *entries.shape),
        seed=config.data.seed,
        held_out=centre.standardised(loaded.validation) if tuning else None,
        until=config.until,
        max_evaluations=config.max_evaluations,
    )
    left, right = halves(fit.factors)
    judged = loaded.validation if tuning else loaded.test
    found = {
        "error": np.asarray(rmse(_predictor(centre, left, right), judged)),
        "evaluations": np.asarray(fit.evaluations),
    }
    if tuning:
        # The loss is a sum: with more entries the flow runs faster, in proportion.
        time = math.inf if fit.to_end else fit.time * len(entries)
        return found | {"work": np.asarray(time), "curve": _resampled(fit.curve, centre.unit)}
    singular = spectrum(left, right) * centre.unit
    found["values"] = singular.numpy()
    if config.part == "all":
        found["matrix"] = _completed(loaded.triples, centre, left, right)
    return found


def _predictor(centre: Centre, left: Tensor, right: Tensor) -> Any:
    def predictor(positions: Tensor) -> Tensor:
        return centre.at(positions) + centre.unit * predict(left, right, positions)

    return predictor


def _resampled(curve: Tensor, unit: float) -> npt.NDArray[Any]:
    """Return times and errors at a fixed number of times, equally spaced in log t."""
    t, error = curve.numpy().T
    times = np.geomspace(t[0], t[-1], CURVE)
    return np.stack([times, unit * np.interp(times, t, error)])


def _completed(
    triples: Triples, centre: Centre, left: Tensor, right: Tensor
) -> npt.NDArray[np.float32]:
    """Return the whole matrix, observed entries as they are."""
    matrix = centre.everywhere().float()
    matrix.addmm_(left, right, alpha=centre.unit)
    rows, columns = triples.positions.unbind(1)
    matrix[rows, columns] = triples.values.float()
    return matrix.numpy()


@dataclass(frozen=True, kw_only=True)
class NuclearConfig:
    """The penalised nuclear norm."""

    data: Data
    part: Part
    centring: Centring
    width: int
    penalty: float | None = None
    """Share of the largest useful penalty; None tries halves of it on validation entries."""
    tries: int = 10


def nuclear(config: NuclearConfig, loaded: Loaded | None = None) -> Arrays:
    """Fit it; while tuning, down the path of penalties until validation entries get worse."""
    loaded = loaded or load(config.data)
    entries = loaded.part(config.part)
    centre = Centre.of(entries, config.centring)
    width = min(config.width, *entries.shape)
    solver = SoftImpute(centre.standardised(entries), width=width, seed=config.data.seed)
    largest = solver.largest()
    judged = loaded.validation if config.part == "tune" else loaded.test
    best = (math.inf, 1.0)
    for penalty in penalties(largest, config.tries):
        share = penalty / largest
        if config.penalty is not None and share < config.penalty:
            break
        left, right = solver.solve(penalty).halves()
        error = rmse(_predictor(centre, left, right), judged)
        if config.penalty is not None:  # the path only leads there
            best = (error, share)
        elif error < best[0]:
            best = (error, share)
        elif error > 1.1 * best[0]:
            break
    return {"error": np.asarray(best[0]), "penalty": np.asarray(best[1])}


@dataclass(frozen=True, kw_only=True)
class MeansConfig:
    """Predictions by means alone."""

    data: Data
    part: Part
    centring: Centring


def means(config: MeansConfig, loaded: Loaded | None = None) -> Arrays:
    """Predict by the overall mean, or by row and column means."""
    loaded = loaded or load(config.data)
    centre = Centre.of(loaded.part(config.part), config.centring)
    return {"error": np.asarray(rmse(centre.at, loaded.test))}
