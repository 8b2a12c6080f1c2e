"""Gradient flow and natural gradient flow as initial value problems."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from natgrad._checks import flag, integer, number
from natgrad._named import named
from natgrad.flows._follow import Settings, follow
from natgrad.flows._methods.solvers import choose
from natgrad.flows._options import check_options
from natgrad.flows._problem import Direction, Problem
from natgrad.flows._recorder import Reached, Record, Recorder
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization
from natgrad.stopping import Rule, as_rule

Method = Literal[
    "auto",
    "newton",
    "reduced",
    "dual",
    "completion",
    "line",
    "observed",
    "kinks",
    "pair",
    "rkc",
    "dopri",
    "dop853",
    "radau",
    "bdf",
    "lsoda",
]


@torch.no_grad()
@named
def integrate(
    direction: Direction,
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    until: float | Rule,
    times: Tensor | None = None,
    method: Method = "auto",
    log_time: bool | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    record: Record | None = None,
    max_evaluations: int = 200_000,
    **options: Any,
) -> Trajectory[P]:
    """Integrate d params/dt = direction(params) with error control.

    - `euclidean`: gradient flow ẇ = −∇L. Products of layers conserve their balancedness:
      w_l² − w_k² of diagonal networks, WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ of matrix products. A single layer
      conserves what is orthogonal to the span of the data.
    - `natural`: natural gradient flow F ẇ = −∇L ([KMH21] 3–5). Outputs at the batch follow one path
      for every parametrization, as long as the Jacobian keeps full row rank. A single layer
      conserves what is orthogonal to the span of the data and, on logistic loss, e^{t} ∇L.

    The loss never increases along either flow.

    Args:
        direction: `euclidean` or `natural`.
        likelihood: The loss; time is that of the loss as reduced.
        parametrization: The model.
        params: Parameters at time 0.
        batch: Inputs and labels.
        until: Final time, or a stopping rule.
        times: Times to save, increasing; default every accepted step.
        method: How to solve; default `"auto"`, which chooses by problem, size and rtol.
            `Trajectory.method` records which method it chose, and why.

            - `"newton"`: natural flow of logistic regression, solved by Newton's method at
              every step and saved time. With `"auto"`, `"dop853"` continues if it fails.
            - `"reduced"`: gradient flow of diagonal networks and logistic regression with one
              unknown per feature.
            - `"dual"`: the same for large data, in dual variables.
            - `"completion"`: gradient flow of matrix completion, with explicit gradients.
            - `"line"`: natural flow of matrix completion with the Fisher over all entries. β stays
              on its straight line to rtol, 11 to 31 times faster than with `"auto"`, which does
              not choose it: its factors follow finite steps and end elsewhere than the flow.
            - `"observed"`: the same with `fisher_over="batch"`, by conjugate gradients.
            - `"kinks"`: gradient flow of networks with `torch.nn.ReLU` modules. Kinks are crossed
              if the flow crosses them; if both sides point at the kink, the flow slides
              along it, and the status is `SLID`. `Trajectory.detail` counts both cases.
              Natural flows of such networks stall at kinks: use `torch.nn.Softplus(beta)` there.
            - `"pair"`: Runge–Kutta–Chebyshev or DOP853, whichever advances farther per
              evaluation.
            - `"rkc"` alone; SciPy's `"dopri"`, `"dop853"` (explicit), `"radau"`, `"bdf"`,
              `"lsoda"` (stiff).
        log_time: Integrate in log(1 + t); default for classification losses. `"dual"` and
            `"newton"` have their own clocks.
        rtol: Approximate relative error of the hypothesis at the end: methods take steps that
            end within 10 rtol on the measured flows, for rtol from 1e-3 to 1e-10. It is
            an estimate, not a bound: a flow that leaves a saddle amplifies errors. `"radau"` and
            `"bdf"` apply it per step. Default 1e-3 for diagonal networks, else 1e-6. `"newton"`
            is always accurate to 1e-11.
        atol: Absolute accuracy per step of a parameter; default 1e-3 of rtol and of the
            parameters' size at the start.
        record: Diagnostics to save, by name: functions of the parameters.
        max_evaluations: Give up (status stalled) after this number of evaluations.
        **options: Passed to `direction`: `selection`, `fisher_over`, `metric` and `damping` of
            `natural`, the last also as a schedule (`decaying_damping`, `loss_damping`);
            `euclidean` has none.

    Returns:
        The trajectory; its `status` and `detail` say why it ended.

    Example:
        >>> from natgrad import Bernoulli, Diagonal, euclidean
        >>> x = torch.tensor([[1.0, 0.2], [-0.5, -1.0]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> network = Diagonal(2)
        >>> path = integrate(
        ...     euclidean, Bernoulli(), network, network.init_free(2), (x, y), until=1e6
        ... )
        >>> path.status, path.evaluations < 1000
        (<Status.TIME_REACHED: 'time reached'>, True)
    """
    check_options(direction, options, integrate)
    problem = Problem.checked(direction, likelihood, parametrization, params, batch, options)
    if rtol is not None:
        rtol = number(rtol, "rtol", low=0, high=1, low_open=True, high_open=True)
    atol = None if atol is None else number(atol, "atol", low=0)
    max_evaluations = integer(max_evaluations, "max_evaluations", low=1)
    log_time = None if log_time is None else flag(log_time, "log_time")
    solvers, why = choose(method, problem, rtol)
    rule = as_rule(until)
    recorder = Recorder(likelihood, parametrization, batch, times, record)
    reached = Reached(problem.params)
    for solver in solvers:
        path = solver.start(problem, reached, rule.until, Settings(rtol, atol, log_time))
        reached = follow(path, reached, rule, recorder, max_evaluations)
        if not reached.lost:
            break
        recorder.rewind()
    if why:
        reached = replace(reached, method=f"{reached.method}; chosen {why}")
    return recorder.finish(reached)
