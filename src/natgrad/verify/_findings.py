"""Identities of docs/findings.md: results that the papers do not state, or state differently."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from natgrad.directions import Wasserstein, euclidean, natural
from natgrad.directions.metric import Mean
from natgrad.flows import decaying_damping, end_to_end, integrate
from natgrad.flows._methods.dual.layers import Layers
from natgrad.flows.closed_forms import natural_logits
from natgrad.likelihoods import Bernoulli, Gaussian
from natgrad.limits import basis_pursuit, least_squares, max_margin, natural_flow
from natgrad.parametrizations import DeepLinear, Diagonal, Direct, MatrixProduct
from natgrad.verify._blh18_flows import layerwise
from natgrad.verify._identity import cosine, counter, distance, identity, normal, separable
from natgrad.verify._kmh21_flows import natural_path

_SHAPES = ((30, 8), (12, 10), (10, 10), (5, 9))  # N > D, N = D and N < D


def _start(seed: int, d: int) -> Tensor:
    """Return zero or a random start, near or far."""
    return (0.0, 0.5, 2.0)[seed % 3] * normal(seed + 20)(d)


@identity(
    "natgrad/linear-program",
    "natural gradient flow tends to the vertex of min c·b, X̃b ≥ 1 (N > D and N ≤ D, t = 1e12)",
    source="not in the papers; Cominetti and San Martín 1994",
    tolerance=1e-9,
)
def linear_program() -> float:
    worst = 0.0
    for seed in range(6):
        for n, d in _SHAPES:
            batch, beta = separable(seed, n, d), _start(seed, d)
            vertex = natural_flow(*batch, beta).solution
            worst = max(worst, distance(natural_path(beta, batch, 1e12) / 1e12, vertex))
    return worst


@counter(
    "natgrad/linear-program-counter",
    "N > D: the vertex need not be the max margin of ℓ2 or ℓ1, nor that of another start",
    source="not in the papers",
    exceeds=0.05,
)
def linear_program_counter() -> float:
    gaps = torch.zeros(3, 3)
    for seed in range(3):
        batch = separable(seed + 1, 25, 12)
        direction = natural_path(torch.zeros(12, dtype=torch.float64), batch, 1e12)
        start = 3 * normal(seed + 41)(12)
        others = max_margin(*batch), max_margin(*batch, 1), natural_flow(*batch, start)
        gaps[seed] = torch.tensor([1 - cosine(direction, other.solution) for other in others])
    return float(gaps.amax(0).min())


@identity(
    "natgrad/regularization-path",
    "damping λ₀e^{−t}: natural flow is a ridge path (L = 1) and a Bregman path (L = 2, 3)",
    source="not in the papers; compare Suggala, Prasad and Ravikumar 2018",
    tolerance=1e-8,
)
def regularization_path() -> float:
    # Balanced factors have JJᵀ = L β^{2−2/L} = 1/ψ″, and d(−eᵗ∇L)/dt = λ₀ d∇ψ(β)/dt.
    mirrors: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda b: b,
        lambda b: b.log() / 2,
        lambda b: -(b ** (-1 / 3)),
    )
    worst = 0.0
    for depth, mirror in enumerate(mirrors, 1):
        for seed, (n, d) in ((1, (8, 12)), (2, (20, 5))):
            x, y = separable(seed, n, d)
            first = 0.25 + 0.2 * normal(seed + 90)(d).abs()
            model: Any = Direct() if depth == 1 else Diagonal(depth)
            w = first if depth == 1 else first.pow(1 / depth).repeat(depth, 1)
            damping = decaying_damping(0.5)
            path = integrate(
                natural, Bernoulli(), model, w, (x, y),
                until=3.0, rtol=1e-12, atol=1e-13, damping=damping,
            )  # fmt: skip
            beta = path.final if depth == 1 else path.final.prod(0)
            pushed = [Bernoulli().gradient(x @ b, y) @ x for b in (first, beta)]
            left = pushed[0] - math.exp(3.0) * pushed[1]
            worst = max(worst, distance(left, 0.5 * (mirror(beta) - mirror(first))))
    return worst


@identity(
    "natgrad/wasserstein",
    "Wasserstein on outputs: Gaussian σ² times the Fisher; Bernoulli graph M = (p(1 − p))²/θ",
    source="Li and Montúfar 2018; not in the papers",
    tolerance=1e-11,
)
def wasserstein() -> float:
    worst = 0.0
    for seed in range(4):
        x, beta = normal(seed + 95)(5, 9), normal(seed + 96)(9)
        y = torch.sign(normal(seed + 97)(5))
        noise = Gaussian(2.5 * torch.eye(1, dtype=torch.float64))
        moved = natural(noise, Direct(), beta, (x, y), metric=Wasserstein())
        worst = max(worst, distance(2.5 * moved, natural(noise, Direct(), beta, (x, y))))
        p = torch.sigmoid(x @ beta)
        means: dict[Mean, Tensor] = {
            "arithmetic": torch.full_like(p, 0.5),
            "geometric": (p * (1 - p)).sqrt(),
            "harmonic": 2 * p * (1 - p),
            "logarithmic": (2 * p - 1) / (p / (1 - p)).log(),
        }
        for mean, theta in means.items():
            v = natural(Bernoulli(), Direct(), beta, (x, y), metric=Wasserstein(mean=mean))
            velocity = y * torch.sigmoid(-y * (x @ beta)) * theta / (p * (1 - p)) ** 2
            worst = max(worst, distance(x @ v, velocity))
    return worst


@counter(
    "natgrad/depth-matters-below-d",
    "N < D: β itself depends on depth, one minus the cosine of its change",
    source="not in the papers",
    exceeds=0.01,
)
def depth_matters() -> float:
    gaps = []
    for seed, (n, d) in ((2, (4, 12)), (3, (6, 15))):
        x, y = separable(seed, n, d)
        beta = 1 + 0.3 * normal(seed + 68)(d)
        finals = []
        for depth in (1, 3):
            w = torch.ones(depth, d, dtype=torch.float64)
            w[0] = beta
            path = integrate(natural, Bernoulli(), Diagonal(depth), w, (x, y), until=6.0, rtol=1e-6)
            finals.append(path.final.prod(0) - beta)
        gaps.append(1 - cosine(finals[0], finals[1]))
    return min(gaps)


_PURSUITS = ((0, (3, 8)), (1, (5, 9)), (2, (4, 12)), (3, (6, 20)))  # seed and N < D


def _scales(seed: int, d: int) -> tuple[Tensor, Tensor]:
    """Return starts with one α for all coordinates, and with a different α for each."""
    return torch.ones(d, dtype=torch.float64), torch.exp(0.5 * normal(seed + 5)(d))


def _free(depth: int, scales: Tensor) -> Tensor:
    """Return factors w₁ = 0 and the others α, coordinate by coordinate."""
    w = scales.repeat(depth, 1)
    w[0] = 0
    return w


def _shortest(batch: tuple[Tensor, Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return b* = argmin Σ mⱼ|bⱼ| subject to Xb = y, and |xⱼ·ν̄|/mⱼ of its dual solution."""
    x, y = batch
    found = basis_pursuit(x / weights, y)
    assert found.dual is not None
    return found.solution / weights, ((x / weights).mT @ found.dual).abs()


