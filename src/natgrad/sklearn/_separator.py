"""Linear separators as a classifier."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad.errors import InvalidInputError
from natgrad.fits import Scaling, fit_separator
from natgrad.limits import SeparabilityError, multiclass_max_margin

Floats = npt.NDArray[np.float64]


_JOINT = {"ℓ2 max margin": 2, "ℓ1 max margin": 1}  # powers of the norm


class SeparatorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier: EGD at a depth, NGD, or a limit of theirs.

    With more than two classes the max margins are joint, argmin ‖β‖ with (β_y − β_c)·x ≥ 1 for all
    wrong classes c. The other methods fit one separator for each class against the rest, scaled to
    unit length. The largest score decides.

    Args:
        method: One of `natgrad.fits.methods`: "NGD", "EGD L=2", "ℓ2 max margin", "limit of NGD", …
        standardize: Whether features are standardized first.
        until: Final time of EGD, on the mean loss.
        natural_until: Final time of NGD.
        scale: Initial scale of the factors of EGD.

    Attributes:
        classes_: Labels of the classes.
        coef_: Normals in the unit of the features, `(1, d)` for two classes, else `(classes, d)`.
        intercept_: Offsets.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> x, y = load_wine(return_X_y=True)
        >>> round(SeparatorClassifier("ℓ2 max margin").fit(x, y).score(x, y), 2)
        1.0
    """

    def __init__(
        self,
        method: str = "NGD",
        *,
        standardize: bool = True,
        until: float = 1e6,
        natural_until: float = 10.0,
        scale: float = 0.1,
    ) -> None:
        self.method = method
        self.standardize = standardize
        self.until = until
        self.natural_until = natural_until
        self.scale = scale

    def fit(self, X: Any, y: Any) -> "SeparatorClassifier":
        """Fit the separators.

        Args:
            X: Features, `(n, d)`.
            y: Labels of two or more classes, `(n,)`.

        Raises:
            InvalidInputError: If there is one class, or the method has no answer for these data.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError("y must have at least two classes, but has only one class.")
        scaling = Scaling.of(X, standardize=self.standardize, intercept=True)
        inputs = scaling(X)
        if len(self.classes_) == 2:
            betas = self._beta(inputs, codes == 1, 1)[None]
        elif self.method in _JOINT:
            betas = _joint(inputs, codes, _JOINT[self.method])
        else:
            found = [self._beta(inputs, codes == k, k) for k in range(len(self.classes_))]
            betas = np.stack([beta / max(float(np.linalg.norm(beta)), 1e-300) for beta in found])
        self.coef_ = betas[:, 1:] / scaling.scale
        self.intercept_ = betas[:, 0] - self.coef_ @ scaling.center
        return self

    def _beta(self, inputs: torch.Tensor, positive: npt.NDArray[np.bool_], k: int) -> Floats:
        signs = torch.from_numpy(np.where(positive, 1.0, -1.0))
        found = fit_separator(
            self.method,
            inputs,
            signs,
            until=self.until,
            natural_until=self.natural_until,
            scale=self.scale,
        )
        if not bool(torch.isfinite(found.beta).all()):
            raise InvalidInputError(
                f"{self.method!r} has no answer for class {self.classes_[k]!r}: the class is not "
                "linearly separable from the rest. Try method='NGD'."
            )
        return found.beta.numpy()

    def decision_function(self, X: Any) -> Floats:
        """Return signed scores: `(n,)` for two classes, else `(n, classes)`.

        Args:
            X: Features, `(n, d)`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the labels of rows.

        Args:
            X: Features, `(n, d)`.
        """
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        labels: npt.NDArray[Any] = self.classes_[index]
        return labels


def _joint(inputs: torch.Tensor, codes: npt.NDArray[np.int64], p: int) -> Floats:
    """Return the joint max margin of all classes.

    Raises:
        InvalidInputError: If the classes are not linearly separable.
    """
    try:
        limit = multiclass_max_margin(inputs, torch.from_numpy(codes.astype(np.int64)), p)
    except SeparabilityError as error:
        raise InvalidInputError(
            "a max margin has no answer here: the classes are not linearly separable. Try "
            "method='NGD'."
        ) from error
    return limit.solution.numpy()
