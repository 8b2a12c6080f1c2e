"""Natural descent of matrix completion, with steps controlled by their effect on β.

With the Fisher over all entries the natural velocity of β is G = (values − β) on the observed
entries and zero elsewhere ([KMH21] §4): β(t) = β(0) + (1 − e^{−t}) G(0), a straight line. A finite
step in the factors leaves that line, because of products of increments. A step of length η is
accepted if ‖Δβ − ηG‖ ≤ tolerance · η‖G‖. Newton corrections through the same lift bring β back to
the line, and η is halved if they do not. On the line a step of η takes the time −log(1 − η) of
the flow, so a last step of η = 1 ends at the limit.
"""

import math
import time

import torch
from torch import Tensor

from natgrad.directions.selection import Selection, resolve_shares
from natgrad.errors import ConvergenceError, InvalidInputError, RankDeficientError
from natgrad.flows._methods.completion.flow import check_completion
from natgrad.flows.closed_forms import singular_times
from natgrad.flows.trajectory import Trajectory
from natgrad.parametrizations import MatrixProduct
from natgrad.parametrizations._products.entries import gather, scatter
from natgrad.parametrizations._products.kernel import ProductKernel
from natgrad.stopping import Status

Factors = tuple[Tensor, ...]

WALL = 1e-6  # of the first step: a shorter one means a wall, not a bend
_CORRECTIONS = 6
_ACCURACY = 1e-4  # of a lift: corrections fix what it misses


@torch.no_grad()
def natural_completion(
    factors: Factors,
    positions: Tensor,
    values: Tensor,
    *,
    selection: Selection = "min_norm",
    step: float = 1.0,
    tolerance: float = 1e-8,
    train_error: float = 1e-12,
    max_steps: int = 10_000,
) -> Trajectory[Factors]:
    """Descend along natural directions (Fisher over all entries), with β on its straight line.

    β(t) = β(0) + (1 − e^{−t}) G, where G is the first residual on the observed entries, else zero:
    unobserved entries are conserved and, by the minimum norm, WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ.

    The minimum norm works from the usual small Gaussian factors. An equal share
    needs invertible factors throughout. From most starts det β vanishes somewhere on the line, the
    factors cannot follow, and the trajectory ends there with status singular and the time.

    Args:
        factors: W₁…W_L; float64, because β is kept on its line to more digits than float32 has.
        positions: Rows and columns of the observed entries, each at most once, shape `(n, 2)`.
        values: Their values, shape `(n,)`.
        selection: Which natural direction of the factors.
        step: Longest step η, at most 1.
        tolerance: Largest ‖Δβ − ηG‖ / (η‖G‖) of an accepted step.
        train_error: Stop at this mean squared error on the observed entries.
        max_steps: Give up (status stalled) after this number of steps.

    Returns:
        The trajectory, every step saved; time is that of natural gradient flow. Its
        `error_estimate` is the sum of the deviations from the line, relative to its length.

    Raises:
        InvalidInputError: If an argument has the wrong shape, dtype or value.

    Example:
        Only the observed entry moves, at any depth:

        >>> product = MatrixProduct(3)
        >>> start = product.init_gaussian((3, 3), generator=torch.Generator().manual_seed(0))
        >>> path = natural_completion(start, torch.tensor([[1, 1]]), torch.ones(1).double())
        >>> beta = product.hypothesis(path.final) - product.hypothesis(start)
        >>> path.status, int((beta.abs() > 1e-6).sum())
        (<Status.CONVERGED: 'converged'>, 1)
    """
    check_completion(factors, positions, values)
    if values.dtype != torch.float64:
        raise InvalidInputError(
            f"natural_completion works in float64, but the factors are {values.dtype}; "
            "try w.double()."
        )
    if not (0 < step <= 1 and 0 < tolerance < 1 and train_error > 0 and max_steps > 0):
        raise InvalidInputError(
            "step must be in (0, 1], tolerance in (0, 1), train_error and max_steps positive, but "
            f"are {step!r}, {tolerance!r}, {train_error!r} and {max_steps!r}."
        )
    run = LineFollower(factors, positions, values, selection, tolerance)
    return run.follow(step, train_error, max_steps)


