"""Identities of Kerekes, Mészáros, Huszár 2021, as corrected in docs/paper_map.md."""

import numpy as np
import torch
from torch import Tensor

from natgrad import reference
from natgrad.directions import GaussianInputs, LayerShares, euclidean, natural
from natgrad.directions._kernels import natural_ntk, ntk
from natgrad.likelihoods import Bernoulli, Gaussian
from natgrad.linalg import lstsq
from natgrad.parametrizations import Diagonal, Direct, MatrixProduct, Network
from natgrad.parametrizations._products.entries import scatter
from natgrad.parametrizations._products.lift import multiply, partial_products
from natgrad.verify._identity import counter, distance, identity, normal


def _logistic(seed: int, n: int, d: int) -> tuple[Tensor, Tensor]:
    randn = normal(seed)
    return randn(n, d), torch.sign(randn(n))


@identity(
    "kmh21/lemma1",
    "Bernoulli: gradient −y φ(−ys) and Fisher diag φ(s)φ(−s) in the logits",
    source="[KMH21] Lemma 1, (9)–(14)",
    tolerance=1e-14,
)
def lemma_1() -> float:
    likelihood, model, x = Bernoulli(reduction="sum"), Direct(), torch.eye(7, dtype=torch.float64)
    worst = 0.0
    for seed in range(3):
        s, y = 3 * normal(seed)(7), torch.sign(normal(seed + 1)(7))
        by_autograd = reference.gradient(likelihood, model, s, (x, y))
        worst = max(worst, distance(likelihood.gradient(s, y), by_autograd))
        dense = reference.fisher(likelihood, model, s, x)
        worst = max(worst, distance(torch.diag(likelihood.fisher(s)[:, 0, 0]), dense))
    return worst


@identity(
    "kmh21/lemma2",
    "Gaussian noise of variance σ²: the Fisher of β is I/σ²",
    source="[KMH21] Lemma 2, (15)–(17)",
    tolerance=1e-14,
)
def lemma_2() -> float:
    worst = 0.0
    for seed, (rows, columns, variance) in enumerate(((3, 4, 0.25), (2, 2, 1.0), (5, 1, 9.0))):
        beta = normal(seed + 2)(rows, columns)
        noise = torch.tensor([[variance]], dtype=torch.float64)
        positions = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        likelihood = Gaussian(noise, reduction="sum")
        dense = reference.fisher(likelihood, MatrixProduct(1), (beta,), positions)
        wanted = torch.eye(rows * columns, dtype=torch.float64) / variance
        worst = max(worst, distance(wanted, dense))
    return worst


@counter(
    "kmh21/lemmas-counter",
    "squared gradients at the labels (the empirical Fisher) are not the Fisher of Lemmas 1 and 2",
    source="[KMH21] Lemmas 1 and 2, labels in place of predictions",
    exceeds=0.1,
)
def empirical_fisher() -> float:
    gaps = []
    for seed in range(3):
        s, y = 3 * normal(seed)(7), torch.sign(normal(seed + 1)(7))
        for likelihood in (Bernoulli(reduction="sum"), Gaussian(reduction="sum")):
            fisher = likelihood.fisher(s)[:, 0, 0]
            gaps.append(distance(likelihood.gradient(s, y).square(), fisher))
    return min(gaps)


@identity(
    "kmh21/eq5",
    "min_norm is the Moore–Penrose direction −F⁺∇L (logistic, diagonal, L = 3, N < D and N ≥ D)",
    source="[KMH21] (4), (5), (26)–(31)",
    tolerance=1e-9,
)
def moore_penrose() -> float:
    worst = 0.0
    for seed, n in enumerate((4, 12, 6, 20)):
        batch = _logistic(seed, n, 6)
        w = normal(seed + 10)(3, 6)
        args = (Bernoulli(), Diagonal(3), w, batch)
        worst = max(worst, distance(natural(*args), reference.natural(*args)))
    return worst


