"""NGDClassifier and NGDRegressor: scikit-learn's checks, its tables, its tools."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_linnerud,
    load_wine,
    make_classification,
    make_friedman1,
)
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.fits._networks import Rows, fit_networks, plan, weighted
from natgrad.sklearn import HeldOutDisplay, NGDClassifier, NGDRegressor


@pytest.mark.filterwarnings("ignore")  # checks that scikit-learn skips give warnings
@pytest.mark.parametrize("estimator", [NGDRegressor(), NGDClassifier()], ids=str)
def test_the_checks_of_scikit_learn_pass(estimator):
    results = check_estimator(estimator)
    assert not [one["check_name"] for one in results if one["status"] == "failed"]
    assert sum(one["status"] == "passed" for one in results) > 50


def test_a_nonlinear_function_is_found():
    x, y = make_friedman1(600, noise=0.5, random_state=7)
    model = NGDRegressor(random_state=0).fit(x[:300], y[:300])
    assert model.engine_ == "GaussNewton"
    assert model.score(x[300:], y[300:]) > RidgeCV().fit(x[:300], y[:300]).score(x[300:], y[300:])
    assert model.score(x[300:], y[300:]) > 0.9
    assert all(len(curve) <= 61 for curve in model.validation_curves_)


def test_large_tables_are_left_to_ngd():
    x, y = make_classification(
        2500, 20, n_informative=8, n_classes=4, n_clusters_per_class=1, random_state=0
    )
    model = NGDClassifier(random_state=0).fit(x[:2000], y[:2000])
    assert model.engine_ == "NGD"
    assert model.score(x[2000:], y[2000:]) > 0.8
    assert model.networks_[0][0].weight.dtype == torch.float32


def test_several_targets():
    x, y = load_linnerud(return_X_y=True)
    model = NGDRegressor(random_state=0).fit(x, y)
    assert model.predict(x).shape == (20, 3)
    assert len(model.validation_curves_[0]) == 0  # a small table is not divided
    with pytest.raises(InvalidInputError, match="no rows were held out"):
        HeldOutDisplay.from_estimator(model)


@pytest.mark.parametrize("kind", [ng.Gaussian, ng.Bernoulli, ng.Categorical], ids=str)
def test_weights_count_as_repetitions(kind):
    """Rows with weights 1, 2 and 3 train the network that one, two and three copies train."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=g, dtype=torch.float64)
    y = {
        ng.Gaussian: x[:, :1].sin(),
        ng.Bernoulli: 2.0 * (x[:, :1] > 0) - 1,
        ng.Categorical: (x[:, 0] > 0).long() + (x[:, 1] > 0),
    }[kind]
    y = y.double() if y.is_floating_point() else y
    many = torch.arange(30) % 3 + 1
    how = plan(30, 3, 3, engine="GaussNewton")
    options = {"members": 1, "folds": None, "max_steps": 8, "seed": 0}
    outputs = 3 if kind is ng.Categorical else 1
    by_weight = fit_networks(Rows(x, y, many.double()), kind(), outputs, how, **options)
    copies = Rows(x.repeat_interleave(many, 0), y.repeat_interleave(many, 0))
    by_copies = fit_networks(copies, kind(), outputs, how, **options)
    a, b = by_weight[0].network(x), by_copies[0].network(x)
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    plain = fit_networks(Rows(x, y), kind(), outputs, how, **options)[0].network(x)
    assert float((a - plain).detach().abs().max()) > 1e-4


def test_a_weighted_likelihood_has_weighted_gradients():
    f = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y, w = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([1.0, 2.0, 3.0, 0.5, 1.0]).double()
    f.requires_grad_()
    loss = weighted(ng.Categorical(), w)(f, y)
    expected = (torch.nn.functional.cross_entropy(f, y, reduction="none") * w).sum() / w.sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    (ours,) = torch.autograd.grad(loss, f)
    white = weighted(ng.Categorical(), w).whitened(f.detach(), y)
    velocity = torch.exp(2 * white.log_weight) * white.target
    gradient = -torch.einsum("nrk,nr->nk", white.contrast, velocity) / len(f)
    torch.testing.assert_close(ours, gradient)


