"""Config and presets of pinn/heat."""

from dataclasses import dataclass

from natgrad.experiments.pinn._solve.presets import Init
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class HeatFigure:
    """Heat equation, 2-64-1: every seed, below 1e-5."""

    seeds: int = 10
    """Number of seeds."""
    first_seed: int = 400
    """The first of them; those below 400 were used for development."""
    inits: tuple[Init, ...] = ("torch",)
    """Initializations: torch's, 0.1 · N(0, 1) or Xavier's."""
    width: int = 64
    """Hidden units."""
    size: int = 30
    """Points per axis of the grid."""
    steps: int = 200
    """Trial steps."""


EXPERIMENT = Experiment(
    name="pinn/heat",
    title="The heat equation is solved from every seed",
    source="natgrad",
    story="A network of 64 units must satisfy the heat equation, its start and its boundary. "
    "GaussNewton takes the residuals at all points as one least-squares problem. It "
    "reaches a relative error below 1e-5 from every seed.",
    presets={
        "smoke": HeatFigure(seeds=1, first_seed=0, width=8, size=8, steps=12),
        "quick": HeatFigure(seeds=3),
        "paper": HeatFigure(seeds=10),
    },
    minutes={"smoke": 0.05, "quick": 0.3, "paper": 0.6},
    **from_folder(__package__),
)
