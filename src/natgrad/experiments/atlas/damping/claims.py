"""Claims on natural flow with damping λ₀Lᵃ."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.atlas.damping.config import Damping
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS

DECIDED = 0.1
"""Degrees within which a path counts as arrived at the shortest point of its face."""


def claims(config: Damping, arrays: Arrays) -> Sequence[Claim]:
    """Return claims over all data sets, λ₀ and a; n counts flows."""
    powers, dim = np.array(config.powers), config.dim
    slow, fast = powers <= 1, powers > 1
    face, count = arrays["to_face"], arrays["tight"]
    decided = face <= DECIDED
    between = decided[..., fast] & (count[..., fast] < dim)
    room = np.where(between, arrays["next"][..., fast] / powers[fast], np.inf)
    last = len(powers) - 1  # the largest a
    sharp = count[..., last] == dim
    at_vertex = arrays["to_predicted"][..., last][sharp]
    many = face.size
    found = [
        _claim("below-one", "a ≤ 1: flows end at the ℓ2 max margin (degrees, largest)",
               float(arrays["to_margin"][..., slow].max()), "<=", 0.05, many),
        _claim("decided", "flows that are within .1° of the shortest point X_T⁺1 of their face "
               "(share)", float(decided.mean()), ">=", 0.99, many),
        _claim("gap", "a > 1 and fewer tight rows than features: every other margin is at least a "
               "times the smallest (smallest ratio to a)", float(room.min()), ">=", 0.999,
               int(between.sum())),
    ]  # fmt: skip
    if len(config.seeds) < 3:
        return found
    judged = ("quick", "paper")
    small, large = arrays["to_margin"][:, 0, last], arrays["to_margin"][:, -1, last]
    return [
        *found,
        Claim(
            id="predicted",
            statement=f"a = {powers[last]:g}: flows with a tight row for each feature end at the "
            "vertex of the program whose cost is their gradient at length 300 (share within .1°)",
            source="natgrad",
            value=float((at_vertex <= 0.1).mean()) if at_vertex.size else np.nan,
            relation=">=",
            bound=0.95,
            n=int(sharp.sum()),
        ),
        Claim(
            id="same-vertex",
            statement=f"a = {powers[last]:g} and λ₀ = {config.scales[0]:g}: flows end at the "
            "vertex of undamped flow (share within .1°)",
            source="natgrad: the conjecture of the pilot",
            value=float((arrays["to_vertex"][:, 0, last] <= 0.1).mean()),
            relation=">=",
            bound=1.0,
            n=len(small),
            presets=judged,
            expected=False,
        ),
        Claim(
            id="large-near-margin",
            statement=f"a = {powers[last]:g}: the end for the largest λ₀ is nearer to the ℓ2 "
            "margin than that for the smallest (share of data sets)",
            source="natgrad",
            value=float((large <= small + 1e-6).mean()),
            relation=">=",
            bound=0.75,
            n=len(small),
            presets=judged,
        ),
        Claim(
            id="large-support",
            statement=f"a = {powers[last]:g} and the largest λ₀: share of the ℓ2 support vectors "
            "that are tight at the end (mean)",
            source="natgrad",
            value=float(np.nanmean(arrays["support"][:, -1, last])),
            relation=">=",
            bound=0.9,
            n=len(small),
            presets=judged,
        ),
    ]


def _claim(name: str, statement: str, value: float, relation: str, bound: float, n: int) -> Claim:
    return Claim(
        id=name,
        statement=statement,
        source="natgrad, docs/findings.md",
        value=value,
        relation=relation,  # type: ignore[arg-type]
        bound=bound,
        n=n,
        presets=PRESETS,
    )


def departures(config: Damping, arrays: Arrays) -> Sequence[str]:
    """Return what is undecided, and how flows run."""
    undecided = int((~(arrays["to_face"] <= DECIDED)).sum())
    return [
        f"{undecided} of {arrays['to_face'].size} flows are undecided: not within {DECIDED:g}° of "
        "the shortest point of their face.",
        "The vertex that the gradient predicts is found by HiGHS with a tolerance of 1e-7; for "
        "large λ₀ some multipliers of the program are smaller.",
        f"Flows run by arc length to {config.length:g}, where their time would be about "
        "e^{length}; rows count as tight when their margin is within .1 % of the smallest.",
    ]
