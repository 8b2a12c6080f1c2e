"""Statements about whole trajectories, each with a counter-check that breaks an assumption.

A statement's residual is the worst over seeds, shapes and the regimes N < D and N ≥ D. A
counter-check measures the same residual with an assumption broken, and holds if it is *large*: its
own residual is tolerance over what was measured, so that a check without teeth fails.
"""

import math

import torch
from torch import Tensor

from natgrad.directions import euclidean, natural
from natgrad.flows import Trajectory, constant, descend, integrate
from natgrad.flows.closed_forms import (
    deep_linear_total,
    natural_flow_of_logistic_regression,
    natural_logits,
)
from natgrad.likelihoods import Bernoulli, Gaussian, Likelihood
from natgrad.limits import least_squares, max_margin, natural_flow
from natgrad.parametrizations import DeepLinear, Diagonal, Direct, MatrixProduct
from natgrad.parametrizations.entries import scatter
from natgrad.parametrizations.propagation import (
    backward_covariances,
    forward_covariances,
    layerwise_direction,
)
from natgrad.verify.identity import distance, identity, normal

_SHAPES = ((4, 7), (12, 5))  # N < D and N ≥ D


def _separable(seed: int, n: int, d: int) -> tuple[Tensor, Tensor]:
    randn = normal(seed)
    x = randn(n, d)
    return x, torch.sign(x @ randn(d))


def _toothless(residual: float, tolerance: float) -> float:
    """Return the residual of a counter-check: small where the broken statement fails clearly."""
    return tolerance / residual if residual else math.inf


def _flow(beta: Tensor, batch: tuple[Tensor, Tensor], t: float) -> Tensor:
    return natural_flow_of_logistic_regression(
        beta, batch, torch.tensor([t], dtype=torch.float64)
    ).final


def _mapped(seed: int, n: int, d: int, direction_is_natural: bool) -> tuple[Tensor, ...]:
    """Return β(t) on X, Aᵀβ′(t) from XAᵀ, and X."""
    randn = normal(seed + 50)
    x, y = _separable(seed, n, d)
    a, beta = randn(d, d), 0.5 * randn(d)
    there = torch.linalg.solve(a.mT, beta)
    if direction_is_natural:
        one, other = _flow(beta, (x, y), 4.0), _flow(there, (x @ a.mT, y), 4.0)
    else:
        one = integrate(euclidean, Bernoulli(), Direct(), beta, (x, y), until=4.0).final
        other = integrate(euclidean, Bernoulli(), Direct(), there, (x @ a.mT, y), until=4.0).final
    return one, a.mT @ other, x


@identity(
    "kmh21/theorem1",
    "natural gradient flow, N < D: training logits do not change under X ↦ XAᵀ (3 seeds, t = 4)",
    source="[KMH21] Theorem 1 and Conclusion",
    tolerance=1e-8,
)
def theorem_1() -> float:
    paths = (_mapped(seed, 4, 7, direction_is_natural=True) for seed in range(3))
    return max(distance(x @ other, x @ one) for one, other, x in paths)


@identity(
    "kmh21/theorem2",
    "natural gradient flow, N ≥ D: Aᵀβ(XAᵀ) = β(X) along the flow (3 seeds, t = 4)",
    source="[KMH21] Theorem 2, (6)–(7), (53)–(62)",
    tolerance=1e-7,
)
def theorem_2() -> float:
    paths = (_mapped(seed, 12, 5, direction_is_natural=True) for seed in range(3))
    return max(distance(other, one) for one, other, _ in paths)


@identity(
    "kmh21/theorem2-counter",
    "gradient flow is not invariant under X ↦ XAᵀ: the same residual exceeds 0.1",
    source="[KMH21] Theorem 2, assumption broken",
    tolerance=1.0,
)
def theorem_2_counter() -> float:
    paths = (_mapped(seed, 12, 5, direction_is_natural=False) for seed in range(3))
    return _toothless(min(distance(other, one) for one, other, _ in paths), 0.1)


