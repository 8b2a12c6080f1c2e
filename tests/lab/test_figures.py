"""One look for all figures."""

import io
import itertools
import os
import subprocess
import sys
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from natgrad.errors import InvalidInputError, ShapeError
from natgrad.lab import figures
from natgrad.lab._boxes import read_boxes
from tests.colors import EYES, cielab, linear
from tests.lab.run_folders import toy_arrays, toy_picture

DEPTHS = [f"EGD L={depth}" for depth in range(1, 6)]
LIMITS = ["ℓ2 max margin", "ℓ1 max margin", "min nuclear norm"]


@pytest.mark.parametrize("eye", EYES)
def test_methods_are_told_apart_by_every_eye(eye) -> None:
    together = [*DEPTHS, "NGD", "NGD population", LIMITS[0]]
    seen = {m: cielab(EYES[eye] @ linear(figures.look(m)["color"])) for m in together}
    for a, b in itertools.combinations(together, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 15, (a, b)


def test_depth_darkens_so_that_a_gray_printer_keeps_the_order() -> None:
    lightness = [cielab(linear(figures.look(method)["color"]))[0] for method in DEPTHS]
    assert all(a - b > 10 for a, b in itertools.pairwise(lightness))


def test_no_two_methods_of_one_figure_look_alike() -> None:
    looks = [tuple(map(str, figures.look(m).values())) for m in figures.METHODS]
    assert len(set(looks)) == len(looks)


def test_an_unknown_method_is_told_what_there_is() -> None:
    with pytest.raises(InvalidInputError, match=r"'NDG'; there is for EGD L=1, .*PALETTE"):
        figures.look("NDG")


def drawn(values: Any, **options: Any) -> tuple[Any, Any]:
    with figures.style():
        _, (axes,) = figures.panels()
        line = figures.band(axes, np.arange(values.shape[1]), values, **options)
    return line, axes


def spread(axes: Any) -> tuple[Any, Any]:
    """Lowest and highest point of the band at each position."""
    (band,) = axes.collections
    points = band.get_paths()[0].vertices
    positions = np.unique(points[:, 0])
    heights = [points[points[:, 0] == x, 1] for x in positions]
    return np.array([h.min() for h in heights]), np.array([h.max() for h in heights])


def test_a_band_is_mean_and_standard_deviation() -> None:
    values = np.random.default_rng(0).standard_normal((6, 4))
    line, axes = drawn(values)
    sd = np.sqrt(((values - values.mean(0)) ** 2).sum(0) / 5)
    assert np.allclose(line.get_ydata(), values.mean(0))
    low, high = spread(axes)
    assert np.allclose(low, values.mean(0) - sd)
    assert np.allclose(high, values.mean(0) + sd)


def test_a_band_is_median_and_quartiles() -> None:
    values = np.exp(np.random.default_rng(1).standard_normal((5, 3)))
    line, axes = drawn(values, center="median")
    ordered = np.sort(values, axis=0)
    assert np.allclose(line.get_ydata(), ordered[2])
    low, high = spread(axes)
    assert np.allclose(low, ordered[1])
    assert np.allclose(high, ordered[3])


def test_the_old_spelling_of_center_warns() -> None:
    values = np.exp(np.random.default_rng(1).standard_normal((5, 3)))
    with pytest.warns(DeprecationWarning, match="center"):
        line, _ = drawn(values, centre="median")
    assert np.allclose(line.get_ydata(), np.median(values, axis=0))


def test_one_seed_has_no_spread() -> None:
    for center in ("mean", "median"):
        line, axes = drawn(np.array([[1.0, 2.0]]), center=center)
        assert list(line.get_ydata()) == [1, 2]
        assert len(axes.collections) == 0


def test_a_seed_without_a_number_leaves_a_gap() -> None:
    line, _ = drawn(np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]]))
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]


@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 5), (2, 4, 1)])
def test_a_band_of_another_shape_is_refused(shape) -> None:
    with figures.style():
        _, (axes,) = figures.panels()
    with pytest.raises(ShapeError, match=r"\(seeds, points\)"):
        figures.band(axes, np.arange(4), np.zeros(shape))


