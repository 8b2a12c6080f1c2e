import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from natgrad import Bernoulli, Categorical, Gaussian
from natgrad.errors import (
    DeviceError,
    DtypeError,
    InvalidInputError,
    LabelError,
    NonFiniteError,
    RankDeficientError,
    ShapeError,
    VelocityOverflowError,
)
from natgrad.likelihoods import Likelihood
from tests.helpers import DTYPES, F64, assert_near, generator, randn, signs

REDUCTIONS = ["mean", "sum"]
COVARIANCE = torch.tensor([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]], dtype=F64)


@dataclass(frozen=True)
class Case:
    """A likelihood, outputs and labels, with torch's own loss of each datum."""

    name: str
    make: Callable[..., Likelihood]
    output: Tensor
    y: Tensor
    losses: Callable[[Tensor, Tensor], Tensor]

    def __str__(self) -> str:
        return self.name


def bce(f: Tensor, y: Tensor) -> Tensor:
    parts = binary_cross_entropy_with_logits(f, y, reduction="none")
    return parts.reshape(len(f), -1).sum(1)


def normal(covariance: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    def losses(f: Tensor, y: Tensor) -> Tensor:
        at = MultivariateNormal(f.reshape(len(f), -1), covariance).log_prob(y.reshape(len(y), -1))
        peak = MultivariateNormal(torch.zeros(len(covariance), dtype=F64), covariance)
        return peak.log_prob(torch.zeros(len(covariance), dtype=F64)) - at

    return losses


def _cases() -> list[Case]:
    one, three = randn(5, seed=1), 2 * randn(5, 3, seed=2)
    s, many = signs(5, seed=3), signs(15, seed=4).reshape(5, 3)
    targets, classes = randn(5, 3, seed=5), torch.tensor([0, 2, 1, 1, 2])
    zero_one = lambda y: (y + 1) / 2  # noqa: E731
    return [
        Case("bernoulli", Bernoulli, one, s, lambda f, y: bce(f, zero_one(y))),
        Case(
            "bernoulli-column", Bernoulli, one[:, None], s, lambda f, y: bce(f[:, 0], zero_one(y))
        ),
        Case("bernoulli-many", Bernoulli, three, many, lambda f, y: bce(f, zero_one(y))),
        Case("bernoulli-01", lambda **kw: Bernoulli(zero_one=True, **kw), one, zero_one(s), bce),
        Case(
            "bernoulli-many-01",
            lambda **kw: Bernoulli(zero_one=True, **kw),
            three,
            zero_one(many),
            bce,
        ),
        Case("gaussian-one", Gaussian, one, targets[:, 0], normal(torch.eye(1, dtype=F64))),
        Case("gaussian", Gaussian, three, targets, normal(torch.eye(3, dtype=F64))),
        Case(
            "gaussian-covariance",
            lambda **kw: Gaussian(COVARIANCE, **kw),
            three,
            targets,
            normal(COVARIANCE),
        ),
        Case(
            "gaussian-image",
            lambda **kw: Gaussian(torch.diag(torch.tensor([1.0, 2, 3, 4], dtype=F64)), **kw),
            randn(3, 2, 2, seed=6),
            randn(3, 2, 2, seed=7),
            normal(torch.diag(torch.tensor([1.0, 2, 3, 4], dtype=F64))),
        ),
        Case(
            "categorical",
            Categorical,
            three,
            classes,
            lambda f, y: cross_entropy(f, y, reduction="none"),
        ),
        Case(
            "categorical-two",
            Categorical,
            three[:, :2],
            classes % 2,
            lambda f, y: cross_entropy(f, y, reduction="none"),
        ),
    ]


CASES = _cases()
cases = pytest.mark.parametrize("case", CASES, ids=str)
reductions = pytest.mark.parametrize("reduction", REDUCTIONS)


def reduce(losses: Tensor, reduction: str) -> Tensor:
    return losses.mean() if reduction == "mean" else losses.sum()


def fisher_of(white) -> Tensor:
    """Σᵣ e^{2ℓ} c cᵀ of each datum, as `Root` promises."""
    n, r = white.log_weight.shape
    eye = torch.eye(r, dtype=white.log_weight.dtype)[None]
    contrast = (eye if white.contrast is None else white.contrast).expand(n, -1, -1)
    return torch.einsum("nr,nrk,nrj->nkj", torch.exp(2 * white.log_weight), contrast, contrast)


@cases
@reductions
def test_loss_is_torchs_own(case, reduction):
    likelihood = case.make(reduction=reduction)
    expected = case.losses(case.output, case.y)
    assert_near(likelihood.losses(case.output, case.y), expected, 1e-13)
    assert_near(likelihood(case.output, case.y), reduce(expected, reduction), 1e-13)
    assert_near(likelihood.loss(case.output, case.y), reduce(expected, reduction), 1e-13)


@cases
@reductions
def test_gradient_is_that_of_autograd(case, reduction):
    f = case.output.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(reduce(case.losses(f, case.y), reduction), f)
    likelihood = case.make(reduction=reduction)
    gradient = likelihood.gradient(case.output, case.y)
    assert gradient.shape == case.output.shape
    assert_near(gradient, expected, 1e-12)
    (through,) = torch.autograd.grad(likelihood(f, case.y), f)
    assert_near(through, expected, 1e-12)


def labels_and_probabilities(case: Case) -> list[tuple[Tensor, Tensor]]:
    """Every label a datum can have, with its probability, by torch's losses."""
    n, k = len(case.output), case.output.reshape(len(case.output), -1).shape[1]
    if case.name.startswith("categorical"):
        labels = [torch.full((n,), c) for c in range(k)]
    else:
        low = 0.0 if case.name.endswith("01") else -1.0
        values = torch.tensor([low, 1.0], dtype=F64)
        grid = torch.cartesian_prod(*[values] * k).reshape(-1, k)
        labels = [row.expand(n, k).reshape(case.y.shape) for row in grid]
    return [(y, torch.exp(-case.losses(case.output, y))) for y in labels]


@pytest.mark.parametrize("case", [c for c in CASES if not c.name.startswith("gaussian")], ids=str)
@reductions
def test_fisher_is_the_expected_outer_product_of_scores(case, reduction):
    n = len(case.output)
    expected = torch.zeros(n, *2 * [case.output.reshape(n, -1).shape[1]], dtype=F64)
    total = torch.zeros(n, dtype=F64)
    for y, probability in labels_and_probabilities(case):
        f = case.output.clone().requires_grad_(True)
        (score,) = torch.autograd.grad(case.losses(f, y).sum(), f)
        score = score.reshape(n, -1)
        expected += probability[:, None, None] * score[:, :, None] * score[:, None, :]
        total += probability
    assert_near(total, torch.ones(n, dtype=F64), 1e-13)
    if reduction == "mean":
        expected = expected / n
    assert_near(case.make(reduction=reduction).fisher(case.output), expected, 1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("gaussian")], ids=str)