@identity(
    "kmh21/max-margin-counterexample",
    "the ℓ2 max margin is not invariant: X = [[2, −3], [1, −4]], y = (1, 1), A = [[1, 2], [−1, 0]]",
    source="[KMH21] appendix D; its own example (N = 1) proves nothing",
    tolerance=1e-9,
)
def max_margin_counterexample() -> float:
    x = torch.tensor([[2.0, -3.0], [1.0, -4.0]], dtype=torch.float64)
    y, a = torch.ones(2, dtype=torch.float64), torch.tensor([[1.0, 2.0], [-1.0, 0.0]]).double()
    plain, mapped = max_margin(x, y).solution, a.mT @ max_margin(x @ a.mT, y).solution
    expected = torch.tensor([2 / 13, -3 / 13], dtype=torch.float64)
    other = torch.tensor([-0.1, -0.4], dtype=torch.float64)
    return max(distance(plain, expected), distance(mapped, other))


@identity(
    "kmh21/theorem3",
    "N < D: logits grow along y, |s/t − y| ≤ log 2/t, and β tends to the least-squares interpolant",
    source="[KMH21] Theorem 3",
    tolerance=1e-6,
)
def theorem_3() -> float:
    worst = 0.0
    for seed in range(3):
        x, y = _separable(seed, 5, 9)
        t = 1e6
        beta = _flow(torch.zeros(9, dtype=torch.float64), (x, y), t)
        slope = float((x @ beta / t - y).abs().max())
        limit = least_squares(x, y).solution
        worst = max(worst, slope, distance(beta / t, limit))
    return worst


@identity(
    "kmh21/theorem3-counter",
    "N > D: the logits' slopes are not the labels; the same residual exceeds 0.1",
    source="[KMH21] Theorem 3, assumption broken",
    tolerance=1.0,
)
def theorem_3_counter() -> float:
    slopes = []
    for seed in range(3):
        x, y = _separable(seed, 12, 5)
        beta = _flow(torch.zeros(5, dtype=torch.float64), (x, y), 1e4)
        slopes.append(float((x @ beta / 1e4 - y).abs().max()))
    return _toothless(min(slopes), 0.1)


@identity(
    "kmh21/invariance",
    "natural gradient flow at depth 1, 2, 3: one path of training logits (both regimes, t = 2)",
    source="[KMH21] §2.3 Statement, appendix E",
    tolerance=1e-5,
)
def reparametrisation_invariance() -> float:
    worst = 0.0
    for seed, (n, d) in enumerate(_SHAPES):
        x, y = _separable(seed, n, d)
        beta = 1 + 0.3 * normal(seed + 70)(d)
        logits = []
        for depth in (1, 2, 3):
            # One layer is smallest: where two vanish together the Jacobian loses rank.
            w = torch.full((depth, d), 2.0, dtype=torch.float64)
            w[0] = beta / 2 ** (depth - 1)
            path = integrate(natural, Bernoulli(), Diagonal(depth), w, (x, y), until=2.0, rtol=1e-8)
            logits.append(x @ path.final.prod(0))
        worst = max(worst, *(distance(other, logits[0]) for other in logits[1:]))
    return worst


@identity(
    "kmh21/finite-step-defect",
    "natural gradient descent departs from invariance by O(η): the order is 1 within 0.15",
    source="[KMH21] §2.3 ('approximately invariant'); the order is not printed",
    tolerance=0.15,
)
def finite_step_defect() -> float:
    x, y = _separable(3, 5, 9)
    w = torch.stack([0.1 * normal(3)(9), torch.ones(9, dtype=torch.float64)])
    gaps = []
    for eta in (0.05, 0.025):
        step = constant(eta)
        deep = descend(natural, Bernoulli(), Diagonal(2), w, (x, y), step=step, until=1.0).final
        beta = w.prod(0)
        flat = descend(natural, Bernoulli(), Direct(), beta, (x, y), step=step, until=1.0).final
        gaps.append(float((x @ (deep.prod(0) - flat)).norm()))
    return abs(math.log2(gaps[0] / gaps[1]) - 1)


