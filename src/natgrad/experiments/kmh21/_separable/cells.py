"""Cells of Figures 4 and 6: one method on one data set, with accuracy in closed form.

Arrays whose name ends in `seconds` are measured CPU time. All others depend only on the config.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from natgrad.data.separable import Separable, sparse_gaussian
from natgrad.diagnostics import cosine, gaussian_accuracy
from natgrad.directions import GaussianInputs, euclidean, natural
from natgrad.flows import descend, integrate
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.lab.cell import Result
from natgrad.likelihoods import Bernoulli
from natgrad.limits import least_squares, max_margin, natural_flow
from natgrad.parametrizations import Diagonal, Direct
from natgrad.stopping import loss_below, steps_reached, time_reached


@dataclass(frozen=True)
class Task:
    """A data set of `sparse_gaussian`."""

    n: int
    dim: int
    ones: int
    seed: int

    def data(self) -> Separable:
        """Return inputs, labels and the true separator."""
        return sparse_gaussian(self.n, self.dim, ones=self.ones, seed=self.seed)


def scores(task: Separable, beta: Tensor) -> dict[str, npt.NDArray[Any]]:
    """Return test accuracy of separators `(…, d)`, and how well they find the true coordinates.

    With k true coordinates, `share` is the part of ‖β‖₂ on them, and `named` is the share of them
    among the k largest |β|.

    Example:
        >>> task = sparse_gaussian(5, 2, ones=1, seed=0)
        >>> found = scores(task, torch.tensor([3.0, 4.0], dtype=torch.float64))
        >>> float(found["share"]), float(found["named"])
        (0.6, 0.0)
    """
    true = task.beta != 0
    share = beta[..., true].norm(dim=-1) / beta.norm(dim=-1)
    named = true[beta.abs().topk(int(true.sum()), dim=-1).indices].double().mean(-1)
    accuracy = gaussian_accuracy(beta, task.beta)
    return {"accuracy": accuracy.numpy(), "share": share.numpy(), "named": named.numpy()}


def timed(results: Mapping[str, npt.ArrayLike], began: float) -> Result:
    """Return arrays, with the CPU seconds since `began`."""
    seconds = time.process_time() - began
    return {name: np.asarray(value) for name, value in results.items()} | {
        "seconds": np.asarray(seconds)
    }


@dataclass(frozen=True)
class Euclidean:
    """Gradient flow of a diagonal network.

    Attributes:
        task: The data.
        depth: Number of factors; 1 is the direct parametrization, from β = 0.
        scale: Scale of the initial factors.
        init: "free" (w₁ = 0, the others `scale`) or "gaussian" (`scale` times normal numbers).
        times: Times to record; the flow ends at the last.
        loss: Stop as soon as the loss is below this, and record only then; 0 for never.
    """

    task: Task
    depth: int
    scale: float
    times: tuple[float, ...]
    init: Literal["free", "gaussian"] = "free"
    loss: float = 0.0


def euclidean_flow(config: Euclidean) -> Result:
    """Return accuracy, share and loss at the times (NaN after a stop), and the last β.

    `seconds` leaves out the drawing of the data, as the timed loop does.
    """
    task = config.task.data()
    began = time.process_time()
    model: Direct | Diagonal = Direct() if config.depth == 1 else Diagonal(config.depth)
    start = _start(config, model)
    times = torch.tensor(config.times, dtype=torch.float64)
    end = time_reached(config.times[-1])
    found = integrate(
        euclidean,
        Bernoulli(),
        model,
        start,
        task.batch,
        until=end | loss_below(config.loss) if config.loss else end,
        times=times[-1:] if config.loss else times,
        max_evaluations=1_000_000,
    )
    states: Tensor = found.states
    beta = states if config.depth == 1 else states.prod(1)
    values = scores(task, beta) | {"loss": found.losses.numpy()}
    missing = len(times) - len(beta) if not config.loss else 0
    padded = {
        name: np.concatenate([value, np.full(missing, math.nan)]) for name, value in values.items()
    }
    out = padded | _stuck(task, start, beta[-1]) | {"beta": beta[-1].numpy()}
    return timed(out, began)


def _stuck(task: Separable, start: Tensor, beta: Tensor) -> dict[str, float]:
    """Return the share of true coordinates that stay near zero, and their initial speed.

    Near zero means below 1 % of the largest coefficient. `stuck_speed` is the mean rank of their
    initial dβ/dz among all coordinates, from 0 (slowest) to 1 (fastest).
    """
    true = task.beta != 0
    stuck = true & (beta.abs() < 0.01 * beta.abs().max())
    share = float(stuck.sum() / true.sum())
    if start.ndim == 1 or share == 0:
        return {"stuck": share, "stuck_speed": math.nan}
    speed = Diagonal(len(start)).partial_products(start).square().sum(0)
    rank = speed.argsort().argsort() / (len(speed) - 1)
    return {"stuck": share, "stuck_speed": float(rank[stuck].mean())}


def _start(config: Euclidean, model: Direct | Diagonal) -> Tensor:
    if isinstance(model, Direct):
        return torch.zeros(config.task.dim, dtype=torch.float64)
    if config.init == "free":
        return model.init_free(config.task.dim, scale=config.scale)
    generator = torch.Generator().manual_seed(10_000 + config.task.seed)
    return model.init_gaussian(config.task.dim, scale=config.scale, generator=generator)


@dataclass(frozen=True)
class Natural:
    """Natural gradient flow of logistic regression from β = 0, Fisher over the training sample.

    Attributes:
        task: The data.
        until: Final time.
        path: For N > D, follow the flow by Newton's method and compare it with the program, also
            at 1000 times the final time, because a sample may become tight only like 1/t.
    """

    task: Task
    until: float
    path: bool = False


def natural_sample(config: Natural) -> Result:
    """Return the flow at its end, compared with least squares (N ≤ D) or the vertex (N > D).

    For N > D the answer is β(t) = X_B⁻¹(t − log λ_B) on the basis B of the linear program of
    `limits.natural_flow`. If the program is so nearly degenerate that this basis is not yet that of
    the flow, the flow is followed from t = 0 instead. `residual` is the error of the result in
    X̃ᵀσ(−X̃β) = e^{−t}c, relative to c. The flow is the only solution of this equation.
    """
    began = time.process_time()
    task = config.task.data()
    x, y = task.batch
    if config.task.n <= config.task.dim:
        beta = _follow(task, config.until)[0]
        shortest = least_squares(x, y).solution
        out: dict[str, npt.ArrayLike] = {
            "ols_accuracy": float(gaussian_accuracy(shortest, task.beta)),
            "ols_cosine": float(cosine(beta, shortest)),
        }
        return timed(scores(task, beta) | {"beta": beta.numpy()} | out, began)
    limit, signed = natural_flow(x, y), x * y[:, None]
    assert limit.basis is not None
    assert limit.dual is not None
    basis, dual = limit.basis, limit.dual[limit.basis]
    followed = config.path or len(basis) != config.task.dim
    if not followed:
        beta = torch.linalg.solve(signed[basis], config.until - torch.log(dual))
        followed = residual(signed, beta, config.until) > 1e-4
    out = {"followed": float(followed)}
    if followed:
        beta, later = _follow(task, config.until, 1000 * config.until)
        out["path_cosine"] = float(cosine(beta, limit.solution))
        out["path_basis"] = _same_basis(signed, beta, basis)
        out["later_basis"] = _same_basis(signed, later, basis)
    out["residual"] = residual(signed, beta, config.until)
    return timed(scores(task, beta) | {"beta": beta.numpy()} | out, began)


def residual(signed: Tensor, beta: Tensor, t: float) -> float:
    """Return ‖e^t X̃ᵀσ(−X̃β) − c‖ / ‖c‖, c = ½X̃ᵀ1: zero along natural gradient flow from β = 0."""
    pull = signed.mT @ torch.exp(t - softplus(signed @ beta))
    cost = signed.mT.sum(1) / 2
    return float((pull - cost).norm() / cost.norm())


def _follow(task: Separable, *times: float) -> Tensor:
    """Return the flow from β = 0 at the times."""
    zero = torch.zeros_like(task.beta)
    wanted = torch.tensor(times, dtype=torch.float64)
    return natural_flow_of_logistic_regression(zero, task.batch, wanted).states


def _same_basis(signed: Tensor, beta: Tensor, basis: Tensor) -> float:
    """Return 1 if the smallest margins are those of the basis, else 0."""
    smallest = (signed @ beta).argsort()[: len(basis)]
    return float(set(smallest.tolist()) == set(basis.tolist()))


@dataclass(frozen=True)
class Population:
    """Natural gradient flow with the Fisher over the population of inputs.

    Attributes:
        task: The data.
        until: Final time.
        sample: Number of unlabeled inputs that stand for the population; 0 for the closed form.
        steps: Number of Euler steps, for when each is expensive; 0 for the flow.
    """

    task: Task
    until: float
    sample: int = 0
    steps: int = 0


def natural_population(config: Population) -> Result:
    """Return the flow at its end."""
    began = time.process_time()
    task = config.task.data()
    over: GaussianInputs | Tensor = GaussianInputs()
    if config.sample:
        generator = torch.Generator().manual_seed(20_000 + config.task.seed)
        shape = (config.sample, config.task.dim)
        over = torch.randn(shape, dtype=torch.float64, generator=generator)
    start = torch.zeros(config.task.dim, dtype=torch.float64)
    given = (Bernoulli(), Direct(), start, task.batch)
    if config.steps:
        step, count = config.until / config.steps, steps_reached(config.steps)
        found = descend(natural, *given, step=step, until=count, fisher_over=over)
    else:
        times = torch.tensor([config.until], dtype=torch.float64)
        direction = partial(natural, fisher_over=over) if config.sample else population_direction
        found = integrate(
            direction, *given, until=config.until, times=times, method="dopri", rtol=1e-4
        )
    return timed(scores(task, found.final) | {"beta": found.final.numpy()}, began)


def population_direction(
    likelihood: Bernoulli, model: Direct, beta: Tensor, batch: tuple[Tensor, Tensor]
) -> Tensor:
    """Return `natural(…, fisher_over=GaussianInputs())`, without its checks of every input.

    On the largest data sets they would take most of the time.
    """
    x, y = batch
    descent = x.mT @ (y * torch.sigmoid(-y * (x @ beta))) / len(x)
    found = GaussianInputs().solve_identity(likelihood, beta, descent)
    assert found is not None
    return found


@dataclass(frozen=True)
class Margins:
    """The max margins of a data set."""

    task: Task


def margins(config: Margins) -> Result:
    """Return accuracy of the ℓ1 and ℓ2 max margins, and support vectors of all three limits."""
    began = time.process_time()
    task = config.task.data()
    out: dict[str, npt.ArrayLike] = {}
    for p, name in ((2, "l2"), (1, "l1")):
        limit = max_margin(*task.batch, p=p)
        assert limit.basis is not None
        out[f"{name}_accuracy"] = scores(task, limit.solution)["accuracy"]
        out[f"{name}_supports"] = len(limit.basis)
    vertex = natural_flow(*task.batch)
    assert vertex.basis is not None
    return timed(out | {"natural_supports": len(vertex.basis)}, began)


@dataclass(frozen=True)
class Logits:
    """Logits along natural gradient flow from random coefficients, N < D.

    Attributes:
        task: The data.
        spread: Standard deviation of the initial logits.
        times: Times to record.
    """

    task: Task
    spread: float
    times: tuple[float, ...]


def logits(config: Logits) -> Result:
    """Return sₙ(t)/t, shape `(times, n)`, and the labels."""
    task = config.task.data()
    generator = torch.Generator().manual_seed(30_000 + config.task.seed)
    normal = torch.randn(config.task.dim, dtype=torch.float64, generator=generator)
    times = torch.tensor(config.times, dtype=torch.float64)
    start = config.spread / math.sqrt(config.task.dim) * normal
    flow = natural_flow_of_logistic_regression(start, task.batch, times)
    states: Tensor = flow.states
    return {"slopes": (states @ task.x.mT / times[:, None]).numpy(), "labels": task.y.numpy()}
