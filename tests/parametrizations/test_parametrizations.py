"""Every parametrization against the dense autograd Jacobian of its own predictions."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from natgrad import DeepLinear, Diagonal, Direct, MatrixProduct, Network, reference
from natgrad.errors import InvalidInputError, RankDeficientError, SaddlePointError
from natgrad.parametrizations.base import combine, flatten, leaves, rebuild, unflatten
from tests.helpers import (
    F64,
    LINEAR,
    MODELS,
    NETWORKS,
    MeanShift,
    assert_near,
    chain,
    deep,
    generator,
    integers,
    mlp,
    model,
    module,
    pinv,
    randn,
)

models = pytest.mark.parametrize("m", MODELS, ids=str)
linear = pytest.mark.parametrize("m", LINEAR, ids=str)


def direction(m, seed: int = 0):
    """A random element of the parameters' space, in their structure."""
    return reference.unflatten(randn(len(reference.flatten(m.params)), seed=seed), m.params)


def jacobian(m, x: Tensor, layer: int | None = None) -> Tensor:
    """The autograd Jacobian `(n k, p)`, columns of other layers set to zero."""
    j = reference.jacobian(m.parametrization, m.params, x).flatten(0, 1)
    if layer is None:
        return j
    ones = reference.unflatten(torch.ones(j.shape[1], dtype=F64), m.params)
    return j * reference.flatten(m.parametrization.restrict(ones, layer))


def layers(m) -> list[int | None]:
    return [None, *range(m.parametrization.layers(m.params))]


# Predictions from their formulas.


def product(ws):
    out = ws[0]
    for w in ws[1:]:
        out = out @ w
    return out


FORMULAS = {
    "direct-vector": lambda w, x: x @ w,
    "direct-matrix": lambda w, x: x @ w,
    "direct-positions": lambda w, x: torch.stack([w[r, c] for r, c in x.tolist()]),
    "diagonal": lambda w, x: x @ w.prod(0),
    "matrix_product": lambda w, x: torch.stack([product(w)[r, c] for r, c in x.tolist()]),
    "deep_linear": lambda w, x: x @ product(w[::-1]).mT,
}


@linear
def test_predictions_follow_the_formula(m):
    formula = FORMULAS.get(m.name) or FORMULAS[m.name.split("-")[0]]
    assert_near(m.parametrization.predict(m.params, m.x), formula(m.params, m.x), 1e-13)


@pytest.mark.parametrize("m", NETWORKS, ids=str)
def test_networks_predict_what_the_module_does(m):
    assert torch.equal(m.parametrization.predict(m.params, m.x), m.parametrization.module(m.x))


# Jacobian products.


@models
def test_checks_accept_the_models(m):
    m.parametrization.check(m.params)
    m.parametrization.check_inputs(m.params, m.x)


@models
def test_jvp_and_vjp(m):
    v, outputs = direction(m), m.parametrization.predict(m.params, m.x)
    j, u = jacobian(m, m.x), randn(*outputs.shape, seed=1)
    moved = m.parametrization.jvp(m.params, m.x, v)
    assert moved.shape == outputs.shape
    assert_near(moved.reshape(-1), j @ reference.flatten(v), 1e-12)
    pulled = m.parametrization.vjp(m.params, m.x, u)
    assert [t.shape for t in leaves(pulled)] == [t.shape for t in leaves(m.params)]
    assert type(pulled) is type(m.params)
    assert_near(reference.flatten(pulled), j.mT @ u.reshape(-1), 1e-12)


@models
def test_design_is_the_jacobian_in_compressed_coordinates(m):
    for layer in layers(m):
        design, j = m.parametrization.design(m.params, m.x, layer), jacobian(m, m.x, layer)
        a = design.matrix.flatten(0, 1)
        assert design.matrix.shape[0] == len(m.x)
        v, u = direction(m, seed=2), randn(len(j), seed=3)
        assert_near(a @ design.compress(v), j @ reference.flatten(v), 1e-12)
        assert_near(reference.flatten(design.expand(a.mT @ u)), j.mT @ u, 1e-12)


