"""Claims on flows under other metrics."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.atlas.metrics.config import Metrics
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS


def claims(config: Metrics, arrays: Arrays) -> Sequence[Claim]:
    """Return claims over all data sets; angles are the largest, in degrees."""
    n, kappas = len(config.seeds), np.array(config.kappas)
    wide = np.array(config.wide_kappas)
    inner = (kappas > 0) & (kappas < 1)
    late = arrays["turned"][:, -20:] / arrays["expected_turn"][:, -20:]
    single = arrays["to_single"][:, wide > 1]

    def most(name: str, statement: str, value: Any, bound: float, source: str = "natgrad") -> Claim:
        return Claim(
            id=name, statement=statement, source=source, value=float(np.max(value)), relation="<=",
            bound=bound, n=n, presets=PRESETS,
        )  # fmt: skip

    return [
        most("kfac", "K-FAC ends at the max margin in the (A + λ)-norm", arrays["kfac"], 0.5),
        most("kfac-classes", "K-FAC of several classes, both factors damped, ends at the max "
             "margin in the (A + λ)-norm of each class", arrays["class_kfac"], 0.5),
        most("diagonal", "the diagonal Fisher ends at the max margin in the norm of its own "
             "diagonal there", arrays["diagonal"], 0.5),
        Claim(
            id="population-freezes",
            statement="the population Fisher stops turning at this distance from the ℓ2 margin "
            "(smallest)",
            source="natgrad",
            value=float(arrays["frozen"].min()),
            relation=">=",
            bound=1.0,
            n=n,
            presets=PRESETS,
        ),
        most("population-exponent", "dθ/dr / tan∠(−∇L, β) falls like r⁻³ (largest error of the "
             "exponent)", np.abs(arrays["exponent"] + 3), 0.01),
        most("population-law", "late dθ/dr is (π²/3) r⁻³ tan∠(−∇L, β) (largest relative error)",
             np.abs(late - 1), 0.01),
        most("latent", "κ = 0 ends at the whitened max margin",
             arrays["to_whitened"][:, kappas == 0], 0.5),
        most("fisher", "κ = 1 ends at the vertex of the linear program",
             arrays["to_vertex"][:, kappas == 1], 0.5),
        Claim(
            id="between",
            statement="0 < κ < 1 ends at a vertex, with a tight row for each feature (share)",
            source="natgrad",
            value=float((arrays["tight"][:, inner] >= config.dim).mean()),
            relation=">=",
            bound=0.95,
            n=n,
            presets=PRESETS,
        ),
        Claim(
            id="behind",
            statement="geometric, logarithmic and arithmetic mean: where a path reaches its "
            "length, it ends on the ray orthogonal to the D − 1 samples of smallest margins",
            source="natgrad",
            value=float(np.nanmax(arrays["to_ray"])),
            relation="<=",
            bound=0.5,
            n=n,
            presets=("paper",),
            expected=False,
        ),
        Claim(
            id="behind-slope",
            statement="and the margins of all other samples grow along this ray (least cosine)",
            source="natgrad",
            value=float(arrays["slope"][np.isfinite(arrays["to_ray"])].min()),
            relation=">",
            bound=0.0,
            n=n,
            presets=PRESETS,
        ),
        most("wide-below", "fewer samples than features, κ ≤ 1: every start ends at the "
             "interpolant of the labels", arrays["to_interpolant"][:, wide <= 1], 0.5),
        Claim(
            id="wide-above",
            statement="fewer samples than features, κ > 1: the sample of the largest margin at "
            "the start runs away alone (share within 1°)",
            source="natgrad",
            value=float((single <= 1.0).mean()),
            relation=">=",
            bound=0.95,
            n=n,
            presets=PRESETS,
        ),
    ]  # fmt: skip


def departures(config: Metrics, arrays: Arrays) -> Sequence[str]:
    """Return what is undecided, and our choices."""
    undecided = int(np.isnan(arrays["class_undamped"]).sum())
    decided = arrays["class_undamped"][np.isfinite(arrays["class_undamped"])]
    open_ = np.isnan(arrays["to_ray"])
    falls = int((arrays["slope"][open_] < 0).sum())
    by_mean = ", ".join(
        f"{int(count)} ({mean})" for mean, count in zip(config.means, open_.sum(0), strict=True)
    )
    rest = f", the others are within {decided.max():.2g}° of it" if decided.size else ""
    return [
        f"K-FAC of several classes with G not damped: {undecided} of {len(config.seeds)} are "
        "undecided. Directions of classes grow at different speeds, the condition number of G "
        f"diverges, and there is no norm to compare with{rest}.",
        f"Wasserstein metrics with other means than the harmonic one: {int(open_.sum())} of "
        f"{open_.size} flows are undecided, {by_mean}. On {falls} of these a margin of another "
        "sample falls along the ray, until two samples balance each other. What moves then is "
        "exponentially slower, and the path gives up before its length.",
        "The other flows were to end within .5° of their rays. One of them meets its ray late, "
        "after two samples have balanced each other for most of its length; its angle falls like "
        "the inverse of the length, and was too large at the end. So this claim is marked as "
        f"refuted. {_near(arrays)}",
        f"Flows run by arc length to {config.length:g} from zero; wide data start at random. "
        "Features have scales from 0.3 to 3, but for the population Fisher, whose closed form "
        "assumes standard normal inputs.",
    ]


def _near(arrays: Arrays) -> str:
    """Return how many flows are near their rays, and how near."""
    found = arrays["to_ray"][np.isfinite(arrays["to_ray"])]
    near = found[found <= 0.5]
    return f"{near.size} of {found.size} are within {near.max(initial=0):.2g}°."
