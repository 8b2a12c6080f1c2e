"""The support table: every parametrization × likelihood × selection × fisher_over.

A new parametrization or likelihood is one line in MODELS or LIKELIHOODS; every test that runs over
`all_cases()` then covers it, and `python -m tests.cases` rewrites docs/support_table.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import natgrad as ng
from natgrad import reference
from natgrad.errors import RankDeficientError, UnsupportedError
from natgrad.verify._kmh21 import gaussian_grid
from tests.extensions import Exponential, Squares, Student

TABLE = Path(__file__).parent.parent / "docs" / "support_table.md"
DAMPING = 0.1


def randn(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)


def randint(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(seed))


def _positive_definite(k: int) -> Tensor:
    root = randn(99)(k, k)
    return root @ root.mT + torch.eye(k, dtype=torch.float64)


@dataclass(frozen=True)
class Model:
    """A parametrization at some parameters, and the inputs it takes."""

    name: str
    parametrization: Any
    params: Any
    outputs: int  # 0: one output without an axis of its own
    features: int  # 0: positions in a 4 × 5 matrix
    solo_layer: int | None = 0  # a layer that can move the outputs alone
    linear: bool = True  # outputs are linear in real-valued inputs

    @property
    def entries(self) -> bool:
        return self.features == 0

    def inputs(self, n: int, seed: int) -> Tensor:
        if self.entries:
            generator = torch.Generator().manual_seed(seed)
            return all_entries()[torch.randperm(20, generator=generator)[:n]]
        return randn(seed)(n, self.features)


def all_entries() -> Tensor:
    return torch.cartesian_prod(torch.arange(4), torch.arange(5))


def _mlp(outputs: int) -> ng.Network:
    """Return a network whose every layer has more parameters than there are equations."""
    generator = torch.Generator().manual_seed(5)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs)
    ).double()
    with torch.no_grad():
        for p, scale in zip(module.parameters(), (3.0, 1.0, 0.2, 1.0), strict=True):
            p.copy_(scale * torch.randn(p.shape, dtype=torch.float64, generator=generator))
    return ng.Network(module)


def _models() -> list[Model]:
    draw = randn(0)
    generator = torch.Generator().manual_seed(1)
    models = [
        Model("Direct", ng.Direct(), draw(3), 0, 3),
        Model("Direct, 3 outputs", ng.Direct(), draw(3, 3), 3, 3),
        Model("Direct, entries", ng.Direct(), draw(4, 5), 0, 0, linear=False),
    ]
    for depth in (1, 2, 3):
        models.append(Model(f"Diagonal({depth})", ng.Diagonal(depth), draw(depth, 3), 0, 3))
    for depth in (1, 2, 3, 4):
        product = ng.MatrixProduct(depth)
        w = product.init_gaussian((4, 5), scale=1.0, hidden=6, generator=generator)
        models.append(Model(f"MatrixProduct({depth})", product, w, 0, 0, linear=False))
    for depth in (2, 3):
        product = ng.MatrixProduct(depth)
        w = product.init_gaussian((4, 5), scale=1.0, hidden=2, generator=generator)
        name = f"MatrixProduct({depth}), bottleneck"
        models.append(Model(name, product, w, 0, 0, solo_layer=None, linear=False))
    for widths, kind in (
        ((3, 3), "one layer"),
        ((3, 5, 6, 3), "expanding"),
        ((3, 3, 3), "square"),
        ((3, 5, 1), "one output"),
    ):
        network = ng.DeepLinear(widths)
        w = network.init_gaussian(generator=generator)
        models.append(Model(f"DeepLinear, {kind}", network, w, widths[-1], 3))
    bottleneck = ng.DeepLinear((3, 2, 1, 2, 3))
    w = bottleneck.init_gaussian(generator=generator)
    models.append(Model("DeepLinear, bottleneck", bottleneck, w, 3, 3, solo_layer=None))
    one, three = _mlp(1), _mlp(3)
    models.append(Model("Network, one output", one, one.init(), 1, 3, linear=False))
    models.append(Model("Network, 3 outputs", three, three.init(), 3, 3, linear=False))
    models.append(Model("u² − v²", Squares(), draw(2, 3), 0, 3))
    return models


@dataclass(frozen=True)
class Loss:
    """A likelihood, the models it is tested with, its labels, and what its Fisher depends on."""

    name: str
    build: Callable[[str, int], ng.likelihoods.Likelihood]
    fits: Callable[[Model], bool]
    labels: Callable[[Tensor, int], Tensor]
    constant: bool = False  # the Fisher is the same for all outputs
    population: bool = False  # its average over Gaussian outputs is known


def one_of_a_kind(m: Model) -> bool:
    """Return whether a model represents its kind where not all are tested, with one output."""
    kinds = ("Direct", "Direct, entries", "Diagonal(3)", "MatrixProduct(3)", "u² − v²")
    further = ("MatrixProduct(2), bottleneck", "DeepLinear, one output", "Network, one output")
    return m.name in (*kinds, *further)


LIKELIHOODS = [
    Loss(
        "Bernoulli",
        lambda reduction, k: ng.Bernoulli(reduction=reduction),
        lambda m: True,
        lambda f, seed: torch.sign(randn(seed)(*f.shape)),
        population=True,
    ),
    Loss(
        "Gaussian",
        lambda reduction, k: ng.Gaussian(reduction=reduction),
        lambda m: True,
        lambda f, seed: randn(seed)(*f.shape),
        constant=True,
    ),
    Loss(
        "Gaussian(Σ̃)",
        lambda reduction, k: ng.Gaussian(_positive_definite(max(k, 1)), reduction=reduction),
        lambda m: True,
        lambda f, seed: randn(seed)(*f.shape),
        constant=True,
    ),
    Loss(
        "Categorical",
        lambda reduction, k: ng.Categorical(reduction=reduction),
        lambda m: m.outputs >= 2,
        lambda f, seed: torch.arange(len(f)) % f.shape[1],
    ),
    Loss(
        "Poisson",
        lambda reduction, k: ng.likelihoods.Poisson(reduction=reduction),
        one_of_a_kind,
        lambda f, seed: randint(f.shape, seed).to(f),
        population=True,
    ),
    Loss(
        "Huber",
        lambda reduction, k: ng.likelihoods.Huber(0.8, reduction=reduction),
        one_of_a_kind,
        lambda f, seed: 3 * randn(seed)(*f.shape),
        constant=True,
    ),
    Loss("Student", Student.build, one_of_a_kind, Student.labels, constant=True),
    Loss("Exponential", Exponential.build, one_of_a_kind, Exponential.labels, constant=True),
]

MODELS = _models()
SELECTIONS = ("min_norm", "equal_share", "LayerShares")
FISHER_OVER = ("batch", "sample", "GaussianInputs", "all")


@dataclass(frozen=True)
class Case:
    """One cell of the table, at one size and reduction, with its dense truth."""

    model: Model
    loss: Loss
    selection: str
    over: str
    damping: float
    n: int
    reduction: str

    def __str__(self) -> str:
        damped = "-damped" if self.damping else ""
        cell = f"{self.model.name}-{self.loss.name}-{self.selection}-{self.over}"
        return f"{cell}{damped}-n{self.n}-{self.reduction}"

    @property
    def likelihood(self) -> Any:
        return self.loss.build(self.reduction, self.model.outputs)

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        x = self.model.inputs(self.n, seed=7)
        f = self.model.parametrization.predict(self.model.params, x)
        return x, self.loss.labels(f, 8)

    @property
    def layers(self) -> int:
        return self.model.parametrization.layers(self.model.params)

    @property
    def shares(self) -> Any:
        """Return the selection; unequal shares where every layer can move alone."""
        if self.selection != "LayerShares":
            return self.selection
        if self.layers == 1:
            return ng.LayerShares((1.0,))
        total = self.layers * (self.layers + 1) / 2
        return ng.LayerShares([(i + 1) / total for i in range(self.layers)])

    @property
    def covariance(self) -> Tensor | None:
        """Return the covariance of Gaussian inputs: the identity for every second size."""
        whitened = self.n % 2 or self.model.entries
        return None if whitened else _positive_definite(self.model.features)

    @property
    def fisher_over(self) -> Any:
        if self.over == "sample":
            return self.sample
        return ng.GaussianInputs(self.covariance) if self.over == "GaussianInputs" else self.over

    @property
    def sample(self) -> Tensor:
        """Return inputs whose span includes that of the batch."""
        if self.model.entries:
            return self.model.inputs(20, seed=9)
        more = 23 if isinstance(self.model.parametrization, ng.Network) else 40
        return torch.cat([self.batch[0], self.model.inputs(more - self.n, seed=9)])

    def natural(self) -> Any:
        return ng.natural(
            self.likelihood,
            self.model.parametrization,
            self.model.params,
            self.batch,
            selection=self.shares,
            fisher_over=self.fisher_over,
            damping=self.damping,
        )

    def dense_fisher(self) -> Tensor:
        """Return the P × P Fisher that `fisher_over` selects, from the definitions."""
        return _fisher_of(replace(self, selection="min_norm", damping=0.0))

    def _dense_fisher(self) -> Tensor:
        likelihood, model = self.likelihood, self.model
        scale = likelihood.scale(self.n)
        args = (likelihood, model.parametrization, model.params)
        if self.over == "batch":
            return reference.fisher(*args, self.batch[0])
        if self.over == "all":
            return reference.fisher(*args, all_entries(), factor=scale)
        if self.over == "sample":
            factor = scale * self.n / len(self.sample)
            return reference.fisher(*args, self.sample, factor=factor)
        return scale * self.n * self._population_fisher()

    def _population_fisher(self) -> Tensor:
        """Return E over x ~ N(0, C), on a product grid of 60³ points."""
        model, d = self.model, self.model.features
        eye = torch.eye(d, dtype=torch.float64)
        j = reference.jacobian(model.parametrization, model.params, eye)  # (d, k, p)
        h = model.parametrization.predict(model.params, eye).reshape(d, -1)
        c = eye if self.covariance is None else self.covariance
        root = torch.linalg.cholesky(c)
        # Rates of counts grow like e^{rz}: the normal density times it is centered at r.
        r = float((root.mT @ h[:, 0]).norm()) if self.loss.name == "Poisson" else 0.0
        z, weight = gaussian_grid((600, 44, 44))
        longer = 1 + r / 9
        weight = longer * weight * torch.exp(-(longer**2 - 1) * z[:, 0] ** 2 / 2)
        z = z * torch.tensor([longer, 1.0, 1.0], dtype=z.dtype)
        # The integrand varies fast along the hypothesis only: put the fine axis there.
        axes = torch.linalg.qr(torch.cat([root.mT @ h[:, :1], eye], dim=1))[0]
        x = z @ axes.mT @ root.mT
        blocks = self.loss.build("sum", model.outputs).fisher(x @ h)
        moments = torch.einsum("n,nd,nkj,ne->dkej", weight, x, blocks, x)
        return torch.einsum("dkp,dkej,ejq->pq", j, moments, j)

    def gradient(self) -> Tensor:
        return reference.gradient(
            self.likelihood, self.model.parametrization, self.model.params, self.batch
        )

    def velocities(self, v: Tensor, x: Tensor) -> Tensor:
        """Return the effect of v in function space that matters to the likelihood."""
        j = reference.jacobian(self.model.parametrization, self.model.params, x)
        moved = j @ v
        if isinstance(self.likelihood, ng.Categorical):
            moved = moved - moved.mean(1, keepdim=True)
        return moved

    def expected_error(self) -> type[Exception] | None:
        """Return the typed error that this cell must raise, or None if it must be exact."""
        model, constant = self.model, self.loss.constant
        averaged = constant or (self.loss.population and model.outputs in (0, 1))
        if self.over == "all" and not model.entries:
            return UnsupportedError
        if self.over == "all" and not constant and (self.damping or model.solo_layer is None):
            return UnsupportedError
        if self.over == "GaussianInputs" and not (model.linear and averaged):
            return UnsupportedError
        if self.selection != "min_norm" and not self.damping and model.solo_layer is None:
            return RankDeficientError
        return None


_FISHERS: dict[str, Tensor] = {}


def _fisher_of(case: Case) -> Tensor:
    """Return the dense Fisher of a case, computed once for all selections and dampings."""
    if str(case) not in _FISHERS:
        _FISHERS[str(case)] = case._dense_fisher()
    return _FISHERS[str(case)]


def all_cases() -> Iterator[Case]:
    """Yield every cell of the table at both sizes, N < D and N ≥ D, and both reductions."""
    for model in MODELS:
        for loss in LIKELIHOODS:
            if not loss.fits(model):
                continue
            for selection in SELECTIONS:
                for over in FISHER_OVER:
                    for damping in (0.0, DAMPING):
                        sizes = (2, 17) if not model.entries else (5, 14)
                        for n, reduction in zip(sizes, ("mean", "sum"), strict=True):
                            yield Case(model, loss, selection, over, damping, n, reduction)


def support_table() -> str:
    """Return the table as Markdown: what is exact, and what is refused."""
    header = (
        "# What is supported\n\n"
        "Generated by `python -m tests.cases` from the test cases. Do not edit. The tests compare "
        "each case with the dense autograd reference, in function space, to 1e-9 in float64, for "
        "N < D and N ≥ D, and for mean and sum.\n\n"
        "**✓** exact, with and without damping · **u** exact without damping, `UnsupportedError` "
        "with it · **d** exact with damping, `RankDeficientError` without it (no layer can "
        "move the outputs alone) · **–** `UnsupportedError`.\n"
    )
    parts = [header]
    for loss in LIKELIHOODS:
        columns = [f"{s} / {o}" for o in FISHER_OVER for s in ("min_norm", "shares")]
        parts.append(f"\n## {loss.name}\n\n| | {' | '.join(columns)} |")
        parts.append("|---|" + "---|" * len(columns))
        for model in MODELS:
            if loss.fits(model):
                marks = [
                    _mark(model, loss, selection, over)
                    for over in FISHER_OVER
                    for selection in ("min_norm", "equal_share")
                ]
                parts.append(f"| {model.name} | {' | '.join(marks)} |")
    parts.append(
        "\n`shares` stands for `equal_share` and any `LayerShares`. `fisher_over` is the "
        "batch's own inputs, another sample of inputs, `GaussianInputs()` (the population in "
        "closed form), or all entries of a completed matrix.\n"
    )
    return "\n".join(parts)


def _mark(model: Model, loss: Loss, selection: str, over: str) -> str:
    plain, damped = (
        Case(model, loss, selection, over, damping, 2, "mean").expected_error()
        for damping in (0.0, DAMPING)
    )
    if plain is None:
        return "✓" if damped is None else "u"
    return "d" if damped is None else "–"


if __name__ == "__main__":
    TABLE.write_text(support_table())