@models
def test_design_leaves_out_orthonormal_rows(m):
    for layer in layers(m):
        design = m.parametrization.design(m.params, m.x, layer)
        eye = torch.eye(design.matrix.shape[2], dtype=F64)
        q = torch.stack([reference.flatten(design.expand(z)) for z in eye])
        assert_near(q @ q.mT, eye, 1e-13)
        v = direction(m, seed=4)
        assert_near(design.compress(v), q @ reference.flatten(v), 1e-13)


def test_diagonal_design_is_as_wide_as_the_hypothesis():
    m = model("diagonal-4")
    assert m.parametrization.design(m.params, m.x).matrix.shape == (4, 1, 3)


@models
def test_gram_is_the_kernel_of_the_jacobian(m):
    for layer in layers(m):
        a, b = jacobian(m, m.x, layer), jacobian(m, m.other, layer)
        own = m.parametrization.gram(m.params, m.x, m.x, layer)
        cross = m.parametrization.gram(m.params, m.x, m.other, layer)
        n, k = len(m.x), len(a) // len(m.x)
        assert own.shape == (n, k, n, k)
        assert cross.shape == (n, k, len(m.other), k)
        assert_near(own.reshape(n * k, n * k), a @ a.mT, 1e-12)
        assert_near(cross.reshape(n * k, -1), a @ b.mT, 1e-12)


@models
def test_layers_partition_the_parameters(m):
    v, count = direction(m, seed=5), m.parametrization.layers(m.params)
    parts = [m.parametrization.restrict(v, layer) for layer in range(count)]
    assert_near(reference.flatten(combine(parts, [1.0] * count)), reference.flatten(v), 0.0)
    support = torch.stack([reference.flatten(part) != 0 for part in parts])
    assert bool((support.sum(0) == 1).all())


def test_layers_of_a_network_are_its_modules_with_parameters():
    m = model("network-conv")
    assert m.parametrization.layers(m.params) == 2
    first = m.parametrization.restrict(m.params, 0)
    assert {name for name, t in first.items() if bool(t.any())} == {"0.weight", "0.bias"}


def test_layers_of_a_network_do_not_depend_on_the_order_of_the_dict():
    """The docstring states that the order is the module's."""
    m = model("network-mlp")
    reordered = dict(reversed(m.params.items()))
    first = m.parametrization.restrict(reordered, 0)
    assert {name for name, t in first.items() if bool(t.any())} == {"0.weight", "0.bias"}


# Lifts.


def hypothesis_jacobian(m) -> Tensor:
    def h(w: Tensor) -> Tensor:
        return m.parametrization.hypothesis(reference.unflatten(w, m.params)).reshape(-1)

    return jacrev(h)(reference.flatten(m.params))


@linear
def test_push_and_pull_are_the_jacobian_of_the_hypothesis(m):
    j, h = hypothesis_jacobian(m), m.parametrization.hypothesis(m.params)
    v, g = direction(m, seed=6), randn(*h.shape, seed=7)
    pushed = m.parametrization.push(m.params, v)
    assert_near(pushed.reshape(-1), j @ reference.flatten(v), 1e-12)
    assert_near(reference.flatten(m.parametrization.pull(m.params, g)), j.mT @ g.reshape(-1), 1e-12)


@linear
def test_evaluation_and_its_adjoint(m):
    h = m.parametrization.hypothesis(m.params)
    out = m.parametrization.evaluate(h, m.x)
    g, u = randn(*h.shape, seed=8), randn(*out.shape, seed=9)
    left = (m.parametrization.evaluate(g, m.x) * u).sum()
    right = (g * m.parametrization.adjoint(h, m.x, u)).sum()
    assert float(left) == pytest.approx(float(right))


def reachable_velocity(m, seed: int = 10) -> Tensor:
    j, h = hypothesis_jacobian(m), m.parametrization.hypothesis(m.params)
    return (j @ randn(j.shape[1], seed=seed)).reshape(h.shape)


@linear
def test_shortest_lift_is_that_of_the_pseudo_inverse(m):
    j, u = hypothesis_jacobian(m), reachable_velocity(m)
    v = m.parametrization.lift(m.params, u)
    assert_near(m.parametrization.push(m.params, v), u, 1e-9)
    assert_near(reference.flatten(v), pinv(j, 1e-11) @ u.reshape(-1), 1e-8)


