"""Claims of pinn/poisson."""

from collections.abc import Sequence

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn._solve.smooth import departures
from natgrad.experiments.pinn.poisson.config import PoissonFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

__all__ = ["claims", "departures"]


def claims(config: PoissonFigure, arrays: Arrays) -> Sequence[Claim]:
    """Return what the fits show."""
    final = arrays["error"][..., -1]
    return [
        *smooth.reached(config, arrays, ("quick", "paper")),
        Claim(
            id="median",
            statement="the median error is at most 5e-7",
            source="natgrad",
            **over_seeds(final, "median"),
            relation="<=",
            bound=5e-7,
            presets=("paper",),
        ),
    ]
