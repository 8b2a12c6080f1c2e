"""The catalog of the atlas: optimizer, parametrization and loss, with the theorem on its limit."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from natgrad.diagnostics._rates import Law
from natgrad.directions import Wasserstein, euclidean, natural
from natgrad.experiments.atlas._flows.directions import damped_natural, metric_natural
from natgrad.experiments.atlas.separators.config import Effort
from natgrad.experiments.atlas.separators.goals import BOX, DIAGONAL, KFAC_DAMPING, SCALE
from natgrad.flows import (
    StepRule,
    Trajectory,
    adam,
    constant,
    descend,
    diagonal_fisher,
    integrate,
    integrate_by_length,
    kfac,
    loss_damping,
    momentum,
    steepest,
)
from natgrad.flows._by_length import Velocity, arc_path
from natgrad.likelihoods import Bernoulli, Gaussian, Likelihood
from natgrad.limits import separability
from natgrad.parametrizations import Diagonal, Direct
from natgrad.stopping import Rule, margin_above, steps_reached, time_reached

_FAR = 600.0  # a smallest margin at which a descent ends: weights underflow past 700


class Path(NamedTuple):
    """States of an optimizer: β at each saved step or time, and why it ended."""

    clock: Tensor
    beta: Tensor
    detail: str


Batch = tuple[Tensor, Tensor]
Run = Callable[[Batch, Effort], Path]


class Method(NamedTuple):
    """One row of the atlas.

    Attributes:
        optimizer: Its name.
        parametrization: "direct" or "diagonal, L = 2".
        loss: "logistic" or "square".
        run: Returns its path.
        separable: The goal on separable data, by theorem; None if no theorem names one.
        otherwise: The goal on data that are not separable.
        source: Where the limit is stated.
        shrinks: Whether its steps shorten like k^{−1/2}.
        leaves: A goal on separable data that it does not tend to, by theorem. Its rate says whether
            the gap to this goal still falls.
    """

    optimizer: str
    parametrization: str
    loss: str
    run: Run
    separable: str | None
    otherwise: str | None
    source: str
    shrinks: bool = False
    leaves: str | None = None

    @property
    def name(self) -> str:
        """Return a name of its own: the optimizer, and what is not direct and logistic."""
        more = [] if self.parametrization == "direct" else ["L = 2"]
        more += [] if self.loss == "logistic" else [self.loss]
        return f"{self.optimizer} ({', '.join(more)})" if more else self.optimizer

    def goal(self, kind: str) -> str | None:
        """Return the name of its goal on data of a kind."""
        if kind == "quasi-separable":
            known = ("vertex", "least squares", "least squares of depth 2", "box")
            return self.separable if self.separable in known else None
        return self.separable if kind == "separable" else self.otherwise

    def law(self, kind: str) -> Law:
        """Return how the gap falls: exponentially to a point, but for steps that shorten."""
        point = self.loss == "square" or kind == "not separable"
        return "exponential" if point and not self.shrinks else "power"

    def measured(self, kind: str) -> str | None:
        """Return the goal that its path is compared with: its own, or the one that it leaves."""
        return self.goal(kind) or (self.leaves if kind == "separable" else None)


def _stepped(
    rule: Callable[[int], StepRule],
    *,
    direction: Any = euclidean,
    loss: Likelihood | None = None,
    until: Callable[[int], Rule] = steps_reached,
    **options: Any,
) -> Run:
    """Return a descent from zero by a rule that knows the number of steps."""

    def run(batch: Batch, effort: Effort) -> Path:
        x, _ = batch
        found: Trajectory[Tensor] = descend(
            direction, loss or Bernoulli(), Direct(), torch.zeros_like(x[0]), batch,
            step=rule(effort.steps), until=until(effort.steps), max_steps=effort.steps,
            save_every=effort.steps // effort.saves, **options,
        )  # fmt: skip
        every = torch.arange(len(found.times), dtype=x.dtype) * (effort.steps // effort.saves)
        every[-1] = found.steps
        return Path(every, found.states, found.detail)

    return run


def _far_or(steps: int) -> Rule:
    return margin_above(_FAR) | steps_reached(steps)


def _flowed(direction: Any, loss: Likelihood, depth: int, end: float | None, **options: Any) -> Run:
    """Return a flow, from zero or from w₁ = 0 and w₂ = `SCALE`; `end` replaces the effort's."""

    def run(batch: Batch, effort: Effort) -> Path:
        x, _ = batch
        last = effort.until if end is None else end
        times = torch.logspace(-1, math.log10(last), effort.saves, dtype=x.dtype)
        model: Any = Direct() if depth == 1 else Diagonal(depth)
        dim = x.shape[1]
        start = torch.zeros_like(x[0]) if depth == 1 else model.init_free(dim, scale=SCALE)
        until = time_reached(last) | margin_above(_FAR)
        found: Trajectory[Any] = integrate(
            direction, loss, model, start, batch, until=until, times=times, **options
        )
        states = found.states if depth == 1 else found.states.prod(1)
        return Path(found.times, states, found.detail)

    return run


