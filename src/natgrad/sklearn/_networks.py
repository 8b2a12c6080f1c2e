"""Small networks, trained by natural gradients, as a classifier and a regressor."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from natgrad._checks import choice, flag, integer, number
from natgrad.errors import InvalidInputError
from natgrad.fits._networks import ACTIVATIONS, Plan, Rows, build, fit_networks, ngd_step, plan
from natgrad.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from natgrad.optim import NGD

Floats = npt.NDArray[np.float64]


class _Networks(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share: standardization, networks and their training.

    They add `_outputs`, `_labels` (labels as a likelihood takes them, and that likelihood) and what
    targets may be.
    """

    _targets_may: ClassVar[dict[str, bool]] = {}

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | Literal["auto"] = "auto",
        *,
        activation: Literal["auto", "silu", "tanh", "relu"] = "auto",
        engine: Literal["auto", "NGD", "GaussNewton"] = "auto",
        members: int = 4,
        max_iter: int = 60,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.engine = engine
        self.members = members
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the networks.

        Args:
            X: Features, `(n, d)`.
            y: Labels of two or more classes, `(n,)`, or targets, `(n,)` or `(n, k)`.
            sample_weight: Weight of each row in the loss. `NGD` draws rows by weight.

        Raises:
            InvalidInputError: If there is only one class, or an argument cannot be used.
        """
        rows, likelihood = self._read(X, y, sample_weight, first=True)
        plan_ = self._plan(len(rows), engine=None if self.engine == "auto" else self.engine)
        found = fit_networks(
            rows,
            likelihood,
            self._outputs,
            plan_,
            members=integer(self.members, "members", low=1),
            folds=self._folds(),
            max_steps=integer(self.max_iter, "max_iter", low=1),
            seed=self._seed(),
        )
        self._take([member.network for member in found], plan_)
        self.n_iter_ = max(member.steps for member in found)
        self.validation_curves_ = [np.array(member.curve) for member in found]
        self._training: list[tuple[NGD, Likelihood]] = []
        return self

    def _step(self, X: Any, y: Any, sample_weight: Any, **classes: Any) -> Self:
        """Take one step of NGD with each network, after building them if there are none."""
        first = not hasattr(self, "networks_")
        rows, likelihood = self._read(X, y, sample_weight, first=first, **classes)
        if first:
            members = integer(self.members, "members", low=1)
            plan_ = self._plan(len(rows), engine="NGD")
            generator = torch.Generator().manual_seed(self._seed())
            inputs = self.n_features_in_
            networks = [build(plan_, k, inputs, self._outputs, generator) for k in range(members)]
            self._take(networks, plan_)
            self.n_iter_, self.validation_curves_ = 0, []
        if not getattr(self, "_training", []):
            pairs = [(net, type(likelihood)()) for net in self._copies(self.networks_)]
            self._training = [
                (NGD(net, criterion, weight_decay=0.0), criterion) for net, criterion in pairs
            ]
        rows = rows.to(self._plan_.dtype)
        for optimizer, criterion in self._training:
            if rows.weight is not None:
                generator = torch.Generator().manual_seed(self._seed())
                index = torch.multinomial(rows.weight, len(rows), True, generator=generator)
                ngd_step(optimizer, criterion, rows.at(index))
            else:
                ngd_step(optimizer, criterion, rows)
        self._take([optimizer.model for optimizer, _ in self._training], self._plan_)
        self.n_iter_ += 1
        return self

    def _read(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, **classes: Any
    ) -> tuple[Rows, Likelihood]:
        """Return standardized rows with positive weights, and the likelihood of their labels."""
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first, **self._targets_may)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            kept = weight > 0
            if not kept.any():
                raise InvalidInputError("all sample weights are zero: there is nothing to fit.")
            X, y, weight = X[kept], y[kept], weight[kept]
            weight = None if (weight == weight[0]).all() else weight / weight.mean()
        labels, likelihood = self._labels(y, weight, first=first, **classes)
        if first:
            self._center, self._scale = _standard(X, weight)
        found = None if weight is None else torch.from_numpy(weight)
        return Rows(self._inputs(X), torch.from_numpy(labels), found), likelihood

    def _folds(self) -> int | None:
        share = number(
            self.validation_fraction,
            "validation_fraction",
            low=0,
            low_open=True,
            high=0.5,
        )
        return round(1 / share) if flag(self.early_stopping, "early_stopping") else None

    def _plan(self, rows: int, *, engine: Any) -> Plan:
        choice(self.engine, "engine", ("auto", "NGD", "GaussNewton"))
        choice(self.activation, "activation", ("auto", *ACTIVATIONS))
        hidden = None
        if not isinstance(self.hidden_layer_sizes, str):
            sizes = self.hidden_layer_sizes
            sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
            hidden = tuple(integer(size, "hidden_layer_sizes", low=1) for size in sizes)
        elif self.hidden_layer_sizes != "auto":
            raise InvalidInputError(
                "hidden_layer_sizes must be 'auto' or widths such as (32, 32), not "
                f"{self.hidden_layer_sizes!r}."
            )
        activation = None if self.activation == "auto" else self.activation
        return plan(
            rows,
            self.n_features_in_,
            self._outputs,
            engine=engine,
            hidden=hidden or None,
            activation=activation,
        )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _inputs(self, x: Floats) -> torch.Tensor:
        return torch.from_numpy((x - self._center) / self._scale)

    def _copies(self, networks: Sequence[torch.nn.Module]) -> list[torch.nn.Sequential]:
        """Return networks with these weights, and without hooks of an optimizer."""
        found = []
        for k, network in enumerate(networks):
            new = build(self._plan_, k, self.n_features_in_, self._outputs, torch.Generator())
            new.load_state_dict(network.state_dict())
            found.append(new)
        return found

    def _take(self, networks: Sequence[torch.nn.Module], plan_: Plan) -> None:
        self._plan_, self.engine_ = plan_, plan_.engine
        self.networks_ = self._copies(networks)

    def _predicted(self, X: Any) -> torch.Tensor:
        """Return the outputs of every network, `(members, n, k)`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        x = self._inputs(X).to(self._plan_.dtype)
        with torch.no_grad():
            return torch.stack([network(x) for network in self.networks_]).double()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without optimizers: a copy continues with new ones."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "_training" in state:
            state["_training"] = []
        return state


