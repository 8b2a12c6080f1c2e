"""The targets of NGD, and sentences on where it missed them and why."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.race import config as field
from natgrad.experiments.race.outcomes import Ratio, ratio
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim


def against(arrays: Arrays, problem: str, who: str, ours: str = field.DEFAULT) -> Ratio | None:
    """Return an entrant's seconds to the target over NGD's; None if it did not race.

    Args:
        arrays: The result of a race.
        problem: The problem's name.
        who: The entrant.
        ours: Which NGD it is compared with.
    """
    names, entrants = arrays.coordinates["problem"], arrays.coordinates["entrant"]
    if problem not in names or who not in entrants:
        return None
    p, e, own = names.index(problem), entrants.index(who), entrants.index(ours)
    if not arrays["raced"][p, e]:
        return None
    seconds = arrays["time_to_target"][p]
    return ratio(seconds[e], seconds[own], float(arrays["budget"][p]))


def best_peer(arrays: Arrays, problem: str) -> tuple[str, Ratio] | None:
    """Return the fastest tuned peer on a problem, kfac-jax excluded; None without the problem."""
    found = {who: against(arrays, problem, who) for who in field.PEERS}
    known = {who: r for who, r in found.items() if r is not None and not math.isnan(r.value)}
    if not known:
        return None
    # Peers that missed the target all count with the budget, so they share the last place.
    who = min(known, key=lambda name: (known[name].value, ">" in known[name].bound))
    return who, known[who]


AIMS = {"autoencoder": 2.0, "classifier": 1.4, "transformer": 1.1}
"""How many times sooner than the best tuned peer NGD is meant to reach the target."""

_CLIP = 4.0  # no single ratio counts more than this in the mean, or less than its inverse


def claims(config: Any, arrays: Arrays) -> Sequence[Claim]:
    """Return the aims of the race, with their numbers. All are about default settings."""
    found = []
    for problem, bound in AIMS.items():
        best = best_peer(arrays, problem)
        if best is not None:
            found.append(_claim(f"{problem}-best-peer", problem, *best, bound))
    kfac = against(arrays, "autoencoder", field.KFAC)
    if kfac is not None:
        found.append(_claim("autoencoder-kfac-jax", "autoencoder", field.KFAC, kfac, 3.0))
    return [*found, *_over_all(arrays)]


def _over_all(arrays: Arrays) -> list[Claim]:
    """Return the aims that concern all problems together."""
    names = arrays.coordinates["problem"]
    best = {name: best_peer(arrays, name) for name in names}
    ratios = [1.0 if found is None else found[1].value for found in best.values()]
    clipped = np.clip(ratios, 1 / _CLIP, _CLIP)
    lower = [final_ratio(arrays, name) <= 1 for name in names]
    rows: tuple[tuple[str, str, float, float], ...] = (
        (
            "mean-best-peer",
            "the geometric mean over problems of the best tuned peer's seconds over NGD's, each "
            "between 1/4 and 4",
            float(np.exp(np.log(clipped).mean())),
            1.5,
        ),
        ("least-best-peer", "the least of these ratios", float(min(ratios)), 0.9),
        (
            "final-loss",
            "the number of problems on which NGD's final loss is at or below the best tuned peer's",
            float(sum(lower)),
            8.0,
        ),
    )
    return [
        Claim(
            id=name,
            statement=statement,
            source="natgrad",
            value=value,
            relation=">=",
            bound=bound,
            n=len(names),
        )
        for name, statement, value, bound in rows
    ]


def _claim(name: str, problem: str, who: str, measured: Ratio, bound: float) -> Claim:
    goal = "is not behind" if bound == 1 else f"is {bound:g} times ahead of"
    peer = f"the best tuned peer, {who}" if name.endswith("best-peer") else f"tuned {who}"
    limits = {
        "": "",
        ">": f"; {who} did not always reach it: a lower bound",
        "<": "; NGD did not always reach it: an upper bound",
        "?": "; neither always reached it: missing seconds count as the budget",
    }
    spread = math.log(measured.high / measured.low) / 2 if measured.seeds > 1 else None
    return Claim(
        id=name,
        statement=f"{problem}: NGD {goal} {peer}, in seconds to the target{limits[measured.bound]}",
        source="natgrad",
        value=measured.value,
        relation=">=",
        bound=bound,
        sd=None if spread is None else measured.value * spread,
        n=measured.seeds,
    )


def final_ratio(arrays: Arrays, problem: str, quantity: str = "final") -> float:
    """Return NGD's final score over the best tuned peer's, medians over seeds.

    Args:
        arrays: The result of a race.
        problem: The problem's name.
        quantity: "final" or "best", scores on validation data, or "test".
    """
    p, entrants = arrays.coordinates["problem"].index(problem), arrays.coordinates["entrant"]
    medians = np.median(np.nan_to_num(arrays[quantity][p], nan=np.inf), axis=1)
    peers = [
        medians[e] for e, who in enumerate(entrants) if who in field.PEERS and arrays["raced"][p, e]
    ]
    return float(medians[entrants.index(field.DEFAULT)] / min(peers))


def losses(config: Any, arrays: Arrays) -> Sequence[str]:
    """Return sentences: what was left out, and where NGD lost, by how much, and why."""
    return [*arrays.coordinates["note"], *missed(config, arrays), *defeats(arrays)]


def missed(config: Any, arrays: Arrays) -> list[str]:
    """Return a sentence for each missed target: by how much."""
    found = []
    for claim in claims(config, arrays):
        if not claim.satisfied:
            assert isinstance(claim.bound, float)
            size = (
                "neither reached the target within the budget"
                if math.isnan(claim.value)
                else f"the ratio is {claim.value:.2f}, {claim.value / claim.bound:.2f} of it"
            )
            found.append(f"The target {claim.id}, a ratio of {claim.bound:g}, is missed: {size}.")
    return found


def defeats(arrays: Arrays) -> list[str]:
    """Return a sentence for each peer that was faster than NGD: steps, and cost per step.

    Seconds are steps times seconds per step: a method loses because it needs more steps, or because
    its steps cost more.
    """
    found = []
    for problem in arrays.coordinates["problem"]:
        for who in (*field.PEERS, field.KFAC):
            measured = against(arrays, problem, who)
            if measured is not None and measured.value < 1:
                found.append(_defeat(arrays, problem, who, measured))
    return found


def _defeat(arrays: Arrays, problem: str, who: str, measured: Ratio) -> str:
    p = arrays.coordinates["problem"].index(problem)
    entrants = arrays.coordinates["entrant"]
    e, own = entrants.index(who), entrants.index(field.DEFAULT)
    at_least = "at least " if measured.bound == "<" else ""
    sentence = f"{problem}: NGD takes {at_least}{1 / measured.value:.2f} times as long as {who}"
    seconds, steps = (
        np.nan_to_num(arrays[f"{name}_to_target"][p], nan=np.inf) for name in ("time", "steps")
    )
    if not np.isfinite(np.median(steps[[e, own]], axis=1)).all():
        return f"{sentence}; it does not reach the target within the budget."
    own_steps, other_steps = np.median(steps[own]), np.median(steps[e])
    fewer = own_steps / other_steps
    cost = np.median(seconds[own]) / own_steps / (np.median(seconds[e]) / other_steps)
    why = "its steps cost too much" if cost > 1 and fewer <= 1 else "it needs more steps"
    return (
        f"{sentence}: it needs {fewer:.2f} times as many steps, and each costs {cost:.1f} times as "
        f"much (batches differ as tuned); {why}."
    )
