"""Valid calls of flows, limits, diagnostics and linear algebra."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import natgrad as ng
from natgrad import flows, linalg
from natgrad.flows import closed_forms
from natgrad.linalg import norms
from tests.poison_calls.common import (
    add,
    add_method,
    positions,
    real,
    separable_x,
    signs,
    x,
)
from tests.poison_calls.models import MODELS, problem

_DEEP = MODELS["DeepLinear"]


# Flows --------------------------------------------------------------------------------------------

add(
    "natgrad.descend",
    ng.descend,
    lambda: {
        "direction": ng.natural,
        **problem(),
        "step": 0.01,
        "until": 0.02,
        "save_every": 1,
        "record": {"norm": lambda w: w.norm()},
        "max_steps": 3,
        "batch_size": 2,
        "order": "shuffle",
        "generator": torch.Generator().manual_seed(0),
        "damping": 0.1,
    },
)
add(
    "natgrad.integrate",
    ng.integrate,
    lambda: {
        "direction": ng.natural,
        **problem(),
        "until": 0.02,
        "times": torch.tensor([0.0, 0.01, 0.02]).double(),
        "method": "dopri",
        "log_time": False,
        "rtol": 1e-3,
        "atol": 1e-6,
        "record": {"norm": lambda w: w.norm()},
        "max_evaluations": 40,
        "damping": 0.1,
    },
)
add(
    "natgrad.flows.integrate_by_length",
    flows.integrate_by_length,
    lambda: {
        "direction": ng.natural,
        **problem(),
        "lengths": torch.tensor([0.0, 0.01, 0.02]).double(),
        "rtol": 1e-3,
        "record": {"norm": lambda w: w.norm()},
        "max_evaluations": 100,
        "damping": 0.1,
    },
)
add("natgrad.stopping.direction_settled", ng.stopping.direction_settled, lambda: {"tolerance": 0.1})
add("natgrad.stopping.loss_below", ng.stopping.loss_below, lambda: {"bound": 0.1})
add("natgrad.stopping.margin_above", ng.stopping.margin_above, lambda: {"bound": 0.1})
add("natgrad.stopping.steps_reached", ng.stopping.steps_reached, lambda: {"n": 2})
add("natgrad.stopping.time_reached", ng.stopping.time_reached, lambda: {"t": 0.1})
add("natgrad.stopping.wall_clock", ng.stopping.wall_clock, lambda: {"seconds": 0.1})
add(
    "natgrad.flows.decaying_damping",
    flows.decaying_damping,
    lambda: {"damping": 1.0, "rate": 1.0},
)
add("natgrad.flows.loss_damping", flows.loss_damping, lambda: {"damping": 1.0, "power": 1.0})
_decay = {"size": 0.1, "decay": 0.5}
add("natgrad.flows.steepest", flows.steepest, lambda: {"p": 2, **_decay, "unit": True})
add("natgrad.flows.momentum", flows.momentum, lambda: {**_decay, "mass": 0.9, "nesterov": True})
add("natgrad.flows.muon", flows.muon, lambda: {**_decay, "mass": 0.9, "nesterov": True})
add(
    "natgrad.flows.adam",
    flows.adam,
    lambda: {**_decay, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1},
)
add("natgrad.flows.shampoo", flows.shampoo, lambda: {**_decay, "keep": 0.9, "eps": 1e-8})
add("natgrad.flows.diagonal_fisher", flows.diagonal_fisher, lambda: {**_decay, "damping": 0.1})
add("natgrad.flows.kfac", flows.kfac, lambda: {**_decay, "damping": 0.1, "class_damping": 0.1})
add(
    "natgrad.flows.capped",
    flows.capped,
    lambda: {"rule": flows.constant(0.1), "fraction": 0.1},
)
add("natgrad.flows.constant", flows.constant, lambda: {"size": 0.1})
add("natgrad.flows.midpoint", flows.midpoint, lambda: {"size": 0.1})
add("natgrad.flows.normalized", flows.normalized, lambda: {"size": 0.1, "grow": 1.1, "shrink": 0.5})
add("natgrad.flows.armijo", flows.armijo, lambda: {"size": 0.1, "grow": 1.1, "shrink": 0.5})
add(
    "natgrad.stopping.Rule",
    ng.stopping.Rule,
    lambda: {
        "met": lambda progress: True,
        "reason": "at once",
        "status": ng.stopping.Status.CONVERGED,
        "until": 1.0,
    },
)
add("natgrad.flows.end_to_end", flows.end_to_end, lambda: {"depth": 2})
add(
    "natgrad.flows.closed_forms.deep_linear_total",
    closed_forms.deep_linear_total,
    lambda: {"total": real(2, 2), "optimum": real(2, 2, seed=1), "t": 0.5},
)
add(
    "natgrad.flows.closed_forms.singular_times",
    closed_forms.singular_times,
    lambda: {"total": real(2, 2), "optimum": real(2, 2, seed=1)},
)
add(
    "natgrad.flows.closed_forms.natural_logits",
    closed_forms.natural_logits,
    lambda: {"s": real(4), "y": signs(), "t": 0.5},
)
add(
    "natgrad.flows.closed_forms.natural_flow_of_logistic_regression",
    closed_forms.natural_flow_of_logistic_regression,
    lambda: {
        "beta": real(2),
        "batch": (separable_x(), signs()),
        "times": torch.tensor([0.0, 0.1]).double(),
        "rtol": 1e-6,
    },
)


def drawn() -> Axes:
    return Figure().subplots()


def trajectory() -> ng.Trajectory[Any]:
    return ng.Trajectory(real(3), real(3, 2), real(3))


def saved() -> str:
    path = "trajectory.safetensors"
    if not Path(path).exists():
        trajectory().save(path)
    return path


add_method("natgrad.Trajectory.at", trajectory, lambda: {"index": 0})
add_method("natgrad.Trajectory.plot", trajectory, lambda: {"name": None, "ax": drawn()})
add_method("natgrad.Trajectory.save", trajectory, lambda: {"path": "other.safetensors"})
add_method("natgrad.Trajectory.load", lambda: ng.Trajectory, lambda: {"path": saved()})


# Limits and diagnostics ---------------------------------------------------------------------------

_two = lambda: {"x": separable_x(), "y": signs()}  # noqa: E731
_under = lambda: {"x": real(2, 3), "y": real(2)}  # noqa: E731
add_method(
    "natgrad.limits.Limit.plot",
    lambda: ng.limits.least_squares(real(2, 3), real(2), kind="minimum_norm"),
    lambda: {"ax": drawn()},
)
add_method(
    "natgrad.optim.Diagnosis.plot",
    lambda: ng.diagnose(torch.nn.Linear(2, 1).double(), ng.Gaussian(), real(5, 2)),
    lambda: {"ax": drawn()},
)
add("natgrad.limits.basis_pursuit", ng.limits.basis_pursuit, lambda: {**_under(), "rtol": 1e-6})
add(
    "natgrad.limits.least_squares",
    ng.limits.least_squares,
    lambda: {**_under(), "kind": "minimum_norm"},
)
add(
    "natgrad.limits.max_margin",
    ng.limits.max_margin,
    lambda: {**_two(), "p": 2, "starts": 1, "seed": 0, "rtol": 1e-6},
)
add(
    "natgrad.limits.multiclass_max_margin",
    ng.limits.multiclass_max_margin,
    lambda: {"x": x()[:2], "labels": torch.tensor([0, 1]), "p": 2, "classes": 2, "rtol": 1e-6},
)
add(
    "natgrad.limits.certify",
    ng.limits.certify,
    lambda: {"beta": real(2), "weights": real(4).abs(), **_two(), "p": 2},
)
add(
    "natgrad.limits.gradient_weights",
    ng.limits.gradient_weights,
    lambda: {"likelihood": ng.Bernoulli(), "outputs": real(4), "y": signs()},
)
add("natgrad.limits.natural_flow", ng.limits.natural_flow, lambda: {**_two(), "beta0": real(2)})
add(
    "natgrad.limits.nuclear_norm",
    ng.limits.nuclear_norm,
    lambda: {
        "positions": positions(),
        "values": real(3),
        "shape": (2, 2),
        "rtol": 1e-3,
        "max_evaluations": 200,
    },
)
add("natgrad.limits.separability", ng.limits.separability, lambda: {**_two(), "solver": "interior"})

_pair = lambda: {"a": real(2), "b": real(2, seed=1)}  # noqa: E731
add("natgrad.diagnostics.angle", ng.diagnostics.angle, _pair)
add("natgrad.diagnostics.cosine", ng.diagnostics.cosine, _pair)
add(
    "natgrad.diagnostics.balancedness",
    ng.diagnostics.balancedness,
    lambda: {"parametrization": _DEEP[0](), "params": _DEEP[1]()},
)
add(
    "natgrad.diagnostics.distance_to_limits",
    ng.diagnostics.distance_to_limits,
    lambda: {"beta": real(2), "limits": {"one": real(2, seed=1)}, "measure": "angle"},
)
for _method in ("effective_rank", "trace_norm"):
    add(
        f"natgrad.diagnostics.{_method}",
        getattr(ng.diagnostics, _method),
        lambda: {"matrix": real(2, 3)},
    )
add(
    "natgrad.diagnostics.numerical_rank",
    ng.diagnostics.numerical_rank,
    lambda: {"matrix": real(2, 3), "rtol": 1e-6},
)
add(
    "natgrad.diagnostics.gaussian_accuracy",
    ng.diagnostics.gaussian_accuracy,
    lambda: {"beta": real(2), "beta_true": real(2, seed=1), "covariance": torch.eye(2).double()},
)
for _method in ("margin", "normalized_margins"):
    add(
        f"natgrad.diagnostics.{_method}",
        getattr(ng.diagnostics, _method),
        lambda: {"beta": real(2), **_two(), "p": 2},
    )
add(
    "natgrad.diagnostics.norm_margin",
    ng.diagnostics.norm_margin,
    lambda: {"beta": real(2), **_two(), "p": 2},
)
add(
    "natgrad.diagnostics.margin_fractions",
    ng.diagnostics.margin_fractions,
    lambda: {"beta": real(2), **_two(), "best": {2: 100.0}},
)
add(
    "natgrad.diagnostics.fit_rate",
    ng.diagnostics.fit_rate,
    lambda: {
        "t": torch.arange(1.0, 20.0).double(),
        "gap": 1 / torch.arange(1.0, 20.0).double(),
        "law": "power",
        "windows": 3,
    },
)
add(
    "natgrad.diagnostics.kkt",
    ng.diagnostics.kkt,
    lambda: {
        "parametrization": ng.Direct(),
        "params": torch.ones(2).double(),
        **_two(),
        "degree": 1.0,
        "within": 0.1,
    },
)
add(
    "natgrad.diagnostics.off_span", ng.diagnostics.off_span, lambda: {"beta": real(2), "x": x()[:1]}
)
add(
    "natgrad.diagnostics.support_recovery",
    ng.diagnostics.support_recovery,
    lambda: {"beta": real(4), "true_support": torch.tensor([0, 1]), "k": 2},
)


# Linear algebra -----------------------------------------------------------------------------------

add(
    "natgrad.linalg.cholesky",
    linalg.cholesky,
    lambda: {"matrix": torch.eye(2).double(), "name": "it", "hint": "Try another."},
)
add(
    "natgrad.linalg.graded_lstsq",
    linalg.graded_lstsq,
    lambda: {"a": x(), "b": real(4), "log_weight": real(4), "rtol": 1e-9},
)
add(
    "natgrad.linalg.graded_fisher_solve",
    linalg.graded_fisher_solve,
    lambda: {
        "a": x(),
        "log_weight": real(4),
        "g": x(),
        "g_log_weight": real(4),
        "g_target": real(4),
        "rtol": 1e-9,
    },
)
_sides = lambda: {"left": [real(2, 2), None], "right": [None, real(2, 2, seed=1)], "u": real(2, 2)}  # noqa: E731
add("natgrad.linalg.kronecker_lstsq", linalg.kronecker_lstsq, lambda: {**_sides(), "damping": 0.1})
add("natgrad.linalg.reachable", linalg.reachable, _sides)
add(
    "natgrad.linalg.lstsq",
    linalg.lstsq,
    lambda: {"a": x(), "b": real(4), "rtol": 1e-9, "rounded": torch.float64},
)
add("natgrad.linalg.norms.Lp", norms.Lp, lambda: {"p": 3})
add("natgrad.linalg.norms.Group", norms.Group, lambda: {"groups": torch.tensor([0, 1]), "p": 1})
add("natgrad.linalg.norms.Metric", norms.Metric, lambda: {"a": torch.eye(2).double()})
add("natgrad.linalg.norms.as_norm", norms.as_norm, lambda: {"p": 2})
for _name, _norm in {
    "Lp": norms.Lp(3),
    "Group": norms.Group("rows"),
    "Metric": norms.Metric(torch.eye(2).double()),
    "Spectral": norms.Spectral(),
    "Nuclear": norms.Nuclear(),
}.items():
    for _method, _argument in (("peak", "g"), ("__call__", "b")):
        add_method(
            f"natgrad.linalg.norms.{_name}.{_method}",
            lambda norm=_norm: norm,
            lambda argument=_argument: {argument: real(3, 2)},
        )
add_method(
    "natgrad.linalg.norms.Group.numbers", lambda: norms.Group("rows"), lambda: {"shape": (3, 2)}
)
for _method, _argument in (("rooted", "b"), ("unrooted", "g"), ("from_root", "c")):
    add_method(
        f"natgrad.linalg.norms.Metric.{_method}",
        lambda: norms.Metric(torch.eye(2).double()),
        lambda argument=_argument: {argument: real(3, 2)},
    )
