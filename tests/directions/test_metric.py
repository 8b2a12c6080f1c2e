"""Natural directions in other metrics on outputs, against dense formulas and closed forms."""

import math
from itertools import pairwise

import pytest
import torch
from torch.func import jacrev

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Diagonal,
    Direct,
    Gaussian,
    MatrixProduct,
    Network,
    euclidean,
    integrate,
    natural,
)
from natgrad.directions import Wasserstein, kernel_wasserstein
from natgrad.errors import InvalidInputError, ShapeError, UnsupportedError
from tests.helpers import F64, assert_near, for_each, kron, module, orthonormal, pinv, randn, signs

GROUND = torch.tensor([[0, 1, 2.5], [1, 0, 1.5], [2.5, 1.5, 0]], dtype=F64)
MEANS = {
    "arithmetic": lambda a, b: (a + b) / 2,
    "geometric": lambda a, b: math.sqrt(a * b),
    "harmonic": lambda a, b: 2 * a * b / (a + b),
    "logarithmic": lambda a, b: a if a == b else (a - b) / math.log(a / b),
}


def graph_metric(p, ground, mean):
    """C L⁺ C with the Laplacian edge by edge."""
    k = len(p)
    laplacian = torch.zeros(k, k, dtype=F64)
    for i in range(k):
        for j in range(i):
            e = torch.zeros(k, dtype=F64)
            e[i], e[j] = 1, -1
            theta = MEANS[mean](float(p[i]), float(p[j]))
            laplacian += theta / float(ground[i, j]) ** 2 * torch.outer(e, e)
    c = torch.diag(p) - torch.outer(p, p)
    return c @ pinv(laplacian) @ c


def output_metric(likelihood, outputs, metric):
    """The quadratic form of one sample, by definition."""
    k = len(outputs)
    if metric == "euclidean" or isinstance(likelihood, Gaussian):
        return torch.eye(k, dtype=F64)
    if isinstance(likelihood, Categorical):
        return graph_metric(torch.softmax(outputs, 0), metric.ground, metric.mean)
    if metric.mean == "latent":
        return torch.eye(k, dtype=F64)
    p = torch.sigmoid(outputs)
    thetas = [MEANS[metric.mean](float(a), 1 - float(a)) for a in p]
    return torch.diag((p * (1 - p)) ** 2 / torch.tensor(thetas, dtype=F64))


def dense(likelihood, model, params, batch, metric):
    """−M⁺∇L on all parameters, Jacobians by autograd."""
    x, y = batch
    flat, shapes = torch.cat([w.flatten() for w in params]), [w.shape for w in params]

    def outputs(theta):
        parts = theta.split([s.numel() for s in shapes])
        found = model.predict(tuple(w.view(s) for w, s in zip(parts, shapes, strict=True)), x)
        return found.reshape(len(x), -1)

    f = outputs(flat)
    j = jacrev(outputs)(flat)
    total = sum(
        j[n].mT @ output_metric(likelihood, f[n], metric) @ j[n] / len(x) for n in range(len(x))
    )
    gradient = torch.autograd.functional.jacobian(
        lambda theta: likelihood(outputs(theta).view(model.predict(params, x).shape), y), flat
    )
    return -pinv(total, 1e-10) @ gradient


CASES = {
    f"{name}-{mean}": (likelihood, metric)
    for name, likelihood, metrics in (
        ("bernoulli", Bernoulli(), {m: Wasserstein(mean=m) for m in (*MEANS, "latent")}),
        ("categorical", Categorical(), {m: Wasserstein(GROUND, mean=m) for m in MEANS}),
        ("gaussian", Gaussian(2.0 * torch.eye(3, dtype=F64)), {"w2": Wasserstein()}),
        ("bernoulli", Bernoulli(), {"flat": "euclidean"}),
        ("categorical", Categorical(), {"flat": "euclidean"}),
    )
    for mean, metric in metrics.items()
}


def labelled(likelihood, n, seed=0):
    x = randn(n, 4, seed=seed)
    if isinstance(likelihood, Categorical):
        return x, torch.arange(n) % 3
    return x, signs(n, seed) if isinstance(likelihood, Bernoulli) else randn(n, 3, seed=seed + 1)


