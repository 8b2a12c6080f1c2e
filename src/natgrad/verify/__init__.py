"""Every theorem and numbered identity, computed and compared with its tolerance."""

from natgrad.verify import (  # noqa: F401  (they register their identities)
    _blh18,
    _blh18_flows,
    _findings,
    _kmh21,
    _kmh21_flows,
)
from natgrad.verify._identity import Identity, Outcome, check, identities

__all__ = ["Identity", "Outcome", "check", "identities"]
