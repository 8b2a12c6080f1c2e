"""An identity: a statement, where it is printed, and a function that measures its residual."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Identity:
    """A claim that some residual is below a tolerance.

    Attributes:
        id: Short name, `paper/equation`.
        statement: What is claimed, in one sentence.
        source: Where it is printed.
        tolerance: Largest residual at which the claim holds.
        residual: Computes the residual, a non-negative number.

    Example:
        >>> claim = Identity("one", "1 = 1", "arithmetic", 1e-12, lambda: 0.0)
        >>> check(claim).holds
        True
    """

    id: str
    statement: str
    source: str
    tolerance: float
    residual: Callable[[], float]


@dataclass(frozen=True)
class Outcome:
    """The outcome of `check` for one identity.

    Attributes:
        id: As in `Identity`.
        statement: As in `Identity`, with the error if there was one.
        residual: The measured residual; NaN after an error.
        tolerance: As in `Identity`.
        holds: Whether the residual is at most the tolerance.
        source: As in `Identity`.
        seconds: Time that the measurement took.

    Example:
        >>> Outcome("one", "1 = 1", math.nan, 1e-12, False, "arithmetic", 0.0).to_json()["residual"]
    """

    id: str
    statement: str
    residual: float
    tolerance: float
    holds: bool
    source: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; a residual of NaN or infinity becomes null."""
        record = asdict(self)
        record["residual"] = self.residual if math.isfinite(self.residual) else None
        return record


_REGISTRY: list[Identity] = []


def identity(
    id: str, statement: str, *, source: str, tolerance: float = 1e-10
) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register the decorated function as the residual of an identity."""

    def register(residual: Callable[[], float]) -> Callable[[], float]:
        _REGISTRY.append(Identity(id, statement, source, tolerance, residual))
        return residual

    return register


def counter(
    id: str, statement: str, *, source: str, exceeds: float
) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register a counter-check: with an assumption broken, the residual must be *large*.

    The decorated function returns the smallest residual. The reported residual is `exceeds` divided
    by it, with tolerance 1, so that a check that cannot detect the broken assumption fails.
    """

    def register(measure: Callable[[], float]) -> Callable[[], float]:
        def residual() -> float:
            measured = measure()
            return exceeds / measured if measured else math.inf

        statement_and_bound = f"{statement}: the residual exceeds {exceeds:g}"
        _REGISTRY.append(Identity(id, statement_and_bound, source, 1.0, residual))
        return measure

    return register


def identities() -> tuple[Identity, ...]:
    """Return all identities, in the order of the papers.

    Example:
        >>> import natgrad.verify
        >>> len(natgrad.verify.identities()) > 50
        True
    """
    return tuple(_REGISTRY)


def check(claim: Identity) -> Outcome:
    """Measure one identity; NaN never holds, and an error counts as NaN and is shown.

    Example:
        >>> check(Identity("half", "1/2 is small", "nowhere", 0.1, lambda: 0.5)).holds
        False
    """
    start = time.perf_counter()
    statement = claim.statement
    try:
        residual = float(claim.residual())
    except Exception as error:  # one broken identity must not hide the others
        residual, statement = math.nan, f"{statement} [{type(error).__name__}: {error}]"
    seconds = time.perf_counter() - start
    holds = residual <= claim.tolerance
    return Outcome(claim.id, statement, residual, claim.tolerance, holds, claim.source, seconds)


def distance(a: Tensor, b: Tensor) -> float:
    """Return ‖a − b‖ / ‖b‖, the relative residual used throughout."""
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


def separable(seed: int, n: int, d: int) -> tuple[Tensor, Tensor]:
    """Return Gaussian inputs `(n, d)` labeled by a hyperplane through the origin."""
    randn = normal(seed)
    x = randn(n, d)
    return x, torch.sign(x @ randn(d))


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def normal(seed: int) -> Callable[..., Tensor]:
    """Return a function that draws standard normal tensors, in double precision, from a seed."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)
