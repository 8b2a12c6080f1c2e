"""The layers of a diagonal network along gradient flow, as functions of one number per coordinate.

Along gradient flow ẇ_l = (∏_{k≠l} w_k) ⊙ ż with ż = −∇_β L, so that each coordinate's layers are
functions of the integral z of its gradient: dw_l/dz = ∏_{k≠l} w_k. Differences w_l² − w_k² are
conserved. Let v be the layer of smallest |w_l(0)| and δ_l = w_l(0)² − v(0)². Then
    w_l = ±√(v² + δ_l),  dv/dz = q = ∏ w_l over the other layers,  β = v q,
    K = dβ/dz = q² (1 + Σ v²/(v² + δ_l)).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layers:
    """The layers of a diagonal network as functions of the smallest one, coordinate by coordinate.

    Attributes:
        index: Which layer is the smallest, shape `(d,)`.
        signs: Signs of the other layers, shape `(L − 1, d)`.
        delta: δ of the other layers, shape `(L − 1, d)`.
        equal: Whether all δ of a coordinate agree; the flow is then in closed form up to L = 4.
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

    def select(self, columns: Tensor) -> "Layers":
        """Return the layers of some coordinates."""
        return Layers(
            self.index[columns], self.signs[:, columns], self.delta[:, columns], self.equal
        )

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
        """Return v by classical Runge–Kutta in z, for depths and starts without a closed form."""
        h = z / parts
        for _ in range(parts):
            k1 = self.q(v)
            k2 = self.q(v + h / 2 * k1)
            k3 = self.q(v + h / 2 * k2)
            k4 = self.q(v + h * k3)
            v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return v
