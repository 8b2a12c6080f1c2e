"""The documentation names things that exist."""

import importlib
import re
from pathlib import Path

import pytest
import torch

from natgrad.lab.experiment import Experiment
from natgrad.verify import identities

ROOT = Path(__file__).parent.parent
PAPER_MAP = (ROOT / "docs" / "paper_map.md").read_text()
CODE = re.findall(r"`([^`]+)`", "\n".join(x for x in PAPER_MAP.splitlines() if x[:1] == "|"))


def resolve(name: str) -> object:
    """Return the object that a dotted name below natgrad names."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["natgrad", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise LookupError(name)


@pytest.mark.parametrize("name", sorted({c for c in CODE if re.fullmatch(r"[a-z_]+(\.\w+)+", c)}))
def test_functions_of_the_paper_map_exist(name) -> None:
    found = resolve(name)
    assert callable(found) or isinstance(found, Experiment)


@pytest.mark.parametrize("path", sorted({c for c in CODE if c.startswith("tests/")}))
def test_tests_of_the_paper_map_exist(path) -> None:
    assert (ROOT / path).is_file()


def test_identities_of_the_paper_map_are_those_of_verify() -> None:
    named = {c for c in CODE if re.match(r"(kmh21|blh18|natgrad)/", c)}
    assert named == {claim.id for claim in identities()}


@pytest.mark.parametrize("page", ["README.md", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]])
def test_links_between_pages_lead_somewhere(page) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (folder / target).exists(), target


def test_the_readme_examples_run() -> None:
    torch.manual_seed(0)
    scope: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S):
        exec(code, scope)
    assert float(scope["loss"].detach()) < 0.1  # type: ignore[attr-defined]
    velocity, y = scope["velocity"], scope["y"]
    s = scope["network"].predict(scope["params"], scope["x"])  # type: ignore[attr-defined]
    assert float((velocity - y * (1 + (-y * s).exp())).abs().max()) < 1e-9  # type: ignore[operator]
