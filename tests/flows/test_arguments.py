"""Options that nobody takes, and stopping rules that could never stop."""

import math

import pytest
import torch

import natgrad as ng
from natgrad.errors import DtypeError, InvalidInputError, NatgradError, NonFiniteError
from natgrad.flows import armijo, constant, midpoint, normalized

X, Y = torch.eye(2).double(), torch.ones(2).double()
ARGS = (ng.Bernoulli(), ng.Direct(), torch.zeros(2).double(), (X, Y))


def run(caller, direction, **options):
    if caller is ng.descend:
        options["step"] = 0.1
    return caller(direction, *ARGS, until=ng.stopping.steps_reached(2), **options)


@pytest.mark.parametrize("caller", [ng.integrate, ng.descend])
@pytest.mark.parametrize(
    ("direction", "options", "phrase"),
    [
        (ng.euclidean, {"fisher_over": "nonsense"}, "euclidean has no option 'fisher_over'"),
        (ng.euclidean, {"recrod": {}}, "Did you mean 'record'"),
        (ng.natural, {"selektion": "min_norm"}, "Did you mean 'selection'"),
        (ng.natural, {"dampening": 0.1}, "Did you mean 'damping'"),
    ],
)
def test_unknown_options_are_refused(caller, direction, options, phrase):
    with pytest.raises(InvalidInputError, match=phrase):
        run(caller, direction, **options)


def test_the_callers_own_options_are_offered():
    with pytest.raises(InvalidInputError, match="Did you mean 'rtol'"):
        run(ng.integrate, ng.euclidean, rtoll=1e-3)
    with pytest.raises(InvalidInputError, match="Did you mean 'save_every'"):
        run(ng.descend, ng.euclidean, save_evry=2)


def test_a_custom_direction_keeps_its_options():
    def mine(likelihood, parametrization, params, batch, *, gain=1.0):
        return gain * ng.euclidean(likelihood, parametrization, params, batch)

    assert run(ng.descend, mine, gain=2.0).steps == 2
    with pytest.raises(InvalidInputError, match="Did you mean 'gain'"):
        run(ng.descend, mine, gian=2.0)


@pytest.mark.parametrize("caller", [ng.integrate, ng.descend])
@pytest.mark.parametrize(
    ("guess", "help_"),
    [
        ("natural", "pass the function natgrad.natural,"),
        ("euclidean", "pass the function natgrad.euclidean,"),
        ("ngd", "pass the function natgrad.euclidean or natgrad.natural,"),
    ],
)
def test_a_direction_by_name_is_refused_with_the_function_to_pass(caller, guess, help_):
    with pytest.raises(
        DtypeError, match=f"direction must be a function, but is '{guess}'; {help_}"
    ):
        run(caller, guess)


RULES = [
    ng.stopping.loss_below,
    ng.stopping.margin_above,
    ng.stopping.time_reached,
    ng.stopping.steps_reached,
    ng.stopping.direction_settled,
    ng.stopping.wall_clock,
    armijo,
    constant,
    midpoint,
    normalized,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
@pytest.mark.parametrize(
    "bad",
    [float("nan"), float("inf"), None, "1", True, 1j, [], {}, object(), 10**400, torch.eye(2)],
)
def test_rules_check_their_numbers(rule, bad):
    with pytest.raises(InvalidInputError):
        rule(bad)


def test_rules_join_rules():
    with pytest.raises(DtypeError, match="stopping rule"):
        ng.stopping.loss_below(1.0) | 3.0
    with pytest.raises(DtypeError, match="stopping rule"):
        ng.stopping.loss_below(1.0) & None


@pytest.mark.parametrize(
    "options",
    [
        {"until": None},
        {"until": float("nan")},
        {"rtol": float("nan")},
        {"rtol": "1e-3"},
        {"atol": float("nan")},
        {"atol": -1.0},
        {"max_evaluations": 0},
        {"max_evaluations": 2.5},
        {"log_time": 1},
        {"method": None},
        {"times": "now"},
        {"times": [1.0, float("nan")]},
        {"times": torch.tensor([1.0 + 1j])},
        {"times": torch.tensor([0.0, 1.0]).to_sparse()},
        {"record": 3},
        {"record": {"a": 3}},
        {"record": {3: len}},
    ],
    ids=str,
)
def test_arguments_of_integrate(options):
    with pytest.raises(InvalidInputError):
        ng.integrate(ng.natural, *ARGS, **{"until": 1.0, **options})


@pytest.mark.parametrize(
    "options",
    [{"step": None}, {"step": float("nan")}, {"save_every": 0}, {"max_steps": -1}, {"record": 3}],
    ids=str,
)
def test_arguments_of_descend(options):
    with pytest.raises(InvalidInputError):
        ng.descend(ng.natural, *ARGS, **{"step": 0.1, "until": 1.0, **options})


@pytest.mark.parametrize("index", [2, -3, None, 0.0, "0", [0], torch.tensor([0])])
def test_a_trajectory_has_no_such_time(index):
    path = ng.Trajectory(torch.tensor([0.0, 1.0]), torch.eye(2), torch.ones(2))
    with pytest.raises(InvalidInputError, match="index must be an integer"):
        path.at(index)


@pytest.mark.parametrize("caller", [ng.integrate, ng.descend])
def test_a_start_whose_loss_overflows_is_refused(caller):
    args = (ng.Gaussian(), ng.Direct(), torch.full((2,), 1e200, dtype=torch.float64), (X, Y))
    options = {"step": 0.1} if caller is ng.descend else {}
    with pytest.raises(NonFiniteError, match="the loss at the start must be finite"):
        caller(ng.euclidean, *args, until=1.0, **options)


@pytest.mark.parametrize(
    "bad", [{"met": 1}, {"reason": 3}, {"status": "converged"}, {"until": float("nan")}], ids=str
)
def test_a_stopping_rule_checks_its_parts(bad):
    parts = {"met": lambda progress: True, "reason": "at once", **bad}
    with pytest.raises(InvalidInputError):
        ng.stopping.Rule(**parts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"selection": "x"},
        {"damping": -1.0},
        {"damping": math.nan},
        {"fisher_over": "nonsense"},
        {"fisher_over": "all"},
        {"fisher_over": torch.ones(3, 7)},
    ],
    ids=str,
)
@pytest.mark.parametrize("caller", [ng.integrate, ng.descend])
def test_wrong_values_of_the_directions_options_are_refused(caller, wrong):
    step = {"step": 0.1} if caller is ng.descend else {}
    with pytest.raises(NatgradError):
        caller(ng.natural, *ARGS, until=3.0, **step, **wrong)
