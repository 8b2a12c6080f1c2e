"""Numbers, bounds, verdicts and durations as readable text."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_GLUE = "\N{NO-BREAK SPACE}"
_RELATIONS = {"<=": "≤", ">=": "≥", "<": "<", ">": ">"}


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim: a keyword for the style, a phrase to show, a rank to sort by."""

    kind: str
    words: str
    rank: int


FAILS = Verdict("fails", "FAILS", 0)
HOLDS_AFTER_ALL = Verdict("fails", "FAILS: holds, but is documented as refuted", 0)
REFUTES = Verdict("refutes", "refutes the paper (documented)", 1)
UNJUDGED = Verdict("unjudged", "not judged at this preset", 2)
HOLDS = Verdict("holds", "holds", 3)

_COUNTED = {
    "fails": ("FAILS", "FAIL"),
    "holds": ("holds", "hold"),
    "refutes": ("refutes the paper (documented)", "refute the paper (documented)"),
    "unjudged": ("is not judged at this preset", "are not judged at this preset"),
}


def verdict(holds: bool | None, expected: bool) -> Verdict:
    """Return the verdict on a claim. It fails when `holds` differs from `expected`.

    Example:
        >>> verdict(False, expected=False).words
        'refutes the paper (documented)'
    """
    if holds is None:
        return UNJUDGED
    if holds == expected:
        return HOLDS if holds else REFUTES
    return HOLDS_AFTER_ALL if holds else FAILS


def counts(verdicts: Iterable[Verdict]) -> str:
    """Return how many verdicts there are of each kind, the worst first.

    Example:
        >>> counts([HOLDS, REFUTES, HOLDS])
        '2 hold, 1 refutes the paper (documented)'
        >>> counts([UNJUDGED, FAILS])
        '1 FAILS, 1 is not judged at this preset'
    """
    found = Counter(verdict.kind for verdict in verdicts)
    return ", ".join(
        f"{found[kind]} {one if found[kind] == 1 else many}"
        for kind, (one, many) in _COUNTED.items()
        if found[kind]
    )


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with few digits, and powers of ten as in print.

    Example:
        >>> number(-0.00000123456), number(0.8734561), number(1500000), number(None)
        ('−1.235×10⁻⁶', '0.8735', '1500000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isfinite(value) and value == int(value) and abs(value) < 1e7:
        return str(int(value)).replace("-", "−")
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa.replace("-", "−").replace("inf", "∞")
    if not exponent:
        return mantissa
    return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def measured(claim: dict[str, Any]) -> str:
    """Return the measured number of a claim, with its spread over seeds.

    Example:
        >>> measured({"value": 0.8734, "sd": 0.0123, "n": 5}).replace("\N{NO-BREAK SPACE}", " ")
        '0.8734 ± 0.012, n = 5'
    """
    text = number(claim["value"])
    if claim["sd"] is not None:
        text += f"{_GLUE}±{_GLUE}{number(claim['sd'], 2)}"
    return f"{text}, n{_GLUE}={_GLUE}{claim['n']}" if claim["n"] != 1 else text


def required(claim: dict[str, Any]) -> str:
    """Return the relation and bound of a claim.

    Example:
        >>> required({"relation": "within", "bound": [0.4, 0.6]})
        '0.4 to 0.6'
        >>> required({"relation": "<=", "bound": 1e-9})
        '≤ 1×10⁻⁹'
    """
    bound = claim["bound"]
    if isinstance(bound, list):
        return " to ".join(number(end) for end in bound)
    relation = str(claim["relation"])
    return f"{_RELATIONS.get(relation, relation)} {number(bound)}"


def duration(seconds: float) -> str:
    """Return a duration in readable units.

    Example:
        >>> duration(0.513), duration(42.4), duration(200), duration(7500)
        ('0.51 s', '42 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Return a number of bytes in readable units.

    Example:
        >>> size(830), size(12345), size(2500000)
        ('830 B', '12 kB', '2.5 MB')
    """
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
