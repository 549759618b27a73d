"""Campaigns whose words are meant for a careless page: one that runs with all that a plan allows, one with every word replaced on disk.

In: an empty folder. Out: its CampaignPaths, with the page. Every piece would set `window.__xss`, add an element, or be worked out
(7 × 7) where a text is taken for markup, script, template or expression.
"""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any

from seatrial.core.paths import CampaignPaths
from seatrial.report.html.data import page_data
from tests.browser.campaigns import write_page
from tests.harness import Harness
from tests.unit.report.html.made_page import made_results

JOB = Path(__file__).parent / "scripts" / "hostile_job.py"
FAILED = 2
PIECES = (
    "<img src=x onerror=window.__xss=11>",
    "</script><script>window.__xss=12</script>",
    "--><svg onload=window.__xss=13>",
    "javascript:window.__xss=14",
    "{{7*7}}{% raw %}${7*7}",
    "datum.constructor.constructor('window.__xss=15')()",
    "'\"`]]>&lt;b&gt;",
    "\u2028window.__xss=16\u2029",
    "\u202egnp.exe\x1b[31m",
)
TAIL = " ".join(PIECES)
# Words of a closed list, by which the page is put together: the codec that wrote them lets no other through.
CLOSED = {
    "verdict", "outcome", "cause", "kind", "scope", "unit", "source", "mode", "metric", "generated_at", "state", "severity", "eta_mode",
    "rank_metric", "level", "status", "by",
}  # fmt: skip
PLAN = f"""
name: hostile
workload:
  script: {JOB}
  args: ["{{word}}", "{{more}}", "{{size}}"]
  env: {{HOSTILE: "<img src=x onerror=window.__xss=21>"}}
settings: {{more: "</script><script>window.__xss=22</script>"}}
axes:
  word:
    values:
      - "<img src=x onerror=window.__xss=23>"
      - "<svg onload=window.__xss=24>"
      - "javascript:window.__xss=25//{{{{7*7}}}}"
      - "\\u2028\\u202e${{7*7}}'\\"`datum.constructor"
  size: [1, 2]
steps: 40
telemetry: {{gpu_s: null, host_s: 0.5}}
criteria:
  - {{metric: failed_runs, at_most: 0, reason: "<img src=x onerror=window.__xss=26></script><script>window.__xss=27</script>"}}
output: out
"""


def run_hostile(folder: Path) -> CampaignPaths:
    """What a plan and a training can do to the page."""
    harness = Harness(folder)
    harness.run("run", str(harness.plan(PLAN)), code=FAILED)
    return harness.out


def write_hostile(folder: Path) -> CampaignPaths:
    """What somebody can do who writes the campaign's files themselves and sends the folder: every name and sentence has the tail."""
    return write_page(folder / "out", page_data(_hostile(made_results())))


def _hostile(value: Any, key: str = "") -> Any:
    """Every text that is no word of a closed list, and every axis, with the tail."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{one.name: _hostile(getattr(value, one.name), one.name) for one in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {f"{name}{TAIL}" if key == "axes" else name: _hostile(one, name) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_hostile(one, key) for one in value)
    is_text = isinstance(value, str) and not isinstance(value, enum.Enum)
    return f"{value}{TAIL}" if is_text and value and key not in CLOSED else value
