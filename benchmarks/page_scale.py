"""How large summary.html of a large campaign is, and how long it takes to load.

    python benchmarks/page_scale.py

    {"benchmark": "page_scale", "figures": {"page_mb": 6.1, "usable_s": 1.4, "all_drawn_s": 3.9, …}, "bounds": {…}, "holds": true}

`seatrial report` writes the page of analysis_scale's campaign: 1,000 runs of 1,200 steps, with GPU and host telemetry. Headless Chromium
then opens it several times, each in a new context: `usable_s` is the median time until a chart is drawn and the list of runs is filtered,
`all_drawn_s` until every chart is drawn. `--keep FOLDER` keeps the campaign there, or reuses the one that it finds.
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

from analysis_scale import FEW_RUNS, MANY_RUNS, QUICK_STEPS, STEPS, create_campaign
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
ALL_DRAWN = "() => [...document.querySelectorAll('figure.chart')].every(chart => chart.dataset.state !== 'waiting')"
# Tenth repeats only: far down in the list, so that the filter has work to do.
FILTER_TEXT = "_r10"
FILTERED = f"""() => {{
  const visible = [...document.querySelectorAll('#run-list label')].filter(label => label.checkVisibility());
  return visible.length && visible.every(label => label.textContent.includes('{FILTER_TEXT}'));
}}"""


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        out = find_or_create_campaign(args.keep or Path(scratch), args.quick)
        took_s = report_s(out)
        page = CampaignPaths(out).summary_html
        page_bytes = page.stat().st_size
        loads = measure_loads(page, 1 if args.quick else TIMES)
    figures = {
        "page_mb": round(page_bytes / MB, 3),
        "usable_s": round(median(usable_s for usable_s, _ in loads), 3),
        "all_drawn_s": round(median(all_s for _, all_s in loads), 3),
        "report_s": round(took_s, 2),
    }
    runs, steps = (10, QUICK_STEPS) if args.quick else (1000, STEPS)
    report(
        "page_scale",
        figures,
        {"page_mb": 10.0, "usable_s": 3.0},
        quick=args.quick,
        n=len(loads),
        runs=runs,
        steps=steps,
        cores=os.cpu_count(),
    )


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="Create the campaign here and keep it, or reuse the one found.")
    return options.parse_args()


def find_or_create_campaign(folder: Path, quick: bool) -> Path:
    if quick:
        return create_campaign(folder, FEW_RUNS, 1, QUICK_STEPS)
    out = folder / "many-runs"
    return out if CampaignPaths(out).plan.exists() else create_campaign(folder, MANY_RUNS, 1)


def report_s(out: Path) -> float:
    began_s = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", "seatrial", "report", str(out)], stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 3):
        raise SystemExit(f"seatrial report {out} ended with {code}")
    return time.perf_counter() - began_s


def measure_loads(page: Path, times: int) -> list[tuple[float, float]]:
    """Seconds until usable and until all is drawn, each in a new context, after one to warm the page cache."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=required_browser(), args=["--no-sandbox"])
        loads = [time_load(browser, page) for _ in range(times + 1)]
        browser.close()
    for usable_s, all_s in loads:
        print(f"usable after {usable_s:.2f} s, all drawn after {all_s:.2f} s", file=sys.stderr)
    return loads[1:]


def time_load(browser: Browser, address: Path) -> tuple[float, float]:
    context = browser.new_context(viewport=VIEW)
    page = context.new_page()
    began_s = time.perf_counter()
    page.goto(address.resolve().as_uri(), wait_until="commit")
    page.wait_for_function(ONE_DRAWN, timeout=TIMEOUT_MS)
    page.fill("#run-filter", FILTER_TEXT)
    page.wait_for_function(FILTERED, timeout=TIMEOUT_MS)
    usable_s = time.perf_counter() - began_s
    page.wait_for_function(ALL_DRAWN, timeout=TIMEOUT_MS)
    all_s = time.perf_counter() - began_s
    context.close()
    return usable_s, all_s


if __name__ == "__main__":
    main()
