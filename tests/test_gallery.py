"""The examples of the gallery run, and their pictures are where the page looks for them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parent.parent / "docs" / "gallery"
SCRIPTS = sorted(path.stem for path in GALLERY.glob("*.py") if not path.stem.startswith("_"))

_RUN = """
import runpy, sys
gallery, out, *names = sys.argv[1:]
sys.path.insert(0, gallery)
for name in names:
    sys.argv = [name, "--steps", "2", "--out", out]
    runpy.run_path(f"{gallery}/{name}.py")
"""


@pytest.mark.slow
def test_every_example_runs_and_draws(tmp_path):
    command = [sys.executable, "-c", _RUN, str(GALLERY), str(tmp_path), *SCRIPTS]
    subprocess.run(command, check=True, capture_output=True)
    assert {path.stem for path in tmp_path.glob("*.png")} == set(SCRIPTS)


def test_the_page_shows_every_example():
    page = (GALLERY / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.py\)", page)) == set(SCRIPTS)
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert {Path(picture).stem for picture in pictures} == set(SCRIPTS)
    assert all((GALLERY / picture).is_file() for picture in pictures)