class LineFollower:
    """Factors that follow a line of β.

    Attributes:
        factors: The present factors.
        wall: The time beyond which they cannot continue.
        lifts: Number of directions lifted so far.
        floor: Deviation from the line, relative to β, that counts as zero.
    """

    def __init__(
        self,
        factors: Factors,
        positions: Tensor,
        values: Tensor,
        selection: Selection,
        tolerance: float,
    ) -> None:
        self.product = MatrixProduct(len(factors))
        self.positions, self.values, self.tolerance = positions, values, tolerance
        self.shares = resolve_shares(selection, len(factors))
        self.factors, self.start = factors, self.product.hypothesis(factors)
        self.lifts, self.deviation, self.floor = 0, 0.0, 0.0
        self.wall = self._wall()
        self._times, self._losses, self._states = [0.0], [self._loss(self.start)], [factors]

    def _residual(self, beta: Tensor) -> Tensor:
        return self.values - gather(beta, self.positions)

    def _loss(self, beta: Tensor) -> float:
        return 0.5 * float(self._residual(beta).square().sum())

    def arrived(self) -> bool:
        """Return whether the entries fit up to rounding errors."""
        beta = self.product.hypothesis(self.factors)
        return float(self._residual(beta).norm()) <= 8 * self.floor * float(beta.norm())

    @property
    def relative_deviation(self) -> float:
        """Return the sum of deviations from the line, relative to its length."""
        length = math.sqrt(2 * self._losses[0])
        return self.deviation / length if length else 0.0

    def follow(self, longest: float, train_error: float, max_steps: int) -> Trajectory[Factors]:
        """Step until the entries fit, the factors cannot continue, or the steps run out."""
        began, steps, t = time.perf_counter(), 0, 0.0
        eta = min(longest, self.first_step())
        smallest = WALL * eta
        goal = 0.5 * train_error * len(self.values)
        status, detail = Status.STALLED, f"gave up after {max_steps} steps"
        while steps < max_steps:
            if self._losses[-1] <= goal:
                status, detail = Status.CONVERGED, f"the entries fit after {steps} steps"
                break
            # Steps may not leap over det β = 0, which the flow cannot cross.
            taken = self.step(min(eta, longest, -math.expm1(t - self.wall)), smallest)
            if taken is None:
                status, detail = Status.SINGULAR, self.singular(t)
                break
            steps, t, eta = steps + 1, t - math.log1p(-min(taken, 1 - 1e-16)), 2 * taken
            self._times.append(t)
            self._losses.append(self._loss(self.product.hypothesis(self.factors)))
            self._states.append(self.factors)
        return self._finish(status, detail, steps, time.perf_counter() - began)

    def _finish(
        self, status: Status, detail: str, steps: int, seconds: float
    ) -> Trajectory[Factors]:
        return Trajectory(
            times=torch.tensor(self._times, dtype=torch.float64),
            states=tuple(torch.stack(column) for column in zip(*self._states, strict=True)),
            losses=torch.tensor(self._losses, dtype=torch.float64),
            status=status,
            detail=detail,
            method="natural steps, controlled on the hypothesis",
            evaluations=self.lifts,
            steps=steps,
            error_estimate=self.relative_deviation,
            seconds=seconds,
        )

    def _velocity(self) -> tuple[Tensor, Tensor]:
        beta = self.product.hypothesis(self.factors)
        return beta, scatter(beta, self.positions, self._residual(beta))

    def first_step(self) -> float:
        """Return the step that moves some factor by half its size."""
        v = self._lift(self.factors, self._velocity()[1])
        if v is None:
            return 1.0
        norm = torch.linalg.matrix_norm
        ratios = [
            float(norm(w) / norm(d)) for w, d in zip(self.factors, v, strict=True) if bool(d.any())
        ]
        return 0.5 * min(ratios, default=2.0)

    def step(self, eta: float, smallest: float) -> float | None:
        """Take the longest step up to η that keeps β on the line; return its length, or None."""
        beta, velocity = self._velocity()
        v = self._lift(self.factors, velocity)
        while v is not None and eta >= smallest:
            moved = tuple(w + eta * d for w, d in zip(self.factors, v, strict=True))
            landed = self._correct(moved, beta + eta * velocity, eta * float(velocity.norm()))
            if landed is not None:
                self.factors = landed
                return eta
            eta /= 2
        return None

    def _correct(self, factors: Factors, target: Tensor, size: float) -> Factors | None:
        """Return factors whose product is the target to the tolerance, if Newton finds them."""
        previous = math.inf
        for k in range(_CORRECTIONS + 1):
            off = target - self.product.hypothesis(factors)
            error = float(torch.linalg.matrix_norm(off))
            if error <= max(self.tolerance * size, self.floor * float(target.norm())):
                self.deviation += error
                return factors
            if k == _CORRECTIONS or error > min(0.5 * previous, size):
                return None
            previous = error
            v = self._lift(factors, off)
            if v is None:
                return None
            factors = tuple(w + d for w, d in zip(factors, v, strict=True))
        return None

    def _lift(self, factors: Factors, velocity: Tensor) -> Factors | None:
        self.lifts += 1
        try:
            if self.shares is None and len(factors) > 1:
                kernel = ProductKernel(factors)
                return kernel.pull(kernel.solve(velocity, accuracy=_ACCURACY))
            return self.product.lift(factors, velocity, shares=self.shares)
        except (RankDeficientError, ConvergenceError):
            return None

    def _wall(self) -> float:
        """Return the time at which β, on its line, loses a rank that several layers share.

        Two layers that both move must stay invertible. A layer that moves alone, or the min norm,
        passes det β = 0 without a problem.
        """
        rows, columns = self.start.shape
        sharing = 0 if self.shares is None else sum(share != 0 for share in self.shares)
        if rows != columns or sharing < 2:
            return math.inf
        end = self.start + scatter(self.start, self.positions, self._residual(self.start))
        times = singular_times(self.start, end)
        return float(times[0]) if len(times) else math.inf

    def singular(self, t: float) -> str:
        said = f"the factors cannot follow β beyond t = {t:.6g}"
        near = self.wall - t <= 0.01 * self.wall
        return f"{said}: det β vanishes at t = {self.wall:.6g}" if near else said
