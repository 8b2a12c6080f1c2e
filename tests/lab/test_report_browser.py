"""The page in a real browser: no error, no request, and everything on it works."""

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natgrad.lab.arrays import Arrays
from natgrad.lab.report import write_report
from tests.browser import CONTRAST, PHONE, TOO_WIDE, WIDE, Visit, launched, needs_browser
from tests.lab.run_folders import Toy, toy_arrays, write_run

pytestmark = needs_browser

EVIL = '"><script>window.ran = 1</script><img src=x onerror="window.ran = 1">'
EVIL_PICTURE = b"""<svg xmlns="http://www.w3.org/2000/svg" width="300" height="200"
 onload="parent.ran = 1"><script>parent.ran = 1</script><rect width="9" height="9"/>
<image href="https://example.com/x.png" width="9" height="9"/></svg>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Two good runs, one with everything odd, and one broken."""
    out = tmp_path_factory.mktemp("runs")
    claims = write_run(out, "toy-a").report()["claims"]
    for claim, value in zip(claims, (-3.0, 1e-7, 10.5), strict=True):  # texts sort otherwise
        claim |= {"value": value, "holds": None}
    write_run(out, "toy-b", preset="quick", claims=claims)
    arrays = Arrays()
    arrays.add(EVIL, toy_arrays()["margin"], EVIL, "w" * 300)
    claims = [claims[0] | {"value": None, "holds": False}]
    claims[0] |= {"statement": EVIL, "id": "i" * 200, "source": "s" * 200}
    odd = {"figure": EVIL, "title": EVIL + "t" * 300, "departures": [EVIL, "d" * 300]}
    odd |= {"options": {"note": EVIL + "n" * 300}, "environment": {"e" * 90: "v" * 300}}
    run = write_run(
        out,
        "toy-odd",
        claims=claims,
        arrays=arrays,
        config=Toy(note=EVIL + "n" * 300),
        pictures={"figure.svg": EVIL_PICTURE},
        **odd,
    )
    run.write_failures([{"label": EVIL, "message": EVIL + "m" * 300}])
    (out / "toy-cut").mkdir()
    (out / "toy-cut" / "report.json").write_text("{")
    return write_report(out)


UNFOLD = "document.querySelectorAll('details').forEach(e => e.open = true)"


@pytest.fixture
def visit(browser, report) -> Iterator[Visit]:
    with Visit(browser, report) as visit:
        visit.page.evaluate(UNFOLD)
        yield visit
        assert visit.said == []


def test_it_loads_without_a_word_and_without_the_network(visit, report) -> None:
    visit.page.wait_for_load_state("networkidle")
    assert [url for url in visit.asked if not url.startswith("data:")] == [report.as_uri()]
    assert visit.said == []
    assert visit.page.title() == "natgrad: figures and claims"
    assert visit.page.evaluate("document.compatMode") == "CSS1Compat"


def test_pictures_come_first_and_claims_are_folded_unless_one_fails(browser, report) -> None:
    with Visit(browser, report) as visit:
        top = [
            box["y"]
            for box in (e.bounding_box() for e in visit.page.locator(".contents img").all())
        ]
        assert len(top) == 3
        assert max(top) < WIDE["height"]
        folded = visit.page.locator("#run-toy-a > details").first
        assert (
            folded.locator("summary").inner_text()
            == "Claims: 2 hold, 1 refutes the paper (documented)"
        )
        assert not folded.evaluate("e => e.open")
        assert visit.page.locator("#run-toy-odd > details").first.evaluate("e => e.open")
        link = visit.page.locator(".contents a").first
        link.click()
        assert visit.page.url.endswith(link.get_attribute("href"))
        assert visit.said == []


def test_every_figure_is_visible(visit) -> None:
    pictures = visit.page.locator(".picture img").all()
    assert len(pictures) == 3
    for picture in pictures:
        picture.scroll_into_view_if_needed()
        assert picture.is_visible()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
        assert picture.bounding_box()["width"] > 300


def test_the_picture_keeps_its_colours_under_the_policy(visit) -> None:
    """Styles inside the picture are its own: the page's policy must not blank them."""
    drawn = visit.page.locator("#run-toy-a .picture img").evaluate(
        """image => {
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [800, 400];
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0, 800, 400);
            const seen = context.getImageData(0, 0, 800, 400).data, hits = {};
            for (let i = 0; i < seen.length; i += 4) {
                const key = [seen[i], seen[i + 1], seen[i + 2]].join();
                hits[key] = (hits[key] || 0) + 1;
            }
            return [hits["213,94,0"] || 0, hits["255,255,255"] || 0];
        }"""
    )
    assert drawn[0] > 50  # the natural gradient's vermilion
    assert drawn[1] > 100_000  # paper


