"""The direction of a linear layer by its factors, and by the rows of the batch.

The gradient of a layer is G = EᵀX / n, with n rows of errors and inputs. (Λ̃ + γ̃)⁻¹ G (Λ + γ)⁻¹
costs 2 n_in n_out (b_in + b_out) operations with inverses in blocks of sides b: the factors' side.
On the batch's side the inverses multiply E and X, and one more product gives the direction:
2 n (n_in b_in + n_out b_out + n_in n_out). NGD uses it where that saves a factor of 2.5 in large
layers. Rows are ratios of CPU times, factors' side over batch's side: above one the batch's side is
faster.
"""

import statistics
import time
from collections.abc import Callable

import torch
from harness import Row, report

BLOCK = 224


def blocks(width: int, generator: torch.Generator) -> torch.Tensor:
    """Return inverses on the diagonal, `(number, side, side)`."""
    number = -(-width // BLOCK)
    side = width // number
    a = torch.randn(number, side, side, generator=generator)
    return torch.linalg.inv(a @ a.mT / side + torch.eye(side))


def times(rows: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Return rows times the block-diagonal matrix."""
    number, side = inverse.shape[:2]
    parts = rows.reshape(-1, number, side).transpose(0, 1)
    return torch.bmm(parts, inverse).transpose(0, 1).reshape(rows.shape)


def timed(*calls: Callable[[], object], rounds: int = 25) -> list[float]:
    """Return the median CPU seconds of each call, in turn."""
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, spent, strict=True):
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
    return [statistics.median(found) for found in spent]


def compare(width: int, n: int) -> Row:
    """Return the ratio for a square layer."""
    generator = torch.Generator().manual_seed(0)
    width -= width % -(-width // BLOCK)  # equal blocks
    right, left = blocks(width, generator), blocks(width, generator)
    x, e = torch.randn(2, n, width, generator=generator)
    g = e.mT @ x / n

    def by_factors() -> torch.Tensor:
        return times(times(g.mT, left).mT, right)

    def by_rows() -> torch.Tensor:
        return times(e, left).mT @ times(x, right) / n

    expected = by_factors()
    torch.testing.assert_close(
        by_rows(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())
    )
    slow, fast = timed(by_factors, by_rows)
    side = right.shape[1]
    counted = 2 * side / (n * (1 + 2 * side / width))
    return Row(f"width {width}, {n} rows", slow / fast, "×", "", None, f"counted {counted:.2g}")


if __name__ == "__main__":
    report(
        "factors' side / batch's side",
        [compare(width, n) for width in (224, 896, 1792) for n in (64, 128, 256, 512)],
    )