def alone(m) -> list[bool]:
    """Which layers can produce every velocity of the hypothesis alone."""
    j = hypothesis_jacobian(m)
    count = m.parametrization.layers(m.params)
    ones = reference.unflatten(torch.ones(j.shape[1], dtype=F64), m.params)
    masks = [reference.flatten(m.parametrization.restrict(ones, layer)) for layer in range(count)]
    return [int(torch.linalg.matrix_rank(j * mask)) == len(j) for mask in masks]


@linear
def test_each_layer_lifts_its_share_by_its_own_pseudo_inverse(m):
    able, j = alone(m), hypothesis_jacobian(m)
    u = randn(*m.parametrization.hypothesis(m.params).shape, seed=11)
    for layer, possible in enumerate(able):
        shares = [0.0] * len(able)
        shares[layer] = 1.0
        if possible:
            v = m.parametrization.lift(m.params, u, shares=shares)
            ones = reference.unflatten(torch.ones(j.shape[1], dtype=F64), m.params)
            part = j * reference.flatten(m.parametrization.restrict(ones, layer))
            assert_near(reference.flatten(v), pinv(part, 1e-11) @ u.reshape(-1), 1e-8)
        else:
            with pytest.raises(RankDeficientError, match=r"layer \d"):
                m.parametrization.lift(m.params, u, shares=shares)


@pytest.mark.parametrize("m", [m for m in LINEAR if all(alone(m))], ids=str)
def test_unequal_shares_add_up(m):
    u = randn(*m.parametrization.hypothesis(m.params).shape, seed=12)
    weights = torch.arange(1.0, m.parametrization.layers(m.params) + 1, dtype=F64)
    shares = (weights / weights.sum()).tolist()
    v = m.parametrization.lift(m.params, u, shares=shares)
    assert_near(m.parametrization.push(m.params, v), u, 1e-9)
    for layer, share in enumerate(shares):
        part = m.parametrization.restrict(v, layer)
        assert_near(m.parametrization.push(m.params, part), share * u, 1e-9)


@pytest.mark.parametrize(
    "name",
    ["matrix_product-3-bottleneck", "matrix_product-4-bottleneck", "deep_linear-3-bottleneck"],
)
def test_unreachable_velocities_are_refused(name):
    m = model(name)
    u = randn(*m.parametrization.hypothesis(m.params).shape, seed=13)
    with pytest.raises(RankDeficientError, match=r"misses it by .*natural\(\)"):
        m.parametrization.lift(m.params, u)


def test_diagonal_lift_refuses_coordinates_without_gradient():
    network = Diagonal(3)
    w = torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]], dtype=F64)
    with pytest.raises(RankDeficientError, match="1 of 2 coordinates"):
        network.lift(w, torch.ones(2, dtype=F64))
    v = network.lift(w, torch.tensor([0.0, 1.0], dtype=F64))
    assert_near(network.push(w, v), torch.tensor([0.0, 1.0], dtype=F64), 1e-14)
    assert not network.surjective(w)
    assert network.surjective(w + 1)


@pytest.mark.parametrize("size", [1e-80, 1e80])
def test_diagonal_lift_neither_under_nor_overflows(size):
    network, u = Diagonal(3), torch.ones(2, dtype=F64)
    w = size * torch.tensor([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]], dtype=F64)
    v = network.lift(w, u)
    assert_near(network.push(w, v), u, 1e-12)
    assert_near(v / size**-2, network.lift(w / size, u), 1e-12)


@pytest.mark.parametrize(
    "m", [m for m in LINEAR if isinstance(m.parametrization, (Diagonal, MatrixProduct))], ids=str
)
def test_surjectivity_is_full_row_rank(m):
    j = hypothesis_jacobian(m)
    expected = int(torch.linalg.matrix_rank(j)) == len(j)
    assert m.parametrization.surjective(m.params) == expected