@pytest.mark.parametrize(("column", "name"), [(1, "Figure"), (2, "Claim"), (6, "Source")])
def test_text_sorts_both_ways(visit, column, name) -> None:
    before = visit.column("#summary", column)
    button = visit.page.locator("#summary").get_by_role("button", name=name, exact=True)
    button.click()
    up = visit.column("#summary", column)
    head = visit.page.locator(f"#summary th:nth-child({column})")
    assert head.get_attribute("aria-sort") == "ascending"
    button.click()
    down = visit.column("#summary", column)
    assert head.get_attribute("aria-sort") == "descending"
    assert sorted(up) == sorted(down) == sorted(before)
    assert up[0] == down[-1]
    assert up[-1] == down[0]
    assert up != down


def test_numbers_sort_as_numbers_and_what_is_none_comes_last(visit) -> None:
    button = visit.page.locator("#summary").get_by_role("button", name="Measured")
    orders = []
    for _ in range(2):
        button.click()
        cells = visit.page.locator("#summary tbody tr td:nth-child(3)").all()
        keys = [cell.get_attribute("data-sort") for cell in cells]
        assert keys[-1] == ""
        orders.append([float(key) for key in keys[:-1]])
    assert orders[0] == sorted(orders[0])
    assert orders[1] == sorted(orders[1], reverse=True)
    assert len(orders[0]) == 6


def test_failures_sort_first(visit) -> None:
    visit.page.locator("#summary").get_by_role("button", name="Verdict").click()
    verdicts = visit.column("#summary", 5)
    assert verdicts[:2] == ["FAILS", "refutes the paper (documented)"]
    assert verdicts[-1] == "holds"
    assert visit.page.locator("#summary th[aria-sort]").count() == 1


def test_a_table_sorts_by_keyboard_alone(visit) -> None:
    button = visit.page.locator("#run-toy-a table").get_by_role("button", name="Measured")
    button.focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("#run-toy-a th:nth-child(2)").get_attribute("aria-sort")


def saved(visit: Visit, link: Any) -> tuple[str, bytes]:
    with visit.page.expect_download() as waiting:
        link.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_data_are_saved(visit) -> None:
    links = visit.page.locator("#run-toy-a .downloads a")
    name, data = saved(visit, links.first)
    assert name == "toy-a-accuracy.csv"
    assert data.decode() == toy_arrays().csv("accuracy")


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_pictures_are_saved(visit, report, kind) -> None:
    link = visit.page.locator("#run-toy-a figcaption").get_by_text(kind.upper(), exact=True)
    name, data = saved(visit, link)
    assert name == f"toy-a.{kind}"
    assert data == (report.parent / "toy-a" / f"figure.{kind}").read_bytes()


def test_a_png_is_made_of_the_picture(visit) -> None:
    image = visit.page.locator("#run-toy-a .picture img")
    width = image.evaluate("async image => (await image.decode(), image.naturalWidth)")
    name, data = saved(visit, visit.page.locator("#run-toy-a figcaption").get_by_text("PNG"))
    assert name == "toy-a.png"
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 2 * width


def test_the_largest_table_that_is_offered_is_saved(browser, tmp_path) -> None:
    """Browsers cut long addresses; the page must stay below that."""
    values = [0.1234567890123456 + i for i in range(36_000)]
    arrays = Arrays()
    arrays.add("x", values, "row")
    assert len(arrays.csv("x")) > 800_000
    write_run(tmp_path, arrays=arrays)
    with Visit(browser, write_report(tmp_path)) as visit:
        visit.page.evaluate(UNFOLD)
        _, data = saved(visit, visit.page.locator(".downloads a").first)
        assert data.decode() == arrays.csv("x")


def test_zoom_enlarges_pans_and_closes_by_keyboard(visit) -> None:
    page = visit.page
    page.locator("#run-toy-a .picture").focus()
    page.keyboard.press("Enter")
    dialog, image = page.locator("#zoom"), page.locator("#zoom img")
    assert dialog.is_visible()
    page.wait_for_function("document.querySelector('#zoom img').style.width")
    fitted = image.bounding_box()
    assert fitted["width"] <= WIDE["width"]
    assert fitted["height"] <= WIDE["height"]
    for _ in range(4):
        page.keyboard.press("+")
    assert image.bounding_box()["width"] == pytest.approx(fitted["width"] * 1.25**4, rel=1e-3)
    left = image.bounding_box()["x"]
    page.keyboard.press("ArrowRight")
    page.wait_for_function("left => document.querySelector('#zoom img').x < left", arg=left)
    page.keyboard.press("0")
    assert image.bounding_box()["width"] == pytest.approx(fitted["width"], rel=1e-3)
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.locator("#run-toy-a .picture").evaluate("e => e === document.activeElement")


