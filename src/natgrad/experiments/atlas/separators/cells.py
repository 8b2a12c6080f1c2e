"""Cells of the atlas of separators: descents, and the limits of the same data."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from natgrad.data.separable import sparse_gaussian
from natgrad.diagnostics import angle, margin
from natgrad.directions import euclidean, natural
from natgrad.experiments.atlas.separators.config import Separators
from natgrad.flows import StepRule, adam, constant, descend, diagonal_fisher, kfac, steepest
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Bernoulli
from natgrad.limits import certify, gradient_weights, max_margin, natural_flow
from natgrad.linalg.norms import Metric
from natgrad.parametrizations import Direct
from natgrad.stopping import steps_reached

KFAC_DAMPING = 0.1
END = 300.0  # of natural descents, in their own time: margins of a few hundred
KFAC_END = 1500.0  # likewise; past margins of 700 its factors underflow

LIMITS = ("ℓ1 margin", "ℓ2 margin", "ℓ∞ margin", "K-FAC metric", "vertex")
POWERS = (1.0, 2.0, math.inf)


class Method(NamedTuple):
    """An optimizer: its step rule given the number of steps, its expected limit, its batches.

    No limit means that none is known in closed form; the cell is then undecided.
    """

    rule: Callable[[int], StepRule]
    limit: str | None
    direction: Any = euclidean
    batch_size: int | None = None


METHODS = {
    "coordinate descent": Method(lambda n: steepest(1, 1.0, decay=0.5), "ℓ1 margin"),
    "normalized gradient": Method(lambda n: steepest(2, 0.5, decay=0.5), "ℓ2 margin"),
    "sign descent": Method(lambda n: steepest(math.inf, 0.1, decay=0.5), "ℓ∞ margin"),
    "Adam, β₂ = .95": Method(lambda n: adam(0.1, beta2=0.95, eps=0, decay=0.5), "ℓ∞ margin"),
    "Adam, β₂ = .999": Method(lambda n: adam(0.1, eps=0, decay=0.5), "ℓ∞ margin"),
    "Adam, one sample": Method(
        lambda n: adam(0.1, beta2=0.95, eps=0, decay=0.5), None, batch_size=1
    ),
    "K-FAC": Method(lambda n: kfac(KFAC_END / n, damping=KFAC_DAMPING), "K-FAC metric"),
    "diagonal Fisher": Method(lambda n: diagonal_fisher(END / n), None),
    "natural gradient": Method(lambda n: constant(END / n), "vertex", natural),
}


def compute(config: Separators, sweep: Sweep) -> Arrays:
    """Return paths, margin fractions, angles and certificates of every optimizer and seed."""
    size = (config.n, config.dim, config.ones)
    ends = sweep([Cell(limits, Data(*size, s), f"limits {s}") for s in config.seeds], "limits")
    asked = [
        Cell(descent, Descent(Data(*size, s), name, config.steps, config.saves), f"{name} {s}")
        for name in METHODS
        for s in config.seeds
    ]
    found = sweep(asked, "descents")
    arrays = Arrays(
        method=tuple(METHODS),
        seed=config.seeds,
        limit=LIMITS,
        norm=("ℓ1", "ℓ2", "ℓ∞"),
        saved=list(range(config.saves + 1)),
        feature=list(range(config.dim)),
    )
    arrays.add("limits", np.stack([e["solutions"] for e in ends]), "seed", "limit", "feature")
    arrays.add("certificates", np.stack([e["certificates"] for e in ends]), "seed", "limit")

    def gathered(key: str) -> Any:
        many = len(config.seeds)
        return np.stack(
            [np.stack([f[key] for f in found[i : i + many]]) for i in range(0, len(found), many)]
        )

    arrays.add("path", gathered("path")[:, 0], "method", "saved", "feature")
    arrays.add("angles", gathered("angles"), "method", "seed", "saved", "limit")
    arrays.add("fractions", gathered("fractions"), "method", "seed", "saved", "norm")
    arrays.add("certified", gathered("certified"), "method", "seed", "norm")
    return arrays


@dataclass(frozen=True)
class Data:
    """Separable data.

    Attributes:
        n: Number of samples.
        dim: Number of features.
        ones: Features that the labels depend on.
        seed: Seed of the inputs.
    """

    n: int
    dim: int
    ones: int
    seed: int

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs of different scales, and labels."""
        task = sparse_gaussian(self.n, self.dim, ones=self.ones, seed=self.seed)
        return task.x * torch.logspace(-0.5, 0.5, self.dim, dtype=task.x.dtype), task.y


def certified(data: Data) -> list[Any]:
    """Return the limits of the data, in the order of `LIMITS`."""
    x, y = data.batch
    eye = torch.eye(data.dim, dtype=x.dtype)
    metric = Metric(x.mT @ x / data.n + KFAC_DAMPING * eye)
    return [*(max_margin(x, y, p) for p in (*POWERS, metric)), natural_flow(x, y)]


def limits(data: Data) -> Result:
    """Return the limits as unit vectors, and their certificates."""
    found = certified(data)
    unit = [limit.solution / limit.solution.norm() for limit in found]
    return {
        "solutions": torch.stack(unit).numpy(),
        "certificates": np.array([limit.certificate for limit in found]),
    }


@dataclass(frozen=True)
class Descent:
    """One optimizer on one set of data.

    Attributes:
        data: The data.
        method: A name of `METHODS`.
        steps: Steps.
        saves: Saved states.
    """

    data: Data
    method: str
    steps: int
    saves: int


def descent(config: Descent) -> Result:
    """Return the path as unit vectors, angles to all limits, margin fractions and certificates."""
    x, y = config.data.batch
    method = METHODS[config.method]
    samples: dict[str, Any] = {"order": "cyclic", "batch_size": method.batch_size}
    start = torch.zeros(config.data.dim, dtype=x.dtype)
    run = descend(
        method.direction, Bernoulli(), Direct(), start, (x, y),
        step=method.rule(config.steps), until=steps_reached(config.steps),
        save_every=config.steps // config.saves, **samples,
    )  # fmt: skip
    path = run.states
    ends = certified(config.data)
    best = [limit.value for limit in ends[:3]]
    fractions = [margin(path[1:], x, y, p) / b for p, b in zip(POWERS, best, strict=True)]
    turned = [angle(path[1:], limit.solution) for limit in ends]
    # Zero has no direction, so the first saved state replaces it.
    weights = torch.stack([gradient_weights(Bernoulli(), x @ b, y) for b in path]).mean(0)
    own = [certify(path[-1], weights, x, y, p).fraction for p in POWERS]
    unit = path[1:] / path[1:].norm(dim=1, keepdim=True)
    return {
        "path": _from_first(unit),
        "angles": _from_first(torch.stack(turned, 1).rad2deg()),
        "fractions": _from_first(torch.stack(fractions, 1)),
        "certified": np.array(own),
    }


def _from_first(rows: Tensor) -> Any:
    return torch.cat([rows[:1], rows]).numpy()