def _mirror_path(w: Tensor, batch: tuple[Tensor, Tensor], *times: float) -> Iterator[Tensor]:
    """Yield β = φ(Xᵀν) with the logits of Theorem 4, by Newton's method, without integration."""
    x, y = batch
    layers, v = Layers.of(w)
    start, now = x @ w.prod(0), 1.0
    for t in times:
        while now < t:
            now = min(4 * now, t)
            v = _newton(x, layers, v, natural_logits(start, y, now))
        yield layers.beta(v)


def _newton(x: Tensor, layers: Layers, v: Tensor, goal: Tensor) -> Tensor:
    """Return the layers moved along Xᵀν until the logits are `goal`, to rounding error."""
    z, here = torch.zeros_like(v), v
    miss = goal - x @ layers.beta(v)
    share = 1.0
    while share > 1e-9 and miss.norm() > 1e-14 * goal.norm():
        step = x.mT @ torch.linalg.solve((x * layers.speed(here)) @ x.mT, miss)
        share = 1.0
        while share > 1e-9:
            there = layers.advance(v, z + share * step)
            left = goal - x @ layers.beta(there)
            if left.norm() < miss.norm():  # never for the NaN past a pole
                z, here, miss = z + share * step, there, left
                break
            share /= 2
    return here


@identity(
    "natgrad/mirror",
    "N < D: minimum-norm natural flow of diagonal networks is β = φ(Xᵀν), from ν alone (t = 20)",
    source="not in the papers",
    tolerance=1e-7,
)
def mirror() -> float:
    worst = 0.0
    for depth in (2, 3, 4):
        for seed, shape in _PURSUITS[:2]:
            batch = separable(seed, *shape)
            for scales in _scales(seed, shape[1]):
                w = _free(depth, scales)
                args: Any = (natural, Bernoulli(), Diagonal(depth), w, batch)
                path = integrate(*args, until=20.0, method="dop853", rtol=1e-8)
                (beta,) = _mirror_path(w, batch, 20.0)
                worst = max(worst, distance(beta, path.final.prod(0)))
    return worst


@identity(
    "natgrad/shortest-l1",
    "N < D, L = 3, 4: minimum-norm natural flow tends to argmin Σ α^{2−L}|b| with Xb = y, for one "
    "α or many (t = 1e12)",
    source="not in the papers; docs/findings.md",
    tolerance=1e-7,
)
def shortest_l1() -> float:
    return max(_pursuit_gaps(1e12))


