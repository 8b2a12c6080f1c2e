"""Claims on natural steps for matrix completion."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.atlas.completion.cells import METHODS, TRAIN
from natgrad.experiments.atlas.completion.config import Completion
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, Relation
from natgrad.lab.experiment import PRESETS

_JUDGED = ("quick", "paper")


def claims(config: Completion, arrays: Arrays) -> Sequence[Claim]:
    """Return claims for each depth; errors are on entries that were not observed."""
    names, n = list(METHODS), len(config.seeds)
    found = []
    for k, depth in enumerate(config.depths):

        def ratio(key: str, method: str, k: int = k) -> Any:
            return arrays[key][names.index(method), k] / arrays[key][0, k]

        def claim(
            name: str, statement: str, value: Any, bound: float, relation: Relation = "<=",
            expected: bool = True, presets: tuple[str, ...] = _JUDGED, depth: int = depth,
        ) -> Claim:  # fmt: skip
            return Claim(
                id=f"{name}-{depth}", statement=f"L = {depth}: {statement}", source="natgrad",
                value=float(value), relation=relation, bound=bound, n=n, presets=presets,
                expected=expected,
            )  # fmt: skip

        observed, damped = "NGD, observed", "NGD, observed, λ = 0.3"
        free, slow = "NGD, observed, no cap, η = .1", "NGD, observed, no cap, η = .01"
        found += [
            claim("error", "natural steps over the observed entries have this many times the "
                  "error of gradient descent (median)", np.median(ratio("test", observed)), 5.0),
            claim("steps", "they take this share of its steps (largest)",
                  ratio("steps", observed).max(), 0.1, presets=PRESETS),
            claim("damped-error", "with damping 0.3, this many times its error (median)",
                  np.median(ratio("test", damped)), 2.0),
            claim("damped-steps", "with damping 0.3, this share of its steps (largest)",
                  ratio("steps", damped).max(), 0.1),
            claim("free-error", "without the cap and with η = .1, this many times its error "
                  "(median)", np.median(ratio("test", free)), 5.0, expected=False),
            claim("slow-steps", "without the cap and with η = .01, this share of its steps "
                  "(median)", np.median(ratio("steps", slow)), 0.1, expected=False),
            claim("all-entries", "with the Fisher over all entries the error is that of zeros "
                  "(median)", np.median(arrays["test"][names.index("NGD, all entries"), k]), 0.9,
                  ">="),
        ]  # fmt: skip
    return found


def departures(config: Completion, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and what did not arrive."""
    late = arrays["train"] > TRAIN
    sentences = [
        "Gradient descent takes steps of 1.5 over the curvature at a balanced solution, of the 2 "
        "that are stable: shorter steps would flatter the others.",
        "Natural directions are exact to 1e-4, by conjugate gradients. Capped steps change no "
        "factor by more than 5 % of its norm. This cap and the damping were chosen on seeds 100 to "
        "119; with a cap of 10 % the error at L = 3 was 7.4 times that of gradient descent.",
    ]
    if late.any():
        who = [name for name, rows in zip(METHODS, late, strict=True) if rows.any()]
        sentences.append(
            f"{int(late.sum())} of {late.size} runs did not fit the observed entries to {TRAIN:g} "
            f"({'; '.join(who)}): their errors are those of the last step."
        )
    return sentences
