"""Kronecker factors against dense Fishers, exact sums, and an independent implementation."""

import warnings

import pytest
import torch
from torch import Tensor
from torch.nn import (
    BCEWithLogitsLoss,
    Conv2d,
    CrossEntropyLoss,
    Flatten,
    Linear,
    Module,
    MSELoss,
    Sequential,
    Tanh,
)

from natgrad import Bernoulli, Categorical, Gaussian, Network, reference
from natgrad.errors import UnsupportedError
from natgrad.likelihoods import Likelihood
from natgrad.optim import NGD, Factors
from tests.helpers import F64, assert_near, generator, kron, randn
from tests.optim.nets import (
    backward,
    conv_net,
    factors_of,
    images,
    linear_chain,
    mlp,
    seeded,
    train,
)

COVARIANCE = torch.tensor([[1.5, 0.4], [0.4, 0.7]], dtype=F64)


def one_step(model: Module, criterion: Likelihood, x: Tensor, y: Tensor, **factors) -> NGD:
    optimizer = NGD(model, criterion, damping=1.0, factors=Factors(memory=0, **factors))
    backward(model, criterion, x, y)
    optimizer.step()
    return optimizer


def dense_blocks(likelihood: Likelihood, model: Module, x: Tensor) -> dict[str, Tensor]:
    """The reference Fisher, cut to one block (weight then bias) for every layer."""
    network = Network(model)
    params = network.init()
    fisher = reference.fisher(likelihood, network, params, x)
    blocks, start = {}, 0
    sizes = {name: p.numel() for name, p in params.items()}
    layers = dict.fromkeys(name.rsplit(".", 1)[0] for name in sizes)
    for layer in layers:
        size = sum(n for name, n in sizes.items() if name.rsplit(".", 1)[0] == layer)
        blocks[layer] = fisher[start : start + size, start : start + size]
        start += size
    return blocks


def as_block(inputs: Tensor, errors: Tensor, bias: bool) -> Tensor:
    """Λ ⊗ Λ̃ with parameters in torch's order: all of the weight, then the bias."""
    n_out, n_in = len(errors), len(inputs)
    index = torch.arange(n_out * n_in).reshape(n_out, n_in)
    order = torch.cat([index[:, :-1].reshape(-1), index[:, -1]]) if bias else index.reshape(-1)
    full = kron(errors, inputs)
    return full[order][:, order]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("source", ["exact", "propagated"])
def test_deep_linear_blocks_are_exact(source, reduction):
    criterion = Gaussian(COVARIANCE, reduction=reduction)
    model, x, y = linear_chain(3, 4, 2), randn(7, 3, seed=1), randn(7, 2, seed=2)
    truth = dense_blocks(criterion, model, x)
    optimizer = one_step(model, criterion, x, y, source=source)
    scale = 7 if reduction == "sum" else 1
    for name, (inputs, errors) in factors_of(optimizer).items():
        assert_near(scale * as_block(inputs, errors, bias=False), truth[name], 1e-12)


@pytest.mark.parametrize(
    ("criterion", "y"),
    [
        (Gaussian(COVARIANCE), randn(1, 2, seed=3)),
        (Bernoulli(), torch.tensor([[1.0, -1.0]], dtype=F64)),
        (Categorical(), torch.tensor([1])),
    ],
    ids=["gaussian", "bernoulli", "categorical"],
)
def test_blocks_of_a_single_sample_are_exact(criterion, y):
    model, x = seeded(lambda: mlp(3, 4, 2)), randn(1, 3, seed=4)
    truth = dense_blocks(criterion, model, x)
    optimizer = one_step(model, criterion, x, y, source="exact")
    for name, (inputs, errors) in factors_of(optimizer).items():
        assert_near(as_block(inputs, errors, bias=True), truth[name], 1e-12)


