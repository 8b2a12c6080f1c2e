"""The Allen–Cahn equation, whose solution develops sharp fronts."""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from natgrad.experiments.pinn._equations.base import (
    Equation,
    Points,
    derivative,
    middles,
    second,
    spread,
)

__all__ = ["AllenCahn"]

_MODES, _STEPS, _PLACES = 1024, 4000, 256


class AllenCahn(Equation):
    """u_t = 1e-4 u_xx + 5 (u − u³), x in [−1, 1] periodic, t in [0, 1], u = x² cos πx at t = 0.

    The network N takes (cos πx, sin πx, t), and u = s(x, t) + t (N(x, t) + N(−x, t)), so initial
    value, period and mirror symmetry are exact by construction, and points with x > 0 are enough.
    With d = 1 − |x|, u is −(1 − d)² cos πd at t = 0. Its slope jumps at
    d = 0, and u loses this jump at once. So s is the initial value with the solution of the heat
    equation from |d| in place of d, and N has no singularity to learn.

    The reference is a Fourier method with 1024 modes and fourth-order exponential steps (Cox and
    Matthews; Kassam and Trefethen).
    """

    features = 3

    def field(self, net: Module, x: Tensor) -> Tensor:
        """Return the ansatz."""
        place, time = x[:, 0], x[:, 1]
        angle = math.pi * place
        cosine, sine = torch.cos(angle), torch.sin(angle)
        inside: Tensor = sum(net(torch.stack([cosine, y, time], 1))[:, 0] for y in (sine, -sine))
        d = _heated(1 - place.abs(), 1e-4 * time)
        return -((1 - d) ** 2) * torch.cos(math.pi * d) + time * inside

    def fixed(self, size: int) -> Points:
        """Return a grid: half of `size` places, `size` times; the other half by symmetry."""
        t = middles(size)
        return {"interior": torch.cartesian_prod(middles(max(size // 2, 1)), t)}

    def drawn(self, size: int, generator: torch.Generator) -> Points:
        """Return points, a third of them near x = 1 and a third near x = 0.

        The slope of u jumps at x = 1 at t = 0, and the jump spreads to a layer of width 0.01.
        At x = 0 both u and its slope are zero, and errors grow longest.
        """
        x = spread(size, 2, generator)
        which, place = torch.arange(size) % 3, x[:, 0].clone()
        x[:, 0] = torch.where(which == 0, 1 - torch.exp(-6 * place), place)
        x[:, 0] = torch.where(which == 1, place**3, x[:, 0])
        return {"interior": x}

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return u_t − 1e-4 u_xx − 5 (u − u³), times the root of the growth of its errors.

        An error near u = 0 at time t has grown by e^{5 (1 − t)} at the end.
        """
        x = points["interior"].requires_grad_()
        u = self.field(net, x)
        slope = derivative(u, x)
        residual = slope[:, 1] - 1e-4 * second(slope, x, 0) - 5 * (u - u**3)
        return {"interior": torch.exp(2.5 * (1 - x[:, 1].detach())) * residual}

    def truth(self, x: Tensor) -> Tensor:
        """Return the Fourier solution at points of `judged`, in its order."""
        del x
        return torch.as_tensor(_fourier().reshape(-1))

    def judged(self) -> Tensor:
        """Return 256 places and 41 times."""
        place = torch.linspace(-1, 1, _PLACES + 1, dtype=torch.float64)[:-1]
        time = torch.linspace(0, 1, 41, dtype=torch.float64)
        return torch.cartesian_prod(place, time)


def _heated(d: Tensor, spread: Tensor) -> Tensor:
    """Return |d| after the heat equation has run for `spread` = diffusivity × time."""
    width = torch.sqrt(4 * spread + 1e-30)
    z = d / width
    return d * torch.erf(z) + width / math.sqrt(math.pi) * torch.exp(-z.square())


@cache
def _fourier() -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Return u at 256 places and 41 times."""
    every = _MODES // _PLACES
    x = -1 + 2 * np.arange(_MODES) / _MODES
    k = math.pi * np.fft.fftfreq(_MODES, 1 / _MODES)
    h = 1 / _STEPS
    linear = -1e-4 * k**2 + 5
    roots = np.exp(1j * math.pi * (np.arange(32) + 0.5) / 32)
    z = h * linear[:, None] + roots  # contour means avoid cancellation in the φ functions
    e, e2 = np.exp(h * linear), np.exp(h * linear / 2)
    q = h * ((np.exp(z / 2) - 1) / z).mean(1).real
    f1 = h * ((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3).mean(1).real
    f2 = h * ((2 + z + np.exp(z) * (z - 2)) / z**3).mean(1).real
    f3 = h * ((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3).mean(1).real

    def cubic(
        v: "np.ndarray[tuple[int], np.dtype[np.complex128]]",
    ) -> "np.ndarray[tuple[int], np.dtype[np.complex128]]":
        return np.asarray(-5 * np.fft.fft(np.fft.ifft(v).real ** 3))

    v = np.fft.fft(x**2 * np.cos(math.pi * x))
    found = [np.fft.ifft(v).real[::every]]
    for step in range(1, _STEPS + 1):
        nv = cubic(v)
        a = e2 * v + q * nv
        na = cubic(a)
        b = e2 * v + q * na
        nb = cubic(b)
        c = e2 * a + q * (2 * nb - nv)
        nc = cubic(c)
        v = e * v + nv * f1 + 2 * (na + nb) * f2 + nc * f3
        if step % (_STEPS // 40) == 0:
            found.append(np.fft.ifft(v).real[::every])
    return np.stack(found, 1)
