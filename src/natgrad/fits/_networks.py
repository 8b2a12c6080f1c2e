"""Small networks for tables: averages of networks, each stopped by a fold that it did not see."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential, SiLU, Tanh

from natgrad.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Whitened
from natgrad.optim.gauss_newton import GaussNewton
from natgrad.optim.ngd import NGD

Engine = Literal["GaussNewton", "NGD"]

ACTIVATIONS = {"silu": SiLU, "tanh": Tanh, "relu": ReLU}

Shape = tuple[str, tuple[int, ...]]
"""An activation, and widths of hidden layers."""

# Chosen on development tables, which benchmarks/bench_sklearn.py names. Networks of different kinds
# make different mistakes, so their average is better than that of as many of one kind.
_SHAPES: dict[Engine, tuple[Shape, ...]] = {
    "GaussNewton": (("silu", (8,)), ("tanh", (32,)), ("silu", (8,)), ("relu", (32,))),
    "NGD": (("tanh", (64,)), ("relu", (64,))),
}
_PATIENCE = {"GaussNewton": 2, "NGD": 6}  # evaluations of the held-out rows
_WORK = 2e8  # multiplications of a step of GaussNewton, above which NGD is chosen
_FEWEST = 80  # rows; fewer are not divided
_UNDIVIDED = 6  # steps where nothing is held out to decide
_BATCH = 1024  # rows of a step of NGD
_DECREASE = 1e-4  # smallest relative decrease of the held-out loss that counts
_DAMPING = 0.1  # λ of the first step of GaussNewton; smaller ones overfit before the first check
_SEPARATED = 1e-2  # a loss whose least value is not attained is small enough at this share


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table, standardized.

    Attributes:
        x: Inputs, `(n, d)`.
        y: Labels as the likelihood takes them.
        weight: Weight of each row, or None if all are equal.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        """Return their number."""
        return len(self.x)

    def at(self, index: Tensor) -> "Rows":
        """Return some of them."""
        weight = None if self.weight is None else self.weight[index]
        return Rows(self.x[index], self.y[index], weight)

    def to(self, dtype: torch.dtype) -> "Rows":
        """Return them in a precision; class indices stay integers."""
        y = self.y.to(dtype) if self.y.is_floating_point() else self.y
        return replace(self, x=self.x.to(dtype), y=y)


@dataclass(frozen=True)
class Plan:
    """How networks are built and trained.

    Attributes:
        engine: Which optimizer trains them.
        shapes: Shapes of the first networks; further ones repeat them.
    """

    engine: Engine
    shapes: tuple[Shape, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of the engine."""
        return torch.float64 if self.engine == "GaussNewton" else torch.float32


def plan(
    rows: int,
    inputs: int,
    outputs: int,
    *,
    engine: Engine | None = None,
    hidden: tuple[int, ...] | None = None,
    activation: str | None = None,
) -> Plan:
    """Return the engine, by the cost of its steps, and the shapes that suit it.

    A step of `GaussNewton` solves a system on the smaller side of an `(rows · outputs, parameters)`
    matrix. Where that is cheap it needs fewest steps and finds the better fit; else `NGD` does.
    """

    def shapes(engine: Engine) -> tuple[Shape, ...]:
        return tuple((activation or a, hidden or widths) for a, widths in _SHAPES[engine])

    if engine is None:
        high = rows * outputs
        many = max(
            sum((a + 1) * b for a, b in pairwise((inputs, *widths, outputs)))
            for _, widths in shapes("GaussNewton")
        )
        engine = "NGD" if high * many * min(high, many) > _WORK else "GaussNewton"
    return Plan(engine, shapes(engine))


def build(
    plan: Plan, member: int, inputs: int, outputs: int, generator: torch.Generator
) -> Sequential:
    """Return a network of the plan that predicts zero: its last layer starts at zero."""
    activation, hidden = plan.shapes[member % len(plan.shapes)]
    layers: list[torch.nn.Module] = []
    for k, (a, b) in enumerate(pairwise((inputs, *hidden, outputs))):
        layer = Linear(a, b, device="meta", dtype=plan.dtype).to_empty(device="cpu")
        bound = 0.0 if k == len(hidden) else 1 / math.sqrt(a)
        with torch.no_grad():  # no global random state, which threads share
            for tensor in (layer.weight, layer.bias):
                tensor.uniform_(-1, 1, generator=generator).mul_(bound)
        layers += [layer, ACTIVATIONS[activation]()]
    return Sequential(*layers[:-1])


@dataclass(frozen=True, eq=False)
class Member:
    """A trained network.

    Attributes:
        network: The network.
        steps: Steps that were taken.
        curve: Loss on held-out rows before the first step and after each; empty without any.
    """

    network: Sequential
    steps: int
    curve: tuple[float, ...]


