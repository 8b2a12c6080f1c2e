"""One figure, one folder: what is in it, and what it imports."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from natgrad.cli._reproduce import parse
from natgrad.experiments import FIGURES, GROUPS
from natgrad.lab.registry import experiment

HEAVY = ("torch", "numpy", "scipy", "matplotlib")


def imported(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after running some code."""
    code += "\nimport sys; print('imported', *sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines()[-1].split())


def figures_in(modules: set[str]) -> set[str]:
    return {
        f"{name.split('.')[2]}/{name.split('.')[3]}"
        for name in modules
        if name.startswith("natgrad.experiments.") and "/".join(name.split(".")[2:4]) in FIGURES
    }


def test_a_figure_is_imported_alone_and_without_torch() -> None:
    modules = imported(
        "from natgrad.lab.registry import experiment; experiment('kmh21/fig4').presets"
    )
    assert figures_in(modules) == {"kmh21/fig4"}
    assert not modules & set(HEAVY)


def test_names_are_known_without_importing_a_figure() -> None:
    modules = imported("from natgrad.lab.registry import names; assert 'kmh21/fig4' in names()")
    assert not figures_in(modules)


def test_all_configs_are_imported_without_torch() -> None:
    modules = imported("from natgrad.lab.registry import experiments; experiments()")
    assert figures_in(modules) == set(FIGURES)
    assert not modules & set(HEAVY)


def test_computing_a_figure_imports_no_other() -> None:
    modules = imported(
        "from natgrad.lab.experiment import in_this_process\n"
        "from natgrad.lab.registry import experiment\n"
        "e = experiment('kmh21/fig3'); config = e.presets['smoke']\n"
        "arrays = e.compute(config, in_this_process)\n"
        "e.claims(config, arrays), e.departures(config, arrays), e.draw(config, arrays)\n"
    )
    assert figures_in(modules) == {"kmh21/fig3"}


def test_the_papers_figures_run_by_default_and_others_by_name_or_all() -> None:
    def chosen(*arguments: str) -> set[str]:
        # Other tests may have registered toys.
        return {figure.name for figure, _ in parse(arguments)[1] if figure.name in FIGURES}

    papers = {name for name in FIGURES if name.partition("/")[0] in ("kmh21", "blh18")}
    assert len(papers) == 10
    assert chosen("--preset", "smoke") == papers
    assert chosen("--all", "--preset", "smoke") == set(FIGURES)
    assert chosen("pinn") == {f"pinn/{figure}" for figure in GROUPS["pinn"]}
    assert chosen("pinn", "kmh21/fig1") == chosen("pinn") | {"kmh21/fig1"}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_four_parts(name) -> None:
    package = FIGURES[name].removesuffix(".config")
    assert experiment(name).name == name
    assert not set(vars(import_module(package))) & {"EXPERIMENT", "compute"}  # docstring only
    parts = ("config", "cells", "claims", "draw")
    assert all(find_spec(f"{package}.{part}") is not None for part in parts)
    for module, functions in (
        ("cells", ("compute",)),
        ("claims", ("claims", "departures")),
        ("draw", ("draw",)),
    ):
        found = import_module(f"{package}.{module}")
        assert all(callable(getattr(found, function)) for function in functions)


@pytest.mark.parametrize("name", [n for n in FIGURES if n.startswith(("blh18", "kmh21", "pinn"))])
def test_a_figure_tells_its_story_in_three_sentences(name) -> None:
    sentences = re.findall(r"[A-Z][^.]*\.(?= |$)", experiment(name).story)
    assert len(sentences) == 3
    assert " ".join(sentences) == experiment(name).story
