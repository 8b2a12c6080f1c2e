"""Statements of Bernacchia, Lengyel, Hennequin 2018 about trajectories, and counterexamples."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from natgrad.directions import LayerShares, euclidean, natural
from natgrad.directions._fisher import Fisher
from natgrad.flows import Trajectory, integrate
from natgrad.flows.closed_forms import deep_linear_total
from natgrad.likelihoods import Gaussian, Likelihood
from natgrad.parametrizations import DeepLinear
from natgrad.parametrizations.base import flatten, unflatten
from natgrad.parametrizations.propagation import (
    backward_covariances,
    forward_covariances,
    layerwise_direction,
)
from natgrad.verify._identity import counter, distance, identity, normal

Factors = tuple[Tensor, ...]
_WIDTHS = ((3, 3, 3), (3, 5, 4), (2, 4, 4, 3))


class _Regression:
    """A network near its target, data with unequal variances, and W*; n < n₀ on request."""

    def __init__(self, widths: tuple[int, ...], seed: int = 1, n: int = 20) -> None:
        self.network = DeepLinear(widths)
        self.w = self.network.init_orthogonal(generator=torch.Generator().manual_seed(seed))
        randn = normal(seed + 4)
        x = randn(n, widths[0]) * torch.logspace(0, -1, widths[0], dtype=torch.float64)
        self.total = self.network.hypothesis(self.w)
        y = x @ (self.total + 0.3 * randn(widths[-1], widths[0])).mT
        self.batch = (x, y + 0.1 * randn(n, widths[-1]))
        seen = torch.linalg.pinv(x) @ x
        self.optimum = (torch.linalg.pinv(x) @ self.batch[1]).mT + self.total - self.total @ seen

    def flow(
        self, direction: Callable[..., Any], t: float = 2.0, **options: Any
    ) -> Trajectory[Any]:
        args = (direction, Gaussian(), self.network, self.w, self.batch)
        return integrate(*args, until=t, method="dop853", rtol=1e-9, **options)

    def departure(self, path: Trajectory[Any], rate: float = 1.0) -> float:
        """Return the largest gap to XW(t)ᵀ on its line and to e^{−2 rate t} of the excess loss."""
        x, y = self.batch
        wanted = deep_linear_total(self.total, self.optimum, rate * float(path.times[-1]))
        excess = path.losses - float(Gaussian()(x @ self.optimum.mT, y))
        decay = torch.exp(-2 * rate * path.times)
        return max(
            distance(x @ self.network.hypothesis(path.final).mT, x @ wanted.mT),
            float((excess / excess[0] / decay - 1).abs().max()),
        )


@identity(
    "blh18/exponential-decay",
    "every selection, n ≷ n₀: W(t) moves straight to W* and the excess loss decays as e^{−2t}",
    source="[BLH18] (16)–(18), suppl. 1.4",
    tolerance=1e-6,
)
def exponential_decay() -> float:
    worst = 0.0
    for seed, widths in enumerate(_WIDTHS):
        for n in (20, 2):
            s = _Regression(widths, seed + 1, n)
            depth = len(widths) - 1
            first, uneven = (
                LayerShares((1.0, *[0.0] * (depth - 1))),
                LayerShares(tuple(2 * (i + 1) / (depth * (depth + 1)) for i in range(depth))),
            )
            for selection in ("min_norm", "equal_share", first, uneven):
                worst = max(worst, s.departure(s.flow(natural, selection=selection)))
    return worst


@counter(
    "blh18/exponential-decay-counter",
    "gradient flow of the same networks does not decay as e^{−2t}",
    source="[BLH18] (18), another flow",
    exceeds=0.1,
)
def exponential_decay_counter() -> float:
    settings = (_Regression(widths) for widths in _WIDTHS)
    return min(s.departure(s.flow(euclidean)) for s in settings)


def _preconditioned(seed: int) -> Callable[..., Factors]:
    """Return −C∇L with a positive-definite C that is not a generalized inverse of F."""

    def direction(
        likelihood: Likelihood, network: DeepLinear, w: Factors, batch: tuple[Tensor, Tensor]
    ) -> Factors:
        g = flatten(euclidean(likelihood, network, w, batch))
        root = normal(seed)(len(g), len(g)) / len(g) ** 0.5
        return unflatten(root @ (root.mT @ g), w)

    return direction


@counter(
    "blh18/suppl-1.4-counter",
    "an arbitrary positive-definite preconditioner does not give the dynamics of (18)",
    source="[BLH18] suppl. 1.4, (24)–(32), not a generalized inverse",
    exceeds=0.1,
)
def arbitrary_preconditioner() -> float:
    settings = (_Regression(widths) for widths in _WIDTHS)
    return min(s.departure(s.flow(_preconditioned(seed))) for seed, s in enumerate(settings))


def _block_diagonal(divide: bool) -> Callable[..., Factors]:
    """Return the direction of the Fisher's diagonal blocks alone, over L or not. Suppl. (35)."""

    def direction(
        likelihood: Likelihood, network: DeepLinear, w: Factors, batch: tuple[Tensor, Tensor]
    ) -> Factors:
        fisher = Fisher(likelihood, network, w, batch[0])
        slopes = euclidean(likelihood, network, w, batch)
        length = 1 / network.depth if divide else 1.0
        return tuple(
            length * torch.linalg.solve(fisher.block(i, i), g.reshape(-1)).reshape(g.shape)
            for i, g in enumerate(slopes, start=1)
        )

    return direction