def _standard(x: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    """Return means and standard deviations of columns; constant columns keep their unit."""
    center = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - center) ** 2, axis=0, weights=weight))
    constant = scale <= 1e-12 * np.abs(x).max(axis=0, initial=0.0)
    return center, np.where(constant | ~np.isfinite(scale), 1.0, scale)


class NGDClassifier(ClassifierMixin, _Networks):  # type: ignore[misc]
    """A small network for tables, trained by natural gradients; nothing needs tuning.

    Inputs are standardized. The table is divided into folds. Each of a few networks is trained
    without one fold, and stopped where that fold is predicted best. Probabilities are averaged over
    the networks. `GaussNewton` trains on small tables, `NGD` in mini-batches on larger ones.

    Args:
        hidden_layer_sizes: Widths of the hidden layers, or "auto": one layer, of 8 or 32 units for
            `GaussNewton`, of 64 for `NGD`.
        activation: "silu", "tanh", "relu", or "auto": they alternate, "silu" for 8 units.
        engine: "NGD", "GaussNewton", or "auto" by the cost of a step.
        members: Number of networks in the average.
        max_iter: Largest number of steps; of passes, if `NGD` uses mini-batches.
        early_stopping: Whether a fold stops each network. Tables below 80 rows are not divided, and
            their networks take six steps.
        validation_fraction: Share of the rows in a fold.
        random_state: Seed of folds, batches and first weights.

    Attributes:
        classes_: Labels of the classes.
        networks_: The networks, `torch.nn.Sequential`; their inputs are standardized.
        engine_: Which optimizer trained them.
        n_iter_: Steps of the network that took most.
        validation_curves_: Loss on the held-out fold along the training of each network.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> x, y = load_wine(return_X_y=True)
        >>> model = NGDClassifier(random_state=0).fit(x[::2], y[::2])
        >>> bool(model.score(x[1::2], y[1::2]) > 0.9)
        True
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take one step of NGD with every network on these rows.

        The first call standardizes by its rows, so it should have many. Nothing is held out.

        Args:
            X: Features, `(n, d)`.
            y: Labels, `(n,)`.
            classes: All classes; needed in the first call if `y` does not have all of them.
            sample_weight: Weights; rows are drawn by weight.

        Raises:
            InvalidInputError: If a label is not among the classes.
        """
        return self._step(X, y, sample_weight, classes=classes)

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _labels(
        self, y: npt.NDArray[Any], weight: Floats | None, *, first: bool, classes: Any = None
    ) -> tuple[npt.NDArray[Any], Likelihood]:
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        if first:
            self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise InvalidInputError("y must have at least two classes, but has only one class.")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InvalidInputError(
                f"y has the label {unknown[0]!r}, which is not among the classes "
                f"{self.classes_.tolist()}. Give all classes in the first call of partial_fit."
            )
        codes = np.searchsorted(self.classes_, y)
        if len(self.classes_) == 2:
            return 2.0 * codes[:, None] - 1.0, Bernoulli()
        return codes.astype(np.int64), Categorical()

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, `(n, classes)`.

        Args:
            X: Features, `(n, d)`.
        """
        found = self._predicted(X)
        if len(self.classes_) == 2:
            found = torch.cat([-found / 2, found / 2], 2)
        p: Floats = torch.softmax(found, 2).mean(0).numpy()
        return p

    def predict_log_proba(self, X: Any) -> Floats:
        """Return logarithms of `predict_proba`.

        Args:
            X: Features, `(n, d)`.
        """
        found: Floats = np.log(np.maximum(self.predict_proba(X), 1e-300))
        return found

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of rows.

        Args:
            X: Features, `(n, d)`.
        """
        p = self.predict_proba(X)
        labels: npt.NDArray[Any] = self.classes_[p.argmax(1)]
        return labels


