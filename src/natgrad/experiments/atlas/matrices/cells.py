"""Cells of the atlas of matrices: limits, optimizers of several classes, optimizers of networks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from natgrad.directions import euclidean
from natgrad.experiments.atlas._flows.classes import SummedShampoo
from natgrad.experiments.atlas._flows.ends import degrees, metric_margin
from natgrad.experiments.atlas.matrices.config import Matrices
from natgrad.experiments.atlas.matrices.networks import GRID, OPTIMIZERS, network
from natgrad.flows import StepRule, descend, integrate_by_length, muon, steepest
from natgrad.flows._by_length import arc_path
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Categorical
from natgrad.limits import multiclass_max_margin
from natgrad.linalg.norms import Lp, Norm, Nuclear, Spectral
from natgrad.parametrizations import DeepLinear, Direct
from natgrad.stopping import steps_reached

NORMS: dict[str, Norm] = {"spectral": Spectral(), "Frobenius": Lp(2), "nuclear": Nuclear()}
SCALE = 1e-3  # of two layers at the start
_SHAMPOO = 100.0  # its path relative to that of two layers, which grow like the square of theirs


def compute(config: Matrices, sweep: Sweep) -> Arrays:
    """Return margins, limits and singular values, and the margins and alignments of networks."""
    one = replace(config, seeds=())
    limits = sweep(
        [Cell(ends, OfData(one, s), f"limits of data {s}") for s in config.seeds], "limits"
    )
    runs = [
        Cell(matrix, OfMethod(one, s, m), f"{m}, data {s}") for m in METHODS for s in config.seeds
    ]
    found = sweep(runs, "matrices")
    nets = [
        Cell(relu, OfMethod(one, s, m), f"{m} network, data {s}")
        for m in OPTIMIZERS
        for s in config.seeds
    ]
    trained = sweep(nets, "networks")
    arrays = Arrays(
        seed=config.seeds,
        norm=tuple(NORMS),
        method=tuple(METHODS),
        optimizer=tuple(OPTIMIZERS),
        own=tuple(OPTIMIZERS),
        saved=list(range(config.saves)),
    )
    for key in ("best", "certificates"):
        arrays.add(key, np.stack([one[key] for one in limits]), "seed", "norm")
    arrays.add("limit_values", np.stack([e["values"] for e in limits]), "seed", "norm", "value")
    many = len(config.seeds)
    for key, dims in {"margins": ("norm",), "values": ("value",), "own_norm": ()}.items():
        rows = [np.stack([f[key] for f in found[i : i + many]]) for i in range(0, len(found), many)]
        arrays.add(key, np.stack(rows), "method", "seed", *dims)
    shapes = {"net_margins": ("saved", "own"), "alignment": ("saved",)}
    for key, dims in shapes.items():
        rows = [
            np.stack([f[key] for f in trained[i : i + many]]) for i in range(0, len(trained), many)
        ]
        arrays.add(key, np.stack(rows), "optimizer", "seed", *dims)
    plane = np.stack([f["plane"] for f in trained[::many]])
    arrays.add("plane", plane, "optimizer", "across", "up")
    arrays.add("points", trained[0]["points"], "point", "coordinate")
    return arrays


@dataclass(frozen=True)
class OfData:
    """One set of data."""

    sizes: Matrices
    seed: int


@dataclass(frozen=True)
class OfMethod(OfData):
    """One optimizer on one set of data."""

    method: str


def classes(sizes: Matrices, seed: int) -> tuple[Tensor, Tensor]:
    """Return normal inputs, and as labels the largest of k random linear functions.

    Example:
        >>> classes(Matrices(), 0)[0].shape
        torch.Size([30, 10])
    """
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes.n, sizes.dim, dtype=torch.float64, generator=source)
    teacher = torch.randn(sizes.dim, sizes.classes, dtype=torch.float64, generator=source)
    return x, (x @ teacher).argmax(1)


def ends(config: OfData) -> Result:
    """Return the largest margin in each norm, its certificate, and the singular values there."""
    batch = classes(config.sizes, config.seed)
    k = config.sizes.classes
    found = [multiclass_max_margin(*batch, norm, classes=k) for norm in NORMS.values()]
    # What all classes share changes no margin, and taking it away makes no norm longer.
    centered = [limit.solution - limit.solution.mean(0) for limit in found]
    values = [torch.linalg.svdvals(beta)[: k - 1] for beta in centered]
    return {
        "best": np.array([limit.value for limit in found]),
        "certificates": np.array([limit.certificate for limit in found]),
        "values": torch.stack([v / v.sum() for v in values]).numpy(),
    }


def _descent(rule: Callable[[], StepRule]) -> Callable[[Matrices, int], tuple[Tensor, float]]:
    def run(sizes: Matrices, seed: int) -> tuple[Tensor, float]:
        start = torch.zeros(sizes.dim, sizes.classes, dtype=torch.float64)
        path = descend(
            euclidean, Categorical(), Direct(), start, classes(sizes, seed), step=rule(),
            until=steps_reached(sizes.steps), save_every=sizes.steps,
        )  # fmt: skip
        return path.final, math.nan

    return run


def _two_layers(sizes: Matrices, seed: int) -> tuple[Tensor, float]:
    """Return the product of two layers under gradient flow."""
    model = DeepLinear([sizes.dim, sizes.classes, sizes.classes])
    source = torch.Generator().manual_seed(1_000_000 + seed)
    start = model.init_gaussian(scale=SCALE, generator=source)
    path = integrate_by_length(
        euclidean, Categorical(), model, start, classes(sizes, seed),
        lengths=torch.tensor([sizes.length]), rtol=1e-6,
    )  # fmt: skip
    return model.hypothesis(path.final).mT, math.nan


def _shampoo(sizes: Matrices, seed: int) -> tuple[Tensor, float]:
    """Return the end of Shampoo's flow, and degrees to the max margin in the norm of its sums."""
    x, labels = (t.numpy() for t in classes(sizes, seed))
    flow = SummedShampoo(x, labels, sizes.classes)
    length = _SHAMPOO * sizes.length
    end = arc_path(flow.velocity(), flow.start(), [length], rtol=1e-7).points[0]
    b = flow.parts(end)[0]
    angle = degrees(b, metric_margin(flow.rows, flow.metric(end)).solution.numpy())
    return torch.from_numpy(b.reshape(sizes.dim, -1) @ flow.basis.T), angle


