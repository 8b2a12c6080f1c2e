"""`natgrad bench`: NGD against the best tuned peers, in seconds to a target, in one run."""

from natgrad.experiments.race.experiment import RACE, Race

__all__ = ["RACE", "Race"]
