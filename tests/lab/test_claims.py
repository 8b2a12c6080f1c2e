"""Claims: numbers, bounds, verdicts."""

import json
import math

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.lab.claim import Claim, finite, over_seeds


def claim(value: float, relation: str, bound: object, **more: object) -> Claim:
    said = {"id": "x", "statement": "x is so", "source": "natgrad"}
    return Claim(**said, value=value, relation=relation, bound=bound, **more)  # type: ignore


@pytest.mark.parametrize(
    ("relation", "bound", "below", "at", "above"),
    [
        ("<=", 1.0, True, True, False),
        ("<", 1.0, True, False, False),
        (">=", 1.0, False, True, True),
        (">", 1.0, False, False, True),
        ("within", (1.0, 1.5), False, True, False),
        ("within", (0.5, 1.0), True, True, False),
    ],
)
def test_relations(relation, bound, below, at, above) -> None:
    found = [claim(value, relation, bound).satisfied for value in (0.5, 1.0, 2.0)]
    assert found == [below, at, above]


@pytest.mark.parametrize("relation", ["<=", "<", ">=", ">"])
def test_no_number_satisfies_nothing(relation) -> None:
    assert not claim(math.nan, relation, 1.0).satisfied
    assert not claim(math.nan, "within", (-math.inf, math.inf)).satisfied


def test_a_claim_is_judged_at_its_presets_only() -> None:
    good = claim(2.0, ">=", 1.0, presets=("quick", "paper"))
    assert [good.holds(preset) for preset in ("smoke", "quick", "paper", "")] == [
        None,
        True,
        True,
        None,
    ]


@pytest.mark.parametrize(
    ("value", "expected", "fine"),
    [(2.0, True, True), (0.0, True, False), (2.0, False, False), (0.0, False, True)],
)
def test_a_refuted_statement_is_as_expected_while_it_stays_refuted(value, expected, fine) -> None:
    found = claim(value, ">=", 1.0, expected=expected)
    assert found.as_expected("paper") is fine
    assert found.as_expected("smoke")  # not judged there


@pytest.mark.parametrize(("relation", "bound"), [("within", 1.0), ("<=", (0.0, 1.0))])
def test_a_bound_of_the_wrong_kind_is_refused(relation, bound) -> None:
    with pytest.raises(InvalidInputError, match="'within' takes a pair"):
        claim(1.0, relation, bound)


def test_the_entry_of_the_report() -> None:
    found = claim(math.nan, "within", (0.0, 1.0), sd=math.inf, n=3).to_json("paper")
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "id": "x",
        "statement": "x is so",
        "value": None,
        "sd": None,
        "n": 3,
        "relation": "within",
        "bound": [0.0, 1.0],
        "holds": False,
        "expected": True,
        "source": "natgrad",
    }


def test_numbers_over_seeds() -> None:
    values = np.array([[1.0, 2.0], [4.0, 9.0]])
    mean = 4.0
    sd = math.sqrt(((1 - mean) ** 2 + (2 - mean) ** 2 + 0 + (9 - mean) ** 2) / 3)
    assert over_seeds(values) == {"value": mean, "sd": pytest.approx(sd), "n": 4}
    assert over_seeds(values, "median")["value"] == 3
    assert over_seeds(values, "min")["value"] == 1
    assert over_seeds(values, "max")["value"] == 9
    assert over_seeds([5.0]) == {"value": 5.0, "sd": None, "n": 1}


def test_no_seeds_hold_nothing() -> None:
    assert not claim(relation="<=", bound=1.0, **over_seeds([])).satisfied


def test_a_seed_without_a_number_is_not_dropped() -> None:
    assert not claim(relation="<=", bound=9.0, **over_seeds([1.0, math.nan])).satisfied


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_json_cannot_hold(value) -> None:
    assert finite(value) is None
    assert finite(0.0) == 0.0