METHODS: dict[str, Callable[[Matrices, int], tuple[Tensor, float]]] = {
    "Muon": _descent(lambda: muon(0.3, decay=0.5)),
    "normalized gradient": _descent(lambda: steepest(2, 0.5, decay=0.5)),
    "two layers, gradient flow": _two_layers,
    "summed Shampoo, flow": _shampoo,
}


def matrix(config: OfMethod) -> Result:
    """Return margins in all norms, singular values, and degrees to a norm of its own."""
    beta, own = METHODS[config.method](config.sizes, config.seed)
    x, labels = classes(config.sizes, config.seed)
    outputs, label = x @ beta, labels[:, None]
    wrong = outputs.scatter(1, label, -math.inf)
    margin = float((outputs.gather(1, label) - wrong).min())
    values = torch.linalg.svdvals(beta)[: config.sizes.classes - 1]  # columns sum to zero
    return {
        "margins": np.array([margin / norm(beta) for norm in NORMS.values()]),
        "values": (values / values.sum()).numpy(),
        "own_norm": np.asarray(own),
    }


def relu(config: OfMethod) -> Result:
    """Return the margins and alignment of a network along its descent, and its outputs."""
    sizes = config.sizes
    return network(
        config.method, config.seed, sizes.points, sizes.hidden, sizes.steps, sizes.saves, GRID
    )
