"""Finding a statement by what people type, and comparing it with the recomputed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.core.errors import UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.history import rows
from seatrial.records.verdict import Baseline, Criterion, Evidence, Finding, Verdict
from seatrial.results.compare import compared_group
from seatrial.results.gather import read_campaign_at
from seatrial.results.why import find_finding, finding_differences, named_files, read_verdict, subjects_of, trace
from tests.unit.results.campaigns import write_compared

CRITERION = Criterion(metric="failed_runs", scope="campaign", at_most=0)
FINDINGS = [
    *(Finding(id=f"{number}-failed_runs-campaign", criterion=CRITERION, verdict=Verdict.PASS, text="So.") for number in range(1, 12)),
    Finding(id="leak:mb16_r1:host", kind="leak", verdict=Verdict.FAIL, text="It leaks."),
    Finding(id="leak-none", kind="leak", verdict=Verdict.PASS, text="No leak."),
    Finding(id="straggler-none", kind="straggler", verdict=Verdict.PASS, text="None."),
    Finding(id="steady_state", kind="steady_state", verdict=Verdict.PASS, text="Steady."),
    Finding(id="steady_state:mb16_r1", kind="steady_state", verdict=Verdict.INCONCLUSIVE, text="Not steady."),
]


@pytest.mark.parametrize(
    ("wanted", "id"),
    [
        ("1", "1-failed_runs-campaign"),
        ("11", "11-failed_runs-campaign"),
        ("2-f", "2-failed_runs-campaign"),
        ("leak-n", "leak-none"),
        ("str", "straggler-none"),
        ("steady_state", "steady_state"),
    ],
)
def test_a_number_or_the_beginning_of_an_id_will_do(wanted: str, id: str) -> None:
    assert find_finding(FINDINGS, wanted).id == id


def test_a_beginning_of_several_names_them() -> None:
    with pytest.raises(UsageError, match=r"'leak' .*2 ids.*\n  leak:mb16_r1:host\n  leak-none$"):
        find_finding(FINDINGS, "leak")


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'straggler-none'.*\n  1-failed_runs-campaign\n  2-failed_runs-campaign\n"):
        find_finding(FINDINGS, "stragler-nun")


def test_only_criteria_have_numbers() -> None:
    """A group's name may hold a dash."""
    named = Finding(id="stability:a-b", kind="stability", verdict=Verdict.FAIL, text="So.")
    with pytest.raises(UsageError, match="begins 2 ids"):
        find_finding([named, Finding(id="stability:a-c", kind="stability", verdict=Verdict.FAIL, text="So.")], "stability:a")


def recorded(
    value: float | None, verdict: Verdict = Verdict.PASS, name: str = "slope", window: str = "steps 1–9", unit: str = "ms"
) -> Finding:
    evidence = Evidence(subject="mb16_r1", name=name, value=value, file="per_run_metrics.csv", unit=unit, window=window, n=9)
    return Finding(id="leak-none", kind="leak", verdict=verdict, text="So.", evidence=(evidence,))


@pytest.mark.parametrize(
    ("before", "now", "differences"),
    [
        (recorded(0.1 + 0.2), recorded(0.3), []),
        (recorded(1.0), recorded(1.001), ["mb16_r1 slope, value: recorded 1, recomputed: 1.001"]),
        (recorded(None), recorded(None), []),
        (recorded(1.0, Verdict.FAIL), recorded(1.0), ["verdict: recorded FAIL, recomputed: PASS"]),
        (recorded(1.0), recorded(1.0, name="score"), ["mb16_r1 slope: no longer there"]),
        (recorded(1.0), recorded(1.0, unit="s"), ["mb16_r1 slope, unit: recorded ms, recomputed: s"]),
        (recorded(1.0), recorded(1.0, window="over steps 1–9 of 1 run"), []),
        (recorded(1.0, window=""), recorded(1.0), []),
        (recorded(1.0), recorded(1.0, window="steps 1–8"), ["mb16_r1 slope, window: recorded steps 1–9, recomputed: steps 1–8"]),
    ],
)
def test_only_what_differs_is_reported(before: Finding, now: Finding, differences: list[str]) -> None:
    assert list(finding_differences(before, now)) == differences


