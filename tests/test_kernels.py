import pytest
import torch

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Diagonal,
    Direct,
    Gaussian,
    GaussianInputs,
    MatrixProduct,
    Network,
    natural,
    natural_ntk,
    ntk,
    reference,
)
from natgrad.errors import InvalidInputError, UnsupportedError, VelocityOverflowError
from tests.helpers import (
    F64,
    LINEAR,
    MODELS,
    NETWORKS,
    assert_near,
    chain,
    generator,
    mlp,
    model,
    module,
    outputs_of,
    positions,
    randn,
    signs,
)

models = pytest.mark.parametrize("m", MODELS, ids=str)
reductions = pytest.mark.parametrize("reduction", ["mean", "sum"])


def jacobian(m, x):
    return reference.jacobian(m.parametrization, m.params, x).flatten(0, 1)


def shaped(kernel, m, x, other):
    outputs = [m.parametrization.predict(m.params, inputs).shape for inputs in (x, other)]
    return kernel.reshape(outputs[0] + outputs[1])


# The Euclidean kernel.


@models
def test_kernel_is_that_of_the_jacobian(m):
    a, b = jacobian(m, m.x), jacobian(m, m.other)
    assert_near(ntk(m.parametrization, m.params, m.x), shaped(a @ a.mT, m, m.x, m.x), 1e-12)
    cross = ntk(m.parametrization, m.params, m.x, m.other)
    assert_near(cross, shaped(a @ b.mT, m, m.x, m.other), 1e-12)


def hypothesis_jacobian(m):
    def h(w):
        return m.parametrization.hypothesis(reference.unflatten(w, m.params)).reshape(-1)

    return torch.func.jacrev(h)(reference.flatten(m.params))


@pytest.mark.parametrize("m", LINEAR, ids=str)
def test_kernel_of_the_hypothesis_itself(m):
    j, h = hypothesis_jacobian(m), m.parametrization.hypothesis(m.params)
    expected = (j @ j.mT).reshape(h.shape + h.shape)
    assert_near(ntk(m.parametrization, m.params), expected, 1e-12)


@pytest.mark.parametrize("kernel", [ntk, lambda *a: natural_ntk(Gaussian(), *a)])
def test_networks_need_inputs(kernel):
    m = model("network-mlp")
    with pytest.raises(InvalidInputError, match="inputs x"):
        kernel(m.parametrization, m.params)


# The natural kernel.


def likelihoods(k: int, reduction: str):
    root = randn(k, k, seed=k)
    out = [
        Bernoulli(reduction=reduction),
        Gaussian(reduction=reduction),
        Gaussian(root @ root.mT + torch.eye(k, dtype=F64), reduction=reduction),
    ]
    return [*out, Categorical(reduction=reduction)] if k > 1 else out


def expected_kernel(likelihood, m, x, other, fisher_x):
    f = reference.fisher(likelihood, m.parametrization, m.params, fisher_x)
    inverse = torch.linalg.pinv(f, rtol=1e-10, hermitian=True)
    return shaped(jacobian(m, x) @ inverse @ jacobian(m, other).mT, m, x, other)


@models
def test_natural_kernel_over_the_batch(m):
    both = zip(likelihoods(outputs_of(m), "mean"), likelihoods(outputs_of(m), "sum"), strict=True)
    for i, pair in enumerate(both):
        likelihood = pair[i % 2]  # every likelihood once, reductions in turn
        arguments = (likelihood, m.parametrization, m.params)
        got = natural_ntk(*arguments, m.x, fisher_over="batch")
        assert_near(got, expected_kernel(likelihood, m, m.x, m.x, m.x), 1e-7)
        cross = natural_ntk(*arguments, m.x, m.other, fisher_over="batch")
        assert_near(cross, expected_kernel(likelihood, m, m.x, m.other, m.other), 1e-7)


def sample_of(m):
    """Inputs other than the batch's, of the same kind."""
    if m.x.is_floating_point():
        return randn(9, *m.x.shape[1:], seed=77)
    if m.name == "network-embedding":
        return torch.randint(0, 5, (9, 2), generator=generator(78))
    rows, columns = m.parametrization.hypothesis(m.params).shape
    return positions(rows, columns, 6, seed=79)


