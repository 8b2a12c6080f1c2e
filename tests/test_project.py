"""Properties of a release: one version everywhere, a light core, nothing invented."""

import re
import tomllib
from pathlib import Path

import natgrad

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"torch", "numpy", "scipy", "safetensors"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", requirement)[0].lower() for requirement in requirements}


def test_the_changelog_and_the_citation_have_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(natgrad.__version__)}\b", changelog, re.M)
    assert f"\nversion: {natgrad.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_core_is_light():
    assert names(PROJECT["dependencies"]) == CORE
    assert names(PROJECT["optional-dependencies"]["lab"]) == {
        "matplotlib",
        "rich",
        "tyro",
        "jinja2",
        "threadpoolctl",
    }


def test_every_direct_dependency_is_pinned_without_a_local_suffix():
    pins = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    extras = PROJECT["optional-dependencies"]
    wanted = names(PROJECT["dependencies"])
    for extra in ("lab", "limits", "dask", "tables", "bench", "docs", "test"):
        wanted |= names(extras[extra])
    normal = {name.replace("_", "-") for name in pins}
    assert {name.replace("_", "-") for name in wanted} - {"natgrad"} <= normal
    assert not [pin for pin in pins.values() if "+" in pin]


def test_classifiers_list_only_the_python_that_is_run():
    versions = [c for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    run = set(re.findall(r'python-version: "(3\.\d+)"', workflow))
    assert {c.rsplit(" ", 1)[1] for c in versions} == run


def test_the_author_is_the_project():
    assert PROJECT["authors"] == [{"name": "The natgrad developers"}]
    assert "urls" not in PROJECT


def test_the_workflow_runs_targets_that_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    run = re.findall(r"run: (.*)", workflow)
    assert run
    for command in run:
        program, target = command.split()
        assert program == "make"
        assert target in targets
