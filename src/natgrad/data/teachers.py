"""Regression on the outputs of a random deep linear network, the teacher. [BLH18] §5."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from natgrad._checks import describe, integer, integers, number, tensor
from natgrad._checks import generator as check_generator
from natgrad._named import named
from natgrad.errors import DtypeError, InvalidInputError

__all__ = ["Regression", "correlated_inputs", "gaussian_factors", "orthogonal_factors", "teach"]


@dataclass(frozen=True)
class Regression:
    """Inputs as rows, targets as rows.

    Attributes:
        train_inputs: Shape `(n, n₀)`.
        train_targets: Shape `(n, n_L)`.
        test_inputs: As for training.
        test_targets: As for training.
        floor: The smallest expected ½|y − f(x)|², which the teacher has: half the variance of the
            noise times the number of outputs.

    Example:
        >>> one = torch.ones(1, 1)
        >>> Regression(one, one, one, one, floor=0.0).train_inputs.shape
        torch.Size([1, 1])
    """

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    floor: float


@named
def correlated_inputs(n: int, width: int, generator: torch.Generator) -> Tensor:
    """Return Gaussian rows whose covariance has random eigenvectors and eigenvalues e^{−5i/width}.

    Example:
        >>> x = correlated_inputs(1000, 20, torch.Generator().manual_seed(0))
        >>> x.shape, x.dtype
        (torch.Size([1000, 20]), torch.float64)
    """
    n, width = integer(n, "n", low=1), integer(width, "width", low=1)
    check_generator(generator, optional=False)
    square = torch.randn(width, width, dtype=torch.float64, generator=generator)
    q, r = torch.linalg.qr(square)
    q = q * torch.sign(torch.diagonal(r))  # now uniform over the orthogonal matrices
    scales = torch.exp(-2.5 * torch.arange(1, width + 1, dtype=torch.float64) / width)
    rows: Tensor = torch.randn(n, width, dtype=torch.float64, generator=generator) * scales @ q.mT
    return rows


@named
def gaussian_factors(widths: Sequence[int], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return W₁ … W_L of Gaussian entries with variance 1/fan-in.

    Args:
        widths: n₀ … n_L, from inputs to outputs.
        generator: Source of the entries.

    Example:
        >>> [tuple(w.shape) for w in gaussian_factors((4, 3, 2), torch.Generator().manual_seed(0))]
        [(3, 4), (2, 3)]
    """
    widths = _checked(widths, generator)
    return tuple(
        torch.randn(out, into, dtype=torch.float64, generator=generator) / math.sqrt(into)
        for into, out in pairwise(widths)
    )


@named
def orthogonal_factors(widths: Sequence[int], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return random W₁ … W_L with orthonormal rows or columns, whichever are fewer.

    Args:
        widths: n₀ … n_L, from inputs to outputs.
        generator: Source of the entries.

    Example:
        >>> (w,) = orthogonal_factors((4, 2), torch.Generator().manual_seed(0))
        >>> torch.allclose(w @ w.mT, torch.eye(2).double())
        True
    """
    widths = _checked(widths, generator)
    factors = []
    for into, out in pairwise(widths):
        tall = torch.randn(max(into, out), min(into, out), dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(tall)
        q = q * torch.sign(torch.diagonal(r))
        factors.append(q if out >= into else q.mT.contiguous())
    return tuple(factors)


def _checked(widths: Sequence[int], generator: torch.Generator) -> tuple[int, ...]:
    found = integers(widths, "widths", low=1)
    if len(found) < 2:
        raise InvalidInputError(
            f"widths must have at least two entries, for inputs and outputs, but are {found}."
        )
    check_generator(generator, optional=False)
    return found


@named
def teach(
    teacher: Sequence[Tensor],
    generator: torch.Generator,
    *,
    examples: int = 10_000,
    tests: int = 1_000,
    noise: float = 1e-6,
) -> Regression:
    """Return examples of a deep linear teacher on correlated inputs. [BLH18] §5.

    Args:
        teacher: W₁ … W_L, from inputs to outputs.
        generator: Source of inputs and noise.
        examples: Number of training pairs.
        tests: Number of test pairs.
        noise: Variance of the Gaussian noise on each output.

    Raises:
        InvalidInputError: If the noise is negative, there are no examples, or the shapes of the
            factors do not match.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> teacher = gaussian_factors((4, 3, 2), generator)
        >>> problem = teach(teacher, generator, examples=50, tests=10)
        >>> problem.train_targets.shape, problem.floor
        (torch.Size([50, 2]), 1e-06)
    """
    noise = number(noise, "noise", low=0)
    examples, tests = integer(examples, "examples", low=1), integer(tests, "tests", low=1)
    if not isinstance(teacher, (tuple, list)) or not teacher:
        raise DtypeError(f"teacher must be a tuple of matrices, but is {describe(teacher)}.")
    width = tensor(teacher[0], "teacher[0]", shape=("n₁", "n₀")).shape[1]
    for i, factor in enumerate(teacher):
        into = width if i == 0 else teacher[i - 1].shape[0]
        tensor(factor, f"teacher[{i}]", shape=(f"n{i + 1}", into), dtypes=(torch.float64,))
    x = correlated_inputs(examples + tests, width, generator)
    y = x
    for factor in teacher:
        y = y @ factor.mT
    outputs = y.shape[1]
    y = y + math.sqrt(noise) * torch.randn(
        len(x), outputs, dtype=torch.float64, generator=generator
    )
    floor = 0.5 * noise * outputs
    return Regression(x[:examples], y[:examples], x[examples:], y[examples:], floor)
