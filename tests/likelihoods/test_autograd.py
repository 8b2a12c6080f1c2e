"""Losses under every transformation of torch, against torch's own loss in double precision."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.functional import cross_entropy

from natgrad import Bernoulli, Categorical
from natgrad.likelihoods._softmax import covary, softmax
from tests.helpers import F64, assert_near, randn

Y = torch.tensor([0, 2, 1, 3, 3])
LOGITS = {"moderate": 2 * randn(5, 4, seed=1), "large": 2000 + 2 * randn(5, 4, seed=1)}
logits = pytest.mark.parametrize("f", LOGITS.values(), ids=LOGITS)


def ours(f):  # type: ignore[no-untyped-def]
    return Categorical()(f, Y)


def theirs(f):  # type: ignore[no-untyped-def]
    return cross_entropy(f, Y)


@logits
def test_derivatives_of_any_order_and_direction(f):
    assert_near(grad(ours)(f), grad(theirs)(f), 1e-12)
    assert_near(hessian(ours)(f), hessian(theirs)(f), 1e-12)
    assert_near(jacrev(jacrev(ours))(f), hessian(theirs)(f), 1e-12)
    assert_near(jacfwd(jacfwd(ours))(f), hessian(theirs)(f), 1e-12)
    third = jacrev(jacfwd(jacrev(ours)))(f)
    assert_near(third, jacrev(jacfwd(jacrev(theirs)))(f), 1e-11)


@logits
def test_forward_mode_and_batches(f):
    v = randn(5, 4, seed=2)
    for a, b in zip(jvp(ours, (f,), (v,)), jvp(theirs, (f,), (v,)), strict=True):
        assert_near(a, b, 1e-11)
    many = torch.stack([f, f - v, f + v], dim=1)  # the batch need not come first
    assert_near(vmap(ours, 1)(many), vmap(theirs, 1)(many), 1e-12)
    assert_near(vmap(grad(ours), 1)(many), vmap(grad(theirs), 1)(many), 1e-12)
    pushed = vmap(lambda v: jvp(grad(ours), (f,), (v,))[1])(torch.stack([v, f - v]))
    expected = vmap(lambda v: jvp(grad(theirs), (f,), (v,))[1])(torch.stack([v, f - v]))
    assert_near(pushed, expected, 1e-11)


@logits
def test_gradcheck(f):
    leaf = f.clone().requires_grad_(True)
    y, u = Y, randn(5, 4, seed=3).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda f: Categorical().losses(f, y), leaf)
    assert torch.autograd.gradgradcheck(lambda f: Categorical().losses(f, y), leaf)
    assert torch.autograd.gradcheck(lambda f: Categorical().gradient(f, y), leaf)
    assert torch.autograd.gradcheck(softmax, leaf)
    assert torch.autograd.gradcheck(lambda f, u: covary(softmax(f), u), (leaf, u))
    assert torch.autograd.gradcheck(Categorical().fisher, leaf)
    assert torch.autograd.gradcheck(Categorical().mean_fisher, leaf)


def test_a_masked_class_has_no_part():
    f = LOGITS["moderate"].clone()
    f[:, 0] = -torch.inf
    y = torch.tensor([1, 2, 1, 3, 3])
    leaf = f.clone().requires_grad_(True)
    loss = Categorical()(leaf, y)
    loss.backward()
    assert_near(loss, Categorical()(f[:, 1:], y - 1), 1e-14)
    assert_near(leaf.grad[:, 1:], Categorical().gradient(f[:, 1:], y - 1), 1e-14)
    assert not leaf.grad[:, 0].any()
    assert torch.isinf(Categorical()(f, torch.zeros(5, dtype=torch.long)))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_a_number_stays_so(bad):
    f = torch.tensor([[bad, 0.0], [1.0, 0.0]])
    assert torch.isnan(Categorical()(f, torch.tensor([0, 0])))
    assert Categorical().losses(f, torch.tensor([0, 0]))[1] == pytest.approx(0.313262, rel=1e-5)


@pytest.mark.parametrize("make", [Bernoulli, Categorical])
def test_losses_are_single_under_autocast(make):
    """As torch's own, so that a gradient scaler has room."""
    f = torch.zeros(2, 2, dtype=torch.bfloat16)
    y = torch.ones(2, 2) if make is Bernoulli else torch.tensor([0, 1])
    assert make()(f, y).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert make()(f, y).dtype == torch.float32


def test_bernoulli_differentiates_twice():
    s, y = 3 * randn(6, seed=4), torch.tensor([1.0, -1, 1, 1, -1, -1], dtype=F64)
    blocks = hessian(lambda s: Bernoulli(reduction="sum")(s, y))(s)
    assert_near(blocks.diagonal(), Bernoulli(reduction="sum").fisher(s)[:, 0, 0], 1e-13)
