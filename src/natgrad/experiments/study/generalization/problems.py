"""The problems of the study: a draw of data, a start, and the error on fresh data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from natgrad.data.completion import low_rank
from natgrad.data.separable import sparse_gaussian
from natgrad.diagnostics import gaussian_accuracy
from natgrad.errors import InvalidInputError
from natgrad.experiments._data import shipped
from natgrad.likelihoods import Bernoulli, Gaussian, Likelihood
from natgrad.parametrizations import Diagonal, MatrixProduct, Network, Parametrization

Family = Literal["classes", "matrix", "teacher", "table"]
FAMILIES: tuple[Family, ...] = ("classes", "matrix", "teacher", "table")
Truth = Literal["matched", "other"]

DIM, ONES = 50, 5  # classes: features, and features that matter
SIDE, RANK = 20, 2  # matrix
INPUTS, UNITS, TAUGHT = 5, 32, 4  # teacher: inputs, hidden units of the student, of the teacher
FRESH = 2000  # inputs on which a student is judged


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of the study.

    Attributes:
        family: "classes": a deep diagonal network separates two classes. "matrix": a product of
            matrices completes a matrix. "teacher": a tanh network learns from a teacher. "table":
            the same network on the diabetes table.
        depth: Number of factors; networks have two layers.
        n: Number of training samples.
        noise: Share of labels flipped, or standard deviation of noise relative to the targets'.
        truth: "matched": what depth is biased to (sparse, low rank, a small tanh network).
            "other": a dense separator, a slowly decaying spectrum, a function with kinks.
    """

    family: Family
    depth: int
    n: int
    noise: float = 0.0
    truth: Truth = "matched"

    @property
    def kind(self) -> str:
        """Return "clean", "noisy" or "misspecified"."""
        return "misspecified" if self.truth == "other" else "noisy" if self.noise else "clean"

    @property
    def name(self) -> str:
        """Return a short name, for example "classes, depth 3, n = 60, noisy"."""
        return f"{self.family}, depth {self.depth}, n = {self.n}, {self.kind}"


PROBLEMS: tuple[Problem, ...] = (
    *(
        Problem(family="classes", depth=depth, n=n, noise=noise)
        for depth in (2, 3)
        for n in (30, 60)
        for noise in (0.0, 0.1)
    ),
    *(Problem(family="classes", depth=depth, n=60, truth="other") for depth in (2, 3)),
    *(
        Problem(family="matrix", depth=depth, n=220, noise=s)
        for depth in (2, 3)
        for s in (0.0, 0.3)
    ),
    *(Problem(family="matrix", depth=depth, n=220, truth="other") for depth in (2, 3)),
    *(Problem(family="teacher", depth=2, n=n, noise=s) for n in (50, 100) for s in (0.0, 0.5)),
    *(Problem(family="teacher", depth=2, n=n, truth="other") for n in (50, 100)),
    *(Problem(family="table", depth=2, n=n) for n in (50, 100)),
)
"""Every problem of the study, listed before it was run. None is left out of the results."""

TARGETS: dict[Family, float] = {"classes": 1e-2, "matrix": 1e-4, "teacher": 1e-3, "table": 2e-2}
"""The training loss at which all methods are compared, by family."""


class Modular(NamedTuple):
    """The same task for optimizers of modules.

    Attributes:
        module: The module, at the start.
        criterion: The loss.
        inputs: What the module is given.
        observed: Picks the outputs that have labels.
        labels: The labels.
    """

    module: nn.Module
    criterion: Likelihood
    inputs: Tensor
    observed: Callable[[Tensor], Tensor]
    labels: Tensor


class Task(NamedTuple):
    """One draw of a problem.

    Attributes:
        likelihood: The loss.
        parametrization: The model.
        start: Its parameters at the start.
        batch: Training inputs and labels.
        error: The error on fresh data of given parameters.
        modular: Makes the task for optimizers of modules, with a way back to parameters; None
            where the model has no weight matrices.
    """

    likelihood: Likelihood
    parametrization: Parametrization[Any]
    start: Any
    batch: tuple[Tensor, Tensor]
    error: Callable[[Any], float]
    modular: Callable[[], tuple[Modular, Callable[[nn.Module], Any]]] | None


def draw(problem: Problem, seed: int) -> Task:
    """Return a draw of data and weights; the same seed gives every method the same draw.

    Example:
        >>> task = draw(Problem(family="classes", depth=2, n=30), 0)
        >>> task.batch[0].shape, task.modular is None  # no weight matrices
        (torch.Size([30, 50]), True)
    """
    return _DRAWS[problem.family](problem, seed)


