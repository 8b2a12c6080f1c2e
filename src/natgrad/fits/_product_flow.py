"""Gradient flow of a deep product that fits observed entries, monitored on held-out ones."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.fits._entries import Entries
from natgrad.flows._methods.completion.flow import completion_flow
from natgrad.parametrizations import MatrixProduct
from natgrad.stopping import Status

Factors = tuple[Tensor, ...]

_CHUNK = 1 << 24  # numbers gathered at a time


def entries_of(left: Tensor, right: Tensor, positions: Tensor) -> Tensor:
    """Return the entries of left · right at positions, float64, without forming the product."""
    across = right.mT.contiguous()
    many = max(1, _CHUNK // max(1, left.shape[1]))
    parts = [
        torch.linalg.vecdot(left[part[:, 0]], across[part[:, 1]])
        for part in torch.split(positions, many)
    ]
    return torch.cat(parts).double()


def halves(factors: Factors) -> tuple[Tensor, Tensor]:
    """Return W₁⋯W_{L−1} and W_L."""
    return MatrixProduct(len(factors) - 1).hypothesis(factors[:-1]), factors[-1]


@dataclass(frozen=True, eq=False)
class Followed:
    """A state of the flow.

    Attributes:
        factors: The factors.
        time: Their time.
        to_end: Whether the flow had ended there because the entries fit.
        curve: Times and held-out errors along the flow, shape `(steps, 2)`.
        evaluations: Number of gradients.
    """

    factors: Factors
    time: float
    to_end: bool
    curve: Tensor
    evaluations: int


def product_flow(
    entries: Entries,
    *,
    depth: int,
    scale: float,
    hidden: int,
    seed: int,
    held_out: Entries | None,
    until: float,
    max_evaluations: int,
) -> Followed:
    """Follow gradient flow from Gaussian factors; return the state best on held-out entries.

    The arguments are those of `natgrad.fits.fit_product`, entries standardized.
    """
    generator = torch.Generator().manual_seed(seed)
    factors = MatrixProduct(depth).init_gaussian(
        entries.shape, scale=scale, hidden=hidden, generator=generator, dtype=torch.float32
    )
    watch = None if held_out is None else _Watch(held_out, factors)
    flow = completion_flow(
        factors,
        entries.positions,
        entries.values.float(),
        until=until,
        max_evaluations=max_evaluations,
        watch=watch,
    )
    end = float(flow.times[-1])
    if watch is None:
        return Followed(flow.final, end, False, torch.zeros(0, 2), flow.evaluations)
    watch(end, flow.final)  # the last step ends the flow before it is monitored
    fits = flow.status == Status.CONVERGED and watch.best_time == end
    curve = torch.tensor(watch.curve, dtype=torch.float64)
    return Followed(watch.best, watch.best_time, fits, curve, flow.evaluations)


class _Watch:
    """Keep the best state, and end the flow when the error on held-out entries stops improving.

    This error falls in steps, one for each direction that the flow finds, and deep products have
    long plateaus between them. The flow ends when the error has risen by a fifth, or when there was
    no better state for five times as long as it took to reach the best one.
    """

    def __init__(self, held_out: Entries, start: Factors) -> None:
        self._held_out = held_out
        self.best, self.best_time = start, 0.0
        self.curve: list[tuple[float, float]] = []
        self._best_error = math.inf
        self._since = 0

    def __call__(self, t: float, factors: Factors) -> bool:
        if self.curve and self.curve[-1][0] == t:
            return False
        found = entries_of(*halves(factors), self._held_out.positions)
        error = math.sqrt(float((found - self._held_out.values).square().mean()))
        self.curve.append((t, error))
        self._since += 1
        if error < self._best_error:
            self.best = tuple(w.clone() for w in factors)
            self._best_error, self.best_time, self._since = error, t, 0
        worse, later = error > 1.2 * self._best_error, t > 5 * self.best_time
        return self._since >= 15 and (worse or later)