@identity(
    "kmh21/eq18-22",
    "logistic regression: F = X̃ᵀ diag(φ(u)φ(−u)) X̃, ∇L = −X̃ᵀφ(−u), and F v = −∇L",
    source="[KMH21] (18)–(22), (22) with X̃ᵀ",
)
def logistic_regression() -> float:
    worst, likelihood = 0.0, Bernoulli(reduction="sum")
    for seed, (n, d) in enumerate(((20, 5), (4, 7), (6, 6))):
        x, y = _logistic(seed + 3, n, d)
        beta = normal(seed + 4)(d)
        signed, u = y[:, None] * x, y * (x @ beta)
        fisher = signed.mT @ torch.diag(torch.sigmoid(u) * torch.sigmoid(-u)) @ signed
        gradient = -signed.mT @ torch.sigmoid(-u)
        v = natural(likelihood, Direct(), beta, (x, y))
        worst = max(
            worst,
            distance(fisher, reference.fisher(likelihood, Direct(), beta, x)),
            distance(gradient, reference.gradient(likelihood, Direct(), beta, (x, y))),
            distance(fisher @ v, -gradient),
        )
    return worst


@identity(
    "kmh21/eq24-25",
    "N > D, margins up to 2000, spread 1500: the direction solves the lexicographic problem",
    source="[KMH21] (24)–(25), factor e^{−u_min} and beyond",
    tolerance=1e-9,
)
def extreme_margins() -> float:
    worst = 0.0
    for seed in range(3):
        x, y, beta, wanted = _graded_problem(seed)
        worst = max(worst, distance(natural(Bernoulli(), Direct(), beta, (x, y)), wanted))
    return worst


