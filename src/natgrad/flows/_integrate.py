"""Gradient flow and natural gradient flow as initial value problems."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, cast, get_args

import torch
from torch import Tensor

from natgrad._checks import choice, flag, integer, number
from natgrad.directions import euclidean, natural
from natgrad.directions._batch import check_problem
from natgrad.directions._euclidean import descent
from natgrad.directions._natural import prepare
from natgrad.errors import (
    ConvergenceError,
    InvalidInputError,
    NonFiniteError,
    RankDeficientError,
    VelocityOverflowError,
)
from natgrad.flows._clock import LinearClock, LogClock
from natgrad.flows._methods.dual import DualFlow
from natgrad.flows._methods.logistic import LogisticFlow
from natgrad.flows._methods.steppers import Stepper, stepper
from natgrad.flows._options import check_options
from natgrad.flows._recorder import Record, Recorder
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Bernoulli, Categorical, Likelihood
from natgrad.parametrizations import Diagonal, Direct
from natgrad.parametrizations.base import (
    P,
    Parametrization,
    check_same_structure,
    detach,
    flatten,
    unflatten,
)
from natgrad.stopping import Rule, Status, as_rule

Method = Literal["auto", "dual", "newton", "rkc", "dopri", "dop853", "radau", "bdf", "lsoda"]
Direction = Callable[..., Any]

_NEWTON_STEP = 0.2  # of the time since t = −1: fine enough for rules to end a run near their bound


@torch.no_grad()
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
    atol: float = 1e-9,
    record: Record | None = None,
    max_evaluations: int = 200_000,
    **options: Any,
) -> Trajectory[P]:
    """Integrate d params/dt = direction(params) with error control.

    - `euclidean`: gradient flow ẇ = −∇L. Products of layers conserve their balancedness:
      w_l² − w_k² of diagonal networks, WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ of matrix products. A single layer
      conserves what is orthogonal to the span of the data.
    - `natural`: natural gradient flow F ẇ = −∇L ([KMH21] 3–5). Outputs at the batch follow one path
      whatever the parametrization, as long as the Jacobian keeps full row rank. A single layer
      conserves what is orthogonal to the span of the data and, on logistic loss, e^{t} ∇L.

    The loss never increases along either.

    Args:
        direction: `euclidean` or `natural`.
        likelihood: The loss; time is that of the loss as reduced.
        parametrization: The model.
        params: Parameters at time 0.
        batch: Inputs and labels.
        until: Final time, or a stopping rule.
        times: Times to save, increasing; default every accepted step.
        method: `"dual"` (gradient flow of diagonal networks and logistic regression, in dual
            variables), `"newton"` (natural gradient flow of logistic regression, solved for by
            Newton's method at every step and saved time), `"rkc"` (Runge–Kutta–Chebyshev, for
            gradient flows), `"dopri"`, `"dop853"` (explicit), `"radau"`, `"bdf"`, `"lsoda"`
            (stiff), or `"auto"`, which goes on with `"dop853"` where `"newton"` gives up.
        log_time: Integrate in log(1 + t); default for classification losses. `"dual"` and
            `"newton"` have clocks of their own.
        rtol: Relative accuracy per step; default 1e-3 for `"dual"`, else 1e-6. `"newton"` is
            accurate to 1e-11 whatever is asked for.
        atol: Absolute accuracy per step.
        record: Diagnostics to save, by name: functions of the parameters.
        max_evaluations: Give up (status stalled) after so many evaluations.
        **options: Passed to `direction`: `selection`, `fisher_over` and `damping` of `natural`;
            `euclidean` has none.

    Returns:
        The trajectory; its `status` and `detail` say why it ended.

    Example:
        >>> from natgrad import Bernoulli, Diagonal
        >>> x = torch.tensor([[1.0, 0.2], [-0.5, -1.0]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> network = Diagonal(2)
        >>> path = integrate(
        ...     euclidean, Bernoulli(), network, network.init_free(2), (x, y), until=1e6
        ... )
        >>> path.status, path.evaluations < 1000
        (<Status.TIME_REACHED: 'time reached'>, True)
    """
    params = detach(params)
    check_problem(likelihood, parametrization, params, batch)
    check_options(direction, options, integrate)
    if rtol is not None:
        rtol = number(rtol, "rtol", low=0, high=1, low_open=True, high_open=True)
    atol = number(atol, "atol", low=0)
    max_evaluations = integer(max_evaluations, "max_evaluations", low=1)
    log_time = None if log_time is None else flag(log_time, "log_time")
    choice(method, "method", get_args(Method))
    rule = as_rule(until)
    recorder = Recorder(likelihood, parametrization, batch, times, record)
    chosen = _choose(method, direction, likelihood, parametrization, params, batch, options)
    if chosen == "dual":
        return _integrate_dual(
            likelihood,
            parametrization,
            params,
            batch,
            rule,
            recorder,
            1e-3 if rtol is None else rtol,
            max_evaluations,
        )

    begin = _Beginning(params)
    if chosen == "newton":
        found = _integrate_newton(likelihood, params, batch, rule, recorder, max_evaluations)
        if isinstance(found, Trajectory) or method == "newton":
            return found if isinstance(found, Trajectory) else found.give_up(recorder)
        begin, chosen = found, "dop853"

    x, y = batch
    problem = (likelihood, parametrization, params, batch)
    natural_field = prepare(*problem, **options) if direction is natural else None

    def velocity(state: Tensor) -> Tensor:
        here = unflatten(state, params)
        if direction is euclidean:
            return flatten(descent(likelihood, parametrization, here, x, y))
        if natural_field is not None:
            return flatten(natural_field(here))
        v = direction(likelihood, parametrization, here, batch, **options)
        check_same_structure(v, params)
        return flatten(v)

    stretched = isinstance(likelihood, (Bernoulli, Categorical)) if log_time is None else log_time
    clock = LogClock(begin.t) if stretched else LinearClock(begin.t)

    def field(tau: float, state: Tensor) -> Tensor:
        return clock.rate(tau) * velocity(state)

    return _run(
        lambda: stepper(
            chosen,
            field,
            flatten(begin.params),
            clock.tau(rule.until),
            rtol=1e-6 if rtol is None else rtol,
            atol=atol,
        ),
        clock,
        begin,
        rule,
        recorder,
        begin.method + chosen + (" in log time" if stretched else ""),
        max_evaluations,
        direction is natural,
    )


@dataclass(frozen=True)
class _Beginning(Generic[P]):
    """Where an integrator takes over: at the start, or where another one gave up.

    Attributes:
        params: Parameters there.
        t: Time there.
        steps: Steps taken so far.
        evaluations: Evaluations so far.
        method: What was used so far, as the beginning of the method's name.
        error: Why it gave up.
    """

    params: P
    t: float = 0.0
    steps: int = 0
    evaluations: int = 0
    method: str = ""
    error: str = ""

    def give_up(self, recorder: Recorder[P]) -> Trajectory[P]:
        """Return the trajectory that ends here, stalled."""
        if not recorder.saved_at(self.t):
            recorder.save(self.t, self.params)
        return recorder.finish(
            Status.STALLED,
            f"at t = {self.t:.6g}: {self.error}",
            method="Newton path",
            evaluations=self.evaluations,
            steps=self.steps,
            error_estimate=math.nan,
        )


def _choose(
    method: str,
    direction: Direction,
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    options: dict[str, Any],
) -> str:
    logistic = (
        isinstance(likelihood, Bernoulli)
        and isinstance(parametrization, (Direct, Diagonal))
        and cast(Any, parametrization).predict(params, batch[0]).ndim == 1
        and batch[0].is_floating_point()
    )
    fits = {
        "dual": logistic and direction is euclidean,
        "newton": logistic
        and direction is natural
        and isinstance(parametrization, Direct)
        and not options,
    }
    if method in fits and not fits[method]:
        raise InvalidInputError(
            "method='dual' is for euclidean flows of Direct or Diagonal and method='newton' for "
            "natural flows of Direct (no further options), with one logit under Bernoulli, not for "
            f"{parametrization!r} under {likelihood!r}. Try method='auto'."
        )
    if method != "auto":
        return method
    for name, possible in fits.items():
        if possible:
            return name
    return "dop853" if direction is natural else "rkc"


def _run(
    start: Callable[[], Stepper],
    clock: LinearClock,
    begin: _Beginning[P],
    rule: Rule,
    recorder: Recorder[P],
    method: str,
    max_evaluations: int,
    singular: bool,
) -> Trajectory[P]:
    """Step until the rule is met or the flow cannot go on.

    Steps of a gradient flow shrink to nothing where it is too stiff, those of a natural one where
    it is `singular`.
    """
    params = begin.params
    steps, t, state = begin.steps, begin.t, flatten(params)
    solver: Stepper | None = None
    if t == 0 and (recorder.saves_every_step or recorder.due(0.0)):
        recorder.save(0.0, params)
    status, detail = Status.STALLED, f"gave up after {max_evaluations} evaluations"
    try:
        solver = start()
        while begin.evaluations + solver.evaluations < max_evaluations:
            failure = solver.step()
            if failure is not None:
                status, detail = Status.STALLED, f"at t = {t:.6g}: {failure}"
                if singular:
                    status = Status.SINGULAR
                    detail = f"the velocity is unbounded at t = {t:.6g}, where a rank is lost"
                break
            # The clock rounds: the end of the interval is the end of time.
            now = rule.until if solver.t >= clock.tau(rule.until) else clock.t(solver.t)
            if not bool(torch.isfinite(solver.y).all()):
                status, detail = Status.DIVERGED, f"parameters overflow after t = {t:.6g}"
                break
            steps, t, state = steps + 1, min(now, rule.until), solver.y
            for due in recorder.due(t):
                recorder.save(due, unflatten(solver.interpolate(clock.tau(due)), params))
            here = unflatten(state, params)
            if recorder.saves_every_step:
                recorder.save(t, here)
            if rule.met(recorder.progress(t, steps, here)):
                status, detail = rule.status, f"{rule.reason} at t = {t:.6g}"
                break
    except (RankDeficientError, ConvergenceError) as error:
        status, detail = Status.SINGULAR, f"a rank is lost near t = {t:.6g}: {error}"
    except (VelocityOverflowError, NonFiniteError) as error:
        status, detail = Status.DIVERGED, f"near t = {t:.6g}: {error}"
    if not recorder.saved_at(t):
        recorder.save(t, unflatten(state, params))
    return recorder.finish(
        status,
        detail,
        method=method,
        evaluations=begin.evaluations + (0 if solver is None else solver.evaluations),
        steps=steps,
        error_estimate=float("nan") if solver is None else solver.error,
    )


def _integrate_newton(
    likelihood: Likelihood,
    params: P,
    batch: tuple[Tensor, Tensor],
    rule: Rule,
    recorder: Recorder[P],
    max_evaluations: int,
) -> Trajectory[P] | _Beginning[P]:
    """Natural gradient flow of logistic regression; see `natgrad.flows._methods.logistic`.

    Returns:
        The trajectory, or where Newton's method lost it.
    """
    x, y = batch
    beta = cast(Tensor, params)
    flow = LogisticFlow(beta, x, likelihood.prepare(x @ beta, y)[1])
    if recorder.saves_every_step or recorder.due(0.0):
        recorder.save(0.0, params)
    status, detail = Status.STALLED, f"gave up after {max_evaluations} evaluations"
    t, steps, here = 0.0, 0, params
    try:
        while max(steps, flow.evaluations) < max_evaluations:
            now = min(t + _NEWTON_STEP * (1 + t), rule.until)
            if math.isinf(now):
                status, detail = Status.STALLED, f"time overflows after t = {t:.6g}"
                break
            for due in recorder.due(now):
                recorder.save(due, cast(P, flow.at(due)))
            here = cast(P, flow.at(now))
            t, steps = now, steps + 1
            if recorder.saves_every_step:
                recorder.save(t, here)
            if rule.met(recorder.progress(t, steps, here)):
                status, detail = rule.status, f"{rule.reason} at t = {t:.6g}"
                break
    except (ConvergenceError, VelocityOverflowError) as error:
        recorder.rewind()
        return _Beginning(here, t, steps, flow.evaluations, "Newton path, then ", str(error))
    if not recorder.saved_at(t):
        recorder.save(t, here)
    return recorder.finish(
        status,
        detail,
        method="Newton path",
        evaluations=flow.evaluations,
        steps=steps,
        error_estimate=flow.error,
    )


def _integrate_dual(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    rule: Rule,
    recorder: Recorder[P],
    rtol: float,
    max_evaluations: int,
) -> Trajectory[P]:
    """Gradient flow of β = w₁ ⊙ ⋯ ⊙ w_L on logistic loss; see `natgrad.flows._methods.dual`."""
    x, y = batch
    outputs = parametrization.predict(params, x)
    signs = likelihood.prepare(outputs, y)[1][:, 0]
    w = cast(Tensor, params)
    direct = isinstance(parametrization, Direct)

    def shaped(layers: Tensor) -> P:
        return cast(P, layers[0] if direct else layers)

    flow = DualFlow(
        signs[:, None] * x, w[None] if direct else w, likelihood.scale(len(x)), rtol=rtol
    )
    if recorder.saves_every_step or recorder.due(0.0):
        recorder.save(0.0, params)
    status, detail = Status.STALLED, f"gave up after {max_evaluations} evaluations"
    while flow.evaluations < max_evaluations:
        failure = flow.step(rule.until)
        if failure is not None:
            status, detail = Status.STALLED, f"at t = {flow.t:.6g}: {failure}"
            break
        for due in recorder.due(flow.t):
            recorder.save(due, shaped(flow.at(due)))
        here = shaped(flow.w)
        if recorder.saves_every_step:
            recorder.save(flow.t, here)
        if rule.met(recorder.progress(flow.t, flow.steps, here)):
            status, detail = rule.status, f"{rule.reason} at t = {flow.t:.6g}"
            break
    if not recorder.saved_at(flow.t):
        recorder.save(flow.t, shaped(flow.w))
    return recorder.finish(
        status,
        detail,
        method="dual variables, Runge–Kutta–Chebyshev",
        evaluations=flow.evaluations,
        steps=flow.steps,
        error_estimate=flow.error,
    )
