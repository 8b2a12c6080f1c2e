"""The study of generalization: its list, its tuning, its statistics, the smoke preset."""

from dataclasses import astuple

import numpy as np
import pytest
import torch

from natgrad.errors import NatgradError
from natgrad.experiments.study.generalization import summary
from natgrad.experiments.study.generalization.cells import TARGETS, Tuning, train, tune
from natgrad.experiments.study.generalization.config import EXPERIMENT
from natgrad.experiments.study.generalization.methods import EQUAL, METHODS, STUCK, applies, landed
from natgrad.experiments.study.generalization.problems import PROBLEMS, Problem, draw
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import in_this_process


def test_at_most_24_problems_and_every_method_has_as_many_settings() -> None:
    assert len({p.name for p in PROBLEMS}) == len(PROBLEMS) <= 24
    sizes = {len(grid) for method in METHODS.values() for grid in method.settings.values()}
    assert len(sizes) == 1


@pytest.mark.parametrize("problem", PROBLEMS[::3], ids=lambda p: p.name)
def test_a_module_and_a_parametrization_are_the_same_model(problem: Problem) -> None:
    task = draw(problem, 3)
    again = draw(problem, 3)
    assert torch.equal(task.batch[1], again.batch[1])
    if task.modular is None:
        assert problem.family == "classes"
        return
    modular, back = task.modular()
    outputs = modular.observed(modular.module(modular.inputs)).detach()
    expected = task.parametrization.predict(task.start, task.batch[0])
    torch.testing.assert_close(outputs.reshape(-1), expected.reshape(-1))
    torch.testing.assert_close(modular.labels.reshape(-1), task.batch[1].reshape(-1))
    assert task.error(back(modular.module)) == pytest.approx(task.error(task.start))


def test_the_error_is_measured_at_the_target() -> None:
    problem = Problem(family="matrix", depth=2, n=220)
    found = train(problem, "EGD", 3.0, 7, 1000)
    assert 10 < found.steps < 1000
    assert np.isfinite(found.error)
    assert found.loss == pytest.approx(TARGETS["matrix"], rel=EQUAL)
    assert np.isnan(train(problem, "EGD", 3.0, 7, 5).error)  # gives up before the target


def test_a_run_without_a_new_lowest_loss_gives_up() -> None:
    problem = Problem(family="matrix", depth=2, n=220)
    found = train(problem, "EGD", 30.0, 1000, 20000)  # bounces between the walls
    assert np.isnan(found.error)
    assert STUCK <= found.steps < 20000


def test_tuning_prefers_arrival_then_error_then_speed() -> None:
    problem = Problem(family="matrix", depth=2, n=220)
    found = tune(Tuning(problem=problem, method="EGD", draws=2, most=1000))
    grid = METHODS["EGD"].settings["matrix"]
    chosen = grid.index(float(found["setting"]))
    arrived = np.isfinite(found["errors"]).sum(1)
    assert arrived[chosen] == arrived.max()
    medians = np.median(found["errors"], axis=1)
    assert medians[chosen] <= 1.05 * np.nanmin(medians[arrived == arrived.max()])


def test_kept_shares_of_made_up_errors() -> None:
    arrays = Arrays(problem=["p"], method=["EGD", "exact NGD", "half"], seed=range(40))
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(40))
    errors = np.stack([noise, 4 * noise, 2 * noise])[None]
    arrays.add("error", errors, "problem", "method", "seed")
    steps = np.broadcast_to(np.array([100.0, 5.0, 20.0])[None, :, None], errors.shape)
    arrays.add("steps", steps, "problem", "method", "seed")
    assert summary.decided(arrays) == [0]
    assert summary.advantage(arrays, 0).value == pytest.approx(np.log(4))
    kept = summary.kept(arrays, 0, "half")
    assert kept.value == pytest.approx(0.5)
    assert kept.low <= kept.value <= kept.high
    assert summary.kept(arrays, 0, "EGD").value == pytest.approx(1.0)
    assert astuple(summary.price(arrays, 0, "half")) == pytest.approx((0.2, 0.2, 0.2))
    assert summary.arrivals(arrays, 0, "half") == 40
    assert not summary.absent(arrays, 0, "half")
    assert summary.typical(arrays, [0], "half") == pytest.approx((2.0, 0.2))
    assert summary.arrived(arrays) == 1.0


def test_an_interval_of_the_kept_share_covers_the_truth() -> None:
    """log errors 0, 1 and ½ plus noise: half is kept, and 95 % intervals mostly say so."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(60):
        arrays = Arrays(problem=["p", "q"], method=["EGD", "exact NGD", "half"], seed=range(30))
        logs = np.array([0.0, 1.0, 0.5])[None, :, None] + 0.3 * rng.standard_normal((2, 3, 30))
        arrays.add("error", np.exp(logs), "problem", "method", "seed")
        found = summary.pooled(arrays, [0, 1], "half")
        covered += found.low <= 0.5 <= found.high
    assert 50 <= covered < 60


@pytest.mark.parametrize("method", ["exact NGD", "NGD", "Muon"])
def test_all_runs_end_at_the_same_training_loss(method: str) -> None:
    """Also those whose last step would go far below it."""
    problem = Problem(family="matrix", depth=2, n=220)
    longest = METHODS[method].settings["matrix"][2]
    found = train(problem, method, longest, 1, 5000)
    assert found.loss == pytest.approx(TARGETS["matrix"], rel=EQUAL)


def test_a_loss_that_jumps_across_the_target_is_told() -> None:
    def loss(w: torch.Tensor) -> float:
        return 2.0 if w > 0.3 else 0.5

    with pytest.raises(NatgradError, match="jumps"):
        landed(loss, torch.tensor(1.0), torch.tensor(0.0), 1.0)


def test_a_run_that_jumps_across_the_target_does_not_count() -> None:
    """Gradient descent with steps of 10 overshoots to a loss of 1e14, and then to 0."""
    found = train(Problem(family="classes", depth=2, n=30), "EGD", 10.0, 1002, 20000)
    assert np.isnan(found.error)
    assert found.steps < 20000


def test_kronecker_methods_do_not_apply_to_diagonal_networks() -> None:
    assert not applies("NGD", PROBLEMS[0])
    assert [m for m in METHODS if not applies(m, PROBLEMS[-1])] == ["exact NGD, all entries"]
    assert set(TARGETS) == {p.family for p in PROBLEMS}


def test_smoke() -> None:
    config = EXPERIMENT.presets["smoke"]
    arrays = EXPERIMENT.compute(config, in_this_process)
    found = {claim.id: claim for claim in EXPERIMENT.claims(config, arrays)}
    assert found["arrived"].value > 0.8
    assert all(claim.holds("smoke") is None for claim in found.values())
    assert EXPERIMENT.departures(config, arrays)
    assert EXPERIMENT.draw(config, arrays).get_axes()
