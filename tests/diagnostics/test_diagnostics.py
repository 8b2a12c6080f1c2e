import math

import pytest
import torch

from natgrad import DeepLinear, Diagonal, Direct, MatrixProduct
from natgrad.diagnostics import (
    angle,
    balancedness,
    cosine,
    distance_to_limits,
    effective_rank,
    gaussian_accuracy,
    margin,
    normalized_margins,
    numerical_rank,
    off_span,
    support_recovery,
    trace_norm,
)
from natgrad.errors import (
    DtypeError,
    InvalidInputError,
    LabelError,
    NonFiniteError,
    RankDeficientError,
    SaddlePointError,
    ShapeError,
    UnsupportedError,
    VelocityOverflowError,
)
from natgrad.limits import max_margin
from tests.helpers import (
    DTYPES,
    F64,
    assert_near,
    chain,
    deep,
    generator,
    pinv,
    randn,
    signs,
    with_spectrum,
)

X, Y, BETA = randn(7, 4, seed=1), signs(7, seed=2), randn(4, seed=3)


@pytest.mark.parametrize("p", [0.25, 2 / 3, 1, 2, 3, math.inf])
def test_margin_of_every_power(p):
    absolute = BETA.abs()
    norm = absolute.max() if p == math.inf else absolute.pow(p).sum() ** (1 / p)
    expected = torch.stack([y * (x @ BETA) / norm for x, y in zip(X, Y, strict=True)])
    assert_near(normalized_margins(BETA, X, Y, p), expected, 1e-12)
    assert_near(margin(BETA, X, Y, p), expected.min(), 1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_margin_does_not_depend_on_the_size_of_beta(scale):
    for p in (0.5, 1, 2):
        assert_near(margin(scale * BETA, X, Y, p), margin(BETA, X, Y, p), 1e-12)


def test_margins_of_a_trajectory():
    states = randn(3, 2, 4, seed=4)
    values = margin(states, X, Y, 1)
    assert values.shape == (3, 2)
    assert_near(values[1, 0], margin(states[1, 0], X, Y, 1), 1e-12)
    assert math.isnan(float(margin(torch.zeros(4, dtype=F64), X, Y)))


def test_margin_of_the_limit_is_its_value():
    x = randn(30, 5, seed=5)
    y = torch.sign(x @ torch.ones(5, dtype=F64))
    for p in (1, 2, 0.5):
        limit = max_margin(x, y, p)
        assert float(margin(limit.solution, x, y, p)) == pytest.approx(limit.value, rel=1e-9)


@pytest.mark.parametrize("theta", [1e-15, 1e-9, 1e-4, 0.5, math.pi / 2, 3.0, math.pi - 1e-9])
def test_angle_is_accurate_at_every_size(theta):
    a = torch.tensor([1.0, 0.0], dtype=F64)
    b = 7 * torch.tensor([math.cos(theta), math.sin(theta)], dtype=F64)
    assert float(angle(a, b)) == pytest.approx(theta, rel=1e-9, abs=1e-17)
    assert float(cosine(a, b)) == pytest.approx(math.cos(theta), abs=1e-15)


def test_angle_has_the_ends():
    assert float(angle(BETA, 3 * BETA)) < 1e-15
    assert float(angle(BETA, -BETA)) == pytest.approx(math.pi)
    assert float(angle(1e200 * BETA, 1e-200 * BETA)) < 1e-15
    assert math.isnan(float(angle(BETA, 0 * BETA)))
    assert float(cosine(BETA, BETA)) <= 1


def test_distance_to_limits():
    states = torch.stack([BETA, 2 * BETA, randn(4, seed=6)])
    goals = {"self": BETA, "limit": max_margin(torch.eye(4, dtype=F64), torch.ones(4).to(F64))}
    angles = distance_to_limits(states, goals)
    assert_near(angles["self"], angle(states, BETA), 1e-12)
    assert_near(angles["limit"], angle(states, torch.ones(4, dtype=F64)), 1e-9)
    relative = distance_to_limits(states, goals, "relative")["self"]
    assert_near(relative[:2], torch.tensor([0.0, 1.0], dtype=F64), 1e-12)
    matrices = distance_to_limits(randn(5, 3, 2, seed=7), {"m": randn(3, 2, seed=8)}, "relative")
    assert matrices["m"].shape == (5,)


@pytest.mark.parametrize(
    ("beta", "support", "k", "expected"),
    [
        ([3.0, -2.0, 0.1, 0.0], [0, 1], None, (1.0, 1.0, True)),
        ([3.0, 0.1, -2.0, 0.0], [0, 1], None, (0.5, 0.5, False)),
        ([3.0, 0.1, -2.0, 0.0], [0, 1], 3, (2 / 3, 1.0, False)),
        ([3.0, 0.0, 0.0, 0.0], [0, 1], None, (1.0, 0.5, False)),
        ([0.0, 0.0, 0.0, 0.0], [0, 1], None, (0.0, 0.0, False)),
        ([0.0, 5.0, 0.0, 0.0], [0], 1, (0.0, 0.0, False)),
    ],
)
def test_support_recovery(beta, support, k, expected):
    beta = torch.tensor(beta)
    found = support_recovery(beta, torch.tensor(support), k)
    assert (found.precision, found.recall, found.exact) == pytest.approx(expected)
    mask = torch.zeros(4, dtype=torch.bool)
    mask[support] = True
    assert support_recovery(beta, mask, k) == found


def test_ranks_and_the_nuclear_norm_from_the_spectrum():
    s = torch.tensor([3.0, 2.0, 1.0], dtype=F64)
    m = with_spectrum(6, 5, s, seed=9)
    p = s / s.sum()
    assert float(effective_rank(m)) == pytest.approx(float(torch.exp(-(p * p.log()).sum())))
    assert int(numerical_rank(m)) == 3
    assert int(numerical_rank(m, rtol=0.5)) == 2
    assert float(trace_norm(m)) == pytest.approx(6)
    assert float(effective_rank(with_spectrum(6, 5, [4.0], seed=9))) == pytest.approx(1)
    batch = torch.stack([m, torch.eye(6, 5, dtype=F64)])
    assert effective_rank(batch).tolist()[1] == pytest.approx(5)
    assert numerical_rank(batch).tolist() == [3, 5]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_kept(dtype):
    m = randn(4, 3, seed=1).to(dtype)
    assert effective_rank(m).dtype == trace_norm(m).dtype == dtype
    assert margin(BETA.to(dtype), X.to(dtype), Y.to(dtype)).dtype == dtype


@pytest.mark.parametrize("with_covariance", [False, True])
def test_gaussian_accuracy_against_a_sample(with_covariance):
    root = randn(4, 4, seed=10) if with_covariance else torch.eye(4, dtype=F64)
    other = BETA + randn(4, seed=11)
    covariance = root @ root.mT if with_covariance else None
    x = torch.randn(400_000, 4, dtype=F64, generator=generator(12)) @ root.mT
    agree = float(((x @ BETA > 0) == (x @ other > 0)).double().mean())
    assert float(gaussian_accuracy(other, BETA, covariance)) == pytest.approx(agree, abs=3e-3)


def test_gaussian_accuracy_closed_forms():
    a, b = torch.tensor([1.0, 0.0], dtype=F64), torch.tensor([1.0, 1.0], dtype=F64)
    assert float(gaussian_accuracy(b, a)) == pytest.approx(0.75)
    assert float(gaussian_accuracy(-a, a)) == 0
    stretched = torch.diag(torch.tensor([1.0, 3.0], dtype=F64))  # cos = 1/√(1·4) = 1/2
    assert float(gaussian_accuracy(b, a, stretched)) == pytest.approx(1 - 1 / 3)
    assert gaussian_accuracy(torch.stack([a, b]), a).tolist() == pytest.approx([1, 0.75])


def gradient_drift(parametrization, params, step):
    """The change of the conserved quantities over one Euler step of a gradient flow."""
    h = parametrization.hypothesis(params)
    gradient = parametrization.pull(params, h - randn(*h.shape, seed=13))
    moved = (
        params - step * gradient
        if isinstance(params, torch.Tensor)
        else tuple(w - step * g for w, g in zip(params, gradient, strict=True))
    )
    before, after = balancedness(parametrization, params), balancedness(parametrization, moved)
    return max(float((a - b).norm()) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize(
    ("parametrization", "params"),
    [
        (Diagonal(3), randn(3, 5, seed=14)),
        (MatrixProduct(3), chain((3, 5, 2, 4), seed=15)),
        (DeepLinear((3, 5, 2, 4)), deep((3, 5, 2, 4), seed=16)),
    ],
    ids=["diagonal", "matrix-product", "deep-linear"],
)
def test_balancedness_is_conserved_to_first_order_by_gradient_flow(parametrization, params):
    assert len(balancedness(parametrization, params)) == 2
    coarse, fine = (gradient_drift(parametrization, params, h) for h in (1e-3, 1e-4))
    assert coarse < 1e-3
    assert fine / coarse == pytest.approx(1e-2, rel=1e-2)  # O(step²): no first-order term


def test_balancedness_respects_the_order_of_factors():
    w = chain((3, 5, 2), seed=17)
    assert_near(balancedness(MatrixProduct(2), w)[0], w[0].mT @ w[0] - w[1] @ w[1].mT)
    v = deep((3, 5, 2), seed=18)
    assert_near(balancedness(DeepLinear((3, 5, 2)), v)[0], v[1].mT @ v[1] - v[0] @ v[0].mT)
    d = randn(2, 3, seed=19)
    assert_near(balancedness(Diagonal(2), d)[0], d[0] ** 2 - d[1] ** 2)
    assert balancedness(Diagonal(1), d[:1]) == ()


def test_off_span_is_the_complement_of_the_row_space():
    x, states = randn(3, 6, seed=20), randn(4, 6, seed=21)
    expected = states - states @ (pinv(x) @ x).mT
    assert_near(off_span(states, x), expected, 1e-11)
    assert_near(off_span(states[0], x), expected[0], 1e-11)


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda: margin(BETA[:3], X, Y), ShapeError, "last dimensions"),
        (lambda: margin(BETA, X, Y[:3]), ShapeError, r"\(n, d\)"),
        (lambda: margin(BETA, X, 2 * Y), LabelError, "−1 or \\+1"),
        (lambda: margin(BETA, X, Y, 0), InvalidInputError, "above 0"),
        (lambda: margin(BETA, X, Y, -math.inf), InvalidInputError, "above 0"),
        (lambda: margin(BETA.tolist(), X, Y), DtypeError, "beta"),
        (lambda: margin(BETA, X, Y.tolist()), DtypeError, "Tensor"),
        (lambda: cosine(BETA, BETA[:2]), ShapeError, "last dimensions"),
        (lambda: angle(BETA.long(), BETA), DtypeError, "int64"),
        (lambda: effective_rank(BETA), ShapeError, "2 dimensions"),
        (lambda: support_recovery(X, torch.tensor([0])), ShapeError, r"\(d,\)"),
        (lambda: support_recovery(BETA, torch.tensor([4])), InvalidInputError, "0 to 3"),
        (lambda: support_recovery(BETA, torch.zeros(4).bool()), InvalidInputError, "empty"),
        (lambda: support_recovery(BETA, torch.zeros(4)), ShapeError, "bool mask"),
        (lambda: support_recovery(BETA, torch.tensor([0]), 9), InvalidInputError, "at most 4"),
        (lambda: gaussian_accuracy(BETA, BETA, torch.eye(3).double()), ShapeError, "3 features"),
        (
            lambda: gaussian_accuracy(BETA, BETA, -torch.eye(4).double()),
            RankDeficientError,
            "covariance",
        ),
        (lambda: balancedness(Direct(), BETA), UnsupportedError, "MatrixProduct"),
        (lambda: balancedness(Diagonal(2), torch.zeros(2, 3)), SaddlePointError, "zero"),
        (lambda: balancedness(MatrixProduct(3), chain((2, 2, 2), seed=1)), ShapeError, "3"),
        (lambda: distance_to_limits(BETA, {"a": BETA}, "cosine"), InvalidInputError, "angle"),
        (lambda: distance_to_limits(BETA, {"a": BETA[:2]}), ShapeError, "'a'"),
    ],
)
def test_bad_input(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "call",
    [
        lambda b, m: support_recovery(b, torch.tensor([0])),
        lambda b, m: numerical_rank(m),
        lambda b, m: effective_rank(m),
        lambda b, m: trace_norm(m),
        lambda b, m: cosine(b, BETA),
        lambda b, m: angle(BETA, b),
        lambda b, m: distance_to_limits(b, {"a": BETA}),
        lambda b, m: distance_to_limits(BETA, {"a": b}, "relative"),
        lambda b, m: off_span(b, m),
        lambda b, m: gaussian_accuracy(b, BETA),
    ],
)
def test_numbers_that_are_none_are_refused(call, bad):
    vector, matrix = BETA.clone(), torch.eye(4, dtype=BETA.dtype)
    vector[0] = matrix[0, 0] = bad
    with pytest.raises(NonFiniteError, match="finite"):
        call(vector, matrix)