def _graded_problem(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x, y and β with three margins near 500 and nine of 2000, and the direction there."""
    randn = normal(seed + 5)
    beta, heavy, light = randn(6), randn(3, 6), randn(9, 6)
    heavy = heavy * ((500 + randn(3)) / (heavy @ beta))[:, None]
    light = light * (2000 / (light @ beta))[:, None]
    # The heavy rows are independent and reach velocity 1; the light rows determine the rest.
    particular = torch.linalg.pinv(heavy) @ torch.ones(3, dtype=torch.float64)
    null = torch.linalg.svd(heavy)[2][3:].mT
    rest = torch.linalg.pinv(light @ null) @ (1 - light @ particular)
    y = torch.ones(12, dtype=torch.float64)
    return torch.cat([heavy, light]), y, beta, particular + null @ rest


@counter(
    "kmh21/eq24-25-counter",
    "rows scaled by e^{−(u − u_min)/2} in double precision lose the rows that matter",
    source="[KMH21] (24)–(25), weights in place of their logarithms",
    exceeds=0.1,
)
def scaled_rows() -> float:
    gaps = []
    for seed in range(3):
        x, _, beta, wanted = _graded_problem(seed)
        u = x @ beta
        weight = torch.exp((u.min() - u) / 2)
        gaps.append(distance(lstsq(weight[:, None] * x, weight).solution, wanted))
    return min(gaps)


@identity(
    "kmh21/eq37-40",
    "diagonal network: ∇_w L = Jᵀ∇_β L and F(w) = JᵀF(β)J",
    source="[KMH21] (37)–(40), (37) corrected",
    tolerance=1e-13,
)
def diagonal_chain_rule() -> float:
    worst, likelihood = 0.0, Bernoulli()
    for depth, (n, d) in ((2, (9, 4)), (3, (9, 4)), (4, (3, 5))):
        x, y = _logistic(depth, n, d)
        w, network = normal(depth + 5)(depth, d), Diagonal(depth)
        beta = network.hypothesis(w)
        j = torch.cat([torch.diag(c) for c in network.partial_products(w)], dim=1)
        gradient = j.mT @ reference.gradient(likelihood, Direct(), beta, (x, y))
        fisher = j.mT @ reference.fisher(likelihood, Direct(), beta, x) @ j
        worst = max(
            worst,
            distance(-euclidean(likelihood, network, w, (x, y)).reshape(-1), gradient),
            distance(fisher, reference.fisher(likelihood, network, w, x)),
        )
    return worst


def _completion(seed: int, depth: int) -> tuple[MatrixProduct, tuple[Tensor, ...], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    product = MatrixProduct(depth)
    w = product.init_gaussian((5, 4), scale=1.0, hidden=6, generator=generator)
    positions = torch.cartesian_prod(torch.arange(5), torch.arange(4))
    chosen = positions[torch.randperm(20, generator=generator)[:8]]
    return product, w, chosen, normal(seed + 100)(8)


@identity(
    "kmh21/eq44-47",
    "matrix products, L = 1…4: J v = −∇_β L for both min_norm and equal_share",
    source="[KMH21] (43)–(47)",
)
def completion_velocity() -> float:
    worst = 0.0
    for depth in (1, 2, 3, 4):
        product, w, x, y = _completion(depth, depth)
        wanted = scatter(product.hypothesis(w), x, y - product.predict(w, x))
        for selection in ("min_norm", "equal_share", LayerShares(_one_hot(depth))):
            v = natural(Gaussian(), product, w, (x, y), selection=selection)
            worst = max(worst, distance(product.push(w, v), wanted))
    return worst


def _one_hot(depth: int) -> tuple[float, ...]:
    return (1.0, *[0.0] * (depth - 1))


@identity(
    "kmh21/eq51",
    "equal share of factor i is (1/L) Aᵢ⁺ ∇_β L Bᵢ⁺, left and right product in this order",
    source="[KMH21] §4, (48)–(51), order corrected",
)
def equal_share() -> float:
    worst = 0.0
    for depth in (2, 3, 4):
        product, w, x, y = _completion(depth + 4, depth)
        descent = scatter(product.hypothesis(w), x, y - product.predict(w, x))
        v = natural(Gaussian(), product, w, (x, y), selection="equal_share")
        for (a, b), part in zip(_pseudo_inverses(w), v, strict=True):
            worst = max(worst, distance(part, multiply(a, descent, b) / depth))
    return worst


def _pseudo_inverses(w: tuple[Tensor, ...]) -> list[tuple[Tensor | None, Tensor | None]]:
    """Return Aᵢ⁺ and Bᵢ⁺ of every factor; None is the identity."""
    left, right = partial_products(w)
    pinv = torch.linalg.pinv
    return [
        (None if a is None else pinv(a), None if b is None else pinv(b))
        for a, b in zip(left, right, strict=True)
    ]


@counter(
    "kmh21/eq51-counter",
    "the printed order Bᵢᵀ⁺ ∇ Aᵢ⁺ does not move β along −∇_β L",
    source="[KMH21] (51), as printed",
    exceeds=0.1,
)
def printed_order() -> float:
    gaps = []
    for depth in (2, 3):
        product = MatrixProduct(depth)
        w = product.init_gaussian((5, 5), generator=torch.Generator().manual_seed(depth))
        descent = normal(depth)(5, 5)
        parts = [
            multiply(None if b is None else b.mT, descent, a) / depth
            for a, b in _pseudo_inverses(w)
        ]
        gaps.append(distance(product.push(w, tuple(parts)), descent))
    return min(gaps)


@identity(
    "kmh21/theorem4",
    "tanh network, N < P: the natural velocity of the logits is y/φ(ys)",
    source="[KMH21] Theorem 4, (63)–(73)",
)
def theorem_4() -> float:
    torch_module = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    ).double()
    network, worst = Network(torch_module), 0.0
    for seed in (8, 9, 10):
        randn = normal(seed)
        params = {name: 0.7 * randn(*p.shape) for name, p in network.init().items()}
        x, y = randn(20, 4), torch.sign(randn(20))
        v = natural(Bernoulli(), network, params, (x, y))
        s = network.predict(params, x)[:, 0]
        velocity = network.jvp(params, x, v)[:, 0]
        worst = max(worst, distance(velocity, y / torch.sigmoid(y * s)))
    return worst


@identity(
    "kmh21/ntk",
    "matrix products: the kernel Σ (AᵢAᵢᵀ)⊗(BᵢᵀBᵢ) is J Jᵀ by autograd",
    source="[KMH21] §4, Figure 3",
    tolerance=1e-13,
)
def tangent_kernel() -> float:
    worst = 0.0
    for depth in (1, 2, 3, 4):
        product, w, _, _ = _completion(depth, depth)
        positions = torch.cartesian_prod(torch.arange(5), torch.arange(4))
        j = reference.jacobian(product, w, positions)[:, 0]
        worst = max(worst, distance(ntk(product, w).reshape(20, 20), j @ j.mT))
        worst = max(worst, distance(ntk(product, w, positions), j @ j.mT))
    return worst


@identity(
    "kmh21/natural-ntk",
    "matrix products: the natural kernel over all entries is the identity at every depth",
    source="[KMH21] §4, Figure 3",
)
def natural_tangent_kernel() -> float:
    worst = 0.0
    for depth in (1, 2, 3, 4):
        product, w, _, _ = _completion(depth, depth)
        positions = torch.cartesian_prod(torch.arange(5), torch.arange(4))
        j = reference.jacobian(product, w, positions)[:, 0]
        dense = j @ torch.linalg.pinv(j.mT @ j, rtol=1e-11, hermitian=True) @ j.mT
        kernel = natural_ntk(Gaussian(), product, w).reshape(20, 20)
        worst = max(worst, distance(kernel, dense))
    return worst


@identity(
    "kmh21/finite-step",
    "an equal-share step of length η gives β⁺ = β (I − (η/L) β⁻¹∇)^L exactly",
    source="[KMH21] §4, NGD of Figure 3; not printed",
)
def finite_step() -> float:
    worst = 0.0
    for depth in (1, 2, 3, 4):
        generator = torch.Generator().manual_seed(depth)
        product = MatrixProduct(depth)
        w = product.init_orthogonal((5, 5), generator=generator)
        x, y = torch.tensor([[2, 2], [0, 3]]), normal(depth)(2)
        v = natural(Gaussian(), product, w, (x, y), selection="equal_share")
        beta, eta = product.hypothesis(w), 0.3
        descent = scatter(beta, x, y - product.predict(w, x))
        stepped = product.hypothesis(tuple(a + eta * b for a, b in zip(w, v, strict=True)))
        eye = torch.eye(5, dtype=torch.float64)
        factor = eye + (eta / depth) * torch.linalg.solve(beta, descent)
        worst = max(worst, distance(stepped, beta @ torch.linalg.matrix_power(factor, depth)))
    return worst


@identity(
    "kmh21/population",
    "Gaussian inputs: F(β) = a (I − P) + c P, P = ββᵀ/r², agrees with 3-dimensional quadrature",
    source="[KMH21] §3.1 (population Fisher); closed form not printed",
)
def population_fisher() -> float:
    beta = torch.tensor([0.8, -0.5, 1.1], dtype=torch.float64)
    x, _ = GaussianInputs().representatives(Bernoulli(), beta[:, None])
    grid, weights = gaussian_grid((80, 80, 80))
    s = grid @ beta
    weight = weights * torch.sigmoid(s) * torch.sigmoid(-s)
    return distance(x.mT @ x / 3, grid.mT @ (weight[:, None] * grid))


def gaussian_grid(nodes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return points `(∏ nodes, d)` and weights of a product rule for the standard normal."""
    axes, weights = [], []
    for count in nodes:
        z, w = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(count))
        axes.append(9 * z)
        weights.append(9 * w * torch.exp(-((9 * z) ** 2) / 2) / (2 * torch.pi) ** 0.5)
    return torch.cartesian_prod(*axes), torch.cartesian_prod(*weights).prod(1)


@identity(
    "kmh21/reduction",
    "summed loss with summed Fisher and mean loss with mean Fisher give the same direction",
    source="[KMH21] (2), (19), (36): sum and mean are mixed in print",
    tolerance=1e-13,
)
def reduction() -> float:
    worst = 0.0
    for seed, (n, d) in enumerate(((9, 4), (3, 6))):
        batch, w = _logistic(seed + 9, n, d), normal(seed + 11)(2, d)
        mean, total = (
            natural(Bernoulli(reduction=r), Diagonal(2), w, batch) for r in ("mean", "sum")
        )
        worst = max(worst, distance(total, mean))
    return worst
