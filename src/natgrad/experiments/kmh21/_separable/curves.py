"""Curves that Figures 4 and 6 share: accuracy against number of samples, logits, coefficients."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.experiments.kmh21._separable import cells
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result

Key = tuple[Any, ...]
NGD, POPULATION = "NGD", "NGD population"
LOGIT_TIMES = tuple(float(t) for t in np.logspace(-1, 4, 51))


class Sizes(Protocol):
    """The fields that both configs have."""

    @property
    def dim(self) -> int:
        """Number of features."""

    @property
    def ones(self) -> int:
        """Ones in the true separator."""

    @property
    def observations(self) -> tuple[int, ...]:
        """Numbers of samples."""

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths of EGD."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Initial scale of each depth."""

    @property
    def until(self) -> float:
        """Final time."""

    @property
    def seeds(self) -> int:
        """Number of data sets."""

    @property
    def few(self) -> int:
        """N < D of the panels on logits and variants."""


def methods(config: Sizes) -> list[str]:
    """Return the names of the curves, as `lab.figures` knows them."""
    return [*(f"EGD L={depth}" for depth in config.depths), NGD, POPULATION]


def task(config: Sizes, n: int, seed: int) -> cells.Task:
    """Return a data set of these sizes."""
    return cells.Task(n, config.dim, config.ones, seed)


def curve_cells(
    config: Sizes, path: Sequence[int] = (), elsewhere: Sequence[int] = ()
) -> dict[Key, Cell]:
    """Return a cell for each method, number of samples and seed; large cells first, for balance.

    Args:
        config: The sizes.
        path: Numbers of samples, above D, at which natural flow is followed from t = 0.
        elsewhere: Numbers of samples at which EGD is computed by other cells.
    """
    out: dict[Key, Cell] = {}
    for n in sorted(config.observations, reverse=True):
        for seed in range(config.seeds):
            one = task(config, n, seed)
            label = f"N={n}, seed {seed}"
            for depth, scale in zip(config.depths, config.scales, strict=True):
                given, name = cells.Euclidean(one, depth, scale, (config.until,)), f"EGD L={depth}"
                if n not in elsewhere:
                    out[name, n, seed] = Cell(cells.euclidean_flow, given, f"{name}, {label}")
            natural = cells.Natural(one, config.until, n in path and n > config.dim)
            out[NGD, n, seed] = Cell(cells.natural_sample, natural, f"NGD, {label}")
            population = cells.Population(one, config.until)
            out[POPULATION, n, seed] = Cell(cells.natural_population, population, f"NGD, {label}")
    for seed in range(config.seeds):
        given_logits = cells.Logits(task(config, config.few, seed), 2.0, LOGIT_TIMES)
        out["logits", seed] = Cell(cells.logits, given_logits, f"logits, seed {seed}")
    return out


def grid(
    found: Mapping[Key, Result], name: str, *axes: Sequence[Any], last: bool = True
) -> npt.NDArray[np.float64]:
    """Return one quantity for all combinations of the axes' values; NaN where there is none.

    Args:
        found: Results by key.
        name: The quantity.
        axes: The parts of the keys.
        last: Keep only the last number of each result.
    """
    shape = tuple(len(axis) for axis in axes)
    flat = []
    for index in np.ndindex(*shape):
        key = tuple(axis[i] for axis, i in zip(axes, index, strict=True))
        result = found.get(key, {})
        value = np.asarray(result[name], dtype=np.float64) if name in result else np.asarray(np.nan)
        flat.append(value.ravel()[-1] if last else value)
    return np.stack(flat).reshape(*shape, *np.shape(flat[0]))


def curve_arrays(config: Sizes, found: Mapping[Key, Result], **more: Any) -> Arrays:
    """Return the arrays of the first row of panels, with coordinates for the others."""
    seeds = list(range(config.seeds))
    names, many = methods(config), list(config.observations)
    arrays = Arrays(
        method=names,
        n=many,
        seed=seeds,
        feature=list(range(1, config.dim + 1)),
        logit_time=LOGIT_TIMES,
        **more,
    )
    for quantity in ("accuracy", "share", "named", "seconds"):
        values = grid(found, quantity, names, many, seeds)
        arrays.add(quantity if quantity != "seconds" else "cell_seconds", values, "method", "n",
                   "seed")  # fmt: skip
    for quantity in ("ols_cosine", "ols_accuracy", "residual"):
        arrays.add(quantity, grid(found, quantity, [NGD], many, seeds)[0], "n", "seed")
    most = max(many)
    beta = grid(found, "beta", names, [most], [0], last=False)[:, 0, 0]
    scale = np.linalg.norm(beta, axis=1, keepdims=True)
    arrays.add("coefficients", beta / scale, "method", "feature")
    slopes = np.stack([found["logits", seed]["slopes"] for seed in seeds])
    labels = np.stack([found["logits", seed]["labels"] for seed in seeds])
    arrays.add("logit_slopes", slopes[0], "logit_time", "sample")
    arrays.add("logit_labels", labels[0], "sample")
    arrays.add("logit_error", np.abs(slopes[:, -1] - labels).max(axis=1), "seed")
    return arrays


class Table:
    """A quantity of `arrays` by method and number of samples, one number per seed.

    Example:
        >>> arrays = Arrays(method=["NGD"], n=[5])
        >>> arrays.add("accuracy", [[[0.6, 0.7]]], "method", "n", "seed")
        >>> Table(arrays)("NGD", 5).tolist()
        [0.6, 0.7]
    """

    def __init__(self, arrays: Arrays, quantity: str = "accuracy") -> None:
        self._values = arrays[quantity]
        self._methods = arrays.coordinates["method"]
        self.observations: list[int] = arrays.coordinates["n"]

    def __call__(self, method: str, n: int) -> npt.NDArray[np.float64]:
        """Return one number per seed."""
        values: npt.NDArray[np.float64] = self._values[
            self._methods.index(method), self.observations.index(n)
        ]
        return values

    def best_gap(self, method: str, others: Sequence[str], least: int) -> Any:
        """Return the largest, over N ≥ least and others, of mean(method) − mean(other), by seed."""
        gaps = [
            self(method, n) - self(other, n)
            for n in self.observations
            if n >= least
            for other in others
        ]
        return max(gaps, key=lambda gap: float(gap.mean()))
