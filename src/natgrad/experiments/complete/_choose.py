"""Choose settings on held-out entries, average over folds and centers, and test the average."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from natgrad.diagnostics import effective_rank
from natgrad.experiments.complete import _cells as cells
from natgrad.experiments.complete._tables import Loaded, Part, load
from natgrad.experiments.complete.config import Centering, Complete
from natgrad.experiments.complete.result import METHODS, SHARES
from natgrad.fits import LowRankModel
from natgrad.fits._averaged import average
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

_PLAIN_SCALE = 1e-3
_FOLDS = 10
_AVERAGED = 4_000_000  # entries fitted in an average; larger tables have fewer members
_OUT = 1.2  # a center whose validation error is this many times the best is discarded
_NEARLY = 1.03  # in large tables, errors up to this many times the best are as good
_LEAST = 0.05  # smaller weights are set to zero


class Once:
    """A sweep that runs equal cells once."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._known: dict[tuple[str, object], Result] = {}

    def __call__(self, cells: Sequence[Cell], title: str = "") -> list[Result]:
        """Return one result per cell."""
        keys = [(cell.name, cell.config) for cell in cells]
        new = {key: cell for key, cell in zip(keys, cells, strict=True) if key not in self._known}
        self._known |= zip(new, self._sweep(list(new.values()), title), strict=True)
        return [self._known[key] for key in keys]


@dataclass(frozen=True)
class _Setting:
    """Settings of one average."""

    center: Centering
    depth: int
    scale: float


def compute(config: Complete, sweep: Sweep, given: Loaded | None = None) -> Arrays:
    """Choose settings on validation entries, fit without the test entries, test on those.

    All settings race on one validation part. Only the best of each center is averaged over folds,
    and predictions at the folds decide the weights of the centers.

    Args:
        config: How to complete.
        sweep: Runs the cells.
        given: The table, if it is in memory; else it is read from the config's file.
    """
    asking = _Asking(config, given)
    shape = (len(config.centers), len(config.depths), len(config.scales))
    deep = [
        _Setting(center, depth, scale)
        for center in config.centers
        for depth in config.depths
        for scale in config.scales
    ]
    plain = [(center, rank) for center in config.centers for rank in config.ranks]
    asked = [
        *(asking.product("race", s.center, s.depth, s.scale, config.hidden) for s in deep),
        *(asking.product("race", center, 2, _PLAIN_SCALE, rank) for center, rank in plain),
        *(asking.nuclear("race", center, None) for center in config.centers),
    ]
    raced = sweep(asked, "tuning")
    of_deep, of_plain = raced[: len(deep)], raced[len(deep) : len(deep) + len(plain)]
    of_nuclear = raced[len(deep) + len(plain) :]
    errors = _errors(of_deep).reshape(shape)
    settings = _settings(deep, of_deep, errors, large=asking.raced_on_a_block)
    averaged = _Averaged(asking, settings, sweep, "test")
    judged = _peers(
        asking,
        sweep,
        (*plain[int(_errors(of_plain).argmin())], of_plain[int(_errors(of_plain).argmin())]),
        (
            config.centers[int(_errors(of_nuclear).argmin())],
            of_nuclear[int(_errors(of_nuclear).argmin())],
        ),
    )
    error = cells.error(averaged.model.predict, asking.loaded, "test", config.how)
    main = int(np.argmax(averaged.weights))
    values = averaged.model.singular_values().numpy()
    best = config.centers.index(settings[main].center)
    arrays = Arrays(
        method=METHODS,
        center=config.centers,
        depth=config.depths,
        scale=config.scales,
        rank=config.ranks,
        axis=["time", "error"],
    )
    arrays.add("test_error", np.array([error, *judged]), "method")
    arrays.add("validation_error", errors[best], "depth", "scale")
    arrays.add("validation_error_by_center", errors, "center", "depth", "scale")
    curves = np.stack([result["curve"] for result in of_deep]).reshape(*shape, 2, -1)
    arrays.add("validation_curve", curves[best], "depth", "scale", "axis", "point")
    ranks = _errors(of_plain).reshape(len(config.centers), -1)
    arrays.add("validation_error_plain", ranks.min(0), "rank")
    arrays.add("fold_error", averaged.fold_errors(), "fold")
    arrays.add("residual_quantile", averaged.residual_quantiles(), "share")
    by_center = {s.center: (w, s) for w, s in zip(averaged.weights, settings, strict=True)}
    none = (0.0, settings[main])
    found = [by_center.get(center, none) for center in config.centers]
    arrays.add("center_weight", np.array([weight for weight, _ in found]), "center")
    arrays.add("center_depth", np.array([s.depth for _, s in found]), "center")
    arrays.add("center_scale", np.array([s.scale for _, s in found]), "center")
    arrays.add("chosen_depth", settings[main].depth)
    arrays.add("chosen_scale", settings[main].scale)
    arrays.add("chosen_rank", plain[int(_errors(of_plain).argmin())][1])
    arrays.add("singular_values", values, "value")
    arrays.add("effective_rank", float(effective_rank(torch.diag(torch.from_numpy(values)))))
    return arrays


