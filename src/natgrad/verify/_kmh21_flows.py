"""Theorems of Kerekes, Mészáros, Huszár 2021 about whole trajectories, and counterexamples.

The residual of a statement is the largest over seeds, shapes and the regimes N < D and N ≥ D. That
of a counter-check, in which one assumption is broken, is the smallest.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from natgrad.directions import euclidean, natural
from natgrad.flows import StepRule, constant, descend, integrate, midpoint
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression, natural_logits
from natgrad.likelihoods import Bernoulli, Gaussian
from natgrad.limits import least_squares, max_margin
from natgrad.parametrizations import Diagonal, Direct, MatrixProduct, Network
from natgrad.parametrizations._products.entries import scatter
from natgrad.verify._identity import counter, distance, identity, normal, separable

Direction = Callable[..., Any]
Path = Callable[[Tensor, tuple[Tensor, Tensor], float], Tensor]
Shapes = tuple[tuple[int, int], ...]

_WIDE = ((4, 7), (6, 7), (3, 12))  # N < D
_TALL = ((12, 5), (8, 8), (40, 3))  # N ≥ D
_SEEDS = range(3)


def natural_path(beta: Tensor, batch: tuple[Tensor, Tensor], t: float) -> Tensor:
    """Return β(t) of natural gradient flow of logistic regression."""
    times = torch.tensor([t], dtype=torch.float64)
    return natural_flow_of_logistic_regression(beta, batch, times).final


def _gradient_path(beta: Tensor, batch: tuple[Tensor, Tensor], t: float) -> Tensor:
    return integrate(euclidean, Bernoulli(), Direct(), beta, batch, until=t).final


def _mapped(seed: int, shape: tuple[int, int], path: Path, t: float) -> tuple[Tensor, ...]:
    """Return β(t) on X, Aᵀβ′(t) from XAᵀ, and X."""
    randn = normal(seed + 50)
    x, y = separable(seed, *shape)
    a, beta = randn(shape[1], shape[1]), 0.5 * randn(shape[1])
    there = torch.linalg.solve(a.mT, beta)
    return path(beta, (x, y), t), a.mT @ path(there, (x @ a.mT, y), t), x


def _gaps_of_logits(path: Path, shapes: Shapes, times: tuple[float, ...]) -> list[float]:
    gaps = []
    for shape in shapes:
        for seed in _SEEDS:
            for t in times:
                one, other, x = _mapped(seed, shape, path, t)
                gaps.append(distance(x @ other, x @ one))
    return gaps


@identity(
    "kmh21/theorem1",
    "natural gradient flow, N < D: training logits do not change under X ↦ XAᵀ (t = 1, 4, 1000)",
    source="[KMH21] Theorem 1 and Conclusion",
    tolerance=1e-8,
)
def theorem_1() -> float:
    return max(_gaps_of_logits(natural_path, _WIDE, (1.0, 4.0, 1e3)))


@counter(
    "kmh21/theorem1-counter",
    "gradient flow, N < D: training logits change under X ↦ XAᵀ",
    source="[KMH21] Theorem 1, another flow",
    exceeds=0.1,
)
def theorem_1_counter() -> float:
    return min(_gaps_of_logits(_gradient_path, _WIDE, (4.0,)))


@identity(
    "kmh21/theorem2",
    "natural gradient flow, N ≥ D: Aᵀβ(XAᵀ) = β(X) along the flow (t = 1, 4, 1000)",
    source="[KMH21] Theorem 2, (6)–(7), (53)–(62)",
    tolerance=1e-7,
)
def theorem_2() -> float:
    worst = 0.0
    for shape in _TALL:
        for seed in _SEEDS:
            for t in (1.0, 4.0, 1e3):
                one, other, _ = _mapped(seed, shape, natural_path, t)
                worst = max(worst, distance(other, one))
    return worst


@counter(
    "kmh21/theorem2-counter",
    "gradient flow, N ≥ D: Aᵀβ(XAᵀ) is not β(X)",
    source="[KMH21] Theorem 2, another flow",
    exceeds=0.1,
)
def theorem_2_counter() -> float:
    paths = (_mapped(seed, shape, _gradient_path, 4.0) for seed in _SEEDS for shape in _TALL)
    return min(distance(other, one) for one, other, _ in paths)


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


def _slope_gap(shape: tuple[int, int], seed: int, t: float) -> tuple[float, float]:
    """Return |s/t − y| and the distance of β/t from least squares, for the flow from zero."""
    x, y = separable(seed, *shape)
    beta = natural_path(torch.zeros(shape[1], dtype=torch.float64), (x, y), t)
    slope = float((x @ beta / t - y).abs().max())
    return slope, distance(beta / t, least_squares(x, y).solution)


@identity(
    "kmh21/theorem3",
    "N < D: logits grow along y, |s/t − y| ≤ log 2/t, and β tends to the least-squares interpolant",
    source="[KMH21] Theorem 3",
    tolerance=1e-6,
)
def theorem_3() -> float:
    return max(max(_slope_gap(shape, seed, 1e6)) for shape in _WIDE for seed in _SEEDS)


@counter(
    "kmh21/theorem3-counter",
    "N > D: the logits' slopes are not the labels, nor is the direction that of least squares",
    source="[KMH21] Theorem 3, N ≥ D",
    exceeds=0.1,
)
def theorem_3_counter() -> float:
    return min(min(_slope_gap(shape, seed, 1e4)) for shape in ((12, 5), (40, 3)) for seed in _SEEDS)


def _logits_by_depth(direction: Direction, seed: int, shape: tuple[int, int]) -> list[Tensor]:
    """Return training logits at t = 2 of depths 1, 2 and 3, from one β."""
    x, y = separable(seed, *shape)
    beta = 1 + 0.3 * normal(seed + 70)(shape[1])
    logits = []
    for depth in (1, 2, 3):
        # One layer is smallest, because the Jacobian loses rank where two layers vanish together.
        w = torch.full((depth, shape[1]), 2.0, dtype=torch.float64)
        w[0] = beta / 2 ** (depth - 1)
        args: Any = (direction, Bernoulli(), Diagonal(depth), w, (x, y))
        path = integrate(*args, until=2.0, method="dop853", rtol=1e-8)
        logits.append(x @ path.final.prod(0))
    return logits


@identity(
    "kmh21/invariance",
    "natural gradient flow at depth 1, 2, 3: the same training logits (both regimes, t = 2)",
    source="[KMH21] §2.3 Statement, appendix E",
    tolerance=1e-5,
)
def reparametrization_invariance() -> float:
    worst = 0.0
    for seed, shape in enumerate(((4, 7), (12, 5), (6, 6))):
        first, *others = _logits_by_depth(natural, seed, shape)
        worst = max(worst, *(distance(other, first) for other in others))
    return worst


@counter(
    "kmh21/invariance-counter",
    "gradient flow at depth 1, 2, 3 takes different paths of training logits",
    source="[KMH21] §2.3, another flow",
    exceeds=0.1,
)
def reparametrization_counter() -> float:
    gaps = []
    for seed, shape in enumerate(((4, 7), (12, 5))):
        first, *others = _logits_by_depth(euclidean, seed, shape)
        gaps += [distance(other, first) for other in others]
    return min(gaps)


def _defect_orders(rule: Callable[[float], StepRule], seeds: range) -> list[float]:
    """Return log₂ of the ratio of gaps between depth 1 and 2 at steps of 0.04 and 0.02, t = 1."""
    orders = []
    for shape in ((5, 9), (12, 5)):
        for seed in seeds:
            x, y = separable(seed, *shape)
            w = torch.stack([0.1 * normal(seed)(shape[1]), torch.ones(shape[1]).double()])
            gaps = [_defect(rule(eta), w, (x, y)) for eta in (0.04, 0.02)]
            orders.append(math.log2(gaps[0] / gaps[1]))
    return orders


def _defect(step: StepRule, w: Tensor, batch: tuple[Tensor, Tensor]) -> float:
    options: Any = {"step": step, "until": 1 - step.size / 2, "save_every": 1000}
    deep = descend(natural, Bernoulli(), Diagonal(2), w, batch, **options).final
    flat = descend(natural, Bernoulli(), Direct(), w.prod(0), batch, **options).final
    return float((batch[0] @ (deep.prod(0) - flat)).norm())


@identity(
    "kmh21/finite-step-defect",
    "natural gradient descent departs from invariance by O(η): the order is 1 within 0.15",
    source="[KMH21] §2.3 ('approximately invariant'); the order is not printed",
    tolerance=0.15,
)
def finite_step_defect() -> float:
    return max(abs(order - 1) for order in _defect_orders(constant, range(3, 5)))


@identity(
    "natgrad/midpoint-defect",
    "midpoint steps depart from invariance by O(η²): the order is 2 within 0.25",
    source="not in the papers",
    tolerance=0.25,
)
def midpoint_defect() -> float:
    return max(abs(order - 2) for order in _defect_orders(midpoint, range(3, 5)))


def _network_logits(widths: tuple[int, int], n: int, seed: int, t: float) -> tuple[Tensor, Tensor]:
    """Return logits of a tanh network at time t, integrated and in closed form."""
    d, hidden = widths
    module = torch.nn.Sequential(
        torch.nn.Linear(d, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    )
    randn, network = normal(seed), Network(module.double())
    params = {name: 0.7 * randn(*p.shape) for name, p in network.init().items()}
    x, y = randn(n, d), torch.sign(randn(n, 1))
    path = integrate(natural, Bernoulli(), network, params, (x, y), until=t, rtol=1e-6)
    start = network.predict(params, x)
    return network.predict(path.final, x)[:, 0], natural_logits(start, y, t)[:, 0]


@identity(
    "kmh21/theorem4-flow",
    "over-parametrized networks: logits follow log(1 + e^{ys}) = t + c (tanh, diagonal, t ≤ 5)",
    source="[KMH21] Theorem 4, (66)–(73), corrected",
    tolerance=1e-6,
)
def theorem_4_flow() -> float:
    worst = max(distance(*_network_logits((3, 12), 6, seed, 2.0)) for seed in (7, 8))
    for seed, (n, d) in enumerate(((4, 9), (6, 8))):
        x, y = separable(seed + 1, n, d)
        w = 0.5 + normal(seed + 2)(2, d).abs()
        path = integrate(natural, Bernoulli(), Diagonal(2), w, (x, y), until=5.0, rtol=1e-9)
        worst = max(worst, distance(x @ path.final.prod(0), natural_logits(x @ w.prod(0), y, 5.0)))
    return worst


@counter(
    "kmh21/theorem4-counter",
    "with more samples than parameters, logits do not follow log(1 + e^{ys}) = t + c",
    source="[KMH21] Theorem 4, Jacobian without full row rank",
    exceeds=0.1,
)
def theorem_4_counter() -> float:
    gaps = []
    for seed, shape in enumerate(_TALL):
        x, y = separable(seed, *shape)
        start = torch.zeros(shape[1], dtype=torch.float64)
        if shape[0] > shape[1]:
            logits = x @ natural_path(start, (x, y), 5.0)
            gaps.append(distance(logits, natural_logits(x @ start, y, 5.0)))
    return min(gaps)


def _completion(depth: int, seed: int) -> tuple[MatrixProduct, tuple[Tensor, ...], Tensor, Tensor]:
    product = MatrixProduct(depth)
    w = product.init_orthogonal((5, 5), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor([[0, 1], [2, 2], [4, 0], [3, 3]])
    return product, w, x, product.predict(w, x) + 0.2 * normal(seed)(4)


def _gap_to_gradient_flow(direction: Direction, depth: int, seed: int, **options: Any) -> float:
    """Return the distance at t = 1.5 from gradient flow of β itself."""
    product, w, x, y = _completion(depth, seed)
    args: Any = (direction, Gaussian(reduction="sum"), product, w, (x, y))
    path = integrate(*args, until=1.5, method="dop853", rtol=1e-8, **options)
    beta = product.hypothesis(w)
    shift = (1 - math.exp(-1.5)) * scatter(beta, x, y - product.predict(w, x))
    moved = product.hypothesis(path.final) - beta
    return distance(moved, shift)


@identity(
    "kmh21/appendix-f",
    "completion: natural gradient flow at depth 2 and 3 is gradient flow of β (orthogonal starts)",
    source="[KMH21] §4 Statement, appendix F",
    tolerance=1e-6,
)
def appendix_f() -> float:
    return max(_gap_to_gradient_flow(natural, depth, seed) for depth in (2, 3) for seed in _SEEDS)


@counter(
    "kmh21/appendix-f-counter",
    "gradient flow of the factors, and natural gradient flow with the Fisher over the observed "
    "entries, are not gradient flow of β",
    source="[KMH21] appendix F, another flow and another Fisher",
    exceeds=0.01,
)
def appendix_f_counter() -> float:
    gaps = []
    for depth in (2, 3):
        for seed in _SEEDS:
            gaps.append(_gap_to_gradient_flow(euclidean, depth, seed))
            gaps.append(_gap_to_gradient_flow(natural, depth, seed, fisher_over="batch"))
    return min(gaps)


def _regression_gap(seed: int, shape: tuple[int, int], ridge: float) -> float:
    """Return how far Xβ and, for N ≥ D, Aᵀβ are from being invariant."""
    x, y = separable(seed, *shape)
    a = normal(seed + 90)(shape[1], shape[1])

    def fit(x: Tensor) -> Tensor:
        if not ridge:
            return least_squares(x, y).solution
        eye = ridge * torch.eye(x.shape[1], dtype=torch.float64)
        solution: Tensor = torch.linalg.solve(x.mT @ x + eye, x.mT @ y)
        return solution

    one, other = fit(x), a.mT @ fit(x @ a.mT)
    gap = distance(x @ other, x @ one)
    return max(gap, distance(other, one)) if shape[0] >= shape[1] else gap


@identity(
    "kmh21/appendix-g",
    "least squares has the same invariance: Xβ (N < D) and Aᵀβ (N ≥ D)",
    source="[KMH21] appendix G; N < D with Xᵀ(XXᵀ)⁻¹y",
    tolerance=1e-9,
)
def appendix_g() -> float:
    return max(_regression_gap(s, shape, 0.0) for s in _SEEDS for shape in (*_WIDE, *_TALL))


@counter(
    "kmh21/appendix-g-counter",
    "ridge regression is not invariant under X ↦ XAᵀ",
    source="[KMH21] appendix G, a penalty that is not invariant",
    exceeds=0.01,
)
def appendix_g_counter() -> float:
    return min(_regression_gap(s, shape, 1.0) for s in _SEEDS for shape in (*_WIDE, *_TALL))
