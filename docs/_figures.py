"""Write the gallery: every figure with its story and the command that makes it.

Pictures are those of the folder `runs`, which `make reproduce` fills. A figure that was not made
yet is shown by the small picture that `_pictures.py` keeps in `_static/figures`.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from natgrad.lab.experiment import PRESETS, Experiment
from natgrad.lab.registry import experiments

KEPT = Path(__file__).parent / "_static" / "figures"


def write(folder: Path, runs: Path) -> None:
    """Write `index.rst` and copy the pictures that are there."""
    folder.mkdir(exist_ok=True)
    parts = [
        "Figures",
        "=======",
        "",
        "Every figure, what it shows, and the command that makes it. The pictures are small copies "
        "of earlier runs. After ``make reproduce``, ``make docs`` shows your own.",
        "",
    ]
    for experiment in experiments():
        own, kept = runs / experiment.folder / "figure.svg", KEPT / f"{experiment.folder}.png"
        found = next((path for path in (own, kept) if path.is_file()), None)
        for old in folder.glob(f"{experiment.folder}.*"):
            old.unlink()
        if found is not None:
            shutil.copyfile(found, folder / f"{experiment.folder}{found.suffix}")
        parts += _entry(experiment, found.suffix if found else "")
    (folder / "index.rst").write_text("\n".join(parts))


def _entry(experiment: Experiment[Any], suffix: str) -> list[str]:
    picture = [
        f".. figure:: {experiment.folder}{suffix}",
        f"   :alt: {experiment.title}",
        "   :figclass: wide",
        "",
    ]
    minutes = ", ".join(f"{preset} {experiment.minutes[preset]:g}" for preset in PRESETS)
    if suffix == ".png":
        preset = json.loads((KEPT / "presets.json").read_text())[experiment.folder]
        few = ", a few steps only: the form of the figure, not its result" * (preset == "smoke")
        picture += [f"   The {preset} preset{few}.", ""]
    source = re.sub(r"docs/(\w+)\.md", r":doc:`/\1`", experiment.source)
    return [
        f".. _figure-{experiment.folder}:",
        "",
        experiment.title,
        "-" * len(experiment.title),
        "",
        experiment.story,
        "",
        *(picture if suffix else []),
        ".. code-block:: text",
        "",
        f"   natgrad reproduce {experiment.name}",
        "",
        f"{source}. Minutes on two cores: {minutes}.",
        "",
    ]
