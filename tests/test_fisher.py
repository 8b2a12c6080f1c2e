import pytest
import torch

from natgrad import Bernoulli, Categorical, DeepLinear, Direct, Gaussian, natural, reference
from natgrad.directions._fisher import Fisher
from natgrad.errors import InvalidInputError, UnsupportedError
from tests.helpers import F64, MODELS, assert_near, deep, model, outputs_of, pinv, randn

# Modules that use a layer in unusual ways are left to test_parametrizations.
UNUSUAL = ("tied", "borrowed", "sharing", "in-place", "sequence")
models = pytest.mark.parametrize("m", [m for m in MODELS if not m.name.endswith(UNUSUAL)], ids=str)
reductions = pytest.mark.parametrize("reduction", ["mean", "sum"])


def covariance(k: int):
    root = randn(k, k, seed=k)
    return root @ root.mT + torch.eye(k, dtype=F64)


def likelihoods(k: int, reduction: str) -> dict:
    """Every likelihood that k outputs support."""
    out = {
        "bernoulli": Bernoulli(reduction=reduction, zero_one=reduction == "sum"),
        "gaussian-covariance": Gaussian(covariance(k), reduction=reduction),
    }
    if k > 1:
        out["categorical"] = Categorical(reduction=reduction)
    return out


@models
@reductions
def test_matvec_and_dense_are_the_reference(m, reduction):
    p = len(reference.flatten(m.params))
    v = randn(p, seed=1)
    for name, likelihood in likelihoods(outputs_of(m), reduction).items():
        f = Fisher(likelihood, m.parametrization, m.params, m.x)
        expected = reference.fisher(likelihood, m.parametrization, m.params, m.x)
        moved = f.matvec(reference.unflatten(v, m.params))
        assert type(moved) is type(m.params), name
        assert_near(reference.flatten(moved), expected @ v, 1e-11)
        assert_near(f.dense(), expected, 1e-11)


def layer_columns(m, layer: int):
    ones = reference.unflatten(torch.ones(len(reference.flatten(m.params))).to(F64), m.params)
    return reference.flatten(m.parametrization.restrict(ones, layer - 1)).nonzero()[:, 0]


@models
def test_blocks_are_those_of_the_dense_matrix(m):
    count, k = m.parametrization.layers(m.params), outputs_of(m)
    for likelihood in (Bernoulli(), Gaussian(covariance(k), reduction="sum")):
        f = Fisher(likelihood, m.parametrization, m.params, m.x)
        expected = reference.fisher(likelihood, m.parametrization, m.params, m.x)
        for i in range(1, count + 1):
            for j in range(1, count + 1):
                rows, columns = layer_columns(m, i), layer_columns(m, j)
                assert_near(f.block(i, j), expected[rows][:, columns], 1e-11)


DEEP = {
    "square": ((3, 3, 3, 3), 8),
    "expanding": ((2, 4, 3), 6),
    "one-layer": ((3, 2), 6),
    "one-unit": ((1, 1, 1), 3),
    "contracting": ((3, 2, 1), 6),
    "bottleneck": ((3, 1, 2), 6),
}


def deep_fisher(name: str, reduction: str, noise: bool):
    widths, n = DEEP[name]
    likelihood = Gaussian(covariance(widths[-1]) if noise else None, reduction=reduction)
    w, x = deep(widths, seed=len(name)), randn(n, widths[0], seed=2)
    return likelihood, DeepLinear(widths), w, x


def assembled(f: Fisher, depth: int):
    rows = [[f.inverse_block(i, j) for j in range(1, depth + 1)] for i in range(1, depth + 1)]
    return torch.cat([torch.cat(row, dim=1) for row in rows])


@reductions
@pytest.mark.parametrize("noise", [False, True], ids=["identity", "covariance"])
@pytest.mark.parametrize("name", ["square", "expanding", "one-layer", "one-unit"])
def test_inverse_blocks_form_a_generalized_inverse(name, noise, reduction):
    """F G F = F and G F G = G where every partial product reaches inputs and outputs."""
    likelihood, network, w, x = deep_fisher(name, reduction, noise)
    g = assembled(Fisher(likelihood, network, w, x), network.depth)
    f = reference.fisher(likelihood, network, w, x)
    assert_near(g, g.mT, 1e-9)
    assert_near(f @ g @ f, f, 1e-8)
    assert_near(g @ f @ g, g, 1e-8)


