"""Every argument of `compare` and `complete` poisoned, one at a time: each gets a sentence."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import natgrad as ng
from natgrad.errors import NatgradError
from natgrad.experiments.compare import fit as compare_fit
from natgrad.experiments.complete import fit as complete_fit
from natgrad.experiments.complete.result import Completed

PYTHON: dict[str, Any] = {
    "None": None, "object": object(), "text": "text", "nan": math.nan, "inf": math.inf,
    "-1": -1, "0": 0, "True": True, "[]": [], "{}": {}, "1j": 1j, "10**400": 10**400,
    "-10**400": -(10**400), "()": (), "bytes": b"x", "set": set(), "function": len, "class": int,
    "ragged": [[1, 2], [3]], "[None]": [None], "['a']": ["a"], "1e308": 1e308, "2.5": 2.5,
}  # fmt: skip
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls these kinds experimental, or old
    ODD = {
        "sparse": torch.eye(8).to_sparse(),
        "csr": torch.eye(8).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(8, 2), 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }
TENSORS: dict[str, Any] = {
    **ODD,
    "meta": torch.ones(8, 2, device="meta"),
    "complex": torch.ones(8, 2, dtype=torch.complex64),
    "half": torch.ones(8, 2).half(),
    "bool": torch.ones(8, 2).bool(),
    "one number": torch.tensor(1.0),
    "three dimensions": torch.ones(2, 2, 2),
    "empty": torch.ones(0, 2),
    "NaN": torch.full((8, 2), math.nan),
    "with a graph": torch.ones(8, 2, requires_grad=True),
    "of another shape": torch.ones(5, 7),
    "objects": np.array([object(), 1], dtype=object),
    "texts": np.array(["a", "b"]),
    "complex array": np.ones((8, 2), complex),
}
POISON = PYTHON | TENSORS

X, Y = np.random.default_rng(0).standard_normal((8, 2)), np.arange(8) % 2
SEEN = [(i, j) for i in range(6) for j in range(6) if (i + 2 * j) % 3]
ROWS, COLUMNS = zip(*SEEN, strict=True)
VALUES = [float((i + 1) * (j - 2)) + 0.1 * ((i * j) % 3) for i, j in SEEN]

COMPARE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "x": lambda p: {"x": p},
    "y": lambda p: {"y": p},
    "test": lambda p: {"test": p},
    "features of test": lambda p: {"test": (p, Y)},
    "labels of test": lambda p: {"test": (X, p)},
    "unlabeled": lambda p: {"unlabeled": p},
    "names": lambda p: {"names": p},
    "one name": lambda p: {"names": ["a", p]},
    "classes": lambda p: {"classes": p},
    "one class": lambda p: {"classes": ("0", p)},
    **{
        name: lambda p, name=name: {name: p}  # type: ignore[misc]
        for name in (
            "depths", "until", "natural_until", "scale", "standardize", "intercept", "folds",
            "seed", "data", "fold", "no_such_option", "held_out", "categories", "missing", "drop",
            "keep", "class_weight",
        )
    },
    "one column": lambda p: {"drop": (p,)},
    "one depth": lambda p: {"depths": (p,)},
}  # fmt: skip
COMPLETE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "rows": lambda p: {"rows": p},
    "columns": lambda p: {"columns": p},
    "values": lambda p: {"values": p},
    "one value": lambda p: {"values": [p, *VALUES[1:]]},
    "test": lambda p: {"test": p},
    "values of test": lambda p: {"test": (ROWS, COLUMNS, p)},
    **{
        name: lambda p, name=name: {name: p}  # type: ignore[misc]
        for name in (
            "held_out", "seed", "center", "depths", "scales", "hidden", "ranks",
            "max_evaluations", "data", "no_such_option",
        )
    },
    **{
        f"one of {name}": lambda p, name=name: {name: (p,)}  # type: ignore[misc]
        for name in ("depths", "scales", "ranks")
    },
}  # fmt: skip


class Accepted(Exception):
    """The arguments passed every check; what follows is the work itself."""


def raw(call: Callable[[], object], what: str) -> list[str]:
    """Return what came out if it was neither an answer nor one typed sentence."""
    try:
        call()
    except Accepted:
        return []
    except NatgradError as error:
        return [f"{what}: {error}"] if len(str(error).splitlines()) != 1 else []
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {error}"]
    return []


@pytest.fixture
def no_work(monkeypatch) -> None:
    def accept(*arguments: object) -> None:
        raise Accepted

    for module in (compare_fit, complete_fit):
        monkeypatch.setattr(module, "compute", accept)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("place", COMPARE)
def test_compare_refuses_poison_in_a_sentence(place) -> None:
    found = []
    for name, poison in POISON.items():
        given = {"x": X, "y": Y, "depths": (1,), "folds": 2} | COMPARE[place](poison)
        found += raw(lambda given=given: ng.compare(**given), f"{place}={name}")  # type: ignore[misc]
    assert found == []


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("place", COMPLETE)
def test_complete_refuses_poison_in_a_sentence(place) -> None:
    found = []
    for name, poison in POISON.items():
        given = {"rows": ROWS, "columns": COLUMNS, "values": VALUES} | COMPLETE[place](poison)
        found += raw(lambda given=given: ng.complete(**given), f"{place}={name}")  # type: ignore[misc]
    assert found == []


@pytest.mark.parametrize(
    "extreme",
    [{"until": 1e300}, {"until": 1e-300}, {"natural_until": 1e300}, {"scale": 1e6},
     {"scale": 1e-300}, {"depths": (60,)}, {"seed": 2**62}],
    ids=str,
)  # fmt: skip
def test_extremes_that_are_accepted_are_answered(extreme) -> None:
    """Finite accuracies of every method that has an answer; these data are not separable."""
    how = {"depths": (1, 2), "until": 5.0, "natural_until": 2.0} | extreme
    found = ng.compare(X, Y, test=(X, Y), **how)
    assert found.kind == "not separable"
    none = [name for name, value in found.accuracy.items() if math.isnan(value)]
    assert none == ["ℓ2 max margin", "ℓ1 max margin"]


@pytest.mark.parametrize(
    "extreme",
    [{"max_evaluations": 10}, {"scales": (1e3,)}, {"scales": (1e-300,)}, {"depths": (12,)},
     {"hidden": 10**12}, {"ranks": (10**12,)}, {"held_out": 1e-300}, {"held_out": 0.49}],
    ids=str,
)  # fmt: skip
def test_extremes_of_complete_are_answered_or_refused(extreme) -> None:
    how = {"depths": (2,), "scales": (1e-2,), "ranks": (1,), "max_evaluations": 50} | extreme
    try:
        found = ng.complete(ROWS, COLUMNS, VALUES, **how)
    except NatgradError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert all(math.isfinite(error) for error in found.test_error.values())
        assert np.isfinite(found.matrix).all()


@pytest.mark.parametrize("name", POISON)
def test_a_completed_matrix_refuses_poison(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Completed(
        np.ones((2, 2), np.float32), ("a", "b"), ("c", "d"), {}, 1, 2, 1.0, 1.0, np.ones(1), (),
        {"means": 1.0}, np.ones(2), np.array([[0, 0]]), np.linspace(-1, 1, 201),
    )  # fmt: skip
    poison = POISON[name]
    wrong = raw(lambda: found.predict(poison, "c"), "row")
    wrong += raw(lambda: found.predict("a", poison), "column")
    wrong += raw(lambda: found.top(poison), "top") + raw(lambda: found.top("a", poison), "k")
    assert wrong + raw(lambda: found.save(poison), "save") == []