def test_ngd_draws_rows_by_weight():
    x, y = make_friedman1(400, random_state=0)
    wrong = np.arange(400) < 200
    y[wrong] = -y[wrong]
    weight = np.where(wrong, 1e-6, 1.0)
    model = NGDRegressor(engine="NGD", random_state=0).fit(x, y, sample_weight=weight)
    assert model.score(x[~wrong], y[~wrong]) > 0.8


def test_steps_on_parts():
    x, y = load_breast_cancer(return_X_y=True)
    model = NGDClassifier(random_state=0)
    with pytest.raises(InvalidInputError, match="not among the classes"):
        clone(model).partial_fit(x[:5], np.full(5, 1), classes=[0, 2])
    for _ in range(10):
        for part in np.array_split(np.arange(400), 4):
            model.partial_fit(x[part], y[part], classes=[0, 1])
    assert model.n_iter_ == 40
    assert model.score(x[400:], y[400:]) > 0.9
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    before = again.predict_proba(x)
    again.partial_fit(x[:100], y[:100])
    assert np.abs(again.predict_proba(x) - before).max() > 0
    regression = NGDRegressor(random_state=0).fit(*load_diabetes(return_X_y=True))
    x, y = load_diabetes(return_X_y=True)
    assert regression.partial_fit(x, y).score(x, y) > 0.4


def test_seeds_names_copies_and_pictures():
    x, y = load_wine(return_X_y=True, as_frame=True)
    first, second = (NGDClassifier(random_state=3).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(x), second.predict_proba(x))
    other = NGDClassifier(random_state=4).fit(x, y)
    assert np.abs(other.predict_proba(x) - first.predict_proba(x)).max() > 0
    assert list(first.feature_names_in_) == list(x.columns)
    copy = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(copy.predict(x), first.predict(x))
    assert not hasattr(clone(first), "networks_")
    assert "NGDClassifier" in first._repr_html_()
    assert HeldOutDisplay.from_estimator(first).get_yscale() == "log"
    np.testing.assert_allclose(np.exp(first.predict_log_proba(x)), first.predict_proba(x))


def test_in_pipelines_and_searches():
    x, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), NGDClassifier(random_state=0))
    found = cross_validate(model, x, y, cv=3)
    assert found["test_score"].mean() > 0.93
    search = GridSearchCV(model, {"ngdclassifier__members": [1, 3]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.93


def test_a_search_on_dask():
    distributed = pytest.importorskip("distributed")
    x, y = load_diabetes(return_X_y=True)
    with (
        distributed.Client(
            processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
        ),
        joblib.parallel_config(backend="dask"),
    ):
        search = GridSearchCV(NGDRegressor(random_state=0), {"members": [1, 2]}, cv=2)
        search.fit(x, y)
    alone = GridSearchCV(NGDRegressor(random_state=0), {"members": [1, 2]}, cv=2).fit(x, y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-6
    )


@pytest.mark.parametrize("engine", ["GaussNewton", "NGD"])
def test_fits_in_two_threads_are_those_of_one(engine):
    tables = [make_friedman1(150, random_state=k) for k in range(6)]

    def fit(table):
        return NGDRegressor(engine=engine, random_state=0, max_iter=8).fit(*table).predict(table[0])

    alone = [fit(table) for table in tables]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(fit, tables))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "adam"}, "engine"),
        ({"activation": "gelu"}, "activation"),
        ({"hidden_layer_sizes": "wide"}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden_layer_sizes"),
        ({"members": 0}, "members"),
        ({"max_iter": 0}, "max_iter"),
        ({"validation_fraction": 0.9}, "validation_fraction"),
        ({"early_stopping": "yes"}, "early_stopping"),
    ],
)
def test_bad_options_get_a_sentence(options, message):
    x, y = load_diabetes(return_X_y=True)
    with pytest.raises(InvalidInputError, match=message):
        NGDRegressor(**options).fit(x, y)