def _pursuit_gaps(t: float) -> list[float]:
    """Return distances of β(t)/t from the shortest weighted interpolant, L = 3 and 4."""
    gaps = []
    for depth in (3, 4):
        for seed, shape in _PURSUITS:
            batch = separable(seed, *shape)
            for scales in _scales(seed, shape[1]):
                shortest, _ = _shortest(batch, scales ** (2 - depth))
                (beta,) = _mirror_path(_free(depth, scales), batch, t)
                gaps.append(distance(beta / t, shortest))
    return gaps


@counter(
    "natgrad/shortest-l1-counter",
    "natural flow at L = 1, and at L = 3 and 4 from many α, need not tend to the shortest "
    "unweighted ℓ1 interpolant",
    source="not in the papers; another start, another depth",
    exceeds=0.05,
)
def shortest_l1_counter() -> float:
    gaps = torch.zeros(len(_PURSUITS), 3)
    for seed, (n, d) in _PURSUITS:
        batch, (one, many) = separable(seed, n, d), _scales(seed, d)
        shortest, _ = _shortest(batch, one)
        ends = [next(_mirror_path(_free(depth, many), batch, 1e12)) / 1e12 for depth in (3, 4)]
        others = least_squares(*batch).solution, *ends
        gaps[seed] = torch.tensor([distance(other, shortest) for other in others])
    return float(gaps.amax(0).min())


@identity(
    "natgrad/shortest-l1-rates",
    "natural flow approaches the shortest ℓ1 interpolant like 1/t at L = 3, 4; at L = 2, β outside "
    "the support grows like t^|x·ν̄|",
    source="not in the papers; docs/findings.md",
    tolerance=0.02,
)
def shortest_l1_rates() -> float:
    pairs = zip(_pursuit_gaps(1e11), _pursuit_gaps(1e12), strict=True)
    worst = max(abs(math.log10(early / late) - 1) for early, late in pairs)
    for seed, (n, d) in _PURSUITS:
        batch, one = separable(seed, n, d), torch.ones(d, dtype=torch.float64)
        shortest, slopes = _shortest(batch, one)
        early, late = (beta.abs() for beta in _mirror_path(_free(2, one), batch, 1e20, 1e30))
        off = shortest == 0
        worst = max(worst, float((torch.log10(late / early) / 10 - slopes)[off].abs().max()))
    return worst


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
        # Only the slowest mode may be left, so slow rates are measured at late times.
        for direction, rate, end in ((layerwise, slow, 16.0), (natural, 2.0, 8.0)):
            args: Any = (direction, Gaussian(), network, w, (x, y))
            times = torch.tensor([end - 3, end])
            path = integrate(*args, until=end, times=times, method="dop853", rtol=1e-7)
            measured = float(torch.log(path.losses[0] / path.losses[1])) / 3
            worst = max(worst, abs(measured / rate - 1))
    return worst


def _balanced(depth: int, shape: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return factors with WᵢᵀWᵢ = Wᵢ₊₁Wᵢ₊₁ᵀ, from the singular values of their product."""
    beta = torch.randn(*shape, dtype=torch.float64, generator=generator)
    u, s, vh = torch.linalg.svd(beta, full_matrices=False)
    root = torch.diag(s ** (1 / depth))
    return (u @ root, *[root] * (depth - 2), root @ vh)


def _end_to_end_gaps(balanced: bool) -> list[float]:
    """Return gaps at t = 1 between gradient flow of factors and Arora et al.'s equation for β."""
    gaps = []
    for depth in (2, 3, 4):
        for seed, shape in enumerate(((4, 4), (3, 5))):
            generator = torch.Generator().manual_seed(10 * depth + seed)
            product, w = MatrixProduct(depth), _balanced(depth, shape, generator)
            if not balanced:  # the same product, one factor twice as large and one half
                w = (2 * w[0], *w[1:-1], w[-1] / 2)
            x = torch.cartesian_prod(torch.arange(shape[0]), torch.arange(shape[1]))[::2]
            y = torch.randn(len(x), dtype=torch.float64, generator=generator)
            options: Any = {"until": 1.0, "method": "dop853", "rtol": 1e-10}
            loss = Gaussian(reduction="sum")
            path = integrate(euclidean, loss, product, w, (x, y), **options)
            beta = product.hypothesis(w)
            alone = integrate(end_to_end(depth), loss, Direct(), beta, (x, y), **options)
            gaps.append(distance(product.hypothesis(path.final) - beta, alone.final - beta))
    return gaps


@identity(
    "natgrad/end-to-end",
    "balanced factors: gradient flow moves the product by Arora et al.'s equation in β alone",
    source="not in the papers; Arora, Cohen and Hazan 2018, Theorem 1",
    tolerance=1e-7,
)
def end_to_end_flow() -> float:
    return max(_end_to_end_gaps(balanced=True))


@counter(
    "natgrad/end-to-end-counter",
    "unbalanced factors of the same product do not follow Arora et al.'s equation",
    source="Arora, Cohen and Hazan 2018, Theorem 1, without balancedness",
    exceeds=0.05,
)
def end_to_end_counter() -> float:
    return min(_end_to_end_gaps(balanced=False))
