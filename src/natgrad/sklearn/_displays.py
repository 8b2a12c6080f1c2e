"""Pictures of fitted estimators, in the style of scikit-learn's displays."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad._checks import integer
from natgrad._show import axes_or_new
from natgrad.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

_COLORS = ("#2072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B", "#B8860B")
_MARKERS = "osD^vPX*"


class SeparatorDisplay:
    """Rows of a table and regions of a linear classifier, in the two most telling directions.

    With two features these are the features. With more, the directions span the differences of the
    classes' normals; for two classes the second direction is the one along which the rows vary most
    beside the normal. Regions are those of the plane through the mean of the rows.

    Args:
        plane: Coordinates of the rows, `(n, 2)`.
        labels: Class of each row, as an index.
        names: Names of the classes.
        axes_names: Names of the two directions.
        regions: Class at each point of a grid, `(g, g)`, and the grid's limits.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from natgrad.sklearn import SeparatorClassifier
        >>> x, y = load_iris(return_X_y=True)
        >>> model = SeparatorClassifier("ℓ2 max margin").fit(x[:100], y[:100])
        >>> axes = SeparatorDisplay.from_estimator(model, x[:100], y[:100])
        >>> axes.get_xlabel()
        'along the normal'
    """

    def __init__(
        self,
        plane: Floats,
        labels: npt.NDArray[np.int64],
        names: list[str],
        axes_names: tuple[str, str],
        regions: tuple[npt.NDArray[np.int64], tuple[float, float, float, float]],
    ) -> None:
        self.plane = plane
        self.labels = labels
        self.names = names
        self.axes_names = axes_names
        self.regions = regions

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: "Axes | None" = None, resolution: int = 300
    ) -> "Axes":
        """Draw a fitted linear classifier, and return the axes.

        Args:
            estimator: A fitted classifier with `coef_` and `intercept_`, such as
                `SeparatorClassifier`.
            X: Features, `(n, d)`.
            y: Labels, `(n,)`.
            ax: Axes to draw on; by default new ones.
            resolution: Points of the grid on each side.

        Raises:
            InvalidInputError: If the estimator is not linear, or a label is unknown to it.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "coef_"):
            raise InvalidInputError(
                "SeparatorDisplay draws linear classifiers, which have coef_, but "
                f"{type(estimator).__name__} has none."
            )
        resolution = integer(resolution, "resolution", low=2)
        table = np.asarray(validate_data(estimator, X, dtype=np.float64, reset=False))
        names = getattr(estimator, "feature_names_in_", None)
        y = np.asarray(y)
        labels = np.searchsorted(estimator.classes_, y)
        labels = np.minimum(labels, len(estimator.classes_) - 1)
        if not (estimator.classes_[labels] == y).all():
            raise InvalidInputError("y has a label that the classifier does not know.")
        middle, scale = table.mean(0), np.where(table.std(0) > 0, table.std(0), 1.0)
        basis, axes_names = _directions((table - middle) / scale, estimator.coef_ * scale, names)
        if table.shape[1] == 2:  # the features themselves, in their unit
            middle, scale = np.zeros(2), np.ones(2)
        plane = (table - middle) / scale @ basis
        low, high = plane.min(0), plane.max(0)
        pad = 0.08 * np.maximum(high - low, 1e-12)
        a, b = (np.linspace(low[k] - pad[k], high[k] + pad[k], resolution) for k in range(2))
        grid = np.stack(np.meshgrid(a, b), -1).reshape(-1, 2) @ basis.T * scale + middle
        scores = grid @ estimator.coef_.T + estimator.intercept_
        inside = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(1)
        regions = (inside.reshape(resolution, resolution), (a[0], a[-1], b[0], b[-1]))
        found = cls(plane, labels, [str(c) for c in estimator.classes_], axes_names, regions)
        return found.plot(ax=ax)

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw on axes, and return them.

        Args:
            ax: Axes; by default new ones.
        """
        from matplotlib.colors import ListedColormap

        ax = axes_or_new(ax)
        many = len(self.names)
        colors = [_COLORS[k % len(_COLORS)] for k in range(many)]
        inside, limits = self.regions
        ax.imshow(
            inside,
            extent=limits,
            origin="lower",
            aspect="auto",
            cmap=ListedColormap(colors),
            vmin=-0.5,
            vmax=many - 0.5,
            alpha=0.15,
            interpolation="nearest",
        )
        for k, name in enumerate(self.names):
            here = self.plane[self.labels == k]
            ax.scatter(
                here[:, 0],
                here[:, 1],
                s=18,
                marker=_MARKERS[k % len(_MARKERS)],
                color=colors[k],
                edgecolor="white",
                linewidth=0.4,
                label=name,
            )
        ax.set_xlabel(self.axes_names[0])
        ax.set_ylabel(self.axes_names[1])
        ax.legend(title="class", fontsize=8)
        ax.grid(visible=False)
        return ax


def _directions(table: Floats, coef: Floats, names: Any) -> tuple[Floats, tuple[str, str]]:
    """Return two orthonormal directions of standardized features, `(d, 2)`, and their names."""
    d = table.shape[1]
    if d == 2:
        shown = ("feature 1", "feature 2") if names is None else (str(names[0]), str(names[1]))
        return np.eye(2), shown
    if d == 1:
        raise InvalidInputError("there is only one feature, and a plane needs two.")
    if len(coef) > 1:
        _, _, v = np.linalg.svd(coef - coef.mean(0), full_matrices=False)
        return v[:2].T, ("between classes, first direction", "second direction")
    normal = coef[0] / max(float(np.linalg.norm(coef[0])), 1e-300)
    rest = table - np.outer(table @ normal, normal)
    _, _, v = np.linalg.svd(rest, full_matrices=False)
    return np.stack([normal, v[0]], 1), ("along the normal", "largest variation beside it")


class HeldOutDisplay:
    """Losses on held-out folds along the training of `NGDClassifier` or `NGDRegressor`.

    Args:
        curves: Loss before the first step and after each evaluation, for each network.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from natgrad.sklearn import NGDClassifier
        >>> model = NGDClassifier(random_state=0).fit(*load_wine(return_X_y=True))
        >>> axes = HeldOutDisplay.from_estimator(model)
        >>> len(axes.lines) == 2 * len(model.networks_)  # curves, and where they stop
        True
    """

    def __init__(self, curves: list[Floats]) -> None:
        self.curves = curves

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the curves of a fitted estimator, and return the axes.

        Args:
            estimator: A fitted `NGDClassifier` or `NGDRegressor`.
            ax: Axes to draw on; by default new ones.

        Raises:
            InvalidInputError: If nothing was held out.
        """
        check_is_fitted(estimator)
        curves = [curve for curve in getattr(estimator, "validation_curves_", []) if len(curve)]
        if not curves:
            raise InvalidInputError(
                "no rows were held out in this fit: the table is small, early_stopping is False, "
                "or partial_fit was used."
            )
        return cls(curves).plot(ax=ax)

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw on axes, and return them.

        Args:
            ax: Axes; by default new ones.
        """
        ax = axes_or_new(ax)
        for k, curve in enumerate(self.curves):
            color, best = _COLORS[k % len(_COLORS)], int(curve.argmin())
            ax.plot(np.arange(len(curve)), curve, color=color, label=f"network {k + 1}")
            ax.plot([best], [curve[best]], marker="o", color=color, linestyle="none")
        ax.set_yscale("log")
        ax.set_xlabel("evaluation of the held-out fold")
        ax.set_ylabel("loss on the held-out fold")
        ax.legend(fontsize=8)
        return ax
