"""Step rules against torch's optimizers, dense formulas, and the margins they tend to."""

import math

import pytest
import scipy.linalg
import torch

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Diagonal,
    Direct,
    Gaussian,
    Network,
    descend,
    diagnostics,
    euclidean,
    natural,
    reference,
)
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.flows import (
    adam,
    capped,
    constant,
    diagonal_fisher,
    kfac,
    momentum,
    muon,
    shampoo,
    steepest,
)
from natgrad.limits import certify, gradient_weights, max_margin, multiclass_max_margin
from natgrad.linalg.norms import Metric, Nuclear, Spectral
from natgrad.stopping import loss_below, steps_reached
from tests.helpers import F64, assert_near, for_each, kron, randn, signs
from tests.limits.data import separable

X, Y = randn(8, 5, seed=0), signs(8, seed=1)
LABELS = torch.arange(8) % 3


def run(rule, steps, likelihood=None, start=None, batch=(X, Y), model=None, **options):
    start = torch.zeros(batch[0].shape[1], dtype=F64) if start is None else start
    return descend(
        euclidean, likelihood or Bernoulli(), model or Direct(), start, batch,
        step=rule, until=steps_reached(steps), **options,
    )  # fmt: skip


def gradient(beta, x=X, y=Y, likelihood=None):
    """−∇L by autograd."""
    b = beta.clone().requires_grad_()
    (g,) = torch.autograd.grad((likelihood or Bernoulli())(x @ b, y), b)
    return -g


def by_torch(kind, steps, start=None, order=None, **options):
    """The iterates of an optimizer of torch."""
    beta = torch.zeros(5, dtype=F64) if start is None else start.clone()
    beta.requires_grad_()
    optimizer = kind([beta], **options)
    for k in range(steps):
        rows = slice(None) if order is None else order[k % len(order)]
        optimizer.zero_grad()
        Bernoulli()(X[rows] @ beta, Y[rows]).backward()
        optimizer.step()
    return beta.detach()


def test_momentum_and_adam_are_those_of_torch():
    sgd, adams = torch.optim.SGD, torch.optim.Adam
    plain = by_torch(sgd, 20, lr=0.3, momentum=0.8)
    assert_near(run(momentum(0.3, mass=0.8), 20).final, plain, 1e-12)
    ahead = by_torch(sgd, 20, lr=0.3, momentum=0.8, nesterov=True)
    assert_near(run(momentum(0.3, mass=0.8, nesterov=True), 20).final, ahead, 1e-12)
    found = run(adam(0.1, beta1=0.8, beta2=0.95, eps=1e-6), 20).final
    assert_near(found, by_torch(adams, 20, lr=0.1, betas=(0.8, 0.95), eps=1e-6), 1e-12)


def test_adam_of_single_samples_in_order():
    single = by_torch(torch.optim.Adam, 20, order=[slice(k, k + 1) for k in range(8)], lr=0.1)
    assert_near(run(adam(0.1), 20, batch_size=1, order="cyclic").final, single, 1e-12)


def test_rules_start_without_memory_each_time():
    for rule in (adam(0.1), capped(momentum(0.1), 0.5), shampoo(0.1)):
        assert_near(run(rule, 5).final, run(rule, 5).final, 0)


def test_steepest_descents_by_definition():
    beta = randn(5, seed=2)
    g = gradient(beta)
    step = lambda rule: run(rule, 1, start=beta).final - beta  # noqa: E731
    assert_near(step(steepest(math.inf, 0.1)), 0.1 * g.sign(), 1e-12)
    top = torch.zeros(5, dtype=F64)
    top[g.abs().argmax()] = g[g.abs().argmax()].sign()
    assert_near(step(steepest(1, 0.1)), 0.1 * top, 1e-12)
    assert_near(step(steepest(2, 0.1)), 0.1 * g / g.norm(), 1e-12)
    assert_near(step(steepest(2, 0.1, unit=False)), 0.1 * g, 1e-12)
    assert_near(step(steepest(math.inf, 0.1, unit=False)), 0.1 * g.abs().sum() * g.sign(), 1e-12)
    start = randn(5, 3, seed=3)
    batch = (X, randn(8, 3, seed=4))
    g = gradient(start, y=batch[1], likelihood=Gaussian())
    moved = run(steepest(Spectral(), 0.1), 1, Gaussian(), start, batch).final - start
    assert_near(moved, 0.1 * torch.as_tensor(scipy.linalg.polar(g.numpy())[0]), 1e-9)


