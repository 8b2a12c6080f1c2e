"""The result of a race: JSON with every trial, and a page in Markdown."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from natgrad.experiments.race import config as field
from natgrad.experiments.race.claims import against, final_ratio
from natgrad.experiments.race.problems import ABOUT, DEVELOPED
from natgrad.lab._store.folder import plain
from natgrad.lab.arrays import Arrays


def record(report: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the result in a form that JSON can hold.

    Args:
        report: The report of the merged run.
        arrays: Its arrays.
    """
    kept = ("preset", "options", "environment", "revision", "parts", "claims", "departures")
    found: dict[str, Any] = plain(
        {
            "date": _date(np.nanmin(arrays["begun"])),
            **{key: report[key] for key in kept},
            "reference_product_seconds": float(np.nanmedian(arrays["product"])),
            "developed_on": list(DEVELOPED),
            "problems": {
                name: {
                    "about": ABOUT[name],
                    "target": arrays["target"][p],
                    "budget": arrays["budget"][p],
                    "final_ratio": final_ratio(arrays, name),
                    "best_ratio": final_ratio(arrays, name, "best"),
                    "test_ratio": final_ratio(arrays, name, "test"),
                    "entrants": _entrants(arrays, p, name),
                }
                for p, name in enumerate(arrays.coordinates["problem"])
            },
        }
    )
    return found


def _entrants(arrays: Arrays, p: int, problem: str) -> dict[str, Any]:
    """Return the finals of each entrant, and the trials of each contestant."""
    found = {}
    contestants = arrays.coordinates["contestant"]
    for e, who in enumerate(arrays.coordinates["entrant"]):
        owner = field.TUNED if who == field.DEFAULT else who
        c = contestants.index(owner)
        if not arrays["tuned"][p, c]:
            continue
        ratio = against(arrays, problem, who)
        trials = [_trial(arrays, p, c, k) for k in range(len(arrays.coordinates["trial"]))]
        chosen = 0 if who == field.DEFAULT else int(arrays["chosen"][p, c])
        seeds = range(len(arrays.coordinates["seed"])) if arrays["raced"][p, e] else ()
        keys = ("value", "low", "high", "bound")
        found[who] = {
            "settings": trials[chosen]["settings"],
            "ratio": None if ratio is None else {key: getattr(ratio, key) for key in keys},
            "finals": [_final(arrays, p, e, s) for s in seeds],
            "tuned": trials[chosen] if who != field.DEFAULT else None,
            "trials": trials if who != field.DEFAULT else [],
        }
    return found


def _trial(arrays: Arrays, p: int, c: int, k: int) -> dict[str, Any]:
    values = arrays["trial_settings"][p, c, k].tolist()
    named = dict(zip(arrays.coordinates["setting"], values, strict=True))
    return {
        "settings": {
            name: int(value) if name in ("batch", "head") else value
            for name, value in named.items()
            if not math.isnan(value)
        },
        "best_of_short_run": arrays["trial_best"][p, c, k],
        "seconds_to_target": arrays["whole_seconds"][p, c, k],
        "best_score": arrays["whole_best"][p, c, k],
        "final_score": arrays["whole_final"][p, c, k],
        "date": _date(arrays["trial_begun"][p, c, k]),
    }


def _final(arrays: Arrays, p: int, e: int, s: int) -> dict[str, Any]:
    seconds, score, steps = (arrays[name][p, e, s] for name in ("seconds", "score", "steps"))
    seen = np.isfinite(seconds)
    curve = {
        "seconds": seconds[seen].round(5),
        "score": score[seen],
        "steps": steps[seen].astype(int),
    }
    return {
        "seed": arrays.coordinates["seed"][s],
        "seconds_to_target": arrays["time_to_target"][p, e, s],
        "steps_to_target": arrays["steps_to_target"][p, e, s],
        "step_seconds": seconds[seen][-1] / max(steps[seen][-1], 1),
        "best_score": arrays["best"][p, e, s],
        "final_score": arrays["final"][p, e, s],
        "test_score": arrays["test"][p, e, s],
        "test_error": arrays["test_error"][p, e, s],
        "state_bytes": arrays["bytes"][p, e, s],
        "date": _date(arrays["begun"][p, e, s]),
        "curve": curve,
    }


def _date(seconds: float) -> str | None:
    if not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(float(seconds), UTC).isoformat(timespec="seconds")


def page(found: Mapping[str, Any]) -> str:
    """Return the record as Markdown: a table for each problem, the targets, and where NGD lost."""
    where = found["environment"]
    lines = [
        f"Raced {found['date'][:10]} on {where['cpu']}, one thread, torch {where['torch']}; the "
        f"reference product took {1e3 * found['reference_product_seconds']:.1f} ms. NGD was "
        f"developed on {', '.join(found['developed_on'])}; the other problems are only reported.",
        "",
    ]
    for name, problem in found["problems"].items():
        revision = (found["parts"][name]["revision"] or "unknown")[:12]
        lines += [
            f"**{name}**: {problem['about']}. Target {problem['target']:.4g}, budget "
            f"{problem['budget']:g} s, revision {revision}. NGD's loss over the best peer's: "
            f"{_number(problem['final_ratio'])} at the end, {_number(problem['best_ratio'])} at "
            f"the best point, {_number(problem['test_ratio'])} on test data.",
            "",
            "| | seconds to target | × NGD's | over seeds | steps | ms per step | final | best | "
            "test | kB of state | settings |",
            "|-|-|-|-|-|-|-|-|-|-|-|",
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
    """Return a row of the table; peers outside of the finals have one whole run of the tuning."""
    finals, ratio = entrant["finals"], entrant["ratio"]
    settings = ", ".join(f"{name} {value:g}" for name, value in entrant["settings"].items())
    if not finals:
        tuned = entrant["tuned"]
        numbers = [_number(tuned[key]) for key in ("final_score", "best_score")]
        seconds = f"({_number(tuned['seconds_to_target'])})"
        cells = [who, seconds, "–", "–", "–", "–", *(f"({n})" for n in numbers), "–", "–"]
        return f"| {' | '.join([*cells, settings])} |"
    times = [final["seconds_to_target"] for final in finals]
    spread = value = "–"
    if ratio is not None and ratio["value"] is not None:
        spread = f"{ratio['low']:.2f}–{ratio['high']:.2f}"
        value = f"{ratio['bound']} {ratio['value']:.2f}".strip()
    state = [final["state_bytes"] for final in finals]
    cells = [
        who,
        ", ".join(_number(time) for time in times),
        value,
        spread,
        _median(final["steps_to_target"] for final in finals),
        _median(1e3 * final["step_seconds"] for final in finals),
        *(
            _median(final[key] for final in finals)
            for key in ("final_score", "best_score", "test_score")
        ),
        "–" if state[0] is None else f"{state[0] / 1e3:.0f}",
        settings,
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _median(values: Any) -> str:
    """Return the median of numbers; None counts as larger than any number."""
    middle = float(np.median([math.inf if value is None else value for value in values]))
    return f"{middle:.3g}" if math.isfinite(middle) else "–"
