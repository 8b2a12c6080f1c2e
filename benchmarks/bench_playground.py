"""The playground in Chromium: CPU time of the page's thread from a moved point to the new picture.

Needs a browser (`chromium`) and playwright; without them it says so and measures nothing.
"""

import math
import shutil

from harness import Row, report

from natgrad.data.separable import planar
from natgrad.limits import natural_flow
from natgrad.playground import PAGE

ROUNDS = 60
MOVE = """k => {
    const point = natgrad.current().points[0];
    point.x = 1 + 0.002 * (k % 50);
    natgrad.redraw();
    document.body.offsetHeight;  // layout, too
}"""


def main() -> None:
    """Measure and print."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        print("No chromium or no playwright here: nothing was measured.")
        return
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=browser, args=options).new_page()
        page.goto(PAGE.as_uri())
        shown = page.locator(".toggle-v output").inner_text()
        b = natural_flow(*planar(40).batch).solution
        truth = math.degrees(math.atan2(float(b[1]), float(b[0])))
        assert shown == f"{truth:.1f}°", (shown, truth)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> float:
            found = session.send("Performance.getMetrics")["metrics"]
            return float(next(m["value"] for m in found if m["name"] == "TaskDuration"))

        times = []
        for k in range(ROUNDS + 20):
            before = spent()
            page.evaluate(MOVE, k)
            times.append(1e3 * (spent() - before))
    times = sorted(times[20:])
    median = times[len(times) // 2]
    detail = f"40 points, {ROUNDS} moves, 90 % within {times[int(0.9 * ROUNDS)]:.1f} ms"
    report("playground", [Row("redraw", median, "ms", "≤ 16 ms", median <= 16, detail)])


if __name__ == "__main__":
    main()