@identity(
    "kmh21/appendix-f",
    "completion: natural gradient flow at any depth is gradient flow of β (orthogonal start)",
    source="[KMH21] §4 Statement, appendix F",
    tolerance=1e-6,
)
def appendix_f() -> float:
    worst = 0.0
    for depth in (2, 3):
        product = MatrixProduct(depth)
        w = product.init_orthogonal((5, 5), generator=torch.Generator().manual_seed(depth))
        x = torch.tensor([[0, 1], [2, 2], [4, 0], [3, 3]])
        y = product.predict(w, x) + 0.2 * normal(depth)(4)
        path = integrate(
            natural, Gaussian(reduction="sum"), product, w, (x, y), until=1.5, rtol=1e-8
        )
        beta = product.hypothesis(w)
        shift = scatter(beta, x, y - product.predict(w, x))
        wanted = beta + (1 - math.exp(-1.5)) * shift
        worst = max(worst, distance(product.hypothesis(path.final), wanted))
    return worst


@identity(
    "kmh21/appendix-g",
    "least squares has the same invariance: Xβ (N < D) and Aᵀβ (N ≥ D)",
    source="[KMH21] appendix G; N < D with Xᵀ(XXᵀ)⁻¹y",
    tolerance=1e-10,
)
def appendix_g() -> float:
    worst = 0.0
    for seed, (n, d) in enumerate(_SHAPES):
        x, y = _separable(seed, n, d)
        a = normal(seed + 90)(d, d)
        one, other = least_squares(x, y).solution, a.mT @ least_squares(x @ a.mT, y).solution
        worst = max(worst, distance(x @ other, x @ one))
        if n >= d:
            worst = max(worst, distance(other, one))
    return worst


@identity(
    "blh18/exponential-decay",
    "deep linear networks: W(t) goes straight to W* and the excess loss decays as e^{−2t}",
    source="[BLH18] (16)–(18), suppl. 1.4; every selection",
    tolerance=1e-6,
)
def exponential_decay() -> float:
    worst = 0.0
    for widths in ((3, 3, 3), (3, 5, 4)):
        network, w, batch, optimum = _regression(widths)
        wanted = deep_linear_total(network.hypothesis(w), optimum, 2.0)
        for selection in ("min_norm", "equal_share"):
            path = integrate(
                natural, Gaussian(), network, w, batch, until=2.0, rtol=1e-9, selection=selection
            )
            worst = max(worst, distance(network.hypothesis(path.final), wanted))
            worst = max(worst, _departure_from_rate_two(path, batch, optimum))
    return worst


def _regression(
    widths: tuple[int, ...],
) -> tuple[DeepLinear, tuple[Tensor, ...], tuple[Tensor, Tensor], Tensor]:
    """Return a network near its target, data with unequal variances, and W*."""
    network = DeepLinear(widths)
    w = network.init_orthogonal(generator=torch.Generator().manual_seed(1))
    randn = normal(5)
    x = randn(20, widths[0]) * torch.logspace(0, -1, widths[0], dtype=torch.float64)
    y = x @ (network.hypothesis(w) + 0.3 * randn(widths[-1], widths[0])).mT
    y = y + 0.1 * randn(20, widths[-1])
    optimum: Tensor = torch.linalg.solve(x.mT @ x, x.mT @ y)  # ⟨y xᵀ⟩⟨x xᵀ⟩⁻¹, transposed
    return network, w, (x, y), optimum.mT


def _departure_from_rate_two(
    path: Trajectory[tuple[Tensor, ...]], batch: tuple[Tensor, Tensor], optimum: Tensor
) -> float:
    """Return the largest relative gap between the excess loss and e^{−2t} times its start."""
    x, y = batch
    excess = path.losses - float(Gaussian()(x @ optimum.mT, y))
    return float((excess / excess[0] / torch.exp(-2 * path.times) - 1).abs().max())


@identity(
    "blh18/exponential-decay-counter",
    "gradient flow of the same network does not decay as e^{−2t}: the residual exceeds 0.1",
    source="[BLH18] suppl. (31)–(32), an arbitrary preconditioner",
    tolerance=1.0,
)
def exponential_decay_counter() -> float:
    network, w, batch, optimum = _regression((3, 3, 3))
    path = integrate(euclidean, Gaussian(), network, w, batch, until=2.0)
    return _toothless(_departure_from_rate_two(path, batch, optimum), 0.1)


