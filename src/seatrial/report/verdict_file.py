"""verdict.json: the verdict, its exit code and every finding with its evidence.

In: CampaignResults. Out: one JSON file; a program that only wants the answer reads `verdict` and `exit_code`.
"""

from __future__ import annotations

from typing import Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.results import CampaignResults
from seatrial.report.numbers import instant


def verdict_json(results: CampaignResults) -> dict[str, Any]:
    """The file's content."""
    told: dict[str, Any] = to_json(results.verdict)
    return {
        "verdict": told.pop("verdict"),
        "exit_code": results.verdict.verdict.exit_code,
        "partial": told.pop("partial"),
        **told,
        "pending": list(results.pending),
        "generated_at": instant(results.generated_t),
    }


def write_verdict(results: CampaignResults, paths: CampaignPaths) -> None:
    files.write_json(paths.verdict, verdict_json(results))
