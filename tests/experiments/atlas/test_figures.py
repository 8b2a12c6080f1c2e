"""The findings of the atlas: smoke presets, their claims and pictures, and their flows."""

import numpy as np
import pytest
import torch

from natgrad import Bernoulli, Direct, integrate, natural
from natgrad.directions import Wasserstein
from natgrad.experiments import GROUPS
from natgrad.experiments.atlas._flows.classes import (
    ClassKfac,
    SummedShampoo,
    laplacian_solve,
)
from natgrad.experiments.atlas._flows.directions import (
    MEANS,
    damped_natural,
    mean_natural,
    metric_natural,
    weighted_solve,
)
from natgrad.experiments.atlas._flows.ends import degrees
from natgrad.experiments.atlas.completion.cells import lift
from natgrad.experiments.atlas.metrics.cells import population_weights, ray
from natgrad.flows import kfac, loss_damping
from natgrad.flows._by_length import arc_path
from natgrad.lab import figures
from natgrad.lab.experiment import in_this_process
from natgrad.lab.registry import experiment

FINDINGS = [name for name in GROUPS["atlas"] if name != "separators"]


@pytest.mark.parametrize("name", FINDINGS)
def test_smoke_claims_are_as_expected_and_the_picture_is_drawn(name) -> None:
    figure = experiment(f"atlas/{name}")
    config = figure.presets["smoke"]
    arrays = figure.compute(config, in_this_process)
    judged = figure.claims(config, arrays)
    assert len({claim.id for claim in judged}) == len(judged)
    assert any(claim.holds("smoke") is not None for claim in judged)
    for claim in judged:
        assert claim.as_expected("smoke"), (claim.id, claim.value)
    assert all(figure.departures(config, arrays))
    with figures.style():
        assert figures.render(figure.draw(config, arrays))["figure.png"][:4] == b"\x89PNG"


def data(n=12, d=4, seed=0):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=source)
    return x, torch.sign(x[:, 0] + 0.3 * x[:, 1])


def test_damped_flow_by_arc_length_follows_the_flow_in_time() -> None:
    x, y = data()
    for damping, power in ((0.3, 0.5), (0.3, 2.0)):
        schedule = loss_damping(damping, power=power)
        slow = integrate(
            natural, Bernoulli(), Direct(), torch.zeros(4, dtype=x.dtype), (x, y),
            until=6.0, times=torch.linspace(0, 6, 400, dtype=x.dtype), rtol=1e-9, damping=schedule,
        )  # fmt: skip
        length = float(slow.states.diff(dim=0).norm(dim=1).sum())
        rows = (y[:, None] * x).numpy()
        fast = arc_path(damped_natural(rows, damping, power), np.zeros(4), [length]).points[0]
        assert np.abs(fast - slow.final.numpy()).max() < 1e-3


def test_directions_are_those_of_dense_algebra() -> None:
    x, y = data()
    rows = (y[:, None] * x).numpy()
    b = 0.3 * np.arange(4.0)
    p = 1 / (1 + np.exp(-rows @ b))
    pull = rows.T @ (1 - p)
    dense = {
        0.0: rows.T @ rows,
        1.0: rows.T @ np.diag(p * (1 - p)) @ rows,
        1.5: rows.T @ np.diag((p * (1 - p)) ** 1.5) @ rows,
    }
    for kappa, metric in dense.items():
        assert degrees(metric_natural(rows, kappa)(b), np.linalg.solve(metric, pull)) < 1e-6


def test_wasserstein_directions_are_those_of_the_library() -> None:
    x, y = data()
    rows = (y[:, None] * x).numpy()
    b = 0.3 * np.arange(4.0)
    for mean in MEANS:
        metric = Wasserstein(mean=mean)
        v = natural(Bernoulli(), Direct(), torch.from_numpy(b), (x, y), metric=metric)
        assert degrees(mean_natural(rows, mean)(b), v.numpy()) < 1e-6


def test_far_margins_leave_the_direction_to_the_row_that_runs_away() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 5.0]])
    for mean in MEANS:
        v = mean_natural(rows, mean)(np.array([2.0, 4e4]))  # margins 2, 4e4 and 2e5
        assert degrees(v, np.array([0.0, 1.0])) < 1e-6
        w, slope = ray(rows, np.array([2.0, 4e4]))
        assert degrees(w, np.array([0.0, 1.0])) < 1e-6
        assert slope == pytest.approx(5 / 26**0.5)


def test_weights_of_very_different_sizes_form_a_hierarchy() -> None:
    rows = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]])
    # The first two rows alone decide, although one has e^{-900} times the weight of the other.
    found = weighted_solve(rows, np.array([0.0, -900.0, -2000.0]), np.zeros(3), -np.inf)
    assert np.abs(found - [1.0, 0.0]).max() < 1e-12
    # A ridge between them leaves the second row without influence.
    ridged = weighted_solve(rows, np.array([0.0, -900.0, -2000.0]), np.zeros(3), -400.0)
    assert np.abs(ridged - [0.5, 0.5]).max() < 1e-12


