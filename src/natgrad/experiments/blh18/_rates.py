"""Learning rates of the first-order methods, as a config declares them."""

from typing import Literal, Protocol

from natgrad.errors import InvalidInputError

Rule = Literal["SGD", "momentum", "Adam"]


class Rates(Protocol):
    """The grids of learning rates of a config."""

    @property
    def sgd_rates(self) -> tuple[float, ...]:
        """Learning rates tried for SGD."""

    @property
    def momentum_rates(self) -> tuple[float, ...]:
        """Learning rates tried for SGD with momentum."""

    @property
    def adam_rates(self) -> tuple[float, ...]:
        """Learning rates tried for Adam."""


def require_equal_grids(config: Rates) -> None:
    """Raise an error unless all methods are tuned with the same number of rates."""
    counts = {len(config.sgd_rates), len(config.momentum_rates), len(config.adam_rates)}
    if counts == {0} or len(counts) > 1:
        raise InvalidInputError(
            "all methods must be tuned with the same number of rates, but there are "
            f"{len(config.sgd_rates)} for SGD, {len(config.momentum_rates)} for momentum and "
            f"{len(config.adam_rates)} for Adam."
        )


def rates_of(config: Rates, rule: Rule) -> tuple[float, ...]:
    """Return the rates to try for a method."""
    grids = {"SGD": config.sgd_rates, "momentum": config.momentum_rates, "Adam": config.adam_rates}
    return grids[rule]
