"""How big summary.html of a big campaign is, and how long a reader waits for it.

    python benchmarks/page_scale.py

    {"benchmark": "page_scale", "figures": {"page_mb": 6.1, "usable_s": 1.4, "all_drawn_s": 3.9, …}, "bounds": {…}, "holds": true}

1,000 runs of 1,200 steps, with GPU and host telemetry, as analysis_scale makes them; `seatrial report` writes the page. A headless
Chromium then opens it several times, each in a window of its own: `usable_s` is the median of the time from the navigation until a chart
is drawn and the list of runs has answered a key, `all_drawn_s` until every chart is. `--keep FOLDER` leaves the campaign there, and uses
one that is there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from analysis_scale import FEW_RUNS, MANY_RUNS, QUICK_STEPS, STEPS, make
from outcome import parser, report
from seatrial.core.paths import CampaignPaths
from seatrial.report.html.print import required_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TIMES = 5
MB = 1_000_000
TIMEOUT_MS = 120_000
VIEW = {"width": 1280, "height": 900}
ONE_DRAWN = "() => document.querySelector('figure.chart[data-state=drawn] svg')"
ALL_DRAWN = "() => [...document.querySelectorAll('figure.chart')].every(one => one.dataset.state !== 'waiting')"
# The last group's tenth repeat: far down in the list, so that the filter has work to do.
SOUGHT = "_r10"
ANSWERED = f"""() => {{
  const seen = [...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility());
  return seen.length && seen.every(one => one.textContent.includes('{SOUGHT}'));
}}"""


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        out = campaign_in(args.keep or Path(scratch), args.quick)
        reported_s = seconds_to_report(out)
        page = CampaignPaths(out).summary_html
        page_bytes = page.stat().st_size
        waits = measured(page, 1 if args.quick else TIMES)
    figures = {
        "page_mb": round(page_bytes / MB, 3),
        "usable_s": round(median(usable_s for usable_s, _ in waits), 3),
        "all_drawn_s": round(median(all_s for _, all_s in waits), 3),
        "report_s": round(reported_s, 2),
    }
    runs, steps = (10, QUICK_STEPS) if args.quick else (1000, STEPS)
    report(
        "page_scale",
        figures,
        {"page_mb": 10.0, "usable_s": 3.0},
        quick=args.quick,
        n=len(waits),
        runs=runs,
        steps=steps,
        cores=os.cpu_count(),
    )


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="Make the campaign here and leave it, or use the one that is there.")
    return options.parse_args()


def campaign_in(folder: Path, quick: bool) -> Path:
    if quick:
        return make(folder, FEW_RUNS, 1, QUICK_STEPS)
    there = folder / "many-runs"
    return there if CampaignPaths(there).plan.exists() else make(folder, MANY_RUNS, 1)


def seconds_to_report(out: Path) -> float:
    began_s = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", "seatrial", "report", str(out)], stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 3):
        raise SystemExit(f"seatrial report {out} ended with {code}")
    return time.perf_counter() - began_s


def measured(page: Path, times: int) -> list[tuple[float, float]]:
    """Seconds until usable and until all is drawn, each time anew; one before them, so that the file is in memory as after a download."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=required_browser(), args=["--no-sandbox"])
        waits = [opened(browser, page) for _ in range(times + 1)]
        browser.close()
    for usable_s, all_s in waits:
        print(f"usable after {usable_s:.2f} s, all drawn after {all_s:.2f} s", file=sys.stderr)
    return waits[1:]


def opened(browser: Browser, address: Path) -> tuple[float, float]:
    context = browser.new_context(viewport=VIEW)
    page = context.new_page()
    began_s = time.perf_counter()
    page.goto(address.resolve().as_uri(), wait_until="commit")
    page.wait_for_function(ONE_DRAWN, timeout=TIMEOUT_MS)
    page.fill("#run-filter", SOUGHT)
    page.wait_for_function(ANSWERED, timeout=TIMEOUT_MS)
    usable_s = time.perf_counter() - began_s
    page.wait_for_function(ALL_DRAWN, timeout=TIMEOUT_MS)
    all_s = time.perf_counter() - began_s
    context.close()
    return usable_s, all_s


if __name__ == "__main__":
    main()
