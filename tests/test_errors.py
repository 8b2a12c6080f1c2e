"""Bad inputs through the public entries: the class of the error, and what its message names."""

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Diagonal,
    Direct,
    Gaussian,
    GaussianInputs,
    LayerShares,
    MatrixProduct,
    Network,
    errors,
    euclidean,
    natural,
    reference,
)
from natgrad.errors import (
    DeviceError,
    DtypeError,
    InvalidInputError,
    LabelError,
    ModuleError,
    NatgradError,
    NonFiniteError,
    RankDeficientError,
    SaddlePointError,
    ShapeError,
    UnsupportedError,
    VelocityOverflowError,
)
from tests.helpers import F64, assert_near, chain, deep, mlp, module, randn

X, Y = randn(4, 3, seed=1), torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=F64)
TARGETS = randn(4, 2, seed=2)
BETA = randn(3, seed=3)
W = randn(2, 3, seed=4)  # of Diagonal(2)
ENTRIES, VALUES = torch.tensor([[0, 1], [2, 2], [1, 0]]), randn(3, seed=5)
FACTORS = chain((3, 3, 3), seed=6)
LAYERS = deep((3, 4, 2), seed=7)
MLP = Network(module(lambda: mlp(2)))
PARAMS = MLP.init()
NAN, INF = math.nan, math.inf


def spoiled(t: Tensor, value: float) -> Tensor:
    out = t.clone()
    out.view(-1)[0] = value
    return out


class Bad(NamedTuple):
    """Arguments of `natural` and `euclidean`, the error, and phrases of its message."""

    likelihood: object
    parametrization: object
    params: object
    batch: object
    error: type[NatgradError]
    phrases: tuple[str, ...]


