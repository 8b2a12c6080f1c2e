"""Config and presets of pinn/inverse."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class InverseFigure:
    """κ of u_t = κ u_xx from observations of u, with and without noise."""

    seeds: int = 10
    """Number of seeds: of the network, the observed points and the noise."""
    first_seed: int = 220
    """The first of them; those below 220 were used for development."""
    width: int = 32
    """Hidden units."""
    size: int = 25
    """Points per axis of the grid on which the equation holds."""
    observed: int = 200
    """Observations of u."""
    noise: float = 0.01
    """Standard deviation of their noise in the second half of the fits; the largest u is 1."""
    steps: int = 300
    """Trial steps."""


EXPERIMENT = Experiment(
    name="pinn/inverse",
    title="An unknown coefficient is recovered to five digits, and to the bound under noise",
    source="natgrad",
    story="An unknown coefficient of the heat equation is learned together with the solution, "
    "from observations of it. Without noise the coefficient is right to five digits. With "
    "noise its error is that of an efficient estimate, by the bound of Cramér and Rao.",
    presets={
        "smoke": InverseFigure(seeds=2, first_seed=0, width=6, size=6, observed=12, steps=12),
        "quick": InverseFigure(seeds=4),
        "paper": InverseFigure(seeds=20),
    },
    minutes={"smoke": 0.05, "quick": 0.4, "paper": 2.0},
    **from_folder(__package__),
)
