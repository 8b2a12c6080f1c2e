"""Who races, and where each contestant's settings are drawn from."""

import math

from natgrad.experiments.race.peers import PEERS
from natgrad.experiments.race.settings import Bounds, Settings, Space

PUBLISHED, DEFAULT, UNTUNED, KFAC = "NGD published", "NGD", "NGD untuned", "kfac-jax"
TORCH = (*PEERS, PUBLISHED, DEFAULT)
"""Contestants in this environment."""

CONTESTANTS = (*PEERS, KFAC, PUBLISHED, DEFAULT)
"""All contestants, as tuned."""

ENTRANTS = (*CONTESTANTS, UNTUNED)
"""All rows of the result: the contestants, and NGD as it comes."""

_SMALL = ("SGD", "Nesterov", "AdamW")  # cheap steps: small batches pay
_HORIZONS = (0.0, 0.5, 1.0)
# About a decade around values that are known to work; SGD's depend on the scale of the loss.
_RATES: dict[str, Bounds] = {
    "AdamW": (5e-4, 8e-3),
    "Muon": (0.01, 0.1),
    "SOAP": (1e-3, 1e-2),
    "Shampoo": (1e-4, 2e-3),
    PUBLISHED: (0.5, 2.0),
    DEFAULT: (0.8, 1.25),  # a factor on lengths that are the best by the quadratic model already
}
_PLAIN_RATES: dict[str, dict[str, Bounds]] = {
    "SGD": {
        "autoencoder": (2e-3, 1.2e-2),
        "classifier": (0.03, 0.5),
        "transformer": (0.1, 2.0),
        "table": (0.02, 0.3),
        "digits": (0.01, 0.2),
    },
    "Nesterov": {
        "autoencoder": (5e-4, 5e-3),
        "classifier": (5e-3, 0.1),
        "transformer": (0.02, 0.4),
        "table": (3e-3, 0.05),
        "digits": (2e-3, 0.04),
    },
}


def space(contestant: str, problem: str, batches: tuple[int, ...]) -> Space:
    """Return where a contestant's settings are drawn from.

    Args:
        contestant: One of `CONTESTANTS`.
        problem: The problem's name.
        batches: Its four batch sizes. SGD, Nesterov and AdamW choose among the smaller three, the
            others among the larger three, and begin with the middle one.

    Example:
        >>> space("NGD", "table", (16, 32, 64, 264)).first
        Settings(lr=1.0, batch=64, horizon=0.0, damping=None, average=None)
    """
    sizes = batches[:3] if contestant in _SMALL else batches[1:]
    if contestant == KFAC:
        first = Settings(lr=None, batch=sizes[1], damping=1.0)
        return Space(first=first, batches=sizes, damping=(0.03, 30.0))
    if contestant == PUBLISHED:
        first = Settings(lr=1.0, batch=sizes[1], damping=0.1)
        return Space(first=first, lr=_RATES[PUBLISHED], damping=(0.03, 1.0), batches=sizes)
    if contestant == DEFAULT:
        first = Settings(lr=1.0, batch=sizes[1])
        # The average first: on the hypercube it then meets small batches, which need it.
        return Space(first=first, lr=_RATES[DEFAULT], batches=sizes, averages=(6.0, None))
    rates = _PLAIN_RATES.get(contestant, {}).get(problem) or _RATES[contestant]
    middle = float(f"{math.sqrt(rates[0] * rates[1]):.3g}")
    first = Settings(lr=middle, batch=sizes[1], horizon=_HORIZONS[-1])
    return Space(first=first, lr=rates, batches=sizes, horizons=_HORIZONS)
