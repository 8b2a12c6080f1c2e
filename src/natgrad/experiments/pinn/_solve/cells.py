"""One fit of one equation by `GaussNewton`: error, loss and warnings, step by step."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from natgrad.experiments.pinn._equations.allen_cahn import AllenCahn
from natgrad.experiments.pinn._equations.base import Equation
from natgrad.experiments.pinn._equations.burgers import Burgers
from natgrad.experiments.pinn._equations.heat import Heat
from natgrad.experiments.pinn._equations.helmholtz import Helmholtz
from natgrad.experiments.pinn._equations.poisson import Poisson, PoissonInside
from natgrad.experiments.pinn._solve.networks import network
from natgrad.experiments.pinn._solve.presets import Init
from natgrad.lab.cell import Result
from natgrad.optim import AliasingWarning, GaussNewton

__all__ = ["EQUATIONS", "Fit", "fit"]

Name = Literal["poisson", "poisson5d", "heat", "helmholtz", "burgers", "allen_cahn"]

EQUATIONS: dict[str, Callable[[], Equation]] = {
    "poisson": Poisson,
    "poisson5d": lambda: PoissonInside(5),
    "heat": Heat,
    "helmholtz": Helmholtz,
    "burgers": Burgers,
    "allen_cahn": AllenCahn,
}


@dataclass(frozen=True)
class Fit:
    """One fit.

    Attributes:
        equation: Name of the equation.
        widths: Hidden layers.
        init: The initialization.
        seed: Seed of the initialization and of drawn points.
        steps: Trial steps.
        size: Points per axis if fixed, their number if drawn.
        drawn: Whether new points are drawn every ten steps.
        doubled: Steps from which on twice as many points are drawn.
        every: Steps between measurements of the error.
        picture: Whether the solution on the judged points is stored.
    """

    equation: Name
    widths: tuple[int, ...]
    init: Init
    seed: int
    steps: int
    size: int
    drawn: bool = False
    doubled: tuple[int, ...] = ()
    every: int = 10
    picture: bool = False


def fit(config: Fit) -> Result:
    """Return errors and losses of the steps, CPU seconds, and whether aliasing was reported."""
    equation = EQUATIONS[config.equation]()
    net = network(equation.features, config.widths, config.init, config.seed)
    source = torch.Generator().manual_seed(1000 + config.seed)
    count = config.size if config.drawn else config.size**2
    held = equation.drawn(2 * count, torch.Generator().manual_seed(7))
    points = equation.drawn(config.size, source) if config.drawn else equation.fixed(config.size)

    def resample() -> None:
        doublings = sum(optimizer.statistics.step >= step for step in config.doubled)
        points.update(equation.drawn(config.size * 2**doublings, source))

    optimizer = GaussNewton(
        net,
        resample=resample if config.drawn else None,
        held_out=lambda: equation.blocks(net, held),
    )
    errors, losses, steps, spent = [equation.error(net)], [], [0], 0.0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", AliasingWarning)
        for step in range(1, config.steps + 1):
            began = time.process_time()
            losses.append(optimizer.step(lambda: equation.blocks(net, points)))
            spent += time.process_time() - began
            if step % config.every == 0 or step == config.steps:
                errors.append(equation.error(net))
                steps.append(step)
    found: dict[str, Any] = {
        "error": np.array(errors),
        "step": np.array(steps),
        "loss": np.array(losses),
        "seconds": np.asarray(spent),
        "warned": np.asarray(any(issubclass(one.category, AliasingWarning) for one in said)),
    }
    if config.picture:
        with torch.no_grad():
            found["solution"] = equation.field(net, equation.judged()).numpy()
    return found
