"""Config and presets of [KMH21] Figure 1."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig1:
    """One observation of two coefficients, learned in two parametrizations."""

    correlation: float = 0.7
    """Correlation of the two inputs over which the Fisher is averaged. Our choice."""
    until: float = 12.0
    """Final time of the flows."""
    points: int = 121
    """Points drawn along each path."""
    step: float = 0.02
    """Step length of the discrete paths; they are repeated with half of it."""


EXPERIMENT = Experiment(
    name="kmh21/fig1",
    title="EGD finds a different optimum in each parametrization, NGD finds the same one",
    source="[KMH21] Figure 1",
    story="One observation of two coefficients leaves a whole line of optima. Gradient descent "
    "ends at a different point of it in each parametrization of the same model. The "
    "natural gradient takes the same path through hypotheses in both, so it ends at the "
    "same point.",
    presets={
        "smoke": Fig1(points=31),
        "quick": Fig1(),
        "paper": Fig1(points=401, step=0.01),
    },
    minutes={"smoke": 0.05, "quick": 0.05, "paper": 0.1},
    **from_folder(__package__),
)
