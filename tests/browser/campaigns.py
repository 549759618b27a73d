"""The campaigns that the lane looks at: one that really runs, one that is made with every table, one whose every word is hostile.

In: an empty folder. Out: its CampaignPaths, with summary.html written.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.report.html.data import PageData
from seatrial.report.html.page import summary_page
from seatrial.report.write import summary_json
from tests.harness import Harness
from tests.unit.report.html.made_page import made_page

FAILED = 2
REAL = """
name: small
workload: dummy
settings: {step_ms: 8, jitter_ratio: 0.1, warmup_steps: 5, data_wait_ms: 2, pause_every: 50, log_every: 20}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [8, 16]
  case:
    bundles:
      usual: {loss: falls, crash_at_step: null}
      unlearned: {loss: nan, crash_at_step: null}
      broken: {loss: falls, crash_at_step: 30}
repeats: 2
steps: 120
telemetry: {gpu_s: null, host_s: 0.5}
limits: {soft_s: 2, term_s: 2}
criteria:
  - {metric: failed_runs, at_most: 0, reason: every configuration must run through}
  - {metric: loss_finite, scope: every_run}
output: out
"""


def run_real(folder: Path) -> CampaignPaths:
    """Twelve runs of the dummy workload on two ranks: four that learn, four with losses that are no numbers, four that fail."""
    harness = Harness(folder)
    harness.run("run", str(harness.plan(REAL)), code=FAILED)
    return harness.out


def write_made(folder: Path) -> CampaignPaths:
    """The page of the made campaign of the charts' own tests."""
    return write_page(folder / "out", made_page())


def write_page(out: Path, data: PageData) -> CampaignPaths:
    paths = CampaignPaths(out)
    paths.folder.mkdir(parents=True, exist_ok=True)
    files.write_json(paths.summary_json, summary_json(data.results))
    files.write_text(paths.summary_html, summary_page(data))
    return paths