def _settings(
    deep: Sequence[_Setting],
    raced: Sequence[Result],
    errors: npt.NDArray[np.float64],
    *,
    large: bool,
) -> list[_Setting]:
    """Return the settings to average: the best of each center, or a cheap good one if it is large.

    Large tables have many entries per row, so settings differ less on them than on the block on
    which they raced, but a fit costs many times as much.
    """
    if large:
        gradients = np.array([float(result["evaluations"]) for result in raced])
        good = errors.ravel() <= _NEARLY * errors.min()
        return [deep[int(np.where(good, gradients, np.inf).argmin())]]
    return [
        deep[k * errors[0].size + int(errors[k].argmin())]
        for k in range(len(errors))
        if errors[k].min() <= _OUT * errors.min()
    ]


def _errors(results: Sequence[Result]) -> npt.NDArray[np.float64]:
    return np.array([float(result["error"]) for result in results])


class _Averaged:
    """Averages over folds, one for each setting, combined by weights.

    Args:
        asking: Makes cells.
        settings: Settings of the averages.
        sweep: Runs the cells.
        part: Which entries are fitted.
        weights: Weights of the settings; by default those that predict the folds best.
    """

    def __init__(
        self,
        asking: "_Asking",
        settings: Sequence[_Setting],
        sweep: Sweep,
        part: Part,
        weights: Sequence[float] | None = None,
    ) -> None:
        found = sweep([asking.averaged(part, s) for s in settings], "averaging")
        entries, loaded = asking.loaded.part(part), asking.loaded
        self._target = entries.values[torch.from_numpy(np.array(found[0]["index"]))]
        self._predicted = [
            cells.clipped(torch.from_numpy(np.array(one["held_out"])), loaded, asking.how)
            for one in found
        ]
        self._members = asking.members(len(entries))
        self.weights = self._best_weights() if weights is None else list(weights)
        self.model: LowRankModel = average(list(map(cells.model_of, found)), self.weights, entries)

    def _best_weights(self) -> list[float]:
        """Return weights that sum to one, with the least squared error at held-out entries."""
        if len(self._predicted) == 1:
            return [1.0]
        a, b = self._predicted
        size = float((a - b).square().sum())
        share = 0.5 if size == 0 else float((self._target - b) @ (a - b)) / size
        share = 0.0 if share < _LEAST else 1.0 if share > 1 - _LEAST else share
        return [share, 1 - share]

    def fold_errors(self) -> npt.NDArray[np.float64]:
        """Return the root mean squared error on each fold, by the products that did not see it."""
        gap = self._gaps()
        parts = gap.tensor_split(min(self._members, len(gap)))
        return np.array([math.sqrt(float(part.square().mean())) for part in parts])

    def residual_quantiles(self) -> npt.NDArray[np.float64]:
        """Return quantiles of value − prediction at entries of the folds, at equal steps."""
        found: npt.NDArray[np.float64] = np.quantile(-self._gaps().numpy(), SHARES)
        return found

    def _gaps(self) -> torch.Tensor:
        pairs = zip(self._predicted, self.weights, strict=True)
        return torch.stack([w * p for p, w in pairs]).sum(0) - self._target


