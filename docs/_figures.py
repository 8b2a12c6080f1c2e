"""Write the gallery: every figure with its story and the command that makes it.

Pictures are those of the folder `runs`, which `make reproduce` fills; a figure that was not made
yet is shown without one.
"""

import shutil
from pathlib import Path
from typing import Any

from natgrad.lab.experiment import PRESETS, Experiment
from natgrad.lab.registry import experiments


def write(folder: Path, runs: Path) -> None:
    """Write `index.rst` and copy the pictures that are there."""
    folder.mkdir(exist_ok=True)
    parts = [
        "Figures",
        "=======",
        "",
        "Every figure, what it shows, and the command that makes it. ``make reproduce`` makes "
        "those of the two papers, and ``make docs`` then shows them here.",
        "",
    ]
    for experiment in experiments():
        picture = runs / experiment.folder / "figure.svg"
        target = folder / f"{experiment.folder}.svg"
        target.unlink(missing_ok=True)
        if picture.is_file():
            shutil.copyfile(picture, target)
        parts += _entry(experiment, picture.is_file())
    (folder / "index.rst").write_text("\n".join(parts))


def _entry(experiment: Experiment[Any], pictured: bool) -> list[str]:
    title = experiment.title[0].upper() + experiment.title[1:]
    picture = [f".. figure:: {experiment.folder}.svg", f"   :alt: {title}", "   :class: paper", ""]
    minutes = ", ".join(f"{preset} {experiment.minutes[preset]:g}" for preset in PRESETS)
    return [
        f".. _figure-{experiment.folder}:",
        "",
        title,
        "-" * len(title),
        "",
        experiment.story,
        "",
        *(picture if pictured else []),
        ".. code-block:: text",
        "",
        f"   natgrad reproduce {experiment.name}",
        "",
        f"{experiment.source}. Minutes on two cores: {minutes}.",
        "",
    ]
