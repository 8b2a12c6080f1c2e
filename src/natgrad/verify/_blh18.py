"""Identities of Bernacchia, Lengyel, Hennequin 2018 and its supplement."""

import torch
from torch import Tensor

from natgrad import reference
from natgrad.directions import LayerShares, euclidean, natural
from natgrad.directions._fisher import Fisher
from natgrad.likelihoods import Gaussian
from natgrad.linalg._randomized import randomized_pinv
from natgrad.parametrizations import DeepLinear
from natgrad.parametrizations._products.lift import multiply
from natgrad.parametrizations.base import flatten
from natgrad.parametrizations.propagation import (
    backward_covariances,
    errors_through_inverses,
    forward_covariances,
    layerwise_direction,
    rank_one_direction,
)
from natgrad.verify._identity import counter, distance, identity, normal

_SQUARE = (4, 4, 4, 4)
_EXPANDING = (3, 5, 6, 4)
_BOTTLENECK = (5, 3, 2, 3, 5)


class _Setting:
    """A deep linear network, its data, and the quantities of §3–4 of the paper."""

    def __init__(self, widths: tuple[int, ...], seed: int = 0, n: int = 30) -> None:
        randn = normal(seed)
        generator = torch.Generator().manual_seed(seed)
        self.network = DeepLinear(widths)
        self.w = self.network.init_gaussian(generator=generator)
        self.x = randn(n, widths[0])
        self.y = randn(n, widths[-1])
        noise = randn(widths[-1], widths[-1])
        covariance = noise @ noise.mT + torch.eye(widths[-1], dtype=torch.float64)
        self.likelihood = Gaussian(covariance)
        self.covariance = covariance
        self.precision = torch.linalg.inv(covariance)
        self.sigma = self.x.mT @ self.x / n
        self.total = self.network.hypothesis(self.w)
        self.errors = self.y - self.x @ self.total.mT
        self.cross = self.errors.mT @ self.x / n  # ⟨(y − x_L) xᵀ⟩

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y

    @property
    def depth(self) -> int:
        return self.network.depth

    def descent(self) -> tuple[Tensor, ...]:
        return euclidean(self.likelihood, self.network, self.w, self.batch)

    def natural(self, selection: "str | LayerShares") -> tuple[Tensor, ...]:
        return natural(
            self.likelihood,
            self.network,
            self.w,
            self.batch,
            selection=selection,  # type: ignore[arg-type]
        )

    def covariances(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the errors' and the inputs' covariances of every layer."""
        return (
            backward_covariances(self.w, self.precision),
            forward_covariances(self.w, self.sigma),
        )


def _worst(pairs: list[tuple[Tensor, Tensor]]) -> float:
    return max(distance(a, b) for a, b in pairs)


@identity(
    "blh18/eq7-13",
    "gradient of layer i is −⟨eᵢ xᵢ₋₁ᵀ⟩ with errors and activities propagated by (11)–(12)",
    source="[BLH18] (7), (8), (11)–(13)",
    tolerance=1e-13,
)
def gradient() -> float:
    pairs = []
    for seed, (widths, n) in enumerate(((_EXPANDING, 30), (_BOTTLENECK, 30), (_SQUARE, 2))):
        s = _Setting(widths, seed, n)
        dense = -reference.gradient(s.likelihood, s.network, s.w, s.batch)
        pairs += list(zip(s.descent(), reference.unflatten(dense, s.w), strict=True))
    return _worst(pairs)


@identity(
    "blh18/eq14-15",
    "propagated covariances are the diagonal Fisher blocks: F_ii = Λ̃ᵢ ⊗ Λᵢ",
    source="[BLH18] (14), (15), (22) with i = j",
    tolerance=1e-12,
)
def covariance_propagation() -> float:
    s = _Setting(_EXPANDING)
    dense = reference.fisher(s.likelihood, s.network, s.w, s.x)
    errors, inputs = s.covariances()
    start, pairs = 0, []
    for w, e, b in zip(s.w, errors, inputs, strict=True):
        stop = start + w.numel()
        pairs.append((torch.kron(e.contiguous(), b.contiguous()), dense[start:stop, start:stop]))
        start = stop
    return _worst(pairs)


@identity(
    "blh18/eq10-16",
    "the layerwise form (10), the inverses of (16) and selection='equal_share' agree",
    source="[BLH18] (10), (16), suppl. (34)",
)
def layerwise() -> float:
    pairs = []
    for seed, widths in enumerate((_SQUARE, (3, 3, 3), (2,) * 6)):
        s = _Setting(widths, seed)
        shared = s.natural("equal_share")
        printed = layerwise_direction(s.descent(), *s.covariances())
        ahead, behind = s.network.partial_products(s.w)
        velocity = s.cross @ torch.linalg.inv(s.sigma)
        pairs += list(zip(printed, shared, strict=True))
        for a, b, v in zip(ahead, behind, shared, strict=True):
            left, right = (None if m is None else torch.linalg.inv(m) for m in (a, b))
            pairs.append((multiply(left, velocity, right) / s.depth, v))
    return _worst(pairs)


@identity(
    "blh18/eq17-18",
    "every selection moves W along −W + ⟨y xᵀ⟩ Σ⁻¹",
    source="[BLH18] (17), (18), suppl. (27)–(30)",
)
def exponential_velocity() -> float:
    pairs = []
    for seed, widths in enumerate((_SQUARE, _EXPANDING, _SQUARE)):
        s = _Setting(widths, seed)
        wanted = -s.total + s.y.mT @ s.x / len(s.x) @ torch.linalg.inv(s.sigma)
        shares = LayerShares((0.2, 0.5, 0.3))
        for selection in ("min_norm", "equal_share", shares, LayerShares((0.0, 1.0, 0.0))):
            pairs.append((s.network.push(s.w, s.natural(selection)), wanted))
    return _worst(pairs)


@identity(
    "blh18/eq19",
    "bottleneck: (10) with pseudo-inverses moves W along −W + (1/L) Σ Pᵢᵃ ⟨y xᵀ⟩ Σ⁻¹ Pᵢᵇ",
    source="[BLH18] (19), suppl. (38)–(45)",
    tolerance=1e-9,
)
def bottleneck_velocity() -> float:
    s = _Setting(_BOTTLENECK)
    v = layerwise_direction(s.descent(), *s.covariances(), rtol=1e-10)
    optimum = s.y.mT @ s.x / len(s.x) @ torch.linalg.inv(s.sigma)
    ahead, behind = s.network.partial_products(s.w)
    root_out, root_in = _symmetric_root(s.covariance), _symmetric_root(s.sigma)
    inverse_out, inverse_in = torch.linalg.inv(root_out), torch.linalg.inv(root_in)
    total = -s.total
    for a, b in zip(ahead, behind, strict=True):
        e = inverse_out if a is None else a.mT @ inverse_out  # (38)
        x = root_in if b is None else b @ root_in  # (39)
        p_a = root_out @ (torch.linalg.pinv(e, rtol=1e-10) @ e).mT @ inverse_out
        p_b = root_in @ torch.linalg.pinv(x, rtol=1e-10) @ x @ inverse_in
        total = total + p_a @ optimum @ p_b / s.depth
    return distance(s.network.push(s.w, tuple(v)), total)


@identity(
    "blh18/randomized-svd",
    "bottleneck: in (10), pseudo-inverses by randomized SVDs at the covariances' small ranks equal "
    "dense ones",
    source="[BLH18] §7",
    tolerance=1e-9,
)
def randomized() -> float:
    widths = (40, 30, 3, 20, 40)
    s = _Setting(widths, n=100)
    errors, inputs = s.covariances()
    dense = layerwise_direction(s.descent(), errors, inputs, rtol=1e-10)
    pairs = []
    for i, (g, e, b, v) in enumerate(zip(s.descent(), errors, inputs, dense, strict=True)):
        ahead, behind = min(widths[i + 1 :]), min(widths[: i + 1])
        left = randomized_pinv(e, ahead, rtol=1e-10)
        right = randomized_pinv(b, behind, rtol=1e-10)
        pairs.append((left @ g @ right / s.depth, v))
    return _worst(pairs)


def _symmetric_root(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(a)
    root: Tensor = (vectors * values.sqrt()) @ vectors.mT
    return root


@identity(
    "blh18/rank-one",
    "a single example's update (10) is the outer product of two matrix–vector products",
    source="[BLH18] §3, after (10)",
)
def rank_one() -> float:
    s = _Setting(_SQUARE)
    errors, inputs = s.covariances()
    ahead, behind = s.network.partial_products(s.w)
    x, residual = s.x[0], s.precision @ s.errors[0]
    single = euclidean(s.likelihood, s.network, s.w, (s.x[:1], s.y[:1]))
    printed = layerwise_direction(single, errors, inputs)
    pairs = []
    for i in range(s.depth):
        e = residual if ahead[i] is None else ahead[i].mT @ residual  # type: ignore[union-attr]
        activity = x if behind[i] is None else behind[i] @ x  # type: ignore[operator]
        inverse_e, inverse_x = torch.linalg.inv(errors[i]), torch.linalg.inv(inputs[i])
        a, b = rank_one_direction(e, activity, inverse_e, inverse_x, s.depth)
        pairs.append((torch.outer(a, b), printed[i]))
    return _worst(pairs)


@identity(
    "blh18/inverse-backpropagation",
    "errors propagated back through inverses of the weights are the Λ̃ᵢ⁻¹ eᵢ of (10)",
    source="[BLH18] §6, (16)",
)
def inverse_backpropagation() -> float:
    s = _Setting(_SQUARE)
    covariances, _ = s.covariances()
    ahead, _ = s.network.partial_products(s.w)
    through = errors_through_inverses(s.w, s.errors.mT)
    pairs = []
    for i, covariance in enumerate(covariances):
        e = s.precision @ s.errors.mT
        e = e if ahead[i] is None else ahead[i].mT @ e  # type: ignore[union-attr]
        pairs.append((through[i], torch.linalg.solve(covariance, e)))
    return _worst(pairs)


@identity(
    "blh18/suppl-18-19",
    "block (i, j) of the Fisher is (Wᵢᵇ Σ Wⱼᵇᵀ) ⊗ (Wᵢᵃᵀ Σ̃⁻¹ Wⱼᵃ)",
    source="[BLH18] (22), suppl. (13)–(19)",
    tolerance=1e-12,
)
def fisher_blocks() -> float:
    s = _Setting(_BOTTLENECK)
    dense = reference.fisher(s.likelihood, s.network, s.w, s.x)
    operator = Fisher(s.likelihood, s.network, s.w, s.x)
    return distance(_assemble(operator.block, s.depth), dense)


def _assemble(block, depth: int) -> Tensor:  # type: ignore[no-untyped-def]
    layers = range(1, depth + 1)
    return torch.cat([torch.cat([block(i, j) for j in layers], dim=1) for i in layers])


@identity(
    "blh18/suppl-20-23",
    "F = A B Aᵀ, where A is the transposed Jacobian of W, and F F^g F = F for the inverse (36)",
    source="[BLH18] (23), suppl. (20)–(23), (33), (36)",
)
def generalized_inverse() -> float:
    s = _Setting(_SQUARE)
    dense = reference.fisher(s.likelihood, s.network, s.w, s.x)
    # Rows of the identity as inputs give the Jacobian of W's columns.
    j = reference.jacobian(s.network, s.w, torch.eye(4, dtype=torch.float64))
    a = j.permute(1, 0, 2).reshape(16, -1).mT.contiguous()
    product = a @ torch.kron(s.precision.contiguous(), s.sigma.contiguous()) @ a.mT
    inverse = _assemble(Fisher(s.likelihood, s.network, s.w, s.x).inverse_block, s.depth)
    return max(distance(product, dense), distance(dense @ inverse @ dense, dense))


@identity(
    "blh18/suppl-35",
    "inverting diagonal blocks alone gives L times the exact equal-share direction",
    source="[BLH18] §6, suppl. (35)",
)
def block_diagonal() -> float:
    pairs = []
    for seed, widths in enumerate((_SQUARE, (3, 3, 3), (2,) * 6)):
        s = _Setting(widths, seed)
        operator = Fisher(s.likelihood, s.network, s.w, s.x)
        shared = s.natural("equal_share")
        for i, (g, v) in enumerate(zip(s.descent(), shared, strict=True), start=1):
            alone = torch.linalg.solve(operator.block(i, i), g.reshape(-1))
            pairs.append((alone, s.depth * v.reshape(-1)))
    return _worst(pairs)


@counter(
    "blh18/suppl-35-counter",
    "through a bottleneck, diagonal blocks over L do not move W as the exact natural gradient does",
    source="[BLH18] suppl. (35), without full width",
    exceeds=0.05,
)
def block_diagonal_counter() -> float:
    gaps = []
    for seed in range(2):
        s = _Setting(_BOTTLENECK, seed)
        blocks = layerwise_direction(s.descent(), *s.covariances(), rtol=1e-10)
        exact = s.network.push(s.w, s.natural("min_norm"))
        gaps.append(distance(s.network.push(s.w, tuple(blocks)), exact))
    return min(gaps)


@identity(
    "blh18/suppl-36-37",
    "every block of the generalized inverse contributes equally to the natural gradient",
    source="[BLH18] (23), suppl. (36)–(37)",
)
def equal_contributions() -> float:
    pairs = []
    for seed, widths in enumerate((_SQUARE, (3, 3, 3))):
        s = _Setting(widths, seed)
        operator = Fisher(s.likelihood, s.network, s.w, s.x)
        shared = s.natural("equal_share")
        gradients = [g.reshape(-1) for g in s.descent()]
        for i in range(1, s.depth + 1):
            for j in range(1, s.depth + 1):
                contribution = operator.inverse_block(i, j) @ gradients[j - 1]
                pairs.append((contribution, shared[i - 1].reshape(-1) / s.depth))
    return _worst(pairs)


@counter(
    "blh18/suppl-36-37-counter",
    "blocks of the Moore–Penrose inverse do not contribute equally",
    source="[BLH18] suppl. (36)–(37), another generalized inverse",
    exceeds=0.1,
)
def unequal_contributions() -> float:
    gaps = []
    for seed, widths in enumerate((_SQUARE, (3, 3, 3))):
        s = _Setting(widths, seed)
        dense = reference.fisher(s.likelihood, s.network, s.w, s.x)
        inverse = torch.linalg.pinv(dense, rtol=1e-11, hermitian=True)
        sizes = [w.numel() for w in s.w]
        first = inverse.split(sizes)[0].split(sizes, dim=1)
        parts = [b @ g.reshape(-1) for b, g in zip(first, s.descent(), strict=True)]
        gaps.append(distance(parts[0], parts[1]))
    return min(gaps)


@identity(
    "blh18/min-norm",
    "selection='min_norm' is −F⁺∇L, at full width, with wider layers and with a bottleneck",
    source="[BLH18] §3 (any generalized inverse), [KMH21] (5)",
    tolerance=1e-8,
)
def minimum_norm() -> float:
    pairs = []
    for seed, widths in enumerate((_SQUARE, _EXPANDING, _BOTTLENECK)):
        s = _Setting(widths, seed)
        dense = reference.natural(s.likelihood, s.network, s.w, s.batch)
        pairs.append((flatten(s.natural("min_norm")), flatten(dense)))
    return _worst(pairs)