def fit_networks(
    rows: Rows,
    likelihood: Likelihood,
    outputs: int,
    plan: Plan,
    *,
    members: int,
    folds: int | None,
    max_steps: int,
    seed: int,
) -> list[Member]:
    """Train networks; each is stopped where the fold that it did not see is predicted best.

    Args:
        rows: The table.
        likelihood: Loss of its labels.
        outputs: Outputs of a network.
        plan: How networks are built and trained.
        members: Number of networks.
        folds: Number of folds; None to hold out nothing and take `max_steps` steps. Small tables
            are not divided either, and take few steps.
        max_steps: Largest number of steps; for `NGD` on more than one batch, of passes.
        seed: Seed of folds, batches and first weights.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = rows.to(plan.dtype)
    parts: Sequence[Tensor] = ()
    if folds is not None and len(rows) >= _FEWEST:
        parts = torch.randperm(len(rows), generator=generator).tensor_split(folds)
    elif folds is not None:
        max_steps = min(max_steps, _UNDIVIDED)
    found = []
    for k in range(members):
        network = build(plan, k, rows.x.shape[1], outputs, generator)
        inside, held_out = rows, None
        if parts:
            i = k % len(parts)
            inside = rows.at(torch.cat([*parts[:i], *parts[i + 1 :]]))
            held_out = rows.at(parts[i])
        train = _by_gauss_newton if plan.engine == "GaussNewton" else _by_ngd
        found.append(train(network, likelihood, inside, held_out, max_steps, generator))
    return found


class _Watch:
    """Keep the best weights, and say when the held-out loss has stopped falling."""

    def __init__(
        self, network: Sequential, likelihood: Likelihood, held_out: Rows | None, patience: int
    ) -> None:
        self._network, self._held_out, self._patience = network, held_out, patience
        self._likelihood = likelihood
        self.curve: list[float] = []
        self._best: list[Tensor] = []
        self._least, self._since = math.inf, 0
        self.done()

    @torch.no_grad()
    def done(self) -> bool:
        """Return whether to stop."""
        if self._held_out is None:
            return False
        # Called on losses, not as a criterion: an optimizer may be listening to the criterion.
        outputs = self._network(self._held_out.x)
        losses = self._likelihood.losses(outputs, self._held_out.y).double()
        weight = self._held_out.weight
        loss = float(losses.mean() if weight is None else losses @ weight / weight.sum())
        self.curve.append(loss)
        if not loss < self._least * (1 - _DECREASE):
            self._since += 1
            return self._since >= self._patience
        self._least, self._since = loss, 0
        self._best = [p.detach().clone() for p in self._network.parameters()]
        return not self._likelihood.attained and loss < _SEPARATED * self.curve[0]

    @torch.no_grad()
    def restore(self) -> None:
        """Set the network to the best weights."""
        for p, best in zip(self._network.parameters(), self._best, strict=False):
            p.copy_(best)


def _by_gauss_newton(
    network: Sequential,
    likelihood: Likelihood,
    rows: Rows,
    held_out: Rows | None,
    max_steps: int,
    generator: torch.Generator,
) -> Member:
    watch = _Watch(network, likelihood, held_out, _PATIENCE["GaussNewton"])
    judge = likelihood if rows.weight is None else weighted(likelihood, rows.weight)
    # Without acceleration: it saves steps near the end of a fit, which is not wanted here.
    optimizer = GaussNewton(network, judge, damping=_DAMPING, acceleration=0)
    steps = 0
    with warnings.catch_warnings():  # a fit to rounding is a good end here
        warnings.filterwarnings("ignore", message="GaussNewton stopped")
        while steps < max_steps:
            optimizer.step(lambda: (network(rows.x), rows.y))
            steps += 1
            if optimizer.statistics.status == "converged":
                break
            if optimizer.statistics.status == "accepted" and watch.done():
                break
    watch.restore()
    return Member(network, steps, tuple(watch.curve))


def _by_ngd(
    network: Sequential,
    likelihood: Likelihood,
    rows: Rows,
    held_out: Rows | None,
    max_steps: int,
    generator: torch.Generator,
) -> Member:
    watch = _Watch(network, likelihood, held_out, _PATIENCE["NGD"])
    batches = max(1, round(len(rows) / _BATCH))
    every = math.ceil(batches / 4)
    optimizer = NGD(network, likelihood, weight_decay=0.0)  # held-out rows end the fit
    steps = 0
    for _ in range(max_steps):
        for index in _batches(rows, batches, generator):
            ngd_step(optimizer, likelihood, rows if index is None else rows.at(index))
            steps += 1
            if steps % every == 0 and watch.done():
                watch.restore()
                return Member(network, steps, tuple(watch.curve))
    watch.restore()
    return Member(network, steps, tuple(watch.curve))


def _batches(rows: Rows, many: int, generator: torch.Generator) -> Sequence[Tensor | None]:
    """Return the rows of each step of a pass; rows are drawn by weight if they have weights."""
    if rows.weight is not None:
        drawn = torch.multinomial(rows.weight, len(rows), replacement=True, generator=generator)
        return drawn.tensor_split(many)
    if many == 1:
        return [None]
    return torch.randperm(len(rows), generator=generator).tensor_split(many)


def ngd_step(optimizer: NGD, likelihood: Likelihood, rows: Rows) -> None:
    """Take one step of NGD on rows."""
    loss = likelihood(optimizer.model(rows.x), rows.y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


# Weights of rows ----------------------------------------------------------------------------------


def weighted(likelihood: Likelihood, weight: Tensor) -> Likelihood:
    """Return the likelihood of exactly these rows, each loss times its weight, of mean one."""
    kinds: dict[type, type[_Weighted]] = {
        Bernoulli: _Bernoulli,
        Categorical: _Categorical,
        Gaussian: _Gaussian,
    }
    found = kinds[type(likelihood)]()
    found.weight = weight.double() / weight.double().mean()
    return found


class _Weighted(Likelihood):
    """A likelihood with a weight for each row, in the order of the rows."""

    weight: Tensor

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return self.weight * super()._losses(f, y)  # type: ignore[safe-super]

    def _whitened(self, f: Tensor, labels: Tensor) -> Whitened:
        white = super()._whitened(f, labels)
        return replace(white, log_weight=white.log_weight + 0.5 * self.weight.log()[:, None])


class _Bernoulli(_Weighted, Bernoulli):
    pass


class _Categorical(_Weighted, Categorical):
    pass


class _Gaussian(_Weighted, Gaussian):
    constant_fisher = False
