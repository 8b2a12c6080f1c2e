"""Symmetric cones: the orthant, second-order cones, positive semi-definite matrices.

Each has a Jordan product and the Nesterov–Todd scaling W of a pair (s, z), W⁻ᵀs = Wz = λ.
Conventions follow Vandenberghe, *The CVXOPT linear and quadratic cone program solvers* (2010). A
scaling is updated from steps in its own coordinates, not recomputed from s and z: near the boundary
these have lost the digits that determine their distance from it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Scaling(Protocol):
    """W of a pair inside the cone."""

    @property
    def lam(self) -> Tensor:
        """Return λ."""

    def forward(self, z: Tensor) -> Tensor:
        """Return Wz."""

    def back(self, v: Tensor) -> Tensor:
        """Return Wᵀv."""

    def inverse(self, v: Tensor) -> Tensor:
        """Return W⁻¹v."""

    def inverse_t(self, s: Tensor) -> Tensor:
        """Return W⁻ᵀs."""

    def metric(self) -> Tensor:
        """Return W⁻¹W⁻ᵀ: as weights `(n,)`, as blocks `(g, 1 + k, 1 + k)`, or P of s ↦ P s P."""

    def divide(self, d: Tensor) -> Tensor:
        """Return x with λ ∘ x = d."""

    def reach(self, d: Tensor) -> float:
        """Return the largest step α ≤ 1e6 with λ + α d in the cone."""

    def moved(self, ds: Tensor, dz: Tensor) -> "Scaling | None":
        """Return the scaling of the pair that is (λ + ds, λ + dz) in these coordinates."""


class Cone(Protocol):
    """A cone and its algebra."""

    @property
    def degree(self) -> int:
        """Return the number of eigenvalues."""

    def unit(self) -> Tensor:
        """Return the identity e."""

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a ∘ b."""

    def smallest(self, a: Tensor) -> float:
        """Return the least eigenvalue of a."""

    def identity(self) -> Scaling:
        """Return W = 1, the scaling of (e, e)."""


def _longest(worst: float) -> float:
    return 1e6 if worst >= -1e-6 else -1 / worst


@dataclass(frozen=True)
class Orthant:
    """Vectors without negative entries."""

    degree: int

    def unit(self) -> Tensor:
        """Return ones."""
        return torch.ones(self.degree, dtype=torch.float64)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the entrywise product."""
        return a * b

    def smallest(self, a: Tensor) -> float:
        """Return the least entry."""
        return float(a.min())

    def identity(self) -> "Diagonal":
        """Return weights of one."""
        return Diagonal(self.unit(), self.unit())


@dataclass(frozen=True)
class Diagonal:
    """The scaling of the orthant, W = diag w."""

    w: Tensor
    lam: Tensor

    def forward(self, z: Tensor) -> Tensor:
        """Return wz."""
        return self.w * z

    back = forward

    def inverse(self, v: Tensor) -> Tensor:
        """Return v/w."""
        return v / self.w

    inverse_t = inverse

    def metric(self) -> Tensor:
        """Return w⁻²."""
        return self.w**-2

    def divide(self, d: Tensor) -> Tensor:
        """Return d/λ."""
        return d / self.lam

    def reach(self, d: Tensor) -> float:
        """Return the step to the nearest face."""
        return _longest(float((d / self.lam).min()))

    def moved(self, ds: Tensor, dz: Tensor) -> "Diagonal | None":
        """Return w √(s/z) and √(sz)."""
        s, z = self.lam + ds, self.lam + dz
        if not (float(s.min()) > 0 and float(z.min()) > 0):
            return None
        return Diagonal(self.w * (s / z).sqrt(), (s * z).sqrt())


@dataclass(frozen=True)
class SecondOrder:
    """Rows (u₀, u₁) of shape `(g, 1 + k)` with ‖u₁‖ ≤ u₀: g cones at once."""

    degree: int
    size: int

    def unit(self) -> Tensor:
        """Return (1, 0) in every row."""
        e = torch.zeros(self.degree, 1 + self.size, dtype=torch.float64)
        e[:, 0] = 1
        return e

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return (a·b, a₀b₁ + b₀a₁)."""
        first = (a * b).sum(1, keepdim=True)
        return torch.cat([first, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:]], 1)

    def smallest(self, a: Tensor) -> float:
        """Return the least of a₀ − ‖a₁‖."""
        return float((a[:, 0] - a[:, 1:].norm(dim=1)).min())

    def identity(self) -> "Reflections":
        """Return identities."""
        eye = torch.eye(1 + self.size, dtype=torch.float64).repeat(self.degree, 1, 1)
        return Reflections(eye, eye, self.unit())


def _flip(a: Tensor) -> Tensor:
    """Return Ja = (a₀, −a₁)."""
    return torch.cat([a[..., :1], -a[..., 1:]], -1)


def _hyperbolic(a: Tensor) -> Tensor:
    """Return aᵀJa = (a₀ − ‖a₁‖)(a₀ + ‖a₁‖)."""
    norm: Tensor = a[:, 1:].norm(dim=1)
    return (a[:, 0] - norm) * (a[:, 0] + norm)


