"""Config and presets of natural flow with damping λ₀Lᵃ."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Damping:
    """Natural gradient flow of logistic regression with λ = λ₀Lᵃ, from zero, by arc length."""

    n: int = 40
    """Number of samples."""
    dim: int = 20
    """Number of features, fewer than samples."""
    ones: int = 4
    """How many features the labels depend on."""
    scales: tuple[float, ...] = (0.01, 1.0, 100.0)
    """λ₀."""
    powers: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0)
    """a."""
    length: float = 1e6
    """Length of each path."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the data."""


EXPERIMENT = Experiment(
    name="atlas/damping",
    title="Damping λ₀Lᵃ picks the ℓ2 margin for a ≤ 1, and the shortest point of a face for a > 1",
    source="natgrad, docs/findings.md",
    story="Damping that follows the loss turns natural gradient into gradient descent, or leaves "
    "it alone. Every path ends at the shortest separator with its tight rows: those of the ℓ2 "
    "margin up to a = 1, more of them above, and a vertex when there are as many as features. "
    "So an exponent of the damping schedule decides which separator is learned.",
    presets={
        "smoke": Damping(powers=(0.5, 1.0, 2.0), seeds=(0,)),
        "quick": Damping(seeds=tuple(range(6))),
        "paper": Damping(),
    },
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 0.5},
    **from_folder(__package__),
)
