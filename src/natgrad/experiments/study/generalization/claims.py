"""Claims of the study, fixed before the comparison was run, and our choices."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.study.generalization import summary
from natgrad.experiments.study.generalization.cells import WORTH
from natgrad.experiments.study.generalization.config import Generalization
from natgrad.experiments.study.generalization.methods import EQUAL, METHODS, STUCK, damped
from natgrad.experiments.study.generalization.problems import PROBLEMS, TARGETS
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim

_KEEPER = damped(0.1)


def claims(config: Generalization, arrays: Arrays) -> Sequence[Claim]:
    """Return claims about errors at equal training loss; n is the number of problems behind each.

    They are judged at the paper preset, where every problem has 30 seeds.
    """
    problems = PROBLEMS[:: config.every]
    decided = summary.decided(arrays)
    clean = [i for i, p in enumerate(problems) if p.kind == "clean" and p.family != "table"]
    pairs = [
        (i, j)
        for i in clean
        for j, q in enumerate(problems)
        if q.kind == "noisy"
        and (q.family, q.depth, q.n) == (problems[i].family, problems[i].depth, problems[i].n)
    ]
    matrices = [i for i in decided if problems[i].family == "matrix"]
    shrunk = [
        summary.advantage(arrays, j).value < summary.advantage(arrays, i).value for i, j in pairs
    ]
    return [
        Claim(
            id="arrived",
            statement="runs with tuned steps that reach the training loss (share)",
            source="natgrad",
            value=summary.arrived(arrays),
            relation=">=",
            bound=0.95,
            n=len(problems),
        ),
        Claim(
            id="equal-loss",
            statement="final training losses over their targets, minus one (largest, of the runs "
            "that reach them)",
            source="natgrad",
            value=_off(config, arrays),
            relation="<=",
            bound=EQUAL,
            n=len(problems),
        ),
        Claim(
            id="clean-advantage",
            statement="clean data that suit the bias of depth: EGD has a lower error than exact "
            "NGD beyond chance (share of problems)",
            source="[KMH21] §3, §4",
            value=_share([i in decided for i in clean]),
            relation=">=",
            bound=0.75,
            n=len(clean),
        ),
        Claim(
            id="noise-shrinks",
            statement="noise in the labels makes EGD's advantage over exact NGD smaller (share of "
            "pairs of problems)",
            source="natgrad; compare arXiv 2006.10732",
            value=_share(shrunk),
            relation=">=",
            bound=0.8,
            n=len(pairs),
        ),
        Claim(
            id="damped-keeps",
            statement="where EGD has an advantage, damped NGD with λ = 0.1 keeps this share of it "
            "(median of problems)",
            source="natgrad",
            value=_median([summary.kept(arrays, i, _KEEPER).value for i in decided]),
            relation=">=",
            bound=0.8,
            n=len(decided),
        ),
        Claim(
            id="damped-price",
            statement="there, it takes this share of EGD's steps (median of problems)",
            source="natgrad",
            value=_median([summary.price(arrays, i, _KEEPER).value for i in decided]),
            relation="<=",
            bound=0.5,
            n=len(decided),
        ),
        Claim(
            id="kronecker-rank",
            statement="matrices: the optimizer NGD keeps at most this share of EGD's advantage "
            "(median of problems)",
            source="natgrad",
            value=_median([summary.kept(arrays, i, "NGD").value for i in matrices]),
            relation="<=",
            bound=0.3,
            n=len(matrices),
        ),
    ]


def _off(config: Generalization, arrays: Arrays) -> float:
    """Return the largest relative difference of a final loss from its target."""
    targets = np.array([TARGETS[p.family] for p in PROBLEMS[:: config.every]])
    ends = np.where(np.isfinite(arrays["error"]), arrays["loss"], np.nan)
    return float(np.nanmax(np.abs(ends / targets[:, None, None] - 1)))


def _share(verdicts: Sequence[bool]) -> float:
    return float(np.mean(verdicts)) if verdicts else float("nan")


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def departures(config: Generalization, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and how many step lengths were chosen at the edge of their range."""
    chosen = np.isfinite(arrays["setting"])
    return [
        "All problems are listed before the run, and none is left out. Muon, K-FAC and NGD need "
        "weight matrices, so they do not apply to diagonal networks.",
        "Every method has four step lengths. The choice is made on draws that the comparison does "
        "not use: the fewest steps among settings with at most 5 % more than the lowest median "
        f"error. Settings that take {WORTH} times the steps of a longer one are given up, and so "
        f"are runs without a new lowest loss in {STUCK} steps. "
        f"{int(arrays['edge'][chosen].sum())} of {int(chosen.sum())} choices are at an "
        "edge of the range.",
        "The advantage of EGD is the mean over seeds of log(error of exact NGD / error of EGD). "
        "It counts as decided if its 95 % bootstrap interval is above zero.",
        "Exact and damped NGD use the Fisher over the training inputs, which are the observed "
        "entries of a matrix. For matrices there is also exact NGD over all entries, as [KMH21] "
        "§4. No step changes a weight matrix by more than 10 %. Step lengths along (F + λ)⁻¹∇L "
        "are multiples of 1 + λ·(EGD's longest), so they reach from natural steps to EGD's.",
        "The last step of every run is shortened so that it ends at the training loss of the "
        "target.",
        "K-FAC is `NGD.published` on all samples at once. NGD has default settings except lr.",
        *_by_kind(config, arrays),
        *_kept(config, arrays),
        *_late(arrays),
    ]