@models
def test_natural_kernel_over_a_sample(m):
    sample = sample_of(m)
    for likelihood in likelihoods(outputs_of(m), "mean"):
        arguments = (likelihood, m.parametrization, m.params)
        got = natural_ntk(*arguments, m.x, fisher_over=sample)
        assert_near(got, expected_kernel(likelihood, m, m.x, m.x, sample), 1e-7)


@pytest.mark.parametrize("m", [m for m in LINEAR if "positions" not in m.name], ids=str)
def test_default_is_the_batch_for_inputs_and_all_entries_for_matrices(m):
    arguments = (Gaussian(), m.parametrization, m.params, m.x)
    default = natural_ntk(*arguments)
    over = "all" if isinstance(m.parametrization, MatrixProduct) else "batch"
    assert_near(default, natural_ntk(*arguments, fisher_over=over), 0.0)


MATRICES = [m for m in LINEAR if "matrix_product" in m.name or m.name == "direct-positions"]


@reductions
@pytest.mark.parametrize("m", MATRICES, ids=str)
def test_natural_kernel_over_all_entries_is_the_reachable_projector(m, reduction):
    j, h = hypothesis_jacobian(m), m.parametrization.hypothesis(m.params)
    projector = j @ torch.linalg.pinv(j, rtol=1e-10)
    for variance in (None, torch.tensor([[2.5]], dtype=F64)):
        likelihood = Gaussian(variance, reduction=reduction)
        expected = projector.reshape(h.shape + h.shape) * (1.0 if variance is None else 2.5)
        arguments = (likelihood, m.parametrization, m.params)
        assert_near(natural_ntk(*arguments), expected, 1e-9)
        rows, columns = m.x.unbind(1)
        others = m.other.unbind(1)
        at_entries = expected[rows, columns][:, others[0], others[1]]
        assert_near(natural_ntk(*arguments, m.x, m.other), at_entries, 1e-9)


RANK_DEFICIENT = {
    "bottleneck": (4, 2, 3, 4),
    "one-unit": (3, 3, 1, 3),
    "two-bottlenecks": (4, 2, 3, 2, 4),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", RANK_DEFICIENT)
def test_natural_kernel_of_rank_deficient_products(name, seed):
    """Over all 16 (or 9) positions as a batch the kernel is again the projector."""
    widths = RANK_DEFICIENT[name]
    ws, m = chain(widths, seed=100 * seed), MatrixProduct(len(widths) - 1)
    x = torch.cartesian_prod(torch.arange(widths[0]), torch.arange(widths[-1]))
    j = reference.jacobian(m, ws, x).flatten(0, 1)
    projector = j @ torch.linalg.pinv(j, rtol=1e-10)
    likelihood = Gaussian(reduction="sum")
    assert_near(natural_ntk(likelihood, m, ws, x, fisher_over="batch"), projector, 1e-6)
    assert_near(natural_ntk(likelihood, m, ws, x, fisher_over="all"), projector, 1e-8)


def test_natural_kernel_of_a_zero_direction_in_parameters():
    """Diagonal networks with zeros: coordinates that cannot move have no kernel."""
    w = torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 1.0]], dtype=F64)
    x = randn(5, 3, seed=1)
    likelihood = Gaussian(reduction="sum")
    f = reference.fisher(likelihood, Diagonal(2), w, x)
    j = reference.jacobian(Diagonal(2), w, x).flatten(0, 1)
    expected = j @ torch.linalg.pinv(f, rtol=1e-10, hermitian=True) @ j.mT
    assert_near(natural_ntk(likelihood, Diagonal(2), w, x), expected, 1e-10)


FLOWS = ["diagonal-3", "deep_linear-3", "direct-matrix", "network-outputs", "matrix_product-3"]


