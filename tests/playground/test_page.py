"""The playground in a real browser: everything on it works, by mouse, touch and keyboard."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from natgrad.cli import main
from natgrad.data.separable import planar
from natgrad.limits import max_margin, natural_flow
from natgrad.playground import PAGE
from tests.browser import CONTRAST, PHONE, TOO_WIDE, Visit, launched, needs_browser
from tests.colors import EYES, cielab, linear


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def visit(browser) -> Iterator[Visit]:
    with Visit(browser, PAGE) as visit:
        yield visit
        assert visit.said == []
        assert [url for url in visit.asked if not url.startswith(("file:", "data:"))] == []


def degrees(b: Any) -> str:
    return f"{math.degrees(math.atan2(float(b[1]), float(b[0]))):.1f}°"


def angle(page: Any, line: str) -> str:
    text: str = page.locator(f".toggle-{line} output").inner_text()
    return text


def points(page: Any) -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.evaluate("natgrad.current().points")
    return found


def settled(page: Any) -> Any:
    """Wait until the picture is drawn and the address is written."""
    page.wait_for_function(
        "location.hash === '#' + natgrad.encode(natgrad.current())", polling=50, timeout=10_000
    )
    return page


@needs_browser
def test_the_first_story_is_figure_2(visit) -> None:
    batch = planar(40).batch
    found = points(visit.page)
    assert np.allclose([[p["x"], p["y"]] for p in found], batch[0])
    assert [p["label"] for p in found] == batch[1].tolist()
    assert angle(visit.page, "v") == degrees(natural_flow(*batch).solution)
    assert angle(visit.page, "a") == degrees(max_margin(*batch).solution)
    assert angle(visit.page, "b") == degrees(max_margin(*batch, p=1).solution)


@needs_browser
def test_every_story_opens_and_its_address_brings_it_back(browser, visit) -> None:
    page = visit.page
    for chip in page.locator("#stories button").all():
        chip.click()
        address = re.sub("^[^#]*", "", settled(page).url)
        shown = page.locator("#lines").inner_text()
        with Visit(browser, PAGE, at=address) as other:
            assert other.page.locator("#lines").inner_text() == shown
            assert other.page.locator("#message").inner_text()
            assert other.said == []
    assert angle(page, "a") == "none"  # the last one is not separable
    page.get_by_role("slider", name="Training time").fill("12")
    settled(page)
    assert len({angle(page, line) for line in "1234n"}) == 1  # where all lines meet


@needs_browser
def test_a_far_point_moves_natural_gradient_and_no_margin(visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Far points").click()
    settled(page)
    margins, corner = [angle(page, line) for line in "ab"], angle(page, "v")
    box = page.locator("#field").bounding_box()
    far = page.locator(".dot").nth(3).locator(".plus").bounding_box()
    page.mouse.move(far["x"] + 5, far["y"] + 5)
    page.mouse.down()
    page.mouse.move(far["x"] + 5, box["y"] + 20, steps=3)  # straight up, as the story says
    page.mouse.up()
    settled(page)
    assert [angle(page, line) for line in "ab"] == margins
    assert angle(page, "v") != corner
    assert "from the ℓ2 margin" in page.locator("#message h2").inner_text()


@needs_browser
@pytest.mark.parametrize("address", ["p1,2;m1,2", "p1,2;p-1,-2"])
def test_points_that_cancel_each_other_have_no_line(browser, address) -> None:
    with Visit(browser, PAGE, f"#tab=plane&points={address}") as visit:
        page = visit.page
        assert "cancel" in page.locator("#message h2").inner_text()
        assert angle(page, "1") == angle(page, "n") == "none"
        assert page.locator("#field line.line:visible").count() == 0
        assert visit.said == []


@needs_browser
@pytest.mark.parametrize("address", ["p1,2%", "p1,2;%E0%A4%A", "zzz"])
def test_a_damaged_address_opens_the_page_with_what_can_be_read(browser, address) -> None:
    with Visit(browser, PAGE, f"#tab=plane&points={address}") as visit:
        assert points(visit.page)
        assert visit.page.locator("#stories button").count() == 4
        assert visit.said == []


@needs_browser
def test_a_single_point_is_described(browser) -> None:
    with Visit(browser, PAGE, "#tab=plane&points=p1,2&t=12") as visit:
        text = visit.page.locator("#message p").inner_text()
        assert text.startswith("NGD has reached its limit, which is set by point 1 (ringed).")


@needs_browser
def test_points_are_dragged_added_flipped_and_deleted(visit) -> None:
    page = visit.page
    before, at = angle(page, "1"), page.locator(".dot").nth(0)
    box = at.locator(".plus").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    top = page.locator("#field").bounding_box()["y"]
    page.mouse.move(box["x"] + 5, box["y"] - 60, steps=4)
    assert page.locator("#field").bounding_box()["y"] == top  # the plane stays under the hand
    assert page.locator("#message h2").inner_text() == "Same data, different answers."
    page.mouse.up()
    settled(page)
    assert points(page)[0]["y"] > 1
    assert angle(page, "1") != before
    assert page.locator("#message h2").inner_text().startswith("At t = ")
    field = page.locator("#field").bounding_box()
    page.mouse.click(field["x"] + 0.3 * field["width"], field["y"] + 0.15 * field["width"])
    settled(page)
    assert len(points(page)) == 41
    assert points(page)[-1]["x"] == pytest.approx(-0.4 * 5.2, abs=0.05)
    page.get_by_role("button", name="Flip").click()
    assert settled(page).evaluate("natgrad.current().points.at(-1).label") == -1
    page.get_by_role("button", name="Delete").click()
    assert len(points(settled(page))) == 40
    page.get_by_role("button", name="Clear").click()
    assert points(settled(page)) == []
    assert page.locator("#message h2").inner_text() == "Add a point."


@needs_browser
def test_the_keyboard_reaches_and_does_everything(visit) -> None:
    page = visit.page
    page.locator(".dot.is-selected").focus()
    for key in ("ArrowUp", "n", "Shift+ArrowLeft", "f", "a", "Delete"):
        page.keyboard.press(key)
        settled(page)
    first, second = planar(40).x[:2].tolist()
    found = points(page)
    assert len(found) == 40
    assert found[0]["y"] == pytest.approx(first[1] + 0.104)
    assert found[1]["x"] == pytest.approx(second[0] - 0.0208)
    assert found[1]["label"] == 1
    page.get_by_role("tab", name="Separate points").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#matrix:not([hidden])")
    page.locator("#entries [tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("o")
    settled(page)
    assert page.evaluate("natgrad.current().matrix.entry") == [2, 1]
    assert page.evaluate("natgrad.current().matrix.observed[2][1]") is False
    assert "(3, 2)" in page.locator("#matrix-message h2").inner_text()


@needs_browser
def test_a_pulled_entry_moves_alone_at_depth_one_and_with_others_deeper(visit) -> None:
    page = visit.page
    page.get_by_role("tab", name="Complete a matrix").click()
    page.get_by_role("gridcell", name="Row 4, column 5").click()
    settled(page)
    said = page.locator(".answer p").all_inner_texts()
    assert [text == "nothing else moves" for text in said] == [
        True,
        *[False] * 3,
        True,
        *[False] * 3,
    ]
    shares = [int(re.findall(r"\d+", text)[0]) for text in said[1:4]]
    assert shares == sorted(shares)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_and_text_has_contrast(browser, scheme) -> None:
    phone = {"viewport": PHONE, "is_mobile": True, "has_touch": True, "color_scheme": scheme}
    with Visit(browser, PAGE, **phone) as visit:
        page = visit.page
        for tab in ("Separate points", "Complete a matrix"):
            page.get_by_role("tab", name=tab).tap()
            page.wait_for_timeout(50)
            wide = [e for e in page.evaluate(TOO_WIDE) if "button" not in e]  # chips scroll
            assert wide == []
            assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            assert page.evaluate(CONTRAST) == {}
        page.get_by_role("tab", name="Separate points").tap()
        box = page.locator("#field").bounding_box()
        page.touchscreen.tap(box["x"] + 30, box["y"] + 30)
        assert len(points(settled(page))) == 41
        finger = visit.context.new_cdp_session(page)
        at = page.locator(".dot").nth(0).locator(".plus").bounding_box()
        x, y = at["x"] + 4, at["y"] + 4
        for kind, places in (
            ("touchStart", [(x, y)]),
            *(("touchMove", [(x, y - k)]) for k in (10, 25, 40)),
            ("touchEnd", []),
        ):
            touch = [{"x": left, "y": top} for left, top in places]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touch})
        higher = 0.5 + 40 * 2 * 5.2 / box["width"]
        page.wait_for_function("y => Math.abs(natgrad.current().points[0].y - y) < 0.1", arg=higher)
        assert visit.said == []


@pytest.mark.parametrize("scheme", [0, 1])
def test_lines_stand_out_from_the_paper_and_from_each_other_for_every_eye(scheme) -> None:
    sheet = (PAGE.parent / "style.css").read_text()
    pairs = dict(re.findall(r"--(c\d|n|paper): light-dark\(([^)]*)\)", sheet))
    colors = {name: linear(pair.split(", ")[scheme]) for name, pair in pairs.items()}
    paper = colors.pop("paper")
    weights = np.array([0.2126, 0.7152, 0.0722])
    for color in colors.values():
        light, dark = sorted([weights @ color, weights @ paper], reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 3
    for eye in EYES.values():
        seen = [cielab(eye @ color) for color in colors.values()]
        gaps = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
        assert min(gaps) > 10


def test_the_command_opens_the_page(monkeypatch, capsys) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) == 1)
    assert main(["playground"]) == 0
    assert opened == [PAGE.as_uri()]
    assert capsys.readouterr().out.strip() == str(PAGE)
    assert main(["playground"]) == 0
    assert "No browser" in capsys.readouterr().out
    assert main(["playground", "--no-show"]) == 0
    assert len(opened) == 2
