"""No argument of a public callable, however wrong, gets more than a sentence.

Every argument is poisoned one at a time: the tables are in `poison.py` and `poison_calls`. The
bars are zero. A new public callable needs a valid call in the table.
"""

import inspect
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

import natgrad as ng
from natgrad.errors import InvalidInputError, NatgradError
from tests import poison
from tests.helpers import for_each
from tests.poison import Failure
from tests.poison_calls import DOCUMENTED, RECORDS, REFUSES, TABLE, hands_on

SECONDS = 120.0
"""Of processor time for all calls."""


@dataclass(frozen=True)
class Found:
    every: int
    calls: int
    seconds: float
    failures: list[Failure]

    def expect_none(self, sort: str) -> None:
        """Fail with the failures of a sort: how many, and the first of each callable."""
        chosen = [f for f in self.failures if f.sort == sort]
        counts = Counter(f.callable for f in chosen)
        first = {f.callable: f for f in reversed(chosen)}
        lines = [f"{n:5d}  {name}, e.g. {first[name]}" for name, n in sorted(counts.items())]
        if lines:
            head = f"{len(chosen)} of {self.calls} calls:"
            pytest.fail("\n".join([head, *lines]), pytrace=False)


@pytest.fixture(
    scope="module",
    params=[pytest.param(8, id="eighth"), pytest.param(1, id="all", marks=pytest.mark.slow)],
)
def found(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    every = request.param
    before, started = os.getcwd(), time.process_time()
    os.chdir(tmp_path_factory.mktemp("poison"))  # some calls write files
    torch.manual_seed(0)
    calls, failures = 0, []
    try:
        for name, make in TABLE.items():
            n, bad = poison.poison_all(
                name,
                make,
                hands_on=hands_on(name),
                documented=DOCUMENTED.get(name),
                every=every,
            )
            calls, failures = calls + n, failures + bad
        yield Found(every, calls, time.process_time() - started, failures)
    finally:
        os.chdir(before)


def test_every_public_callable_is_in_the_table():
    public = set(poison.public_callables())
    assert public - RECORDS == set(TABLE)
    assert public >= RECORDS


@pytest.mark.parametrize("name", TABLE)
def test_the_valid_calls_are_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = poison.run(TABLE[name]())
    assert outcome.kind == ("refused" if name in REFUSES else "answered"), outcome


@pytest.mark.parametrize("name", DOCUMENTED)
def test_answers_that_may_be_nan_are_documented(name):
    where = ng.Trajectory if name == "natgrad.integrate" else poison.public_callables()[name]
    assert "NaN" in where.__doc__


def test_the_valid_calls_name_every_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some calls need files
    for name, value in poison.public_callables().items():
        if name in TABLE:
            wanted = {
                p.name
                for p in inspect.signature(value).parameters.values()
                if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            }
            assert wanted <= TABLE[name]()[1].keys(), name


def test_arguments_of_python_and_numpy_types(found):
    found.expect_none("python")


def test_sparse_quantized_meta_and_nested_tensors(found):
    found.expect_none("exotic")


def test_dense_tensors_of_the_wrong_kind(found):
    found.expect_none("dense")


def test_harmless_tensors_are_taken(found):
    found.expect_none("harmless")


def test_all_of_it_takes_less_than_two_minutes(found):
    assert found.calls > 8834 // found.every
    assert found.seconds < SECONDS


WITH_OPTIONS = [
    name
    for name, value in poison.public_callables().items()
    if any(p.kind == p.VAR_KEYWORD for p in inspect.signature(value).parameters.values())
    and name not in RECORDS
]


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_unknown_options_are_refused_with_the_nearest_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, arguments = TABLE[name]()
    for option in list(arguments)[-2:]:
        with pytest.raises(InvalidInputError, match=f"'{option}'"):
            function(**arguments, **{f"{option}z": arguments[option]})


# The ratchet itself.


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda n: [0] * n, "raw"),
        (lambda n: math.nan if isinstance(n, str) else 1.0, "not finite"),
        (lambda n: time.sleep(60 if isinstance(n, str) else 0), "slow"),
        (lambda n: _mumble() if isinstance(n, str) else 1.0, "no sentence"),
    ],
    ids=["raw", "not finite", "slow", "no sentence"],
)
def test_bad_functions_are_found_out(function, kind, monkeypatch):
    monkeypatch.setattr(poison, "SECONDS", 0.05)
    _, failures = poison.poison_all("f", lambda: (function, {"n": 1}))
    assert kind in {f.outcome.kind for f in failures}


def test_a_refusal_of_harmless_tensors_is_found_out():
    def fussy(x):
        if not x.is_contiguous():
            raise InvalidInputError("x must be contiguous, but is not.")

    _, failures = poison.poison_all("f", lambda: (fussy, {"x": torch.ones(2, 2)}))
    assert "harmless" in {f.sort for f in failures}


def _mumble():
    raise InvalidInputError("bad")


def test_mistyped_keywords_get_the_nearest_name(tmp_path, monkeypatch):
    """Functions and constructors; methods leave it to Python, which names the wrong word."""
    monkeypatch.chdir(tmp_path)

    def check(name: str) -> None:
        function, arguments = TABLE[name]()
        option = max((n for n in arguments if n != "*"), key=len)  # a letter has no neighbor
        arguments[f"{option}x"] = arguments.pop(option)
        positional = arguments.pop("*", ())
        with pytest.raises(NatgradError, match=f"'{option}x'.*'{option}'"):
            function(*positional, **arguments)

    for_each([name for name in TABLE if plain(name) and TABLE[name]()[1].keys() - {"*"}], check)


def plain(name: str) -> bool:
    """Return whether a public callable is a function, or a constructor that checks arguments."""
    value = poison.public_callables()[name.partition(" ")[0]]  # "name with other arguments"
    return inspect.isclass(value) or (inspect.isfunction(value) and "." not in value.__qualname__)
