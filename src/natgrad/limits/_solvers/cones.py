"""Symmetric cones: the orthant, second-order cones, positive semi-definite matrices.

Each has a Jordan product and the Nesterov–Todd scaling W of a pair (s, z), W⁻ᵀs = Wz = λ.
Conventions follow Vandenberghe, *The CVXOPT linear and quadratic cone program solvers* (2010). A
scaling is updated from steps in its own coordinates, not recomputed from s and z: near the boundary
these have lost the digits that determine their distance from it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Scaling(Protocol):
    """W of a pair inside the cone."""

    @property
    def lam(self) -> Array:
        """Return λ."""

    def forward(self, z: Array) -> Array:
        """Return Wz."""

    def back(self, v: Array) -> Array:
        """Return Wᵀv."""

    def inverse(self, v: Array) -> Array:
        """Return W⁻¹v."""

    def inverse_t(self, s: Array) -> Array:
        """Return W⁻ᵀs."""

    def metric(self) -> Array:
        """Return W⁻¹W⁻ᵀ: as weights `(n,)`, as blocks `(g, 1 + k, 1 + k)`, or P of s ↦ P s P."""

    def divide(self, d: Array) -> Array:
        """Return x with λ ∘ x = d."""

    def reach(self, d: Array) -> float:
        """Return the largest step α ≤ 1e6 with λ + α d in the cone."""

    def moved(self, ds: Array, dz: Array) -> "Scaling | None":
        """Return the scaling of the pair that is (λ + ds, λ + dz) in these coordinates."""


class Cone(Protocol):
    """A cone and its algebra."""

    @property
    def degree(self) -> int:
        """Return the number of eigenvalues."""

    def unit(self) -> Array:
        """Return the identity e."""

    def product(self, a: Array, b: Array) -> Array:
        """Return a ∘ b."""

    def smallest(self, a: Array) -> float:
        """Return the least eigenvalue of a."""

    def identity(self) -> Scaling:
        """Return W = 1, the scaling of (e, e)."""


def _longest(worst: float) -> float:
    return 1e6 if worst >= -1e-6 else -1 / worst


@dataclass(frozen=True)
class Orthant:
    """Vectors without negative entries."""

    degree: int

    def unit(self) -> Array:
        """Return ones."""
        return np.ones(self.degree)

    def product(self, a: Array, b: Array) -> Array:
        """Return the entrywise product."""
        return a * b

    def smallest(self, a: Array) -> float:
        """Return the least entry."""
        return float(a.min())

    def identity(self) -> "Diagonal":
        """Return weights of one."""
        return Diagonal(self.unit(), self.unit())


@dataclass(frozen=True)
class Diagonal:
    """The scaling of the orthant, W = diag w."""

    w: Array
    lam: Array

    def forward(self, z: Array) -> Array:
        """Return wz."""
        return self.w * z

    back = forward

    def inverse(self, v: Array) -> Array:
        """Return v/w."""
        return v / self.w

    inverse_t = inverse

    def metric(self) -> Array:
        """Return w⁻²."""
        return self.w**-2

    def divide(self, d: Array) -> Array:
        """Return d/λ."""
        return d / self.lam

    def reach(self, d: Array) -> float:
        """Return the step to the nearest face."""
        return _longest(float((d / self.lam).min()))

    def moved(self, ds: Array, dz: Array) -> "Diagonal | None":
        """Return w √(s/z) and √(sz)."""
        s, z = self.lam + ds, self.lam + dz
        if not (float(s.min()) > 0 and float(z.min()) > 0):
            return None
        return Diagonal(self.w * np.sqrt(s / z), np.sqrt(s * z))


@dataclass(frozen=True)
class SecondOrder:
    """Rows (u₀, u₁) of shape `(g, 1 + k)` with ‖u₁‖ ≤ u₀: g cones at once."""

    degree: int
    size: int

    def unit(self) -> Array:
        """Return (1, 0) in every row."""
        e = np.zeros((self.degree, 1 + self.size))
        e[:, 0] = 1
        return e

    def product(self, a: Array, b: Array) -> Array:
        """Return (a·b, a₀b₁ + b₀a₁)."""
        out = a[:, :1] * b + b[:, :1] * a
        out[:, 0] = (a * b).sum(1)
        return out

    def smallest(self, a: Array) -> float:
        """Return the least of a₀ − ‖a₁‖."""
        return float((a[:, 0] - _lengths(a)).min())

    def identity(self) -> "Reflections":
        """Return identities."""
        eye = np.tile(np.eye(1 + self.size), (self.degree, 1, 1))
        return Reflections(eye, eye, self.unit())


def _flip(a: Array) -> Array:
    """Return Ja = (a₀, −a₁)."""
    out = -a
    out[..., 0] = a[..., 0]
    return out


def _lengths(a: Array) -> Array:
    """Return ‖a₁‖ of every row."""
    found: Array = np.sqrt(np.einsum("gk,gk->g", a[:, 1:], a[:, 1:]))
    return found


def _hyperbolic(a: Array) -> Array:
    """Return aᵀJa = (a₀ − ‖a₁‖)(a₀ + ‖a₁‖)."""
    norm = _lengths(a)
    found: Array = (a[:, 0] - norm) * (a[:, 0] + norm)
    return found


@dataclass(frozen=True)
class Reflections:
    """The scalings of second-order cones, products of β (2vvᵀ − J), with their inverses."""

    w: Array
    w_inverse: Array
    lam: Array

    def forward(self, z: Array) -> Array:
        """Return Wz."""
        return _each(self.w, z)

    def back(self, v: Array) -> Array:
        """Return Wᵀv."""
        return _each(self.w.mT, v)

    def inverse(self, v: Array) -> Array:
        """Return W⁻¹v."""
        return _each(self.w_inverse, v)

    def inverse_t(self, s: Array) -> Array:
        """Return W⁻ᵀs."""
        return _each(self.w_inverse.mT, s)

    def metric(self) -> Array:
        """Return W⁻¹W⁻ᵀ of each row."""
        return self.w_inverse @ self.w_inverse.mT

    def divide(self, d: Array) -> Array:
        """Return x with λ ∘ x = d: an arrow matrix per row."""
        lam, det = self.lam, _hyperbolic(self.lam)
        first = (_flip(lam) * d).sum(1) / det
        out: Array = (d - first[:, None] * lam) / lam[:, :1]
        out[:, 0] = first
        return out

    def reach(self, d: Array) -> float:
        """Return the step to the boundary, from the eigenvalues of d relative to λ."""
        c = _hyperbolic(self.lam)
        middle = (_flip(self.lam) * d).sum(1) / c
        spread = np.sqrt(np.maximum(middle**2 - _hyperbolic(d) / c, 0))
        return _longest(float((middle - spread).min()))

    def moved(self, ds: Array, dz: Array) -> "Reflections | None":
        """Return the product with the scaling β (2vvᵀ − J) of the moved pair."""
        s, z = self.lam + ds, self.lam + dz
        ss, zz = _hyperbolic(s), _hyperbolic(z)
        if not (float(ss.min()) > 0 and float(zz.min()) > 0):
            return None
        unit_s, unit_z = s / np.sqrt(ss)[:, None], z / np.sqrt(zz)[:, None]
        gamma = np.sqrt((1 + (unit_s * unit_z).sum(1)) / 2)
        v = (unit_s + _flip(unit_z)) / (2 * gamma[:, None])
        v[:, 0] += 1
        v = v / np.sqrt(2 * v[:, :1])
        mirror, beta = _flip(v), ((ss / zz) ** 0.25)[:, None, None]
        j = np.diag(_flip(np.ones(v.shape[1])))
        turn = beta * (2 * v[:, :, None] * v[:, None, :] - j)
        undo = (2 * mirror[:, :, None] * mirror[:, None, :] - j) / beta
        lam = _each(turn, z)
        return Reflections(turn @ self.w, self.w_inverse @ undo, lam)


def _each(a: Array, v: Array) -> Array:
    """Return the product of each matrix and its row."""
    found: Array = np.einsum("gij,gj->gi", a, v)
    return found


@dataclass(frozen=True)
class Semidefinite:
    """Symmetric matrices of shape `(degree, degree)` without negative eigenvalues."""

    degree: int

    def unit(self) -> Array:
        """Return the identity."""
        return np.eye(self.degree)

    def product(self, a: Array, b: Array) -> Array:
        """Return (ab + ba)/2."""
        ab = a @ b
        return (ab + ab.mT) / 2

    def smallest(self, a: Array) -> float:
        """Return the least eigenvalue."""
        return float(np.linalg.eigvalsh(a)[0])

    def identity(self) -> "Congruence":
        """Return R = 1."""
        return Congruence(self.unit(), self.unit(), self.unit())


@dataclass(frozen=True)
class Congruence:
    """The scaling of semi-definite matrices, z ↦ Rᵀ z R, whose λ is diagonal."""

    r: Array
    r_inverse: Array
    lam: Array

    def forward(self, z: Array) -> Array:
        """Return Rᵀ z R."""
        return self.r.mT @ z @ self.r

    def back(self, v: Array) -> Array:
        """Return R v Rᵀ."""
        return self.r @ v @ self.r.mT

    def inverse(self, v: Array) -> Array:
        """Return R⁻ᵀ v R⁻¹."""
        return self.r_inverse.mT @ v @ self.r_inverse

    def inverse_t(self, s: Array) -> Array:
        """Return R⁻¹ s R⁻ᵀ."""
        return self.r_inverse @ s @ self.r_inverse.mT

    def metric(self) -> Array:
        """Return P = R⁻ᵀR⁻¹."""
        return self.r_inverse.mT @ self.r_inverse

    def divide(self, d: Array) -> Array:
        """Return 2dᵢⱼ/(λᵢ + λⱼ)."""
        lam = self.lam.diagonal()
        return 2 * d / (lam[:, None] + lam[None, :])

    def reach(self, d: Array) -> float:
        """Return the step to the boundary."""
        root = 1 / np.sqrt(self.lam.diagonal())
        relative = root[:, None] * d * root
        return _longest(float(np.linalg.eigvalsh((relative + relative.mT) / 2)[0]))

    def moved(self, ds: Array, dz: Array) -> "Congruence | None":
        """Return R R̃ with R̃ᵀ z R̃ = R̃⁻¹ s R̃⁻ᵀ diagonal for the moved pair."""
        s, z = self.lam + (ds + ds.mT) / 2, self.lam + (dz + dz.mT) / 2
        try:
            ls, lz = np.linalg.cholesky(s), np.linalg.cholesky(z)
            u, lam, vh = np.linalg.svd(lz.mT @ ls)
        except np.linalg.LinAlgError:
            return None
        root = np.sqrt(lam)
        turn, undo = (ls @ vh.mT) / root, (lz @ u).mT / root[:, None]
        return Congruence(self.r @ turn, undo @ self.r_inverse, np.diag(lam))
