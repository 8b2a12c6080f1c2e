"""[KMH21] Figure 1: gradient descent depends on the parametrization, natural gradients do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from natgrad.experiments.kmh21 import fig1_cells as cells
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACES: tuple[cells.Space, ...] = ("direct", "diagonal")
METHODS: tuple[cells.Method, ...] = ("EGD", "NGD")


@dataclass(frozen=True, kw_only=True)
class Fig1:
    """One observation of two coefficients, learnt in two parametrizations."""

    correlation: float = 0.7
    """Correlation of the inputs over which the Fisher is averaged. Our choice."""
    until: float = 12.0
    """Final time of the flows."""
    points: int = 121
    """Points drawn along a path."""
    step: float = 0.02
    """Length of the steps of the discrete paths; the next is half as long."""


def compute(config: Fig1, sweep: Sweep) -> Arrays:
    """Return paths in both parameter spaces, and their images in hypothesis space."""
    pairs = [(space, method) for space in SPACES for method in METHODS]

    def cell(space: cells.Space, method: cells.Method, step: float = 0.0) -> Cell:
        until = config.until if step == 0 else 1.0
        given = cells.Path(space, method, config.correlation, until, config.points, step)
        return Cell(cells.path, given, f"{method} in {space} parameters, step {step:g}")

    steps = (config.step, config.step / 2)
    flows = sweep([cell(*pair) for pair in pairs], "paths")
    finite = sweep([cell(s, "NGD", h) for h in steps for s in SPACES], "finite steps")
    arrays = Arrays(
        space=list(SPACES),
        method=list(METHODS),
        time=np.linspace(0, config.until, config.points),
        coordinate=[1, 2],
        step=steps,
    )
    shape = (len(SPACES), len(METHODS), config.points, 2)
    dims = ("space", "method", "time", "coordinate")
    arrays.add("params", np.stack([f["params"] for f in flows]).reshape(shape), *dims)
    arrays.add("beta", np.stack([f["beta"] for f in flows]).reshape(shape), *dims)
    arrays.add("loss", np.stack([f["loss"] for f in flows]).reshape(shape[:3]), *dims[:3])
    ends = np.stack([f["beta"][-1] for f in finite]).reshape(2, 2, 2)
    arrays.add("finite_end", ends, "step", "space", "coordinate")
    return arrays


def claims(config: Fig1, arrays: Arrays) -> Sequence[Claim]:
    """Return what the paths show."""
    beta, ends = arrays["beta"], arrays["finite_end"]
    gaps = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=-1)
    truth = [cells.euclidean_optimum(space) for space in SPACES]
    off = max(float(np.abs(beta[i, 0, -1] - end).max()) for i, end in enumerate(truth))
    off = max(off, float(np.abs(beta[0, 1, -1] - cells.natural_optimum(config.correlation)).max()))
    return [
        Claim(
            id="egd-differs",
            statement="EGD ends at another optimum in each parametrization (distance in H)",
            source="[KMH21] Figure 1",
            value=float(np.linalg.norm(beta[0, 0, -1] - beta[1, 0, -1])),
            relation=">=",
            bound=0.5,
            presets=PRESETS,
        ),
        Claim(
            id="ngd-agrees",
            statement="the two NGD paths are one path in H (largest distance at any time)",
            source="[KMH21] Figure 1; §2.3, statement",
            value=float(np.linalg.norm(beta[0, 1] - beta[1, 1], axis=-1).max()),
            relation="<=",
            bound=1e-6,
            presets=PRESETS,
        ),
        Claim(
            id="ends-known",
            statement="every path ends where algebra says it must (largest distance)",
            source="natgrad",
            value=off,
            relation="<=",
            bound=1e-4,
            presets=PRESETS,
        ),
        Claim(
            id="finite-steps",
            statement="with finite steps NGD is invariant up to O(η): order of the gap at t = 1",
            source="[KMH21] §1, “approximate invariance”",
            value=float(np.log2(gaps[0] / gaps[1])),
            relation="within",
            bound=(0.9, 1.1),
            presets=PRESETS,
        ),
    ]


def draw(config: Fig1, arrays: Arrays) -> "Figure":
    """Return both parameter spaces and the hypothesis space."""
    from natgrad.experiments.kmh21.fig1_picture import picture

    return picture(arrays)


def departures(config: Fig1, arrays: Arrays) -> Sequence[str]:
    """Return what we chose."""
    return [
        "The paper's Figure 1 is a sketch. Here every path is computed: regression on one "
        "observation, x = (1, ½) and y = 2, whose optima are a line of hypotheses. The Fisher is "
        f"averaged over Gaussian inputs with correlation {config.correlation:g} (our choice): with "
        "the one training input alone it would be singular, and only the training output would "
        "be invariant.",
        "The second parameter space is the diagonal network β = w₁ ⊙ w₂ of the paper, started "
        "with equal layers, which stay equal: one w is drawn.",
    ]


EXPERIMENT = register(
    Experiment(
        name="kmh21/fig1",
        title="EGD finds another optimum in each parametrization, NGD the same",
        source="[KMH21] Figure 1",
        presets={
            "smoke": Fig1(points=31),
            "quick": Fig1(),
            "paper": Fig1(points=401, step=0.01),
        },
        minutes={"smoke": 0.05, "quick": 0.05, "paper": 0.1},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)
