"""Claims of Figure 1D, and our choices."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.experiments.blh18.fig1d._autoencoder import DEFAULT, KNOWN, PUBLISHED, widths
from natgrad.experiments.blh18.fig1d.config import Autoencoder
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import PRESETS

Numbers = npt.NDArray[np.float64]

_PUBLISHED_RATE = 0.04
_FOURFOLD, _TWENTYFOLD = 4.0, 20.0
WORDS = {
    PUBLISHED: "eq. 20 as published",
    KNOWN: "eq. 20 with its last error factor known",
    DEFAULT: "NGD with measured lengths",
}


class Curves:
    """Questions about the curves of a race. The mark of each seed is SGD's last error."""

    def __init__(self, arrays: Arrays, prefix: str = "") -> None:
        self.names: list[str] = arrays.coordinates[f"{prefix}method"]
        self.examples: Numbers = arrays[f"{prefix}examples"]
        self.test: Numbers = arrays[f"{prefix}test"]
        self.spent: Numbers = arrays[f"{prefix}seconds"]
        self.mark: Numbers = self.last("SGD")

    def points(self, method: str) -> int:
        """Return the number of points of a method."""
        return int(np.isfinite(self.examples[self.names.index(method)]).sum())

    def last(self, method: str) -> Numbers:
        """Return the error at the end, by seed."""
        errors: Numbers = self.test[:, self.names.index(method), self.points(method) - 1]
        return errors

    def seconds(self, method: str) -> Numbers:
        """Return the seconds until the mark, by seed; infinite where it is not met."""
        return self._until(method, self.spent[:, self.names.index(method)])

    def until(self, method: str) -> Numbers:
        """Return the examples until the mark, by seed; infinite where it is not met."""
        examples = np.broadcast_to(self.examples, self.test.shape)
        return self._until(method, examples[:, self.names.index(method)])

    def _until(self, method: str, spent: Numbers) -> Numbers:
        if method == "SGD":  # its error may have been lower before
            return spent[:, self.points(method) - 1]
        met = self.test[:, self.names.index(method)] <= self.mark[:, None]
        met &= np.isfinite(self.mark)[:, None]  # no method is compared with a diverged SGD
        met[:, 0] = False
        rows = zip(spent, met, strict=True)
        return np.array([row[m.argmax()] if m.any() else math.inf for row, m in rows])

    def sooner(self, method: str) -> Numbers:
        """Return SGD's seconds in units of the method's, both until the mark, by seed."""
        lead: Numbers = self.seconds("SGD") / self.seconds(method)
        return lead

    def fewer(self, method: str) -> Numbers:
        """Return SGD's examples in units of the method's, both until the mark, by seed."""
        lead: Numbers = self.until("SGD") / self.until(method)
        return lead