def _by_length(follow: Callable[[Batch, Any], Path], otherwise: Run, end: float = 1e4) -> Run:
    """Return a flow by the length of its path on separable data, and another run on other data."""

    def run(batch: Batch, effort: Effort) -> Path:
        if separability(*batch).kind != "separable":
            return otherwise(batch, effort)
        return follow(batch, np.logspace(-1, math.log10(end), effort.saves))

    return run


def _descended(depth: int) -> Run:
    """Return gradient flow of β, or of two factors, by length."""

    def follow(batch: Batch, lengths: Any) -> Path:
        dim = batch[0].shape[1]
        model: Any = Direct() if depth == 1 else Diagonal(depth)
        zero = torch.zeros_like(batch[0][0])
        start = zero if depth == 1 else model.init_free(dim, scale=SCALE)
        found: Trajectory[Any] = integrate_by_length(
            euclidean, Bernoulli(), model, start, batch, lengths=torch.from_numpy(lengths)
        )
        states = found.states if depth == 1 else found.states.prod(1)
        return Path(found.times, states, found.detail)

    end = 1e4 if depth == 1 else 1e3  # the product grows like the square of the length
    return _by_length(follow, _flowed(euclidean, Bernoulli(), depth, None), end)


def _along(velocity: Callable[[Any], Velocity], otherwise: Run) -> Run:
    """Return the flow of a velocity in β by length."""

    def follow(batch: Batch, lengths: Any) -> Path:
        x, y = batch
        rows = (y[:, None] * x).numpy()
        arc = arc_path(velocity(rows), np.zeros(rows.shape[1]), lengths.tolist())
        reached = torch.from_numpy(lengths[: len(arc.found)])
        return Path(reached, torch.from_numpy(arc.found), arc.detail)

    return _by_length(follow, otherwise)


def _direct(
    name: str, run: Run, goal: str | None, source: str, *,
    other: str | None = "maximum likelihood", **more: Any,
) -> Method:  # fmt: skip
    return Method(name, "direct", "logistic", run, goal, other, source, **more)


def _least_squares_step(batch: Batch) -> float:
    x = batch[0]
    return 1 / float(torch.linalg.matrix_norm(x, 2) ** 2 / len(x))


def _gradient_on_squares(batch: Batch, effort: Effort) -> Path:
    # With momentum, so that ill-conditioned tables converge too.
    step = 0.2 * _least_squares_step(batch)
    return _stepped(lambda n: momentum(step, mass=0.9), loss=Gaussian())(batch, effort)