@pytest.mark.parametrize("damping", [1e-3, 1.0])
@pytest.mark.parametrize("m", [m for m in LINEAR if "matrix_product" in m.name], ids=str)
def test_damped_lift_of_a_matrix_product(m, damping):
    j = hypothesis_jacobian(m)
    u = randn(*m.parametrization.hypothesis(m.params).shape, seed=14)
    damped = j @ j.mT + damping * torch.eye(len(j), dtype=F64)
    expected = j.mT @ torch.linalg.solve(damped, u.reshape(-1))
    v = m.parametrization.lift(m.params, u, damping=damping)
    assert_near(reference.flatten(v), expected, 1e-8)


@pytest.mark.parametrize("m", [m for m in LINEAR if "matrix_product" in m.name], ids=str)
def test_natural_lift_reaches_the_nearest_velocity(m):
    j = hypothesis_jacobian(m)
    u = randn(*m.parametrization.hypothesis(m.params).shape, seed=15)
    v = m.parametrization.natural_lift(m.params, u, None, 0.0)
    assert_near(reference.flatten(v), pinv(j, 1e-11) @ u.reshape(-1), 1e-8)


@pytest.mark.parametrize("widths", [(4, 2, 3, 4), (3, 3, 1, 3, 3)], ids=str)
def test_natural_lift_of_a_bottleneck_in_single_precision(widths):
    ws, model32 = chain(widths, seed=5), MatrixProduct(len(widths) - 1)
    u = randn(widths[0], widths[-1], seed=6)
    expected = model32.push(ws, model32.natural_lift(ws, u, None, 0.0))
    single = tuple(w.float() for w in ws)
    v = model32.natural_lift(single, u.float(), None, 0.0)
    assert all(t.dtype == torch.float32 for t in v)
    assert_near(model32.push(ws, tuple(t.double() for t in v)), expected, 1e-3)


def test_deep_linear_partial_products():
    w = deep((2, 3, 4, 3), seed=1)
    ahead, behind = DeepLinear((2, 3, 4, 3)).partial_products(w)
    assert ahead[2] is None
    assert behind[0] is None
    assert_near(ahead[0], w[2] @ w[1], 1e-14)
    assert_near(ahead[1], w[2], 0.0)
    assert_near(behind[1], w[0], 0.0)
    assert_near(behind[2], w[1] @ w[0], 1e-14)


# Networks.


@pytest.mark.parametrize("memory", [1, 500, 2000])
@pytest.mark.parametrize("m", NETWORKS, ids=str)
def test_kernels_from_chunks_equal_those_at_once(m, memory):
    small = Network(m.parametrization.module, memory=memory)
    for layer in layers(m):
        for other in (m.x, m.other):
            expected = m.parametrization.gram(m.params, m.x, other, layer)
            assert_near(small.gram(m.params, m.x, other, layer), expected, 1e-13)
        expected = m.parametrization.design(m.params, m.x, layer).matrix
        assert_near(small.design(m.params, m.x, layer).matrix, expected, 1e-13)


def test_memory_bounds_the_rows_computed_at_once():
    m, sizes = model("network-mlp"), []
    inner = m.parametrization.module
    p = sum(t.numel() for t in m.params.values())
    network = Network(inner, memory=2 * p * 8)  # two samples, one output, eight bytes
    for rows in network._row_chunks(m.params, m.x, list(m.params)):
        sizes.append(tuple(rows.shape))
    assert sizes == [(2, 1, p), (2, 1, p)]


def test_frozen_parameters_stay_out():
    m = model("network-frozen")
    assert set(m.params) == {"0.weight", "2.weight", "2.bias"}
    j = reference.jacobian(m.parametrization, m.params, m.x)
    assert j.shape[2] == sum(t.numel() for t in m.params.values())


def test_a_part_of_the_parameters_can_be_trained():
    inner = module(lambda: mlp(2))
    network, x = Network(inner), randn(4, 3, seed=1)
    whole = network.init()
    part = {"2.weight": whole["2.weight"] + 1}
    out = network.predict(part, x)
    assert_near(out, network.predict({**whole, **part}, x), 0.0)
    j = reference.jacobian(network, part, x).flatten(0, 1)
    assert_near(network.design(part, x).matrix.flatten(0, 1), j, 1e-12)
    assert network.layers(part) == 1