def test_ticks_are_labeled_in_plain_digits() -> None:
    with figures.style():
        figure, (axes,) = figures.panels()
        axes.set_xscale("log")
        axes.plot([250, 2500], [0, 1])
        figures.label_ticks(axes.xaxis, [250, 1000, 2500])
    figure.draw_without_rendering()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["250", "1000", "2500"]
    assert axes.get_xticklabels(minor=True) == []


def test_a_legend_names_each_label_once() -> None:
    with figures.style():
        figure, axes = figures.panels(2)
        for panel in axes:
            panel.plot([0, 1], label="a")
        axes[1].plot([1, 0], label="b")
        figures.legend(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_the_same_figure_is_the_same_bytes_in_another_process() -> None:
    here = toy_picture(toy_arrays())
    code = (
        "import hashlib; from tests.lab.run_folders import *\n"
        "for name, data in toy_picture(toy_arrays()).items():\n"
        "    print(name, hashlib.sha256(data).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([".", *sys.path])},
    )
    from hashlib import sha256

    assert dict(line.split() for line in done.stdout.splitlines()) == {
        name: sha256(data).hexdigest() for name, data in here.items()
    }
    assert b"CreationDate" not in here["figure.pdf"]
    assert b"dc:date" not in here["figure.svg"]


def test_pictures_have_their_kind_and_size(tmp_path) -> None:
    with figures.style():
        figure, _ = figures.panels(2, width=3.0, height=2.5)
    paths = figures.save(figure, tmp_path / "new")
    assert [p.name for p in paths] == ["figure.png", "figure.pdf", "figure.svg"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(p.name for p in paths)
    png, pdf, svg = (p.read_bytes() for p in paths)
    assert int.from_bytes(png[16:20]) == 6 * 200  # width in the header
    assert int.from_bytes(png[20:24]) == 2.5 * 200
    assert pdf.startswith(b"%PDF-")
    assert b"<svg" in svg
    assert b"/Type3" not in pdf


def test_the_style_ends_with_its_block_and_heeds_no_settings_of_the_reader() -> None:
    with matplotlib.rc_context({"font.size": 31.0, "axes.facecolor": "red"}):
        with figures.style():
            assert matplotlib.rcParams["font.size"] < 10
            assert matplotlib.rcParams["axes.facecolor"] == "white"
        assert matplotlib.rcParams["font.size"] == 31


def test_matplotlib_waits_until_it_is_used() -> None:
    code = "import sys, natgrad.lab.figures, natgrad.lab._store.folder, natgrad.lab.report\n"
    code += "sys.exit(sum(m in sys.modules for m in ('matplotlib', 'jinja2')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_phone_gets_a_long_legend_column_by_column() -> None:
    with figures.style():
        figure, (axes,) = figures.panels()
        for k in range(3):
            axes.plot([k, 2], label=f"method {k}")
        figures.legend(figure, columns=3)
    boxes = read_boxes(figures.render(figure)["figure.svg"])
    assert len(boxes) == 4


def test_long_labels_are_not_cut_off() -> None:
    with figures.style():
        figure, (axes,) = figures.panels()
        axes.set_yticks([0], ["natural descent, stopped in time"], fontsize=7.5)
    pixels = matplotlib.image.imread(io.BytesIO(figures.render(figure)["figure.png"]))
    assert (pixels[:, :5] == 1).all()


def test_a_picture_says_where_its_panels_are() -> None:
    with figures.style():
        figure, axes = figures.panels(2, 2)
        axes[0].twinx()
        axes[1].plot([1, 2], label="NGD")
        figures.legend(figure)
        figure.suptitle("The page has this title as a heading")
    boxes = read_boxes(figures.render(figure)["figure.svg"])
    assert len(boxes) == 5  # twins are one panel, the legend is one, the title is none
    order = [(round(top, 1), left) for left, top, _, _ in boxes]
    assert order == sorted(order)
    for left, top, width, height in boxes:
        assert min(left, top, width, height) >= 0
        assert max(left + width, top + height) <= 1.0001
