"""Flows by the length of their path: d params/ds = v/‖v‖.

On separable data a flow needs time of order e^{‖β‖} to reach the length ‖β‖, and its gradient
underflows at margins of 745. Its *path* has neither problem: v depends on the weights of the
samples up to a common factor alone, which is divided out in logarithms, and the length s of the
path grows like ‖β‖. What is left is mildly stiff, and LSODA takes a few hundred steps to any s.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad._checks import integer, number
from natgrad._named import named
from natgrad.errors import ConvergenceError, DtypeError, NatgradError, RankDeficientError
from natgrad.flows._options import check_options
from natgrad.flows._problem import Direction, Problem
from natgrad.flows._recorder import Reached, Record, Recorder, check_times
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, flatten, leaves, unflatten
from natgrad.stopping import Status

Vector = npt.NDArray[np.float64]
Velocity = Callable[[Vector], Vector]
"""The direction of a flow at a point, up to any positive factor."""


@torch.no_grad()
@named
def integrate_by_length(
    direction: Direction,
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    lengths: Tensor,
    rtol: float = 1e-8,
    record: Record | None = None,
    max_evaluations: int = 200_000,
    **options: Any,
) -> Trajectory[P]:
    """Follow the path of a flow to given lengths, however long the flow takes to get there.

    The path is that of `integrate`; only its clock differs. Separable data and a length of 10⁴ take
    a second, where the time of the flow is about e^{10⁴}: use it to decide limits of directions.

    `euclidean` and `natural` have no underflow at any length, because both depend on the samples'
    weights up to a common factor. Damping does not scale with the weights: a damped path can be
    trusted up to margins of about 700.

    Args:
        direction: `euclidean`, `natural`, or a function with their arguments, which may return its
            direction times any positive factor.
        likelihood: The loss.
        parametrization: The model, in float64, with a few hundred parameters at most.
        params: Parameters at the start.
        batch: Inputs and labels.
        lengths: Lengths of the path to save, increasing; the last one ends it.
        rtol: Accuracy per step, relative and absolute.
        record: Diagnostics to save, by name: functions of the parameters.
        max_evaluations: Give up (status stalled) after this number of evaluations.
        **options: Passed to `direction`, as by `integrate`.

    Returns:
        The trajectory; its `times` are lengths. If the path ends before the last length, as at a
        minimum, it has those that were reached, and `status` and `detail` say why.

    Raises:
        DtypeError: If parameters are not in float64.

    Example:
        >>> from natgrad import Bernoulli, Direct, euclidean, limits
        >>> from natgrad.diagnostics import angle
        >>> x = torch.tensor([[1.0, 2.0], [-1.2, -0.5]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> start = torch.zeros(2, dtype=torch.float64)
        >>> path = integrate_by_length(
        ...     euclidean, Bernoulli(), Direct(), start, (x, y), lengths=torch.tensor([1e5])
        ... )
        >>> path.status.reached, float(path.losses[-1])  # long since zero in float64
        (True, 0.0)
        >>> float(angle(path.final, limits.max_margin(x, y).solution)) < 1e-3
        True
    """
    check_options(direction, options, integrate_by_length)
    rtol = number(rtol, "rtol", low=0, high=1, low_open=True, high_open=True)
    max_evaluations = integer(max_evaluations, "max_evaluations", low=1)
    wanted = check_times(lengths, "lengths")
    problem = Problem.checked(direction, likelihood, parametrization, params, batch, options)
    like = problem.params
    if any(leaf.dtype != torch.float64 for leaf in leaves(like)):
        raise DtypeError("paths are followed in float64; convert the parameters with .double().")
    recorder = Recorder(likelihood, parametrization, batch, wanted, record)

    def velocity(theta: Vector) -> Vector:
        here = unflatten(torch.from_numpy(theta).to(leaves(like)[0].device), like)
        v = _descent(problem, here) if problem.is_euclidean else problem.velocity(here)
        return flatten(v).cpu().numpy()

    arc = arc_path(
        velocity, flatten(like).cpu().numpy(), wanted.tolist(), rtol=rtol,
        max_evaluations=max_evaluations,
    )  # fmt: skip
    states = [
        unflatten(torch.from_numpy(row).to(leaves(like)[0].device), like) for row in arc.found
    ]
    for length, state in zip(wanted.tolist(), states, strict=False):
        recorder.save(length, state)
    reached = len(states)
    length, last = (float(wanted[reached - 1]), states[-1]) if reached else (0.0, like)
    end = Reached(
        last, length, arc.steps, arc.evaluations, "lsoda by length", arc.status, arc.detail
    )
    return recorder.finish(end)


def _descent(problem: Problem[P], params: P) -> P:
    """Return −∇L divided by the largest weight of a sample: see `Whitened`."""
    x, y = problem.batch
    outputs = problem.parametrization.predict(params, x)
    white = problem.likelihood.whitened(outputs, y)
    weights = torch.exp(2 * (white.log_weight - white.log_weight.max()))
    pulled = white.transpose(weights * white.target).reshape(outputs.shape)
    return problem.parametrization.vjp(params, x, pulled)


class Arc(NamedTuple):
    """A path by length.

    Attributes:
        points: States at the lengths that were asked for, shape `(s, p)`; NaN if not reached.
        found: Those that were reached.
        steps: Accepted steps.
        evaluations: Evaluations of the velocity.
        status: Why the path ended.
        detail: The same in a sentence.
    """

    points: Vector
    found: Vector
    steps: int
    evaluations: int
    status: Status
    detail: str


class _EndedError(Exception):
    """The direction vanishes, or is not finite."""


def arc_path(
    velocity: Velocity,
    start: Vector,
    lengths: Sequence[float],
    *,
    rtol: float = 1e-8,
    max_evaluations: int = 200_000,
) -> Arc:
    """Return the points of a path at given lengths.

    Example:
        >>> around = lambda b: np.array([-b[1], b[0]])  # a circle
        >>> arc_path(around, np.array([1.0, 0.0]), [np.pi]).points.round(6)
        array([[-1.,  0.]])
    """
    from scipy.integrate import LSODA  # here, to keep `import natgrad` light

    def unit(s: float, b: Vector) -> Vector:
        with np.errstate(all="ignore"):  # what is not finite ends the path
            v = velocity(b)
            size = float(np.linalg.norm(v))
        if not 0 < size < np.inf:
            raise _EndedError("vanishes" if size == 0 else "is not finite")
        return v / size

    found: list[Vector] = []
    steps, s, status = 0, 0.0, Status.TIME_REACHED
    detail = f"length {lengths[-1]:.6g} reached"
    stepper = None
    try:
        while len(found) < len(lengths) and lengths[len(found)] <= 0:
            found.append(start)
        while len(found) < len(lengths):
            if stepper is None:
                stepper = LSODA(unit, 0.0, start, lengths[-1], rtol=rtol, atol=rtol, min_step=0.0)
            if stepper.nfev >= max_evaluations:
                status = Status.STALLED
                detail = f"gave up at length {s:.6g} after {max_evaluations} evaluations"
                break
            stepper.step()
            if stepper.status == "failed":
                status, detail = Status.STALLED, f"steps shrink to zero at length {s:.6g}"
                break
            steps, s = steps + 1, stepper.t
            done, dense = stepper.status == "finished", stepper.dense_output()
            while len(found) < len(lengths) and (done or lengths[len(found)] <= s):
                found.append(dense(min(lengths[len(found)], s)))
    except _EndedError as why:
        status = Status.CONVERGED if str(why) == "vanishes" else Status.DIVERGED
        detail = f"the direction {why} after length {s:.6g}"
    except (RankDeficientError, ConvergenceError, np.linalg.LinAlgError) as error:
        status, detail = Status.SINGULAR, f"a rank is lost after length {s:.6g}: {error}"
    except NatgradError as error:
        status, detail = Status.DIVERGED, f"after length {s:.6g}: {error}"
    evaluations = 0 if stepper is None else stepper.nfev
    missing = [np.full_like(start, np.nan)] * (len(lengths) - len(found))
    points = np.array([*found, *missing])
    return Arc(points, points[: len(found)], steps, evaluations, status, detail)
