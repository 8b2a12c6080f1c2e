"""Softmax cross-entropy against four hundred digits, from even odds to certainty.

Every entry is held to 8 units of machine epsilon, see `misses`.
"""

from functools import cache

import mpmath
import pytest
import torch
from mpmath import mpf
from torch import Tensor

from natgrad import Categorical
from tests.helpers import randn
from tests.likelihoods.truth import (
    DIGITS,
    GAPS,
    PRECISIONS,
    exact,
    fisher,
    indefinite,
    misses,
    probabilities,
    report,
)

LIKELIHOOD = Categorical(reduction="sum")
precisions = pytest.mark.parametrize("dtype", PRECISIONS, ids=str)


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workdps(DIGITS):
        yield


def logits(gap: float) -> dict[str, Tensor]:
    """Logits whose largest leads by about the gap; most of their differences are rounded."""
    noise = randn(5, seed=round(gap))
    return {
        "plain": torch.tensor([0, -gap, -gap]),
        "graded": torch.tensor([-gap, 0, -gap / 2, -gap / 3]),
        "around zero": torch.tensor([gap / 2 + 0.1, -gap / 2, 0.3]),
        "two leaders": torch.tensor([0.7, gap + 0.7, gap + 0.7]),
        "two leaders, nearly": torch.tensor([0.2, gap + 0.7, gap + 0.701]),
        "noisy": noise + gap * torch.eye(5)[2],
        "far out": torch.tensor([1000.1, 1000.3 + gap, 1000.2]),
        "two": torch.tensor([gap * 0.9, -0.1 * gap]),
    }


TABLE = [(f"{name}, gap {gap:g}", f[None]) for gap in GAPS for name, f in logits(gap).items()]


@cache
def each(dtype: torch.dtype) -> list[tuple[str, Tensor, list]]:
    """Every case's name, logits, and their exact probabilities."""
    rounded = [(name, f.to(dtype)) for name, f in TABLE]
    return [(name, f, probabilities(exact(f[0]))) for name, f in rounded]


def gradient(p: list, label: int) -> list:
    return [x - (i == label) for i, x in enumerate(p)]


@precisions
def test_losses_and_gradients(dtype):
    wrong = {}
    for name, f, p in each(dtype):
        for label in range(len(p)):
            y, at = torch.tensor([label]), f"{name}, label {label}"
            leaf = f.clone().requires_grad_(True)
            loss = LIKELIHOOD(leaf, y)
            (through,) = torch.autograd.grad(loss, leaf)
            wrong[f"loss, {at}"] = misses(exact(loss.detach()), -mpmath.log(p[label]), dtype)
            expected = gradient(p, label)
            for kind, found in (("autograd", through), ("gradient", LIKELIHOOD.gradient(f, y))):
                assert found.dtype == dtype
                wrong[f"{kind}, {at}"] = misses(exact(found[0]), expected, dtype)
    report(wrong)


@precisions
def test_sampled_errors_are_gradients_at_a_label(dtype):
    wrong, source = {}, torch.Generator().manual_seed(0)
    for name, f, p in each(dtype):
        errors = LIKELIHOOD.sampled_errors(f, generator=source)[0]
        label = int(errors.argmin() if errors.any() else f.argmax())
        wrong[name] = misses(exact(errors), gradient(p, label), dtype)
    report(wrong)


@precisions
def test_fisher_and_its_eigenvalues(dtype):
    wrong = {}
    for name, f, p in each(dtype):
        found = exact(LIKELIHOOD.fisher(f)[0])
        wrong[f"fisher, {name}"] = misses(found, fisher(p), dtype) + indefinite(found, dtype)
    report(wrong)


@precisions
def test_mean_fisher_and_its_eigenvalues(dtype):
    wrong = {}
    for gap in GAPS:
        f = torch.stack([row for row in logits(gap).values() if len(row) == 3]).to(dtype)
        blocks = [fisher(probabilities(row)) for row in exact(f)]
        average = [
            [mpmath.fsum(b[i][j] for b in blocks) / len(f) for j in range(3)] for i in range(3)
        ]
        found = exact(LIKELIHOOD.mean_fisher(f))
        wrong[f"gap {gap:g}"] = misses(found, average, dtype) + indefinite(found, dtype)
    report(wrong)


@precisions
@pytest.mark.parametrize("gap", [0.0, 8.0, 17.0, 30.0])
def test_mean_fisher_of_many_samples_and_classes_is_semi_definite(dtype, gap):
    f = randn(300, 12, seed=1) + gap * torch.eye(12)[torch.arange(300) % 12]
    found = LIKELIHOOD.mean_fisher(f.to(dtype))
    assert torch.equal(found, found.mT)
    report({"mean_fisher": indefinite(exact(found), dtype)})