def test_steps_shorten_with_the_power_that_is_asked():
    trace = run(steepest(2, 0.1, decay=0.5), 4).states
    lengths = (trace[1:] - trace[:-1]).norm(dim=1)
    assert_near(lengths, 0.1 / torch.arange(1, 5, dtype=F64).sqrt(), 1e-12)


def test_shampoo_is_the_root_of_a_kronecker_product():
    start = randn(5, 3, seed=3)
    batch = (X, randn(8, 3, seed=4))
    left, right, beta = 0.0, 0.0, start
    for _ in range(3):
        g = gradient(beta, y=batch[1], likelihood=Gaussian())
        left, right = left + g @ g.mT, right + g.mT @ g
        values, vectors = torch.linalg.eigh(kron(left, right))
        kept = values > 1e-9 * values[-1]
        root = (vectors[:, kept] * values[kept] ** -0.25) @ vectors[:, kept].mT
        beta = beta + 0.1 * (root @ g.reshape(-1)).reshape(5, 3)
    assert_near(run(shampoo(0.1), 3, Gaussian(), start, batch).final, beta, 1e-7)
    once = run(shampoo(0.1, keep=0.0), 1, Gaussian(), start, batch).final
    spectral = run(steepest(Spectral(), 0.1), 1, Gaussian(), start, batch).final
    assert_near(once, spectral, 1e-6)


def test_muon_sets_singular_values_to_one():
    start = randn(5, 3, seed=3)
    beta, m = start, torch.zeros(5, 3, dtype=F64)
    for _ in range(3):
        g = gradient(beta, y=LABELS, likelihood=Categorical())
        m = 0.95 * m + g
        polar = scipy.linalg.polar((g + 0.95 * m).numpy())[0]
        beta = beta + 0.1 * torch.as_tensor(polar)
    found = run(muon(0.1), 3, Categorical(), start, (X, LABELS)).final
    # A softmax gradient has a zero singular value, which a polar factor may turn: compare the rest.
    seen = torch.eye(3, dtype=F64) - 1 / 3
    assert_near((found - start) @ seen, (beta - start) @ seen, 1e-9)


def test_diagonal_fisher_divides_by_the_dense_diagonal():
    w = randn(2, 5, seed=3)
    fisher = reference.fisher(Bernoulli(), Diagonal(depth=2), w, X)
    g = euclidean(Bernoulli(), Diagonal(depth=2), w, (X, Y))
    expected = g.flatten() / (fisher.diagonal() + 0.01)
    found = run(diagonal_fisher(0.1, damping=0.01), 1, start=w, model=Diagonal(depth=2)).final
    assert_near((found - w).flatten(), 0.1 * expected, 1e-10)


def test_kfac_is_exact_for_gaussian_noise_and_a_kronecker_product_otherwise():
    start = randn(5, 3, seed=3)
    noise = Gaussian(randn(3, 3, seed=5) @ randn(3, 3, seed=5).mT + torch.eye(3, dtype=F64))
    batch = (X, randn(8, 3, seed=4))
    moved = run(kfac(1.0), 1, noise, start, batch).final - start
    assert_near(moved, natural(noise, Direct(), start, batch), 1e-9)
    p = torch.softmax(X @ start, 1)
    g = sum(torch.diag(q) - torch.outer(q, q) for q in p) / 8
    a = X.mT @ X / 8 + 0.1 * torch.eye(5, dtype=F64)
    v = gradient(start, y=LABELS, likelihood=Categorical())
    expected = torch.linalg.pinv(kron(a, g), rtol=1e-10) @ v.reshape(-1)
    moved = run(kfac(1.0, damping=0.1), 1, Categorical(), start, (X, LABELS)).final - start
    assert_near(moved.reshape(-1), expected, 1e-9)
    both = kfac(1.0, damping=0.1, class_damping=0.3)
    moved = run(both, 1, Categorical(), start, (X, LABELS)).final - start
    dense = kron(a, g + 0.3 * torch.eye(3, dtype=F64))
    assert_near(moved.reshape(-1), torch.linalg.solve(dense, v.reshape(-1)), 1e-9)


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_kfac_in_single_precision_leaves_out_what_is_rounding(damping):
    """A softmax Fisher has a null direction; its rounding error must not be inverted."""

    def end(dtype):
        batch = (X.to(dtype), LABELS)
        rule = kfac(0.1, damping=damping)
        return run(rule, 20, Categorical(), torch.zeros(5, 3, dtype=dtype), batch).final.double()

    assert_near(end(torch.float32), end(F64), 1e-4)