def test_directions_solve_the_dense_system_of_every_metric():
    def check(name):
        likelihood, metric = CASES[name]
        one = isinstance(likelihood, Bernoulli)
        widths = (4, 5, 1 if one else 3)
        params = tuple(0.5 * randn(b, a, seed=3) for a, b in pairwise(widths))
        for n in (3, 9):  # fewer and more samples than directions of W
            x, y = labelled(likelihood, n)
            y = y[:, None] if one else y
            model = DeepLinear(widths)
            v = natural(likelihood, model, params, (x, y), metric=metric)
            flat = torch.cat([w.flatten() for w in v])
            assert_near(flat, dense(likelihood, model, params, (x, y), metric), 1e-7)

    for_each(CASES, check)


def test_diagonal_networks_and_modules():
    likelihood, metric = Bernoulli(), Wasserstein(mean="geometric")
    batch = labelled(likelihood, 3)
    w = randn(3, 4, seed=2)
    v = natural(likelihood, Diagonal(depth=3), w, batch, metric=metric)

    class Rows:
        def predict(self, params, x):
            return Diagonal(depth=3).predict(torch.stack(params), x)

    expected = dense(likelihood, Rows(), tuple(w), batch, metric)
    assert_near(v.flatten(), expected, 1e-8)


# Invariance to parametrization: one velocity of the outputs, whatever the model


def layers(beta, widths):
    """Weights of a deep linear network with W_L⋯W₁ = βᵀ, all but the last orthonormal."""
    weights = [
        orthonormal(b, a, seed=3) if b >= a else orthonormal(a, b, seed=3).mT
        for a, b in pairwise(widths[:-1])
    ]
    below = torch.eye(len(beta), dtype=F64)
    for w in weights:
        below = w @ below
    return (*weights, beta.mT @ pinv(below))


def linear_models(beta, x):
    """Models of the outputs x β, by name: parametrization, parameters, inputs."""
    k = beta.shape[1]
    turned = torch.eye(4, dtype=F64) + 0.3 * randn(4, 4, seed=8)
    found = {
        "direct": (Direct(), beta, x),
        "other features": (Direct(), torch.linalg.solve(turned.mT, beta), x @ turned.mT),
    }
    for widths in ((4, 5, k), (4, 5, 6, k)):
        found[f"deep {widths}"] = DeepLinear(widths), layers(beta, widths), x
    if k == 1:
        for depth in (2, 3):
            w = beta.mT.abs() ** (1 / depth) * torch.ones(depth, 1, dtype=F64)
            w[0] *= beta[:, 0].sign()
            found[f"diagonal {depth}"] = Diagonal(depth), w, x
    return found


def tanh_network(beta, x):
    """A network whose last layer is solved for the outputs x β at a few inputs."""
    k = beta.shape[1]
    net = module(
        lambda: torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, k, bias=False)
        )
    )
    with torch.no_grad():
        net[2].weight.copy_((pinv(net[:2](x)) @ x @ beta).mT)
    return Network(net), dict(net.named_parameters()), x


FISHERS = {
    f"{type(likelihood).__name__.lower()}-fisher": (likelihood, "fisher")
    for likelihood in (Bernoulli(), Categorical(), Gaussian(2.0 * torch.eye(3, dtype=F64)))
}


def own_form(likelihood, outputs, metric):
    """The quadratic form of one sample, by definition, also of the Fisher."""
    p = torch.softmax(outputs, 0) if isinstance(likelihood, Categorical) else outputs.sigmoid()
    if metric != "fisher":
        return output_metric(likelihood, outputs, metric)
    if isinstance(likelihood, Categorical):
        return torch.diag(p) - torch.outer(p, p)
    if isinstance(likelihood, Bernoulli):
        return torch.diag(p * (1 - p))
    return torch.eye(len(outputs), dtype=F64) / 2


def check_velocities(name, n, expected_from, models_of):
    """Compare J v of all models with one formula, at 1e-12."""
    likelihood, metric = (CASES | FISHERS)[name]
    one = isinstance(likelihood, Bernoulli)
    x, y = labelled(likelihood, n)
    beta = 0.5 * randn(4, 1 if one else 3, seed=7)
    outputs = x @ beta
    slopes = likelihood.gradient(outputs, y[:, None] if one else y)
    forms = [own_form(likelihood, f, metric) for f in outputs]
    expected = expected_from(x, forms, slopes)
    # Softmax does not see a common shift of all logits, and only the Euclidean metric defines it.
    shifts = isinstance(likelihood, Categorical) and metric != "euclidean"
    seen = torch.eye(len(beta.mT), dtype=F64) - (1 / 3 if shifts else 0)
    models = models_of(beta, x)

    def check(model):
        parametrization, params, inputs = models[model]
        at = parametrization.predict(params, inputs)
        assert_near(at.reshape(n, -1), outputs, 1e-12)
        labels = y[:, None] if one and at.ndim == 2 else y
        v = natural(likelihood, parametrization, params, (inputs, labels), metric=metric)
        found = parametrization.jvp(params, inputs, v).reshape(n, -1)
        assert_near(found @ seen, expected @ seen, 1e-12)

    for_each(models, check)


