"""The page on flows: its examples run."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "flows.md"


def test_the_examples_run_one_after_the_other() -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 3
    for code in blocks:
        exec(code, names)