def test_init_copies_the_module():
    inner = module(mlp)
    params = Network(inner).init()
    params["0.weight"].zero_()
    assert bool(inner[0].weight.any())
    assert not params["0.weight"].requires_grad


class SilentInteraction(torch.nn.Module):
    """Outputs do not show yet that samples interact, because the gain starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)
        self.gain = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[:, 0] + x.mean(0) @ self.gain


def test_interaction_is_noticed_even_where_its_gain_is_zero():
    inner = SilentInteraction().double()
    network, x = Network(inner), randn(4, 3, seed=2)
    params = network.init()
    expected = reference.jacobian(network, params, x)
    assert_near(network.design(params, x).matrix, expected, 1e-12)


def test_a_module_that_mixes_data_differs_from_single_data():
    """The fixture is a real test of interaction: alone, every sample has output zero."""
    network = Network(module(MeanShift))
    params, x = network.init(), randn(4, 3, seed=3)
    assert bool(network.predict(params, x).abs().max() > 0.1)
    assert not bool(network.predict(params, x[:1]).any())


# Initializations.


def test_free_and_tied_initializations_of_a_diagonal_network():
    network = Diagonal(3)
    free, tied = network.init_free(4, scale=0.5), network.init_tied(4, scale=0.5)
    assert free.tolist() == [[0.0] * 4, [0.5] * 4, [0.5] * 4]
    assert tied.tolist() == [[0.5] * 4] * 3
    assert free.dtype == tied.dtype == F64
    assert network.init_free(2, dtype=torch.float32).dtype == torch.float32
    network.check(free)


def normal_with_deviation(sample: Tensor, deviation: float) -> None:
    """Mean and variance within four standard errors."""
    n = sample.numel()
    assert abs(float(sample.mean())) <= 4 * deviation / n**0.5
    assert abs(float(sample.var()) / deviation**2 - 1) <= 4 * (2 / n) ** 0.5


def test_gaussian_initialization_of_a_diagonal_network():
    w = Diagonal(3).init_gaussian(4000, scale=0.2, generator=generator(0))
    assert w.shape == (3, 4000)
    for row in w:
        normal_with_deviation(row, 0.2)


def test_gaussian_initialization_of_a_matrix_product():
    ws = MatrixProduct(3).init_gaussian((40, 60), scale=1e-3, generator=generator(0))
    assert [tuple(w.shape) for w in ws] == [(40, 60), (60, 60), (60, 60)]
    for w in ws:
        normal_with_deviation(w, 1e-1 / 60**0.5)
    beta = MatrixProduct(3).hypothesis(ws)
    assert float(beta.std()) == pytest.approx(1e-3 / 60**0.5, rel=0.15)
    narrow = MatrixProduct(3).init_gaussian((40, 60), hidden=2, generator=generator(0))
    assert [tuple(w.shape) for w in narrow] == [(40, 2), (2, 2), (2, 60)]


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_orthogonal_initialization_of_a_matrix_product(depth, shape):
    m = MatrixProduct(depth)
    ws = m.init_orthogonal(shape, scale=0.3, generator=generator(1))
    singular = torch.linalg.svdvals(m.hypothesis(ws))
    assert m.hypothesis(ws).shape == shape
    assert_near(singular, torch.full_like(singular, 0.3), 1e-12)


def test_collapsed_initialization_has_the_same_product():
    shape = (3, 4)
    m, whole = MatrixProduct(2), MatrixProduct(6)
    collapsed = m.init_collapsed(shape, from_depth=6, scale=0.5, generator=generator(2))
    factors = whole.init_gaussian(shape, scale=0.5, generator=generator(2))
    assert len(collapsed) == 2
    assert_near(m.hypothesis(collapsed), whole.hypothesis(factors), 1e-13)
    with pytest.raises(InvalidInputError, match=r"multiple of depth 2, but is 5"):
        m.init_collapsed(shape, from_depth=5)
    with pytest.raises(InvalidInputError, match="multiple of depth 2, but is 0"):
        m.init_collapsed(shape, from_depth=0)


def test_initializations_of_a_deep_linear_network():
    network = DeepLinear((60, 50, 80))
    gaussian = network.init_gaussian(scale=0.25, generator=generator(3))
    assert [tuple(w.shape) for w in gaussian] == [(50, 60), (80, 50)]
    normal_with_deviation(gaussian[0], 0.5 / 60**0.5)
    normal_with_deviation(gaussian[1], 0.5 / 50**0.5)
    orthogonal = network.init_orthogonal(scale=0.25, generator=generator(3))
    for w in orthogonal:
        singular = torch.linalg.svdvals(w)
        assert_near(singular, torch.full_like(singular, 0.5), 1e-12)


RANDOM = {
    "diagonal": lambda **kw: Diagonal(2).init_gaussian(3, **kw),
    "product-gaussian": lambda **kw: MatrixProduct(2).init_gaussian((3, 3), **kw),
    "product-orthogonal": lambda **kw: MatrixProduct(2).init_orthogonal((3, 3), **kw),
    "product-collapsed": lambda **kw: MatrixProduct(2).init_collapsed((3, 3), from_depth=4, **kw),
    "deep-gaussian": lambda **kw: DeepLinear((3, 4, 2)).init_gaussian(**kw),
    "deep-orthogonal": lambda **kw: DeepLinear((3, 4, 2)).init_orthogonal(**kw),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_initializations_are_reproducible(name):
    state = torch.random.get_rng_state()
    one, two, other = (reference.flatten(RANDOM[name](generator=generator(s))) for s in (4, 4, 5))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())
    single = RANDOM[name](generator=generator(4), dtype=torch.float32)
    assert all(t.dtype == torch.float32 for t in leaves(single))


SCALED = RANDOM | {
    "diagonal-free": lambda **kw: Diagonal(2).init_free(3, **kw),
    "diagonal-tied": lambda **kw: Diagonal(2).init_tied(3, **kw),
}


@pytest.mark.parametrize("name", SCALED)
def test_initializations_at_the_saddle_are_refused(name):
    with pytest.raises(SaddlePointError, match=r"scale=0 .*saddle"):
        SCALED[name](scale=0.0)


@pytest.mark.parametrize("scale", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", SCALED)
def test_initializations_need_a_positive_finite_scale(name, scale):
    with pytest.raises(InvalidInputError, match=f"positive and finite, but is {scale}"):
        SCALED[name](scale=scale)


# Parameter structures.


@pytest.mark.parametrize(
    "params",
    [randn(2, 3, seed=1), (randn(2, seed=2), randn(1, 2, seed=3)), {"a": randn(2, 2, seed=4)}],
    ids=["tensor", "tuple", "dict"],
)
def test_flattening_round_trip(params):
    vector = flatten(params)
    back = unflatten(vector, params)
    assert type(back) is type(params)
    assert torch.equal(flatten(back), vector)
    assert torch.equal(reference.flatten(params), vector)
    doubled = rebuild([2 * t for t in leaves(params)], params)
    assert_near(flatten(combine([params, doubled], [1.0, -0.5])), torch.zeros_like(vector), 1e-15)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", ["direct-positions", "matrix_product-3"])
def test_positions_may_have_any_integer_dtype(name, dtype):
    m = model(name)
    x, n = m.x.to(dtype), len(m.x)
    m.parametrization.check_inputs(m.params, x)
    assert_near(
        m.parametrization.predict(m.params, x), m.parametrization.predict(m.params, m.x), 0.0
    )
    j = reference.jacobian(m.parametrization, m.params, m.x).flatten(0, 1)
    assert_near(m.parametrization.design(m.params, x).matrix.flatten(0, 1), j, 1e-12)
    assert_near(m.parametrization.gram(m.params, x, x).reshape(n, n), j @ j.mT, 1e-12)
    pulled = m.parametrization.vjp(m.params, x, torch.ones(n, dtype=F64))
    assert_near(reference.flatten(pulled), j.sum(0), 1e-12)


def test_direct_gram_of_repeated_positions():
    w, x = integers(2, 2, seed=1), torch.tensor([[0, 1], [1, 1], [0, 1]])
    kernel = Direct().gram(w, x, x)[:, 0, :, 0]
    assert kernel.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