def claims(config: Autoencoder, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims: how much sooner natural gradients reach SGD's last error."""
    curves, glorot, wall = (Curves(arrays, prefix) for prefix in ("", "glorot_", "wall_"))
    where, ours = "[BLH18] Figure 1D", "natgrad"

    def lead(
        id: str, method: str, how: str, found: Numbers, source: str, bound: float = 1.0,
        *, expected: bool = True,
    ) -> Claim:  # fmt: skip
        factor = "" if bound == 1 else f"{bound:g} times "
        return Claim(
            id=id,
            statement=f"{WORDS[method]} reaches the test error that SGD has after {config.passes} "
            f"epochs, {factor}{how} (smallest ratio over seeds)",
            source=source,
            relation=">",
            bound=bound,
            expected=expected,
            **over_seeds(found, "min"),
        )

    times = "sooner in seconds"
    all_cores = f"{times} on the machine's {int(arrays['cores'])} cores"
    one, start = f"{times} of one core", f"{times} of one core, from Glorot's weights"
    examples = "with fewer examples"
    p, k, d = PUBLISHED, KNOWN, DEFAULT
    return [
        lead("examples", p, examples, curves.fewer(p), f"{where}, top"),
        lead("published", p, all_cores, wall.sooner(p), f"{where}, bottom"),
        lead("published-core", p, one, curves.sooner(p), f"{where}, bottom"),
        lead("published-glorot", p, start, glorot.sooner(p), f"{where}, bottom"),
        lead("published-4", p, one, curves.sooner(p), ours, _FOURFOLD, expected=False),
        lead("known-core", k, one, curves.sooner(k), ours, _FOURFOLD),
        lead("known-glorot", k, start, glorot.sooner(k), ours, _FOURFOLD),
        lead("default", d, all_cores, wall.sooner(d), ours, _TWENTYFOLD),
        lead("default-core", d, one, curves.sooner(d), ours, _TWENTYFOLD, expected=False),
        lead("default-glorot", d, start, glorot.sooner(d), ours, _TWENTYFOLD),
        Claim(
            id="end",
            statement=f"{WORDS[DEFAULT]} ends below SGD (ratio of test errors, largest over seeds)",
            source="natgrad",
            relation="<",
            bound=1.0,
            presets=PRESETS,
            **over_seeds(curves.last(DEFAULT) / curves.last("SGD"), "max"),
        ),
        Claim(
            id="rate",
            statement="the best rate for SGD in the grid is the published one (ratio)",
            source=f"{where}, caption",
            value=float(arrays["rate"][0]) / _PUBLISHED_RATE,
            relation="within",
            bound=(0.99, 1.01),
        ),
    ]


def departures(config: Autoencoder, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and where our numbers differ from the paper's text."""
    curves = Curves(arrays)
    pixels = 784 if bool(arrays["mnist"]) else 64
    sizes = "–".join(str(size) for size in widths(config.hidden, pixels))
    tuned = zip(arrays.coordinates["first_order"], arrays["rate"], strict=True)
    rates = ", ".join(f"{name} {rate:g}" for name, rate in tuned)
    found = []
    if not bool(arrays["mnist"]):
        why = "" if config.data == "digits" else " because MNIST was not available"
        found.append(f"The images are the 8×8 digits of scikit-learn{why}, and the layers {sizes}.")
    elif config.examples is not None:
        found.append(f"Of MNIST's training images the first {config.examples} are used.")
    first = [f"{name} {np.median(curves.last(name)):.5f}" for name in curves.names]
    found += [
        "The paper prints no initialization. Weights are uniform in ±1/√fan-in, PyTorch's choice "
        "for linear layers, and biases are zero. From there the best rate for SGD in the grid "
        f"after {config.tuning_passes} epoch is {arrays['rate'][0]:g} (printed: 0.04). From "
        "Gaussian weights of variance 1/fan-in, or from Glorot's, 0.04 diverges.",
        "The loss is ½|y − f|² summed over pixels and averaged over images. The error shown is the "
        "mean squared error per pixel on the test images.",
        f"Every first-order method was tuned with {len(config.sgd_rates)} rates × "
        f"{config.tuning_passes} epoch on five sixths of the training images and validated on the "
        f"rest: {rates}. Momentum and Adam run with M = {config.large_batch}, where they are "
        f"faster. Eq. 20 runs with M = {config.published_batch} as in the paper and was not tuned. "
        f"“NGD default” is NGD(model, criterion, step_length=Quadratic(), "
        "factors=Factors(block=None, rows=None, memory=750)), the default of version 0.1. "
        f"It runs with M = {config.default_batch}, for MNIST the best of "
        "250, 350, 500, 750 and 1000 on held-out images.",
        "Seconds of the curves are CPU time of training steps on one thread; the methods take "
        "turns in one process. First-order methods use PyTorch's fused kernels. "
        + _clock(config, arrays),
        "Eq. 20 as published samples every error factor, as §5 says. “Known output” is ours: it "
        "takes the error factor of the last layer from the likelihood.",
        f"Test errors at the end (median): {', '.join(first)}.",
    ]
    glorot = Curves(arrays, "glorot_")
    for each, start, rate in (
        (curves, "these weights", arrays["rate"][0]),
        (glorot, "Glorot's weights", config.glorot_rate),
    ):
        met = "; ".join(_met(each, method) for method in WORDS)
        lowest = np.median(np.nanmin(each.test[:, 0], axis=1))
        found.append(
            f"From {start} SGD at {rate:g} ends at {np.median(each.mark):.5f} (its lowest error "
            f"was {lowest:.5f}). In seconds of one core, {met}."
        )
    if bool(arrays["mnist"]) and config.examples is None:
        found.append(
            f"On one core NGD is {_TWENTYFOLD:g} times faster only than SGD at the rate that is "
            "stable from Glorot's weights. From a start where the printed 0.04 is stable, SGD "
            "gets four times as far in 20 epochs. Its last error is then lower, and natural "
            "gradients need nearly twice as many steps to reach it."
        )
    return found


def _met(curves: Curves, method: str) -> str:
    """Return a phrase: how much faster a method reaches the mark, or that it does not."""
    lead = curves.sooner(method)
    missed = int((lead == 0).sum())
    if missed:
        return f"{WORDS[method]} does not reach it in {missed} of {len(lead)} runs"
    return f"{WORDS[method]} reaches it at least {lead.min():.1f} times faster"


def _clock(config: Autoencoder, arrays: Arrays) -> str:
    """Return a sentence on the wall-clock time of each method's steps."""
    curves = Curves(arrays, "wall_")
    batches = {
        "SGD": config.batch,
        PUBLISHED: config.published_batch,
        DEFAULT: config.default_batch,
    }
    each = []
    for at, name in enumerate(curves.names):
        last = curves.points(name) - 1
        steps = curves.examples[at, last] / batches[name]
        cost = 1e3 * np.median(curves.spent[:, at, last]) / steps
        threads = "/".join(str(n) for n in sorted(set(arrays["wall_threads"][:, at].tolist())))
        each.append(f"{name} {cost:.1f} ms ({threads})")
    return (
        f"Ratios on all cores come from separate runs timed by the wall clock, alone on the "
        f"machine's {int(arrays['cores'])} cores, without evaluation. Each method has one thread "
        "or all, whichever was faster in an earlier trial. A step took (threads in brackets): "
        f"{', '.join(each)}."
    )