@pytest.mark.parametrize(
    ("criterion", "name", "subjects"),
    [
        (Criterion(metric="speedup_pct", scope="winner", baseline=Baseline(group="mb8")), "", ["mb16", "mb8"]),
        (
            Criterion(metric="speedup_pct", scope="winner", baseline=Baseline(group="mb8")),
            "lower end of the 95 % interval",
            ["mb16", "mb8"],
        ),
        (Criterion(metric="speedup_pct", scope="winner", baseline=Baseline(group="mb8")), "samples_per_s", ["mb16"]),
        (Criterion(metric="speedup_pct", scope="winner", baseline=Baseline(history="v100")), "", ["mb16"]),
        (Criterion(metric="scaling_efficiency", scope="campaign", at_least=0.9), "", ["mb16", "ranks1"]),
        (Criterion(metric="samples_per_s", scope="winner", at_least=9), "", ["mb16"]),
    ],
)
def test_a_number_that_compares_was_made_of_both(criterion: Criterion, name: str, subjects: list[str]) -> None:
    own = Evidence(subject="mb16", name=name, value=1.0, file="group_summary.csv")
    base = Evidence(subject="ranks1", name="total at 1 GPU", value=1.0, file="group_summary.csv")
    assert subjects_of(Finding(id="1", criterion=criterion, verdict=Verdict.PASS, text="So.", evidence=(own, base)), own) == subjects


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
    assert [path.name for path in named_files(tmp_path, file)] == names


FAST, SLOW = [10.0, 10.1, 10.05], [12.0, 12.1, 12.2]


def speedup(out: Path, baseline: Baseline) -> tuple[CampaignPaths, Finding]:
    """A campaign on disk that is asked for a speed-up, and what is said of that."""
    asked = Criterion(metric="speedup_pct", scope="winner", at_least=8.0, baseline=baseline)
    paths = write_compared(out, {"fast": FAST, "slow": SLOW}, criteria=(asked,))
    return paths, find_finding(read_verdict(paths).findings, "1")


def test_a_speed_up_was_made_of_the_files_of_both_groups(tmp_path: Path) -> None:
    paths, said = speedup(tmp_path / "out", Baseline(group="slow"))
    first = trace(paths, said)[0]
    assert {file.split("_r")[0] for file in first.raw} == {"fast", "slow"}
    assert [file.split("_r")[0] for file in first.raw[:2]] == ["fast", "slow"], "the first few show both"


def test_files_of_another_campaign_are_named_where_they_are(tmp_path: Path) -> None:
    old = write_compared(tmp_path / "old", {"base": SLOW}).folder
    paths, said = speedup(tmp_path / "new", Baseline(campaign=str(old)))
    numbers = {(number.evidence.subject, number.evidence.file): number.raw for number in trace(paths, said)}
    assert all(Path(file).is_relative_to(old) for file in numbers[f"{old}:base", f"{old}/group_summary.csv"])
    assert any(file.startswith(str(old)) for file in trace(paths, said)[0].raw)


def test_a_row_of_history_is_named_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "history.jsonl"
    monkeypatch.setenv("SEATRIAL_HISTORY", str(file))
    grouped = read_campaign_at(write_compared(tmp_path / "old", {"base": SLOW}).folder)
    rows.pin(file, rows.add(file, compared_group(grouped, "base")).number, "v100")
    paths, said = speedup(tmp_path / "new", Baseline(history="v100"))
    numbers = {number.evidence.subject: number for number in trace(paths, said)}
    assert numbers["history:v100"].evidence.file == "history:v100" and numbers["history:v100"].raw == (str(file),)