BATCH = (X, Y)
MATRIX = (ENTRIES, VALUES)
PROBLEMS = {
    # labels
    "labels-three": Bad(Bernoulli(), Direct(), BETA, (X, 3 * Y), LabelError, ("−1 or +1", "is 3")),
    "labels-01": Bad(
        Bernoulli(), Direct(), BETA, (X, (Y + 1) / 2), LabelError, ("−1 or +1", "is 0", "zero_one")
    ),
    "labels-minus-in-01": Bad(
        Bernoulli(zero_one=True), Direct(), BETA, BATCH, LabelError, ("0 or 1", "is -1")
    ),
    "labels-class": Bad(
        Categorical(),
        Direct(),
        randn(3, 2, seed=8),
        (X, torch.tensor([0, 1, 2, 0])),
        LabelError,
        ("0…1", "2 logits", "0 to 2"),
    ),
    "labels-float-class": Bad(
        Categorical(), Direct(), randn(3, 2, seed=8), BATCH, DtypeError, ("integer", "float64")
    ),
    "labels-nan": Bad(
        Gaussian(), Direct(), BETA, (X, spoiled(Y, NAN)), NonFiniteError, ("targets", "finite")
    ),
    "labels-inf": Bad(
        Gaussian(), Direct(), BETA, (X, spoiled(Y, INF)), NonFiniteError, ("targets", "finite")
    ),
    "labels-nan-bernoulli": Bad(
        Bernoulli(), Direct(), BETA, (X, spoiled(Y, NAN)), LabelError, ("−1 or +1", "nan")
    ),
    "labels-too-few": Bad(
        Bernoulli(), Direct(), BETA, (X, Y[:3]), ShapeError, ("4 inputs", "(3,)")
    ),
    "labels-scalar": Bad(Bernoulli(), Direct(), BETA, (X, Y[0]), ShapeError, ("4 inputs", "()")),
    "labels-list": Bad(
        Bernoulli(), Direct(), BETA, (X, Y.tolist()), DtypeError, ("torch.Tensor", "list")
    ),
    "labels-width": Bad(
        Gaussian(), Direct(), BETA, (X, TARGETS), ShapeError, ("1 per sample", "have 2", "(4, 2)")
    ),
    "labels-device": Bad(
        Bernoulli(), Direct(), BETA, (X, Y.to("meta")), DeviceError, ("cpu", "meta")
    ),
    # batches and inputs
    "batch-single": Bad(Bernoulli(), Direct(), BETA, X, DtypeError, ("pair (x, y)", "Tensor")),
    "batch-triple": Bad(
        Bernoulli(), Direct(), BETA, (X, Y, Y), DtypeError, ("pair (x, y)", "tuple of length 3")
    ),
    "batch-empty": Bad(
        Bernoulli(), Direct(), BETA, (X[:0], Y[:0]), ShapeError, ("empty", "(0, 3)")
    ),
    "inputs-list": Bad(
        Bernoulli(), Direct(), BETA, (X.tolist(), Y), DtypeError, ("torch.Tensor", "list")
    ),
    "inputs-width": Bad(
        Bernoulli(), Direct(), BETA, (X[:, :2], Y), ShapeError, ("(n, 3)", "(4, 2)")
    ),
    "inputs-vector": Bad(Bernoulli(), Direct(), BETA, (X[:, 0], Y), ShapeError, ("(n, 3)", "(4,)")),
    "inputs-scalar": Bad(Bernoulli(), Direct(), BETA, (X[0, 0], Y), ShapeError, ("()",)),
    "inputs-nan": Bad(
        Bernoulli(), Direct(), BETA, (spoiled(X, NAN), Y), NonFiniteError, ("inputs", "finite")
    ),
    "inputs-inf": Bad(
        Bernoulli(), Diagonal(2), W, (spoiled(X, INF), Y), NonFiniteError, ("inputs", "finite")
    ),
    "inputs-dtype": Bad(
        Bernoulli(), Direct(), BETA, (X.float(), Y), DtypeError, ("float32", "float64")
    ),
    "inputs-integer": Bad(
        Bernoulli(), Diagonal(2), W, (X.long(), Y), DtypeError, ("int64", "float64")
    ),
    "inputs-device": Bad(
        Bernoulli(), Direct(), BETA, (X.to("meta"), Y), DeviceError, ("meta", "cpu")
    ),
    "inputs-dtype-network": Bad(
        Gaussian(), MLP, PARAMS, (X.float(), TARGETS), DtypeError, ("float32", "float64")
    ),
    # positions
    "positions-high": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES + 1, VALUES),
        ShapeError,
        ("3×3", "(1, 1) to (3, 3)"),
    ),
    "positions-negative": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES - 1, VALUES),
        ShapeError,
        ("3×3", "(-1, -1)"),
    ),
    "positions-direct": Bad(
        Gaussian(), Direct(), randn(2, 3, seed=1), MATRIX, ShapeError, ("2×3", "(2, 2)")
    ),
    "positions-float": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES.double(), VALUES),
        DtypeError,
        ("integer positions", "float64", "x.long()"),
    ),
    "positions-bool": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES.bool(), VALUES),
        DtypeError,
        ("integer positions", "bool"),
    ),
    "positions-shape": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES[:, 0], VALUES),
        ShapeError,
        ("(n, 2)", "(3,)"),
    ),
    "positions-device": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES.to("meta"), VALUES),
        DeviceError,
        ("meta", "cpu"),
    ),
    "positions-empty": Bad(
        Gaussian(),
        MatrixProduct(2),
        FACTORS,
        (ENTRIES[:0], VALUES[:0]),
        ShapeError,
        ("empty", "(0, 2)"),
    ),
    # parameters
    "params-nan": Bad(
        Bernoulli(), Direct(), spoiled(BETA, NAN), BATCH, NonFiniteError, ("parameters", "finite")
    ),
    "params-inf-factor": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], spoiled(FACTORS[1], -INF)),
        MATRIX,
        NonFiniteError,
        ("factors", "finite"),
    ),
    "params-nan-network": Bad(
        Gaussian(),
        MLP,
        {**PARAMS, "0.bias": spoiled(PARAMS["0.bias"], NAN)},
        (X, TARGETS),
        NonFiniteError,
        ("parameters", "finite"),
    ),
    "params-integer": Bad(
        Bernoulli(), Direct(), BETA.long(), BATCH, DtypeError, ("floating-point", "int64")
    ),
    "params-integer-factor": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], FACTORS[1].long()),
        MATRIX,
        DtypeError,
        ("floating-point", "int64"),
    ),
    "params-mixed-dtypes": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], FACTORS[1].float()),
        MATRIX,
        DtypeError,
        ("float64", "float32"),
    ),
    "params-mixed-devices": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], FACTORS[1].to("meta")),
        MATRIX,
        DeviceError,
        ("cpu", "meta"),
    ),
    "params-list": Bad(Bernoulli(), Direct(), BETA.tolist(), BATCH, DtypeError, ("tensor", "list")),
    "params-list-of-factors": Bad(
        Gaussian(), MatrixProduct(2), list(FACTORS), MATRIX, DtypeError, ("tuple", "list")
    ),
    "params-list-of-layers": Bad(
        Gaussian(), DeepLinear((3, 4, 2)), list(LAYERS), (X, TARGETS), DtypeError, ("tuple", "list")
    ),
    "params-tuple-of-lists": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], FACTORS[1].tolist()),
        MATRIX,
        DtypeError,
        ("tensors", "list"),
    ),
    "params-tuple-diagonal": Bad(
        Bernoulli(), Diagonal(2), tuple(W), BATCH, DtypeError, ("(L, d)", "tuple")
    ),
    "params-count": Bad(
        Gaussian(), MatrixProduct(3), FACTORS, MATRIX, ShapeError, ("3 factors", "got 2")
    ),
    "params-count-layers": Bad(
        Gaussian(),
        DeepLinear((3, 4, 2)),
        LAYERS[:1],
        (X, TARGETS),
        ShapeError,
        ("2 factors", "got 1"),
    ),
    "params-not-chaining": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], randn(2, 3, seed=9)),
        MATRIX,
        ShapeError,
        ("chain", "W_1 is (3, 3)", "W_2 is (2, 3)"),
    ),
    "params-wrong-width": Bad(
        Gaussian(),
        DeepLinear((3, 4, 2)),
        (LAYERS[0], randn(2, 3, seed=9)),
        (X, TARGETS),
        ShapeError,
        ("W_2", "(2, 4)", "(2, 3)"),
    ),
    "params-vector-factor": Bad(
        Gaussian(),
        MatrixProduct(2),
        (FACTORS[0], FACTORS[1][0]),
        MATRIX,
        ShapeError,
        ("W_2", "matrix", "(3,)"),
    ),
    "params-3d": Bad(
        Bernoulli(), Direct(), randn(3, 1, 1, seed=1), BATCH, ShapeError, ("(d, k)", "(3, 1, 1)")
    ),
    "params-wrong-depth": Bad(Bernoulli(), Diagonal(3), W, BATCH, ShapeError, ("(3, d)", "(2, 3)")),
    "params-empty-dict": Bad(Gaussian(), MLP, {}, (X, TARGETS), DtypeError, ("non-empty dict",)),
    "params-tuple-network": Bad(
        Gaussian(), MLP, tuple(PARAMS.values()), (X, TARGETS), DtypeError, ("dict", "tuple")
    ),
    "params-unknown-name": Bad(
        Gaussian(),
        MLP,
        {"missing": BETA},
        (X, TARGETS),
        ShapeError,
        ("no parameter 'missing'", "0.weight"),
    ),
    "params-shape-network": Bad(
        Gaussian(),
        MLP,
        {**PARAMS, "0.bias": BETA},
        (X, TARGETS),
        ShapeError,
        ("'0.bias'", "(4,)", "(3,)"),
    ),
    "saddle-diagonal": Bad(
        Bernoulli(), Diagonal(2), 0 * W, BATCH, SaddlePointError, ("2 factors", "zero", "init_free")
    ),
    "saddle-product": Bad(
        Gaussian(),
        MatrixProduct(2),
        tuple(0 * w for w in FACTORS),
        MATRIX,
        SaddlePointError,
        ("2 factors", "zero"),
    ),
    "saddle-deep": Bad(
        Gaussian(),
        DeepLinear((3, 4, 2)),
        tuple(0 * w for w in LAYERS),
        (X, TARGETS),
        SaddlePointError,
        ("2 factors", "zero"),
    ),
}


