"""The completion of least nuclear norm. [KMH21] §4: the conjectured bias of depth ≥ 2."""

import math
import time
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import dense, describe, integer, number, tensor
from natgrad._named import named
from natgrad._renamed import renamed
from natgrad.errors import ConvergenceError, DeviceError, DtypeError, InvalidInputError, ShapeError
from natgrad.limits._result import Limit, finish
from natgrad.limits._solvers.scaling import scaled, unit_size
from natgrad.linalg._columns import times_power
from natgrad.linalg._lstsq import require_finite
from natgrad.linalg._precision import widen
from natgrad.parametrizations._products.entries import check_entries

_RELAXATION = 1.7
_MEMORY = 8
_BALANCE = frozenset((10, 20, 30, 45, 60, 80, 110, 150))


@renamed(tolerance="rtol", iterations="max_evaluations")
@named
def nuclear_norm(
    positions: Tensor,
    values: Tensor,
    shape: tuple[int, int],
    *,
    rtol: float = 1e-6,
    max_evaluations: int = 10_000,
) -> Limit:
    """Return argmin ‖B‖_* subject to B = values at the observed positions, which hold exactly.

    The method is Douglas–Rachford splitting (over-relaxed, with the penalty balanced in the first
    iterations) with Anderson acceleration, at one singular value decomposition per iteration. Every
    matrix Y that is zero outside the observed positions bounds the optimum, ⟨Y, B⟩ / ‖Y‖₂ ≤ ‖B‖_*.
    The splitting produces such a Y, and stops when the relative gap between the two sides is small.

    Args:
        positions: Rows and columns of the observed entries, integers, shape `(n, 2)`.
        values: Their values, float32 or float64, shape `(n,)`.
        shape: Shape of B.
        rtol: Relative duality gap at which to stop.
        max_evaluations: Largest number of iterations.

    Returns:
        Limit: `value` is ‖B‖_*, `dual` is Y with ‖Y‖₂ ≤ 1, `certificate` the relative gap.

    Raises:
        ConvergenceError: If the gap stays above `rtol`.

    Example:
        >>> corners = torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> limit = nuclear_norm(corners, torch.tensor([1.0, 0.5, 0.5]), (2, 2))
        >>> [[round(v, 2) for v in row] for row in limit.solution.tolist()]
        [[1.0, 0.5], [0.5, 0.25]]
    """
    began = time.perf_counter()
    rtol = number(rtol, "rtol", low=0)
    max_evaluations = integer(max_evaluations, "max_evaluations", low=1)
    target, observed = _check(positions, values, shape)
    target, power = unit_size(target)
    size = float(torch.linalg.matrix_norm(target, 2))
    if size == 0:
        zero = Limit(target, 0.0, 0.0, "relative duality gap", "zero", dual=target)
        return finish(zero, values, time.perf_counter() - began)
    state = _Splitting(target / size, observed)
    b, dual, gap = state.run(rtol, max_evaluations)
    if gap > rtol:
        raise ConvergenceError(
            f"the completion of least nuclear norm was found only to a relative gap of {gap:.1e} "
            f"in {max_evaluations} iterations. Raise rtol (now {rtol:g}) or max_evaluations."
        )
    exact = torch.where(observed, target, size * b)
    value = scaled(float(torch.linalg.svdvals(exact).sum()), power)
    exact = times_power(exact, power)
    solver = "Douglas–Rachford, Anderson acceleration"
    limit = Limit(exact, value, gap, "relative duality gap", solver, dual=dual)
    return finish(limit, values, time.perf_counter() - began)


