"""The table of the atlas: one line per optimizer, parametrization and loss."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from natgrad.experiments.atlas.separators.goals import GOALS, KINDS, NORMS
from natgrad.experiments.atlas.separators.methods import METHODS, Method
from natgrad.lab.arrays import Arrays

Verdict = Literal["reached", "approaching", "undecided"]
REACHED = 0.99
"""Share from which a limit counts as reached."""


@dataclass(frozen=True)
class Line:
    """One cell of the atlas; numbers are medians over the data sets.

    Attributes:
        optimizer: Its name.
        parametrization: "direct" or "diagonal, L = 2".
        loss: "logistic" or "square".
        limit: The limit that a theorem names; None if there is none.
        share: How much of the limit is reached: for a margin, the share of the largest one.
        degrees: Angle to the limit.
        certificate: Largest relative gap of the limit itself.
        proved: The share that the path's own gradient weights prove, without a solver; None for
            limits that are not margins in ℓ1, ℓ2 or ℓ∞.
        law: How 1 − share falls along the last part of the path: "power", like t^{−r}, or
            "exponential", like e^{−rt}. t is its own clock: steps, time, or length of path.
        rate: r.
        interval: 95 % interval of the rate.
        verdict: "reached" (share at least .99), "approaching" (the gap falls: the interval of its
            rate is above zero) or "undecided".
        nearest: The limit of the list with the smallest angle, and that angle.
        source: The theorem.
    """

    optimizer: str
    parametrization: str
    loss: str
    limit: str | None
    share: float | None
    degrees: float | None
    certificate: float | None
    proved: float | None
    law: str | None
    rate: float | None
    interval: tuple[float, float] | None
    verdict: Verdict
    nearest: tuple[str, float] | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def lines(arrays: Arrays) -> list[Line]:
    """Return the table of a computed atlas."""
    kind = KINDS[int(arrays["kind"].max())]
    return [_line(arrays, k, METHODS[name], kind) for k, name in enumerate(METHODS)]


def _line(arrays: Arrays, row: int, method: Method, kind: str) -> Line:
    angles = arrays["angles"][row]
    typical = np.array([_median(column) or math.nan for column in angles.T])
    nearest = None
    if np.isfinite(typical).any():
        best = int(np.nanargmin(typical))
        nearest = (GOALS[best], float(typical[best]))
    name = method.goal(kind)
    where = (method.optimizer, method.parametrization, method.loss)
    column = GOALS.index(name) if name is not None else -1
    share = _median(arrays["shares"][row, :, column]) if name is not None else None
    if name is None or share is None:
        empty = (None,) * 7
        return Line(*where, None, *empty, "undecided", nearest, method.source)
    rate, low, high = (_median(arrays["rates"][row, :, k]) for k in range(3))
    interval = None if low is None or high is None else (low, high)
    proved = None
    if name in NORMS:
        proved = _median(arrays["proved"][row, :, list(NORMS).index(name)])
    return Line(
        *where, name, share, _median(angles[:, column]),
        float(arrays["certificate"][row].max()), proved, method.law(kind), rate, interval,
        _verdict(share, low), nearest, method.source,
    )  # fmt: skip


def _verdict(share: float, low: float | None) -> Verdict:
    if share >= REACHED:
        return "reached"
    return "approaching" if low is not None and low > 0 else "undecided"


def _median(values: Any) -> float | None:
    known = np.asarray(values)[np.isfinite(values)]
    return float(np.median(known)) if known.size else None


HEADS = ("optimizer", "model, loss", "limit", "share", "angle", "proved", "certificate", "rate",
         "verdict", "source")  # fmt: skip
RATES = (
    "A rate r with its 95 % interval: the gap falls like t^{−r}, or like e^{−rt} where it says "
    "exp. t counts steps, or is the time or the length of the path of a flow."
)


def table(config: Any, arrays: Arrays) -> dict[str, Any]:
    """Return the table for the report: heads, rows of words, and a note."""
    return {"heads": HEADS, "rows": [_words(line) for line in lines(arrays)], "note": RATES}


def text(found: list[Line]) -> str:
    """Return the table for a terminal; sources are numbers, explained below it."""
    sources = list(dict.fromkeys(line.source for line in found))
    body = [(*_words(line)[:-1], f"[{sources.index(line.source) + 1}]") for line in found]
    widths = [max(len(row[k]) for row in (HEADS, *body)) for k in range(len(HEADS))]

    def laid_out(row: tuple[str, ...]) -> str:
        return "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))

    legend = [f"[{k}] {source}" for k, source in enumerate(sources, 1)]
    return "\n".join([*(laid_out(row).rstrip() for row in (HEADS, *body)), "", *legend, RATES])


def _words(line: Line) -> tuple[str, ...]:
    model = f"{'direct' if line.parametrization == 'direct' else 'L = 2'}, {line.loss}"
    near = "" if line.nearest is None else f"nearest {line.nearest[0]}"
    angle = line.degrees if line.limit else (line.nearest or ("", None))[1]
    return (
        line.optimizer,
        model,
        line.limit or f"none known; {near}",
        _short(line.share, "{:.4f}"),
        _short(angle, "{:.2f}°"),
        _short(line.proved, "{:.3f}"),
        _short(line.certificate, "{:.0e}"),
        _rate(line),
        line.verdict,
        line.source,
    )


def _rate(line: Line) -> str:
    if line.rate is None or line.interval is None:
        return "–"
    form, exponential = "{:.2f} ({:.2f}, {:.2f})", line.law == "exponential"
    if exponential:  # per step it may be small
        form = "exp {:.3g} ({:.3g}, {:.3g})"
    return form.format(line.rate, *line.interval)


def _short(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
