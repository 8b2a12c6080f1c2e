"""ReLU networks in the plane under steepest descents in three norms."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from natgrad.directions import euclidean
from natgrad.flows import StepRule, descend, normalized, steepest
from natgrad.lab.cell import Result
from natgrad.likelihoods import Bernoulli
from natgrad.linalg.norms import Lp, Nuclear, Spectral
from natgrad.parametrizations import Network
from natgrad.stopping import margin_above, steps_reached

GRID = 81
"""Points on a side of the picture."""
_RADIUS, _GAP = 0.65, 0.15  # of the circle between the classes, and of the empty ring around it
_FAR = 300.0  # a margin at which a descent ends: weights underflow past 700

Layers = Sequence[Tensor]


class Optimizer(NamedTuple):
    """A steepest descent and its norm.

    Attributes:
        rule: The step rule.
        norm: The norm of all layers; steps of a rule that moves every layer by the same length are
            steepest in the largest of the layers' norms.
        dual: Its dual norm.
    """

    rule: Callable[[], StepRule]
    norm: Callable[[Layers], float]
    dual: Callable[[Layers], float]


def _whole(layers: Layers) -> float:
    return math.sqrt(math.fsum(float(w.square().sum()) for w in layers))


OPTIMIZERS: dict[str, Optimizer] = {
    "gradient (ℓ2)": Optimizer(normalized, _whole, _whole),
    "sign (ℓ∞)": Optimizer(
        lambda: steepest(math.inf, 0.05, decay=0.5),
        lambda layers: max(Lp(math.inf)(w) for w in layers),
        lambda layers: math.fsum(Lp(1)(w) for w in layers),
    ),
    "spectral": Optimizer(
        lambda: steepest(Spectral(), 0.3, decay=0.5),
        lambda layers: max(Spectral()(w) for w in layers),
        lambda layers: math.fsum(Nuclear()(w) for w in layers),
    ),
}


def points(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return points of a disk with a constant as third input; labels are +1 inside a circle.

    Example:
        >>> x, y = points(5, 0)
        >>> x.shape, bool(((x[:, :2].norm(dim=1) < 0.65) == (y > 0)).all())
        (torch.Size([5, 3]), True)
    """
    source = torch.Generator().manual_seed(seed)
    u = 2 * torch.rand(100 * n, 2, dtype=torch.float64, generator=source) - 1
    r = u.norm(dim=1)
    u = u[((r - _RADIUS).abs() > _GAP) & (r < 1)][:n]
    y = torch.where(u.norm(dim=1) < _RADIUS, 1.0, -1.0).to(u)
    return torch.cat([u, torch.ones_like(u[:, :1])], 1), y


def network(
    method: str, seed: int, n: int, hidden: int, steps: int, saves: int, grid: int
) -> Result:
    """Return margins in every norm, the alignment in the optimizer's own, and outputs in the plane.

    The alignment is ⟨θ, g⟩/(‖θ‖ ‖g‖*), g the descent direction of the exponential loss: one at a
    stationary point of the margin in this norm, undefined before all samples are separated.
    """
    x, y = points(n, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden_layer = nn.Linear(3, hidden, bias=False), nn.ReLU()
        module = nn.Sequential(*hidden_layer, nn.Linear(hidden, 1, bias=False), nn.Flatten(0))
    model = Network(module.double())
    run = descend(
        euclidean, Bernoulli(), model, model.init(), (x, y), step=OPTIMIZERS[method].rule(),
        until=margin_above(_FAR) | steps_reached(steps), save_every=steps // saves,
    )  # fmt: skip
    margins, alignment = np.full((saves, len(OPTIMIZERS)), np.nan), np.full(saves, np.nan)
    for k in range(saves):
        params = run.at(min(k + 1, len(run) - 1))
        layers = list(params.values())
        outputs = y * model.predict(params, x)
        least = float(outputs.min())
        margins[k] = [least / one.norm(layers) ** 2 for one in OPTIMIZERS.values()]
        if least > 0:
            pulled = list(model.vjp(params, x, torch.softmax(-outputs, 0) * y).values())
            along = math.fsum(float((w * g).sum()) for w, g in zip(layers, pulled, strict=True))
            own = OPTIMIZERS[method]
            alignment[k] = along / (own.norm(layers) * own.dual(pulled))
    line = torch.linspace(-1.05, 1.05, grid, dtype=x.dtype)
    u, v = torch.meshgrid(line, line, indexing="xy")
    plane = torch.stack([u.ravel(), v.ravel(), torch.ones(grid * grid, dtype=x.dtype)], 1)
    outputs = model.predict(run.final, plane).reshape(grid, grid)
    return {
        "net_margins": margins,
        "alignment": alignment,
        "plane": outputs.numpy(),
        "points": torch.cat([x[:, :2], y[:, None]], 1).numpy(),
    }