@pytest.mark.parametrize("dtype", PRECISIONS[2:], ids=str)
def test_fisher_of_many_equal_classes_in_half_precision(dtype):
    """Entries beside the diagonal are 10⁻⁶, subnormal in float16; all of them round alike."""
    f = torch.zeros(1, 1000, dtype=dtype)
    for found in (LIKELIHOOD.fisher(f)[0].double(), LIKELIHOOD.mean_fisher(f).double()):
        assert float(abs(found[0, 0] / 0.000999 - 1)) < 8 * torch.finfo(dtype).eps
        least = float(torch.linalg.eigvalsh(found)[0])
        assert least >= -4 * torch.finfo(dtype).eps * float(found[0, 0])


@precisions
def test_products_with_unit_vectors_are_columns_of_the_fisher(dtype):
    """So are second derivatives by autograd."""
    wrong = {}
    for name, f, p in each(dtype):
        eye = torch.eye(len(p), dtype=dtype)
        many = f.expand(len(p), -1)
        wrong[f"product, {name}"] = misses(
            exact(LIKELIHOOD.fisher_product(many, eye)), fisher(p), dtype
        )
        for label in (0, 1):
            leaf, y = many.clone().requires_grad_(True), torch.full((len(p),), label)
            (first,) = torch.autograd.grad(LIKELIHOOD(leaf, y), leaf, create_graph=True)
            (second,) = torch.autograd.grad(first, leaf, eye)
            wrong[f"autograd, {name}, {label}"] = misses(exact(second), fisher(p), dtype)
    report(wrong)


@precisions
@pytest.mark.parametrize("offset", [0.0, 3.0, -1000.0])
def test_products_lose_nothing_but_what_cancels_between_classes(dtype, offset):
    """Terms of (F u)ᵢ = Σⱼ pᵢ pⱼ (uᵢ − uⱼ) may cancel, so their absolute values are the scale."""
    wrong = {}
    for name, f, p in each(dtype):
        u = (randn(1, len(p), seed=7) + offset).to(dtype)
        terms = [[a * b * (v - w) for b, w in zip(p, exact(u[0]), strict=True)]
                 for a, v in zip(p, exact(u[0]), strict=True)]  # fmt: skip
        found = exact(LIKELIHOOD.fisher_product(f, u)[0])
        true = [mpmath.fsum(row) for row in terms]
        scale = [mpmath.fsum(abs(t) for t in row) for row in terms]
        wrong[name] = misses(found, true, dtype, scale)
    report(wrong)


@precisions
def test_roots(dtype):
    """ℓ, the contrasts and the targets are accurate; e^{2ℓ} then has 16 |ℓ| units more."""
    wrong = {}
    for name, f, p in each(dtype):
        star = int(f.argmax())
        others = [i for i in range(len(p)) if i != star]
        root, shared = LIKELIHOOD.root(f), mpmath.sqrt(p[star])
        contrast = [
            [(i == r) - (shared if i == star else p[i] / (1 + shared)) for i in range(len(p))]
            for r in others
        ]
        ell = [mpmath.log(p[r]) / 2 for r in others]
        wrong[f"weights, {name}"] = misses(exact(root.log_weight[0]), ell, dtype)
        wrong[f"contrasts, {name}"] = misses(exact(root.contrast[0]), contrast, dtype)
        c, w = exact(root.contrast[0]), [mpmath.exp(2 * x) for x in exact(root.log_weight[0])]
        k = range(len(p))
        rebuilt = [
            [mpmath.fsum(w[r] * c[r][i] * c[r][j] for r in range(len(w))) for j in k] for i in k
        ]
        true = fisher(p)
        scale = [[mpmath.sqrt(true[i][i] * true[j][j]) for j in k] for i in k]
        units = 32 + float(16 * max(abs(x) for x in ell))
        wrong[f"fisher of the root, {name}"] = misses(rebuilt, true, dtype, scale, units)
    report(wrong)


@precisions
def test_targets_are_the_natural_velocities_of_the_contrasts(dtype):
    wrong, largest = {}, mpf(torch.finfo(dtype).max)
    for name, f, p in each(dtype):
        star = int(f.argmax())
        for label in [i for i, x in enumerate(p) if 1 / x < largest / 2]:
            others = [i for i in range(len(p)) if i != star]
            c = 1 / (1 + mpmath.sqrt(p[star]))
            hit = [-1 / mpmath.sqrt(p[star]) for _ in others]
            missed = [(1 / p[label] if r == label else 0) - c for r in others]
            found = LIKELIHOOD.whitened(f, torch.tensor([label])).target[0]
            expected = hit if label == star else missed
            wrong[f"{name}, label {label}"] = misses(exact(found), expected, dtype)
    report(wrong)