@reductions
def test_gaussian_fisher_is_the_precision(case, reduction):
    """The score is Σ̃⁻¹(y − f), whose covariance is Σ̃⁻¹; here as the Hessian of torch's loss."""
    n = len(case.output)
    blocks = [
        torch.autograd.functional.hessian(
            lambda f, i=i: case.losses(f[None], case.y[i : i + 1])[0], case.output[i]
        )
        for i in range(n)
    ]
    k = case.output[0].numel()
    expected = torch.stack([b.reshape(k, k) for b in blocks])
    if reduction == "mean":
        expected = expected / n
    assert_near(case.make(reduction=reduction).fisher(case.output), expected, 1e-11)


@cases
@reductions
def test_whitened_pair_gives_back_fisher_and_gradient(case, reduction):
    likelihood = case.make(reduction=reduction)
    white, n = likelihood.whitened(case.output, case.y), len(case.output)
    scale = 1 / n if reduction == "mean" else 1.0
    assert likelihood.scale(n) == scale
    assert_near(scale * fisher_of(white), likelihood.fisher(case.output), 1e-12)
    descent = white.transpose(torch.exp(2 * white.log_weight) * white.target)
    gradient = -scale * descent.reshape(case.output.shape)
    assert_near(gradient, likelihood.gradient(case.output, case.y), 1e-12)


