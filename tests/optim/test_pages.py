"""The optimizer's pages run as they are printed, and their numbers hold."""

import re
from pathlib import Path

import pytest

from tests.optim import layers_table

DOCS = Path(__file__).parents[2] / "docs"


def run(page: str) -> dict[str, object]:
    """Run every block of Python on a page, one after the other, in one scope."""
    scope: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S):
        exec(compile(code, page, "exec"), scope)
    return scope


def test_the_page_of_the_optimizer():
    scope = run("optimizer.md")
    assert float(scope["loss"].detach()) < 0.1


def test_the_guide_is_short():
    assert len((DOCS / "optimizer.md").read_text().split()) <= 2000


def test_the_page_of_losses_and_layers():
    scope = run("losses_and_layers.md")
    assert scope["fit"].statistics.step == 1


def test_the_page_of_gauss_newton():
    scope = run("gauss_newton.md")
    assert float(scope["error"]) < 1e-4


def test_the_tutorial(capsys):
    scope = run("tutorial_optimizer.md")
    assert (scope["adam"], scope["natural"]) == pytest.approx((0.49, 0.050), rel=0.3)
    assert capsys.readouterr().out.startswith("step 80: loss")
    assert scope["optimizer"]._core.schedule.steps == 80
    assert [layer.name for layer in scope["report"].layers] == ["0", "2", "4"]


def test_the_table_of_layers_is_generated_and_whole():
    text = layers_table.PAGE.read_text()
    assert layers_table.page(text) == text, "run python -m tests.optim.layers_table"
    assert "| layer | block | test |" in text
    assert layers_table.named() == layers_table.SUPPORTED
