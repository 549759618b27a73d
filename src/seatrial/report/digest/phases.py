"""What a step of each group is made of. In: CampaignResults whose runs have charts. Out: one `MadeOf` for each group, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from seatrial.records.charts import PHASES
from seatrial.records.measure import GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.charted_runs import charted_runs, rows_of, steps_taken_apart, usual_ms
from seatrial.report.digest.standings import windows_text
from seatrial.report.numbers import number_in

NOTHING = "Not told apart: it takes the probe, or log lines that say what each step is made of."


@dataclass(frozen=True, kw_only=True)
class MadeOf:
    """What a whole (a step, a start-up) is made of in one group: means over its runs, in ms or in s."""

    group: GroupSummary
    window: str
    parts: dict[str, float]
    whole: float
    runs: int
    n: int = 0
    """Steps that it was taken on."""
    usual: float | None = None
    """The median of all steps that count; those of which parts are told may be slower, since telling costs time."""


def phases(results: CampaignResults, most: int | None = None) -> list[MadeOf]:
    """Of the groups whose runs tell what their steps are made of, in ms; or of the first `most` of them."""
    found = (_phases(group, runs, windows_text(runs)) for group, runs in charted_runs(results, PHASES))
    return list(islice((made_of for made_of in found if made_of), most))


def _phases(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> MadeOf | None:
    told: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for row in rows_of(run, PHASES):
            if (ms := number_in(row.get("mean_ms"))) is not None:
                told.setdefault(str(row["phase"]), []).append(ms)
                counts[run.attempt.folder] = steps_taken_apart(run)
    if not told:
        return None
    means = {phase: fmean(values) for phase, values in told.items()}
    return MadeOf(
        group=group,
        window=window,
        parts=means,
        whole=sum(means.values()),
        runs=len(counts),
        n=sum(counts.values()),
        usual=usual_ms(group),
    )
