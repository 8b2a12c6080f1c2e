"""The result of a race: JSON with every trial, and a page in Markdown."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from natgrad.experiments.race import config as field
from natgrad.experiments.race.claims import against
from natgrad.experiments.race.problems import ABOUT
from natgrad.lab._store.folder import plain
from natgrad.lab.arrays import Arrays


def record(report: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the result in a form that JSON can hold.

    Args:
        report: The report of the run.
        arrays: Its arrays.
    """
    begun = arrays["begun"]
    kept = ("preset", "options", "environment", "revision", "claims", "departures", "cells")
    found: dict[str, Any] = plain(
        {
            "date": _date(np.nanmin(begun)),
            **{key: report[key] for key in kept},
            "reference_product_seconds": float(np.nanmedian(arrays["product"])),
            "problems": {
                name: {
                    "about": ABOUT[name],
                    "target": arrays["target"][p],
                    "budget": arrays["budget"][p],
                    "entrants": _entrants(arrays, p, name),
                }
                for p, name in enumerate(arrays.coordinates["problem"])
            },
        }
    )
    return found


def _entrants(arrays: Arrays, p: int, problem: str) -> dict[str, Any]:
    found = {}
    for e, who in enumerate(arrays.coordinates["entrant"]):
        if not arrays["raced"][p, e]:
            continue
        owner = field.DEFAULT if who == field.UNTUNED else who
        c, chosen = arrays.coordinates["contestant"].index(owner), int(arrays["chosen"][p, e])
        ratio = against(arrays, problem, who)
        assert ratio is not None
        trials = [_trial(arrays, p, c, k) for k in range(len(arrays.coordinates["trial"]))]
        found[who] = {
            "settings": trials[chosen]["settings"],
            "ratio": {key: getattr(ratio, key) for key in ("value", "low", "high", "bound")},
            "finals": [_final(arrays, p, e, s) for s in range(len(arrays.coordinates["seed"]))],
            "trials": trials if who != field.UNTUNED else [],
        }
    return found


def _trial(arrays: Arrays, p: int, c: int, k: int) -> dict[str, Any]:
    values = arrays["trial_settings"][p, c, k].tolist()
    named = dict(zip(arrays.coordinates["setting"], values, strict=True))
    return {
        "settings": {
            name: int(value) if name == "batch" else value
            for name, value in named.items()
            if not math.isnan(value)
        },
        "seconds_to_target": arrays["trial_seconds"][p, c, k],
        "best_score": arrays["trial_best"][p, c, k],
        "date": _date(arrays["trial_begun"][p, c, k]),
    }


def _final(arrays: Arrays, p: int, e: int, s: int) -> dict[str, Any]:
    seen = ~np.isnan(arrays["seconds"][p, e, s])
    curve = {name: arrays[name][p, e, s][seen] for name in ("seconds", "score", "steps")}
    return {
        "seed": arrays.coordinates["seed"][s],
        "seconds_to_target": arrays["time_to_target"][p, e, s],
        "steps_to_target": arrays["steps_to_target"][p, e, s],
        "step_seconds": curve["seconds"][-1] / max(curve["steps"][-1], 1),
        "test_score": arrays["test"][p, e, s],
        "test_error": arrays["test_error"][p, e, s],
        "date": _date(arrays["begun"][p, e, s]),
        "curve": curve,
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).isoformat(timespec="seconds")


def page(found: Mapping[str, Any]) -> str:
    """Return the record as Markdown: a table for each problem, the targets, and where NGD lost."""
    where = found["environment"]
    lines = [
        f"Raced {found['date'][:10]} on {where['cpu']}, one thread, torch {where['torch']}, "
        f"revision {(found['revision'] or 'unknown')[:12]}; the reference product took "
        f"{1e3 * found['reference_product_seconds']:.1f} ms.",
        "",
    ]
    for name, problem in found["problems"].items():
        lines += [
            f"**{name}**: {problem['about']}. Target {problem['target']:g}, budget "
            f"{problem['budget']:g} s.",
            "",
            "| | seconds to target | × NGD's | over seeds | steps | ms per step | test | "
            "settings |",
            "|-|-|-|-|-|-|-|-|",
            *(_row(who, entrant) for who, entrant in problem["entrants"].items()),
            "",
        ]
    lines += ["**Targets**", ""]
    verdicts = {True: "met", False: "missed", None: "not judged at this size"}
    for claim in found["claims"]:
        value = "–" if claim["value"] is None else f"{claim['value']:.2f}"
        verdict = verdicts[claim["holds"]]
        lines.append(f"- {claim['statement']}: {value}, wanted {claim['bound']:g}; {verdict}.")
    lines += ["", "**Where NGD loses, and what was left out**", ""]
    lines += [f"- {sentence}" for sentence in found["departures"]] or ["- Nowhere; nothing."]
    return "\n".join(lines) + "\n"


def _row(who: str, entrant: Mapping[str, Any]) -> str:
    finals, ratio = entrant["finals"], entrant["ratio"]
    times = [final["seconds_to_target"] for final in finals]
    settings = ", ".join(f"{name} {value:g}" for name, value in entrant["settings"].items())
    spread = "–" if ratio["low"] is None else f"{ratio['low']:.2f}–{ratio['high']:.2f}"
    value = "–" if ratio["value"] is None else f"{ratio['bound']} {ratio['value']:.2f}".strip()
    cells = [
        who,
        ", ".join("–" if time is None else f"{time:.3g}" for time in times),
        value,
        spread,
        _median(final["steps_to_target"] for final in finals),
        _median(1e3 * final["step_seconds"] for final in finals),
        _median(final["test_score"] for final in finals),
        settings,
    ]
    return f"| {' | '.join(cells)} |"


def _median(values: Any) -> str:
    """Return the median of numbers; None counts as larger than any number."""
    middle = float(np.median([math.inf if value is None else value for value in values]))
    return f"{middle:.3g}" if math.isfinite(middle) else "–"
