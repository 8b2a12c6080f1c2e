"""A user's table, divided into training, validation and test entries."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from natgrad.data._files import digest_of
from natgrad.data.triples import Table, Triples, index_table, make_table, read_table, within
from natgrad.errors import InvalidInputError
from natgrad.experiments._arguments import column, several
from natgrad.experiments.complete.config import Data, Prepared
from natgrad.fits import Entries

Part = Literal["tune", "test", "all"]
"""Which entries are fitted: all but validation and test, all but test, or all."""

_FEWEST = 20
_LARGEST = 25_000_000


@dataclass(frozen=True, eq=False)
class Loaded:
    """A table divided into parts.

    Attributes:
        triples: All observed entries, with labels.
        train: Entries to fit while tuning.
        validation: Entries used to choose settings.
        test: Entries used to measure the test error.
        own_test: Whether the test entries were given separately.
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
        if part == "all" and not self.own_test:
            return self.train.joined(self.validation, self.test)
        return self.train.joined(self.validation)


@lru_cache(maxsize=1)
def load(data: Data, how: Prepared) -> Loaded:
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
    return divide(triples, test, how)


def divide(triples: Triples, test: tuple[Tensor, Tensor, int] | None, how: Prepared) -> Loaded:
    """Check a table and divide it at random, with test entries from it unless they are given."""
    _check(triples)
    notes = list(triples.notes)
    entries = Entries(triples.shape, triples.positions, triples.values)
    order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(how.seed))
    many = max(1, round(how.held_out * len(entries)))
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
                "every test entry is among the data, or in rows or columns that do not occur in "
                "them: no test entry is left."
            )
        if bool(seen.any()):
            notes.append(f"{int(seen.sum())} test entries are among the data and were left out.")
        judged = Entries(triples.shape, positions[~seen], values[~seen])
        if outside:
            notes.append(
                f"{outside} test entries lie in rows or columns that do not occur in the data; no "
                "method can predict them, and they were left out."
            )
    if len(order) - many < 2:
        raise InvalidInputError(
            f"held_out = {how.held_out:g} leaves {max(len(order) - many, 0)} of {len(entries)} "
            "entries to fit. Hold out a smaller share."
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


def _check(triples: Triples) -> None:
    """Raise an error unless the table can be completed."""
    if float(triples.values.abs().max() if len(triples.values) else 0) > 1e30:
        raise InvalidInputError(
            "values beyond 1e30 are too large for single precision, in which products are fitted. "
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
            f"{many} entries are too few: some must be held out for validation and testing. Give "
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
            f"every observed value is {float(triples.values[0]):g}, so every prediction would be "
            "the same: there is nothing to fit."
        )


def data_of(
    path: Path, *, test: Path | None = None, names: tuple[str, str, str] | None = None
) -> Data:
    """Return tables in files with their hashes.

    Raises:
        InvalidInputError: If a file is missing.
    """
    return Data(
        path=str(path.resolve()),
        digest=digest_of(path),
        test_path=None if test is None else str(test.resolve()),
        test_digest=None if test is None else digest_of(test),
        names=names,
    )


def in_memory(rows: Any, columns: Any, values: Any, test: Any = None) -> tuple[Triples, Any]:
    """Return sequences as triples, and test entries among their rows and columns.

    Raises:
        InvalidInputError: If they cannot be used; the message says why.
    """
    triples = index_table(_table(rows, columns, values))
    judged = None
    if test is not None:
        rows, columns, values = several(test, "test", ("rows", "columns", "values"))
        judged = within(_table(rows, columns, values, "test "), triples)
    return triples, judged


def _table(rows: Any, columns: Any, values: Any, of: str = "") -> Table:
    """Return three sequences as a table."""
    return make_table(
        column(rows, f"{of}rows"), column(columns, f"{of}columns"), column(values, f"{of}values")
    )


def digest(loaded: Loaded) -> str:
    """Return a hash of the contents of a divided table."""
    hasher = hashlib.sha256(f"{loaded.triples.shape} {loaded.own_test}".encode())
    for entries in (loaded.train, loaded.validation, loaded.test):
        hasher.update(f"{len(entries)} ".encode() + entries.positions.numpy().tobytes())
        hasher.update(entries.values.numpy().tobytes())
    return hasher.hexdigest()
