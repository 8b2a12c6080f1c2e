"""A result is named after the sources behind it: no more of them, and no fewer."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from natgrad.errors import InvalidInputError
from natgrad.lab._store.sources import closure, fingerprint

FILES = {
    "study/__init__.py": "import study.unrelated",
    "study/cell.py": """
        from study.models import deep
        from . import sibling
        import helper
        from natgrad.linalg import lstsq
        from natgrad.lab.cell import Cell
        def run(config):
            from .late import late
            import numpy, os
    """,
    "study/models/__init__.py": "from .deep import layers",
    "study/models/deep.py": "import study.base as base; layers = 3",
    "study/models/wide.py": "",
    "study/base.py": "",
    "study/sibling.py": "",
    "study/late.py": "from study.late_too import *",
    "study/late_too.py": "",
    "study/unrelated.py": "",
    "helper.py": "",
    "stranger.py": "",
}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        indent = len(text) - len(text.lstrip("\n ")) - 1
        path.write_text(text.replace("\n" + " " * max(indent, 0), "\n"))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("study", "helper", "lone"):
            del sys.modules[name]


def run() -> Callable[..., object]:
    found: Callable[..., object] = importlib.import_module("study.cell").run
    return found


def test_imports_are_followed_also_relative_and_inside_functions(study) -> None:
    found = closure(run())
    mine = {name for name in found if not name.startswith("natgrad")}
    assert mine == {
        "study.cell", "study.models.deep", "study.base", "study.sibling", "study.late",
        "study.late_too", "helper",
    }  # fmt: skip
    theirs = set(found) - mine
    assert {"natgrad.linalg", "natgrad.linalg._lstsq", "natgrad.errors"} <= theirs
    assert not any(name.startswith("natgrad.lab") for name in theirs)
    assert "natgrad" not in theirs


@pytest.mark.parametrize(
    ("name", "counts"),
    [("study/late_too.py", True), ("helper.py", True), ("study/cell.py", True),
     ("study/models/wide.py", False), ("study/__init__.py", False), ("stranger.py", False)],
)  # fmt: skip
def test_the_hash_changes_with_what_counts_only(study, name, counts) -> None:
    before = fingerprint(run())
    assert fingerprint(run()) == before
    with open(study / name, "a") as file:
        file.write("\nchanged = True\n")
    assert (fingerprint(run()) != before) == counts


def lone(study: Path, line: str) -> set[str]:
    (study / "lone.py").write_text(f"{line}\ndef run(config): ...\n")
    sys.modules.pop("lone", None)
    importlib.invalidate_caches()
    return set(closure(importlib.import_module("lone").run)) - {"lone"}


def test_the_whole_package_counts_when_names_are_taken_from_it(study) -> None:
    everything = lone(study, "import natgrad as ng")
    assert {"natgrad", "natgrad.reference", "natgrad.flows._methods.steppers.rkc"} <= everything
    assert lone(study, "from natgrad import Bernoulli") == everything
    assert lone(study, "import natgrad.linalg") >= everything
    part = lone(study, "from natgrad import limits")
    assert "natgrad.limits" in part
    assert "natgrad" not in part
    assert lone(study, "import natgrad.linalg._columns as m") == {"natgrad.linalg._columns"}
    assert lone(study, "import numpy, torch, sys") == set()


def test_a_name_that_a_package_gives_another_meaning_counts_with_the_package(study) -> None:
    both = lone(study, "from natgrad.flows import integrate")  # a function, and a module's name
    assert {"natgrad.flows", "natgrad.flows._integrate"} <= both
    assert lone(study, "from study.models import layers") == {
        "study.models",
        "study.models.deep",
        "study.base",
    }


def test_functions_of_one_module_share_their_sources() -> None:
    from natgrad.lab.cell import canonical, find

    assert "natgrad.lab.cell" in closure(canonical)
    assert fingerprint(canonical) == fingerprint(find)


def test_packages_installed_beside_a_cells_package_do_not_count() -> None:
    import rich.console

    assert {name.partition(".")[0] for name in closure(rich.console.Console.print)} == {"rich"}


def test_a_function_without_a_file_is_refused() -> None:
    scope: dict[str, object] = {"__name__": "nowhere"}
    exec("def run(config): ...", scope)
    with pytest.raises(InvalidInputError, match="was not defined in a file"):
        fingerprint(scope["run"])  # type: ignore[arg-type]
