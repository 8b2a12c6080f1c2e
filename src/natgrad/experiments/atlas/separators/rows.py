"""The data of the atlas: built-in separable data, or a user's table."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from natgrad.data._files import digest_of
from natgrad.data.separable import sparse_gaussian
from natgrad.data.tables import Labeled, labeled, read_columns
from natgrad.errors import InvalidInputError
from natgrad.experiments.atlas.separators.config import Table
from natgrad.fits import Scaling

__all__ = ["BuiltIn", "batch_of", "read", "table_of"]


@dataclass(frozen=True)
class BuiltIn:
    """Separable data.

    Attributes:
        n: Number of samples.
        dim: Number of features.
        ones: Features that the labels depend on.
        seed: Seed of the inputs.
    """

    n: int
    dim: int
    ones: int
    seed: int


@lru_cache(maxsize=4)
def batch_of(data: BuiltIn | Table) -> tuple[Tensor, Tensor]:
    """Return inputs and labels ±1; built-in features have scales from 0.3 to 3."""
    if isinstance(data, BuiltIn):
        task = sparse_gaussian(data.n, data.dim, ones=data.ones, seed=data.seed)
        return task.x * torch.logspace(-0.5, 0.5, data.dim, dtype=task.x.dtype), task.y
    found = read(data)
    ready = Scaling.of(found.x, standardize=data.standardize, intercept=data.intercept)
    return ready(found.x), torch.from_numpy(found.y)


@lru_cache(maxsize=1)
def read(table: Table) -> Labeled:
    """Return the table as numbers.

    Raises:
        InvalidInputError: If it cannot be used; the message says why.
    """
    if digest_of(table.path) != table.digest:
        raise InvalidInputError(f"{table.path} has changed since the run began; start again.")
    return labeled(read_columns(table.path), table.label, classes=table.classes)


def table_of(
    path: Path,
    label: str,
    *,
    classes: tuple[str, str] | None = None,
    standardize: bool = True,
    intercept: bool = True,
) -> Table:
    """Return a table in a file with its hash.

    Raises:
        InvalidInputError: If the file is missing or cannot be used.
    """
    table = Table(
        path=str(path),
        digest=digest_of(path),
        label=label,
        classes=classes,
        standardize=standardize,
        intercept=intercept,
    )
    read(table)  # refuses a bad table here, not in a worker
    return table