@pytest.mark.parametrize("rtol", [float("nan"), -1.0, 1.0, "1", None])
def test_cutoffs(rtol):
    if rtol is None:
        assert int(numerical_rank(torch.eye(3), rtol)) == 3
    else:
        with pytest.raises(InvalidInputError, match="rtol"):
            numerical_rank(torch.eye(3), rtol)


@pytest.mark.parametrize("call", [effective_rank, numerical_rank, trace_norm])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_empty_matrices(call, shape):
    with pytest.raises(ShapeError, match="empty"):
        call(torch.zeros(shape))


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-155, 1e155, 1e300])
def test_any_scale(scale):
    m = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    assert float(effective_rank(scale * m)) == pytest.approx(float(effective_rank(m)), rel=1e-9)
    assert int(numerical_rank(scale * m)) == 2
    assert float(trace_norm(scale * m)) / scale == pytest.approx(float(trace_norm(m)), rel=1e-9)
    assert torch.allclose(off_span(m[0], scale * m[:1]), torch.zeros(2).double(), atol=1e-12)
    far = distance_to_limits(scale * m[0], {"a": scale * m[1]}, "relative")["a"]
    assert float(far) == pytest.approx(8**0.5 / 5, rel=1e-9)
    y = torch.ones(2)
    assert float(margin(scale * m[0], m, y)) == pytest.approx(float(margin(m[0], m, y)))
    assert float(margin(m[0], scale * m, y)) / scale == pytest.approx(float(margin(m[0], m, y)))


def test_overflow_is_a_sentence():
    huge = torch.full((3, 3), 1.7e308, dtype=torch.float64)
    with pytest.raises(VelocityOverflowError, match="nuclear norm"):
        trace_norm(huge)
    with pytest.raises(VelocityOverflowError, match="balance"):
        balancedness(Diagonal(2), huge[:2] * torch.tensor([[1.0], [0.5]]))


def test_mixed_dtypes_take_the_wider():
    single, double = BETA.float(), BETA.double()
    assert cosine(single, double).dtype == torch.float64
    assert angle(single, double).dtype == torch.float64
    assert gaussian_accuracy(single, double).dtype == torch.float64
    x, y = torch.eye(4), torch.ones(4, dtype=torch.int64)
    assert normalized_margins(double, x, y).dtype == torch.float64
    assert off_span(double, x).dtype == torch.float64
    assert distance_to_limits(double, {"a": single})["a"].dtype == torch.float64
    assert effective_rank(x.half()).dtype == torch.float32
