"""Gradient flow of diagonal networks on logistic loss, in dual variables.

In the integral z of the gradient, coordinate by coordinate (see `dual_layers`), the flow is
dz/dt = X̃ᵀσ(−X̃β(z))/N. Its Jacobian is similar to a negative semi-definite matrix, and there is no
saddle to pass slowly. Steps are taken by Runge–Kutta–Chebyshev or, if few coordinates are
stiff, by a linearly implicit method.

Time is stretched within each step, t = t₀ + θ(e^s − 1), where θ is the time in which the slope
f = ⟨σ(−u)⟩ of the loss changes. Once f ~ 1/t, equal steps of s are equal steps of log t.

A step computes only the rows and columns that matter. Rows of large margins contribute
nothing to the gradient. Columns whose β hardly moves (in deep networks, nearly all) do not
affect the margins: their gradients are integrated from the ends of the steps. Both are
checked at the end of the step, where everything is computed in full. Stages within a step are
products with X in single precision, unless the tolerance or cancellation forbids it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.flows._methods.dual.layers import Layers
from natgrad.flows._methods.steppers.rkc import local_error, rkc_step, stages
from natgrad.flows._methods.steppers.rosenbrock import Shifted, rodas_step

_NEGLIGIBLE = 1e-7  # fraction of the gradient: rows that contribute less are left out within a step
_FEEDBACK = 0.1  # times rtol: allowed effect of omitted columns on the margins within a step
_STABLE = 0.02  # eigenvalue times step up to which a column may be left out
_EVEN = 0.01  # ratio of the median to the largest dβ/dz above which no column is left out
_REGATHER = 0.7  # gather again if that leaves only this fraction of the entries,
_MORE = 1.5  # and with columns that may be needed next, if they are not many more
_NARROW = 1e-4  # tolerance from which stages are computed in single precision
_CANCELS = 1e-3  # ratio of the gradient to its terms below which they are not
_SIZES = 1e-9, 1e9  # sizes of inputs for which single precision has room
_IMPLICIT = 512  # shorter side up to which an implicit step may be cheaper
_IMBALANCE = 0.1  # error of the margins at which mutually balanced rows start to oscillate


@dataclass(frozen=True)
class _Part:
    """The rows and columns that a step computes."""

    rows: Tensor  # (n,) bool
    columns: Tensor  # (d,) bool
    x: Tensor
    layers: Layers

    @classmethod
    def of(cls, x: Tensor, layers: Layers, rows: Tensor, columns: Tensor) -> "_Part":
        if not bool(columns.all()):
            layers = layers.select(columns)
            x = x.index_select(1, torch.nonzero(columns)[:, 0])
        return cls(rows, columns, x if bool(rows.all()) else x[rows], layers)

    def serves(self, rows: Tensor, columns: Tensor) -> bool:
        """Return whether it contains these rows and columns."""
        return bool(self.rows[rows].all()) and bool(self.columns[columns].all())

    def margins(self, change: Tensor) -> Tensor:
        """Return X̃ change, of the rows."""
        return (self.x @ change.to(self.x)).to(change)

    def gradient(self, weight: Tensor) -> Tensor:
        """Return X̃ᵀ weight, of the columns; weights are of order one."""
        return (self.x.mT @ weight.to(self.x)).to(weight)


class _Stretch(NamedTuple):
    """Time within a step, t = t₀ + θ(e^s − 1), and the spectral radius in units of s."""

    theta: float
    radius: float


class _Taken(NamedTuple):
    """The result of a step: z, the layer v, margins, gradient, and the error estimate of z.

    The imbalance is the same error in the margins over the allowed error, for an implicit step.
    """

    z: Tensor
    v: Tensor
    u: Tensor
    rate: Tensor
    estimate: Tensor
    imbalance: float


class DualFlow:
    """An adaptive stepper for the flow; one instance is one trajectory.

    Args:
        x: Signed inputs X̃ = y ⊙ X, shape `(n, d)`.
        w: Layers at time 0, shape `(L, d)`.
        scale: Factor of one sample in the loss, 1/n or 1.
        rtol: Relative accuracy of β and of the layers per step.
    """

    def __init__(self, x: Tensor, w: Tensor, scale: float, *, rtol: float = 1e-3) -> None:
        self.x, self.scale, self.rtol = x, scale, rtol
        self.layers, self.v = Layers.of(w)
        self.t, self.previous = 0.0, 0.0
        self.evaluations, self.steps, self.error = 0, 0, 0.0
        everyone = [torch.ones(k, dtype=torch.bool, device=x.device) for k in x.shape]
        self._everything = self._part = _Part(everyone[0], everyone[1], x, self.layers)
        self._size = float(torch.linalg.vector_norm(x)) / math.sqrt(x.numel())
        self._largest = float(torch.linalg.vector_norm(x, math.inf))
        roomy = rtol >= _NARROW and _SIZES[0] < self._size and self._largest < _SIZES[1]
        self._narrow = x.float() if roomy else x
        self._length = self._size * math.sqrt(x.shape[1])
        self._vector: Tensor | None = None
        self._dt: float | None = None
        self.u = x @ self.layers.beta(self.v)
        self._rate = self._rate_before = self._slope(self.u)
        self._last: tuple[Tensor, Tensor, Tensor, Tensor, float, float] | None = None

    @property
    def w(self) -> Tensor:
        """Return the layers now."""
        return self.layers.layers(self.v)

    @cached_property
    def _squares(self) -> Tensor:
        """Return the squares of all inputs, relative to their mean."""
        return (self.x / (self._size or 1.0)).square().float()

    def _slope(self, u: Tensor) -> Tensor:
        """Return −∇_β L = X̃ᵀσ(−u) · scale."""
        self.evaluations += 1
        return self.x.mT @ torch.sigmoid(-u) * self.scale

    def step(self, end: float) -> str | None:
        """Advance by one step, not past `end`; return None or why it cannot."""
        sigma = torch.sigmoid(-self.u)
        total = float(sigma.sum())
        if total == 0 or not math.isfinite(total):
            return "every weight underflows: no gradient is left in this dtype"
        speed = self.layers.speed(self.v)
        velocity = speed * self._rate
        if self._stands(velocity, end):
            self._rest(end)
            return None
        self._part = self._choose(sigma, speed, velocity)
        stretch = self._stretch(sigma, speed, velocity)
        for _ in range(60):
            limit = math.log1p((end - self.t) / stretch.theta)
            h = min(limit, 1e-2 if self._dt is None else math.log1p(self._dt / stretch.theta))
            if self.t + stretch.theta * math.expm1(h) == self.t:
                break
            taken = self._attempt(stretch, h, speed)
            if taken is None:  # columns left out have moved the margins
                self._part = replace(self._everything, x=self._source(sigma))
                stretch = self._stretch(sigma, speed, velocity)
                continue
            error = max(self._error(taken, speed), taken.imbalance)
            factor = 0.85 * max(error, 1e-3) ** (-1 / 3) if math.isfinite(error) else 0.2
            self._dt = stretch.theta * math.expm1(h * min(3.0, max(0.2, factor)))
            if error <= 1:
                self._accept(taken, stretch.theta, h, end if h == limit else None)
                self.error += self.rtol * error
                return None
            if self._is_rounding(sigma):
                self._rest(end)
                return None
        return "the step size fell below what the dtype resolves"

    def _rest(self, end: float) -> None:
        """Wait until `end` without moving."""
        self.previous, self.t, self._last = self.t, end, None
        self.steps += 1

    def _accept(self, taken: _Taken, theta: float, h: float, end: float | None) -> None:
        f0, f1 = theta * self._rate, (theta * math.exp(h)) * taken.rate
        self._last = (self.v, taken.z, f0, f1, theta, h)
        self.previous, self._rate_before = self.t, self._rate
        self.t = self.t + theta * math.expm1(h) if end is None else end
        self.v, self.u, self._rate = taken.v, taken.u, taken.rate
        self.steps += 1

    def at(self, t: float) -> Tensor:
        """Return the layers at a time within the last step, by a cubic in stretched time."""
        if self._last is None or t >= self.t:
            return self.w
        v, z, f0, f1, theta, h = self._last
        s = math.log1p((t - self.previous) / theta) / h
        b, c, d = s * (1 - s) ** 2, s * s * (3 - 2 * s), s * s * (s - 1)
        between = b * h * f0 + c * z + d * h * f1
        return self.layers.layers(self.layers.advance(v, between))

    def _stands(self, velocity: Tensor, end: float) -> bool:
        """Return whether β does not move in the remaining time: a finite end, or a saddle."""
        size = torch.linalg.vector_norm(self.layers.beta(self.v))
        moved = torch.linalg.vector_norm(velocity) * (end - self.t)
        return bool(moved <= 0.1 * self.rtol * size)

    def _is_rounding(self, sigma: Tensor) -> bool:
        """Return whether the gradient is zero up to rounding: β is at a finite optimum."""
        most = 4 * torch.finfo(self.x.dtype).eps * self.scale * self._largest * float(sigma.sum())
        if float(self._rate.abs().max()) > most:
            return False
        each = 4 * torch.finfo(self.x.dtype).eps * self.scale * (self.x.abs().mT @ sigma)
        return bool((self._rate.abs() <= each).all())

    def _choose(self, sigma: Tensor, speed: Tensor, velocity: Tensor) -> _Part:
        """Return the rows with weight and the columns that affect the margins."""
        # Compare with the gradient, not with the heaviest rows: in data that are not separable
        # those cancel, and the light rows decide.
        slope = self._relative_slope
        rows = sigma >= _NEGLIGIBLE * torch.minimum(slope, sigma.max())
        even = float(speed.median()) > _EVEN * float(speed.max())
        if even or self._dt is None or self.previous == self.t:
            columns = more = self._everything.columns
        else:
            weight = (sigma * torch.sigmoid(self.u)).to(self._squares)
            curvature = self.scale * self._size**2 * (self._squares.mT @ weight)
            columns, more = self._columns(self._dt * velocity, self._dt * speed * curvature)
        source = self._source(sigma)
        serves = self._part.x.dtype == source.dtype and self._part.serves(rows, columns)
        if float(more.sum()) <= _MORE * float(columns.sum()):
            columns = more
        if float(columns.sum()) > _REGATHER * len(columns):
            columns = self._everything.columns
        size = float(rows.sum()) * float(columns.sum())
        if serves and size > _REGATHER * self._part.x.numel():
            return self._part
        return _Part.of(source, self.layers, rows, columns)

    @property
    def _relative_slope(self) -> Tensor:
        """Return the size of the gradient in units of σ."""
        size: Tensor = torch.linalg.vector_norm(self._rate) / (self.scale * self._length or 1.0)
        return size

    def _source(self, sigma: Tensor) -> Tensor:
        """Return the inputs in the precision that a step needs."""
        return self._narrow if self._relative_slope > _CANCELS * sigma.sum() else self.x

    def _columns(self, moved: Tensor, stiffness: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns needed in a step that moves β this far, and some more for the next."""
        ordered, order = torch.sort(moved.square())
        total = ordered.cumsum(0)
        allowed = _FEEDBACK * self.rtol / (self._size or 1.0)
        out = []
        for part in (1.0, 0.3):
            columns = torch.ones_like(self._everything.columns)
            columns[order[: int((total <= (part * allowed) ** 2).sum())]] = False
            out.append(columns | (stiffness > part * _STABLE))
        return out[0], out[1]

    def _stretch(self, sigma: Tensor, speed: Tensor, velocity: Tensor) -> _Stretch:
        """Return the time scale and the spectral radius, by a warm-started power iteration."""
        part, top = self._part, float(sigma.max())
        weight = ((sigma / top) * torch.sigmoid(self.u))[part.rows]
        root, moved = torch.sqrt(speed[part.columns]), velocity[part.columns]
        fast, far = float(root.max()), float(moved.abs().max())
        root, moved = root / (fast or 1.0), moved / (far or 1.0)
        # Columns that return were left out of the last iteration, perhaps all of its columns.
        warm = None if self._vector is None else self._vector[part.columns]
        cold = warm is None or not bool(warm.any())
        vector = root * (self._rate[part.columns] + 1e-12) if warm is None or cold else warm
        drift = 0.0
        for k in range(8 if cold else 1):
            vector = vector / torch.linalg.vector_norm(vector).clamp(min=1e-300)
            if k == 0:  # both products at once
                pushed, drifting = part.margins(torch.stack([root * vector, moved], 1)).unbind(1)
                drift = float(weight @ drifting) * far * top
            else:
                pushed = part.margins(root * vector)
            vector = root * part.gradient(weight * pushed)
        theta = min(float(sigma.sum()) / drift, 1e290) if drift > 0 else 1e30
        self._vector = torch.zeros_like(speed)
        self._vector[part.columns] = vector
        size = float(torch.linalg.vector_norm(vector)) * fast**2 * top
        return _Stretch(theta, theta * self.scale * size)

    def _attempt(self, stretch: _Stretch, h: float, speed: Tensor) -> _Taken | None:
        """Return the result of a step of h; None if omitted columns have moved the margins."""
        part, theta = self._part, stretch.theta
        v, before, u0 = self.v[part.columns], self._rate[part.columns], self.u[part.rows]
        beta, top = part.layers.beta(v), float(torch.sigmoid(-u0).max())

        def margins(z: Tensor) -> Tensor:
            return u0 + part.margins(part.layers.beta(part.layers.advance(v, z)) - beta)

        def field(s: float, z: Tensor) -> Tensor:
            self.evaluations += 1
            slope = part.gradient(torch.sigmoid(-margins(z)) / top)
            return (theta * math.exp(s) * self.scale * top) * slope

        f0, zero = theta * before, torch.zeros_like(v)
        s, imbalance = max(2, stages(h, 1.2 * stretch.radius)), 0.0
        implicit = self._implicit_pays(s)
        if implicit:
            shifted = self._shifted(theta, u0, speed[part.columns])
            inner, estimate = rodas_step(field, 0.0, zero, h, f0, shifted, f0)
            moved = part.margins(speed[part.columns] * estimate)
            imbalance = float(moved.abs().max()) / _IMBALANCE
        else:
            inner = rkc_step(field, 0.0, zero, h, f0, s)
        dt = theta * math.expm1(h)
        z = self._filled(self._extrapolated(dt), inner)
        arrived = self.layers.advance(self.v, z)
        u = self.x @ self.layers.beta(arrived)
        rate = self._slope(u)
        if not implicit:
            estimate = local_error(zero, inner, h, f0, (theta * math.exp(h)) * rate[part.columns])
        if part.layers is self.layers:
            return _Taken(z, arrived, u, rate, estimate, imbalance)
        if float((u[part.rows] - margins(inner)).abs().max()) > 10 * _FEEDBACK * self.rtol:
            return None
        z, bend = self._quadrature(rate, dt)
        z, estimate = self._filled(z, inner), self._filled(bend, estimate)
        return _Taken(z, self.layers.advance(self.v, z), u, rate, estimate, imbalance)

    def _filled(self, outside: Tensor, inside: Tensor) -> Tensor:
        """Return a full vector from its parts."""
        if self._part.layers is self.layers:
            return inside
        out = outside.clone()
        out[self._part.columns] = inside
        return out

    def _extrapolated(self, dt: float) -> Tensor:
        """Return the integral of the gradient over dt, extrapolated from earlier values."""
        if self._part.layers is self.layers:
            return self._rate
        slope = (self._rate - self._rate_before) / (self.t - self.previous)
        return dt * self._rate + (0.5 * dt * dt) * slope

    def _quadrature(self, rate: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        """Return the integral of the gradient by three of its values, and its last term."""
        gone = self.t - self.previous
        first, second = (self._rate - self._rate_before) / gone, (rate - self._rate) / dt
        bend = (dt**3 / 6) * (second - first) / (dt + gone)
        return (0.5 * dt) * (self._rate + rate) - bend, bend

    def _implicit_pays(self, s: int) -> bool:
        """Return whether an implicit step takes less time than s explicit stages."""
        short, long = sorted(self._part.x.shape)
        evaluation = 8e-5 + 1e-9 * short * long
        implicit = 6e-4 + 3 * evaluation + 1e-10 * short**2 * (short + long)
        return short <= _IMPLICIT and implicit < s * evaluation

    def _shifted(self, theta: float, u: Tensor, speed: Tensor) -> Shifted:
        """Return solvers with a I − J, J = −θ scale X̃ᵀ diag(σσ′) X̃ diag(K), on its shorter side."""
        x = self._part.x.to(self.x)
        weight = theta * self.scale * torch.sigmoid(u) * torch.sigmoid(-u)
        tall = x.shape[0] >= x.shape[1]
        left, right = (weight[:, None] * x).mT, x * speed
        gram = left @ right if tall else right @ left
        identity = torch.eye(len(gram), dtype=x.dtype, device=x.device)

        def solver(a: float) -> Callable[[Tensor], Tensor]:
            factors = torch.linalg.lu_factor(gram + a * identity)

            def inner(r: Tensor) -> Tensor:
                out: Tensor = torch.linalg.lu_solve(*factors, r[:, None])[:, 0]
                return out

            return inner if tall else lambda r: (r - left @ inner(right @ r)) / a

        return solver

    def _error(self, taken: _Taken, speed: Tensor) -> float:
        """Return the local error over the tolerance, in β and in v."""
        faster = torch.maximum(speed, self.layers.speed(taken.v))
        beta = torch.linalg.vector_norm(self.layers.beta(taken.v))
        in_beta = torch.linalg.vector_norm(faster * taken.estimate) / beta.clamp(min=1e-300)
        if len(self.layers.delta) == 0:
            return float(in_beta) / self.rtol
        size = torch.linalg.vector_norm(torch.sqrt(taken.v**2 + self.layers.delta.amax(0)))
        in_v = torch.linalg.vector_norm(self.layers.q(taken.v) * taken.estimate)
        return float(torch.maximum(in_beta, in_v / size.clamp(min=1e-300))) / self.rtol
