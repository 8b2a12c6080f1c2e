"""Imputation of tables by an averaged deep product."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad.errors import InvalidInputError
from natgrad.fits import Entries, Scaling, fit_averaged

Floats = npt.NDArray[np.float64]

_FEWEST = 20  # observed values; fewer are imputed by means


class DeepMatrixImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill missing values (NaN) of a table by a deep product of low rank.

    `fit` standardizes the columns and fits the observed values by gradient flow. The flows are
    stopped on held-out values and averaged over folds. `transform` predicts each row from its
    observed values by ridge regression on the directions found; the spread of the training rows
    along each direction sets its penalty. New rows and training rows are treated alike. A column
    without any value in training becomes zero.

    Args:
        depth: Number of factors, at least two.
        scale: Initial scale of the factors.
        hidden: Width between factors, the highest rank that can be found.
        random_state: Seed of the folds and factors.

    Attributes:
        mean_: Mean of the observed values of each column.
        components_: Directions, `(k, d)`, in standardized columns.
        variances_: Variance of the training rows along each.
        noise_: Variance of the remainder, on held-out values.

    Example:
        >>> a = np.outer(np.arange(1.0, 21), [1.0, 2.0, 3.0, -1.0, 0.5])
        >>> gaps = a.copy()
        >>> gaps[3, 1] = gaps[7, 4] = np.nan
        >>> filled = DeepMatrixImputer().fit_transform(gaps)
        >>> bool(abs(filled[3, 1] - a[3, 1]) < 0.5)
        True
    """

    def __init__(
        self, *, depth: int = 2, scale: float = 1e-3, hidden: int = 64, random_state: int = 0
    ) -> None:
        self.depth = depth
        self.scale = scale
        self.hidden = hidden
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "DeepMatrixImputer":
        """Find the directions of a table.

        Args:
            X: Table with NaN where values are missing, `(n, d)`.
            y: Ignored.
        """
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        seen = ~np.isnan(X)
        columns = [X[seen[:, j], j][:, None] for j in range(X.shape[1])]
        scalings = [
            Scaling.of(c, standardize=True, intercept=False) if len(c) else None for c in columns
        ]
        self.mean_ = np.array([0.0 if s is None else s.center[0] for s in scalings])
        self.scale_ = np.array([1.0 if s is None else s.scale[0] for s in scalings])
        self.components_, self.variances_ = np.zeros((0, X.shape[1])), np.zeros(0)
        self.noise_ = 1.0
        if seen.sum() >= _FEWEST:
            self._find_directions((X - self.mean_) / self.scale_, seen)
        return self

    def _find_directions(self, table: Floats, seen: npt.NDArray[np.bool_]) -> None:
        positions, values = torch.from_numpy(np.argwhere(seen)), torch.from_numpy(table[seen])
        entries = Entries((table.shape[0], table.shape[1]), positions, values)
        if float(values.abs().max()) == 0:  # every column is constant
            return
        fit = fit_averaged(
            entries,
            center="none",
            depth=self.depth,
            scale=self.scale,
            hidden=self.hidden,
            seed=self.random_state,
        )
        # Columns are standardized, so the means that the model subtracts are part of the signal.
        matrix = fit.model.matrix().double()
        _, s, v = torch.linalg.svd(matrix, full_matrices=False)
        kept = s > 1e-3 * s[0]
        self.components_ = v[kept].numpy()
        self.variances_ = (s[kept].square() / len(matrix)).numpy()
        gap = fit.held_out - values[fit.index]
        self.noise_ = max(float(gap.square().mean()), 1e-6)

    def transform(self, X: Any) -> Floats:
        """Return the table with its gaps filled.

        Args:
            X: Table with NaN where values are missing, `(n, d)`.
        """
        check_is_fitted(self)
        X = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False, copy=True
        )
        table = (X - self.mean_) / self.scale_
        gaps = np.isnan(table)
        for i in np.flatnonzero(gaps.any(1)):
            seen = ~gaps[i]
            v = self.components_[:, seen]
            # Posterior mean of the row's coordinates, with variances and noise from the fit. The
            # form with the observed values' covariance needs no division by small variances.
            spread = self.variances_[:, None] * v
            covariance = v.T @ spread + self.noise_ * np.eye(int(seen.sum()))
            coordinates = spread @ np.linalg.solve(covariance, table[i, seen])
            filled = coordinates @ self.components_[:, gaps[i]]
            X[i, gaps[i]] = self.mean_[gaps[i]] + self.scale_[gaps[i]] * filled
        if not np.isfinite(X).all():
            raise InvalidInputError("the imputed values overflow; rescale the table.")
        filled_table: Floats = X
        return filled_table

    def __sklearn_tags__(self) -> Any:
        """Return the tags: missing values are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