@reductions
@pytest.mark.parametrize("name", DEEP)
def test_inverse_blocks_are_equation_36(name, reduction):
    """L⁻² (Wᵢᵃ)⁺ Σ̃ (Wⱼᵃᵀ)⁺ ⊗ (Wᵢᵇᵀ)⁺ Σ⁻¹ (Wⱼᵇ)⁺, row-major, pseudo-inverses by numpy."""
    likelihood, network, w, x = deep_fisher(name, reduction, noise=True)
    f = Fisher(likelihood, network, w, x)
    sigma = x.mT @ x * likelihood.scale(len(x))
    noise = likelihood.covariance
    ahead = [torch.eye(network.widths[-1], dtype=F64)]
    for m in reversed(w[1:]):
        ahead.insert(0, ahead[0] @ m)
    behind = [torch.eye(network.widths[0], dtype=F64)]
    for m in w[:-1]:
        behind.append(m @ behind[-1])
    for i in range(network.depth):
        for j in range(network.depth):
            errors = pinv(ahead[i]) @ noise @ pinv(ahead[j]).mT
            inputs = pinv(behind[i]).mT @ pinv(sigma) @ pinv(behind[j])
            expected = torch.einsum("ab,cd->acbd", errors, inputs).reshape(
                errors.shape[0] * inputs.shape[0], -1
            )
            got = f.inverse_block(i + 1, j + 1)
            assert_near(got, expected / network.depth**2, 1e-8)


@pytest.mark.parametrize(
    ("likelihood", "name"),
    [(Bernoulli(), "deep_linear-3"), (Gaussian(), "diagonal-2"), (Gaussian(), "network-mlp")],
)
def test_inverse_blocks_need_a_deep_linear_network_with_gaussian_noise(likelihood, name):
    m = model(name)
    with pytest.raises(UnsupportedError, match="DeepLinear and Gaussian"):
        Fisher(likelihood, m.parametrization, m.params, m.x).inverse_block(1, 1)


@pytest.mark.parametrize("layer", [0, -1, 4])
@pytest.mark.parametrize("likelihood", [Gaussian(), Bernoulli()], ids=["closed-form", "dense"])
def test_layers_count_from_one(likelihood, layer):
    m = model("deep_linear-3")
    f = Fisher(likelihood, m.parametrization, m.params, m.x)
    with pytest.raises(InvalidInputError, match="1"):
        f.block(layer, 1)
    with pytest.raises(InvalidInputError, match="1"):
        f.block(1, layer)


@pytest.mark.parametrize("layer", [0, -1, 4])
def test_layers_of_the_inverse_count_from_one(layer):
    m = model("deep_linear-3")
    with pytest.raises(InvalidInputError, match="1"):
        Fisher(Gaussian(), m.parametrization, m.params, m.x).inverse_block(layer, 1)


def test_bad_inputs_are_refused_at_construction():
    with pytest.raises(InvalidInputError, match=r"\(n, 3\)"):
        Fisher(Gaussian(), Direct(), randn(3, seed=1), randn(2, 4, seed=2))


def operator(widths, reduction, n=9):
    network = DeepLinear(widths)
    w = network.init_gaussian(generator=torch.Generator().manual_seed(len(widths)))
    x = randn(n, widths[0], seed=4)
    f = Fisher(Gaussian(covariance(widths[-1]), reduction=reduction), network, w, x)
    return f, w, x, reference.unflatten(randn(len(reference.flatten(w)), seed=5), w)


@reductions
@pytest.mark.parametrize("widths", [(3, 3), (3, 3, 3, 3), (3, 5, 4, 2), (4, 2, 3)], ids=str)
def test_the_generalized_inverse_of_any_vector_is_its_blocks(widths, reduction):
    f, _, _, v = operator(widths, reduction)
    depth = len(widths) - 1
    layers = range(1, depth + 1)
    dense = torch.cat([torch.cat([f.inverse_block(i, j) for j in layers], 1) for i in layers])
    assert_near(reference.flatten(f.inverse_matvec(v)), dense @ reference.flatten(v), 1e-9)


@reductions
@pytest.mark.parametrize("widths", [(3, 3), (3, 3, 3, 3), (3, 5, 4, 2)], ids=str)
def test_the_generalized_inverse_inverts_the_fisher(widths, reduction):
    """F G F = F with F by automatic differentiation, and −G∇L is the equal share."""
    f, w, x, v = operator(widths, reduction)
    fisher = reference.fisher(f.likelihood, f.parametrization, w, x)
    once = reference.unflatten(fisher @ reference.flatten(v), w)
    again = fisher @ reference.flatten(f.inverse_matvec(once))
    assert_near(again, reference.flatten(once), 1e-9)
    y = randn(len(x), widths[-1], seed=6)
    slope = reference.unflatten(-reference.gradient(f.likelihood, f.parametrization, w, (x, y)), w)
    share = natural(f.likelihood, f.parametrization, w, (x, y), selection="equal_share")
    assert_near(reference.flatten(f.inverse_matvec(slope)), reference.flatten(share), 1e-9)


def test_vectors_for_the_generalized_inverse():
    f, w, _, v = operator((3, 3), "mean")
    with pytest.raises(InvalidInputError, match="structure"):
        f.inverse_matvec(v[0])
    with pytest.raises(InvalidInputError, match="finite"):
        f.inverse_matvec((float("nan") * w[0],))
    m = model("diagonal-2")
    with pytest.raises(UnsupportedError, match="DeepLinear and Gaussian"):
        Fisher(Gaussian(), m.parametrization, m.params, m.x).inverse_matvec(m.params)