@cases
def test_root_needs_no_labels_and_applies_as_it_transposes(case):
    likelihood = case.make()
    root, white = likelihood.root(case.output), likelihood.whitened(case.output, case.y)
    assert torch.equal(root.log_weight, white.log_weight)
    n, k = len(case.output), case.output.reshape(len(case.output), -1).shape[1]
    u, z = randn(n, k, seed=8), randn(*root.log_weight.shape, seed=9)
    assert float((root.apply(u) * z).sum()) == pytest.approx(float((u * root.transpose(z)).sum()))


@cases
def test_visible_directions_are_those_of_the_fisher(case):
    blocks = case.make().fisher(case.output)
    k = blocks.shape[1]
    basis = case.make().visible(torch.zeros(k, 2, dtype=F64))
    if basis is None:
        basis = torch.eye(k, dtype=F64)
    assert_near(basis @ basis.mT, torch.eye(len(basis), dtype=F64), 1e-13)
    hidden = torch.eye(k, dtype=F64) - basis.mT @ basis
    assert float((blocks @ hidden).abs().max()) < 1e-13
    assert float(torch.linalg.eigvalsh(basis @ blocks @ basis.mT).min()) > 1e-6


@cases
def test_single_precision_follows_double(case):
    likelihood = case.make()
    y = case.y.float() if case.y.is_floating_point() else case.y
    white = likelihood.whitened(case.output.float(), y)
    assert white.target.dtype == white.log_weight.dtype == torch.float32
    assert_near(likelihood(case.output.float(), y), likelihood(case.output, case.y), 1e-6)
    assert_near(white.target, likelihood.whitened(case.output, case.y).target, 1e-5)


# Extreme outputs, against multiple precision.

MARGINS = [-600.0, -88.0, -40.0, -1e-8, 0.0, 1e-8, 40.0, 600.0, 2000.0]


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_bernoulli_at_extreme_margins(margin, label):
    s = torch.tensor([margin * label], dtype=F64)
    y = torch.tensor([label], dtype=F64)
    likelihood = Bernoulli()
    u = mpmath.mpf(margin)
    with mpmath.workdps(60):
        loss = mpmath.log1p(mpmath.exp(-u))
        gradient = -label / (1 + mpmath.exp(u))
        velocity = label * (1 + mpmath.exp(-u))
        log_weight = mpmath.log(1 / ((1 + mpmath.exp(u)) * (1 + mpmath.exp(-u)))) / 2
    white = likelihood.whitened(s, y)
    assert float(likelihood(s, y)) == pytest.approx(float(loss), rel=1e-14, abs=0)
    assert float(likelihood.gradient(s, y)) == pytest.approx(float(gradient), rel=1e-13, abs=0)
    assert float(white.target) == pytest.approx(float(velocity), rel=1e-13)
    assert float(white.log_weight) == pytest.approx(float(log_weight), rel=1e-14)


def exact_softmax(f: list[float]) -> list[mpmath.mpf]:
    with mpmath.workdps(1600):
        e = [mpmath.exp(mpmath.mpf(x)) for x in f]
        return [x / mpmath.fsum(e) for x in e]


# logits, label
LOGITS = {
    "even": ([0.0, 0.0, 0.0], 1),
    "certain": ([1500.0, 0.0, -1500.0], 0),
    "certain-others-tied": ([0.0, -1500.0, -1500.0], 0),
    "unlikely": ([0.0, -600.0, -1500.0], 1),
    "two-likely": ([10.0, 10.0, -1490.0], 0),
    "barely": ([1e-9, 0.0, -700.0], 1),
}