def test_fewer_samples_than_features_move_by_the_inverse_metric_whatever_the_model():
    """ḟₙ = −Mₙ⁻¹∇ℓₙ, sample by sample."""

    def each(x, forms, slopes):
        return -len(x) * torch.stack([pinv(m) @ g for m, g in zip(forms, slopes, strict=True)])

    def models(beta, x):
        return linear_models(beta, x) | {"tanh network": tanh_network(beta, x)}

    for_each(CASES | FISHERS, lambda name: check_velocities(name, 3, each, models))


def test_more_samples_than_features_move_alike_whatever_the_model():
    """β̇ = −(Σ xₙxₙᵀ ⊗ Mₙ)⁺ Σ xₙ ∇ℓₙᵀ."""

    def together(x, forms, slopes):
        k = slopes.shape[1]
        pairs = zip(x, forms, strict=True)
        total = sum(kron(torch.outer(r, r), m) for r, m in pairs) / len(x)
        return x @ (-pinv(total) @ (x.mT @ slopes).flatten()).view(4, k)

    for_each(CASES | FISHERS, lambda name: check_velocities(name, 9, together, linear_models))


@pytest.mark.parametrize("over", ["batch", "all"])
def test_entries_of_a_product_move_by_the_inverse_metric_at_every_depth(over):
    observed = torch.tensor([[0, 0], [0, 2], [1, 1], [2, 0]])
    everywhere = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    beta = torch.eye(3, dtype=F64) + 0.5 * randn(3, 3, seed=7)
    noise = Gaussian(2.0 * torch.eye(1, dtype=F64))
    cases = {n: c for n, c in CASES.items() if isinstance(c[0], Bernoulli)}
    cases |= {"gaussian-w2": (noise, Wasserstein()), "gaussian-flat": (noise, "euclidean")}

    def check(case):
        name, depth = case
        likelihood, metric = cases[name]
        y = signs(4, 1) if isinstance(likelihood, Bernoulli) else randn(4, seed=1)
        factors = [orthonormal(3, 3, seed) + 0.2 * randn(3, 3, seed=seed) for seed in (1, 2)]
        factors = factors[: depth - 1]
        last = beta
        for w in factors:
            last = torch.linalg.solve(w, last)
        model, params = MatrixProduct(depth), (*factors, last)
        s = beta[observed[:, 0], observed[:, 1]]
        forms = torch.stack([output_metric(likelihood, f[None], metric)[0, 0] for f in s])
        expected = -4 * likelihood.gradient(s, y) / forms
        v = natural(likelihood, model, params, (observed, y), metric=metric, fisher_over=over)
        assert_near(model.jvp(params, observed, v), expected, 1e-12)
        if over == "all":  # and nothing else moves
            assert_near(model.jvp(params, everywhere, v).norm(), expected.norm(), 1e-12)

    for_each([(name, depth) for name in cases for depth in (1, 2, 3)], check)


# Relations between metrics


def test_harmonic_and_fisher_agree_and_gaussian_is_sigma_squared():
    batch = labelled(Bernoulli(), 9)
    beta = randn(4, seed=1)
    fisher = natural(Bernoulli(), Direct(), beta, batch)
    half = natural(Bernoulli(), Direct(), beta, batch, metric=Wasserstein(mean="harmonic"))
    assert_near(half, 2 * fisher, 1e-12)  # θ = 2p(1 − p): half of the Fisher
    noise = Gaussian(2.5 * torch.eye(1, dtype=F64))
    x, y = randn(9, 4, seed=0), randn(9, seed=1)
    plain = natural(noise, Direct(), beta, (x, y))
    assert_near(natural(noise, Direct(), beta, (x, y), metric=Wasserstein()), plain / 2.5, 1e-12)
    assert_near(natural(noise, Direct(), beta, (x, y), metric="fisher"), plain, 0)


def test_two_classes_of_a_graph_are_the_two_point_graph():
    x, y = labelled(Bernoulli(), 3)
    beta = randn(4, seed=1)
    ground = 1 - torch.eye(2, dtype=F64)
    for mean in MEANS:
        binary = natural(Bernoulli(), Direct(), beta, (x, y), metric=Wasserstein(mean=mean))
        both = torch.stack([-beta / 2, beta / 2], 1)
        labels = (y > 0).long()
        v = natural(
            Categorical(), Direct(), both, (x, labels), metric=Wasserstein(ground, mean=mean)
        )
        assert_near(x @ (v[:, 1] - v[:, 0]), x @ binary, 1e-10)


