"""The verdict of a comparison in plain words: what the data are, what is best, what to try."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from natgrad.data._prepare import FEWEST_ROWS
from natgrad.experiments.compare._judge import class_weights
from natgrad.experiments.compare._tables import Loaded
from natgrad.experiments.compare.config import KINDS, Compare
from natgrad.fits import PENALTIES
from natgrad.lab.arrays import Arrays

Floats = npt.NDArray[np.float64]

_FAR_OFF = 0.05  # a calibration error above this is said
_RARE = 0.2  # a class with a smaller share than its equal share times this is rare


@dataclass(frozen=True, eq=False)
class Candidate:
    """A separator that one could use: at the end of its method, or stopped.

    Attributes:
        name: In words.
        right: 1 for held-out rows that it gets right, else 0.
        loss: Its log loss on held-out rows; NaN for methods without probabilities.
    """

    name: str
    right: Floats
    loss: float = math.nan


@dataclass(frozen=True, eq=False)
class Scale:
    """How candidates are compared: weights of the held-out rows that sum to one."""

    weights: Floats
    word: str

    def score(self, candidate: Candidate) -> float:
        """Return the share of rows that are right."""
        return float(candidate.right @ self.weights)

    def lead(self, one: Candidate, other: Candidate, among: int = 1) -> tuple[float, float, float]:
        """Return how much more of the rows `one` gets right, and a 95 % interval.

        Rows are paired. The interval holds for `among` such comparisons together (Bonferroni).
        """
        gap = one.right - other.right
        mean = float(gap @ self.weights)
        z = NormalDist().inv_cdf(1 - 0.025 / max(among, 1))
        half = z * math.sqrt(float(((gap - mean) ** 2) @ self.weights**2))
        return mean, mean - half, mean + half


def verdict(config: Compare, arrays: Arrays, loaded: Loaded, kind: str) -> list[str]:
    """Return sentences, the most important first."""
    balanced = config.class_weight == "balanced"
    labels = arrays["judged_label"]
    many = len(loaded.train.classes)
    weights = class_weights(labels, many) if balanced else np.full(len(labels), 1 / len(labels))
    scale = Scale(weights, "balanced accuracy" if balanced else "accuracy")
    found = candidates(arrays)
    return [
        _kind(arrays, loaded, kind),
        *_best(arrays, found, scale),
        *_depth(config, found, scale),
        *_stopping(arrays, found, scale),
        *([] if kind == "separable" else _ceilings(arrays)),
        *_calibration(arrays),
        *_try(config, arrays, loaded, kind),
    ]


def candidates(arrays: Arrays) -> list[Candidate]:
    """Return all methods that have an answer, at their end and stopped."""
    end = dict(zip(arrays.coordinates["path"], arrays["end_loss"].tolist(), strict=True))
    right = arrays["right"].astype(np.float64)
    quasi = KINDS[int(arrays["kind"])] == "quasi-separable" and int(arrays["separated"]) >= 0
    out = [
        Candidate(name, right[k], end.get(name, math.nan))
        for k, name in enumerate(arrays.coordinates["method"])
        if not np.isnan(right[k]).any() and not (quasi and name == "limit of NGD")
    ]
    stopped = arrays["stop_right"].astype(np.float64)
    for k, name in enumerate(arrays.coordinates["path"]):
        out.append(Candidate(stopped_name(name), stopped[k], float(arrays["stop_loss"][k])))
    return out


def stopped_name(path: str) -> str:
    """Return a stopped path in words.

    Example:
        >>> stopped_name("NGD"), stopped_name("ℓ2 penalty")
        ('NGD stopped', 'ℓ2 penalty')
    """
    return path if path in PENALTIES else f"{path} stopped"


def where(path: str, dial: float) -> str:
    """Return a point of a path in words.

    Example:
        >>> where("NGD", 2.0), where("ℓ2 penalty", 100.0)
        ('t = 2', 'λ = 0.01')
    """
    letter, value = ("λ", 1 / dial) if path in PENALTIES else ("t", dial)
    return f"{letter} = {float(f'{value:.2g}'):g}"


def _kind(arrays: Arrays, loaded: Loaded, kind: str) -> str:
    many = len(loaded.train.classes)
    rows = f"rows of the {many} classes" if many > 2 else "rows of the two classes"
    if kind == "separable":
        angle = float(np.nanmax(arrays["angle"]))
        return (
            f"Separable: hyperplanes divide the {rows} without an error. Many do, so each method "
            "picks its own: EGD tends to a max margin that depends on its depth, NGD to a vertex "
            f"of a linear program. Here the separators are up to {angle:.0f}° apart."
        )
    if kind == "quasi-separable":
        return _quasi(arrays, many)
    best = float(np.nanmax(arrays["train_accuracy"]))
    flows = [k for k, name in enumerate(arrays.coordinates["method"]) if name[:3] in ("EGD", "NGD")]
    angle = float(np.nanmax(arrays["angle"][np.ix_(flows, flows)]))
    folds = " Some folds are separable, though: ‖β‖ and the loss of sure mistakes grow there."
    return (
        "Not separable: no hyperplane divides the classes (the best one here gets "
        f"{percent(best)} of the training rows). The logistic loss then has one finite optimum, "
        "and EGD at every depth and NGD all end there: that is why their separators agree (to "
        f"{angle:.1f}° here), and max margins do not exist. The methods differ only on the way, so "
        f"what matters is where to stop.{folds if _growing(arrays) else ''}"
    )


def _quasi(arrays: Arrays, many: int) -> str:
    if many > 2:
        return (
            f"Quasi-separable: some of the {many} classes can be told from the others without an "
            "error, the rest overlap. ‖β‖ grows without bound along the flows of the first, and "
            "those of the rest have a finite optimum. There is no joint max margin."
        )
    count = int(arrays["separated"])
    return (
        f"Quasi-separable: hyperplanes put {count} of {int(arrays['rows'])} rows on their own "
        "side, and all others exactly on the boundary. So ‖β‖ grows without bound along every "
        "flow, because of those rows alone; on the others all flows agree in the end. There is no "
        "max margin, and the limit of NGD is a direction that leaves the others undecided: it is "
        "not among the methods compared below."
    )


def _growing(arrays: Arrays) -> bool:
    """Return whether the loss at the end is far above that at the stop, as on separable folds."""
    return bool((arrays["end_loss"] > 3 * arrays["stop_loss"]).any())


def _best(arrays: Arrays, found: Sequence[Candidate], scale: Scale) -> list[str]:
    # Ties go to the smaller log loss.
    ranked = sorted(found, key=lambda c: (-scale.score(c), c.loss if c.loss == c.loss else 1e9))
    best, others = ranked[0], ranked[1:]
    # The best is chosen after the fact, so the intervals hold for all pairs of candidates.
    pairs = len(found) * len(others) // 2
    leads = [scale.lead(best, other, pairs) for other in others]
    worse = [(other, lead) for other, lead in zip(others, leads, strict=True) if lead[1] > 0]
    always = float(arrays["baseline"])
    first = (
        f"Best on held-out rows: {best.name}{_at(arrays, best)}, {scale.word} "
        f"{percent(scale.score(best))} (always answering the most common class: {percent(always)})."
    )
    if not worse:
        return [
            f"{first} No other method is clearly worse: with {len(best.right)} held-out rows the "
            "differences are within chance. Choose by simplicity or by features used."
        ]
    last, lead = worse[-1]
    count = "all" if len(worse) == len(others) else f"{len(worse)} of {len(others)}"
    rest = f"{count} {'is' if len(worse) == 1 else 'are'}"
    return [
        f"{first} Of the other fits, {rest} clearly worse (paired 95 % intervals for all "
        f"pairs together): {last.name} by {points(lead[0])} points "
        f"({points(lead[1])} to {points(lead[2])})."
    ]


def _at(arrays: Arrays, one: Candidate) -> str:
    for k, name in enumerate(arrays.coordinates["path"]):
        if stopped_name(name) == one.name:
            return f" at {where(name, float(arrays['path_dial'][k, arrays['stop_step'][k]]))}"
    return ""


def _depth(config: Compare, found: Sequence[Candidate], scale: Scale) -> list[str]:
    """Return whether depth changes what EGD gets right, at the end and where it stops."""
    by_name = {one.name: one for one in found}
    depths = sorted(config.depths)
    if depths[0] != 1 or len(depths) < 2:
        return []
    out = []
    for ending, text in (("", "run to the end"), (" stopped", "stopped early")):
        flat = by_name[f"EGD L=1{ending}"]
        leads = {
            depth: scale.lead(by_name[f"EGD L={depth}{ending}"], flat, len(depths) - 1)
            for depth in depths[1:]
        }
        depth = max(leads, key=lambda d: abs(leads[d][0]))
        mean, low, high = leads[depth]
        word = "helps" if low > 0 else "hurts" if high < 0 else "makes no clear difference"
        size = f"L = {depth}: {points(mean, sign=True)} points, {points(low, sign=True)} to "
        out.append(f"{text} it {word} ({size}{points(high, sign=True)})")
    return [f"Depth, against L = 1: {'; '.join(out)}."]


def _stopping(arrays: Arrays, found: Sequence[Candidate], scale: Scale) -> list[str]:
    """Return whether stopping early helps, for the flow with the lowest loss there."""
    flows = [k for k, name in enumerate(arrays.coordinates["path"]) if name not in PENALTIES]
    k = min(flows, key=lambda flow: float(arrays["stop_loss"][flow]))
    name = arrays.coordinates["path"][k]
    by_name = {one.name: one for one in found}
    mean, low, high = scale.lead(by_name[stopped_name(name)], by_name[name])
    stop, end = float(arrays["stop_loss"][k]), float(arrays["end_loss"][k])
    at = where(name, float(arrays["path_dial"][k, arrays["stop_step"][k]]))
    if stop > 0.99 * end:
        return [
            "Early stopping: not needed. Stopped where the other folds say, the best flow "
            f"({name}, {at}) has a held-out loss of {stop:.3g} nats per row; at its end {end:.3g}."
        ]
    return [
        f"Early stopping: {name} has the lowest held-out loss of all flows, at {at}: {stop:.3g} "
        f"nats per row against {end:.3g} at the end; {scale.word} changes by "
        f"{points(mean, sign=True)} points ({points(low, sign=True)} to {points(high, sign=True)})."
    ]


def _ceilings(arrays: Arrays) -> list[str]:
    out = []
    twins = float(arrays["twin_ceiling"])
    if twins < 1:
        out.append(
            f"Noise: some rows have equal features and different labels, so no function of these "
            f"features gets more than {percent(twins)} of the rows right."
        )
    k = int(np.argmin(arrays["stop_loss"]))
    sure, off = float(arrays["mean_sure"][k, 0]), float(arrays["calibration_error"][k, 0])
    if off <= _FAR_OFF and float(arrays["stop_accuracy"][k]) <= sure:
        name = stopped_name(arrays.coordinates["path"][k])
        out.append(
            f"Noise: the probabilities of {name} are right to {points(off)} points on average, and "
            f"promise an accuracy of {percent(sure)}. Only what is not linear in the features can "
            "add to that."
        )
    return out


def _calibration(arrays: Arrays) -> list[str]:
    """Return a sentence if probabilities at the end are far off."""
    names = arrays.coordinates["path"]
    flows = [k for k, name in enumerate(names) if name not in PENALTIES]
    k = max(flows, key=lambda flow: float(arrays["calibration_error"][flow, 1]))
    off, sure = float(arrays["calibration_error"][k, 1]), float(arrays["mean_sure"][k, 1])
    if off <= _FAR_OFF:
        return []
    best = min(flows, key=lambda flow: float(arrays["calibration_error"][flow, 0]))
    right = float(arrays["path_accuracy"][k, -1])
    word = "too sure" if sure > right else "not sure enough"
    return [
        f"Calibration: at its end {names[k]} is {word}: {percent(sure)} on average where "
        f"{percent(right)} are right. Its probabilities are off by {points(off)} points, those of "
        f"{stopped_name(names[best])} by {points(float(arrays['calibration_error'][best, 0]))}."
    ]


def _try(config: Compare, arrays: Arrays, loaded: Loaded, kind: str) -> list[str]:
    """Return what to try next."""
    out = []
    told = [n for n, alone in zip(loaded.train.names, arrays["telltale"], strict=True) if alone]
    if told:
        out.append(
            f"check {told[0]!r}: it separates the classes alone. If it is the label in other "
            "words, leave it out (drop)"
        )
    if kind == "quasi-separable":
        out += _rare(loaded)
    counts = arrays["class_rows"]
    if config.class_weight == "none" and counts.min() < _RARE * counts.sum() / len(counts) * 2:
        rare = loaded.train.classes[int(counts.argmin())]
        out.append(f"class_weight=balanced: {rare!r} has only {int(counts.min())} rows")
    if int(arrays["gaps"]) and config.missing == "fill":
        out.append("missing=flag: whether a value is missing may itself be informative")
    n, d = int(arrays["rows"]), len(loaded.train.names)
    if kind == "separable" and n < 10 * d:
        out.append(
            f"more rows, or fewer features: {d} features separate {n} rows easily, whether they "
            "matter or not"
        )
    if kind == "separable" and float(np.nanmin(arrays["train_accuracy"])) < 1:
        late = [
            name
            for name, share in zip(
                arrays.coordinates["method"], arrays["train_accuracy"].tolist(), strict=True
            )
            if share < 1 and name.startswith("EGD")
        ]
        if late:
            out.append(f"a larger until, if the limit of {late[0]} matters: it has not arrived yet")
    if kind != "separable" and n > 20 * d:
        out.append(
            "products or powers of features, or a network (natgrad.NGD): there are rows enough to "
            "fit more than a hyperplane"
        )
    return [f"To try: {'; '.join(out)}."] if out else []


def _rare(loaded: Loaded) -> list[str]:
    """Return advice on levels of so few rows that they can be separated."""
    x = loaded.train.x
    rows = (x == 1).sum(axis=0)
    levels = ((x == 0) | (x == 1)).all(axis=0) & (rows < FEWEST_ROWS)
    names = [name for name, one in zip(loaded.train.names, levels, strict=True) if one]
    if not names:
        return []
    many = int(rows[loaded.train.names.index(names[0])])
    return [
        f"joining rare levels or leaving out their rows: {names[0]!r} has "
        f"{many} row{'s' if many != 1 else ''}"
    ]


def percent(share: float) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.9375)
        '93.8 %'
    """
    return f"{100 * share:.1f} %"


def points(share: float, *, sign: bool = False) -> str:
    """Return a difference of shares in percentage points.

    Example:
        >>> points(0.012), points(-0.003, sign=True)
        ('1.2', '−0.3')
    """
    return f"{100 * share:{'+' if sign else ''}.1f}".replace("-", "−")