def _peers(
    asking: "_Asking",
    sweep: Sweep,
    plain: tuple[Centering, int, Result],
    nuclear: tuple[Centering, Result],
) -> list[float]:
    """Return the test errors of the nuclear norm, of plain factorization and of means."""
    (center, rank, of_plain), (middle, of_nuclear) = plain, nuclear
    if asking.raced_on_a_block:  # stopping times and penalties belong to the whole table
        again = [
            asking.product("tune", center, 2, _PLAIN_SCALE, rank),
            asking.nuclear("tune", middle, None),
        ]
        of_plain, of_nuclear = sweep(again, "tuning")
    final = [
        asking.nuclear("test", middle, float(of_nuclear["penalty"])),
        asking.product("test", center, 2, _PLAIN_SCALE, rank, float(of_plain["work"])),
        asking.means("means"),
        asking.means("mean"),
    ]
    return [float(result["error"]) for result in sweep(final, "testing")]


class _Asking:
    """Makes the cells of one table, and refuses a bad table before any cell runs."""

    def __init__(self, config: Complete, given: Loaded | None) -> None:
        self._config, self._given = config, given
        self.how, self.loaded = config.how, given or load(config.data, config.how)

    @property
    def raced_on_a_block(self) -> bool:
        return self.loaded.race[0] is not self.loaded.train

    @staticmethod
    def members(entries: int) -> int:
        """Return the number of products in an average, as many as there are folds or fewer."""
        return max(2, min(_FOLDS, _AVERAGED // entries))

    def product(
        self,
        part: Part,
        center: Centering,
        depth: int,
        scale: float,
        hidden: int,
        work: float = math.inf,
    ) -> Cell:
        until = work if math.isinf(work) else work / len(self.loaded.part(part))
        config = cells.ProductConfig(
            data=self._config.data,
            how=self.how,
            part=part,
            center=center,
            depth=depth,
            scale=scale,
            hidden=hidden,
            until=until,
            max_evaluations=self._config.max_evaluations,
        )
        label = f"{part}: {center}, L={depth}, α={scale:g}, width {hidden}"
        return Cell(cells.product, config, label, self._given)

    def averaged(self, part: Part, setting: _Setting) -> Cell:
        config = cells.AveragedConfig(
            data=self._config.data,
            how=self.how,
            part=part,
            center=setting.center,
            depth=setting.depth,
            scale=setting.scale,
            hidden=self._config.hidden,
            members=self.members(len(self.loaded.part(part))),
            max_evaluations=self._config.max_evaluations,
        )
        label = f"{part}: {setting.center}, L={setting.depth}, α={setting.scale:g}, over folds"
        return Cell(cells.averaged, config, label, self._given)

    def nuclear(self, part: Part, center: Centering, penalty: float | None) -> Cell:
        config = cells.NuclearConfig(
            data=self._config.data,
            how=self.how,
            part=part,
            center=center,
            width=self._config.hidden,
            penalty=penalty,
        )
        return Cell(cells.nuclear, config, f"{part}: nuclear norm, {center}", self._given)

    def means(self, center: Centering) -> Cell:
        config = cells.MeansConfig(data=self._config.data, how=self.how, part="test", center=center)
        return Cell(cells.means, config, f"test: {center}", self._given)


def completed_matrix(
    config: Complete, arrays: Arrays, sweep: Sweep, given: Loaded | None = None
) -> npt.NDArray[np.float32]:
    """Return the matrix completed by the chosen average, fitted to all entries."""
    asking = _Asking(config, given)
    loaded = asking.loaded
    names = ("center_weight", "center_depth", "center_scale")
    weights, depths, scales = (arrays[name].tolist() for name in names)
    used = [k for k, weight in enumerate(weights) if weight > 0]
    settings = [_Setting(config.centers[k], int(depths[k]), float(scales[k])) for k in used]
    # With test entries of their own, the tested average has seen all entries.
    part: Part = "test" if loaded.own_test else "all"
    model = _Averaged(asking, settings, sweep, part, [weights[k] for k in used]).model
    matrix = cells.clipped(model.matrix(), loaded, config.how)
    rows, columns = loaded.triples.positions.unbind(1)
    matrix[rows, columns] = loaded.triples.values.float()
    return matrix.numpy()
