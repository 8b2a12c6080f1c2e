"""Linear separators of two classes ([KMH21] §3): EGD at each depth, NGD, and their limits."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad._checks import describe, nearest, number, tensor
from natgrad.directions import euclidean, natural
from natgrad.errors import ConvergenceError, InvalidInputError, LabelError
from natgrad.flows import Trajectory, integrate
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.likelihoods import Bernoulli
from natgrad.limits import SeparabilityError, least_squares, max_margin, natural_flow
from natgrad.parametrizations import Diagonal, Direct

__all__ = ["Scaling", "Separator", "correct", "fit_separator", "methods"]

Floats = npt.NDArray[np.float64]

_LATE = 60.0  # by this time the natural flow of inseparable data has reached its optimum
_EGD = "EGD L="


@dataclass(frozen=True, eq=False)
class Scaling:
    """How rows of features become inputs.

    Attributes:
        center: Value subtracted from each feature.
        scale: Value by which each feature is then divided.
        intercept: Whether a constant feature of value 1 comes first.

    Example:
        >>> rows = np.array([[2.0, 20.0], [4.0, 40.0]])
        >>> Scaling.of(rows, standardize=True, intercept=True)(rows)
        tensor([[ 1., -1., -1.],
                [ 1.,  1.,  1.]], dtype=torch.float64)
    """

    center: Floats
    scale: Floats
    intercept: bool

    @classmethod
    def of(cls, rows: Floats, *, standardize: bool, intercept: bool) -> "Scaling":
        """Return the scaling of training rows; features of any size are accepted."""
        center, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        if standardize:
            top = np.abs(rows).max(axis=0, initial=0)
            unit = rows / np.where(top > 0, top, 1.0)  # whose squares do not overflow
            center, spread = unit.mean(axis=0) * top, unit.std(axis=0)
            scale = np.where(spread > 1e-12, spread * top, 1.0)
        return cls(center, scale, intercept)

    def __call__(self, rows: Floats) -> Tensor:
        """Return inputs, float64, shape `(n, d)` or `(n, d + 1)`."""
        out = (rows - self.center) / self.scale
        return torch.from_numpy(np.insert(out, 0, 1.0, axis=1) if self.intercept else out)


@dataclass(frozen=True, eq=False)
class Separator:
    """A fitted separator.

    Attributes:
        beta: The normal β of the hyperplane, `(d,)`; NaN where the method has no answer, such as a
            max margin of data that are not separable.
        early: The time at which the flow ended, if it ended early; else NaN.
        path: β at the times asked for, `(times, d)`; None for methods that are no flows. After an
            early end it stays at the last state.

    Example:
        >>> Separator(torch.ones(2)).early
        nan
    """

    beta: Tensor
    early: float = math.nan
    path: Tensor | None = None


def methods(depths: tuple[int, ...]) -> list[str]:
    """Return the names of all methods.

    Example:
        >>> methods((1, 2))[:3]
        ['EGD L=1', 'EGD L=2', 'NGD']
    """
    return [*(f"{_EGD}{depth}" for depth in depths), *_METHODS]


def fit_separator(
    method: str,
    x: Tensor,
    y: Tensor,
    *,
    inputs: Tensor | None = None,
    until: float = 1e6,
    natural_until: float = 10.0,
    scale: float = 0.1,
    times: Tensor | None = None,
) -> Separator:
    """Fit one method to one table.

    Args:
        method: One of `methods`.
        x: Inputs, float64, `(n, d)`.
        y: Labels ±1, `(n,)`.
        inputs: Inputs over which the population Fisher is averaged; by default `x`.
        until: Final time of EGD, on the mean loss.
        natural_until: Final time of NGD.
        scale: Initial value of all factors of EGD except the first, which is zero.
        times: Increasing positive times at which β is wanted too, for a flow; those after its
            final time get the final β.

    Raises:
        InvalidInputError: If there is no such method, or an argument cannot be used.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [-1.0, -1.0], [2.0, 0.5]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
        >>> beta = fit_separator("ℓ2 max margin", x, y).beta
        >>> correct(beta, x, y)
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    natural_until = number(natural_until, "natural_until", low=0, low_open=True)
    until = number(until, "until", low=0, low_open=True)
    rows = _checked(x, y, inputs, natural_until, times)
    scale = number(scale, "scale", low=0, low_open=True)
    name = method if isinstance(method, str) else ""
    depth = name.removeprefix(_EGD)
    if depth != name and depth.isdecimal() and int(depth) > 0:
        return _euclidean(rows, int(depth), until, scale)
    if name not in _METHODS:
        hint = nearest(name, methods((1, 2)))
        raise InvalidInputError(f"there is no method {describe(method)}. {hint}")
    return _METHODS[name](rows)


