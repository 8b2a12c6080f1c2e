"""Estimators for scikit-learn: its own checks, its own tables, and its own peers."""

import re
from pathlib import Path

import cvxpy
import numpy as np
import pytest
import torch
from matplotlib import pyplot

pytest.importorskip("sklearn")

from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from natgrad.errors import InvalidInputError
from natgrad.fits import Scaling
from natgrad.limits import max_margin
from natgrad.sklearn import DeepMatrixImputer, SeparatorClassifier


@pytest.mark.filterwarnings("ignore")  # checks that scikit-learn skips give warnings
@pytest.mark.parametrize("estimator", [SeparatorClassifier(), DeepMatrixImputer(hidden=4)], ids=str)
def test_the_checks_of_scikit_learn_pass(estimator):
    results = check_estimator(estimator)
    assert not [one["check_name"] for one in results if one["status"] == "failed"]
    assert sum(one["status"] == "passed" for one in results) > 35


def test_coefficients_are_those_of_the_limit():
    x, y = load_iris(return_X_y=True)
    found = SeparatorClassifier("ℓ2 max margin").fit(x[:100], y[:100])
    inputs = Scaling.of(x[:100], standardize=True, intercept=True)(x[:100])
    signs = torch.from_numpy(2.0 * y[:100] - 1)
    scores = (inputs @ max_margin(inputs, signs, 2).solution).numpy()
    np.testing.assert_allclose(found.decision_function(x[:100]), scores, rtol=1e-9)
    with pytest.raises(InvalidInputError, match="not linearly separable"):
        SeparatorClassifier("ℓ2 max margin").fit(x[50:], y[50:])


def test_max_margins_of_many_classes_are_joint():
    x, y = load_wine(return_X_y=True)
    found = SeparatorClassifier("ℓ2 max margin").fit(x, y)
    scores = found.decision_function(x)
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    assert (own - scores.max(1)).min() == pytest.approx(1, abs=1e-5)
    # The square of a hard-margin problem's norm, by another solver.
    inputs = Scaling.of(x, standardize=True, intercept=True)(x).numpy()
    beta = cvxpy.Variable((3, inputs.shape[1]))
    margins = [
        inputs[y == k] @ (beta[k] - beta[c]) >= 1 for k in range(3) for c in range(3) if c != k
    ]
    judge = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(beta)), margins)
    judge.solve(solver="CLARABEL")
    np.testing.assert_allclose(found.coef_ * x.std(0), beta.value[:, 1:], atol=1e-4)
    iris = load_iris(return_X_y=True)
    with pytest.raises(InvalidInputError, match="the classes are not linearly separable"):
        SeparatorClassifier("ℓ2 max margin").fit(*iris)


def test_the_snippet_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "sklearn.md").read_text()
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, scope)
    assert round(scope["scores"].mean(), 2) == 0.48  # as the page says
    assert scope["imputed"].mean() > 0.9
    assert scope["axes"].get_legend() is not None
    assert abs(scope["ratings"].predict([["fay", "Alien"]])[0] - 4) < 1
    assert set(scope["search"].best_params_) == {"members", "activation"}
    pyplot.close("all")


def test_in_searches():
    x, y = load_wine(return_X_y=True)
    search = GridSearchCV(SeparatorClassifier(), {"natural_until": [2.0, 10.0]}, cv=3).fit(x, y)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_diabetes])
def test_gaps_are_filled_better_than_by_means(load):
    x = load().data[:300]
    x = (x - x.mean(0)) / x.std(0)
    gaps = np.random.default_rng(1).random(x.shape) < 0.15
    holes = np.where(gaps, np.nan, x)
    errors = []
    for imputer in (DeepMatrixImputer(hidden=8), SimpleImputer()):
        imputer.fit(holes[:150])
        filled = imputer.transform(holes)
        assert np.array_equal(filled[~gaps], x[~gaps])
        errors.append(np.sqrt(np.mean((filled - x)[150:][gaps[150:]] ** 2)))  # new rows
    assert errors[0] < 0.9 * errors[1]