def test_sampled_factors_converge_at_the_rate_of_monte_carlo():
    criterion, x, y = Categorical(), randn(5, 3, seed=5), torch.tensor([0, 1, 2, 1, 0])
    exact = factors_of(
        one_step(seeded(lambda: mlp(3, 4, 3)), criterion, x, y, source="exact", exact_output=False)
    )

    def error(samples: int, seed: int) -> float:
        options = Factors(memory=0, samples=samples, exact_output=False)
        model = seeded(lambda: mlp(3, 4, 3))
        optimizer = NGD(model, criterion, damping=1.0, factors=options, generator=generator(seed))
        backward(model, criterion, x, y)
        optimizer.step()
        found = factors_of(optimizer)
        return sum(float((found[n][1] - exact[n][1]).square().sum()) for n in exact) ** 0.5

    few = sum(error(10, seed) for seed in range(20)) / 20
    many = sum(error(1000, seed) for seed in range(4)) / 4
    assert 7 < few / many < 14  # √100 = 10


def test_inputs_are_summed_once_however_many_samples():
    criterion, x, y = Gaussian(), randn(5, 3, seed=6), randn(5, 2, seed=7)
    one = factors_of(one_step(seeded(lambda: mlp(3, 4, 2)), criterion, x, y))
    three = factors_of(one_step(seeded(lambda: mlp(3, 4, 2)), criterion, x, y, samples=3))
    for name, (inputs, _) in one.items():
        assert_near(three[name][0], inputs, 1e-14)


def test_empirical_factors_use_the_labels():
    criterion, x, y = Gaussian(), randn(5, 3, seed=6), randn(5, 2, seed=7)
    model = seeded(lambda: mlp(3, 4, 2))
    residual = (model(x) - y).detach()
    found = factors_of(one_step(model, criterion, x, y, source="empirical"))
    assert_near(found["2"][1], residual.mT @ residual / 5, 1e-12)


