"""Completing a matrix as an experiment: tune on held-out entries, judge on others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from natgrad._checks import choice, integer, number, numbers, refuse_unknown
from natgrad.diagnostics import effective_rank
from natgrad.errors import InvalidInputError
from natgrad.experiments._arguments import DEEPEST, integers
from natgrad.experiments.complete import cells
from natgrad.experiments.complete.fitting import Centring
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import Experiment, Preset, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (
    "deep product",
    "nuclear norm",
    "plain factorisation",
    "row and column means",
    "overall mean",
)
_PLAIN_SCALE = 1e-3
_LARGEST_SCALE = 1e3  # products of larger factors overflow in single precision
_FEWEST = 10  # gradients; with fewer, no flow has taken a step


@dataclass(frozen=True, kw_only=True)
class Complete:
    """How to complete a table of (row, column, value)."""

    data: cells.Data
    """The table, the test entries, and the share that is held out."""
    centring: Centring = "mean"
    """What to subtract before fitting: nothing, the overall mean, or row and column means."""
    depths: tuple[int, ...] = (2, 3)
    """Numbers of factors to choose from."""
    scales: tuple[float, ...] = (1e-1, 1e-3, 1e-6)
    """Initial scales to choose from."""
    hidden: int = 64
    """Width between factors: the highest rank there is to find."""
    ranks: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 21)
    """Ranks to choose from for plain factorisation UV."""
    max_evaluations: int = 3000
    """Gradients after which a fit ends."""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        checked = {
            "centring": choice(self.centring, "centring", get_args(Centring)),
            # Depth 1 leaves every unobserved entry alone.
            "depths": integers(self.depths, "depths", low=2, high=DEEPEST),
            "scales": scales(self.scales),
            "hidden": integer(self.hidden, "hidden", low=1),
            "ranks": integers(self.ranks, "ranks", low=1),
            "max_evaluations": integer(self.max_evaluations, "max_evaluations", low=_FEWEST),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


OPTIONS = tuple(field.name for field in fields(Complete) if field.name != "data")


def scales(values: Any) -> tuple[float, ...]:
    """Return initial scales as numbers.

    Raises:
        InvalidInputError: If there are none, or one is not positive or too large.
    """
    if not numbers(values, "scales"):
        raise InvalidInputError("scales must be given, but there are none.")
    return tuple(
        number(value, "each of scales", low=0, low_open=True, high=_LARGEST_SCALE)
        for value in values
    )


def presets(data: cells.Data, **options: Any) -> Mapping[Preset, Complete]:
    """Return a config for each preset."""
    sizes: dict[Preset, dict[str, Any]] = {
        "smoke": {"scales": (1e-3,), "ranks": (2, 5), "max_evaluations": 500},
        "quick": {},
        "paper": {"depths": (2, 3, 4), "scales": (1.0, 1e-1, 1e-2, 1e-3, 1e-6)},
    }
    refuse_unknown(options, OPTIONS, "complete")
    return {name: Complete(data=data, **(size | options)) for name, size in sizes.items()}


def experiment(data: cells.Data, **options: Any) -> Experiment[Complete]:
    """Return the experiment for a table."""
    stem = Path(data.path).stem if data.path else "table"
    return Experiment(
        name=f"complete/{stem}",
        title=f"Completing {stem}: a deep product against nuclear norm, plain factors and means",
        source="natgrad complete",
        presets=presets(data, **options),
        minutes={"smoke": 0.1, "quick": 1.0, "paper": 3.0},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=lambda config, arrays: cells.load(config.data).notes,
    )


def compute(config: Complete, sweep: Sweep, given: cells.Loaded | None = None) -> Arrays:
    """Choose on validation entries, refit on all but the test entries, judge on those.

    Args:
        config: How to complete.
        sweep: Where cells run.
        given: The table, if it lies in memory; else it is read from the file of the config.
    """
    asking = _Asking(config, given)
    deep = [(depth, scale) for depth in config.depths for scale in config.scales]
    asked = [
        *(asking.product("tune", depth, scale, config.hidden) for depth, scale in deep),
        *(asking.product("tune", 2, _PLAIN_SCALE, rank) for rank in config.ranks),
        asking.nuclear("tune", None),
    ]
    tuned = sweep(asked, "tuning")
    of_deep, of_plain = tuned[: len(deep)], tuned[len(deep) : -1]
    best = _best(of_deep)
    rank = _best(of_plain)
    depth, scale = deep[best]
    final = [
        asking.product("test", depth, scale, config.hidden, _work(of_deep[best])),
        asking.nuclear("test", float(tuned[-1]["penalty"])),
        asking.product("test", 2, _PLAIN_SCALE, config.ranks[rank], _work(of_plain[rank])),
        asking.means("means"),
        asking.means("mean"),
    ]
    judged = sweep(final, "testing")
    values = np.asarray(judged[0]["values"])
    arrays = Arrays(
        method=METHODS,
        depth=config.depths,
        scale=config.scales,
        rank=config.ranks,
        axis=["time", "error"],
    )
    arrays.add("test_error", np.stack([result["error"] for result in judged]), "method")
    shape = (len(config.depths), len(config.scales))
    errors = np.stack([result["error"] for result in of_deep]).reshape(shape)
    arrays.add("validation_error", errors, "depth", "scale")
    curves = np.stack([result["curve"] for result in of_deep]).reshape(*shape, 2, -1)
    arrays.add("validation_curve", curves, "depth", "scale", "axis", "point")
    plain = np.stack([result["error"] for result in of_plain])
    arrays.add("validation_error_plain", plain, "rank")
    arrays.add("chosen_depth", depth)
    arrays.add("chosen_scale", scale)
    arrays.add("chosen_rank", config.ranks[rank])
    arrays.add("chosen_penalty", tuned[-1]["penalty"])
    arrays.add("work", _work(of_deep[best]))
    arrays.add("singular_values", values, "value")
    arrays.add("effective_rank", float(effective_rank(torch.diag(torch.from_numpy(values)))))
    return arrays


def _best(results: Sequence[Result]) -> int:
    return int(np.argmin([float(result["error"]) for result in results]))


def _work(result: Result) -> float:
    """Return time × entries at which the fit was best."""
    return float(result["work"])


class _Asking:
    """The cells of one table: read here once, so that a worker is not the first to refuse it."""

    def __init__(self, config: Complete, given: cells.Loaded | None) -> None:
        self._config, self._given = config, given
        self._loaded = given or cells.load(config.data)

    def product(
        self, part: cells.Part, depth: int, scale: float, hidden: int, work: float = math.inf
    ) -> Cell:
        until = work if math.isinf(work) else work / len(self._loaded.part(part))
        config = cells.ProductConfig(
            data=self._config.data,
            part=part,
            centring=self._config.centring,
            depth=depth,
            scale=scale,
            hidden=hidden,
            until=until,
            max_evaluations=self._config.max_evaluations,
        )
        label = f"{part}: L={depth}, α={scale:g}, width {hidden}"
        return Cell(cells.product, config, label, self._given)

    def nuclear(self, part: cells.Part, penalty: float | None) -> Cell:
        config = cells.NuclearConfig(
            data=self._config.data,
            part=part,
            centring=self._config.centring,
            width=self._config.hidden,
            penalty=penalty,
        )
        return Cell(cells.nuclear, config, f"{part}: nuclear norm", self._given)

    def means(self, centring: Centring) -> Cell:
        config = cells.MeansConfig(data=self._config.data, part="test", centring=centring)
        return Cell(cells.means, config, f"test: {centring}", self._given)


def completed_matrix(
    config: Complete, arrays: Arrays, sweep: Sweep, given: cells.Loaded | None = None
) -> np.ndarray:
    """Return the matrix completed by the chosen product, fitted to all entries."""
    asking = _Asking(config, given)
    depth, scale = int(arrays["chosen_depth"]), float(arrays["chosen_scale"])
    cell = asking.product("all", depth, scale, config.hidden, float(arrays["work"]))
    (result,) = sweep([cell], "completing")
    return np.asarray(result["matrix"])


def claims(config: Complete, arrays: Arrays) -> Sequence[Claim]:
    """Return the test error beside each other method's; your data decide, nothing is judged."""
    errors = arrays["test_error"]
    many = len(cells.load(config.data).test)
    return [
        Claim(
            id=f"against-{name.replace(' ', '-')}",
            statement=f"root mean squared error of the deep product over that of {name}",
            source="natgrad complete",
            value=float(errors[0] / errors[k]),
            relation="<=",
            bound=1.0,
            n=many,
            presets=(),
        )
        for k, name in enumerate(METHODS[1:], 1)
    ]


def draw(config: Complete, arrays: Arrays) -> "Figure":
    """Return errors, held-out curves and singular values."""
    from natgrad.experiments.complete.picture import picture

    return picture(arrays)