@dataclass(frozen=True)
class Reflections:
    """The scalings of second-order cones, products of β (2vvᵀ − J), with their inverses."""

    w: Tensor
    w_inverse: Tensor
    lam: Tensor

    def forward(self, z: Tensor) -> Tensor:
        """Return Wz."""
        return (self.w @ z[:, :, None])[:, :, 0]

    def back(self, v: Tensor) -> Tensor:
        """Return Wᵀv."""
        return (v[:, None, :] @ self.w)[:, 0]

    def inverse(self, v: Tensor) -> Tensor:
        """Return W⁻¹v."""
        return (self.w_inverse @ v[:, :, None])[:, :, 0]

    def inverse_t(self, s: Tensor) -> Tensor:
        """Return W⁻ᵀs."""
        return (s[:, None, :] @ self.w_inverse)[:, 0]

    def metric(self) -> Tensor:
        """Return W⁻¹W⁻ᵀ of each row."""
        return self.w_inverse @ self.w_inverse.mT

    def divide(self, d: Tensor) -> Tensor:
        """Return x with λ ∘ x = d: an arrow matrix per row."""
        lam, det = self.lam, _hyperbolic(self.lam)
        first = (_flip(lam) * d).sum(1) / det
        rest = (d[:, 1:] - first[:, None] * lam[:, 1:]) / lam[:, :1]
        return torch.cat([first[:, None], rest], 1)

    def reach(self, d: Tensor) -> float:
        """Return the step to the boundary, from the eigenvalues of d relative to λ."""
        c = _hyperbolic(self.lam)
        middle = (_flip(self.lam) * d).sum(1) / c
        spread = (middle**2 - _hyperbolic(d) / c).clamp(min=0).sqrt()
        return _longest(float((middle - spread).min()))

    def moved(self, ds: Tensor, dz: Tensor) -> "Reflections | None":
        """Return the product with the scaling β (2vvᵀ − J) of the moved pair."""
        s, z = self.lam + ds, self.lam + dz
        ss, zz = _hyperbolic(s), _hyperbolic(z)
        if not (float(ss.min()) > 0 and float(zz.min()) > 0):
            return None
        unit_s, unit_z = s / ss.sqrt()[:, None], z / zz.sqrt()[:, None]
        gamma = ((1 + (unit_s * unit_z).sum(1)) / 2).sqrt()
        v = (unit_s + _flip(unit_z)) / (2 * gamma[:, None])
        v[:, 0] += 1
        v = v / (2 * v[:, :1]).sqrt()
        mirror, beta = _flip(v), ((ss / zz) ** 0.25)[:, None, None]
        j = _flip(torch.eye(v.shape[1], dtype=v.dtype))
        turn = beta * (2 * v[:, :, None] * v[:, None, :] - j)
        undo = (2 * mirror[:, :, None] * mirror[:, None, :] - j) / beta
        lam = (turn @ z[:, :, None])[:, :, 0]
        return Reflections(turn @ self.w, self.w_inverse @ undo, lam)


@dataclass(frozen=True)
class Semidefinite:
    """Symmetric matrices of shape `(degree, degree)` without negative eigenvalues."""

    degree: int

    def unit(self) -> Tensor:
        """Return the identity."""
        return torch.eye(self.degree, dtype=torch.float64)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return (ab + ba)/2."""
        ab = a @ b
        return (ab + ab.mT) / 2

    def smallest(self, a: Tensor) -> float:
        """Return the least eigenvalue."""
        return float(torch.linalg.eigvalsh(a)[0])

    def identity(self) -> "Congruence":
        """Return R = 1."""
        return Congruence(self.unit(), self.unit(), self.unit())


@dataclass(frozen=True)
class Congruence:
    """The scaling of semi-definite matrices, z ↦ Rᵀ z R, whose λ is diagonal."""

    r: Tensor
    r_inverse: Tensor
    lam: Tensor

    def forward(self, z: Tensor) -> Tensor:
        """Return Rᵀ z R."""
        return self.r.mT @ z @ self.r

    def back(self, v: Tensor) -> Tensor:
        """Return R v Rᵀ."""
        return self.r @ v @ self.r.mT

    def inverse(self, v: Tensor) -> Tensor:
        """Return R⁻ᵀ v R⁻¹."""
        return self.r_inverse.mT @ v @ self.r_inverse

    def inverse_t(self, s: Tensor) -> Tensor:
        """Return R⁻¹ s R⁻ᵀ."""
        return self.r_inverse @ s @ self.r_inverse.mT

    def metric(self) -> Tensor:
        """Return P = R⁻ᵀR⁻¹."""
        return self.r_inverse.mT @ self.r_inverse

    def divide(self, d: Tensor) -> Tensor:
        """Return 2dᵢⱼ/(λᵢ + λⱼ)."""
        lam = self.lam.diagonal()
        return 2 * d / (lam[:, None] + lam[None, :])

    def reach(self, d: Tensor) -> float:
        """Return the step to the boundary."""
        root = self.lam.diagonal().rsqrt()
        relative = root[:, None] * d * root
        return _longest(float(torch.linalg.eigvalsh((relative + relative.mT) / 2)[0]))

    def moved(self, ds: Tensor, dz: Tensor) -> "Congruence | None":
        """Return R R̃ with R̃ᵀ z R̃ = R̃⁻¹ s R̃⁻ᵀ diagonal for the moved pair."""
        s, z = self.lam + (ds + ds.mT) / 2, self.lam + (dz + dz.mT) / 2
        (ls, bad_s), (lz, bad_z) = torch.linalg.cholesky_ex(s), torch.linalg.cholesky_ex(z)
        if int(bad_s) or int(bad_z):
            return None
        u, lam, vh = torch.linalg.svd(lz.mT @ ls)
        root = lam.sqrt()
        turn, undo = (ls @ vh.mT) / root, (lz @ u).mT / root[:, None]
        return Congruence(self.r @ turn, undo @ self.r_inverse, lam.diag())