def test_weights_that_underflow_leave_the_direction_finite():
    x, y = labelled(Bernoulli(), 3)
    beta = 300 * torch.linalg.lstsq(x, y).solution
    v = natural(Bernoulli(), Direct(), beta, (x, y), metric=Wasserstein(mean="latent"))
    assert bool(torch.isfinite(v).all())
    v = natural(Bernoulli(), Direct(), beta, (x, y), metric=Wasserstein(mean="geometric"))
    s = x @ beta
    assert_near(x @ v, y * torch.exp((y * s) / 2), 1e-9)  # σ(−m)/(p(1−p))^{3/2} → e^{m/2}


def test_flows_follow_the_metric():
    """ṡ = −∇ℓ on the latent logit: s + eˢ = s₀ + e^{s₀} + t for every sample."""
    x, y = torch.eye(2, dtype=F64), torch.ones(2, dtype=F64)
    run = integrate(
        natural, Bernoulli(), Direct(), torch.zeros(2, dtype=F64), (x, y),
        until=3.0, rtol=1e-10, atol=1e-12, metric=Wasserstein(mean="latent"),
    )  # fmt: skip
    assert_near(run.final + run.final.exp(), torch.full((2,), 4.0, dtype=F64), 1e-8)


def test_metrics_and_networks_of_modules():
    net = module(lambda: torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(),
                                             torch.nn.Linear(6, 1)))  # fmt: skip
    model = Network(net)
    x, y = labelled(Bernoulli(), 3)
    params = dict(net.named_parameters())
    v = natural(Bernoulli(), model, params, (x, y[:, None]), metric=Wasserstein(mean="arithmetic"))
    s = model.predict(params, x)[:, 0]
    p = torch.sigmoid(s)
    expected = y * torch.sigmoid(-y * s) * 0.5 / (p * (1 - p)) ** 2
    assert_near(model.jvp(params, x, v)[:, 0], expected, 1e-9)


# The kernelized estimator


def test_the_kernel_estimator_approaches_the_closed_form_of_a_normal_distribution():
    """W₂ of N(μ, diag σ²) is flat in (μ, σ): the metric is the identity."""
    z = randn(800, 2, seed=0)
    sigma = torch.tensor([0.7, 1.5], dtype=F64)
    x = torch.tensor([1.0, -2.0], dtype=F64) + sigma * z
    eye = torch.eye(2, dtype=F64).expand(800, 2, 2)
    jacobian = torch.cat([eye, torch.diag_embed(z)], 2)
    truth = torch.eye(4, dtype=F64)
    near = kernel_wasserstein(x, jacobian, x[:150], bandwidth=3.0, ridge=1e-6)
    assert float((near - truth).norm()) < 0.12 * 2
    gradient = randn(4, seed=1)
    steepest = torch.linalg.solve(near, gradient)
    cosine = float(steepest @ gradient / steepest.norm() / gradient.norm())
    assert cosine > 0.996
    few = kernel_wasserstein(x, jacobian, x[:5], bandwidth=3.0, ridge=1e-6)
    assert float((few - truth).norm()) > float((near - truth).norm())


def bures(a):
    """The W₂ metric of N(0, A Aᵀ) on all entries of A, by Lyapunov equations.

    The optimal velocity of u is the gradient field x ↦ L x with L S + S L = Ṡ, S = A Aᵀ; the form
    is tr(L S L). Maps A that turn the noise alone cost nothing.
    """
    d = len(a)
    eye, s = torch.eye(d, dtype=F64), a @ a.mT
    system = kron(eye, s) + kron(s, eye)
    fields = []
    for unit in torch.eye(d * d, dtype=F64).view(-1, d, d):
        moved = unit @ a.mT + a @ unit.mT
        fields.append(torch.linalg.solve(system, moved.flatten()).view(d, d))
    return torch.stack([torch.stack([torch.trace(p @ s @ q) for q in fields]) for p in fields])


