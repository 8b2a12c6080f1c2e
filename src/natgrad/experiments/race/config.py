"""Problems, contestants and budgets of the race; importing this module is cheap."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    "TUNED",
    "Race",
]

PEERS = ("SGD", "AdamW", "Muon", "SOAP", "Shampoo")
"""Peers in this environment."""

DEFAULT, TUNED, PUBLISHED, KFAC = "NGD", "NGD tuned", "NGD published", "kfac-jax"
TORCH = (*PEERS, PUBLISHED, TUNED)
"""Contestants in this environment."""

CONTESTANTS = (*PEERS, KFAC, PUBLISHED, TUNED)
"""All contestants that are tuned."""

ENTRANTS = (*CONTESTANTS, DEFAULT)
"""All rows of the result: the contestants, and NGD with default settings."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """Which problems, with which budgets, how many trials and seeds."""

    problems: tuple[str, ...]
    """Problems by name."""
    budgets: tuple[float, ...]
    """Seconds of one run for each problem, on a core that does the reference product in 14 ms."""
    contestants: tuple[str, ...] = TORCH
    """Contestants by name."""
    draws: int = 8
    """Settings that each contestant draws, for short runs."""
    refinements: int = 2
    """Further short runs, near the best rate so far, or beyond it if it is the last one tried."""
    short: float = 0.15
    """Length of a short run, as a part of the budget."""
    whole: int = 2
    """Settings of each contestant that go on to runs of the whole budget."""
    finalists: int = 2
    """Peers that run in the finals, beside every NGD."""
    seeds: int = 5
    """Runs of the finals."""
    mark: float = 0.8
    """The target is the best peer's score after this part of the budget."""
    marks: int = 2
    """Further seeds of the tuning over which the median of that score is taken."""
    points: int = 40
    """Evaluations on validation data per run."""

    def __post_init__(self) -> None:
        """Raise if the options do not define a race."""
        if not len(self.problems) == len(self.budgets) > 0:
            raise InvalidInputError(
                f"each of {len(self.problems)} problems needs a budget, but there are "
                f"{len(self.budgets)} budgets."
            )
        unknown = [name for name in self.contestants if name not in CONTESTANTS]
        if unknown or TUNED not in self.contestants or not set(PEERS) & set(self.contestants):
            raise InvalidInputError(
                f"contestants are among {', '.join(CONTESTANTS)}, and include {TUNED} and a peer, "
                f"but are {', '.join(self.contestants)}."
            )
        counts = (self.draws, self.whole, self.finalists, self.seeds, self.points)
        if min(counts) < 1 or min(self.refinements, self.marks) < 0:
            raise InvalidInputError(
                "draws, whole, finalists, seeds and points are at least 1, refinements and marks 0."
            )
        if self.whole > self.draws + self.refinements:
            raise InvalidInputError(
                f"whole is at most the {self.draws + self.refinements} short runs, but is "
                f"{self.whole}."
            )
        if not (0 < self.short <= 1 and 0 < self.mark <= 1):
            raise InvalidInputError("short and mark are parts of the budget, between 0 and 1.")

    def part(self, problem: str) -> "Race":
        """Return the race on one of the problems.

        Raises:
            InvalidInputError: If it is not one of them.

        Example:
            >>> PRESETS["smoke"].part("table").budgets
            (0.1,)
        """
        if problem not in self.problems:
            raise InvalidInputError(
                f"a part is one of {', '.join(self.problems)}, but is {problem!r}."
            )
        at = self.problems.index(problem)
        return replace(self, problems=(problem,), budgets=(self.budgets[at],))


PRESETS: Mapping[str, Race] = {
    "smoke": Race(
        problems=("digits", "table"),
        budgets=(0.15, 0.1),
        draws=2,
        refinements=1,
        short=0.5,
        whole=1,
        finalists=1,
        seeds=2,
        marks=1,
        points=8,
    ),
    "quick": Race(
        problems=("autoencoder", "classifier", "table"),
        budgets=(8.0, 5.0, 0.5),
        draws=4,
        refinements=1,
        whole=1,
        finalists=1,
        seeds=3,
        marks=1,
        points=24,
    ),
    "paper": Race(
        problems=(
            "table",
            "noisy",
            "autoencoder",
            "classifier",
            "transformer",
            "residual",
            "tied",
            "picture",
            "vae",
            "recurrent",
        ),
        budgets=(0.5, 2.0, 24.0, 10.0, 12.0, 30.0, 30.0, 30.0, 30.0, 30.0),
        contestants=CONTESTANTS,
    ),
}
"""A race for each preset."""

MINUTES = {"smoke": 0.5, "quick": 12.0, "paper": 160.0}
"""Expected minutes of each."""
