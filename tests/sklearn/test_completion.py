"""DeepMatrixCompletion, and the display of separators."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from matplotlib.axes import Axes
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from natgrad.errors import InvalidInputError
from natgrad.sklearn import DeepMatrixCompletion, SeparatorClassifier, SeparatorDisplay


def _table(seed=0, shape=(30, 20), noise=0.05):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1]))
    truth += noise * rng.normal(size=shape)
    return truth, rng.random(shape) < 0.6


@pytest.mark.filterwarnings("ignore")
def test_checks_that_fail_are_declared_with_reasons():
    expected = dict(DeepMatrixCompletion.expected_failed_checks)
    results = check_estimator(DeepMatrixCompletion(hidden=4), expected_failed_checks=expected)
    failed = {one["check_name"] for one in results if one["status"] == "xfail"}
    assert failed == set(expected)  # none is declared that passes
    assert all(len(reason.split()) > 5 for reason in expected.values())


def test_pairs_and_matrix_give_the_same():
    truth, seen = _table()
    options = {"hidden": 4, "members": 3, "clip": False, "random_state": 0}
    holes = np.where(seen, truth, np.nan)
    by_matrix = DeepMatrixCompletion(**options).fit(holes)
    by_mask = DeepMatrixCompletion(**options).fit(np.ma.masked_array(truth, mask=~seen))
    pairs = np.argwhere(seen)
    by_pairs = DeepMatrixCompletion(**options).fit(pairs, truth[seen])
    np.testing.assert_array_equal(by_matrix.matrix(), by_pairs.matrix())
    np.testing.assert_array_equal(by_mask.matrix(), by_pairs.matrix())
    rest = np.argwhere(~seen)
    assert by_pairs.score(rest, truth[~seen]) > 0.9
    np.testing.assert_allclose(by_pairs.predict(rest), by_matrix.matrix()[tuple(rest.T)], atol=1e-5)
    gap = np.sqrt(np.mean((by_pairs.predict(rest) - truth[~seen]) ** 2))
    assert 0.5 < by_pairs.error_ / gap < 3


def test_labels_of_any_kind_and_unknown_ones():
    truth, seen = _table()
    truth = truth + np.arange(20)  # columns differ
    i, j = np.argwhere(seen).T
    labels = np.array([[f"user {a}", f"film {b}"] for a, b in zip(i, j, strict=True)], dtype=object)
    model = DeepMatrixCompletion(hidden=4, members=2, random_state=0).fit(labels, truth[seen])
    again = pickle.loads(pickle.dumps(model))
    ask = np.array([["user 3", "film 7"], ["nobody", "film 19"], ["nobody", "nothing"]])
    np.testing.assert_array_equal(again.predict(ask), model.predict(ask))
    known, cold_row, cold = model.predict(ask)
    assert abs(known - truth[3, 7]) < 2
    assert abs(cold_row - truth[:, 19].mean()) < 3
    assert abs(cold - truth[seen].mean()) < 0.5


def test_in_a_search():
    truth, seen = _table()
    pairs, values = np.argwhere(seen), truth[seen]
    model = DeepMatrixCompletion(members=2, random_state=0)
    search = GridSearchCV(model, {"hidden": [1, 4]}, cv=3).fit(pairs, values)
    assert search.best_params_ == {"hidden": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((5, 3)), np.ones(5)), "two columns"),
        ((np.ones((5, 5)),), "nothing to complete"),
        ((np.full((5, 5), np.nan),), "nothing to complete"),
        (([[0, 1], [0, 1], [1, 1]], [1.0, 2.0, 3.0]), "two values"),
        (([[0, 1], [1, 1]], [1.0]), "one value for each"),
    ],
)
def test_bad_tables_get_a_sentence(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        DeepMatrixCompletion().fit(*arguments)


def test_separators_are_drawn():
    x, y = load_wine(return_X_y=True, as_frame=True)
    model = SeparatorClassifier("ℓ2 max margin").fit(x, y)
    axes = SeparatorDisplay.from_estimator(model, x, y, resolution=50)
    assert isinstance(axes, Axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2"]
    iris, species = load_iris(return_X_y=True, as_frame=True)
    iris = iris.iloc[:, :2]
    planar = LogisticRegression().fit(iris, species)  # another linear classifier
    axes = SeparatorDisplay.from_estimator(planar, iris, species, resolution=50)
    assert axes.get_xlabel() == "sepal length (cm)"
    # The regions are the classifier's own.
    inside = np.asarray(axes.images[0].get_array())
    left, right, low, high = axes.images[0].get_extent()
    corner = planar.predict(type(iris)([[left, low], [right, high]], columns=iris.columns))
    assert [inside[0, 0], inside[-1, -1]] == list(corner)
    with pytest.raises(InvalidInputError, match="linear"):
        SeparatorDisplay.from_estimator(DecisionTreeClassifier().fit(x, y), x, y)
    with pytest.raises(InvalidInputError, match="does not know"):
        SeparatorDisplay.from_estimator(model, x, y + 5)
