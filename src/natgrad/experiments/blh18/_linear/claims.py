"""Claims of Figures 1A, 1B and 1C, and our choices."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.experiments.blh18._linear.problems import shares
from natgrad.experiments.blh18._linear.race import BEST, DEFAULT, PUBLISHED
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import PRESETS

Numbers = npt.NDArray[np.float64]

CLOSE = 1.1
"""Multiple of the noise floor at which a method counts as having arrived."""


class Curves:
    """Questions about the curves of a race."""

    def __init__(self, config: DeepLinear, arrays: Arrays) -> None:
        self.names: list[str] = arrays.coordinates["method"]
        self.first_order: list[str] = arrays.coordinates["first_order"]
        self.passes: Numbers = arrays["examples"] / config.examples
        self.test: Numbers = arrays["test"] / config.noise
        self.spent: Numbers = arrays["seconds"]

    def arrival(self, method: str) -> list[int | None]:
        """Return the first point of each seed within `CLOSE` times the floor."""
        near = self.test[:, self.names.index(method)] <= CLOSE
        return [int(row.argmax()) if row.any() else None for row in near]

    def passes_until(self, method: str) -> Numbers:
        """Return the passes until arrival of each seed; infinite where it never arrives."""
        return np.array([math.inf if k is None else self.passes[k] for k in self.arrival(method)])

    def seconds_until(self, method: str) -> Numbers:
        """Return the seconds until arrival; infinite where it never arrives."""
        spent = self.spent[:, self.names.index(method)]
        found = zip(spent, self.arrival(method), strict=True)
        return np.array([math.inf if k is None else row[k] for row, k in found])

    def rivals_seconds(self, method: str) -> Numbers:
        """Return the seconds until arrival, or all seconds spent where there is none.

        A method that diverged never arrives, so its seconds are infinite.
        """
        at = self.names.index(method)
        spent = np.where(np.isfinite(self.test[:, at, -1]), self.spent[:, at, -1], math.inf)
        until = self.seconds_until(method)
        return np.where(np.isfinite(until), until, spent)

    def lead(self, method: str) -> Numbers:
        """Return the fastest first-order method's seconds in units of this method's, by seed."""
        rivals = np.min([self.rivals_seconds(name) for name in self.first_order], axis=0)
        lead: Numbers = rivals / self.seconds_until(method)
        return lead

    def after(self, method: str, passes: float) -> Numbers:
        """Return the error in units of the floor after this many passes, by seed."""
        at = int(np.searchsorted(self.passes, passes - 1e-9).clip(max=len(self.passes) - 1))
        errors: Numbers = self.test[:, self.names.index(method), at]
        return errors


def predicted(config: DeepLinear, panel: Panel) -> tuple[float, float]:
    """Return the decay of log excess loss per step: the paper's, and with moving projections.

    If k of L layers contribute, a step of length α moves a mode by α k/L of its distance.
    """
    share = shares(config.widths) / (len(config.widths) - 1)
    return -2 * math.log(1 - panel.decay_rate), -2 * math.log(1 - panel.decay_rate * share)


def slopes(excess: Numbers) -> Numbers:
    """Return the decay of log excess loss per step, fitted to the second half of each row."""
    late = np.log(excess[:, excess.shape[1] // 2 :])
    found: Numbers = -np.polyfit(np.arange(late.shape[1]), late.T, 1)[0]
    return found


def claims(panel: Panel, config: DeepLinear, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims about the race."""
    curves, sized = Curves(config, arrays), ("quick", "paper")
    until = min(panel.sgd, config.passes)
    where = f"[BLH18] Figure 1{panel.letter}"
    fitted, (unit, moving) = slopes(arrays["excess"]), predicted(config, panel)
    bottleneck = unit != moving

    def within(id: str, statement: str, source: str, method: str, bound: float) -> Claim:
        passes = curves.passes_until(method)
        there = np.isfinite(passes).all()
        return Claim(
            id=id, statement=statement, source=source, relation="<=", bound=bound, presets=sized,
            **(over_seeds(passes, "max") if there else {"value": math.inf, "n": len(passes)}),
        )  # fmt: skip

    found = [
        within(
            "published",
            f"eq. 20 as published reaches {CLOSE} × the noise floor within {panel.published:g} "
            "passes (slowest seed)",
            where,
            PUBLISHED,
            panel.published,
        ),
        Claim(
            id="sgd",
            statement=f"SGD with M = 20 has not reached {CLOSE} × the floor after {until:g} passes "
            "(error in units of the floor, smallest over seeds)",
            source=where,
            relation=">",
            bound=CLOSE,
            expected=panel.sgd_fails,
            presets=sized if panel.sgd_fails else ("paper",),  # two are too few
            **over_seeds(curves.after("SGD", until), "min"),
        ),
        within(
            "best",
            f"NGD for linear networks reaches {CLOSE} × the noise floor within {panel.best:g} "
            "passes (slowest seed)",
            "natgrad",
            BEST,
            panel.best,
        ),
        Claim(
            id="seconds",
            statement="NGD for linear networks needs fewer seconds than every first-order method "
            "(seconds of the fastest over its own, smallest over seeds)",
            source="natgrad",
            relation=">",
            bound=1.0,
            presets=sized,
            **over_seeds(curves.lead(BEST), "min"),
        ),
        Claim(
            id="published-seconds",
            statement="eq. 20 as published needs fewer seconds than every first-order method "
            "(seconds of the fastest over its own, smallest over seeds)",
            source=where,
            relation=">",
            bound=1.0,
            expected=panel.published_wins,
            **over_seeds(curves.lead(PUBLISHED), "min"),
        ),
        Claim(
            id="unit-rate",
            statement="without noise and damping the loss decays like e^{−2t} (slope of its "
            "logarithm in units of the predicted one)",
            source="[BLH18] §4, eq. 19",
            relation="within",
            bound=(0.98, 1.02),
            expected=not bottleneck,
            presets=PRESETS,
            **over_seeds(fitted / unit),
        ),
        Claim(
            id="rate",
            statement="the best rate for SGD in the grid is the published one (ratio)",
            source=f"{where}, caption",
            value=float(arrays["rate"][0]) / panel.rate,
            relation="within",
            bound=(0.99, 1.01),
        ),
    ]
    if bottleneck:
        found.append(
            Claim(
                id="bottleneck-rate",
                statement="the loss decays at the rate 2k/L, where k is the smaller number of "
                "full-width layers on either side of the bottleneck (slope in units of this rate)",
                source="natgrad",
                relation="within",
                bound=(0.98, 1.02),
                presets=PRESETS,
                **over_seeds(fitted / moving),
            )
        )
    return found


