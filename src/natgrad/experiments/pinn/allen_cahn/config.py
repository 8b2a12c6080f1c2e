"""Config and presets of pinn/allen_cahn."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class AllenCahnFigure:
    """Allen–Cahn: fixed points alias, drawn points do not."""

    seeds: int = 1
    """Number of seeds."""
    first_seed: int = 140
    """The first of them; those below 140 were used for development."""
    widths: tuple[int, ...] = (20, 20, 20)
    """Hidden layers."""
    points: int = 1000
    """Points drawn every ten steps."""
    doubled: tuple[int, ...] = (40, 200)
    """Steps from which on twice as many points are drawn."""
    fixed: int = 30
    """Points per axis of the fixed grid."""
    steps: int = 300
    """Trial steps with drawn points."""
    fixed_steps: int = 250
    """Trial steps with fixed points."""


_SMOKE = AllenCahnFigure(
    seeds=1, first_seed=0, widths=(6,), points=40, fixed=6, steps=11, fixed_steps=11
)

EXPERIMENT = Experiment(
    name="pinn/allen_cahn",
    title="The fronts of Allen and Cahn need new points every ten steps",
    source="natgrad",
    story="The equation of Allen and Cahn makes sharp fronts from a smooth start. On fixed "
    "points the network satisfies the equation there and is wrong in between, and a "
    "warning says so. New points every ten steps find the fronts.",
    presets={
        "smoke": _SMOKE,
        "quick": AllenCahnFigure(first_seed=120),
        "paper": AllenCahnFigure(seeds=10),
    },
    minutes={"smoke": 0.1, "quick": 1.0, "paper": 9.0},
    **from_folder(__package__),
)
