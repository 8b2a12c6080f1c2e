"""Cells of the atlas of separators: one optimizer on one set of data, against its goals."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from natgrad.diagnostics import fit_rate
from natgrad.diagnostics._rates import Law
from natgrad.errors import NatgradError
from natgrad.experiments.atlas.separators.config import Effort, Own, Separators, Table
from natgrad.experiments.atlas.separators.goals import (
    DIAGONAL,
    GOALS,
    KINDS,
    NORMS,
    STARS,
    diagonal_goal,
    goal,
    kind_of,
)
from natgrad.experiments.atlas.separators.methods import METHODS, Path
from natgrad.experiments.atlas.separators.rows import BuiltIn, batch_of
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Bernoulli
from natgrad.limits import certify, gradient_weights

RATES = ("power", "low", "high")
_ACCURACY = 1e-6  # of a share along integrated flows
_LEAST_GAP = 1e-9  # of a share: smaller ones are rounding error, and have no rate


def compute(config: Separators | Own, sweep: Sweep) -> Arrays:
    """Return paths, shares, angles, certificates and rates of every optimizer and data set."""
    data: list[BuiltIn | Table]
    if isinstance(config, Own):
        data = [config.table]
    else:
        size = (config.n, config.dim, config.ones)
        data = [BuiltIn(*size, seed) for seed in config.seeds]
    effort = Effort(steps=config.steps, saves=config.saves, until=config.until)
    names = [f"data {k}" for k in range(len(data))]
    ends = sweep([Cell(goals, Ends(d), f"limits of {n}") for d, n in zip(data, names, strict=True)],
                 "limits")  # fmt: skip
    asked = [
        Cell(optimizer, Optimizer(d, name, effort), f"{name}, {which}")
        for name in METHODS
        for d, which in zip(data, names, strict=True)
    ]
    found = sweep(asked, "optimizers")
    arrays = Arrays(
        method=tuple(METHODS),
        data=names,
        goal=GOALS,
        star=STARS,
        norm=tuple(NORMS),
        rate=RATES,
        saved=list(range(config.saves)),
    )
    arrays.add("kind", np.stack([e["kind"] for e in ends]), "data")
    arrays.add("certificates", np.stack([e["certificates"] for e in ends]), "data", "goal")
    arrays.add("stars", ends[0]["stars"], "star", "feature")
    many = len(data)
    shapes = {
        "angles": ("goal",),
        "shares": ("goal",),
        "norm_shares": ("norm",),
        "proved": ("norm",),
        "rates": ("rate",),
        "own_share": ("saved",),
        "clock": ("saved",),
        "certificate": (),
    }
    for key, dims in shapes.items():
        rows = [np.stack([f[key] for f in found[i : i + many]]) for i in range(0, len(found), many)]
        arrays.add(key, np.stack(rows), "method", "data", *dims)
    first = [f["path"] for f in found[::many]]
    arrays.add("path", np.stack(first), "method", "saved", "feature")
    return arrays


@dataclass(frozen=True)
class Ends:
    """The goals of one set of data."""

    data: BuiltIn | Table


def goals(config: Ends) -> Result:
    """Return the kind of data, the certificates of all goals, and the stars as unit vectors."""
    found = {name: goal(config.data, name) for name in GOALS}
    stars = [found[name].solution / found[name].solution.norm() for name in STARS]
    return {
        "kind": np.asarray(KINDS.index(kind_of(config.data))),
        "certificates": np.array([one.certificate for one in found.values()]),
        "stars": torch.stack(stars).numpy(),
    }


@dataclass(frozen=True)
class Optimizer:
    """One optimizer on one set of data.

    Attributes:
        data: The data.
        method: A name of `METHODS`.
        effort: How long it runs.
    """

    data: BuiltIn | Table
    method: str
    effort: Effort


def optimizer(config: Optimizer) -> Result:
    """Return the path as unit vectors, and how near its end is to every goal."""
    x, y = batch_of(config.data)
    kind, method = kind_of(config.data), METHODS[config.method]
    rows = y[:, None] * x
    path = _whole(method.run((x, y), config.effort), config.effort.saves)
    last = path.beta[-1:]
    found = {name: goal(config.data, name) for name in GOALS}
    own = method.measured(kind)
    if own == DIAGONAL:
        found[own] = diagonal_goal(x, y, path.beta[-1])
    known = {name: not bool(one.solution.isnan().any()) for name, one in found.items()}
    shares = [float(one.shares(last, rows)) if known[n] else math.nan for n, one in found.items()]
    angles = [float(one.degrees(last)) if known[n] else math.nan for n, one in found.items()]
    along = torch.full((len(path.beta),), math.nan, dtype=torch.float64)
    if own is not None and known[own]:
        along = found[own].shares(path.beta, rows)
    unit = path.beta / path.beta.norm(dim=1, keepdim=True).clamp(min=1e-300)
    return {
        "path": unit.numpy(),
        "clock": path.clock.numpy(),
        "angles": np.array(angles),
        "shares": np.array(shares),
        "norm_shares": np.array([shares[GOALS.index(name)] for name in NORMS]),
        "proved": _proved(path.beta, x, y, kind),
        "own_share": along.numpy(),
        "rates": _rate(path.clock, 1 - along, method.law(kind)),
        "certificate": np.array(math.nan if own is None else found[own].certificate),
    }


def _whole(path: Path, saves: int) -> Path:
    """Return exactly `saves` states after the start; a path that ended early stays at its end."""
    clock, beta = path.clock, path.beta
    if float(beta[0].abs().max()) == 0:  # zero has no direction
        clock, beta = clock[1:], beta[1:]
    index = torch.arange(saves).clamp(max=len(beta) - 1)
    return Path(clock[index], beta[index], path.detail)


def _proved(beta: Tensor, x: Tensor, y: Tensor, kind: str) -> Any:
    """Return the shares of the largest margins that the descent's own weights prove."""
    outputs = [x @ b for b in beta]
    usable = kind == "separable" and all(float((y * s).min()) < 700 for s in outputs)
    if not usable:
        return np.full(len(NORMS), math.nan)
    weights = torch.stack([gradient_weights(Bernoulli(), s, y) for s in outputs]).mean(0)
    return np.array([certify(beta[-1], weights, x, y, p).fraction for p in NORMS.values()])


def _rate(clock: Tensor, gap: Tensor, law: Law) -> Any:
    """Return the exponent of a law of the gap, and its interval.

    A power law is fitted from 1/30 of the clock on, an exponential one from 1/4 of the time on that
    it takes to the accuracy of integration.
    """
    late = (gap > (_ACCURACY if law == "exponential" else _LEAST_GAP)) & (clock > 0)
    end = clock[late].max() if law == "exponential" and bool(late.any()) else clock[-1]
    late &= clock >= end / (4 if law == "exponential" else 30)
    late &= torch.cat([clock.diff() > 0, clock.new_ones(1, dtype=torch.bool)])
    try:
        rate = fit_rate(clock[late], gap[late], law=law, windows=4)
    except NatgradError:  # too few states before rounding error
        return np.full(len(RATES), math.nan)
    return np.array([rate.exponent, rate.low, rate.high])