def correct(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return 1 for rows on the correct side of the hyperplane, else 0; a row on it has 0.

    Example:
        >>> x = torch.tensor([[1.0], [0.0], [-1.0]])
        >>> correct(torch.tensor([2.0]), x, torch.tensor([1.0, 1.0, 1.0]))
        tensor([1., 0., 0.], dtype=torch.float64)
    """
    edge = 1e-12 * x.norm(dim=1) * beta.norm()
    right: Tensor = (y * (x @ beta) > edge).double()
    return right


@dataclass(frozen=True, eq=False)
class _Rows:
    """A table to fit, the inputs of the population Fisher, and the final time of NGD."""

    x: Tensor
    y: Tensor
    inputs: Tensor
    until: float
    times: Tensor | None

    def stops(self, until: float) -> Tensor:
        """Return the times asked for that come before the end, and the end."""
        end = torch.tensor([until], dtype=torch.float64)
        return end if self.times is None else torch.cat([self.times[self.times < until], end])

    def along(self, states: Tensor) -> Tensor | None:
        """Return β at the times asked for, from those at `stops`, as far as the flow came."""
        if self.times is None:
            return None
        index = torch.arange(len(self.times)).clamp(max=len(states) - 1)
        return states[index]


def _checked(
    x: Tensor, y: Tensor, inputs: Tensor | None, until: float, times: Tensor | None
) -> _Rows:
    x = tensor(x, "x", shape=("n", "d"), dtypes=(torch.float64,))
    y = tensor(y, "y", shape=(len(x),), dtypes=(torch.float64,))
    if not bool((y.abs() == 1).all()):
        raise LabelError("y must hold only the labels -1 and 1.")
    if inputs is not None:
        inputs = tensor(inputs, "inputs", shape=("m", x.shape[1]), dtypes=(torch.float64,))
    if times is not None:
        times = tensor(times, "times", shape=("t",), dtypes=(torch.float64,))
        if len(times) == 0 or float(times[0]) <= 0 or not bool((times.diff() > 0).all()):
            raise InvalidInputError("times must be positive and increasing.")
    return _Rows(x, y, x if inputs is None else inputs, until, times)


def _euclidean(rows: _Rows, depth: int, until: float, scale: float) -> Separator:
    dim = rows.x.shape[1]
    times, batch = rows.stops(until), (rows.x, rows.y)
    model: Direct | Diagonal
    if depth == 1:
        model, start = Direct(), torch.zeros(dim, dtype=torch.float64)
    else:
        model = Diagonal(depth)
        start = model.init_free(dim, scale=scale)
    found = integrate(euclidean, Bernoulli(), model, start, batch, until=until, times=times)
    states = torch.stack([model.hypothesis(found.at(k)) for k in range(len(found))])
    return Separator(states[-1], _early(found), rows.along(states))


def _natural(rows: _Rows) -> Separator:
    states = _closed_form(rows, rows.stops(rows.until))
    return Separator(states[-1], path=rows.along(states))


def _closed_form(rows: _Rows, times: Tensor) -> Tensor:
    zero = torch.zeros(rows.x.shape[1], dtype=torch.float64)
    return natural_flow_of_logistic_regression(zero, (rows.x, rows.y), times).states


def _population(rows: _Rows) -> Separator:
    found = integrate(
        natural,
        Bernoulli(),
        Direct(),
        torch.zeros(rows.x.shape[1], dtype=torch.float64),
        (rows.x, rows.y),
        until=rows.until,
        times=rows.stops(rows.until),
        method="dopri",
        rtol=1e-4,
        max_evaluations=2000,
        fisher_over=rows.inputs,
    )
    return Separator(found.final, _early(found), rows.along(found.states))


def _early(flow: Trajectory[Any]) -> float:
    """Return the time of a flow that ended early (stalled, singular or diverged), else NaN."""
    return math.nan if flow.status.reached else float(flow.times[-1])


def _margin(rows: _Rows, p: int) -> Separator:
    try:
        return Separator(max_margin(rows.x, rows.y, p).solution)
    except (SeparabilityError, ConvergenceError):
        return _no_answer(rows)


def _limit(rows: _Rows) -> Separator:
    """Return the vertex of the linear program, or the finite optimum where there is one."""
    try:
        return Separator(natural_flow(rows.x, rows.y).solution)
    except SeparabilityError:
        return Separator(_closed_form(rows, torch.tensor([_LATE], dtype=torch.float64))[-1])
    except ConvergenceError:
        return _no_answer(rows)


def _no_answer(rows: _Rows) -> Separator:
    return Separator(torch.full_like(rows.x[0], math.nan))


_METHODS: dict[str, Callable[[_Rows], Separator]] = {
    "NGD": _natural,
    "NGD population": _population,
    "ℓ2 max margin": lambda rows: _margin(rows, 2),
    "ℓ1 max margin": lambda rows: _margin(rows, 1),
    "limit of NGD": _limit,
    "least squares": lambda rows: Separator(least_squares(rows.x, rows.y).solution),
}
