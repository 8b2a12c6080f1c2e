"""The site builds without a warning, holds every public name, and works in a browser offline."""

import fcntl
import importlib
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from tests.browser import CONTRAST, Visit, launched, needs_browser
from tests.test_api import PUBLIC

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
WIDE = {"viewport": {"width": 1400, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}
SCREENS: dict[str, dict[str, Any]] = {
    "wide": WIDE | {"color_scheme": "light"},
    "wide, dark": WIDE | {"color_scheme": "dark"},
    "phone": PHONE | {"color_scheme": "light"},
    "phone, dark": PHONE | {"color_scheme": "dark"},
}


# On a narrow screen the column of text would scroll, not the page.
WIDEST = (
    "Math.max(...[document.documentElement, ...document.querySelectorAll('.content')]"
    ".map(e => e.scrollWidth))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built once for all test workers: they share the folder above their own."""
    own = Path(tmp_path_factory.getbasetemp())
    out = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    out.mkdir(exist_ok=True)
    with open(out / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "built").exists():
            build(out)
            (out / "built").touch()
    return out / "html"


def build(out: Path) -> None:
    words = ["-q", "-W", "--keep-going", "-b", "html", "-d", out / "trees", "docs", out / "html"]
    words += ["-D", "sphinx_gallery_conf.run_stale_examples=True"]  # the package may have changed
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert done.stderr == ""


def pages(site: Path) -> list[Path]:
    """The pages written for people; those with highlighted sources of modules are left out."""
    listings = {"_modules", "sources"}
    return [p for p in sorted(site.rglob("*.html")) if not listings & set(p.parts)]


def test_the_reference_has_every_public_name(site) -> None:
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    index = (site / "reference" / "index.html").read_text()
    places: dict[int, set[str]] = {}
    for module in PUBLIC:
        found = importlib.import_module(module)
        for name in getattr(found, "__all__", ()):
            places.setdefault(id(getattr(found, name)), set()).add(f"{module}.{name}")
            if module == "natgrad":
                assert re.search(rf"\b(ng|natgrad)\.{name}\b", index)
    missing = [names for names in places.values() if not names & listed]
    modules = set(PUBLIC)
    assert [names for names in missing if not names & modules] == []


def test_every_tutorial_ran_checks_itself_and_can_be_downloaded(site) -> None:
    written = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
    assert len(written) >= 7
    for script in written:
        assert script.read_text().rstrip().splitlines()[-1].startswith("assert ")
        page = (site / "tutorials" / f"{script.stem}.html").read_text()
        assert "sphx-glr-single-img" in page
        assert len(list(site.glob(f"_downloads/*/{script.stem}.ipynb"))) == 1


def test_each_equation_of_the_papers_links_to_its_function_and_to_its_test(site) -> None:
    rows = re.findall(r"<tr class=.*?</tr>", (site / "paper_map.html").read_text(), re.S)
    assert len(rows) > 80
    for row in rows:
        cells = re.findall(r"<td.*?</td>", row, re.S)
        if cells:
            function, test = cells[-2:] if len(cells) == 3 else cells[2:4]
            assert "href=" in function, row
            assert "href=" in test, row


class Links(HTMLParser):
    """What a page refers to, and the places in it that others may refer to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        self.links += [value for key in ("href", "src") if (value := given.get(key))]


def test_links_and_anchors_lead_somewhere(site) -> None:
    found = {page: Links(page) for page in pages(site)}
    found |= {page: Links(page) for page in site.glob("sources/*.html")}
    broken = []
    for page, links in found.items():
        for link in links.links:
            address, anchor = urldefrag(link)
            if link.startswith(("https:", "data:", "mailto:")):
                continue
            target = (page.parent / unquote(address.partition("?")[0])) if address else page
            target = target.resolve()
            inside = target in found and anchor and unquote(anchor) not in found[target].anchors
            if not target.exists() or (inside and not target.name.startswith("genindex")):
                broken.append((page.name, link))
    assert broken == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@needs_browser
@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_is_quiet_legible_and_asks_for_nothing_outside(browser, site, screen) -> None:
    with Visit(browser, site / "index.html", **SCREENS[screen]) as visit:
        for page in pages(site):
            visit.page.goto(page.as_uri())
            where = page.relative_to(site)
            assert visit.said == [], where
            outside = [url for url in visit.asked if not url.startswith(("file:", "data:"))]
            assert outside == [], where
            nameless = "[...document.images].filter(e => !e.hasAttribute('alt')).length"
            assert visit.page.evaluate(nameless) == 0, where
            assert visit.page.evaluate(WIDEST) <= SCREENS[screen]["viewport"]["width"], where
            assert visit.page.evaluate(CONTRAST) == {}, where


@needs_browser
def test_the_landing_page_shows_the_playground_whole(browser, site) -> None:
    with Visit(browser, site / "index.html", **PHONE) as visit:
        frame = visit.page.frame_locator("iframe.playground")
        frame.locator(".toggle-n output").wait_for()
        share = frame.get_by_role("button", name="Copy link").bounding_box()
        box = visit.page.locator("iframe.playground").bounding_box()
        assert share["y"] + share["height"] < box["y"] + box["height"]


@needs_browser
def test_the_keyboard_reaches_contents_playground_and_cards(browser, site) -> None:
    with Visit(browser, site / "index.html", **WIDE) as visit:
        visit.page.frame_locator("iframe.playground").locator(".toggle-n output").wait_for()
        seen = set()
        what = "(e => e.tagName === 'IFRAME' ? 'playground' : e.getAttribute('href'))"
        for _ in range(150):
            visit.page.keyboard.press("Tab")
            seen.add(visit.page.evaluate(f"{what}(document.activeElement)"))
        wanted = {"#furo-main-content", "playground", "paper_map.html", "tutorials/index.html"}
        assert wanted | {"tutorials/03_your_network.html"} <= seen


@needs_browser
def test_a_newcomer_gets_from_the_landing_page_to_a_file_of_their_own(browser, site) -> None:
    script = ROOT / "docs" / "notebooks" / "01_first_separators.py"
    with Visit(browser, site / "index.html", **WIDE) as visit:
        visit.page.locator(".cards a").first.click()
        visit.page.get_by_role("link", name="Go to the end").click()
        for kind in ("Jupyter notebook", "Python source"):
            with visit.page.expect_download() as saved:
                visit.page.get_by_role("link", name=kind).click()
            assert saved.value.suggested_filename.startswith(script.stem)
        assert Path(saved.value.path()).read_text() == script.read_text()


@needs_browser
def test_search_works_offline(browser, site) -> None:
    with Visit(browser, site / "search.html", at="?q=natural_flow") as visit:
        visit.page.locator("#search-results li a").first.wait_for()
        assert visit.said == []