@pytest.mark.parametrize("class_damping", [0.0, 0.3])
def test_kfac_of_classes_is_the_step_rule(class_damping) -> None:
    source = np.random.default_rng(0)
    x = source.standard_normal((20, 3))
    labels = (x @ source.standard_normal((3, 3))).argmax(1)
    flow = ClassKfac(x, labels, 0.2, class_damping)
    b = 0.1 * source.standard_normal(6)
    start = torch.from_numpy(b.reshape(3, 2) @ flow.basis.T)
    batch = torch.from_numpy(x), torch.from_numpy(labels)
    from natgrad import Categorical, descend, euclidean
    from natgrad.stopping import steps_reached

    run = descend(
        euclidean, Categorical(), Direct(), start, batch, until=steps_reached(1),
        step=kfac(1e-3, damping=0.2, class_damping=class_damping),
    )  # fmt: skip
    moved = ((run.final - start).numpy() @ flow.basis).ravel()
    assert degrees(flow.velocity()(b), moved) < 1e-5
    margins = flow.rows @ b
    outputs = x @ start.numpy()
    wrong = outputs[np.arange(20), labels][:, None] - outputs
    assert np.allclose(np.sort(margins), np.sort(wrong[~flow.own]))


def test_the_flow_of_shampoo_is_the_gradient_between_roots_of_its_sums() -> None:
    from scipy.linalg import fractional_matrix_power

    from natgrad import Categorical, euclidean

    source = np.random.default_rng(0)
    x = source.standard_normal((20, 3))
    labels = (x @ source.standard_normal((3, 3))).argmax(1)
    flow = SummedShampoo(x, labels, 3)
    b = 0.1 * source.standard_normal(6)
    left, right = (a @ a.T + np.eye(len(a)) for a in map(source.standard_normal, ((3, 3), (2, 2))))
    moved, *sums = np.split(
        flow.velocity()(np.concatenate([b, left.ravel(), right.ravel()])), [6, 15]
    )
    beta = torch.from_numpy(b.reshape(3, 2) @ flow.basis.T)
    batch = torch.from_numpy(x), torch.from_numpy(labels)
    g = euclidean(Categorical(), Direct(), beta, batch).numpy() @ flow.basis
    roots = [fractional_matrix_power(a, -0.25) for a in (left, right)]
    expected = [roots[0] @ g @ roots[1], g @ g.T, g.T @ g]
    factor = float(np.linalg.norm(moved) / np.linalg.norm(expected[0]))
    for found, wanted in zip((moved, *sums), expected, strict=True):
        assert np.abs(found - factor * wanted.ravel()).max() < 1e-12
    metric = np.kron(*(fractional_matrix_power(a, 0.25) for a in (left, right)))
    assert (
        np.abs(flow.metric(np.concatenate([b, left.ravel(), right.ravel()])) - metric).max() < 1e-12
    )


def test_laplacians_are_solved_at_any_grading() -> None:
    edges = np.array([[0, 1.0, 1e-40], [1.0, 0, 3e-40], [1e-40, 3e-40, 0]])
    z = np.array([[1.0], [-2.0], [1.0]])
    sides = np.array([[edges[i] @ (z[i, 0] - z[:, 0])] for i in range(3)])
    assert np.abs(laplacian_solve(edges, sides) - z).max() < 1e-12


def test_population_weights_are_expectations() -> None:
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    for r in (0.5, 3.0, 50.0):
        slope = 0.25 / np.cosh(r * z / 2) ** 2
        across, along = population_weights(r)
        assert along / across == pytest.approx(
            float((slope * z * z * density).sum() / (slope * density).sum()), rel=1e-6
        )


def test_natural_steps_of_products_are_those_of_the_library() -> None:
    from natgrad import Gaussian, MatrixProduct

    source = torch.Generator().manual_seed(0)
    model = MatrixProduct(3)
    factors = model.init_gaussian((5, 5), scale=1.0, generator=source)
    observed = torch.rand(5, 5, generator=source) < 0.5
    truth = torch.randn(5, 5, dtype=torch.float64, generator=source)
    left = (truth - model.hypothesis(factors)) * observed
    batch = observed.nonzero(), truth[observed]
    for damping in (0.0, 0.7):
        expected = natural(
            Gaussian(reduction="sum"), model, factors, batch, fisher_over="batch", damping=damping
        )
        found = lift(list(factors), left, observed.double(), damping)
        for a, b in zip(found, expected, strict=True):
            assert float((a - b).norm()) < 1e-2 * float(b.norm())