def test_the_kernel_estimator_approaches_the_bures_metric_of_covariances():
    """Samples that move by ‖J u‖² may stay the same distribution: only gradient fields count."""
    a = torch.tensor([[1.0, 0.4], [0.2, 0.8]], dtype=F64)
    truth, turn = bures(a), torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=F64)

    def estimate(n):
        z = randn(n, 2, seed=0)
        z = z - z.mean(0)
        z = torch.linalg.solve(torch.linalg.cholesky(z.mT @ z / n), z.mT).mT  # unit covariance
        jacobian = torch.einsum("ik,nj->nkij", torch.eye(2, dtype=F64), z).reshape(n, 2, 4)
        x = z @ a.mT
        cost = jacobian.flatten(0, 1).mT @ jacobian.flatten(0, 1) / n
        return kernel_wasserstein(x, jacobian, x[:30], bandwidth=5.0, ridge=1e-8), cost

    found, cost = estimate(2000)
    assert_near(found, truth, 0.01)
    assert float((cost - truth).norm()) > 0.5 * float(truth.norm())
    idle = (a @ turn).flatten()
    assert float(idle @ truth @ idle) < 1e-12
    assert float(idle @ found @ idle) < 0.01 * float(idle @ cost @ idle)
    assert float((estimate(500)[0] - truth).norm()) > 2 * float((found - truth).norm())


def test_the_kernel_estimator_gives_the_direction_of_the_latent_logit():
    """Labels are signs of s + logistic noise; the estimate sees samples of that sum alone."""
    x, y = labelled(Bernoulli(), 9)
    beta = 0.5 * randn(4, seed=1)
    q = (torch.arange(200, dtype=F64) + 0.5) / 200
    noise = torch.logit(q)[:, None]

    def estimate(row):
        latent = row @ beta + noise
        return kernel_wasserstein(latent, row.expand(200, 1, 4), latent[::20], bandwidth=3.0)

    metric = torch.stack([estimate(row) for row in x]).mean(0)
    steepest = torch.linalg.solve(metric, euclidean(Bernoulli(), Direct(), beta, (x, y)))
    exact = natural(Bernoulli(), Direct(), beta, (x, y), metric=Wasserstein(mean="latent"))
    assert_near(steepest, exact, 1e-3)
    fisher = natural(Bernoulli(), Direct(), beta, (x, y))
    assert float((fisher - exact).norm()) > float(exact.norm())


def test_the_kernel_estimator_never_exceeds_the_transport_cost_on_the_samples():
    """Without a ridge it is a projection: uᵀGu ≤ mean ‖J u‖² for every u."""
    z = randn(60, 2, seed=0)
    jacobian = randn(60, 2, 3, seed=1)
    g = kernel_wasserstein(z, jacobian, z[:20], bandwidth=1.0, ridge=0.0)
    full = torch.einsum("ndp,ndq->pq", jacobian, jacobian) / 60
    assert float(torch.linalg.eigvalsh(full - g)[0]) > -1e-10


# What is refused


def test_metrics_that_do_not_fit():
    x, y = randn(3, 4, seed=0), torch.tensor([0, 1, 2])
    w = randn(4, 3, seed=1)

    def refused(kind, match, metric):
        with pytest.raises(kind, match=match):
            natural(Categorical(), Direct(), w, (x, y), metric=metric)

    refused(InvalidInputError, "pass ground", Wasserstein())
    refused(InvalidInputError, "for Bernoulli", Wasserstein(GROUND, mean="latent"))
    refused(ShapeError, "2 classes", Wasserstein(1 - torch.eye(2, dtype=F64)))
    refused(InvalidInputError, "Did you mean 'euclidean'", "euclidian")
    refused(InvalidInputError, "must be 'fisher'", 3)
    with pytest.raises(InvalidInputError, match="distances"):
        Wasserstein(torch.ones(3, 3))
    apart = GROUND.clone()
    apart[0, 1:] = apart[1:, 0] = math.inf
    refused(UnsupportedError, "is not connected", Wasserstein(apart))


def test_flows_of_completion_follow_the_metric_too():
    """Gaussian noise of variance 4: Wasserstein time runs four times slower than Fisher time."""
    positions, values = torch.tensor([[0, 0], [0, 1], [1, 1]]), randn(3, seed=1)
    start = (torch.eye(2, dtype=F64), torch.eye(2, dtype=F64))
    noise = Gaussian(4.0 * torch.eye(1, dtype=F64))

    def end(over, until, **options):
        run = integrate(
            natural, noise, MatrixProduct(2), start, (positions, values), until=until, rtol=1e-9,
            fisher_over=over, **options,
        )  # fmt: skip
        return run.final[0] @ run.final[1]

    for over in ("batch", "all"):
        assert_near(end(over, 4.0, metric=Wasserstein()), end(over, 1.0), 1e-7)