def test_caps_hold_and_pass_short_steps():
    start = (randn(2, 5, seed=1), randn(1, 2, seed=2))
    batch = (X, Y[:, None])
    long = run(
        capped(constant(100.0), 0.1), 6, start=start, batch=batch, model=DeepLinear((5, 2, 1))
    )
    for w in long.states:
        change = (w[1:] - w[:-1]).flatten(1).norm(dim=1) / w[:-1].flatten(1).norm(dim=1)
        assert float(change.max()) <= 0.1 * (1 + 1e-12)
    assert float(change.max()) > 0.02
    beta = randn(5, seed=2)
    free = run(capped(constant(1e-3), 0.1), 3, start=beta).final
    assert_near(free, run(constant(1e-3), 3, start=beta).final, 0)


def test_what_rules_refuse():
    for wrong in (lambda: adam(0.1, beta1=1.0), lambda: steepest(0.5, 0.1), lambda: shampoo(-1.0),
                  lambda: capped(0.1), lambda: kfac(0.1, damping=-1.0),
                  lambda: kfac(0.1, class_damping=-1.0)):  # fmt: skip
        with pytest.raises(InvalidInputError):
            wrong()
    with pytest.raises(UnsupportedError, match="NGD"):
        run(kfac(0.1), 1, start=randn(2, 5, seed=0), model=Diagonal(depth=2))


# Where they tend


def test_each_steepest_descent_tends_to_the_margin_of_its_own_norm():
    x, y = separable(15, 25, seed=2)

    def check(p):
        rule = steepest(p, 0.3, decay=0.5)
        end = run(rule, 4000, batch=(x, y), save_every=4000).final
        best = {q: max_margin(x, y, q).value for q in (1, 2, math.inf)}
        fraction = {q: float(diagnostics.margin(end, x, y, q)) / best[q] for q in best}
        assert fraction[p] > 0.9
        assert fraction[p] == max(fraction.values())

    for_each([1, 2, math.inf], check)


def test_spectral_descent_and_its_own_certificate():
    x = randn(12, 8, seed=3)
    labels = (x @ randn(8, 3, seed=4)).argmax(1)
    trace = run(
        steepest(Spectral(), 0.3, decay=0.5), 1500, Categorical(),
        torch.zeros(8, 3, dtype=F64), (x, labels), save_every=5,
    )  # fmt: skip
    weights = [gradient_weights(Categorical(), x @ b, labels) for b in trace.states]
    found = certify(trace.final.mT, torch.stack(weights).mean(0), x, labels, Spectral())
    best = multiclass_max_margin(x, labels, Spectral()).value
    assert found.margin <= best * (1 + 1e-12) <= found.bound * (1 + 2e-12)
    assert found.fraction > 0.9
    early = certify(trace.states[60].mT, weights[60], x, labels, Spectral())
    assert early.margin < 0.95 * best < found.margin
    other = multiclass_max_margin(x, labels, Nuclear()).solution
    assert certify(other, weights[-1], x, labels, Spectral()).margin < found.margin


def test_kfac_tends_to_the_margin_in_its_own_metric():
    x, y = separable(20, 8, seed=5)
    x = x * torch.linspace(0.3, 3, 8, dtype=F64)
    metric = Metric(x.mT @ x / 20 + 0.1 * torch.eye(8, dtype=F64))
    end = run(kfac(0.2, damping=0.1), 1500, batch=(x, y), save_every=1500).final
    angle = float(diagnostics.angle(end, max_margin(x, y, metric).solution))
    assert math.degrees(angle) < 0.5
    assert float(diagnostics.angle(end, max_margin(x, y).solution)) > 5 * angle


def test_adam_with_weight_decay_is_adamw_of_torch():
    found = run(adam(0.1, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.3), 20).final
    options = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.3}
    assert_near(found, by_torch(torch.optim.AdamW, 20, **options), 1e-12)


def test_a_capped_bias_may_change_its_sign() -> None:
    """Relative to itself alone, a number can only shrink on its way to zero."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1).double()
    with torch.no_grad():
        module.bias.fill_(0.3)
    x = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = x @ module.weight.detach().mT - 0.3
    network = Network(module)
    run = descend(
        natural, Gaussian(), network, network.init(), (x, y), step=capped(constant(0.5), 0.1),
        until=loss_below(1e-8) | steps_reached(100),
    )  # fmt: skip
    assert run.losses[-1] < 1e-8
    assert float(run.final["bias"]) == pytest.approx(-0.3, abs=1e-3)
