"""Finding a statement by what people type, and holding it against what the files give."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.campaign.tracing import _differences, _named_files, find
from seatrial.errors import UsageError
from seatrial.records.verdict import Criterion, Evidence, Finding, Verdict

CRITERION = Criterion(metric="failed_runs", scope="campaign", at_most=0)
FINDINGS = [
    *(Finding(id=f"{number}-failed_runs-campaign", criterion=CRITERION, verdict=Verdict.PASS, text="So.") for number in range(1, 12)),
    Finding(id="leak:mb16_r1:host", kind="leak", verdict=Verdict.FAIL, text="It leaks."),
    Finding(id="leak:none", kind="leak", verdict=Verdict.PASS, text="No leak."),
    Finding(id="straggler:none", kind="straggler", verdict=Verdict.PASS, text="None."),
    Finding(id="steady_state", kind="steady_state", verdict=Verdict.PASS, text="Steady."),
    Finding(id="steady_state:mb16_r1", kind="steady_state", verdict=Verdict.INCONCLUSIVE, text="Not steady."),
]


@pytest.mark.parametrize(
    ("wanted", "id"),
    [
        ("1", "1-failed_runs-campaign"),
        ("11", "11-failed_runs-campaign"),
        ("2-f", "2-failed_runs-campaign"),
        ("leak:n", "leak:none"),
        ("str", "straggler:none"),
        ("steady_state", "steady_state"),
    ],
)
def test_a_number_or_the_beginning_of_an_id_will_do(wanted: str, id: str) -> None:
    assert find(FINDINGS, wanted).id == id


def test_a_beginning_of_several_names_them() -> None:
    with pytest.raises(UsageError, match="'leak' begins 2 ids: leak:mb16_r1:host, leak:none; write more of one"):
        find(FINDINGS, "leak")


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'straggler:none'"):
        find(FINDINGS, "stragler:nun")


def said(value: float | None, verdict: Verdict = Verdict.PASS, name: str = "slope") -> Finding:
    evidence = Evidence(subject="mb16_r1", name=name, value=value, file="per_run_metrics.csv", window="steps 1–9", n=9)
    return Finding(id="leak:none", kind="leak", verdict=verdict, text="So.", evidence=(evidence,))


@pytest.mark.parametrize(
    ("before", "now", "differences"),
    [
        (said(0.1 + 0.2), said(0.3), []),
        (said(1.0), said(1.001), ["mb16_r1 slope, value: said 1, the files give 1.001"]),
        (said(None), said(None), []),
        (said(1.0, Verdict.FAIL), said(1.0), ["verdict: said FAIL, the files give PASS"]),
        (said(1.0), said(1.0, name="score"), ["mb16_r1 slope: no longer there", "mb16_r1 score: not said before"]),
    ],
)
def test_only_what_differs_is_told(before: Finding, now: Finding, differences: list[str]) -> None:
    assert list(_differences(before, now)) == differences


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("[b]_r1/attempt-1/events_rank*.jsonl", ["events_rank0.jsonl", "events_rank1.jsonl"]),
        ("[b]_r1/attempt-1/outcome.json", []),
        ("group_summary.csv", []),
        ("../outside/secret.txt", []),
        ("/etc/passwd", []),
        ("", []),
    ],
)
def test_files_that_an_evidence_names(tmp_path: Path, file: str, names: list[str]) -> None:
    attempt = tmp_path / "[b]_r1" / "attempt-1"
    attempt.mkdir(parents=True)
    for rank in (0, 1):
        (attempt / f"events_rank{rank}.jsonl").touch()
    assert [path.name for path in _named_files(tmp_path, file)] == names
