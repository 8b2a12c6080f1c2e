"""Every theorem and numbered identity, computed and compared with its tolerance."""

from natgrad.verify import blh18, flows, kmh21  # noqa: F401  (they register their identities)
from natgrad.verify.identity import Identity, Outcome, check, identities

__all__ = ["Identity", "Outcome", "check", "identities"]
