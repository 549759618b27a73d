"""A folder of the original scripts translated into a campaign."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.attempts import read_campaign, read_plans
from seatrial.collect.effective_settings import read_effective
from seatrial.collect.original import translate as translate_module
from seatrial.collect.original.attempt_records import SampleFile, outcome_of, spec_of
from seatrial.collect.original.manifests import Row, TextFile
from seatrial.collect.original.runs import LauncherBlock, Segment, is_original, span_of
from seatrial.collect.original.runs import OriginalAttempt as MatchedAttempt
from seatrial.collect.original.runs import OriginalRun as MatchedRun
from seatrial.collect.original.translate import (
    locked,
    read_translation,
    run_cautions,
    translate,
    write_attempt,
)
from seatrial.collect.steps import read_steps
from seatrial.core import files
from seatrial.core.errors import CampaignError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.plan import TelemetrySpec
from tests.original_campaign import (
    FIRST_START,
    OLD_COLUMNS,
    OriginalAttempt,
    OriginalRun,
    ab_run,
    epoch_s,
    sweep_run,
    write_original_campaign,
)
from tests.unit.analyse import factory

FIRST = "sweep_z0_mb128_nw6_pf4_r1"
SECOND = "sweep_z0_mb160_nw6_pf4_r1"
AGAIN = sweep_run(0, 160, attempts=(OriginalAttempt(status="failed", exit_code=1, last_step=100, iter_p50_ms=900.0), OriginalAttempt()))


def translated(folder: Path, *runs: OriginalRun, **odd: object) -> list[Attempt]:
    """Attempts as our own readers see them."""
    write_original_campaign(folder, *runs, **odd)  # type: ignore[arg-type]
    return read_campaign(CampaignPaths(translate(folder)))


def kinds(folder: Path) -> dict[str, list[str]]:
    found = read_translation(CampaignPaths(folder / "seatrial"))
    assert found is not None
    by_kind: dict[str, list[str]] = {}
    for caution in found.cautions:
        by_kind.setdefault(caution.kind, []).append(caution.subject)
    return by_kind


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and "seatrial" not in path.relative_to(folder).parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_translated_attempt_has_every_file(tmp_path: Path) -> None:
    (attempt,) = translated(tmp_path, sweep_run(rank_scope="all"))
    paths = AttemptPaths(Path(attempt.folder))
    assert sorted(path.name for path in paths.folder.iterdir()) == [
        "events_rank0.jsonl",
        "gpu_telemetry.csv",
        "host_telemetry.csv",
        "launcher.log",
        "launcher_arrivals.csv",
        "outcome.json",
        "provenance.json",
        "spec.json",
        "telemetry.json",
        "train.log",
    ]
    assert attempt.current and attempt.cautions == () and attempt.telemetry is not None and attempt.telemetry.gpu is not None
    assert attempt.telemetry.gpu.rows == 186 and attempt.provenance.driver_version == "550.54.15"
    assert read_effective(paths.all_events(), attempt)["attn_impl"] == factory.effective({"attn_impl": ("auto", "sdpa", "")})["attn_impl"]


def test_lines_are_timed_by_their_timestamps(tmp_path: Path) -> None:
    (attempt,) = translated(tmp_path, sweep_run(rank_scope="all", attempts=(OriginalAttempt(wall_iter_ms=512.0),)))
    tables = read_steps(attempt)
    rank0 = tables.steps.filter(tables.steps["rank"] == 0)
    assert tables.source == "log:seed" and rank0["step"].to_list() == [0, 50, 100, 150, 200, 250, 300]
    assert rank0["iter_ms"].to_list()[1:] == pytest.approx([512.0] * 6) and rank0["span"].to_list()[1:] == [50] * 6
    assert attempt.outcome is not None and rank0["t"][0] == attempt.outcome.started_t + 30
    assert len(tables.timing_points) == 7 and len(tables.eta_points) == 6
    assert sorted(set(tables.steps["rank"])) == [0, 1] and [caution.kind for caution in tables.cautions] == ["steps_between_lines"]


def test_only_the_last_attempts_lines_count(tmp_path: Path) -> None:
    old, new = translated(tmp_path, AGAIN)
    assert [(one.number, one.current) for one in (old, new)] == [(1, False), (2, True)]
    assert old.outcome is not None and new.outcome is not None and old.outcome.hash == new.outcome.hash
    assert (old.outcome.outcome.value, new.outcome.outcome.value) == ("failed", "ok")
    assert [point.values["iter_ms_p50"] for point in read_steps(old).timing_points] == [900.0] * 3
    assert [point.values["iter_ms_p50"] for point in read_steps(new).timing_points] == [400.0] * 7
    assert kinds(tmp_path)["original_appended"] == [SECOND]


def test_the_original_files_are_unchanged(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, AGAIN, sweep_run(), torn_line=True, own_tables=True, root_host_telemetry=True)
    before = digests(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    translate(tmp_path)
    assert digests(tmp_path) == before and len(before) == 4 * 2 + 6


def test_a_second_time_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translated(tmp_path, sweep_run())
    with monkeypatch.context() as patch:
        patch.setattr(translate_module, "read_manifests", lambda folder: pytest.fail("read again"))
        assert translate(tmp_path) == tmp_path / "seatrial" and is_original(tmp_path)


def test_a_changed_folder_is_translated_again(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(OriginalAttempt(has_row=False, last_step=50),)), sweep_run(0, 160))
    found = read_campaign(CampaignPaths(translate(tmp_path)))
    assert [one.outcome.outcome.value for one in found if one.outcome] == ["interrupted", "ok"]
    shutil.rmtree(tmp_path / SECOND)
    again = translated(tmp_path, sweep_run())
    assert [one.spec.run for one in again] == [FIRST] and again[0].outcome is not None and again[0].outcome.outcome.value == "ok"
    assert not list((tmp_path / "seatrial" / SECOND).glob("attempt-*"))


def test_an_interrupted_translation_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_original_campaign(tmp_path, sweep_run(), sweep_run(0, 160))
    with monkeypatch.context() as patch:
        patch.setattr(translate_module, "remove_stale", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            translate(tmp_path)
    assert len(read_campaign(CampaignPaths(translate(tmp_path)))) == 2 and kinds(tmp_path)["original_scripts"] == [""]


def test_a_copied_folder_is_read_in_its_new_place(tmp_path: Path) -> None:
    translated(tmp_path / "here", sweep_run(), elsewhere="/code/outputs/gone")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    (attempt,) = read_campaign(CampaignPaths(translate(tmp_path / "there")))
    assert attempt.folder.startswith(str(tmp_path / "there")) and len(read_steps(attempt).timing_points) == 7
    (plan,) = read_plans(CampaignPaths(tmp_path / "there" / "seatrial"))
    assert plan.source == str(tmp_path / "there") and plan.output == str(tmp_path / "there" / "seatrial")


@pytest.mark.parametrize(
    "odd",
    [
        {"crlf": True, "bom": True},
        {"columns": OLD_COLUMNS},
        {"torn_line": True},
        {"elsewhere": ""},
        {"manifest": False},
        {"backup_rows": [sweep_run()]},
    ],
)
def test_every_oddity_gives_the_same_figures(tmp_path: Path, odd: dict[str, object]) -> None:
    plain = translated(tmp_path / "plain", sweep_run(), AGAIN)
    found = translated(tmp_path / "odd", sweep_run(), AGAIN, **odd)
    seen = {(one.spec.run, one.number): [point.values for point in read_steps(one).timing_points] for one in found}
    for one in plain:
        number = one.number + (1 if "backup_rows" in odd and one.spec.run == FIRST else 0)
        assert seen[one.spec.run, number] == [point.values for point in read_steps(one).timing_points]


@pytest.mark.parametrize("run", [sweep_run(), ab_run("old_like")], ids=lambda run: run.mode)
@pytest.mark.parametrize("column", ["", "mode", "micro_batch", "world_size", "duration_sec", "status", "group"])
@pytest.mark.parametrize("logs", [True, False])
def test_nul_bytes_in_a_row_do_not_split_its_group(tmp_path: Path, run: OriginalRun, column: str, logs: bool) -> None:
    """Reproduced: a crash left zeros in the middle of the manifest; `\0\0sweep` is another mode, and 1 of 128 another batch."""
    runs = [replace(run, repeat=repeat, launcher_log=logs, train_log=logs or repeat != 2) for repeat in (1, 2, 3)]
    write_original_campaign(tmp_path, *runs)
    manifest = tmp_path / "run_manifest.tsv"
    header, *rows = manifest.read_bytes().decode().splitlines()
    place = header.split("\t").index(column) if column else 0
    cells = rows[1].split("\t")
    cells[place] = f"\0\0\0{cells[place]}" if not column else f"{cells[place][:1]}\0\0"
    manifest.write_text("\n".join([header, rows[0], "\t".join(cells), rows[2], "\0" * 64, ""]))
    attempts = read_campaign(CampaignPaths(translate(tmp_path)))
    assert {attempt.spec.run for attempt in attempts} >= {f"{run.group}_r1", f"{run.group}_r3"}
    assert len({attempt.spec.group_key for attempt in attempts}) == 1
    assert "original_manifest" in kinds(tmp_path)


def test_missing_logs_are_reported(tmp_path: Path) -> None:
    runs = (sweep_run(launcher_log=False), sweep_run(0, 160, train_log=False), sweep_run(0, 192))
    write_original_campaign(tmp_path, *runs)
    shutil.rmtree(tmp_path / "sweep_z0_mb192_nw6_pf4_r1")
    found = {one.spec.run: one for one in read_campaign(CampaignPaths(translate(tmp_path)))}
    assert len(read_steps(found[FIRST]).timing_points) == 7 and read_steps(found[SECOND]).source == "whole"
    assert len(kinds(tmp_path)["original_log_missing"]) == 3
    assert found[FIRST].outcome is not None and found[FIRST].outcome.started_t == 0.0


def test_steps_in_the_launchers_log_alone(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    run = tmp_path / FIRST
    printed = (run / "train.log").read_text()
    (run / "launcher.log").write_text((run / "launcher.log").read_text() + printed)
    (both,) = read_campaign(CampaignPaths(translate(tmp_path)))
    assert read_steps(both).steps["step"].to_list() == [0, 50, 100, 150, 200, 250, 300]
    (run / "train.log").unlink()
    (alone,) = read_campaign(CampaignPaths(translate(tmp_path)))
    assert read_steps(alone).steps["iter_ms"].to_list()[1:] == pytest.approx([500.0] * 6) and alone.spec.steps == 301


def test_folders_without_a_row_and_without_a_run(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(), sweep_run(0, 160, attempts=(OriginalAttempt(has_row=False, last_step=50),)))
    (tmp_path / "by_hand").mkdir()
    (tmp_path / "by_hand" / "train.log").write_text("Step 0: Loss 1.0\n")
    shutil.copytree(tmp_path / FIRST, tmp_path / "copy_of_r1")
    found = read_campaign(CampaignPaths(translate(tmp_path)))
    assert [(one.spec.run, one.outcome.outcome.value) for one in found if one.outcome] == [(FIRST, "ok"), (SECOND, "interrupted")]
    assert kinds(tmp_path)["original_no_row"] == [SECOND] and kinds(tmp_path)["original_stray"] == [""]


def test_both_modes_in_one_folder(tmp_path: Path) -> None:
    found = translated(tmp_path, ab_run("old_like"), ab_run("tuned"), sweep_run())
    assert {one.spec.group: (one.spec.mode, len(read_steps(one).timing_points)) for one in found} == {
        "old_like": ("ab", 241),
        "tuned": ("ab", 13),
        "sweep_z0_mb128_nw6_pf4": ("sweep", 7),
    }
    (plan,) = read_plans(CampaignPaths(tmp_path / "seatrial"))
    assert plan.axes["variant"] == ("old_like", "tuned") and plan.axes["micro_batch"] == (128,) and plan.baseline == "old_like"


def test_tail_and_baseline_are_those_of_the_original_summary(tmp_path: Path) -> None:
    (attempt,) = translated(tmp_path, sweep_run(), own_tables=True, tail_points=10, baseline_group="tuned")
    (plan,) = read_plans(CampaignPaths(tmp_path / "seatrial"))
    assert attempt.spec.timing.tail_points == 10 and plan.baseline == "tuned"
    (tmp_path / "summary.json").write_text(json.dumps({"tail_points": "many", "baseline_group": 3}))
    translate(tmp_path)
    (plan,) = read_plans(CampaignPaths(tmp_path / "seatrial"))
    assert plan.runs[0].timing.tail_points == 20 and plan.baseline == "old_like"


def test_an_unknown_zone_and_world_size_are_reported(tmp_path: Path) -> None:
    run = sweep_run(world_size=0, launcher_log=False, gpu_telemetry="none", host_telemetry="none")
    translated(tmp_path, run)
    assert kinds(tmp_path)["original_zone"] == [FIRST] and kinds(tmp_path)["original_world_size"] == [FIRST]


def test_a_row_merged_back_beside_itself_is_one_attempt(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, sweep_run()) / "run_manifest.tsv"
    manifest.write_text(manifest.read_text() + manifest.read_text().splitlines()[1] + "\n")
    assert [one.number for one in read_campaign(CampaignPaths(translate(tmp_path)))] == [1]


def test_a_target_that_is_taken_is_refused(tmp_path: Path) -> None:
    write_original_campaign(tmp_path / "file", sweep_run())
    (tmp_path / "file" / "seatrial").write_text("mine")
    with pytest.raises(CampaignError, match="is a file"):
        translate(tmp_path / "file")
    write_original_campaign(tmp_path / "run", sweep_run())
    translate(tmp_path / "run")
    target = CampaignPaths(tmp_path / "run" / "seatrial")
    target.plan.write_text(target.plan.read_text().replace('"name": "original-stage1-scripts"', '"name": "mine"', 1))
    with pytest.raises(CampaignError, match="plan 'mine'"):
        translate(tmp_path / "run")


def test_nothing_to_read_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_text("group\trepeat\tstatus\n")
    assert is_original(tmp_path)
    with pytest.raises(CampaignError, match="holds no run"):
        translate(tmp_path)
    assert not (tmp_path / "seatrial").exists()


def test_two_processes_do_not_translate_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_original_campaign(tmp_path, sweep_run())
    monkeypatch.setattr(translate_module, "LOCK_TIMEOUT_S", 0.0)
    with locked(CampaignPaths(tmp_path / "seatrial")), pytest.raises(CampaignError, match="by another process"):
        translate(tmp_path)
    assert translate(tmp_path) == tmp_path / "seatrial"
    with locked(CampaignPaths(tmp_path / "seatrial")):
        assert translate(tmp_path) == tmp_path / "seatrial", "nothing is to be written, so nobody waits"


def test_a_process_that_waited_finds_it_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_original_campaign(tmp_path, sweep_run())

    @contextlib.contextmanager
    def after_another(target: CampaignPaths) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(translate_module, "locked", locked)
            translate(tmp_path)
        written_ns.append(CampaignPaths(tmp_path / "seatrial").translation.stat().st_mtime_ns)
        with locked(target):
            yield

    written_ns: list[int] = []
    monkeypatch.setattr(translate_module, "locked", after_another)
    translate(tmp_path)
    assert CampaignPaths(tmp_path / "seatrial").translation.stat().st_mtime_ns == written_ns[0]
    assert len(read_campaign(CampaignPaths(tmp_path / "seatrial"))) == 1


def test_a_file_system_without_locks_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_original_campaign(tmp_path, sweep_run())

    def no_locks(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    assert len(read_campaign(CampaignPaths(translate(tmp_path)))) == 1


def test_half_a_line_at_the_end_of_train_log_is_no_timing(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    with open(tmp_path / FIRST / "train.log", "a") as more:
        more.write("2026-02-18 18:05:30,000 - train - INFO - Step 350: Loss 3.5\n")
        more.write("2026-02-18 18:05:30,000 - train - INFO - Timing(window=100): iter_ms:p50=40.00 p90=4")
    (attempt,) = read_campaign(CampaignPaths(translate(tmp_path)))
    assert [point.step for point in read_steps(attempt).timing_points] == [0, 50, 100, 150, 200, 250, 300]


def test_a_run_without_logs_is_timed_by_its_samples(tmp_path: Path) -> None:
    run = sweep_run(launcher_log=False, train_log=False, host_telemetry="none")
    (attempt,) = translated(tmp_path, run, root_host_telemetry=True)
    assert attempt.outcome is not None and attempt.outcome.started_t == 0.0 and attempt.outcome.ended_t == epoch_s(FIRST_START) + 184
    assert attempt.telemetry is not None and attempt.telemetry.host is not None and attempt.telemetry.host.rows == 37


def test_folders_that_are_not_the_original_scripts(tmp_path: Path) -> None:
    assert not is_original(tmp_path) and not is_original(tmp_path / "none")
    write_original_campaign(tmp_path, sweep_run(), manifest=False)
    assert is_original(tmp_path)
    (tmp_path / "plan.json").write_text("{}")
    assert not is_original(tmp_path)
    (tmp_path / "plan.json").unlink()
    (tmp_path / FIRST / "attempt-1").mkdir()
    assert not is_original(tmp_path)


CELLS = {
    "group": "g", "repeat": "1", "status": "success", "exit_code": "0", "world_size": "2", "duration_sec": "60",
    "precision_mode_req": "auto", "precision_mode_effective": "bf16",
}  # fmt: skip
STEP = "2026-02-18 17:56:30,000 INFO Step 10: Loss 2.5"
ORIGINAL = MatchedAttempt(
    row=Row(cells=CELLS),
    segment=Segment((STEP,)),
    block=LauncherBlock(meta={"timestamp": "2026-02-18T17:56:20+08:00"}, output=("starting",)),
)
GPU = SampleFile(path=Path("gpu_telemetry.csv"), columns=("epoch_sec", "power_w"), rows=(["1.0", "300"], ["3.0", "310"]))


def written(folder: Path, original: MatchedAttempt = ORIGINAL, **changes: Any) -> AttemptPaths:
    spec = changes.pop("spec", None) or spec_of(ORIGINAL, "g", 1, 20)
    outcome = outcome_of(ORIGINAL, 1, spec, span_of(ORIGINAL, 28_800.0))
    paths = AttemptPaths(folder / "g_r1" / "attempt-1")
    write_attempt(paths, original, spec, outcome, Provenance(host="there"), zone_s=28_800.0, **changes)
    return paths


def test_what_took_effect_is_timed_by_the_start(tmp_path: Path) -> None:
    paths = written(tmp_path)
    started_t = files.read_json(paths.outcome)["started_t"]
    effective = [event for event in files.read_json_lines(paths.events(0)) if event["kind"] == "effective"]
    assert effective and {event["t"] for event in effective} == {started_t}


def test_the_account_of_the_samples_uses_the_requested_intervals(tmp_path: Path) -> None:
    spec = replace(spec_of(ORIGINAL, "g", 1, 20), telemetry=TelemetrySpec(gpu_s=2.0, host_s=5.0))
    host = SampleFile(path=Path("host_telemetry.csv"), columns=("epoch_sec", "cpu"), rows=(["1.0", "3"], ["6.0", "4"], ["11.0", "5"]))
    account = files.read_json(written(tmp_path, spec=spec, gpu=GPU, host=host).telemetry)
    assert (account["gpu"]["interval_s"], account["gpu"]["rows"]) == (2.0, 2)
    assert (account["host"]["interval_s"], account["host"]["rows"], account["host"]["gaps"]) == (5.0, 3, 0)


def test_files_of_an_earlier_translation_are_removed(tmp_path: Path) -> None:
    written(tmp_path, gpu=GPU)
    paths = written(tmp_path, original=MatchedAttempt(row=ORIGINAL.row))
    assert not paths.gpu_telemetry.exists() and not paths.train_log.exists() and paths.outcome.exists()


ROW_CELLS = {"group": "g", "repeat": "1", "status": "success", "exit_code": "0", "world_size": "2"}
WHOLE = MatchedAttempt(row=Row(cells=ROW_CELLS), segment=Segment(("Step 1: Loss 1.0",)), block=LauncherBlock(meta={}))
TEXT = TextFile(lines=("something",))


def run_caution_kinds(*attempts: MatchedAttempt, zone_s: float | None = 0.0, **changes: Any) -> list[str]:
    values = {
        "group": "g",
        "repeat": 1,
        "folder": Path("g_r1"),
        "attempts": attempts or (WHOLE,),
        "launcher": TEXT,
        "train": TEXT,
    }
    found = list(run_cautions(MatchedRun(**{**values, **changes}), zone_s))
    assert all(caution.subject == "g_r1" and caution.text.endswith(".") for caution in found)
    return [caution.kind for caution in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"folder": None, "launcher": TextFile(), "train": TextFile()}, ["original_log_missing"]),
        ({"launcher": TextFile()}, ["original_log_missing"]),
        ({"train": TextFile()}, ["original_log_missing"]),
        ({"launcher": TextFile(problem="Is a directory")}, ["unreadable_file"]),
        ({"train": TextFile(lines=("x",), left_out_bytes=10)}, ["large_log"]),
        ({"zone_s": None}, ["original_zone"]),
    ],
)
def test_files_that_are_missing_unreadable_or_silent(changes: dict[str, Any], expected: list[str]) -> None:
    assert run_caution_kinds(**changes) == expected


def test_a_failed_run_need_not_have_a_train_log() -> None:
    assert run_caution_kinds() == []
    failed = MatchedAttempt(row=Row(cells={**ROW_CELLS, "status": "failed", "exit_code": "1"}))
    assert run_caution_kinds(failed, train=TextFile()) == []


def test_rows_and_attempts_that_do_not_go_together() -> None:
    assert run_caution_kinds(WHOLE, WHOLE) == ["original_appended"]
    assert run_caution_kinds(MatchedAttempt(block=LauncherBlock(meta={"world_size": "2"}))) == ["original_no_row"]
    assert run_caution_kinds(MatchedAttempt(row=Row(cells={**ROW_CELLS, "exit_code": "137"}))) == ["original_status"]
    assert run_caution_kinds(MatchedAttempt(row=Row(cells={name: cell for name, cell in ROW_CELLS.items() if name != "world_size"}))) == [
        "original_world_size"
    ]