@pytest.mark.parametrize("name", LOGITS)
def test_categorical_at_extreme_logits(name):
    """Contrasts c, weights e^{2ℓ} and targets b in multiple precision give F and ∇ back."""
    f, label = LOGITS[name]
    output, y = torch.tensor([f], dtype=F64), torch.tensor([label])
    p = exact_softmax(f)
    likelihood = Categorical()
    gradient = likelihood.gradient(output, y)[0]
    white = likelihood.whitened(output, y)
    assert bool(torch.isfinite(white.target).all())
    assert bool(torch.isfinite(white.contrast).all())
    with mpmath.workdps(1600):
        assert float(likelihood(output, y)) == pytest.approx(
            float(-mpmath.log(p[label])), rel=1e-12
        )
        true = [p[i] - (i == label) for i in range(3)]
        for i in range(3):
            assert float(gradient[i]) == pytest.approx(float(true[i]), rel=1e-12, abs=0)
        weight = [mpmath.exp(2 * mpmath.mpf(float(w))) for w in white.log_weight[0]]
        c = white.contrast[0].tolist()
        b = white.target[0].tolist()
        for i in range(3):
            rebuilt = -mpmath.fsum(weight[r] * c[r][i] * b[r] for r in range(2))
            assert abs(rebuilt - true[i]) <= 1e-10 * max(abs(t) for t in true)
            for j in range(3):
                block = mpmath.fsum(weight[r] * c[r][i] * c[r][j] for r in range(2))
                expected = (p[i] if i == j else 0) - p[i] * p[j]
                # Small probabilities cost no accuracy: relative to √(pᵢ pⱼ), whatever its size.
                assert abs(block - expected) <= 1e-10 * mpmath.sqrt(p[i] * p[j])


@pytest.mark.parametrize("name", LOGITS)
def test_categorical_targets_are_the_natural_velocities(name):
    """F u = e_y − p has the solution u = e_y / p_y, so every contrast's target is c·u."""
    f, label = LOGITS[name]
    white = Categorical().whitened(torch.tensor([f], dtype=F64), torch.tensor([label]))
    p = exact_softmax(f)
    for r in range(2):
        expected = white.contrast[0, r, label].item() / p[label]
        assert abs(white.target[0, r].item() - expected) <= 1e-10 / p[label]


OVERFLOWS = [
    (Bernoulli(), lambda s: torch.tensor([s]), torch.tensor([-1.0]), "margin"),
    (Bernoulli(), lambda s: torch.tensor([0.0, -s]), torch.tensor([1.0, 1.0]), "margin"),
    (Categorical(), lambda s: torch.tensor([[s, 0.0, 0.0]]), torch.tensor([1]), "log p_y"),
]


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 90.0), (torch.float64, 720.0)])
@pytest.mark.parametrize(("likelihood", "build", "y", "named"), OVERFLOWS)
def test_overflowing_velocities_are_refused(likelihood, build, y, named, dtype, size):
    labels = y.to(dtype) if y.is_floating_point() else y
    with pytest.raises(VelocityOverflowError) as error:
        likelihood.whitened(build(size).to(dtype), labels)
    assert str(dtype) in str(error.value)
    assert f"smallest {named} is {-size:.4g}" in str(error.value)
    likelihood.whitened(build(size * 0.97).to(dtype), labels)  # just inside the range
    assert math.isfinite(float(likelihood(build(size).to(dtype), labels)))


# Sampling.

DRAWS = 20000
SAMPLED = {
    "bernoulli": (Bernoulli(), torch.tensor([0.3, -1.0, 2.0], dtype=F64)),
    "bernoulli-01": (Bernoulli(zero_one=True), torch.tensor([0.3, -1.0, 2.0], dtype=F64)),
    "gaussian": (Gaussian(), torch.tensor([1.0, -2.0, 0.5], dtype=F64)),
    "gaussian-covariance": (Gaussian(COVARIANCE), torch.tensor([1.0, -2.0, 0.5], dtype=F64)),
    "categorical": (Categorical(), torch.tensor([0.3, -1.0, 1.0], dtype=F64)),
}