@reductions
@pytest.mark.parametrize("over", ["batch", "sample"])
@pytest.mark.parametrize("name", FLOWS)
def test_outputs_move_by_the_natural_kernel(name, over, reduction):
    """−K ∇L, as the docstring says, whatever the Fisher is averaged over."""
    m = model(name)
    output = m.parametrization.predict(m.params, m.x)
    y = signs(output.numel(), seed=2).reshape(output.shape)
    likelihood = Bernoulli(reduction=reduction)
    fisher_over = "batch" if over == "batch" else sample_of(m)
    arguments = (likelihood, m.parametrization, m.params)
    v = natural(*arguments, (m.x, y), fisher_over=fisher_over)
    moved = m.parametrization.jvp(m.params, m.x, v)
    kernel = natural_ntk(*arguments, m.x, fisher_over=fisher_over)
    gradient = likelihood.gradient(output, y)
    n = output.numel()
    predicted = -(kernel.reshape(n, n) @ gradient.reshape(n)).reshape(output.shape)
    assert_near(moved, predicted, 1e-7)


@pytest.mark.parametrize("margin", [0.0, 10.0, 20.0, 30.0, 40.0, 100.0, 600.0, 1000.0])
@pytest.mark.parametrize("kind", ["direct", "deep_linear", "network"])
def test_natural_kernel_of_confident_data(kind, margin):
    """Two samples and two parameters: K = J F⁻¹ Jᵀ = diag 1/φ(s)φ(−s), or it says it overflows."""
    x, beta = torch.eye(2, dtype=F64), torch.tensor([0.0, margin], dtype=F64)
    if kind == "direct":
        parametrization, params = Direct(), beta
    elif kind == "deep_linear":
        parametrization, params = DeepLinear((2, 1)), (beta[None],)
    else:
        parametrization = Network(torch.nn.Linear(2, 1, bias=False).double())
        params = {"weight": beta[None]}
    likelihood = Bernoulli(reduction="sum")
    if margin > 709:
        with pytest.raises(VelocityOverflowError):
            natural_ntk(likelihood, parametrization, params, x)
        return
    got = natural_ntk(likelihood, parametrization, params, x).reshape(2, 2)
    diagonal = (1 + torch.exp(beta)) * (1 + torch.exp(-beta))
    assert float(got[0, 0]) == pytest.approx(4.0, rel=1e-9)
    assert float(got[1, 1]) == pytest.approx(float(diagonal[1]), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_natural_kernel_of_a_network_with_repeated_data(seed):
    """Repeated rows make the Gram matrix singular; rounding must not count as rank."""
    network = Network(module(lambda: mlp(1), seed=seed))
    params, x = network.init(), randn(3, 3, seed=seed).repeat(2, 1)
    likelihood = Gaussian(reduction="sum")
    j = reference.jacobian(network, params, x).flatten(0, 1)
    projector = j @ torch.linalg.pinv(j, rtol=1e-9)
    got = natural_ntk(likelihood, network, params, x).reshape(6, 6)
    assert_near(got, projector, 1e-8)


REFUSED = {
    "population": (Bernoulli(), "diagonal-2", {"fisher_over": GaussianInputs()}, UnsupportedError),
    "all-inputs": (Bernoulli(), "diagonal-2", {"fisher_over": "all"}, InvalidInputError),
    "all-bernoulli": (Bernoulli(), "matrix_product-2", {"fisher_over": "all"}, UnsupportedError),
    "unknown": (Gaussian(), "diagonal-2", {"fisher_over": "everything"}, InvalidInputError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused(name):
    likelihood, which, options, error = REFUSED[name]
    m = model(which)
    kinds = (InvalidInputError, UnsupportedError) if name == "all-inputs" else error
    with pytest.raises(kinds):
        natural_ntk(likelihood, m.parametrization, m.params, m.x, **options)


@pytest.mark.parametrize("m", NETWORKS, ids=str)
def test_bad_inputs_are_refused(m):
    with pytest.raises(InvalidInputError, match="empty"):
        ntk(m.parametrization, m.params, m.x[:0])
    with pytest.raises(InvalidInputError, match="empty"):
        natural_ntk(Gaussian(), m.parametrization, m.params, m.x, m.x[:0])
