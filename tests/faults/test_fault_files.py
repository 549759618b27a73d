"""Every file of a real campaign damaged in every way before `seatrial report`.

The report is written, the other runs are unchanged, a figure of the damaged run is what it was (less the lost steps) or missing, and a
caution names the file that was skipped.
"""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.attempts import read_attempt
from seatrial.collect.steps import read_steps
from seatrial.core.errors import CampaignError
from seatrial.core.paths import AttemptPaths
from tests.conftest import MadeOnce
from tests.faults import damage
from tests.faults.damage import Damage, Told
from tests.harness import Harness

pytestmark = pytest.mark.faults

PLAN = """
name: small
workload: dummy
settings: {step_ms: 15, log_every: 10}
launcher: torchrun
place: {kind: local, ranks: 2}
axes:
  micro_batch: {label: mb, values: [8, 16]}
repeats: 1
steps: 40
timing: {log_every: 10}
telemetry: {host_s: 0.1}
output: out
"""
RUN = "mb8_r1"
ATTEMPT = f"{RUN}/attempt-1"
OF_CAMPAIGN = ("plan.json", "plans/small.json", "run_manifest.tsv")
# The report writes these and reads none of them: their content does not matter, what is in their place does.
OF_REPORT = (
    "timing_points.csv", "eta_points.csv", "per_run_metrics.csv", "group_summary.csv", "ranked_groups.csv", "summary.json", "summary.md",
    "best_config.json", "best_config.env", "best_overrides.txt",
)  # fmt: skip
OF_ATTEMPT = (
    "spec.json", "environment.json", "provenance.json", "launcher.log", "launcher_arrivals.csv", "train.log", "host_telemetry.csv",
    "telemetry.json", "events_rank0.jsonl", "events_rank1.jsonl", "heartbeat_rank0.jsonl", "heartbeat_rank1.jsonl", "outcome.json",
)  # fmt: skip
# No figure depends on these.
UNMEASURED = (
    "preflight.json", "progress.json", "verdict.json", ".owner.lock",
    *(f"{ATTEMPT}/{name}" for name in ("settings.json", "command.sh", "agent.json", "agent.log")),
)  # fmt: skip


@pytest.fixture(scope="module")
def campaign(made_once: MadeOnce) -> Path:
    """Read only: every test damages a copy."""
    return Harness(made_once("undamaged", _run)).out.folder


def _run(folder: Path) -> None:
    harness = Harness(folder)
    harness.run("run", str(harness.plan(PLAN)))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The report of an undamaged copy, and the steps that were taken."""

    report: Told
    times_ms: tuple[float, ...]
    losses: tuple[float, ...]

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Figure → values that some of the steps that were taken could give."""
        lowest, highest = min(self.times_ms), max(self.times_ms)
        # Eight samples of each of two ranks; a missing rank is assumed to have done the same.
        return {
            "wall_iter_p50_ms": (lowest, highest),
            "wall_iter_p90_ms": (lowest, highest),
            "wall_steps_per_sec": (1000 / highest, 1000 / lowest),
            "wall_samples_per_sec": (16 * 1000 / highest, 16 * 1000 / lowest),
            "startup_sec": (0.0, float(self.report.runs[RUN]["startup_sec"] or 0) + 1),
            "duration_sec": (float(self.report.runs[RUN]["duration_sec"]),) * 2,
            "first_loss": (min(self.losses), max(self.losses)),
        }


def truth_of(campaign: Path, into: Path) -> Truth:
    report = damage.report_of(campaign, into)
    attempt = read_attempt(AttemptPaths(into / ATTEMPT))
    assert attempt is not None
    steps = read_steps(attempt).steps
    return Truth(report=report, times_ms=tuple(steps["iter_ms"].drop_nulls()), losses=tuple(steps["loss"].drop_nulls()))


