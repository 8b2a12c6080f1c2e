"""Gradient flow of diagonal networks on logistic loss, in dual variables.

Along gradient flow ẇ_l = (∏_{k≠l} w_k) ⊙ ż with ż = −∇_β L, so that each coordinate's layers are
functions of one number, the integral z of its gradient: dw_l/dz = ∏_{k≠l} w_k. Differences
w_l² − w_k² are conserved. With v the layer of smallest |w_l(0)| and δ_l = w_l(0)² − v(0)²,
    w_l = ±√(v² + δ_l),  dv/dz = q = ∏ w_l over the other layers,  β = v q,
    K = dβ/dz = q² (1 + Σ v²/(v² + δ_l)).
The flow is dz/dt = X̃ᵀσ(−X̃β(z))/N: its Jacobian is similar to a negative semi-definite matrix, which
is what Runge–Kutta–Chebyshev wants, and there is no saddle left to crawl past.

Time is stretched within each step, t = t₀ + θ(e^s − 1), with θ the time in which the loss's slope
f = ⟨σ(−u)⟩ changes: once f ~ 1/t, equal steps of s are equal steps of log t.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.flows.rkc import local_error, rkc_step, stages

_NEGLIGIBLE = 16.0  # rows this far (in margin) above the smallest are left out within a step
_REGATHER = 0.8  # gather fewer rows once this fraction is left


@dataclass(frozen=True)
class Layers:
    """The layers of a diagonal network as functions of the smallest one, coordinate by coordinate.

    Attributes:
        index: Which layer is the smallest, shape `(d,)`.
        signs: Signs of the other layers, shape `(L − 1, d)`.
        delta: δ of the other layers, shape `(L − 1, d)`.
        equal: Whether all δ of a coordinate agree, which has a closed flow up to L = 4.
    """

    index: Tensor
    signs: Tensor
    delta: Tensor
    equal: bool

    @classmethod
    def of(cls, w: Tensor) -> tuple["Layers", Tensor]:
        """Return the description of layers w, shape `(L, d)`, and v."""
        depth, d = w.shape
        index = w.abs().argmin(0)
        everyone = torch.arange(depth, device=w.device)[:, None].expand(depth, d)
        others = everyone.mT[(everyone != index).mT].reshape(d, depth - 1).mT
        v = w.gather(0, index[None])[0]
        rest = w.gather(0, others)
        delta = ((rest.abs() - v.abs()) * (rest.abs() + v.abs())).clamp(min=0)
        equal = depth <= 2 or bool((delta == delta[:1]).all())
        return cls(index, torch.sign(rest), delta, equal), v

    def others(self, v: Tensor) -> Tensor:
        """Return the other layers, shape `(L − 1, d)`."""
        return self.signs * torch.sqrt(v * v + self.delta)

    def q(self, v: Tensor) -> Tensor:
        """Return dv/dz, the product of the other layers."""
        return self.others(v).prod(0)

    def beta(self, v: Tensor) -> Tensor:
        """Return β = v q."""
        return v * self.q(v)

    def speed(self, v: Tensor) -> Tensor:
        """Return K = dβ/dz = Σ_l (∏_{k≠l} w_k)²."""
        square = v * v + self.delta
        q2 = square.prod(0)
        ratio = torch.where(square > 0, v * v / torch.where(square > 0, square, 1.0), 0.0)
        return q2 * (1 + ratio.sum(0))

    def layers(self, v: Tensor) -> Tensor:
        """Return all layers, shape `(L, d)`."""
        rest = self.others(v)
        depth = len(rest) + 1
        out = torch.empty(depth, len(v), dtype=v.dtype, device=v.device)
        everyone = torch.arange(depth, device=v.device)[:, None].expand(depth, len(v))
        mine = everyone == self.index
        out[mine] = v.expand(depth, -1)[mine]
        out.mT[~mine.mT] = rest.mT.reshape(-1)
        return out

    def advance(self, v: Tensor, z: Tensor) -> Tensor:
        """Return v after its gradient has accumulated z more; NaN past a pole."""
        count = len(self.delta)
        if count == 0:
            return v + z
        if count == 1:
            return v * torch.cosh(z) + self.q(v) * torch.sinh(z)
        if self.equal and count == 2:
            root = torch.sqrt(self.delta[0])
            t = torch.where(root * z.abs() > 1e-8, torch.tan(root * z) / root, z)
            t = self.signs.prod(0) * t
            past = root * z.abs() >= math.pi / 2
            bottom = 1 - v * t
            return torch.where((bottom > 0) & ~past, (v + self.delta[0] * t) / bottom, torch.nan)
        if self.equal and count == 3:
            delta, sign = self.delta[0], self.signs.prod(0)
            square = v * v + delta
            alive = square > 0
            zeta = torch.where(alive, v / torch.sqrt(torch.where(alive, square, 1.0)), 0.0)
            inverse = 1 / torch.where(alive, square, 1.0)
            g = inverse - 2 * zeta * sign * z - delta * z * z
            moved = (zeta + sign * delta * z) / torch.sqrt(torch.where(g > 0, g, torch.nan))
            return torch.where(alive, moved, v)
        return self._runge_kutta(v, z)

    def _runge_kutta(self, v: Tensor, z: Tensor, parts: int = 4) -> Tensor:
        """Return v by classical Runge–Kutta in z; for depths and starts without a closed flow."""
        h = z / parts
        for _ in range(parts):
            k1 = self.q(v)
            k2 = self.q(v + h / 2 * k1)
            k3 = self.q(v + h / 2 * k2)
            k4 = self.q(v + h * k3)
            v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return v


class DualFlow:
    """An adaptive stepper for the flow; one instance is one trajectory.

    Args:
        x: Signed inputs X̃ = y ⊙ X, shape `(n, d)`.
        w: Layers at time 0, shape `(L, d)`.
        scale: Factor of one datum in the loss, 1/n or 1.
        rtol: Relative accuracy of β and of the layers per step.
    """

    def __init__(self, x: Tensor, w: Tensor, scale: float, *, rtol: float = 1e-3) -> None:
        self.x, self.scale, self.rtol = x, scale, rtol
        self.layers, self.v = Layers.of(w)
        self.t, self.previous = 0.0, 0.0
        self.evaluations, self.steps, self.error = 0, 0, 0.0
        self._vector: Tensor | None = None
        self._h = 1e-2
        self._rows: Tensor | None = None
        self._active = x
        self.u = x @ self.layers.beta(self.v)
        self._rate = self._slope(self.u, x)
        self._last: tuple[Tensor, Tensor, Tensor, Tensor, float, float] | None = None

    @property
    def w(self) -> Tensor:
        """Return the layers now."""
        return self.layers.layers(self.v)

    def _slope(self, u: Tensor, x: Tensor) -> Tensor:
        """Return −∇_β L = X̃ᵀσ(−u) · scale."""
        self.evaluations += 1
        return x.mT @ torch.sigmoid(-u) * self.scale

    def step(self, end: float) -> str | None:
        """Advance by one step, not past `end`; return None or why it cannot."""
        v, rate = self.v, self._rate
        sigma = torch.sigmoid(-self.u)
        speed = self.layers.speed(v)
        total = float(sigma.sum())
        if total == 0 or not math.isfinite(total):
            return "every weight underflows: no gradient is left in this dtype"
        self._gather(self.u)
        weight = sigma * torch.sigmoid(self.u)
        drift = float(weight @ (self.x @ (speed * rate)))
        theta = min(total / drift, 1e30) if drift > 0 else 1e30
        radius = theta * self._radius(weight, speed)
        x = self._active

        def field(s: float, z: Tensor) -> Tensor:
            moved = self.layers.advance(v, z)
            slope = self._slope(x @ self.layers.beta(moved), x)
            return (theta * math.exp(s)) * slope

        zero = torch.zeros_like(v)
        f0 = theta * rate
        for _ in range(60):
            limit = math.log1p((end - self.t) / theta)
            last = self._h >= limit
            h = min(self._h, limit)
            z = rkc_step(field, 0.0, zero, h, f0, max(2, stages(h, 1.2 * radius)))
            arrived = self.layers.advance(v, z)
            u = self.x @ self.layers.beta(arrived)
            slope = self._slope(u, self.x)
            f1 = (theta * math.exp(h)) * slope
            error = self._error(local_error(zero, z, h, f0, f1), v, arrived, speed)
            if error <= 1:
                break
            self._h = h * (0.2 if not math.isfinite(error) else max(0.2, 0.8 * error ** (-1 / 3)))
        else:
            return "the step size fell below what the dtype resolves"
        self._last = (v, z, f0, f1, theta, h)
        self.previous = self.t
        self.t = end if last else self.t + theta * math.expm1(h)
        self.v, self.u, self._rate = arrived, u, slope
        self.steps += 1
        self.error += self.rtol * error
        self._h = h * min(3.0, 0.85 * max(error, 1e-3) ** (-1 / 3))
        return None

    def at(self, t: float) -> Tensor:
        """Return the layers at a time within the last step, by a cubic in stretched time."""
        if self._last is None or t >= self.t:
            return self.w
        v, z, f0, f1, theta, h = self._last
        s = math.log1p((t - self.previous) / theta) / h
        b, c, d = s * (1 - s) ** 2, s * s * (3 - 2 * s), s * s * (s - 1)
        between = b * h * f0 + c * z + d * h * f1
        return self.layers.layers(self.layers.advance(v, between))

    def _error(self, estimate: Tensor, v: Tensor, arrived: Tensor, speed: Tensor) -> float:
        """Return the local error over the tolerance, in β and in v."""
        faster = torch.maximum(speed, self.layers.speed(arrived))
        beta = torch.linalg.vector_norm(self.layers.beta(arrived))
        in_beta = torch.linalg.vector_norm(faster * estimate) / beta.clamp(min=1e-300)
        if len(self.layers.delta) == 0:
            return float(in_beta) / self.rtol
        size = torch.linalg.vector_norm(torch.sqrt(arrived**2 + self.layers.delta.amax(0)))
        in_v = torch.linalg.vector_norm(self.layers.q(arrived) * estimate) / size.clamp(min=1e-300)
        return float(torch.maximum(in_beta, in_v)) / self.rtol

    def _radius(self, weight: Tensor, speed: Tensor) -> float:
        """Return the spectral radius of the flow's Jacobian by one warm power iteration or more."""
        rounds = 1 if self._vector is not None else 8
        root = torch.sqrt(speed)
        vector = self._vector if self._vector is not None else root * (self._rate + 1e-12)
        value = 0.0
        for _ in range(rounds):
            norm = torch.linalg.vector_norm(vector).clamp(min=1e-300)
            vector = root * (self.x.mT @ (weight * (self.x @ (root * (vector / norm)))))
            value = float(torch.linalg.vector_norm(vector)) * self.scale
        self._vector = vector
        return value

    def _gather(self, u: Tensor) -> None:
        """Keep only rows that matter within a step, recopied when few enough are left."""
        keep = u < u.min() + _NEGLIGIBLE
        count = int(keep.sum())
        covered = self._rows is None or bool(self._rows[keep].all())
        if covered and count > _REGATHER * len(self._active):
            return
        self._rows = keep
        self._active = self.x if count == len(u) else self.x[keep]
