"""Settings, axes, identities and machine of an original attempt."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from seatrial.collect.original.manifests import read_manifests
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.run_specs import effective_of, identified, provenance_of, settings_of, spec_of, typed
from seatrial.collect.original.runs import read_runs
from seatrial.records.run_spec import RunSpec
from tests.original_campaign import OLD_COLUMNS, OriginalRun, ab_run, sweep_run, write_original_campaign
from tests.original_campaign import OriginalAttempt as Written


def attempts(folder: Path, *runs: OriginalRun, **odd: object) -> list[OriginalAttempt]:
    write_original_campaign(folder, *runs, **odd)  # type: ignore[arg-type]
    return [run.newest for run in read_runs(folder, read_manifests(folder).rows).runs]


def specs(found: list[OriginalAttempt]) -> list[RunSpec]:
    return identified([spec_of(one, one.cells["group"], int(one.cells["repeat"]), 10) for one in found])


def test_a_sweep_run(tmp_path: Path) -> None:
    (spec,) = specs(attempts(tmp_path, sweep_run(1, 160, 8, 2, repeat=3, rank_scope="all")))
    assert (spec.run, spec.group, spec.repeat, spec.mode) == ("sweep_z1_mb160_nw8_pf2_r3", "sweep_z1_mb160_nw8_pf2", 3, "sweep")
    assert spec.axes == {"zero_stage": 1, "micro_batch": 160, "num_workers": 8, "prefetch_factor": 2}
    assert spec.labels == {"zero_stage": "z", "micro_batch": "mb", "num_workers": "nw", "prefetch_factor": "pf"}
    assert spec.settings["deterministic"] is False and spec.settings["log_every"] == 50 and spec.settings["precision_mode"] == "auto"
    assert spec.settings["dataset_manifest_path"] == "data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv"
    # 0 to 300, both counted.
    assert (spec.steps, spec.timing.tail_points, spec.timing.log_every, spec.rank_scope) == (301, 10, 50, "all")
    assert (spec.place.ranks, spec.place.devices, spec.launcher.kind, spec.workload.samples_per_step) == (2, ("0", "1"), "deepspeed", 160.0)
    assert spec.telemetry.gpu_s == 2.0 and spec.workload.reads == "seed" and "++train.max_step_iterations=300" in spec.workload.args


def test_groups_of_the_ab_mode_are_bundles(tmp_path: Path) -> None:
    old, tuned = specs(attempts(tmp_path, ab_run("old_like"), ab_run("tuned")))
    assert old.axes == {"variant": "old_like"} and tuned.axes == {"variant": "tuned"} and old.labels == {}
    assert old.settings["log_every"] == 1 and old.settings["deterministic"] is True and tuned.settings["validation_every_steps"] == 5000


def test_a_row_of_an_older_version_is_filled_from_the_log(tmp_path: Path) -> None:
    old, new = specs(attempts(tmp_path / "old", sweep_run(), columns=OLD_COLUMNS)), specs(attempts(tmp_path / "new", sweep_run()))
    assert old[0].axes == new[0].axes and old[0].steps == new[0].steps
    assert old[0].settings["num_workers"] == 6 and old[0].settings["attn_impl"] == "auto"


def test_identity_is_over_what_all_attempts_of_a_group_tell(tmp_path: Path) -> None:
    known = specs(attempts(tmp_path / "a", sweep_run(repeat=1), sweep_run(repeat=2), sweep_run(0, 160)))
    assert known[0].group_key == known[1].group_key != known[2].group_key and known[0].hash != known[1].hash
    fewer = dataclasses.replace(known[1], settings={"micro_batch": 128}, steps=None)
    first, second = identified([known[0], fewer])
    assert first.group_key == second.group_key and second.steps == 301
    other = dataclasses.replace(known[1], settings={"micro_batch": 256})
    first, second = identified([known[0], other])
    assert first.group_key != second.group_key


def test_steps_by_the_command_else_by_the_estimates_else_by_a_good_end(tmp_path: Path) -> None:
    (by_eta,) = attempts(tmp_path / "a", sweep_run(launcher_log=False))
    assert spec_of(by_eta, "g", 1, 20).steps == 301
    (cut,) = attempts(tmp_path / "b", sweep_run(launcher_log=False, attempts=(Written(status="failed", exit_code=1, last_step=0),)))
    assert spec_of(cut, "g", 1, 20).steps is None


def test_ranks_by_row_else_command_else_lines(tmp_path: Path) -> None:
    (by_command,) = attempts(tmp_path / "a", sweep_run(world_size=0))
    assert spec_of(by_command, "g", 1, 20).place.ranks == 2
    (unknown,) = attempts(tmp_path / "b", sweep_run(world_size=0, launcher_log=False))
    assert spec_of(unknown, "g", 1, 20).place.ranks == 1


def test_what_settings_came_to() -> None:
    cells = {"attn_impl_req": "flash_attention_2", "attn_impl_effective": "sdpa", "precision_mode_req": "auto", "tf32_enabled": "1"}
    assert effective_of(cells | {"precision_mode_effective": "bf16"}) == {
        "precision_mode": ("auto", "bf16", ""),
        "attn_impl": ("flash_attention_2", "sdpa", "replaced by the original driver"),
        "tf32_enabled": (None, True, ""),
    }
    assert effective_of({}) == {} and settings_of({}) == {}


def test_cells_have_the_type_they_stand_for() -> None:
    assert [typed("x", text) for text in ("true", "False", "8", "2.5", "1", "sdpa", "1e400")] == [True, False, 8, 2.5, 1, "sdpa", "1e400"]
    assert typed("deterministic", "0") is False and typed("tf32_enabled", "1") is True


def test_the_machine_by_row_and_run_context() -> None:
    runtime = {"hostname": "node-7", "python": "3.10.1", "torch_version": "2.4.0", "cuda_version": None, "devices": [1]}
    found = provenance_of({"gpu_name": "RTX", "git_commit_short": "abc"}, {"runtime": runtime})
    assert (found.host, found.packages, found.gpu_name, found.git_commit_hash, found.cuda) == (
        "node-7",
        {"torch": "2.4.0"},
        "RTX",
        "abc",
        "",
    )
    assert found.fingerprint and provenance_of({}, ["no", "mapping"]).host == "" and provenance_of({}, {"runtime": 3}).python == ""
