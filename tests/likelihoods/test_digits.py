"""Logistic and squared loss against four hundred digits; every entry to 8 units of epsilon."""

import mpmath
import pytest
import torch
from mpmath import mpf
from torch import Tensor

from natgrad import Bernoulli, Gaussian
from tests.helpers import F64, randn
from tests.likelihoods.truth import DIGITS, GAPS, PRECISIONS, exact, indefinite, misses, report

precisions = pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
COVARIANCE = torch.tensor([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]], dtype=F64)


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workdps(DIGITS):
        yield


@precisions
@pytest.mark.parametrize("label", [-1, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_bernoulli(dtype, label, sign):
    likelihood, wrong = Bernoulli(reduction="sum"), {}
    gaps = torch.tensor(GAPS, dtype=F64)
    f = sign * torch.cat([gaps, gaps + randn(len(gaps), seed=1)]).to(dtype)
    y = torch.full_like(f, label)
    s = exact(f)
    phi = [1 / (1 + mpmath.exp(-x)) for x in s]
    rest = [1 / (1 + mpmath.exp(x)) for x in s]
    score = [-label * (b if label > 0 else a) for a, b in zip(phi, rest, strict=True)]
    weight = [a * b for a, b in zip(phi, rest, strict=True)]
    loss = [mpmath.log1p(mpmath.exp(-label * x)) for x in s]
    leaf = f.clone().requires_grad_(True)
    (through,) = torch.autograd.grad(likelihood(leaf, y), leaf)
    source = torch.Generator().manual_seed(0)
    errors = likelihood.sampled_errors(f, generator=source)
    drawn = [  # an error of zero has vanished: the label was the likelier one
        a if e > 0 or (e == 0 and x < 0) else -b
        for e, x, a, b in zip(errors.tolist(), s, phi, rest, strict=True)
    ]
    u = (1 + randn(len(f), seed=2).abs()).to(dtype)
    product = [w * x for w, x in zip(weight, exact(u), strict=True)]
    root = likelihood.root(f)
    found = {
        "loss": (likelihood.losses(f, y), loss),
        "autograd": (through, score),
        "gradient": (likelihood.gradient(f, y), score),
        "fisher": (likelihood.fisher(f)[:, 0, 0], weight),
        "product": (likelihood.fisher_product(f, u), product),
        "mean_fisher": (likelihood.mean_fisher(f[None]).diagonal(), weight),
        "log-weight": (root.log_weight[:, 0], [mpmath.log(w) / 2 for w in weight]),
        "sampled errors": (errors, drawn),
    }
    for name, (actual, true) in found.items():
        assert actual.dtype == dtype
        wrong[name] = misses(exact(actual.detach()), true, dtype)
    average = likelihood.mean_fisher(f[:, None])
    wrong["average"] = misses(exact(average), [[mpmath.fsum(weight) / len(f)]], dtype)
    report(wrong)


@precisions
def test_bernoulli_targets(dtype):
    """y (1 + e^{−ys}), as long as it fits the dtype."""
    f = torch.tensor(GAPS, dtype=F64).to(dtype)
    f = torch.cat([f, -f[f < 0.9 * float(mpmath.log(mpf(torch.finfo(dtype).max)))]])
    found = Bernoulli().whitened(f, torch.ones_like(f)).target[:, 0]
    report({"target": misses(exact(found), [1 + mpmath.exp(-x) for x in exact(f)], dtype)})


@precisions
@pytest.mark.parametrize("covariance", [None, COVARIANCE], ids=["identity", "covariance"])
def test_gaussian(dtype, covariance):
    """With a covariance, terms of both signs cancel: sums are held to their absolute terms."""
    likelihood, wrong = Gaussian(covariance, reduction="sum"), {}
    sigma = torch.eye(3, dtype=F64) if covariance is None else covariance
    precision = mpmath.matrix(exact(sigma)) ** -1
    factor = mpmath.cholesky(mpmath.matrix(exact(sigma))) ** -1  # R with RᵀR = Σ⁻¹
    k = range(3)
    whole = [[precision[i, j] for j in k] for i in k]
    magnitude = [[mpmath.fsum(abs(factor[r, i] * factor[r, j]) for r in k) for j in k] for i in k]
    for gap in GAPS:
        f = randn(1, 3, seed=3).to(dtype)
        y = (f.double() + gap * torch.tensor([1.0, -0.1, 0.1], dtype=F64)).to(dtype)
        u = randn(1, 3, seed=5).to(dtype)
        e = [a - b for a, b in zip(exact(f[0]), exact(y[0]), strict=True)]
        root = likelihood.root(f)
        contrast = torch.eye(3)[None] if root.contrast is None else root.contrast
        leaf = f.clone().requires_grad_(True)
        loss = likelihood(leaf, y)
        (through,) = torch.autograd.grad(loss, leaf)

        def times(x: list, matrix: list = whole) -> list:
            return [mpmath.fsum(matrix[i][j] * x[j] for j in k) for i in k]

        def size(x: list) -> list:
            return times([abs(a) for a in x], magnitude)

        sizes = mpmath.fsum(abs(a) * b for a, b in zip(e, size(e), strict=True)) / 2
        true = mpmath.fsum(a * b for a, b in zip(e, times(e), strict=True)) / 2
        name = f"gap {gap:g}"
        wrong[f"loss, {name}"] = misses([exact(loss.detach())], [true], dtype, [sizes])
        for kind, found, x in (
            ("autograd", through, e),
            ("gradient", likelihood.gradient(f, y), e),
            ("product", likelihood.fisher_product(f, u), exact(u[0])),
        ):
            wrong[f"{kind}, {name}"] = misses(exact(found[0]), times(x), dtype, size(x))
        for kind, found in (
            ("fisher", likelihood.fisher(f)[0]),
            ("mean", likelihood.mean_fisher(f)),
        ):
            wrong[f"{kind}, {name}"] = misses(exact(found), whole, dtype, magnitude)
            wrong[f"{kind}, {name}"] += indefinite(exact(found), dtype)
        rows = [[factor[i, j] for j in k] for i in k]
        wrong[f"root, {name}"] = misses(exact(contrast[0]), rows, dtype)
        assert not root.log_weight.any()
    report(wrong)


def test_tensors_need_not_be_close_to_be_compared():
    """The comparison itself: 8 units pass, 9 do not, nor does a NaN."""
    eps = torch.finfo(torch.float32).eps
    assert misses([mpf(1 + 7.9 * eps)], [mpf(1)], torch.float32) == []
    assert misses([mpf(1 + 9 * eps)], [mpf(1)], torch.float32) != []
    assert misses(exact(torch.tensor([float("nan")])), [mpf(1)], torch.float32) != []
    assert misses([mpf("1e-38")], [mpf("1e-39")], torch.float32) == []
    assert misses([mpf("2e-38")], [mpf("1e-39")], torch.float32) != []


def test_indefinite_matrices_are_found():
    bad = exact(Tensor([[1.0, -1.001], [-1.001, 1.0]]))
    assert indefinite(bad, torch.float32) != []
    assert indefinite(exact(Tensor([[1.0, -1.0], [-1.0, 1.0]])), torch.float32) == []