class NGDRegressor(RegressorMixin, _Networks):  # type: ignore[misc]
    """A small network for tables, trained by natural gradients; nothing needs tuning.

    As `NGDClassifier`, with squared error: inputs and targets are standardized, and predictions are
    averaged over a few networks, each stopped by a fold that it did not see.

    Args:
        hidden_layer_sizes: Widths of the hidden layers, or "auto": one layer, of 8 or 32 units for
            `GaussNewton`, of 64 for `NGD`.
        activation: "silu", "tanh", "relu", or "auto": they alternate, "silu" for 8 units.
        engine: "NGD", "GaussNewton", or "auto" by the cost of a step.
        members: Number of networks in the average.
        max_iter: Largest number of steps; of passes, if `NGD` uses mini-batches.
        early_stopping: Whether a fold stops each network. Tables below 80 rows are not divided, and
            their networks take six steps.
        validation_fraction: Share of the rows in a fold.
        random_state: Seed of folds, batches and first weights.

    Attributes:
        networks_: The networks, `torch.nn.Sequential`; their inputs and outputs are standardized.
        engine_: Which optimizer trained them.
        n_iter_: Steps of the network that took most.
        validation_curves_: Loss on the held-out fold along the training of each network.

    Example:
        >>> from sklearn.datasets import make_friedman1
        >>> x, y = make_friedman1(300, random_state=0)
        >>> model = NGDRegressor(random_state=0).fit(x[:200], y[:200])
        >>> bool(model.score(x[200:], y[200:]) > 0.93)
        True
    """

    _targets_may: ClassVar = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take one step of NGD with every network on these rows.

        The first call standardizes by its rows, so it should have many. Nothing is held out.

        Args:
            X: Features, `(n, d)`.
            y: Targets, `(n,)` or `(n, k)`.
            sample_weight: Weights; rows are drawn by weight.

        Raises:
            InvalidInputError: If `y` has another number of columns than before.
        """
        return self._step(X, y, sample_weight)

    @property
    def _outputs(self) -> int:
        return len(self._y_center)

    def _labels(
        self, y: npt.NDArray[Any], weight: Floats | None, *, first: bool
    ) -> tuple[Floats, Likelihood]:
        columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        if first:
            self._flat = y.ndim == 1
            self._y_center, self._y_scale = _standard(columns, weight)
        if columns.shape[1] != self._outputs:
            raise InvalidInputError(
                f"y must have {self._outputs} columns, as before, but has {columns.shape[1]}."
            )
        return (columns - self._y_center) / self._y_scale, Gaussian()

    def predict(self, X: Any) -> Floats:
        """Return predictions, `(n,)` or `(n, k)` as the targets were.

        Args:
            X: Features, `(n, d)`.
        """
        mean = self._predicted(X).mean(0).numpy()
        found: Floats = mean * self._y_scale + self._y_center
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Any:
        """Return the tags: several targets are accepted."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