def moments(name: str, likelihood: Likelihood, f: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of one label, from the definitions; class indices as one-hot rows."""
    if name.startswith("gaussian"):
        return f, COVARIANCE if name.endswith("covariance") else torch.eye(3, dtype=F64)
    if name == "categorical":
        p = torch.softmax(f, 0)
        return p, torch.diag(p) - torch.outer(p, p)
    p = torch.sigmoid(f)
    variance = torch.diag(p * (1 - p))
    return (p, variance) if name.endswith("01") else (2 * p - 1, 4 * variance)


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_have_the_models_moments(name):
    likelihood, f = SAMPLED[name]
    y = likelihood.sample(f.expand(DRAWS, 3), generator=generator(0))
    assert bool(torch.isfinite(likelihood(f.expand(DRAWS, 3), y)))  # a label the loss takes
    if name == "categorical":
        assert y.shape == (DRAWS,)
        y = torch.nn.functional.one_hot(y, 3).to(F64)
    mean, covariance = moments(name, likelihood, f)
    deviation = covariance.diagonal().sqrt()
    assert bool(((y.mean(0) - mean).abs() <= 4 * deviation / DRAWS**0.5).all())
    products = (y - mean)[:, :, None] * (y - mean)[:, None, :]
    error = products.std(0) / DRAWS**0.5 + 1e-12
    assert bool(((products.mean(0) - covariance).abs() <= 4 * error).all())


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_are_reproducible_and_leave_the_global_state_alone(name):
    likelihood, f = SAMPLED[name]
    f = f.expand(50, 3)
    state = torch.random.get_rng_state()
    first, second, third = (likelihood.sample(f, generator=generator(s)) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(state, torch.random.get_rng_state())


@cases
def test_samples_have_the_shape_of_labels(case):
    y = case.make().sample(case.output, generator=generator(3))
    expected = case.output.shape[:1] if case.name.startswith("categorical") else case.output.shape
    assert y.shape == expected


# Refusals.

ONE, TWO = torch.zeros(2, dtype=F64), torch.zeros(2, 2, dtype=F64)
LABEL_ERRORS = {
    "bernoulli-0": (Bernoulli(), ONE, torch.tensor([1.0, 0.0]), LabelError, ["−1 or +1", "is 0"]),
    "bernoulli-2": (Bernoulli(), ONE, torch.tensor([2.0, 1.0]), LabelError, ["−1 or +1", "is 2"]),
    "bernoulli-nan": (Bernoulli(), ONE, torch.tensor([math.nan, 1]), LabelError, ["is nan"]),
    "bernoulli-minus-in-01": (
        Bernoulli(zero_one=True),
        ONE,
        torch.tensor([-1.0, 1.0]),
        LabelError,
        ["0 or 1", "is -1", "Bernoulli()"],
    ),
    "bernoulli-hint": (Bernoulli(), ONE, torch.tensor([0, 1]), LabelError, ["zero_one=True"]),
    "bernoulli-01-hint": (
        Bernoulli(zero_one=True),
        ONE,
        torch.tensor([-1, 1]),
        LabelError,
        ["Use Bernoulli() for"],
    ),
    "bernoulli-soft": (
        Bernoulli(zero_one=True),
        ONE,
        torch.tensor([0.3, 1.0]),
        LabelError,
        ["Probabilities", "BCEWithLogitsLoss"],
    ),
    "bernoulli-count": (Bernoulli(), ONE, torch.ones(3), ShapeError, ["2 outputs", "(3,)"]),
    "bernoulli-width": (Bernoulli(), TWO, torch.ones(2), ShapeError, ["2 per sample", "have 1"]),
    "bernoulli-list": (Bernoulli(), ONE, [1.0, 1.0], DtypeError, ["torch.Tensor", "list"]),
    "scalar-label": (Bernoulli(), ONE[:1], torch.tensor(1.0), ShapeError, ["label"]),
    "bernoulli-device": (
        Bernoulli(),
        ONE,
        torch.ones(2, device="meta"),
        DeviceError,
        ["cpu", "meta"],
    ),
    "gaussian-nan": (Gaussian(), ONE, torch.tensor([math.nan, 1]), NonFiniteError, ["finite"]),
    "gaussian-inf": (Gaussian(), ONE, torch.tensor([math.inf, 1]), NonFiniteError, ["finite"]),
    "gaussian-width": (Gaussian(), TWO, torch.ones(2, 3), ShapeError, ["2 per sample", "have 3"]),
    "gaussian-covariance-width": (
        Gaussian(COVARIANCE),
        TWO,
        torch.ones(2, 2),
        ShapeError,
        ["3 outputs", "has 2"],
    ),
    "categorical-high": (
        Categorical(),
        TWO,
        torch.tensor([0, 2]),
        LabelError,
        ["0…1", "2 logits", "from 0 to 2"],
    ),
    "categorical-negative": (
        Categorical(),
        TWO,
        torch.tensor([-1, 1]),
        LabelError,
        ["0…1", "from -1 to 1"],
    ),
    "categorical-float": (
        Categorical(),
        TWO,
        torch.tensor([0.0, 1.0]),
        DtypeError,
        ["integer", "float32", "y.long()"],
    ),
    "categorical-bool": (
        Categorical(),
        TWO,
        torch.tensor([True, False]),
        DtypeError,
        ["integer", "bool"],
    ),
    "categorical-one-hot": (
        Categorical(),
        TWO,
        torch.tensor([[0, 1], [1, 0]]),
        ShapeError,
        ["(n,)", "(2, 2)", "one-hot"],
    ),
    "categorical-one-logit": (
        Categorical(),
        TWO[:, :1],
        torch.tensor([0, 0]),
        ShapeError,
        ["two logits", "Bernoulli"],
    ),
    "outputs-integer": (
        Bernoulli(),
        torch.tensor([1, 2]),
        torch.ones(2),
        DtypeError,
        ["floating-point", "int64"],
    ),
    "outputs-list": (Bernoulli(), [1.0], torch.ones(1), DtypeError, ["floating-point", "list"]),
    "outputs-empty": (Bernoulli(), ONE[:0], torch.ones(0), ShapeError, ["at least one", "(0,)"]),
    "outputs-scalar": (Bernoulli(), ONE[0], torch.ones(1), ShapeError, ["(n,)", "()"]),
}


@pytest.mark.parametrize("name", LABEL_ERRORS)
def test_wrong_labels_and_outputs_are_refused_with_reasons(name):
    likelihood, output, y, error, phrases = LABEL_ERRORS[name]
    for method in (likelihood, likelihood.losses, likelihood.gradient, likelihood.whitened):
        with pytest.raises(error) as caught:
            method(output, y)
        for phrase in phrases:
            assert phrase in str(caught.value)


CONSTRUCTIONS = {
    "reduction": (lambda: Bernoulli(reduction="none"), InvalidInputError, ["'sum'", "'none'"]),
    "covariance-list": (lambda: Gaussian([[1.0]]), DtypeError, ["torch.Tensor", "list"]),
    "covariance-integer": (lambda: Gaussian(torch.eye(2).long()), DtypeError, ["float64", "int64"]),
    "covariance-shape": (lambda: Gaussian(torch.ones(2, 3)), ShapeError, ["square", "(2, 3)"]),
    "covariance-vector": (lambda: Gaussian(torch.ones(2)), ShapeError, ["square", "(2,)"]),
    "covariance-asymmetric": (
        lambda: Gaussian(torch.tensor([[1.0, 0.5], [0.0, 1.0]])),
        ShapeError,
        ["symmetric"],
    ),
    "covariance-singular": (
        lambda: Gaussian(torch.ones(2, 2)),
        RankDeficientError,
        ["the noise covariance", "positive definite"],
    ),
    "covariance-nan": (
        lambda: Gaussian(torch.full((2, 2), math.nan)),
        NonFiniteError,
        ["the noise covariance", "finite"],
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_wrong_constructions_are_refused_with_reasons(name):
    build, error, phrases = CONSTRUCTIONS[name]
    with pytest.raises(error) as caught:
        build()
    for phrase in phrases:
        assert phrase in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_covariance_takes_the_dtype_of_the_outputs(dtype):
    output, y = randn(4, 3, seed=1).to(dtype), randn(4, 3, seed=2).to(dtype)
    loss = Gaussian(COVARIANCE.float())(output, y)
    assert loss.dtype == dtype
    assert_near(loss, normal(COVARIANCE)(output.double(), y.double()).mean(), 1e-5)


def test_representations_name_what_was_chosen():
    assert repr(Bernoulli(reduction="sum")) == "Bernoulli(reduction='sum')"
    assert repr(Gaussian(COVARIANCE)) == "Gaussian(covariance=(3, 3), reduction='mean')"