@pytest.mark.parametrize("entry", [natural, euclidean], ids=["natural", "euclidean"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_bad_problems_are_refused_with_reasons(name, entry):
    case = PROBLEMS[name]
    with pytest.raises(case.error) as caught:
        entry(case.likelihood, case.parametrization, case.params, case.batch)
    assert type(caught.value) is case.error
    for phrase in case.phrases:
        assert phrase in str(caught.value)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), x


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).mean(0, keepdim=True)


class Logarithm(nn.Module):
    """Finite parameters and inputs, outputs that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(-(self.inner(x) ** 2))


def normalized() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 40), nn.Dropout(0.5), nn.Linear(40, 2))


MODULES = {
    "batch-norm": (normalized, True, ModuleError, ("buffer '1.running_mean'", "eval()")),
    "dropout": (dropped, True, ModuleError, ("two forward passes", "Dropout", "eval()")),
    "tuple": (Pair, False, ModuleError, ("one tensor", "tuple")),
    "pooled": (Pooled, False, ModuleError, ("one row of outputs per sample", "(4, 3)", "(1, 2)")),
    "not-finite": (Logarithm, False, NonFiniteError, ("outputs", "finite")),
}


@pytest.mark.parametrize("entry", [natural, euclidean], ids=["natural", "euclidean"])
@pytest.mark.parametrize("name", MODULES)
def test_modules_that_are_no_functions_are_refused(name, entry):
    build, training, error, phrases = MODULES[name]
    inner = module(build).train(training)
    network = Network(inner)
    with pytest.raises(error) as caught:
        entry(Gaussian(), network, network.init(), (X, TARGETS))
    for phrase in phrases:
        assert phrase in str(caught.value)


@pytest.mark.parametrize("build", [normalized, dropped])
def test_the_same_modules_are_welcome_in_evaluation_mode(build):
    network = Network(module(build).eval())
    v = natural(Gaussian(), network, network.init(), (X, TARGETS))
    assert set(v) == set(network.init())


def test_refused_batch_norm_keeps_its_statistics():
    inner = module(normalized).train()
    network = Network(inner)
    with pytest.raises(ModuleError):
        natural(Gaussian(), network, network.init(), (X, TARGETS))
    assert inner[1].running_mean.tolist() == [0.0, 0.0]
    assert int(inner[1].num_batches_tracked) == 0


OPTIONS = {
    "selection-unknown": (
        {"selection": "shortest"},
        InvalidInputError,
        ("'min_norm'", "'shortest'"),
    ),
    "selection-none": ({"selection": None}, InvalidInputError, ("'min_norm'", "None")),
    "shares-too-many": (
        {"selection": LayerShares((0.5, 0.25, 0.25))},
        InvalidInputError,
        ("3 weights", "2 layers"),
    ),
    "shares-too-few": ({"selection": LayerShares((1.0,))}, InvalidInputError, ("1 weights", "2 l")),
    "damping-negative": ({"damping": -0.1}, InvalidInputError, ("damping", "at least 0", "-0.1")),
    "damping-nan": ({"damping": NAN}, InvalidInputError, ("damping", "finite", "nan")),
    "damping-inf": ({"damping": INF}, InvalidInputError, ("damping", "finite", "inf")),
    "fisher-over-unknown": (
        {"fisher_over": "population"},
        InvalidInputError,
        ("GaussianInputs()", "'population'"),
    ),
    "fisher-over-list": (
        {"fisher_over": [1.0]},
        InvalidInputError,
        ("a tensor of inputs", "[1.0]"),
    ),
    "fisher-over-array": (
        {"fisher_over": X.numpy()},
        InvalidInputError,
        ("a tensor of inputs", "array"),
    ),
    "fisher-over-empty": ({"fisher_over": X[:0]}, ShapeError, ("empty", "(0, 3)")),
    "fisher-over-width": ({"fisher_over": X[:, :2]}, ShapeError, ("(n, 3)", "(4, 2)")),
    "fisher-over-dtype": ({"fisher_over": X.float()}, DtypeError, ("float32", "float64")),
    "fisher-over-nan": ({"fisher_over": spoiled(X, NAN)}, NonFiniteError, ("finite",)),
    "fisher-over-all": ({"fisher_over": "all"}, UnsupportedError, ("MatrixProduct", "Diagonal")),
    "population-width": (
        {"fisher_over": GaussianInputs(torch.eye(2, dtype=F64))},
        ShapeError,
        ("2 features", "have 3"),
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bad_options_are_refused_with_reasons(name):
    options, error, phrases = OPTIONS[name]
    with pytest.raises(error) as caught:
        natural(Bernoulli(), Diagonal(2), W, BATCH, **options)
    assert type(caught.value) is error
    for phrase in phrases:
        assert phrase in str(caught.value)


CONSTRUCTORS: dict[str, tuple[Callable[[], object], type[NatgradError], tuple[str, ...]]] = {
    **{
        f"{cls.__name__}-depth-{depth}": (
            lambda cls=cls, depth=depth: cls(depth),
            InvalidInputError,
            ("integer of at least 1", repr(depth)),
        )
        for cls in (Diagonal, MatrixProduct)
        for depth in (0, -2, 2.0, True, "3", None)
    },
    **{
        f"widths-{widths}": (
            lambda widths=widths: DeepLinear(widths),
            InvalidInputError,
            ("two positive integers", repr(widths)),
        )
        for widths in ((3,), (), (3, 0), (3, -1, 2), (3, 2.0))
    },
    "shares-sum": (lambda: LayerShares((0.5, 0.6)), InvalidInputError, ("sum to one", "1.1")),
    "shares-empty": (lambda: LayerShares(()), InvalidInputError, ("sum to one",)),
    "shares-nan": (lambda: LayerShares((NAN, 1.0)), InvalidInputError, ("sum to one", "nan")),
    "shares-inf": (lambda: LayerShares((INF, -INF)), InvalidInputError, ("sum to one", "inf")),
    "module-without-parameters": (lambda: Network(nn.Tanh()), ModuleError, ("Tanh", "parameters")),
    "module-function": (lambda: Network(torch.tanh), DtypeError, ("torch.nn.Module",)),
    "inputs-covariance-shape": (
        lambda: GaussianInputs(torch.ones(2, 3)),
        ShapeError,
        ("square", "(2, 3)"),
    ),
    "inputs-covariance-singular": (
        lambda: GaussianInputs(torch.ones(2, 2)),
        RankDeficientError,
        ("the covariance of inputs", "positive definite"),
    ),
    "inputs-covariance-list": (
        lambda: GaussianInputs([[1.0]]),
        DtypeError,
        ("covariance", "list"),
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_bad_constructions_are_refused_with_reasons(name):
    build, error, phrases = CONSTRUCTORS[name]
    with pytest.raises(error) as caught:
        build()
    for phrase in phrases:
        assert phrase in str(caught.value)


ALL_ENTRIES = torch.cartesian_prod(torch.arange(3), torch.arange(3))


@pytest.mark.parametrize(("over", "rank"), [(None, "rank 1"), ("batch", "rank 3")])
def test_equal_share_refuses_factors_that_lack_rank(over, rank):
    """A product through one hidden unit has five dimensions to move in, each layer three."""
    batch, factors = (ALL_ENTRIES, randn(9, seed=1)), chain((3, 1, 3), seed=1)
    with pytest.raises(RankDeficientError) as caught:
        natural(
            Gaussian(),
            MatrixProduct(2),
            factors,
            batch,
            selection="equal_share",
            fisher_over=over,
        )
    for phrase in ("layer 1", rank, "min_norm"):
        assert phrase in str(caught.value)


def test_equal_share_refuses_a_deep_linear_bottleneck():
    network = DeepLinear((3, 1, 2))
    with pytest.raises(RankDeficientError, match=r"rank 1.*min_norm"):
        natural(Gaussian(), network, deep((3, 1, 2), 1), (X, TARGETS), selection="equal_share")


def test_equal_share_refuses_a_diagonal_network_with_zeros():
    w = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]], dtype=F64)
    with pytest.raises(RankDeficientError, match="layer 2"):
        natural(Bernoulli(), Diagonal(2), w, (X, Y), selection="equal_share")


def test_direction_that_overflows_is_refused():
    x = torch.tensor([[1e-300, 0.0]], dtype=F64)
    y = torch.tensor([-1.0], dtype=F64)
    beta = torch.tensor([600e300, 0.0], dtype=F64)
    with pytest.raises(VelocityOverflowError, match=r"overflows torch\.float64"):
        natural(Bernoulli(), Direct(), beta, (x, y))


@pytest.mark.parametrize("entry", [natural, euclidean], ids=["natural", "euclidean"])
def test_outputs_that_overflow_are_refused(entry):
    """Finite parameters and inputs, but their product is not: no direction of NaNs comes back."""
    with pytest.raises(NatgradError):
        entry(Gaussian(), Direct(), torch.full((3,), 1e308, dtype=F64), (100 * X, Y))


def test_trainable_parameters_may_be_left_out():
    """Those keep the module's values, and whether they require gradients does not matter."""
    inner = module(lambda: mlp(2))
    network = Network(inner)
    part = {"2.weight": network.init()["2.weight"]}
    got = natural(Gaussian(), network, part, (X, TARGETS))
    expected = natural(Gaussian(), Network(inner.requires_grad_(False)), part, (X, TARGETS))
    assert not got["2.weight"].requires_grad
    assert_near(got["2.weight"], expected["2.weight"], 1e-12)


