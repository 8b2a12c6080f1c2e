"""The same fits by other methods, for a given CPU time."""

import math
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor
from torch.nn import Module

from natgrad.experiments.pinn._equations.base import Equation, Points
from natgrad.optim._levenberg.problem import Residuals
from natgrad.optim._rows.record import Recorder

__all__ = ["PEERS", "Peer", "by_peer"]

Peer = Literal["scipy", "lbfgs", "adam"]
PEERS: tuple[Peer, ...] = ("scipy", "lbfgs", "adam")


def by_peer(peer: Peer, equation: Equation, net: Module, points: Points, seconds: float) -> None:
    """Train the network for this number of CPU seconds."""
    methods: dict[Peer, Callable[..., None]] = {"scipy": _scipy, "lbfgs": _lbfgs, "adam": _adam}
    methods[peer](equation, net, points, time.process_time() + seconds)


class _OutOfTimeError(Exception):
    pass


def _scipy(equation: Equation, net: Module, points: Points, until: float) -> None:
    """MINPACK's Levenberg–Marquardt with our exact rows; the best point found counts."""
    params = list(net.parameters())
    sizes = [p.numel() for p in params]
    problem, recorder = Residuals(params[0]), Recorder(net, params, [""] * len(params))
    best = (math.inf, torch.cat([p.detach().reshape(-1) for p in params]))

    def write(x: Tensor) -> None:
        with torch.no_grad():
            for p, part in zip(params, torch.split(x, sizes), strict=True):
                p.copy_(part.view_as(p))

    def residuals(x: np.ndarray) -> np.ndarray:
        nonlocal best
        if time.process_time() > until:
            raise _OutOfTimeError
        write(torch.as_tensor(x))
        values = problem.read(equation.blocks(net, points), "closure")
        r = -problem.whiten(values).target
        best = min(best, (float(r @ r), torch.as_tensor(x).clone()), key=lambda pair: pair[0])
        return np.asarray(r.numpy())

    def jacobian(x: np.ndarray) -> np.ndarray:
        write(torch.as_tensor(x))
        values = problem.read(recorder.run(lambda: equation.blocks(net, points)), "closure")
        strips = recorder.jacobian(values.blocks)
        return np.asarray(recorder.assemble(problem.whiten(values).rows(strips)).dense.numpy())

    options = {"method": "lm", "x_scale": "jac", "xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    try:
        least_squares(residuals, best[1].numpy(), jacobian, max_nfev=100_000, **options)
    except _OutOfTimeError:
        pass
    write(best[1])


def _loss(equation: Equation, net: Module, points: Points) -> Tensor:
    parts = [0.5 * w * r.square().mean() for r, w in equation.blocks(net, points).values()]
    return torch.stack(parts).sum()


def _lbfgs(equation: Equation, net: Module, points: Points, until: float) -> None:
    optimizer = torch.optim.LBFGS(
        net.parameters(),
        max_iter=20,
        history_size=100,
        line_search_fn="strong_wolfe",
        tolerance_grad=0,
        tolerance_change=0,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _loss(equation, net, points)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    while time.process_time() < until:
        optimizer.step(closure)  # type: ignore[no-untyped-call]


def _adam(equation: Equation, net: Module, points: Points, until: float) -> None:
    """Adam whose rate falls from 1e-2 to zero along a half cosine in CPU time."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    began = time.process_time()
    while (now := time.process_time()) < until:
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 + math.cos(math.pi * (now - began) / (until - began)))
        optimizer.zero_grad()
        _loss(equation, net, points).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