def test_zoom_by_mouse_keeps_the_point_below_it(visit) -> None:
    page = visit.page
    page.locator("#run-toy-a .picture").click()
    page.wait_for_function("document.querySelector('#zoom img').style.width")
    image = page.locator("#zoom img")
    x, y = 900, 500

    def under() -> tuple[float, float]:
        box = image.bounding_box()
        return (x - box["x"]) / box["width"], (y - box["y"]) / box["height"]

    before = under()
    page.mouse.move(x, y)
    width = image.bounding_box()["width"]
    page.mouse.wheel(0, -600)
    page.wait_for_function("w => document.querySelector('#zoom img').width > 2 * w", arg=width)
    assert under() == pytest.approx(before, abs=0.01)
    left = image.bounding_box()["x"]
    page.mouse.down()
    page.mouse.move(x - 100, y, steps=5)
    page.mouse.up()
    assert image.bounding_box()["x"] == pytest.approx(left - 100, abs=2)
    page.get_by_role("button", name="Close").click()
    assert not page.locator("#zoom").is_visible()


def lightness(page: Any) -> float:
    rgb = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g)")
    return sum(map(float, rgb[:3])) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_system_and_its_button(browser, report, scheme) -> None:
    with Visit(browser, report, color_scheme=scheme) as visit:
        dark = scheme == "dark"
        assert (lightness(visit.page) < 60) == dark
        visit.page.get_by_role("button", name="Light" if dark else "Dark", exact=True).click()
        assert (lightness(visit.page) < 60) != dark
        for _ in range(50):  # the browser hands its storage on in its own time
            visit.page.reload()
            if remembered := (lightness(visit.page) < 60) != dark:
                break
        assert remembered
        visit.page.get_by_role("button", name="Dark" if dark else "Light", exact=True).click()
        assert (lightness(visit.page) < 60) == dark
        assert visit.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_that_readers_need(browser, report, scheme) -> None:
    with Visit(browser, report, color_scheme=scheme) as visit:
        visit.page.evaluate(UNFOLD)
        assert visit.page.evaluate(CONTRAST) == {}


def test_a_phone_never_scrolls_sideways(browser, report) -> None:
    with Visit(browser, report, viewport=PHONE, is_mobile=True, has_touch=True) as visit:
        page = visit.page
        page.evaluate(UNFOLD)
        assert page.evaluate(TOO_WIDE) == []
        size = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert size == [PHONE["width"], PHONE["width"]]
        page.locator("#summary").get_by_role("button", name="Verdict").tap()
        assert visit.column("#summary", 5)[0].endswith("FAILS")
        pieces = page.locator("#run-toy-a .panel").all()
        natural = page.locator("#run-toy-a .picture").evaluate(
            "e => JSON.parse(e.dataset.panels).map(b => b[2] * e.querySelector('img').naturalWidth)"
        )
        for piece, width in zip(pieces, natural, strict=True):  # columns of a legend are narrow
            assert piece.bounding_box()["width"] > min(200, 1.5 * width)
        page.locator("#run-toy-a .picture").tap()
        page.get_by_role("button", name="Larger").tap()
        page.get_by_role("button", name="Close").tap()
        assert visit.said == []


def test_what_users_wrote_does_not_run(visit) -> None:
    page = visit.page
    page.locator("#run-toy-odd .picture").click()
    page.wait_for_function("document.querySelector('#zoom img').style.width")
    page.keyboard.press("Escape")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("script").count() == 1
    assert page.locator("img[onerror]").count() == 0
    assert page.locator("#run-toy-odd h2").inner_text().startswith(EVIL)
    name, data = saved(visit, page.locator("#run-toy-odd .downloads a"))
    assert name.endswith(".csv")
    assert b"window.ran" in data


def test_the_policy_stops_what_escaping_would_miss(browser, report, tmp_path) -> None:
    """Markup forced into the page neither runs nor reaches the network."""
    spoilt = tmp_path / "spoilt.html"
    inserted = EVIL[2:] + "<img src='https://example.com/a.png'><p style='color: red'>x</p>"
    spoilt.write_text(report.read_text().replace("<main>", "<main>" + inserted))
    with Visit(browser, spoilt) as visit:
        visit.page.wait_for_load_state("networkidle")
        assert visit.page.evaluate("window.ran") is None
        assert ("https://example.com/a.png", "csp") in visit.failed
        assert any("Content Security Policy" in line for line in visit.said)


def test_it_reads_without_scripts(browser, report) -> None:
    with Visit(browser, report, java_script_enabled=False) as visit:
        assert visit.page.locator("#run-toy-a .picture img").is_visible()
        assert visit.page.locator("#summary tbody tr").count() == 7
        assert not visit.page.locator("#theme").is_visible()
        href = visit.page.locator("#run-toy-a .downloads a").first.get_attribute("href")
        packed = base64.b64decode(href.partition(",")[2])
        assert gzip.decompress(packed).decode() == toy_arrays().csv("accuracy")
