"""Problems, contestants and budgets of the race; importing this module is cheap."""

from collections.abc import Mapping
from dataclasses import dataclass

from natgrad.errors import InvalidInputError

__all__ = [
    "CONTESTANTS",
    "DEFAULT",
    "ENTRANTS",
    "KFAC",
    "MINUTES",
    "PEERS",
    "PRESETS",
    "PUBLISHED",
    "TORCH",
    "UNTUNED",
    "Race",
]

PEERS = ("SGD", "Nesterov", "AdamW", "Muon", "SOAP", "Shampoo")
"""Peers in this environment."""

PUBLISHED, DEFAULT, UNTUNED, KFAC = "NGD published", "NGD", "NGD untuned", "kfac-jax"
TORCH = (*PEERS, PUBLISHED, DEFAULT)
"""Contestants in this environment."""

CONTESTANTS = (*PEERS, KFAC, PUBLISHED, DEFAULT)
"""All contestants that are tuned."""

ENTRANTS = (*CONTESTANTS, UNTUNED)
"""All rows of the result: the contestants, and NGD with default settings."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """Which problems, with which budgets, how many trials and seeds."""

    problems: tuple[str, ...]
    """Problems by name."""
    targets: tuple[float, ...]
    """The score to reach on validation data, for each problem."""
    budgets: tuple[float, ...]
    """Seconds of one run for each problem, on a core that does the reference product in 14 ms."""
    contestants: tuple[str, ...] = TORCH
    """Contestants by name."""
    trials: int = 6
    """Settings that each contestant tries."""
    seeds: int = 3
    """Runs of the finals."""
    points: int = 40
    """Evaluations on validation data per run."""

    def __post_init__(self) -> None:
        """Raise if the options do not define a race."""
        if not len(self.problems) == len(self.targets) == len(self.budgets) > 0:
            raise InvalidInputError(
                f"each of {len(self.problems)} problems needs a target and a budget, but there "
                f"are {len(self.targets)} targets and {len(self.budgets)} budgets."
            )
        unknown = [name for name in self.contestants if name not in CONTESTANTS]
        if unknown or DEFAULT not in self.contestants:
            raise InvalidInputError(
                f"contestants are among {', '.join(CONTESTANTS)}, and include NGD, but are "
                f"{', '.join(self.contestants)}."
            )
        if min(self.trials, self.seeds, self.points) < 1:
            raise InvalidInputError("trials, seeds and points are at least 1.")


PRESETS: Mapping[str, Race] = {
    "smoke": Race(
        problems=("digits", "table"),
        targets=(0.06, 0.6),
        budgets=(0.15, 0.1),
        trials=2,
        seeds=2,
        points=8,
    ),
    "quick": Race(
        problems=("autoencoder", "classifier", "table"),
        targets=(0.018, 0.55, 0.475),
        budgets=(6.0, 4.0, 0.5),
        trials=3,
        points=24,
    ),
    "paper": Race(
        problems=("autoencoder", "classifier", "transformer", "table"),
        targets=(0.0106, 0.4, 2.0, 0.475),
        budgets=(24.0, 10.0, 12.0, 0.5),
        contestants=CONTESTANTS,
        trials=5,
        points=36,
    ),
}
"""A race for each preset."""

MINUTES = {"smoke": 0.5, "quick": 13.0, "paper": 67.0}
"""Expected minutes of each."""