def test_the_output_factor_of_the_likelihood_is_the_exact_one():
    criterion, x, y = Categorical(), randn(6, 3, seed=8), torch.tensor([0, 1, 2, 1, 0, 2])
    sampled = one_step(seeded(lambda: mlp(3, 4, 3)), criterion, x, y)
    exact = one_step(
        seeded(lambda: mlp(3, 4, 3)), criterion, x, y, source="exact", exact_output=False
    )
    assert_near(factors_of(sampled)["2"][1], factors_of(exact)["2"][1], 1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_propagation_equals_back_propagation(bias):
    criterion, x, y = Gaussian(COVARIANCE), randn(9, 3, seed=9), randn(9, 2, seed=10)
    propagated = one_step(linear_chain(3, 4, 5, 2, bias=bias), criterion, x, y, source="propagated")
    exact = one_step(linear_chain(3, 4, 5, 2, bias=bias), criterion, x, y, source="exact")
    for name, pair in factors_of(exact).items():
        for found, wanted in zip(factors_of(propagated)[name], pair, strict=True):
            assert_near(found, wanted, 1e-12)


def test_propagation_refuses_a_network_that_is_not_linear():
    with pytest.raises(UnsupportedError, match="Tanh"):
        NGD(mlp(2, 2, 2), Gaussian(), factors=Factors(source="propagated"))


def sequence_net() -> Module:
    """Linear layers on inputs with an axis of positions."""
    return Sequential(Linear(3, 4), Tanh(), Linear(4, 2), Flatten(), Linear(6, 2))


CURVLINOPS = {
    "linear": (lambda: mlp(3, 4, 3), randn(6, 3, seed=11), "classes"),
    "no-bias": (lambda: mlp(3, 4, 3, bias=False), randn(6, 3, seed=11), "classes"),
    "conv": (conv_net, images(6, seed=12), "classes"),
    "mse": (lambda: mlp(3, 4, 2), randn(6, 3, seed=13), "real"),
    "conv-mse": (
        lambda: Sequential(Conv2d(2, 3, 3, padding="same"), Tanh(), Flatten(), Linear(108, 2)),
        images(6, seed=14),
        "real",
    ),
    "bce": (lambda: mlp(3, 4, 2), randn(6, 3, seed=15), "binary"),
}


def pair(kind: str, reduction: str) -> tuple[Module, Likelihood, Tensor]:
    """Torch's loss, our likelihood equal to it, and labels. Torch averages outputs too."""
    if kind == "classes":
        y = torch.tensor([0, 1, 2, 1, 0, 2])
        return CrossEntropyLoss(reduction=reduction), Categorical(reduction=reduction), y
    if kind == "real":
        noise = (1.0 if reduction == "mean" else 0.5) * torch.eye(2, dtype=F64)
        return (
            MSELoss(reduction=reduction),
            Gaussian(noise, reduction=reduction),
            randn(6, 2, seed=16),
        )
    y = (randn(6, 2, seed=17) > 0).to(F64)
    return BCEWithLogitsLoss(reduction=reduction), Bernoulli(zero_one=True, reduction=reduction), y


def curvlinops_kfac(model: Module, loss: Module, x: Tensor, y: Tensor, **options) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from curvlinops import KFACLinearOperator
    operator = KFACLinearOperator(
        model,
        loss,
        list(model.parameters()),
        [(x, y)],
        separate_weight_and_bias=False,
        check_deterministic=False,
        **options,
    )
    size = sum(p.numel() for p in model.parameters())
    return operator @ torch.eye(size, dtype=F64)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", CURVLINOPS)
def test_factors_agree_with_curvlinops(name, reduction):
    build, x, kind = CURVLINOPS[name]
    loss, criterion, y = pair(kind, reduction)
    model = seeded(build)
    truth = curvlinops_kfac(model, loss, x, y, fisher_type="type-2")
    if kind == "binary" and reduction == "mean":  # torch averages over the two outputs
        truth = 2 * truth
    ours = factors_of(one_step(model, criterion, x, y, source="exact"))
    scale, start = (len(x) if reduction == "sum" else 1), 0
    for layer, (inputs, errors) in ours.items():
        bias = f"{layer}.bias" in dict(model.named_parameters())
        block = scale * as_block(inputs, errors, bias)
        stop = start + len(block)
        assert_near(block, truth[start:stop, start:stop], 1e-10)
        start = stop
    assert start == len(truth)


@pytest.mark.slow  # exact factors are compared with curvlinops above
def test_sampled_factors_agree_with_curvlinops_in_the_mean():
    """Both draw labels: their difference must be no more than two samples' difference."""
    build, x, kind = CURVLINOPS["conv"]
    loss, criterion, y = pair(kind, "mean")
    model = seeded(build)
    options = {"fisher_type": "mc", "mc_samples": 2000}
    peers = [curvlinops_kfac(model, loss, x, y, seed=seed, **options) for seed in (1, 2)]
    ours = factors_of(one_step(model, criterion, x, y, samples=2000, exact_output=False))
    start, errors, noise, sizes = 0, 0.0, 0.0, 0.0
    for layer, (inputs, found) in ours.items():
        bias = f"{layer}.bias" in dict(model.named_parameters())
        block = as_block(inputs, found, bias)
        cut = slice(start, start + len(block))
        errors += float((block - peers[0][cut, cut]).square().sum())
        noise += float((peers[1][cut, cut] - peers[0][cut, cut]).square().sum())
        sizes += float(block.square().sum())
        start = cut.stop
    assert errors < 9 * noise
    assert errors < 0.01 * sizes


def test_averages_count_data():
    criterion, x, y = Gaussian(), randn(8, 3, seed=18), randn(8, 2, seed=19)
    model = seeded(lambda: Linear(3, 2, bias=False))
    optimizer = NGD(model, criterion, factors=Factors(memory=6), damping=1.0)
    past, mean = 0.0, None
    for n in (2, 8, 4):
        train(optimizer, criterion, x[:n], y[:n], 1)
        fresh = x[:n].mT @ x[:n] / n
        mean = fresh if mean is None else mean + (fresh - mean) * n / (n + past)
        past = min(past + n, 6)
    assert_near(factors_of(optimizer)[""][0], mean, 1e-12)


def test_a_constant_error_factor_is_recognised():
    model = seeded(lambda: mlp(3, 4, 2))
    optimizer = one_step(model, Gaussian(), randn(5, 3, seed=1), randn(5, 2, seed=2))
    block = optimizer._core.preconditioner.blocks["2"]
    assert block.errors.constant
    assert block.errors.multiple == 1.0
    assert block.left.used == "multiple"
    assert not optimizer._core.preconditioner.blocks["0"].errors.constant