SUPPORTED = {
    "bernoulli-matrix-positions": (Bernoulli(), MatrixProduct(2), FACTORS, (ENTRIES, Y[:3])),
    "diagonal": (Bernoulli(), Diagonal(2), W, BATCH),
    "deep": (Gaussian(), DeepLinear((3, 4, 2)), LAYERS, (X, TARGETS)),
    "network": (Gaussian(), MLP, PARAMS, (X, TARGETS)),
    "dependent-rows": (
        Bernoulli(),
        Direct(),
        torch.tensor([30.0, 5.0], dtype=F64),
        (torch.tensor([[1.0, 2], [2, 4], [1, 1], [1, 1]], dtype=F64), Y),
    ),
}


@pytest.mark.parametrize("entry", [natural, euclidean], ids=["natural", "euclidean"])
@pytest.mark.parametrize("name", SUPPORTED)
def test_parameters_may_require_gradients(name, entry):
    """`dict(module.named_parameters())` is what most callers have at hand."""
    likelihood, parametrization, params, batch = SUPPORTED[name]

    def marked(t):
        return t.detach().clone().requires_grad_(True)

    if isinstance(params, Tensor):
        asked = marked(params)
    elif isinstance(params, dict):
        asked = {key: marked(t) for key, t in params.items()}
    else:
        asked = tuple(marked(t) for t in params)
    got = entry(likelihood, parametrization, asked, batch)
    assert not reference.flatten(got).requires_grad  # a flow must not pile up graphs
    expected = entry(likelihood, parametrization, params, batch)
    assert_near(reference.flatten(got), reference.flatten(expected), 1e-12)


