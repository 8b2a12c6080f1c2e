"""Generated matrix completion: a random matrix of low rank, some of its entries observed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, integer, integers
from natgrad._checks import tensor as check_tensor
from natgrad._named import named
from natgrad.errors import InvalidInputError

__all__ = ["Completion", "low_rank"]


@dataclass(frozen=True, eq=False)
class Completion:
    """A matrix with some known entries.

    Attributes:
        truth: The whole matrix, float64.
        observed: Which entries are known, a boolean matrix.

    Example:
        >>> problem = low_rank(shape=(4, 6), rank=1, observed=10, seed=0)
        >>> problem.positions.shape, round(float(problem.truth.square().mean()), 6)
        (torch.Size([10, 2]), 1.0)
    """

    truth: Tensor
    observed: Tensor

    @property
    def positions(self) -> Tensor:
        """Return row and column of the observed entries, in row order, shape `(n, 2)`."""
        return self.observed.nonzero()

    @property
    def values(self) -> Tensor:
        """Return the observed entries, in row order, shape `(n,)`."""
        return self.truth[self.observed]

    def train_error(self, beta: Tensor) -> float:
        """Return the mean squared error on observed entries."""
        return self._error(beta, self.observed)

    def test_error(self, beta: Tensor) -> float:
        """Return the mean squared error on the entries that are not observed."""
        return self._error(beta, ~self.observed)

    def _error(self, beta: Tensor, where: Tensor) -> float:
        shape = tuple(self.truth.shape)
        beta = check_tensor(beta, "beta", shape=shape, dtypes=ALL_FLOATS, finite=False)
        return float((beta.detach().double() - self.truth)[where].square().mean())


@named
def low_rank(
    *, shape: tuple[int, int] = (100, 100), rank: int = 5, observed: int, seed: int
) -> Completion:
    """Return a product of Gaussian factors whose entries have mean square one.

    [KMH21] Figure 5, which follows Arora et al. 2019: ‖B‖_F = 100 for 100 × 100. Positions are
    drawn without replacement. With the same seed, the positions of a smaller number of observations
    are a subset of those of a larger number.

    Args:
        shape: Rows and columns.
        rank: Rank of the matrix.
        observed: Number of known entries.
        seed: Seed of matrix and positions.

    Raises:
        InvalidInputError: If the rank or the number of observations does not fit the shape.

    Example:
        >>> few, more = (low_rank(shape=(5, 5), rank=2, observed=n, seed=1) for n in (8, 9))
        >>> bool((few.observed <= more.observed).all()), torch.equal(few.truth, more.truth)
        (True, True)
    """
    rows, columns = integers(shape, "shape", count=2, low=1)
    rank = integer(rank, "rank", low=1, high=min(rows, columns))
    if not 1 <= integer(observed, "observed") < rows * columns:
        raise InvalidInputError(
            f"observed must be between 1 and {rows * columns - 1}, so that something is left to "
            f"predict, but is {observed}."
        )
    generator = torch.Generator().manual_seed(integer(seed, "seed"))
    left = torch.randn(rows, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(rank, columns, generator=generator, dtype=torch.float64)
    product = left @ right
    truth = product * ((rows * columns) ** 0.5 / torch.linalg.matrix_norm(product))
    chosen = torch.randperm(rows * columns, generator=generator)[:observed]
    mask = torch.zeros(rows * columns, dtype=torch.bool)
    mask[chosen] = True
    return Completion(truth, mask.reshape(rows, columns))