def departures(panel: Panel, config: DeepLinear, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and where our numbers differ from the paper's text."""
    curves = Curves(config, arrays)
    rates = ", ".join(
        f"{name} {rate:g}" for name, rate in zip(curves.first_order, arrays["rate"], strict=True)
    )

    found = [
        "The paper prints no initialization. Teacher and start are Gaussian factors of variance "
        f"1/max(in, out), rescaled so that ‖W‖_F² = {config.power:g} for the whole map. The "
        f"best rate for SGD in the grid is then {arrays['rate'][0]:g} (printed: {panel.rate:g}). "
        "With fan-in factors the printed rates diverge.",
        "The model assumes noise covariance I. The noise covariance of the data, 1e-6 I, only sets "
        "the noise floor. Eq. 20 starts at λ = 0.01 and keeps λ ≥ 1e-8; without this bound λ runs "
        "away at the noise floor.",
        f"Every first-order method was tuned with {len(config.sgd_rates)} rates × "
        f"{config.tuning_passes} passes on every problem, validated on 1000 further samples of its "
        f"teacher, with one rate for all problems: {rates}. No natural gradient was tuned.",
        "Seconds are CPU time of training steps on one thread; the methods take turns in one "
        "process. First-order methods use PyTorch's fused kernels. A method that never arrives "
        "counts with all its seconds; one that diverges does not count.",
        "“NGD linear” is NGD(model, criterion, momentum=0, step_length=PerLayer(rows=250), "
        "damping=Adaptive(start=0.1, up=2, down=¼, least_alpha=∞, least_share=½, floor=1e-8, "
        "relative_floor=0), factors=Factors(source='propagated'), refresh=1): eq. 14–15 instead of "
        "sampling, and one step length per layer. “NGD default” is NGD(model, criterion, "
        "step_length=Quadratic()), the default of version 0.1; it "
        f"{arrives(curves, DEFAULT)}: its λ falls by a third at a time and not below its relative "
        "floor, and it has one step length for all layers.",
    ]
    for name in curves.first_order:
        if lost := int(np.isinf(curves.test[:, curves.names.index(name), -1]).sum()):
            found.append(f"{name} diverges in {lost} of {len(curves.test)} problems.")
    until = min(panel.sgd, config.passes)
    if there := int((curves.after("SGD", until) <= CLOSE).sum()):
        found.append(
            f"Problems differ: in {there} of {len(curves.test)} SGD also reaches {CLOSE} × the "
            f"floor within {until:g} passes."
        )
    if panel.decay_start == "near":
        found.append(
            "The rate of decay is measured from a start near an orthogonal teacher. W(t) is a "
            "straight line to W*. From a random start a square network meets det W = 0 on this "
            "line, where the undamped flow is singular. With damping the flow passes this point."
        )
    if shares(config.widths) < len(config.widths) - 1:
        depth, k = len(config.widths) - 1, shares(config.widths)
        found.append(
            "With a bottleneck eq. 19 does not give a unit rate, because its projections move with "
            f"W(t). The layerwise form decays at 2·{k}/L with L = {depth}, since only {k} layer on "
            "either side can turn the row or the column space of W. One step length per layer "
            "restores the rate."
        )
    if not panel.published_wins:
        fastest = min(curves.first_order, key=lambda name: np.median(curves.seconds_until(name)))
        found.append(
            f"Eq. 20 as published {arrives(curves, PUBLISHED)}. Ours {arrives(curves, BEST)}. "
            f"{fastest}, the fastest first-order method, {arrives(curves, fastest)}."
        )
    return found


def arrives(curves: Curves, method: str) -> str:
    """Return a phrase: when the median seed arrives, in passes and seconds, or that it does not."""
    passes = float(np.median(curves.passes_until(method)))
    seconds = float(np.median(curves.seconds_until(method)))
    if math.isfinite(passes):
        return f"arrives after {passes:.2g} passes and {seconds:.2g} s (median)"
    error = float(np.median(curves.after(method, math.inf)))
    if not math.isfinite(error):
        return "diverges (median)"
    return f"is at {error:.2g} × the floor after all {curves.passes[-1]:g} passes (median)"
