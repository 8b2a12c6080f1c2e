"""Config and presets of pinn/burgers."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class BurgersFigure:
    """Burgers, ν = 0.01/π: fixed points alias, drawn points do not."""

    seeds: int = 1
    """Number of seeds."""
    first_seed: int = 150
    """The first of them; those below 150 were used for development."""
    widths: tuple[int, ...] = (20, 20, 20)
    """Hidden layers."""
    points: int = 1000
    """Points drawn every ten steps."""
    doubled: tuple[int, ...] = (40,)
    """Steps from which on twice as many points are drawn."""
    fixed: int = 30
    """Points per axis of the fixed grid."""
    steps: int = 600
    """Trial steps with drawn points."""
    fixed_steps: int = 600
    """Trial steps with fixed points; plateaus last up to 400."""


_SMOKE = BurgersFigure(
    seeds=1, first_seed=0, widths=(6,), points=40, fixed=6, steps=11, fixed_steps=11
)

EXPERIMENT = Experiment(
    name="pinn/burgers",
    title="Burgers’ shock needs new points every ten steps",
    source="natgrad",
    story="The solution of Burgers' equation steepens to a shock. On fixed points the network "
    "satisfies the equation there and is wrong in between, and a warning says so. New "
    "points every ten steps find the shock.",
    presets={
        "smoke": _SMOKE,
        "quick": BurgersFigure(first_seed=120),
        "paper": BurgersFigure(seeds=10),
    },
    minutes={"smoke": 0.1, "quick": 1.8, "paper": 16.0},
    **from_folder(__package__),
)
