"""The result of a comparison: separators by method, and sentences about them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.experiments.compare._tables import Loaded, load
from natgrad.experiments.compare.config import Compare
from natgrad.lab.arrays import Arrays

__all__ = ["KINDS", "Comparison", "comparison", "notes"]

KINDS = ("separable", "quasi-separable", "not separable")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Separators of one table, compared.

    Attributes:
        kind: "separable", "quasi-separable" or "not separable".
        rank: Rank of the inputs, including the intercept.
        rank_deficient: Whether the rank is below the number of columns.
        methods: Names of the methods.
        accuracy: Held-out accuracy by method; NaN where the method has no answer.
        interval: Its 95 % confidence interval.
        spread: Its standard deviation over folds; NaN with a test table.
        margin: min yₙ xₙ·β / ‖β‖ of fits to all rows.
        features_used: Number of features that carry 99 % of ‖β‖².
        angles: Degrees between the separators, shape `(methods, methods)`.
        coefficients: β/‖β‖ of the fits to all rows, shape `(methods, features)`.
        features: Names of the columns of `coefficients`.
        notes: Sentences: the kind of data, what was left out, what the numbers mean.
    """

    kind: str
    rank: int
    rank_deficient: bool
    methods: tuple[str, ...]
    accuracy: dict[str, float]
    interval: dict[str, tuple[float, float]]
    spread: dict[str, float]
    margin: dict[str, float]
    features_used: dict[str, float]
    angles: npt.NDArray[np.float64]
    coefficients: npt.NDArray[np.float64]
    features: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return a readable summary: sentences and a table."""
        reference = self.methods[0]
        head = f"{'':<15} accuracy (95 % interval)     margin    features   angle to {reference}"
        rows = []
        for k, name in enumerate(self.methods):
            if np.isnan(self.accuracy[name]):
                rows.append(f"{name:<15} none: the data are {self.kind}")
                continue
            low, high = self.interval[name]
            text = f"{100 * self.accuracy[name]:5.1f} % ({100 * low:.1f}–{100 * high:.1f})"
            rows.append(
                f"{name:<15} {text:<25} {self.margin[name]:>9.3g} {self.features_used[name]:>8.0f}"
                f" {self.angles[k, 0]:>9.1f}°"
            )
        return [*self.notes, "", head, *rows]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, numbers by method; NaN becomes None."""
        by_method = {
            name: {
                "accuracy": _known(self.accuracy[name]),
                "interval": [_known(end) for end in self.interval[name]],
                "spread": _known(self.spread[name]),
                "margin": _known(self.margin[name]),
                "features_used": _known(self.features_used[name]),
                "angles": [_known(angle) for angle in self.angles[k].tolist()],
                "coefficients": [_known(value) for value in self.coefficients[k].tolist()],
            }
            for k, name in enumerate(self.methods)
        }
        return {
            "kind": self.kind,
            "rank": self.rank,
            "rank_deficient": self.rank_deficient,
            "features": list(self.features),
            "methods": by_method,
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def comparison(config: Compare, arrays: Arrays, given: Loaded | None = None) -> Comparison:
    """Return the comparison in an experiment's arrays; `given` are its tables, if not in files."""
    methods = tuple(arrays.coordinates["method"])

    def by_method(values: npt.ArrayLike) -> dict[str, float]:
        return dict(zip(methods, np.asarray(values, dtype=np.float64).tolist(), strict=True))

    low, high = arrays["accuracy_low"].tolist(), arrays["accuracy_high"].tolist()
    spread = np.full(len(methods), np.nan)
    if "fold_accuracy" in arrays:
        spread = arrays["fold_accuracy"].std(axis=1, ddof=1)
    features = tuple(arrays.coordinates["feature"])
    return Comparison(
        kind=KINDS[int(arrays["kind"])],
        rank=int(arrays["rank"]),
        rank_deficient=int(arrays["rank"]) < len(features),
        methods=methods,
        accuracy=by_method(arrays["accuracy"]),
        interval=dict(zip(methods, zip(low, high, strict=True), strict=True)),
        spread=by_method(spread),
        margin=by_method(arrays["margin"]),
        features_used=by_method(arrays["features_used"]),
        angles=arrays["angle"],
        coefficients=arrays["coefficients"],
        features=features,
        notes=tuple(notes(config, arrays, given)),
    )


def notes(config: Compare, arrays: Arrays, given: Loaded | None = None) -> Sequence[str]:
    """Return sentences: the kind of data, what was left out, what the numbers mean."""
    loaded = given or load(config.data)
    first, second = loaded.train.classes
    folds = "fold_accuracy" in arrays
    split = f"{config.folds}-fold cross-validation" if folds else "the test table"
    return [
        _kind_sentence(arrays, config.intercept),
        f"{len(loaded.train.y)} rows, {len(loaded.train.names)} features; {second!r} against "
        f"{first!r}.",
        *loaded.notes,
        *_early_sentences(config, arrays),
        f"Accuracy is from {split} over {int(arrays['judged_rows'])} rows, with 95 % Wilson "
        f"intervals{', which treat folds as independent' if folds else ''}.",
        f"EGD is gradient flow to t = {config.until:g} on the mean loss from w₁ = 0 and the other "
        f"factors {config.scale:g}; NGD is natural gradient flow to t = {config.natural_until:g}, "
        "with the Fisher averaged over the rows fitted, or (population) over all available inputs, "
        "including held-out, test and unlabeled rows, without their labels.",
        "Margins and angles are those of fits to all rows, "
        f"{'standardized' if config.standardize else 'not standardized'}"
        f"{', with the intercept as a feature' if config.intercept else ''}; the limit of NGD "
        "is a vertex of a linear program, or the optimum of the loss where that is finite.",
    ]


def _early_sentences(config: Compare, arrays: Arrays) -> list[str]:
    """Return a sentence for each method with a flow that ended early."""
    sentences = []
    for name, ends in zip(arrays.coordinates["method"], arrays["ended_early"], strict=True):
        until = config.until if name.startswith("EGD") else config.natural_until
        parts = zip(arrays.coordinates["part"], ends.tolist(), strict=True)
        where = [f"t = {end:.3g} ({part})" for part, end in parts if not math.isnan(end)]
        if where:
            sentences.append(
                f"The flow of {name} ended early, at {', '.join(where)} instead of t = {until:g}; "
                "its numbers are those of the last state reached."
            )
    return sentences


def _kind_sentence(arrays: Arrays, intercept: bool) -> str:
    """Return the kind of data in words."""
    kind, rank = KINDS[int(arrays["kind"])], int(arrays["rank"])
    size = len(arrays.coordinates["feature"])
    with_it = " with an intercept" if intercept else " through the origin"
    sentence = f"The data are {kind}{with_it}"
    if intercept and arrays["kind_without"] != arrays["kind"]:
        sentence += f", and {KINDS[int(arrays['kind_without'])]} without"
    if rank < size:
        return f"{sentence}; they are rank-deficient: rank {rank}, {size} columns."
    return f"{sentence}; they have full rank {rank}."