@pytest.fixture(scope="module")
def truth(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return truth_of(campaign, tmp_path_factory.mktemp("whole") / "out")


def check(found: Told, truth: Truth, file: str, what: str) -> None:
    """Nothing else changed, nothing was invented, and a caution names the file."""
    check_figures(found, truth, file, what)
    # A flipped bit that turns one digit of a sample into another cannot be noticed.
    is_plausible = what == "flipped bits" and file.endswith("_telemetry.csv")
    if found.runs != truth.report.runs and not is_plausible:
        assert found.names(file) or RUN in found.pending, f"{file}, {what}: no caution: {found.cautions}"


def check_figures(found: Told, truth: Truth, file: str, what: str) -> None:
    others = {run: row for run, row in found.runs.items() if not file.startswith(run)}
    assert others == {run: row for run, row in truth.report.runs.items() if not file.startswith(run)}, f"{file}, {what}: other runs changed"
    for name, (low, high) in truth.ranges().items():
        now = found.runs.get(RUN, {}).get(name, "")
        assert not now or low - 1e-3 <= float(now) <= high + 1e-3, f"{file}, {what}: {name} {truth.report.runs[RUN][name]} → {now}"


@pytest.mark.parametrize("file", [*OF_CAMPAIGN, *(f"{ATTEMPT}/{name}" for name in OF_ATTEMPT)])
def test_a_damaged_file_costs_only_itself_and_is_named(campaign: Path, truth: Truth, tmp_path: Path, file: str) -> None:
    for what, make in damage.damages_for(file).items():
        check(damage.report_of(campaign, tmp_path / "out", file, make), truth, file, what)


@pytest.mark.parametrize("what", damage.WHOLE)
def test_files_without_a_figure_change_none(campaign: Path, truth: Truth, tmp_path: Path, what: str) -> None:
    found = damage.report_of(campaign, tmp_path / "out", "", damage.each_of(UNMEASURED, damage.WHOLE[what]))
    assert (found.runs, found.outcomes) == (truth.report.runs, truth.report.outcomes)


@pytest.mark.parametrize("what", ["missing", "empty", "random bytes", "a folder", "a pipe", "a loop of links", "a dead link"])
def test_whatever_is_in_the_place_of_a_table_is_replaced(campaign: Path, truth: Truth, tmp_path: Path, what: str) -> None:
    found = damage.report_of(campaign, tmp_path / "out", "", damage.each_of(OF_REPORT, damage.WHOLE[what]))
    assert found.runs == truth.report.runs
    assert [file for file in OF_REPORT if not (tmp_path / "out" / file).is_file()] == []


@pytest.fixture(scope="module")
def printed(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same campaign with one run without events: only its log lines are left."""
    folder = tmp_path_factory.mktemp("printed") / "out"
    shutil.copytree(campaign, folder, symlinks=True)
    for path in (folder / ATTEMPT).glob("*_rank*.jsonl"):
        path.unlink()
    return folder


@pytest.mark.parametrize("file", [f"{ATTEMPT}/launcher.log", f"{ATTEMPT}/launcher_arrivals.csv"])
def test_damaged_output_of_a_script_without_the_probe(printed: Path, tmp_path: Path, file: str) -> None:
    truth = truth_of(printed, tmp_path / "whole")
    assert truth.report.runs[RUN]["source"].startswith("log:")
    for what, make in damage.damages_for(file).items():
        check_figures(damage.report_of(printed, tmp_path / "out", file, make), truth, file, what)


def of_rank(rank: int, change: Any) -> Damage:
    return lambda folder: damage.change_events(folder / f"events_rank{rank}.jsonl", change)


def of_steps(change: Any, first: int = 20, last: int = 10**9) -> Any:
    """Change only step events from `first` to `last`."""
    return lambda _, event: change(event) if event["kind"] == "step" and first <= event["step"] <= last else event


def another_rank(folder: Path) -> None:
    lines = (folder / "events_rank1.jsonl").read_text().replace('"rank":1', '"rank":7')
    (folder / "events_rank7.jsonl").write_text(lines)


WRONG_EVENTS: dict[str, tuple[str, Damage]] = {
    "the clock set back by an hour": ("clock_jump", of_rank(0, of_steps(lambda event: event | {"t": event["t"] - 3600}))),
    "the clock set forward by a year": ("clock_jump", of_rank(0, of_steps(lambda event: event | {"t": event["t"] + 366 * 86400}))),
    "steps that go back": ("duplicate_steps", of_rank(1, of_steps(lambda event: event | {"step": event["step"] - 15}))),
    "steps that jump": ("steps_out_of_place", of_rank(0, of_steps(lambda event: event | {"step": 10**9}, 20, 20))),
    "negative steps": ("steps_out_of_place", of_rank(0, of_steps(lambda event: event | {"step": -event["step"]}, 20, 25))),
    "every step twice": ("duplicate_steps", of_rank(0, of_steps(lambda event: [event, event | {"iter_ms": 900.0}], 0))),
    "a line of another run": ("foreign_lines", of_rank(0, of_steps(lambda event: [event, event | {"run": "other_r1"}], 20, 20))),
    "lines of another attempt": ("foreign_lines", of_rank(0, of_steps(lambda event: [event | {"attempt": 2, "iter_ms": 1e6}, event]))),
    "lines of another rank": ("foreign_lines", of_rank(0, of_steps(lambda event: [event | {"rank": 1, "iter_ms": 1e6}, event]))),
    "a rank that the run does not have": ("other_ranks", another_rank),
    "a rank less": ("ranks_not_seen", lambda folder: (folder / "events_rank1.jsonl").unlink()),
    "a step longer than the run": ("bad_times", of_rank(1, of_steps(lambda event: event | {"iter_ms": 1e9}, 20, 22))),
    "a step that the clock contradicts": ("bad_times", of_rank(1, of_steps(lambda event: event | {"iter_ms": 1500.0}, 20, 22))),
    "a monotonic clock that jumps": ("bad_times", of_rank(0, of_steps(lambda event: event | {"m": event["m"] + 1e6}, 20, 39))),
    "a monotonic clock that jumps back": (
        "steps_out_of_place",
        of_rank(0, of_steps(lambda event: event | {"m": event["m"] - 1e3}, 30, 31)),
    ),
    "samples without end": ("bad_values", of_rank(0, of_steps(lambda event: event | {"samples": 1e300, "fwd_ms": -5}, 20, 20))),
    "a world of a million": (
        "other_world_size",
        of_rank(1, lambda _, event: event | ({"world_size": 10**6} if event["kind"] == "start" else {})),
    ),
}


@pytest.mark.parametrize("what", WRONG_EVENTS)
def test_lies_of_the_events_are_seen_and_make_no_figure(campaign: Path, truth: Truth, tmp_path: Path, what: str) -> None:
    kind, make = WRONG_EVENTS[what]
    found = damage.report_of(campaign, tmp_path / "out", ATTEMPT, make)
    assert kind in found.kinds(), f"{what}: {found.cautions}"
    caution = next(caution for caution in found.cautions if caution.kind == kind)
    assert caution.subjects == (RUN,) and ("events_rank" in caution.text or kind in ("clock_jump", "other_world_size"))
    check_figures(found, truth, ATTEMPT, what)
    row, true = found.runs[RUN], truth.report.runs[RUN]
    assert (row["world_size"], row["source"]) == (true["world_size"], "events")
    assert int(row["last_step"]) <= 39
    for name in ("eta_error_median_sec", "tail_mean_iter_p50_ms", "host_rss_peak_mib"):
        assert not row[name] or float(row[name]) <= 3 * float(true[name] or 0) + 1, f"{what}: {name} {true[name]} → {row[name]}"
    # Over fewer steps it is the mean of other samples.
    assert not row["host_cpu_busy_mean_pct"] or float(row["host_cpu_busy_mean_pct"]) <= busiest_pct(campaign / ATTEMPT)


def busiest_pct(attempt: Path) -> float:
    """Of the samples of the host, the one with the busiest cores."""
    with open(attempt / "host_telemetry.csv") as source:
        return max(float(row["cpu_user_pct"] or 0) + float(row["cpu_system_pct"] or 0) for row in csv.DictReader(source)) + 1e-6


def test_an_outcome_of_another_run_is_not_this_one_s(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    other = (campaign / "mb16_r1/attempt-1/outcome.json").read_bytes()
    found = damage.report_of(campaign, tmp_path / "out", f"{ATTEMPT}/outcome.json", lambda path: path.write_bytes(other) and None)
    assert found.pending == (RUN,) and found.outcomes[RUN] == "unfinished" and RUN not in found.runs
    assert "it belongs to attempt 1 of the run mb16_r1" in next(one.text for one in found.cautions if one.kind == "unreadable_file")


def test_a_folder_that_was_copied_over_another_run_is_not_that_run(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    def copy_over(attempt: Path) -> None:
        shutil.rmtree(attempt)
        shutil.copytree(campaign / "mb16_r1/attempt-1", attempt)

    found = damage.report_of(campaign, tmp_path / "out", ATTEMPT, copy_over)
    assert found.runs == {run: row for run, row in truth.report.runs.items() if run != RUN}
    assert found.pending == (RUN,) and found.names(f"{ATTEMPT}/spec.json")


def test_a_plan_of_a_later_version_is_read(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    def of_later_version(path: Path) -> None:
        plan = json.loads(path.read_text())
        plan |= {"invented": {"a": [1]}, "rank_by": "happiness"}
        plan["runs"] = [run | {"mood": "good", "limits": run["limits"] | {"invented_s": 3}} for run in plan["runs"]]
        for one in (path, path.parent / "plans/small.json"):
            one.write_text(json.dumps(plan))

    found = damage.report_of(campaign, tmp_path / "out", "plan.json", of_later_version)
    assert found.runs == truth.report.runs
    # On a busy machine the undamaged campaign may have cautions too.
    assert found.kinds() - truth.report.kinds() == {"unknown_figure"}


def test_without_a_readable_plan_the_error_says_what_to_do(campaign: Path, tmp_path: Path) -> None:
    def both(path: Path) -> None:
        for one in (path, path.parent / "plans/small.json"):
            one.write_bytes(b"\0\xff{")

    with pytest.raises(CampaignError, match=r"no plan in .*run the plan again"):
        damage.report_of(campaign, tmp_path / "out", "plan.json", both)


LONG_LINES = ("spec.json", "outcome.json", "launcher.log", "launcher_arrivals.csv", "train.log", "host_telemetry.csv", "events_rank0.jsonl")


@pytest.mark.parametrize("file", ["plan.json", "run_manifest.tsv", *(f"{ATTEMPT}/{name}" for name in LONG_LINES)])
def test_a_line_of_two_hundred_megabytes(campaign: Path, truth: Truth, tmp_path: Path, file: str) -> None:
    check(damage.report_of(campaign, tmp_path / "out", file, damage.a_long_line), truth, file, "a long line")
    shutil.rmtree(tmp_path / "out")


def test_a_log_of_ten_gigabytes_is_read_at_both_ends(printed: Path, tmp_path: Path) -> None:
    def make_huge(path: Path) -> None:
        """A gigabyte of irrelevant lines, then a hole of nine that takes no disk space."""
        lines = b"".join(b"[data] shard %08d read in 12 ms, 31 samples skipped\n" % at for at in range(20000))
        with open(path, "ab") as log:
            while log.tell() < 1 << 30:
                log.write(lines)
            log.truncate(10 << 30)

    found = damage.report_of(printed, tmp_path / "out", f"{ATTEMPT}/launcher.log", make_huge)
    assert "launcher.log has 10.0 GiB; only the first and the last 32.0 MiB were read" in next(
        caution.text for caution in found.cautions if caution.kind == "large_log"
    )
    assert found.runs[RUN]["source"].startswith("log:") and int(found.runs[RUN]["last_step"]) >= 30
    shutil.rmtree(tmp_path / "out")


def test_the_command_line_reports_a_damaged_campaign(campaign: Path, tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    shutil.copytree(campaign, harness.out.folder, symlinks=True)
    damage.random_bytes(harness.out.folder / ATTEMPT / "events_rank0.jsonl")
    damage.a_pipe(harness.out.folder / ATTEMPT / "host_telemetry.csv")
    damage.a_folder(harness.out.summary_md)
    text = " ".join(harness.run("report", "out", "--full").split())
    assert "Traceback" not in text, text
    assert "events_rank0.jsonl" in text, text
    # The terminal refers to the summary for more than eight cautions, and a busy machine has some of its own.
    summary = harness.out.summary_md.read_text()
    assert "host_telemetry.csv cannot be used" in summary, summary
    assert (harness.out.folder / "summary.md.folder-1/inside").read_text() == "kept"