def _kept(config: Generalization, arrays: Arrays) -> list[str]:
    """Return a sentence for each family with decided problems: what every method keeps."""
    problems, sentences = PROBLEMS[:: config.every], []
    for family in TARGETS:
        chosen = [i for i in summary.decided(arrays) if problems[i].family == family]
        told = []
        for method in METHODS:
            found = summary.pooled(arrays, chosen, method)
            if method not in ("EGD", "exact NGD") and np.isfinite(found.value):
                told.append(f"{method} {found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
        if told:
            sentences.append(
                f"Share of EGD's advantage that is kept, {family}, {len(chosen)} problems (95 % "
                f"intervals): {'; '.join(told)}."
            )
    return sentences


def _late(arrays: Arrays) -> list[str]:
    """Return a sentence that lists the cells in which runs did not reach the training loss."""
    names, methods = (arrays.coordinates[key] for key in ("problem", "method"))
    seeds = len(arrays.coordinates["seed"])
    found = {
        f"{method} on {name}": summary.arrivals(arrays, i, method)
        for i, name in enumerate(names)
        for method in methods
        if not summary.absent(arrays, i, method)
    }
    late = [f"{cell} ({count})" for cell, count in found.items() if count < seeds]
    return [
        f"In {len(late)} of {len(found)} cells some of {seeds} runs did not reach the training "
        f"loss; errors there are those of the runs that did{': ' if late else ''}{'; '.join(late)}."
    ]


def _by_kind(config: Generalization, arrays: Arrays) -> list[str]:
    """Return a sentence for each kind of problem: what every method makes of it."""
    problems = PROBLEMS[:: config.every]
    kinds = {
        "clean": [i for i, p in enumerate(problems) if p.kind == "clean" and p.family != "table"],
        "noisy": [i for i, p in enumerate(problems) if p.kind == "noisy"],
        "misspecified": [i for i, p in enumerate(problems) if p.kind == "misspecified"],
        "a table": [i for i, p in enumerate(problems) if p.family == "table"],
    }
    sentences = []
    for kind, chosen in kinds.items():
        found = {m: summary.typical(arrays, chosen, m) for m in METHODS if m != "EGD"}
        told = [f"{m} {e:.3g} ({s:.2g})" for m, (e, s) in found.items() if np.isfinite(e)]
        if told:
            sentences.append(
                f"Errors relative to EGD's, {kind}, {len(chosen)} problems (geometric mean; in "
                f"brackets steps relative to EGD's, median): {'; '.join(told)}."
            )
    return sentences
