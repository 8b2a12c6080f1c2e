"""The public names: which they are, that each is documented and typed, and that none is hidden.

A module is public when no part of its path starts with an underscore. What a public module lists in
`__all__` is the API. Experiments, verify and the command line are applications: they are not.
"""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import natgrad
from tests.helpers import for_each

OBJECTS = {
    "Bernoulli", "Gaussian", "Categorical",
    "Direct", "Diagonal", "MatrixProduct", "DeepLinear", "Network",
    "euclidean", "natural", "Fisher", "ntk", "natural_ntk", "LayerShares", "GaussianInputs",
    "integrate", "descend", "Trajectory",
    "NGD", "GaussNewton", "diagnose",
    "compare", "complete",
}  # fmt: skip
SUBMODULES = {"limits", "diagnostics", "stopping", "data", "reference"}

CORE = (
    "errors", "reference", "stopping", "linalg", "likelihoods", "data", "parametrizations",
    "directions", "flows", "limits", "diagnostics", "fits", "optim",
)  # fmt: skip
LAB = {
    "experiment", "cell", "claim", "sweep", "arrays", "figures", "registry", "failures", "engines",
    "report",
}  # fmt: skip
MOVED = (
    "direction_settled", "loss_below", "margin_above", "steps_reached", "time_reached",
    "wall_clock",
)  # fmt: skip


def module_names() -> list[str]:
    """Every module of the package, in its own dotted name; those that only run are left out."""
    found = pkgutil.walk_packages(natgrad.__path__, "natgrad.")
    return ["natgrad", *(m.name for m in found if not m.name.endswith("__main__"))]


ALL_MODULES = module_names()
PUBLIC = [
    name
    for name in ALL_MODULES
    if not any(part.startswith("_") for part in name.split("."))
    and name.split(".")[1:2] in [[], *([top] for top in (*CORE, "lab"))]
]


@dataclass(frozen=True)
class Name:
    """A public name, in the first public module that lists it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)

    @property
    def is_exception(self) -> bool:
        return inspect.isclass(self.value) and issubclass(self.value, BaseException | Warning)

    @property
    def is_defined_here(self) -> bool:
        """A class or function of natgrad, not an alias, a constant or a module."""
        made = inspect.isclass(self.value) or inspect.isfunction(self.value)
        return made and self.value.__module__.startswith("natgrad.")


def public_names() -> list[Name]:
    found: dict[int, Name] = {}
    for module in PUBLIC:
        for name in getattr(importlib.import_module(module), "__all__", ()):
            one = Name(module, name)
            found.setdefault(id(one.value), one)
    return list(found.values())


# What is public


def test_the_top_has_the_names_it_should_and_no_more():
    assert len(OBJECTS) + len(SUBMODULES) == 28
    assert len(set(natgrad.__all__)) == len(natgrad.__all__)
    assert set(natgrad.__all__) == OBJECTS | SUBMODULES
    modules = {n for n in natgrad.__all__ if isinstance(getattr(natgrad, n), ModuleType)}
    assert modules == SUBMODULES


def test_the_walk_meets_every_public_module():
    assert {name.split(".")[1] for name in PUBLIC[1:]} == {*CORE, "lab"}
    assert {name.split(".")[2] for name in PUBLIC if name.startswith("natgrad.lab.")} == LAB


def test_every_public_module_lists_its_names():
    def check(name: str) -> None:
        module = importlib.import_module(name)
        listed = module.__all__
        assert listed or hasattr(module, "__path__"), "__all__ is empty"
        assert len(set(listed)) == len(listed)
        assert not [n for n in listed if n.startswith("_")]
        assert not [n for n in listed if not hasattr(module, n)]
        exec(f"from {name} import *", {})

    for_each(PUBLIC, check)


def test_names_at_the_top_are_public_one_level_below_too():
    below = {
        id(getattr(importlib.import_module(module), name))
        for module in PUBLIC[1:]
        for name in getattr(importlib.import_module(module), "__all__", ())
    }
    applications = {"compare", "complete"}
    objects = set(natgrad.__all__) - SUBMODULES - applications
    assert not [name for name in objects if id(getattr(natgrad, name)) not in below]


def test_no_module_is_shadowed():
    """`import natgrad.a.b as m` gives the module, whatever has been imported before."""
    for name in ALL_MODULES:
        importlib.import_module(name)

    def check(name: str) -> None:
        package, _, last = name.rpartition(".")
        assert getattr(sys.modules[package], last) is sys.modules[name]

    for_each(ALL_MODULES[1:], check)


# What every public name has


def test_every_public_name_is_documented_with_an_example():
    """An alias or a constant needs neither, and an exception needs no example."""

    def check(one: Name) -> None:
        if one.is_defined_here:
            text = vars(one.value).get("__doc__") if inspect.isclass(one.value) else None
            text = text or one.value.__doc__
            assert text, "no docstring"
            assert one.is_exception or ">>>" in text, "no example"

    for_each(public_names(), check)


def test_every_public_name_is_typed():
    def check(one: Name) -> None:
        if one.is_defined_here:
            missing = [
                gap for label, function in functions(one) for gap in untyped(label, function)
            ]
            assert not missing, ", ".join(missing)

    for_each(public_names(), check)


def functions(one: Name) -> Iterator[tuple[str, Any]]:
    """Yield a function itself, or the public methods that a class and its bases define."""
    if not inspect.isclass(one.value):
        yield one.name, one.value
        return
    for base in one.value.__mro__:
        if not base.__module__.startswith("natgrad."):
            continue
        for name, raw in vars(base).items():
            function: Any = raw
            if isinstance(raw, property):
                function = raw.fget
            elif isinstance(raw, cached_property):
                function = raw.func
            elif isinstance(raw, staticmethod | classmethod):
                function = raw.__func__
            written = inspect.isfunction(function) and function.__module__.startswith("natgrad.")
            if written and (name == "__init__" or not name.startswith("_")):
                yield f"{base.__name__}.{name}", function


def untyped(label: str, function: Any) -> Iterator[str]:
    if getattr(function, "__qualname__", "").startswith("__create_fn__"):
        return  # written by dataclasses
    signature = inspect.signature(function)
    for position, p in enumerate(signature.parameters.values()):
        own = position == 0 and p.name in ("self", "cls")
        if p.annotation is p.empty and not own:
            yield f"{label}({p.name})"
    if signature.return_annotation is signature.empty and not label.endswith(".__init__"):
        yield f"{label} -> ?"


# The front door is light, and helps


def test_importing_natgrad_imports_no_torch():
    code = "import sys, natgrad; dir(natgrad); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_dir_and_star_give_the_public_names():
    assert set(dir(natgrad)) == {*natgrad.__all__, "__version__"}
    scope: dict[str, Any] = {}
    exec("from natgrad import *", scope)
    assert set(scope) - {"__builtins__"} == set(natgrad.__all__)
    assert all(scope[name] is getattr(natgrad, name) for name in natgrad.__all__)


@pytest.mark.parametrize("name", MOVED)
def test_stopping_rules_warn_at_their_old_place(name):
    with pytest.warns(DeprecationWarning, match=rf"natgrad\.stopping\.{name}\b"):
        old = getattr(natgrad, name)
    assert old is getattr(natgrad.stopping, name)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("natral", "natural"), ("Bernouli", "Bernoulli"), ("ngd", "NGD")]
)
def test_a_wrong_name_is_refused_with_the_nearest(wrong, nearest):
    with pytest.raises(AttributeError, match=rf"{wrong}.*{nearest}"):
        getattr(natgrad, wrong)
    assert not hasattr(natgrad, "nothing_like_any_name")