def test_arguments_are_left_as_they_were():
    kept = [t.clone() for t in (*FACTORS, ENTRIES, VALUES)]
    natural(Gaussian(), MatrixProduct(2), FACTORS, MATRIX)
    euclidean(Gaussian(), MatrixProduct(2), FACTORS, MATRIX)
    for before, after in zip(kept, (*FACTORS, ENTRIES, VALUES), strict=True):
        assert torch.equal(before, after)


BUILTINS = {
    "ConvergenceError": ArithmeticError,
    "DeviceError": ValueError,
    "DtypeError": TypeError,
    "InvalidInputError": ValueError,
    "LabelError": ValueError,
    "ModuleError": ValueError,
    "NatgradError": Exception,
    "NonFiniteError": ValueError,
    "RankDeficientError": ArithmeticError,
    "SaddlePointError": ValueError,
    "ShapeError": ValueError,
    "UnsupportedError": NotImplementedError,
    "VelocityOverflowError": OverflowError,
}


def test_every_error_is_listed_here():
    assert set(BUILTINS) == set(errors.__all__)


@pytest.mark.parametrize("name", BUILTINS)
def test_errors_are_also_the_builtin_ones_a_caller_expects(name):
    kind = getattr(errors, name)
    assert issubclass(kind, NatgradError)
    assert issubclass(kind, BUILTINS[name])
