"""Statements of the papers about directions, and what breaks them."""

import pytest
import torch

import natgrad as ng
from natgrad.errors import RankDeficientError
from natgrad.parametrizations._products.entries import scatter
from natgrad.parametrizations._products.lift import partial_products
from natgrad.verify import check, identities
from tests.cases import randn

# More than a second of processor time each.
LONG = {
    "blh18/eq14-15", "blh18/exponential-decay", "kmh21/invariance", "kmh21/theorem4-flow",
    "natgrad/bottleneck-rate", "natgrad/mirror", "natgrad/shortest-l1-rates",
}  # fmt: skip


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(claim, marks=[pytest.mark.slow] if claim.id in LONG else [], id=claim.id)
        for claim in identities()
    ],
)
def test_identity_holds(claim) -> None:
    outcome = check(claim)
    assert outcome.holds, f"{outcome.statement}: {outcome.residual:.1e} > {outcome.tolerance:.0e}"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("outputs_scale", [1.0, 8.0])
def test_theorem_4_velocity_on_nonlinear_networks(seed, outputs_scale) -> None:
    draw = randn(seed)
    module = torch.nn.Sequential(
        torch.nn.Linear(5, 24), torch.nn.Tanh(), torch.nn.Linear(24, 12), torch.nn.Softplus(),
        torch.nn.Linear(12, 1),
    ).double()  # fmt: skip
    network = ng.Network(module)
    params = {name: 0.8 * draw(*p.shape) for name, p in network.init().items()}
    params["4.weight"] = outputs_scale * params["4.weight"]
    x, y = draw(25, 5), torch.sign(draw(25, 1))
    v = ng.natural(ng.Bernoulli(), network, params, (x, y))
    s = network.predict(params, x)
    wanted = y / torch.sigmoid(y * s)
    assert float((network.jvp(params, x, v) - wanted).norm() / wanted.norm()) < 1e-10


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_printed_order_of_kmh21_51_fails(depth) -> None:
    """The paper prints Bᵢᵀ⁺ ∇ Aᵢ⁺; only Aᵢ⁺ ∇ Bᵢ⁺ moves β along −∇."""
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((5, 5), scale=1.0, generator=torch.Generator().manual_seed(depth))
    x = torch.tensor([[0, 1], [2, 2], [4, 0]])
    descent = scatter(product.hypothesis(w), x, randn(1)(3))
    eye = torch.eye(5, dtype=torch.float64)
    left, right = ([eye if m is None else m for m in side] for side in partial_products(w))
    printed = tuple(
        torch.linalg.pinv(b.mT) @ descent @ torch.linalg.pinv(a) / depth
        for a, b in zip(left, right, strict=True)
    )
    corrected = product.lift(w, descent, shares=[1 / depth] * depth)
    assert float((product.push(w, corrected) - descent).norm() / descent.norm()) < 1e-9
    assert float((product.push(w, printed) - descent).norm() / descent.norm()) > 0.1


def test_reparametrisation_invariance_needs_a_full_rank_jacobian() -> None:
    """All depths move training logits alike; a coordinate stuck at zero breaks it."""
    draw = randn(4)
    x, y = draw(4, 6), torch.sign(draw(4))
    beta = draw(6)
    velocities = []
    for depth in (1, 2, 3):
        w = torch.ones(depth, 6, dtype=torch.float64)
        w[0] = beta
        v = ng.natural(ng.Bernoulli(), ng.Diagonal(depth), w, (x, y))
        velocities.append(ng.Diagonal(depth).jvp(w, x, v))
    for other in velocities[1:]:
        assert torch.allclose(other, velocities[0], rtol=1e-10)
    stuck = torch.ones(3, 6, dtype=torch.float64)
    stuck[0], stuck[1, 2:], stuck[2, 2:] = beta, 0, 0  # Jacobian of rank 2 < N = 4
    v = ng.natural(ng.Bernoulli(), ng.Diagonal(3), stuck, (x, y))
    s = y * ng.Diagonal(3).predict(stuck, x)
    assert not torch.allclose(y * ng.Diagonal(3).jvp(stuck, x, v), 1 + torch.exp(-s), rtol=0.1)


def test_beta_depends_on_depth_when_n_is_below_d() -> None:
    """Only the training logits are invariant: β itself moves differently at each depth."""
    draw = randn(5)
    x, y, beta = draw(3, 8), torch.sign(draw(3)), draw(8)
    two = torch.stack([beta, torch.ones(8, dtype=torch.float64)])
    direct = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    deep = ng.Diagonal(2).push(two, ng.natural(ng.Bernoulli(), ng.Diagonal(2), two, (x, y)))
    assert torch.allclose(x @ direct, x @ deep, rtol=1e-10)
    assert float((direct - deep).norm() / direct.norm()) > 0.05


@pytest.mark.parametrize("widths", [(4, 4, 4), (3, 6, 5, 4)])
def test_any_shares_and_the_minimum_norm_move_w_alike(widths) -> None:
    network = ng.DeepLinear(widths)
    w = network.init_gaussian(generator=torch.Generator().manual_seed(3))
    draw = randn(6)
    batch = draw(20, widths[0]), draw(20, widths[-1])
    layers = len(widths) - 1
    first = [1.0] + [0.0] * (layers - 1)
    mixed = [-0.5, 1.5] + [0.0] * (layers - 2)
    moved = [
        network.push(w, ng.natural(ng.Gaussian(), network, w, batch, selection=selection))
        for selection in ("min_norm", "equal_share", ng.LayerShares(first), ng.LayerShares(mixed))
    ]
    for other in moved[1:]:
        assert torch.allclose(other, moved[0], rtol=1e-8, atol=1e-10)


def test_a_bottleneck_refuses_to_share_and_says_what_to_try() -> None:
    network = ng.DeepLinear((4, 2, 4))
    w = network.init_gaussian(generator=torch.Generator().manual_seed(3))
    batch = randn(7)(10, 4), randn(8)(10, 4)
    with pytest.raises(RankDeficientError, match="min_norm"):
        ng.natural(ng.Gaussian(), network, w, batch, selection="equal_share")


def test_minimum_norm_is_shorter_than_every_share() -> None:
    product = ng.MatrixProduct(3)
    w = product.init_gaussian((5, 5), scale=1.0, generator=torch.Generator().manual_seed(9))
    x, y = torch.tensor([[0, 1], [2, 2], [4, 0]]), randn(9)(3)
    norms = []
    for selection in ("min_norm", "equal_share", ng.LayerShares((0.0, 1.0, 0.0))):
        v = ng.natural(ng.Gaussian(), product, w, (x, y), selection=selection)
        norms.append(sum(float(t.square().sum()) for t in v))
    assert norms[0] < min(norms[1:])
