"""Completion of a matrix from (row, column, value) or from a matrix with gaps."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad._checks import flag
from natgrad.errors import InvalidInputError
from natgrad.fits import Entries, fit_averaged
from natgrad.fits.completion import Centering

Floats = npt.NDArray[np.float64]

_REASON = "X holds the labels of row and column, exactly two columns, and not features"
_FAILED = """
check_fit_score_takes_y check_dont_overwrite_parameters check_n_features_in_after_fitting
check_positive_only_tag_during_fit check_estimators_dtypes check_dtype_object
check_pipeline_consistency check_estimators_nan_inf check_estimators_pickle
check_f_contiguous_array_estimator check_regressors_train check_regressor_data_not_an_array
check_regressors_no_decision_function check_supervised_y_2d check_regressors_int
check_methods_sample_order_invariance check_methods_subset_invariance check_fit2d_1sample
check_fit2d_1feature check_dict_unchanged check_fit2d_predict1d
"""
_NO_VALUES = "fit(matrix) completes a matrix with gaps, so y may be left out"


class DeepMatrixCompletion(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict entries of a matrix from others, by an average of deep products of low rank.

    `fit(X, y)` takes one observed entry per line: the labels of its row and column in the two
    columns of `X`, and its value in `y`. `fit(matrix)` takes a matrix whose gaps are NaN, or a
    masked array. `predict(X)` takes labels; for a matrix these are the indices of rows and columns.
    Labels that never occurred are predicted by means.

    The settings are given and not chosen: use `GridSearchCV`, or `natgrad.complete`, which chooses
    them and compares with other methods.

    Args:
        center: What is subtracted first: "means" (row and column effects), "mean" or "none".
        depth: Number of factors, at least two.
        scale: Initial scale of the factors.
        hidden: Width between factors, the highest rank that can be found.
        folds: Folds that stop the flows.
        members: Number of products in the average, at most one per fold.
        clip: Whether predictions are limited to the range of the observed values.
        random_state: Seed of folds and factors.

    Attributes:
        rows_: Labels of the rows.
        columns_: Labels of the columns.
        model_: The fitted `natgrad.fits.LowRankModel`.
        error_: Root mean squared error on entries of the folds, by products that did not see them.
        expected_failed_checks: Checks of scikit-learn's `check_estimator` that cannot pass, with
            reasons.

    Example:
        >>> rows, columns = np.divmod(np.arange(400), 20)
        >>> values = (rows + 1.0) * (columns - 9.5)
        >>> pairs = np.stack([rows, columns], 1)
        >>> seen = (3 * rows + 7 * columns) % 5 < 3
        >>> model = DeepMatrixCompletion(hidden=4, random_state=0).fit(pairs[seen], values[seen])
        >>> bool(model.score(pairs[~seen], values[~seen]) > 0.98)
        True
    """

    expected_failed_checks: Mapping[str, str] = MappingProxyType(
        dict.fromkeys(_FAILED.split(), _REASON) | {"check_requires_y_none": _NO_VALUES}
    )

    def __init__(
        self,
        *,
        center: Centering = "means",
        depth: int = 2,
        scale: float = 1e-3,
        hidden: int = 64,
        folds: int = 10,
        members: int = 10,
        clip: bool = True,
        random_state: Any = None,
    ) -> None:
        self.center = center
        self.depth = depth
        self.scale = scale
        self.hidden = hidden
        self.folds = folds
        self.members = members
        self.clip = clip
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit observed entries.

        Args:
            X: Labels of row and column, `(n, 2)`, if `y` is given; else a matrix with gaps.
            y: Values, `(n,)`.

        Raises:
            InvalidInputError: If there is nothing to complete, or an entry has two values.
        """
        if y is None:
            pairs, values = _from_matrix(X)
        else:
            validate_data(self, X, skip_check_array=True)  # names of the two columns
            pairs, values = _pairs(X), _values(y)
        if len(pairs) != len(values):
            raise InvalidInputError(
                f"there must be one value for each pair of labels, but X has {len(pairs)} lines "
                f"and y {len(values)} values."
            )
        self.n_features_in_ = 2
        self.rows_, i = np.unique(pairs[:, 0], return_inverse=True)
        self.columns_, j = np.unique(pairs[:, 1], return_inverse=True)
        shape = (len(self.rows_), len(self.columns_))
        if len(np.unique(i * shape[1] + j)) < len(values):
            raise InvalidInputError("an entry has two values; average the values of each entry.")
        entries = Entries(
            shape, torch.from_numpy(np.stack([i, j], 1).astype(np.int64)), torch.from_numpy(values)
        )
        fit = fit_averaged(
            entries,
            center=self.center,
            depth=self.depth,
            scale=self.scale,
            hidden=self.hidden,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            folds=self.folds,
            members=self.members,
        )
        self.model_ = fit.model
        self._range = (values.min(), values.max())
        gap = self._clipped(fit.held_out.numpy()) - values[fit.index.numpy()]
        self.error_ = float(np.sqrt(np.mean(gap**2)))
        return self

    def _clipped(self, values: Floats) -> Floats:
        return np.clip(values, *self._range) if flag(self.clip, "clip") else values

    def predict(self, X: Any) -> Floats:
        """Return values of entries, `(n,)`.

        Args:
            X: Labels of row and column, `(n, 2)`.
        """
        check_is_fitted(self)
        pairs = _pairs(X)
        if hasattr(self, "feature_names_in_"):
            validate_data(self, X, skip_check_array=True, reset=False)
        i, j = _places(self.rows_, pairs[:, 0]), _places(self.columns_, pairs[:, 1])
        center = self.model_.center
        rows, columns = center.rows.numpy(), center.columns.numpy()
        found = center.mean + np.where(i < 0, 0.0, rows[i]) + np.where(j < 0, 0.0, columns[j])
        known = (i >= 0) & (j >= 0)
        positions = torch.from_numpy(np.stack([i[known], j[known]], 1))
        found[known] = self.model_.predict(positions).numpy()
        return self._clipped(found)

    def matrix(self) -> Floats:
        """Return all predictions, `(rows, columns)` in the order of `rows_` and `columns_`."""
        check_is_fitted(self)
        return self._clipped(self.model_.matrix().double().numpy())


def _from_matrix(X: Any) -> tuple[npt.NDArray[Any], Floats]:
    """Return positions and values of the observed entries of a matrix.

    Raises:
        InvalidInputError: If it has no gaps, or nothing is observed.
    """
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    matrix = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan")
    pairs = np.argwhere(~np.isnan(matrix))
    if len(pairs) in (0, matrix.size):
        what = "observed" if len(pairs) else "missing"
        raise InvalidInputError(
            f"all entries of the matrix are {what}: there is nothing to complete. If X holds pairs "
            "of labels, give the values as y."
        )
    return pairs, matrix[tuple(pairs.T)]


def _pairs(X: Any) -> npt.NDArray[Any]:
    """Return labels of rows and columns, `(n, 2)`.

    Raises:
        InvalidInputError: If there are not two columns.
    """
    pairs: npt.NDArray[Any] = check_array(X, dtype=None)
    if pairs.shape[1] != 2:
        raise InvalidInputError(
            "X must have two columns, the labels of row and column of each entry, but has "
            f"{pairs.shape[1]}. To complete a matrix with gaps, give it without y."
        )
    return pairs.astype(str) if pairs.dtype == object else pairs


def _values(y: Any) -> Floats:
    found: Floats = check_array(
        column_or_1d(y, warn=True), dtype=np.float64, ensure_2d=False, input_name="y"
    )
    return found


def _places(known: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the position of each label among sorted ones, −1 for others."""
    if known.dtype.kind in "US" and labels.dtype.kind not in "US":
        labels = labels.astype(str)
    place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    found: npt.NDArray[np.int64] = np.where(known[place] == labels, place, -1).astype(np.int64)
    return found
