"""Cut small pictures for the site out of a folder of runs: `python docs/_pictures.py runs`.

They are kept in the repository, so that the gallery and the findings have pictures before anything
was computed. Run it again when a figure has changed.
"""

import json
import sys
from pathlib import Path

from PIL import Image

from natgrad.lab._boxes import Box, read_boxes

DOCS = Path(__file__).parent
KEPT = DOCS / "_static" / "figures"
PRESETS = KEPT / "presets.json"
WIDEST = 1500

# The panels of a finding: figure, and their places in the picture, row by row.
FINDINGS: dict[str, tuple[str, tuple[int, ...]]] = {
    "chance_level": ("kmh21-fig4", (8,)),
    "on_par": ("kmh21-fig4", (7,)),
    "sparse_structure": ("kmh21-fig4", (3, 4, 5)),
    "population_fisher": ("kmh21-fig4", (1,)),
    "stopping_time": ("kmh21-fig4", (9,)),
    "support_vectors": ("kmh21-fig4", (12, 13)),
    "initialization": ("kmh21-fig5", (2,)),
    "small_scales": ("kmh21-fig5", (4, 5, 6)),
    "which_fisher": ("kmh21-fig5", (7,)),
    "damping": ("kmh21-fig5", (8,)),
}

# What reaches into a panel from its neighbor, in fractions of the panel.
ERASED: dict[str, Box] = {
    "chance_level": (0.0, 0.0, 0.03, 0.07),
    "on_par": (0.945, 0.1, 0.055, 0.9),
    "which_fisher": (0.965, 0.09, 0.035, 0.91),
    "damping": (0.0, 0.0, 0.03, 0.07),
    "stopping_time": (0.985, 0.0, 0.015, 1.0),
}


def write(runs: Path) -> None:
    """Write a picture for every figure in the folder, and for every finding about it."""
    presets = json.loads(PRESETS.read_text()) if PRESETS.exists() else {}
    for picture in sorted(runs.glob("*/figure.png")):
        name = picture.parent.name
        figure = Image.open(picture).convert("RGB")
        _save(figure, KEPT / f"{name}.png")
        presets[name] = json.loads((picture.parent / "report.json").read_text())["preset"]
        boxes = read_boxes(picture.with_suffix(".svg").read_bytes())
        for finding, (source, places) in FINDINGS.items():
            if source == name:
                panel = _cut(figure, [boxes[place] for place in places])
                if finding in ERASED:
                    panel.paste("white", _pixels(panel, ERASED[finding]))
                _save(panel, DOCS / "findings" / "pictures" / f"{finding}.png")
    PRESETS.write_text(json.dumps(presets, indent=1, sort_keys=True) + "\n")


def _cut(figure: Image.Image, boxes: list[Box]) -> Image.Image:
    """Return the smallest part of a picture that holds all boxes."""
    left, top = (min(box[k] for box in boxes) for k in (0, 1))
    right, bottom = (max(box[k] + box[k + 2] for box in boxes) for k in (0, 1))
    return figure.crop(_pixels(figure, (left, top, right - left, bottom - top)))


def _pixels(picture: Image.Image, box: Box) -> tuple[int, int, int, int]:
    (left, top, width, height), (w, h) = box, picture.size
    return int(left * w), int(top * h), int((left + width) * w) + 1, int((top + height) * h) + 1


def _save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if picture.width > WIDEST:
        height = round(picture.height * WIDEST / picture.width)
        picture = picture.resize((WIDEST, height), Image.Resampling.LANCZOS)
    picture.quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
