"""The documentation names things that exist."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from natgrad import diagnostics
from natgrad.cli import COMMANDS, main
from natgrad.experiments import FIGURES
from natgrad.lab.experiment import Experiment
from natgrad.verify import identities
from tests.helpers import for_each

ROOT = Path(__file__).parent.parent
PAPER_MAP = (ROOT / "docs" / "paper_map.md").read_text()
CODE = re.findall(r"`([^`]+)`", "\n".join(x for x in PAPER_MAP.splitlines() if x[:1] == "|"))
PAGES = sorted(
    str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)
SELF = Path(__file__).read_text()
LINK = re.compile(r"\]\(([^)\s]+)\)")
TOCTREE = re.compile(r"```{toctree}\n(?::[^\n]*\n)*\n(.*?)```", re.S)


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


def test_functions_of_the_paper_map_exist() -> None:
    def check(name: str) -> None:
        found = resolve(name)
        assert callable(found) or isinstance(found, Experiment)

    for_each(sorted({c for c in CODE if re.fullmatch(r"[a-z_]+(\.\w+)+", c)}), check)


def test_tests_of_the_paper_map_exist() -> None:
    def check(path: str) -> None:
        assert (ROOT / path).is_file()

    for_each(sorted({c for c in CODE if c.startswith("tests/")}), check)


def test_identities_of_the_paper_map_are_those_of_verify() -> None:
    named = {c for c in CODE if re.match(r"(kmh21|blh18|natgrad)/", c)}
    assert named == {claim.id for claim in identities()}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_headings_that_exist(page) -> None:
    for link in LINK.findall(without_code((ROOT / page).read_text())):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https:"), link
            continue
        target, _, heading = link.partition("#")
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), link
        if heading:
            assert heading in headings(file), link


def test_every_page_is_reached_from_the_readme() -> None:
    seen, waiting = set(), ["README.md"]
    while waiting:
        page = ROOT / waiting.pop()
        seen.add(page.resolve())
        text = page.read_text()
        listed = [f"{name}.md" for block in TOCTREE.findall(text) for name in block.split()]
        for link in LINK.findall(text) + listed:
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in seen:
                waiting.append(str(target))
    assert not {p for p in (ROOT / "docs").rglob("*.md") if p.resolve() not in seen}


def test_every_finding_has_a_picture_with_words() -> None:
    articles = sorted((ROOT / "docs" / "findings").glob("*.md"))
    assert len(articles) >= 21

    def check(article: Path) -> None:
        assert re.search(r"!\[[^\]]{20,}\]\([^)]+\.png\)", article.read_text())

    for_each(articles, check)


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.S)


def headings(file: Path) -> set[str]:
    """Return the anchors of a page in GitHub's form: lower case, hyphens for spaces."""
    titles = re.findall(r"^#+ (.*)$", without_code(file.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_the_readme_examples_run() -> None:
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    snippets = SNIPPET.findall((ROOT / "README.md").read_text())
    assert len(snippets) == 3
    for code in snippets:
        exec(code, scope)
    assert float(diagnostics.angle(scope["path"].final, scope["limit"].solution)) < 1e-4
    assert float(scope["loss"].detach()) < 0.05
    assert float(scope["error"].detach()) < 1e-6


def test_the_readme_is_one_screen() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 68
    assert [line for line in text.splitlines() if line.startswith("    make ")] != []
    assert len(re.findall(r"<img|!\[", text)) == 1


# Pages whose snippets other tests run, with the promises made beside them.
RUN_BY = {
    "sklearn": "tests/sklearn/test_estimators.py",
    "flows": "tests/flows/test_page.py",
    "clusters": "tests/lab/test_dask.py",
    "gauss_newton": "tests/optim/test_pages.py",
    "laboratory": "tests/lab/test_report.py",
    "loops": "tests/optim/test_loops.py",
    "losses_and_layers": "tests/optim/test_pages.py",
    "optimizer": "tests/optim/test_pages.py",
    "tutorial_optimizer": "tests/optim/test_pages.py",
}
SNIPPET = re.compile(r"```python\n(.*?)```", re.S)


def run_page(name: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    for code in SNIPPET.findall((ROOT / "docs" / f"{name}.md").read_text()):
        exec(compile(code, f"{name}.md", "exec"), scope)
    return scope


def test_every_page_is_in_the_contents_of_the_site() -> None:
    contents = (ROOT / "docs" / "index.md").read_text().splitlines()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= set(contents)


def test_the_snippets_of_every_page_are_run() -> None:
    here = {name for name in ("atlas", "compare", "complete") if f'run_page("{name}")' in SELF}
    pages = {Path(p).stem for p in PAGES if SNIPPET.search((ROOT / p).read_text())}
    assert pages <= here | set(RUN_BY) | {"README"}
    for name, test in RUN_BY.items():
        assert f'"{name}.md"' in (ROOT / test).read_text()


COMMAND = re.compile(r"(?:^    |`)natgrad ([a-z]\w*)((?: +[^\s`#]+)*)", re.M)


def test_commands_and_options_in_the_pages_exist(capsys) -> None:
    pages = [(ROOT / page).read_text() for page in PAGES if page != "CHANGELOG.md"]
    typed = sorted({found for text in pages for found in COMMAND.findall(text)})
    assert len(typed) > 40
    helps: dict[tuple[str, ...], str] = {}

    def check(found: tuple[str, str]) -> None:
        command, rest = found
        assert command in COMMANDS
        named = [word for word in rest.split() if word in FIGURES]
        words = (command, *named) if command == "reproduce" and len(named) == 1 else (command,)
        if words not in helps:
            assert main([*words, "--help"]) == 0
            helps[words] = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in helps[words], (words, option)

    for_each(typed, check)


def test_the_snippets_of_the_atlas() -> None:
    found = run_page("atlas")["found"]
    assert found.fraction > 0.9  # type: ignore[attr-defined]


def test_the_snippet_of_complete(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_page("complete")["found"]
    assert found.predict("ann", "Brazil") == pytest.approx(5.0, abs=0.06)  # type: ignore[attr-defined]
    assert (tmp_path / "completed.csv").is_file()


@pytest.mark.slow
def test_the_snippet_of_compare(capsys, monkeypatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    run_page("compare")
    assert "NGD" in capsys.readouterr().out