@identity(
    "blh18/block-diagonal-flow",
    "flow with diagonal Fisher blocks over L is (18), and without 1/L it is L times too fast",
    source="[BLH18] §6, suppl. (35)",
    tolerance=1e-6,
)
def block_diagonal_flow() -> float:
    worst = 0.0
    for seed, widths in enumerate(((3, 3, 3), (2, 2, 2, 2))):
        s = _Regression(widths, seed + 1)
        worst = max(worst, s.departure(s.flow(_block_diagonal(divide=True))))
        quick = s.flow(_block_diagonal(divide=False), t=0.8)
        worst = max(worst, s.departure(quick, rate=len(widths) - 1))
    return worst


def layerwise(
    likelihood: Likelihood, network: DeepLinear, w: Factors, batch: tuple[Tensor, Tensor]
) -> Factors:
    """Return (10) with pseudo-inverses, which `natural` refuses to call a natural gradient."""
    x, _ = batch
    eye = torch.eye(network.widths[-1], dtype=x.dtype)
    errors = backward_covariances(w, eye)
    inputs = forward_covariances(w, x.mT @ x / len(x))
    return tuple(
        layerwise_direction(euclidean(likelihood, network, w, batch), errors, inputs, rtol=1e-7)
    )


def _projected(s: _Regression, w: Factors) -> Tensor:
    """Return −W + (1/L) Σ Pᵢᵃ W* Pᵢᵇ with the projections at w, of rows and columns. (19), (45)."""
    x, _ = s.batch
    root = torch.linalg.cholesky(x.mT @ x / len(x))
    ahead, behind = s.network.partial_products(w)
    total = -s.network.hypothesis(w)
    for a, b in zip(ahead, behind, strict=True):
        moved = s.optimum
        if a is not None:
            moved = a @ torch.linalg.pinv(a, rtol=1e-9) @ moved
        if b is not None:
            inside = torch.linalg.pinv(b @ root, rtol=1e-9) @ (b @ root)
            moved = moved @ root @ inside @ torch.linalg.inv(root)
        total = total + moved / s.network.depth
    return total


def _velocity_gap(project: bool) -> list[float]:
    """Return gaps between the velocity of W, by differences, and (19), at three times."""
    gaps = []
    for seed, widths in enumerate(((5, 2, 5), (4, 3, 2, 4))):
        s = _Regression(widths, seed + 1, 40)
        h = 1e-3
        times = torch.tensor([t + k * h for t in (0.5, 1.5, 3.0) for k in (-1, 0, 1)])
        path = s.flow(layerwise, 3.1, times=times.double())
        for i in (0, 3, 6):
            before, here, after = (path.at(i + k) for k in range(3))
            total = s.network.hypothesis
            velocity = (total(after) - total(before)) / (2 * h)
            wanted = _projected(s, here) if project else s.optimum - total(here)
            gaps.append(distance(velocity, wanted))
    return gaps


@identity(
    "blh18/eq19-flow",
    "bottlenecks: along the flow of (10), dW/dt = −W + (1/L) Σ Pᵢᵃ(t) ⟨y xᵀ⟩ Σ⁻¹ Pᵢᵇ(t)",
    source="[BLH18] (19), suppl. (45)",
    tolerance=1e-3,
)
def projections_along_the_flow() -> float:
    return max(_velocity_gap(project=True))


@counter(
    "blh18/eq19-counter",
    "without the projections (18) does not describe a bottleneck",
    source="[BLH18] (18), partial products without full rank",
    exceeds=0.1,
)
def without_projections() -> float:
    return min(_velocity_gap(project=False))