def _classes(problem: Problem, seed: int) -> Task:
    task = sparse_gaussian(problem.n, DIM, ones=ONES, seed=seed)
    generator = torch.Generator().manual_seed(seed + 10_000)
    beta, y = task.beta, task.y
    if problem.truth == "other":
        beta = torch.randn(DIM, dtype=torch.float64, generator=generator)
        y = torch.sign(task.x @ beta)
    flipped = torch.rand(problem.n, generator=generator) < problem.noise
    y = torch.where(flipped, -y, y)
    model = Diagonal(problem.depth)

    def error(params: Tensor) -> float:
        return 1 - float(gaussian_accuracy(model.hypothesis(params), beta))

    start = model.init_free(DIM, scale=0.1)
    return Task(Bernoulli(), model, start, (task.x, y), error, None)


def _matrix(problem: Problem, seed: int) -> Task:
    task = low_rank(shape=(SIDE, SIDE), rank=RANK, observed=problem.n, seed=seed)
    generator = torch.Generator().manual_seed(seed + 10_000)
    truth, mask = task.truth, task.observed
    if problem.truth == "other":
        u, _, v = torch.linalg.svd(torch.randn(SIDE, SIDE, dtype=truth.dtype, generator=generator))
        spectrum = 1 / torch.arange(1, SIDE + 1, dtype=truth.dtype)
        truth = u * spectrum @ v
        truth = truth * (SIDE / torch.linalg.matrix_norm(truth))
    model = MatrixProduct(problem.depth)
    start = model.init_gaussian((SIDE, SIDE), scale=1e-2, generator=generator)
    noise = problem.noise * torch.randn(problem.n, dtype=truth.dtype, generator=generator)
    labels = truth[mask] + noise
    hidden = truth[~mask]

    def error(params: Any) -> float:
        return float((model.hypothesis(params)[~mask] - hidden).square().mean())

    def modular() -> tuple[Modular, Callable[[nn.Module], Any]]:
        layers = [nn.Linear(SIDE, SIDE, bias=False, dtype=truth.dtype) for _ in start]
        module = nn.Sequential(*layers)
        _assign(layers, [w.mT for w in start])
        rows, columns = mask.nonzero().unbind(1)
        known = nn.functional.one_hot(rows, SIDE).to(truth.dtype)  # one row for each known entry
        task = Modular(module, Gaussian(), known, _at(columns), labels[:, None])
        return task, lambda _: tuple(layer.weight.detach().mT for layer in layers)

    return Task(Gaussian(), model, start, (mask.nonzero(), labels), error, modular)


def _at(columns: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda outputs: outputs.gather(1, columns[:, None])


def _teacher(problem: Problem, seed: int) -> Task:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(problem.n + FRESH, INPUTS, dtype=torch.float64, generator=generator)
    first = torch.randn(INPUTS, TAUGHT, dtype=torch.float64, generator=generator)
    last = torch.randn(TAUGHT, dtype=torch.float64, generator=generator)
    taught = (
        torch.tanh(x @ first) @ last if problem.truth == "matched" else (x @ first).abs() @ last
    )
    targets = (taught - taught.mean()) / taught.std()
    return _network(problem, seed, x, targets[:, None], generator)


def _table(problem: Problem, seed: int) -> Task:
    x, y = shipped.diabetes()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    return _network(problem, seed, x[order].double(), y[order].double(), generator)


def _network(
    problem: Problem, seed: int, x: Tensor, targets: Tensor, generator: torch.Generator
) -> Task:
    """Return the task of fitting the first n rows with a tanh network."""
    n = problem.n
    noise = problem.noise * torch.randn(n, 1, dtype=x.dtype, generator=generator)
    labels = targets[:n] + noise

    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            hidden = nn.Linear(x.shape[1], UNITS), nn.Tanh()
            return nn.Sequential(*hidden, nn.Linear(UNITS, 1)).double()

    model = Network(made())

    def error(params: Any) -> float:
        found = model.predict(params, x[n:])
        return float((found - targets[n:]).square().mean())

    def modular() -> tuple[Modular, Callable[[nn.Module], Any]]:
        task = Modular(made(), Gaussian(), x[:n], lambda outputs: outputs, labels)
        return task, lambda module: {k: p.detach() for k, p in module.named_parameters()}

    return Task(Gaussian(), model, model.init(), (x[:n], labels), error, modular)


@torch.no_grad()
def _assign(layers: list[nn.Linear], weights: list[Tensor]) -> None:
    if len(layers) != len(weights):
        raise InvalidInputError(f"{len(weights)} weights do not fit {len(layers)} layers.")
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight.copy_(weight)


_DRAWS: dict[Family, Callable[[Problem, int], Task]] = {
    "classes": _classes,
    "matrix": _matrix,
    "teacher": _teacher,
    "table": _table,
}