_STEEPEST = "Gunasekar et al. 2018; rate: arXiv 2502.04664"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _direct(
            "coordinate descent", _stepped(lambda n: steepest(1, 1.0, decay=0.5)), "ℓ1 margin",
            _STEEPEST, shrinks=True,
        ),
        _direct(
            "normalized gradient", _stepped(lambda n: steepest(2, 0.5, decay=0.5)), "ℓ2 margin",
            _STEEPEST, shrinks=True,
        ),
        _direct(
            "gradient flow", _descended(1), "ℓ2 margin", "Soudry et al. 2018",
        ),
        _direct(
            "sign descent", _stepped(lambda n: steepest(math.inf, 0.1, decay=0.5)), "ℓ∞ margin",
            _STEEPEST, shrinks=True,
        ),
        _direct(
            "Adam, β₂ = .95", _stepped(lambda n: adam(0.1, beta2=0.95, eps=0, decay=0.5)),
            "ℓ∞ margin", "arXiv 2502.04664", shrinks=True,
        ),
        _direct(
            "Adam, β₂ = .999", _stepped(lambda n: adam(0.1, eps=0, decay=0.5)), "ℓ∞ margin",
            "arXiv 2502.04664", shrinks=True,
        ),
        _direct(
            "Adam, one sample",
            _stepped(
                lambda n: adam(0.1, beta2=0.95, eps=0, decay=0.5), batch_size=1, order="cyclic"
            ),
            None, "arXiv 2510.26303: not ℓ∞", other=None, shrinks=True,
            leaves="ℓ∞ margin",
        ),
        _direct(
            "AdamW, λ = ½",
            _stepped(lambda n: adam(0.5, beta2=0.95, eps=0, weight_decay=1 / BOX, decay=0.5)),
            "box",
            "arXiv 2404.04454", other="box", shrinks=True,
        ),
        _direct(
            "K-FAC",
            _stepped(lambda n: kfac(min(0.3, 1500 / n), damping=KFAC_DAMPING), until=_far_or),
            "K-FAC metric", "natgrad, docs/atlas.md",
        ),
        _direct(
            "diagonal Fisher",
            _stepped(lambda n: diagonal_fisher(min(0.1, 300 / n)), until=_far_or), DIAGONAL,
            "natgrad, atlas/metrics: depends on its path",
        ),
        _direct(
            "natural gradient",
            _stepped(lambda n: constant(300.0 / n), direction=natural, until=_far_or), "vertex",
            "natgrad, docs/findings.md",
        ),
        _direct(
            "natural, λ = √loss",
            _along(
                lambda rows: damped_natural(rows, 1.0, 0.5),
                _flowed(natural, Bernoulli(), 1, 1e4, damping=loss_damping(1.0, power=0.5)),
            ),
            "ℓ2 margin", "natgrad, atlas/damping",
        ),
        _direct(
            "natural, latent Wasserstein",
            _along(
                lambda rows: metric_natural(rows, 0.0),
                _flowed(natural, Bernoulli(), 1, 1e4, metric=Wasserstein(mean="latent")),
            ),
            "whitened margin", "natgrad, atlas/metrics",
        ),
        Method(
            "gradient flow", "diagonal, L = 2", "logistic", _descended(2), "ℓ1 margin",
            "maximum likelihood", "Gunasekar et al. 2018",
        ),
        Method(
            "natural flow", "diagonal, L = 2", "logistic",
            _flowed(natural, Bernoulli(), 2, 100.0), "vertex", "maximum likelihood",
            "[KMH21] Theorem 1; docs/findings.md",
        ),
        Method(
            "gradient with momentum", "direct", "square", _gradient_on_squares, "least squares",
            "least squares", "Polyak 1964",
        ),
        Method(
            "natural gradient", "direct", "square",
            _stepped(lambda n: constant(30.0 / n), direction=natural, loss=Gaussian()),
            "least squares", "least squares", "[KMH21] Theorem 1",
        ),
        Method(
            "gradient flow", "diagonal, L = 2", "square", _flowed(euclidean, Gaussian(), 2, 1e6),
            "least squares of depth 2", "least squares of depth 2", "Woodworth et al. 2020",
        ),
        Method(
            "natural flow", "diagonal, L = 2", "square", _flowed(natural, Gaussian(), 2, 30.0),
            "least squares of depth 2", "least squares of depth 2", "natgrad, atlas/square",
        ),
    )
}  # fmt: skip
"""Every row of the atlas, by name."""
