"""Every file of a real campaign damaged in every way, before `seatrial report`.

The report must come, the other runs must read as before, a figure of the damaged run must be what it was (less the steps that are
gone) or not there at all, and what was passed over must be said by the name of its file.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.attempts import read_attempt
from seatrial.collect.steps import read_steps
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths
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
repeats: 2
steps: 40
timing: {log_every: 10}
telemetry: {host_s: 0.1}
output: out
"""
RUN = "mb8_r1"
ATTEMPT = f"{RUN}/attempt-1"
OF_CAMPAIGN = (
    "plan.json", "plans/small.json", "preflight.json", "progress.json", "verdict.json", "run_manifest.tsv", "timing_points.csv",
    "eta_points.csv", "per_run_metrics.csv", "group_summary.csv", "ranked_groups.csv", "summary.json", "summary.md", "best_config.json",
    "best_config.env", "best_overrides.txt", ".owner.lock",
)  # fmt: skip
OF_ATTEMPT = (
    "spec.json", "settings.json", "command.sh", "agent.json", "agent.log", "environment.json", "provenance.json", "launcher.log",
    "launcher_arrivals.csv", "train.log", "host_telemetry.csv", "telemetry.json", "events_rank0.jsonl", "events_rank1.jsonl",
    "heartbeat_rank0.jsonl", "heartbeat_rank1.jsonl", "outcome.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def campaign(made_once: MadeOnce) -> Path:
    """Left as it is: every test damages a copy."""
    return Harness(made_once("undamaged", _run)).out.folder


def _run(folder: Path) -> None:
    harness = Harness(folder)
    harness.run("run", str(harness.plan(PLAN)))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What an undamaged copy tells, and the steps that were really taken."""

    told: Told
    times_ms: tuple[float, ...]
    losses: tuple[float, ...]

    def allows(self, name: str, value: float) -> bool:
        """Whether some of the steps really taken could give the figure."""
        lowest, highest = min(self.times_ms), max(self.times_ms)
        # Eight samples of each of two ranks; a rank that is missing is taken to have done the same.
        ranges = {
            "wall_iter_p50_ms": (lowest, highest),
            "wall_iter_p90_ms": (lowest, highest),
            "wall_steps_per_sec": (1000 / highest, 1000 / lowest),
            "wall_samples_per_sec": (16 * 1000 / highest, 16 * 1000 / lowest),
            "startup_sec": (0.0, float(self.told.runs[RUN]["startup_sec"] or 0) + 1),
            "duration_sec": (float(self.told.runs[RUN]["duration_sec"]),) * 2,
            "first_loss": (min(self.losses), max(self.losses)),
        }
        low, high = ranges[name]
        return low - 1e-3 <= value <= high + 1e-3


FIGURES = (
    "wall_iter_p50_ms",
    "wall_iter_p90_ms",
    "wall_steps_per_sec",
    "wall_samples_per_sec",
    "startup_sec",
    "duration_sec",
    "first_loss",
)


def truth_of(campaign: Path, into: Path) -> Truth:
    told = damage.report_of(campaign, into)
    attempt = read_attempt(AttemptPaths(into / ATTEMPT))
    assert attempt is not None
    steps = read_steps(attempt).steps
    return Truth(told=told, times_ms=tuple(steps["iter_ms"].drop_nulls()), losses=tuple(steps["loss"].drop_nulls()))


@pytest.fixture(scope="module")
def truth(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return truth_of(campaign, tmp_path_factory.mktemp("whole") / "out")


def check(found: Told, truth: Truth, file: str, what: str) -> None:
    """Nothing else changed, nothing invented, and said."""
    check_figures(found, truth, file, what)
    # A bit that makes one digit of a sample another cannot be seen.
    is_plausible = what == "flipped bits" and file.endswith("_telemetry.csv")
    if found.runs != truth.told.runs and not is_plausible:
        assert found.names(file) or RUN in found.pending, f"{file}, {what}: nothing said: {found.cautions}"


def check_figures(found: Told, truth: Truth, file: str, what: str) -> None:
    others = {run: row for run, row in found.runs.items() if not file.startswith(run)}
    assert others == {run: row for run, row in truth.told.runs.items() if not file.startswith(run)}, f"{file}, {what}: other runs changed"
    for name in FIGURES:
        now = found.runs.get(RUN, {}).get(name, "")
        assert not now or truth.allows(name, float(now)), f"{file}, {what}: {name} {truth.told.runs[RUN][name]} → {now}"


@pytest.mark.parametrize("file", [*OF_CAMPAIGN, *(f"{ATTEMPT}/{name}" for name in OF_ATTEMPT)])
def test_a_damaged_file_costs_only_itself_and_is_named(campaign: Path, truth: Truth, tmp_path: Path, file: str) -> None:
    for what, make in damage.damages_for(file).items():
        check(damage.report_of(campaign, tmp_path / "out", file, make), truth, file, what)


@pytest.fixture(scope="module")
def printed(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same campaign, of which one run has no probe: its lines are all there is."""
    folder = tmp_path_factory.mktemp("printed") / "out"
    shutil.copytree(campaign, folder, symlinks=True)
    for path in (folder / ATTEMPT).glob("*_rank*.jsonl"):
        path.unlink()
    return folder


@pytest.mark.parametrize("file", [f"{ATTEMPT}/launcher.log", f"{ATTEMPT}/launcher_arrivals.csv"])
def test_damaged_output_of_a_script_without_the_probe(printed: Path, tmp_path: Path, file: str) -> None:
    truth = truth_of(printed, tmp_path / "whole")
    assert truth.told.runs[RUN]["source"].startswith("log:")
    for what, make in damage.damages_for(file).items():
        check_figures(damage.report_of(printed, tmp_path / "out", file, make), truth, file, what)


def lie(rank: int, change: Any) -> Damage:
    return lambda folder: damage.change_events(folder / f"events_rank{rank}.jsonl", change)


def of_steps(change: Any, first: int = 20, last: int = 10**9) -> Any:
    """Change only step events from `first` to `last`."""
    return lambda _, event: change(event) if event["kind"] == "step" and first <= event["step"] <= last else event


def another_rank(folder: Path) -> None:
    lines = (folder / "events_rank1.jsonl").read_text().replace('"rank":1', '"rank":7')
    (folder / "events_rank7.jsonl").write_text(lines)


LIES: dict[str, tuple[str, Damage]] = {
    "the clock set back by an hour": ("clock_jump", lie(0, of_steps(lambda event: event | {"t": event["t"] - 3600}))),
    "the clock set forward by a year": ("clock_jump", lie(0, of_steps(lambda event: event | {"t": event["t"] + 366 * 86400}))),
    "steps that go back": ("duplicate_steps", lie(1, of_steps(lambda event: event | {"step": event["step"] - 15}))),
    "steps that jump": ("steps_out_of_place", lie(0, of_steps(lambda event: event | {"step": 10**9}, 20, 20))),
    "negative steps": ("steps_out_of_place", lie(0, of_steps(lambda event: event | {"step": -event["step"]}, 20, 25))),
    "every step twice": ("duplicate_steps", lie(0, of_steps(lambda event: [event, event | {"iter_ms": 900.0}], 0))),
    "a line of another run": ("foreign_lines", lie(0, of_steps(lambda event: [event, event | {"run": "other_r1"}], 20, 20))),
    "lines of another attempt": ("foreign_lines", lie(0, of_steps(lambda event: [event | {"attempt": 2, "iter_ms": 1e6}, event]))),
    "lines of another rank": ("foreign_lines", lie(0, of_steps(lambda event: [event | {"rank": 1, "iter_ms": 1e6}, event]))),
    "a rank that the run does not have": ("other_ranks", another_rank),
    "a rank less": ("ranks_not_seen", lambda folder: (folder / "events_rank1.jsonl").unlink()),
    "a step longer than the run": ("bad_times", lie(1, of_steps(lambda event: event | {"iter_ms": 1e9}, 20, 22))),
    "a step that the clock contradicts": ("bad_times", lie(1, of_steps(lambda event: event | {"iter_ms": 1500.0}, 20, 22))),
    "a monotonic clock that jumps": ("bad_times", lie(0, of_steps(lambda event: event | {"m": event["m"] + 1e6}, 20, 39))),
    "a monotonic clock that jumps back": ("steps_out_of_place", lie(0, of_steps(lambda event: event | {"m": event["m"] - 1e3}, 30, 31))),
    "samples without end": ("bad_values", lie(0, of_steps(lambda event: event | {"samples": 1e300, "fwd_ms": -5}, 20, 20))),
    "a world of a million": (
        "other_world_size",
        lie(1, lambda _, event: event | ({"world_size": 10**6} if event["kind"] == "start" else {})),
    ),
}


@pytest.mark.parametrize("what", LIES)
def test_lies_of_the_events_are_seen_and_make_no_figure(campaign: Path, truth: Truth, tmp_path: Path, what: str) -> None:
    kind, make = LIES[what]
    found = damage.report_of(campaign, tmp_path / "out", ATTEMPT, make)
    assert kind in found.kinds(), f"{what}: {found.cautions}"
    told = next(caution for caution in found.cautions if caution.kind == kind)
    assert told.subjects == (RUN,) and ("events_rank" in told.text or kind in ("clock_jump", "other_world_size"))
    check_figures(found, truth, ATTEMPT, what)
    row, true = found.runs[RUN], truth.told.runs[RUN]
    assert (row["world_size"], row["source"]) == (true["world_size"], "events")
    assert int(row["last_step"]) <= 39
    for name in ("eta_error_median_sec", "tail_mean_iter_p50_ms", "host_rss_peak_mib", "host_cpu_busy_mean_pct"):
        assert not row[name] or float(row[name]) <= 3 * float(true[name] or 0) + 1, f"{what}: {name} {true[name]} → {row[name]}"


def test_an_outcome_of_another_run_is_not_this_one_s(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    other = (campaign / "mb16_r1/attempt-1/outcome.json").read_bytes()
    found = damage.report_of(campaign, tmp_path / "out", f"{ATTEMPT}/outcome.json", lambda path: path.write_bytes(other) and None)
    assert found.pending == (RUN,) and found.outcomes[RUN] == "unfinished" and RUN not in found.runs
    assert "it is that of attempt 1 of the run mb16_r1" in next(one.text for one in found.cautions if one.kind == "unreadable_file")


def test_a_folder_that_was_copied_over_another_run_is_not_that_run(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    def copy_over(attempt: Path) -> None:
        shutil.rmtree(attempt)
        shutil.copytree(campaign / "mb16_r1/attempt-1", attempt)

    found = damage.report_of(campaign, tmp_path / "out", ATTEMPT, copy_over)
    assert found.runs == {run: row for run, row in truth.told.runs.items() if run != RUN}
    assert found.pending == (RUN,) and found.names(f"{ATTEMPT}/spec.json")


def test_a_plan_of_a_later_version_is_read(campaign: Path, truth: Truth, tmp_path: Path) -> None:
    def of_later_version(path: Path) -> None:
        plan = json.loads(path.read_text())
        plan |= {"invented": {"a": [1]}, "rank_by": "happiness"}
        plan["runs"] = [run | {"mood": "good", "limits": run["limits"] | {"patience": 3}} for run in plan["runs"]]
        for one in (path, path.parent / "plans/small.json"):
            one.write_text(json.dumps(plan))

    found = damage.report_of(campaign, tmp_path / "out", "plan.json", of_later_version)
    assert found.runs == truth.told.runs
    # A busy machine may have given the sound campaign cautions of its own.
    assert found.kinds() - truth.told.kinds() == {"unknown_figure"}


def test_without_any_plan_it_is_said_what_to_do(campaign: Path, tmp_path: Path) -> None:
    def both(path: Path) -> None:
        for one in (path, path.parent / "plans/small.json"):
            one.write_bytes(b"\0\xff{")

    with pytest.raises(CampaignError, match=r"no plan in .* can be read: .*run the plan again into this folder"):
        damage.report_of(campaign, tmp_path / "out", "plan.json", both)


@pytest.mark.parametrize("file", ["plan.json", "run_manifest.tsv", *(f"{ATTEMPT}/{name}" for name in OF_ATTEMPT if "rank1" not in name)])
def test_a_line_of_two_hundred_megabytes(campaign: Path, truth: Truth, tmp_path: Path, file: str) -> None:
    began_s = time.monotonic()
    check(damage.report_of(campaign, tmp_path / "out", file, damage.a_long_line), truth, file, "a long line")
    assert time.monotonic() - began_s < 60
    shutil.rmtree(tmp_path / "out")


def test_a_log_of_ten_gigabytes_is_read_at_both_ends(printed: Path, tmp_path: Path) -> None:
    def make_huge(path: Path) -> None:
        """A gigabyte of lines that tell nothing, then nine that take no room on the disk."""
        lines = b"".join(b"[data] shard %08d read in 12 ms, 31 samples skipped\n" % at for at in range(20000))
        with open(path, "ab") as log:
            while log.tell() < 1 << 30:
                log.write(lines)
            log.truncate(10 << 30)

    began_s = time.monotonic()
    found = damage.report_of(printed, tmp_path / "out", f"{ATTEMPT}/launcher.log", make_huge)
    assert time.monotonic() - began_s < 90
    assert "launcher.log has 10.0 GiB, of which the first and the last 32.0 MiB were read" in next(
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
    text = " ".join(harness.run("report", "out").split())
    assert "Traceback" not in text and "events_rank0.jsonl" in text and "host_telemetry.csv cannot be used" in text
    assert harness.out.summary_md.is_file() and (harness.out.folder / "summary.md.folder-1/inside").read_text() == "kept"
