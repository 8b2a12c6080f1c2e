"""Claims: a statement, the number computed for it, and the bound that the number must meet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from natgrad._checks import choice, describe, instance
from natgrad.errors import DtypeError, InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Claim", "Relation", "finite", "over_seeds"]

Relation = Literal["<=", ">=", "<", ">", "within"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement about a figure, with its number.

    Attributes:
        id: Short name, unique within the figure.
        statement: The sentence.
        source: Where the paper states it, or "natgrad" for our own findings.
        value: The computed number; NaN if there is none.
        relation: How `value` relates to `bound` when the claim holds.
        bound: A number; for "within", the pair (low, high).
        sd: Standard deviation over seeds.
        n: Number of seeds behind `value`.
        presets: Presets at which the claim is judged; at others the sizes are too small to tell.
        expected: False for a statement of the paper that our numbers refute (documented).

    Example:
        >>> claim = Claim(
        ...     id="accuracy", statement="depth 2 reaches 85 %", source="[KMH21] Figure 4",
        ...     value=0.87, relation=">=", bound=0.85,
        ... )
        >>> claim.holds("paper"), claim.holds("quick")
        (True, None)
    """

    id: str
    statement: str
    source: str
    value: float
    relation: Relation
    bound: float | tuple[float, float]
    sd: float | None = None
    n: int = 1
    presets: tuple[str, ...] = ("paper",)
    expected: bool = True

    def __post_init__(self) -> None:
        for name in ("id", "statement", "source"):
            instance(getattr(self, name), f"{name} of a claim", str)
        choice(self.relation, f"relation of claim {self.id}", get_args(Relation))
        bounds = self.bound if isinstance(self.bound, tuple) else (self.bound,)
        for value in (self.value, *bounds, *(() if self.sd is None else (self.sd,))):
            _require_real(value, self.id)
        presets = instance(self.presets, f"presets of claim {self.id}", tuple)
        if not all(isinstance(preset, str) for preset in presets):
            raise DtypeError(f"claim {self.id}: presets must be names, not {describe(presets)}.")
        if (self.relation == "within") != isinstance(self.bound, tuple):
            raise InvalidInputError(
                f"claim {self.id}: 'within' takes a pair (low, high) and the other relations one "
                f"number, but {self.relation!r} has the bound {self.bound!r}."
            )

    def holds(self, preset: str) -> bool | None:
        """Return whether the number satisfies the bound; None if the preset does not judge it."""
        return self.satisfied if preset in self.presets else None

    @property
    def satisfied(self) -> bool:
        """Return whether the number satisfies the bound, at any preset; NaN never does."""
        if math.isnan(self.value):
            return False
        if isinstance(self.bound, tuple):
            return self.bound[0] <= self.value <= self.bound[1]
        return {
            "<=": self.value <= self.bound,
            ">=": self.value >= self.bound,
            "<": self.value < self.bound,
            ">": self.value > self.bound,
        }[self.relation]

    def as_expected(self, preset: str) -> bool:
        """Return whether the verdict is the expected one; True if the preset does not judge it."""
        return self.holds(preset) in (None, self.expected)

    def to_json(self, preset: str) -> dict[str, Any]:
        """Return the entry of `report.json`; numbers that JSON cannot hold become null."""
        bound = list(self.bound) if isinstance(self.bound, tuple) else self.bound
        return {
            "id": self.id,
            "statement": self.statement,
            "value": finite(self.value),
            "sd": finite(self.sd),
            "n": self.n,
            "relation": self.relation,
            "bound": bound,
            "holds": self.holds(preset),
            "expected": self.expected,
            "source": self.source,
        }


def _require_real(value: Any, claim: str) -> None:
    """Raise an error unless a value is one real number; NaN and infinities count as numbers."""
    try:
        if not isinstance(value, str | bytes):
            float(value)
            return
    except (TypeError, ValueError, OverflowError, RuntimeError, NotImplementedError):
        pass
    raise DtypeError(f"claim {claim}: expected a number, but got {describe(value)}.")


def over_seeds(
    values: "Sequence[float] | npt.NDArray[Any]",
    statistic: Literal["mean", "median", "min", "max"] = "mean",
) -> dict[str, Any]:
    """Return `value`, `sd` and `n` of one number per seed, as arguments for `Claim`.

    Example:
        >>> over_seeds([1.0, 2.0, 3.0])
        {'value': 2.0, 'sd': 1.0, 'n': 3}
    """
    import numpy as np

    choice(statistic, "statistic", ("mean", "median", "min", "max"))
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        array = np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise DtypeError(f"expected one number per seed, but got {describe(values)}.") from error
    if array.size == 0:
        return {"value": math.nan, "sd": None, "n": 0}
    value = float(getattr(np, statistic)(array))
    sd = float(array.std(ddof=1)) if array.size > 1 else None
    return {"value": value, "sd": sd, "n": int(array.size)}


def finite(value: float | None) -> float | None:
    """Return the number; None for NaN and infinities.

    Example:
        >>> finite(0.5), finite(math.nan)
        (0.5, None)
    """
    return value if value is not None and math.isfinite(value) else None