@dataclass
class _Splitting:
    """Douglas–Rachford on ‖·‖_* and the affine set of completions.

    z is the state, and b its projection onto the completions. The dual is (b − z)/γ, which is zero
    outside the observed positions.
    """

    target: Tensor
    observed: Tensor
    gamma: float = 0.3

    def run(self, rtol: float, max_evaluations: int) -> tuple[Tensor, Tensor, float]:
        """Return the best completion, its dual and their relative gap."""
        z, memory, previous = self.target, _Anderson(), self.target
        best = self.target, self.target, math.inf
        for k in range(max_evaluations):
            b = torch.where(self.observed, self.target, z)
            low = _shrink(2 * b - z, self.gamma)
            change = low - b
            if k in _BALANCE:
                z = self._balance(z, b, low, previous)
                memory = _Anderson()
                continue
            if k % 10 == 9:
                dual, gap = self._certificate(b, z)
                best = (b, dual, gap) if gap < best[2] else best
                if gap <= rtol:
                    break
            previous = b
            z = memory.next(z + _RELAXATION * change, _RELAXATION * change)
        return best

    def _certificate(self, b: Tensor, z: Tensor) -> tuple[Tensor, float]:
        """Return Y with ‖Y‖₂ = 1 and (‖b‖_* − ⟨Y, b⟩) / ‖b‖_*."""
        y = torch.where(self.observed, b - z, 0.0)
        y = y / max(float(torch.linalg.matrix_norm(y, 2)), 1e-300)
        norm = float(torch.linalg.svdvals(b).sum())
        return y, max(0.0, norm - float((y * self.target).sum())) / norm

    def _balance(self, z: Tensor, b: Tensor, low: Tensor, previous: Tensor) -> Tensor:
        """Change γ to balance the relative primal and dual residuals; return the new z."""
        dual = (z - b) / self.gamma
        primal = float((low - b).norm()) / max(float(low.norm()), 1e-300)
        moved = float((b - previous).norm()) / self.gamma / max(float(dual.norm()), 1e-300)
        ratio = math.sqrt(primal / max(moved, 1e-300))
        self.gamma /= min(max(ratio, 0.2), 5.0)
        return b + self.gamma * dual


class _Anderson:
    """Anderson acceleration of a fixed-point iteration, restarted when the residual jumps."""

    def __init__(self) -> None:
        self.images: deque[Tensor] = deque(maxlen=_MEMORY + 1)
        self.residuals: deque[Tensor] = deque(maxlen=_MEMORY + 1)
        self.last = math.inf

    def next(self, image: Tensor, residual: Tensor) -> Tensor:
        """Return the next state from the plain image of the current one."""
        size = float(residual.norm())
        if size > 2 * self.last:
            self.images.clear()
            self.residuals.clear()
        self.last = size
        self.images.append(image)
        self.residuals.append(residual)
        if len(self.images) < 3:
            return image
        df = torch.stack(list(self.residuals)).diff(dim=0).flatten(1)
        dg = torch.stack(list(self.images)).diff(dim=0).flatten(1)
        gram = df @ df.mT
        gram.diagonal().add_(1e-10 * gram.diagonal().max() + 1e-300)
        mix = torch.linalg.solve(gram, df @ residual.flatten())
        better: Tensor = image - (mix @ dg).view_as(image)
        return better


def _shrink(a: Tensor, threshold: float) -> Tensor:
    """Return a with its singular values lowered by the threshold, but not below zero."""
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    low: Tensor = (u * (s - threshold).clamp(min=0)) @ vh
    return low


def _check(positions: Tensor, values: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the observed values in a matrix of zeros, float64 on the CPU, and where they are."""
    dense(positions, "positions")
    tensor(values, "values", finite=False, empty=True)
    if not isinstance(shape, (tuple, list)):
        raise DtypeError(f"shape must be two positive integers, but is {describe(shape)}.")
    if len(shape) != 2 or any(type(n) is not int or n < 1 for n in shape):
        raise ShapeError(f"shape must be two positive integers, but is {shape!r}.")
    if positions.ndim and len(positions) == 0:
        raise ShapeError("there are no observed entries: every matrix fits, and zero is shortest.")
    if positions.device != values.device:
        raise DeviceError(f"positions are on {positions.device} but values on {values.device}.")
    check_entries(positions, *shape, values.device)
    if values.shape != positions.shape[:1]:
        raise ShapeError(
            f"values must have shape ({len(positions)},), one per position, but have "
            f"{tuple(values.shape)}."
        )
    require_finite(values, "values")
    rows, columns = positions.long().cpu().unbind(1)
    given = widen(values.detach()).cpu()
    target = torch.zeros(shape, dtype=torch.float64)
    observed = torch.zeros(shape, dtype=torch.bool)
    target[rows, columns] = given
    observed[rows, columns] = True
    if bool((target[rows, columns] != given).any()):
        k = int((target[rows, columns] != given).nonzero()[0])
        raise InvalidInputError(
            f"position ({int(rows[k])}, {int(columns[k])}) is observed twice with different "
            "values; average them first."
        )
    return target, observed