@identity(
    "natgrad/linear-program",
    "natural gradient flow tends to the vertex of min c·b, X̃b ≥ 1 (N > D and N ≤ D, t = 1e12)",
    source="not in the papers; Cominetti and San Martín 1994",
    tolerance=1e-9,
)
def linear_program() -> float:
    worst = 0.0
    for seed in range(3):
        for n, d in ((30, 8), (12, 10), (5, 9)):
            x, y = _separable(seed, n, d)
            beta = 0.5 * normal(seed + 20)(d)
            direction = _flow(beta, (x, y), 1e12)
            vertex = natural_flow(x, y, beta).solution
            cosine = torch.nn.functional.cosine_similarity(direction, vertex, dim=0)
            worst = max(worst, float(1 - cosine))
    return worst


@identity(
    "natgrad/depth-matters-below-d",
    "N < D: β itself depends on depth (cosine below 0.99), although training logits do not",
    source="not in the papers",
    tolerance=1.0,
)
def depth_matters() -> float:
    x, y = _separable(2, 4, 12)
    beta = 1 + 0.3 * normal(70)(12)
    finals = []
    for depth in (1, 3):
        w = torch.ones(depth, 12, dtype=torch.float64)
        w[0] = beta
        path = integrate(natural, Bernoulli(), Diagonal(depth), w, (x, y), until=6.0, rtol=1e-6)
        finals.append(path.final.prod(0) - beta)
    cosine = float(torch.nn.functional.cosine_similarity(finals[0], finals[1], dim=0))
    return _toothless(1 - cosine, 0.01)


@identity(
    "kmh21/theorem4-flow",
    "logits of an over-parametrised diagonal network follow log(1 + e^{ys}) = t + c to t = 5",
    source="[KMH21] Theorem 4, (66)–(73), corrected",
    tolerance=1e-6,
)
def theorem_4_flow() -> float:
    x, y = _separable(1, 4, 9)
    w = 0.5 + normal(2)(2, 9).abs()
    path = integrate(natural, Bernoulli(), Diagonal(2), w, (x, y), until=5.0, rtol=1e-9)
    return distance(x @ path.final.prod(0), natural_logits(x @ w.prod(0), y, 5.0))


@identity(
    "natgrad/bottleneck-rate",
    "bottlenecks: (10) with pseudo-inverses decays at 2 min(k_in, k_out)/L, min_norm at 2",
    source="[BLH18] (19), suppl. (45) suggest rate 2 for both",
    tolerance=0.02,
)
def bottleneck_rate() -> float:
    worst = 0.0
    for widths, slow in (((5, 2, 5), 1.0), ((4, 4, 2, 4), 2 / 3)):
        network = DeepLinear(widths)
        generator = torch.Generator().manual_seed(0)
        teacher = network.init_gaussian(generator=generator)
        x = torch.randn(50, widths[0], dtype=torch.float64, generator=generator)
        y = network.predict(teacher, x)
        noise = (torch.randn(a.shape, dtype=a.dtype, generator=generator) for a in teacher)
        w = tuple(a + 0.1 * b for a, b in zip(teacher, noise, strict=True))
        # The slowest mode must be alone: late times for slow rates.
        for direction, rate, end in ((_layerwise, slow, 16.0), (natural, 2.0, 8.0)):
            path = integrate(
                direction,
                Gaussian(),
                network,
                w,
                (x, y),
                until=end,
                times=torch.tensor([end - 3, end]),
                method="dop853",
                rtol=1e-7,
            )
            measured = float(torch.log(path.losses[0] / path.losses[1])) / 3
            worst = max(worst, abs(measured / rate - 1))
    return worst


def _layerwise(
    likelihood: Likelihood,
    network: DeepLinear,
    w: tuple[Tensor, ...],
    batch: tuple[Tensor, Tensor],
) -> tuple[Tensor, ...]:
    """Return (10) with pseudo-inverses, which `natural` refuses to call a natural gradient."""
    x, _ = batch
    eye = torch.eye(network.widths[-1], dtype=x.dtype)
    errors = backward_covariances(w, eye)
    inputs = forward_covariances(w, x.mT @ x / len(x))
    return tuple(
        layerwise_direction(euclidean(likelihood, network, w, batch), errors, inputs, rtol=1e-7)
    )
