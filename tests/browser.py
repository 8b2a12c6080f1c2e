"""Pages in a real browser: a visit that hears everything, and questions to ask of any page."""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDE = {"width": 1200, "height": 900}
PHONE = {"width": 360, "height": 740}

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="no browser is installed: apt-get install chromium, pip install natgrad[test]",
)


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


class Visit:
    """A page, with all it logged and all it asked for."""

    def __init__(self, browser: Any, report: Path, at: str = "", **options: Any) -> None:
        self.context = browser.new_context(**({"viewport": WIDE} | options))
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("requestfailed", lambda r: self.failed.append((r.url, r.failure)))
        self.page.goto(report.as_uri() + at)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def column(self, table: str, column: int) -> list[str]:
        cells = self.page.locator(f"{table} tbody tr td:nth-child({column})")
        return [text.strip() for text in cells.all_inner_texts()]


# Visible elements that a phone would have to scroll to sideways; pictures clip what they hold.
TOO_WIDE = (
    "[...document.querySelectorAll('body *:not(svg *, .panel *)')].filter(e => e.checkVisibility()"
    " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
)

# Text whose contrast with what is behind it is below 4.5.
CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = (colours) => {
        for (const colour of colours) {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
        }
        const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
        return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    };
    const behind = (element) => {
        const colours = [];  // from the element outwards; what is translucent lies over the next
        for (let e = element; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            colours.unshift(colour);
            if (!/^rgba|\\/ *0?\\./.test(colour)) return colours;
        }
        return ["white", ...colours];
    };
    const low = {};
    const texts = "h1,h2,h3,p,a,td,dt,dd,li,b,code,button,output,label,figcaption,.verdict";
    for (const e of document.querySelectorAll(texts)) {
        const seen = e.checkVisibility({ visibilityProperty: true });
        if (!seen || !e.textContent.trim()) continue;
        const back = behind(e);
        const [x, y] = [luminance([...back, getComputedStyle(e).color]), luminance(back)];
        const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
        if (ratio < 4.5) low[e.outerHTML.slice(0, 80)] = ratio;
    }
    return low;
}"""
