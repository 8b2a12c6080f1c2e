"""The result of a comparison: separators by method, and sentences about them."""

import html
import math
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from natgrad._checks import choice
from natgrad.data.tables import Step
from natgrad.experiments.compare._tables import Loaded, load
from natgrad.experiments.compare._verdict import verdict, where
from natgrad.experiments.compare.config import KINDS, Compare
from natgrad.lab.arrays import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["KINDS", "Comparison", "Stopped", "comparison", "notes"]

_WIDTH = 100  # of printed lines
_DRAWING = threading.Lock()  # because the style of matplotlib is shared by all threads

Panel = Literal["separators", "coefficients", "stopping", "accuracy", "angles", "calibration"]


@dataclass(frozen=True)
class Stopped:
    """A flow stopped early, or a penalty with its strength, chosen on held-out rows.

    Attributes:
        at: The time, or 1/λ for a penalty, that all folds choose.
        accuracy: Held-out accuracy, each fold judged where the other folds would stop.
        interval: Its 95 % confidence interval.
        log_loss: Held-out log loss, in nats per row.
        log_loss_at_end: The same at the end of the path.
        calibration_error: Mean gap between probabilities and frequencies.

    Example:
        >>> Stopped(12.0, 0.9, (0.85, 0.94), 0.3, 0.4, 0.02).at
        12.0
    """

    at: float
    accuracy: float
    interval: tuple[float, float]
    log_loss: float
    log_loss_at_end: float
    calibration_error: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Separators of one table, compared.

    Attributes:
        kind: "separable", "quasi-separable" or "not separable".
        rank: Rank of the inputs, including the intercept.
        rank_deficient: Whether the rank is below the number of columns.
        methods: Names of the methods.
        accuracy: Held-out accuracy by method; NaN where the method has no answer.
        interval: Its 95 % confidence interval.
        spread: Its standard deviation over folds; NaN with test rows.
        margin: min yₙ xₙ·β / ‖β‖ of fits to all rows; with several classes, the smallest lead of
            the right class.
        features_used: Number of features that carry 99 % of ‖β‖².
        angles: Degrees between the separators, shape `(methods, methods)`.
        coefficients: β/‖β‖ of the fits to all rows, shape `(methods, features)`, or `(methods,
            classes, features)` with more than two classes.
        features: Names of the columns of `coefficients`.
        notes: Sentences: the kind of data, what was left out, what the numbers mean.
        verdict: Sentences in plain words: what the data are, what is best, what to try.
        steps: What was done to the data, and how to undo it.
        classes: Labels of the classes.
        stopped: Flows stopped early, and penalties, by method.
        balanced_accuracy: Mean over classes of the share of their rows that is right, by method.
        baseline: Accuracy of always answering the most common class.
        ceiling: Best accuracy of any function of the features on these rows; below 1 if rows
            with equal features have different labels.
        arrays: Everything that was computed, by name.
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
    verdict: tuple[str, ...]
    steps: tuple[Step, ...]
    classes: tuple[str, ...]
    stopped: dict[str, Stopped]
    balanced_accuracy: dict[str, float]
    baseline: float
    ceiling: float
    arrays: Arrays

    def lines(self) -> list[str]:
        """Return a readable summary: the verdict, tables, what was done to the data, notes."""
        head, *rows = self._table()
        first = f"{head[0]:<24} {head[1]:<21}" + "".join(f"{cell:>10}" for cell in head[2:])
        table = [
            f"{row[0]:<24} {row[1]:<21}" + "".join(f"{cell:>10}" for cell in row[2:])
            for row in rows
        ]
        done = [f"  {step}" for step in self.steps] or ["  nothing"]
        return [
            *(f"• {sentence}" for sentence in self.verdict),
            "",
            first.rstrip(),
            *(line.rstrip() for line in table),
            "",
            "What was done to the data:",
            *done,
            "",
            *self.notes,
        ]

    def _table(self) -> list[tuple[str, ...]]:
        """Return a header and a row for each method at its end, then for each stopped one."""
        head = ("", "accuracy (95 %)", "log loss", "margin", "features", "angle")
        rows: list[tuple[str, ...]] = [head]
        for k, name in enumerate(self.methods):
            if np.isnan(self.accuracy[name]):
                rows.append((name, f"none: {self.kind}", "", "", "", ""))
                continue
            path = self.stopped.get(name)
            rows.append(
                (
                    name,
                    _share(self.accuracy[name], self.interval[name]),
                    "" if path is None else f"{path.log_loss_at_end:.3g}",
                    f"{self.margin[name]:.3g}",
                    f"{self.features_used[name]:.0f}",
                    f"{self.angles[k, 0]:.1f}°",
                )
            )
        rows.append(("stopped or penalized:", *[""] * 5))
        for name, path in self.stopped.items():
            at = f"{name}, {where(name, path.at)}"
            rows.append(
                (at, _share(path.accuracy, path.interval), f"{path.log_loss:.3g}", "", "", "")
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, numbers by method; NaN becomes None."""
        by_method = {
            name: {
                "accuracy": _known(self.accuracy[name]),
                "interval": [_known(end) for end in self.interval[name]],
                "spread": _known(self.spread[name]),
                "margin": _known(self.margin[name]),
                "features_used": _known(self.features_used[name]),
                "balanced_accuracy": _known(self.balanced_accuracy[name]),
                "angles": [_known(angle) for angle in self.angles[k].tolist()],
                "coefficients": _plain(self.coefficients[k].tolist()),
            }
            for k, name in enumerate(self.methods)
        }
        return {
            "verdict": list(self.verdict),
            "kind": self.kind,
            "rank": self.rank,
            "rank_deficient": self.rank_deficient,
            "classes": list(self.classes),
            "features": list(self.features),
            "steps": [asdict(step) for step in self.steps],
            "baseline": self.baseline,
            "ceiling": self.ceiling,
            "methods": by_method,
            "stopped": {
                name: {key: _plain(value) for key, value in asdict(one).items()}
                for name, one in self.stopped.items()
            },
        }

    def plot(self, ax: "Axes | None" = None, *, panel: Panel = "separators") -> "Axes":
        """Draw one panel of the picture, and return its axes.

        Args:
            ax: Where to draw; by default in a new figure of pyplot.
            panel: "separators": the rows in the two most telling directions, with every separator;
                "coefficients": side by side, for the features with the largest; "stopping":
                accuracy along each path with the stopping point; "accuracy" with intervals;
                "angles" between separators; "calibration": how often predictions are right,
                against their probability.

        Raises:
            InvalidInputError: If there is no such panel.
        """
        from natgrad.experiments.compare.draw import PANELS

        draw = PANELS[choice(panel, "panel", get_args(Panel))]
        if ax is None:
            import matplotlib.pyplot

            ax = matplotlib.pyplot.subplots(layout="constrained")[1]
        draw(ax, self.arrays)
        return ax

    def figure(self) -> "Figure":
        """Return the whole picture as a figure of matplotlib, in the style of the reports."""
        from natgrad.experiments.compare.draw import picture
        from natgrad.lab.figures import style

        with _DRAWING, style():
            return picture(self.arrays)

    def __str__(self) -> str:
        return "\n".join(
            textwrap.fill(line, _WIDTH, subsequent_indent="  ") if len(line) > _WIDTH else line
            for line in self.lines()
        )

    def __repr__(self) -> str:
        """Return the summary."""
        return str(self)

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        return "".join(
            [
                _list(self.verdict),
                _html_table(head, rows),
                "<details><summary>What was done to the data</summary>",
                _html_table(
                    ("column", "done", "undo"),
                    [(step.column, step.done, step.undo) for step in self.steps],
                ),
                "</details><details><summary>Notes</summary>",
                _list(self.notes),
                "</details>",
            ]
        )


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in sentences) + "</ul>"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _share(share: float, interval: tuple[float, float]) -> str:
    return f"{100 * share:5.1f} % ({100 * interval[0]:.1f}–{100 * interval[1]:.1f})"


def _plain(value: Any) -> Any:
    """Return nested lists of numbers with None for NaN."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _known(value)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def comparison(config: Compare, arrays: Arrays, given: Loaded | None = None) -> Comparison:
    """Return the comparison in an experiment's arrays; `given` are its tables, if not in files."""
    loaded, kind = given or load(config.data, config.how), KINDS[int(arrays["kind"])]
    methods = tuple(arrays.coordinates["method"])

    def by_method(values: npt.ArrayLike) -> dict[str, float]:
        return dict(zip(methods, np.asarray(values, dtype=np.float64).tolist(), strict=True))

    low, high = arrays["accuracy_low"].tolist(), arrays["accuracy_high"].tolist()
    spread = np.full(len(methods), np.nan)
    if "fold_accuracy" in arrays:
        spread = arrays["fold_accuracy"].std(axis=1, ddof=1)
    features = tuple(arrays.coordinates["feature"])
    return Comparison(
        kind=kind,
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
        verdict=tuple(verdict(config, arrays, loaded, kind)),
        steps=loaded.train.steps,
        classes=loaded.train.classes,
        stopped=_stopped(arrays),
        balanced_accuracy=by_method(arrays["balanced_accuracy"]),
        baseline=float(arrays["baseline"]),
        ceiling=float(arrays["twin_ceiling"]),
        arrays=arrays,
    )


def _stopped(arrays: Arrays) -> dict[str, Stopped]:
    out = {}
    for k, name in enumerate(arrays.coordinates["path"]):
        low, high = (float(arrays[f"stop_accuracy_{end}"][k]) for end in ("low", "high"))
        out[name] = Stopped(
            at=float(arrays["path_dial"][k, arrays["stop_step"][k]]),
            accuracy=float(arrays["stop_accuracy"][k]),
            interval=(low, high),
            log_loss=float(arrays["stop_loss"][k]),
            log_loss_at_end=float(arrays["end_loss"][k]),
            calibration_error=float(arrays["calibration_error"][k, 0]),
        )
    return out


def notes(config: Compare, arrays: Arrays, given: Loaded | None = None) -> Sequence[str]:
    """Return sentences: the kind of data, what was left out, what the numbers mean."""
    loaded = given or load(config.data, config.how)
    classes = loaded.train.classes
    folds = "fold_accuracy" in arrays
    split = f"{config.folds}-fold cross-validation" if folds else "the test table"
    if config.held_out is not None:
        split = f"a held-out share of {config.held_out:g}"
    against = f"{classes[1]!r} against {classes[0]!r}"
    if len(classes) > 2:
        against = (
            f"{len(classes)} classes: joint max margins, and for the other methods one separator "
            "for each class against the rest"
        )
    return [
        _kind_sentence(arrays, config.intercept, len(classes)),
        f"{len(loaded.train.labels)} rows, {len(loaded.train.names)} features; {against}.",
        *loaded.notes,
        *_early_sentences(config, arrays),
        f"Accuracy is from {split} over {int(arrays['judged_rows'])} rows, with 95 % Wilson "
        f"intervals{', which treat folds as independent' if folds else ''}. Stopping times and "
        "penalties λ have the lowest log loss on "
        f"{'other folds than the one judged' if folds else 'folds of the training rows'}.",
        *_weight_sentences(config),
        f"EGD is gradient flow to t = {config.until:g} on the mean loss from w₁ = 0 and the other "
        f"factors {config.scale:g}; NGD is natural gradient flow to t = {config.natural_until:g}, "
        "with the Fisher averaged over the rows fitted, or (population) over all available inputs, "
        "including held-out, test and unlabeled rows, without their labels. Penalties are λ‖β‖²/2 "
        "and λ‖β‖₁ on the mean loss, without the intercept.",
        f"Margins and angles (to {arrays.coordinates['method'][0]}) are those of fits to all rows, "
        f"{'standardized' if config.standardize else 'not standardized'}"
        f"{', with the intercept as a feature' if config.intercept else ''}; the limit of NGD "
        "is a vertex of a linear program, or the optimum of the loss where that is finite.",
    ]


def _weight_sentences(config: Compare) -> list[str]:
    if config.class_weight == "none":
        return []
    return [
        "Classes count equally: rows of rarer classes are repeated in all fits but the max "
        "margins, which do not depend on weights, and the verdict is by balanced accuracy."
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


def _kind_sentence(arrays: Arrays, intercept: bool, classes: int) -> str:
    """Return the kind of data in words."""
    kind, rank = KINDS[int(arrays["kind"])], int(arrays["rank"])
    size = len(arrays.coordinates["feature"])
    with_it = " with an intercept" if intercept else " through the origin"
    sentence = f"The data are {kind}{with_it}"
    if intercept and classes == 2 and arrays["kind_without"] != arrays["kind"]:
        sentence += f", and {KINDS[int(arrays['kind_without'])]} without"
    if rank < size:
        return f"{sentence}; they are rank-deficient: rank {rank}, {size} columns."
    return f"{sentence}; they have full rank {rank}."
