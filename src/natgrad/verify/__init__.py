"""Every theorem and numbered identity, computed and compared with its tolerance."""

from natgrad.verify import (  # noqa: F401  (they register their identities)
    blh18,
    blh18_flows,
    findings,
    kmh21,
    kmh21_flows,
)
from natgrad.verify.identity import Identity, Outcome, check, identities

__all__ = ["Identity", "Outcome", "check", "identities"]
