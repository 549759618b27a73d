"""What earlier invocations left: finished runs, and attempts that were never brought to an end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.resume import (
    changes_since,
    choose_start,
    close_abandoned_attempts,
    finished_attempt,
    recover_folder,
    refuse_changed_training,
    uncounted_runs,
    with_resumption,
)
from seatrial.collect.attempts import NOT_IN_PLAN, read_stored
from seatrial.core import files
from seatrial.core.checkpoints import find_checkpoints
from seatrial.core.errors import RefusedError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.launch.prepare import masked_spec
from seatrial.machine.software import GitState
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.attempt import Provenance
from seatrial.records.codec import to_json
from seatrial.records.outcome import Cause, Outcome, Resumption, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.stored import earlier_attempts
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

SPEC = factory.spec()


@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [
        ([], None),
        ([Outcome.OK], 1),
        ([Outcome.FAILED], None),
        ([Outcome.FAILED, Outcome.OK], 2),
        ([Outcome.OK, Outcome.FAILED], None),
        ([Outcome.OK, Outcome.INTERRUPTED], 1),
        ([Outcome.INTERRUPTED], None),
        ([Outcome.OK, None], 1),
    ],
)
def test_the_newest_that_came_to_its_own_end_counts(tmp_path: Path, outcomes: list[Outcome | None], counts: int | None) -> None:
    for number, how in enumerate(outcomes, 1):
        on_disk.write_attempt(tmp_path, SPEC, number=number, outcome=how)
    found = finished_attempt(CampaignPaths(tmp_path).run(SPEC.run), SPEC.hash)
    assert (found.attempt if found else None) == counts


def test_settings_that_changed_are_another_run(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC)
    assert finished_attempt(CampaignPaths(tmp_path).run(SPEC.run), "another hash") is None


def test_changed_code_and_variables_are_named(tmp_path: Path) -> None:
    then = Provenance(git_commit_hash="0123456789abcdef", variables={"NCCL_DEBUG": "INFO"})
    attempt = on_disk.write_attempt(tmp_path, SPEC, provenance=then)
    assert attempt.outcome is not None
    run = CampaignPaths(tmp_path).run(SPEC.run)
    same = GitState(commit="0123456789abcdef")
    assert changes_since(run, SPEC, attempt.outcome, same, {"NCCL_DEBUG": "INFO", "HOME": "/home/ada"}) == ""
    changed = GitState(commit="fedcba9876543210", diff_sha256="77")
    variable, commit, uncommitted = changes_since(run, SPEC, attempt.outcome, changed, {}).split(", ")
    assert variable == "NCCL_DEBUG INFO → none" and "0123456789ab → fedcba987654" in commit and "none → 77" in uncommitted


def test_without_provenance_no_change_is_named(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    assert attempt.outcome is not None
    run = CampaignPaths(tmp_path).run(SPEC.run)
    run.attempt(1).provenance.write_text("[]")
    assert changes_since(run, SPEC, attempt.outcome, GitState(commit="1"), {}) == ""
    run.attempt(1).provenance.unlink()
    assert changes_since(run, SPEC, attempt.outcome, GitState(commit="1"), {}) == ""


def write_plan(out: Path, *specs: RunSpec) -> CampaignPaths:
    paths = CampaignPaths(out)
    plan = to_json(CampaignPlan(name="p", output=str(out), runs=specs))
    files.write_json(paths.plan, plan)
    files.write_json(paths.plans / "p.json", plan)
    return paths


def test_finished_runs_that_a_changed_command_leaves_behind_are_named_at_the_start_and_in_the_report(tmp_path: Path) -> None:
    gone = factory.spec("mb16")
    on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_attempt(tmp_path, gone)
    assert uncounted_runs(write_plan(tmp_path, SPEC, gone)) == ()
    changed = replace(SPEC, hash="another", workload=replace(SPEC.workload, args=("--lr", "3")))
    paths = write_plan(tmp_path, changed)
    (check,) = uncounted_runs(paths)
    assert not check.refuses and check.found == f"{NOT_IN_PLAN}: {gone.run} (attempt 1); command changed: {SPEC.run} (attempt 1)"
    assert [caution.text for caution in read_stored(paths).cautions if caution.kind == "uncounted_runs"] == [
        f"Earlier runs in this folder that no longer count: {check.found}."
    ]
    on_disk.write_attempt(tmp_path, changed, number=2)
    assert f"{SPEC.run} (attempt 1)" in uncounted_runs(paths)[0].found and "attempt 2" not in uncounted_runs(paths)[0].found


def test_an_attempt_whose_harness_died_gets_an_outcome_and_others_keep_theirs(tmp_path: Path) -> None:
    done = on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=None)
    bare = replace(SPEC, run="other_r1")
    open_one = on_disk.write_attempt(tmp_path, bare, outcome=None)
    AttemptPaths(Path(open_one.folder)).spec.unlink()
    close_abandoned_attempts(CampaignPaths(tmp_path))
    first, second = (files.read_json(CampaignPaths(tmp_path).run(SPEC.run).attempt(number).outcome) for number in (1, 2))
    assert first["outcome"] == done.outcome.outcome.value if done.outcome else False
    assert (second["outcome"], second["cause"], second["hash"]) == (Outcome.INTERRUPTED.value, Cause.HARNESS_LOST.value, SPEC.hash)
    assert second["action"]
    assert files.read_json(CampaignPaths(tmp_path).run("other_r1").attempt(1).outcome)["hash"] == ""


def test_an_attempt_that_was_killed_has_the_time_from_its_start_to_its_last_sign_of_life(tmp_path: Path) -> None:
    """Not until the next start, which may be a week later, and not 0 s."""
    paths = AttemptPaths(Path(on_disk.write_attempt(tmp_path, SPEC, outcome=None).folder))
    start_t = factory.STARTED_T
    paths.provenance.write_text("{}")
    os.utime(paths.provenance, (start_t, start_t))
    paths.arrivals.write_text(f"offset_bytes,t,m\n10,{start_t + 3.5},1.0\n20,{start_t + 90},2.0\n30,{start_t + 9}")
    paths.heartbeat(0).write_text("".join(f'{{"ts": {start_t + at}, "rank": 0, "step": 1}}\n' for at in (5, 50, 125.5)) + '{"ts": 17')
    paths.host_telemetry.write_text(f"timestamp,epoch_sec,load1\n2026,{start_t + 2},0.1\n2026,{start_t + 120},0.1\n")
    close_abandoned_attempts(CampaignPaths(tmp_path))
    ended = files.read_json(paths.outcome)
    assert (ended["started_t"], ended["ended_t"], ended["duration_s"]) == (start_t, start_t + 125.5, 125.5)
    assert ended["last_seen_in"] == paths.heartbeat(0).name and paths.heartbeat(0).name in ended["detail"]


def test_of_an_attempt_that_wrote_nothing_no_time_is_known(tmp_path: Path) -> None:
    paths = AttemptPaths(Path(on_disk.write_attempt(tmp_path, SPEC, outcome=None).folder))
    for damaged in (paths.arrivals, paths.heartbeat(0), paths.host_telemetry):
        damaged.write_bytes(b"\xff,\0nonsense\n[1]\n{}\n,,,\n")
    close_abandoned_attempts(CampaignPaths(tmp_path))
    ended = files.read_json(paths.outcome)
    assert (ended["started_t"], ended["ended_t"], ended["duration_s"]) == (0.0, 0.0, 0.0)


def test_tidying_an_empty_folder_is_nothing(tmp_path: Path) -> None:
    recover_folder(CampaignPaths(tmp_path))
    assert list(tmp_path.iterdir()) == []


def training(*specs: RunSpec) -> CampaignPlan:
    return CampaignPlan(name="final", output="out", runs=specs or (SPEC,))


def write_stopped(
    out: Path,
    number: int = 1,
    *,
    spec: RunSpec = SPEC,
    steps: tuple[int, int] | None = None,
    checkpoints: tuple[int, ...] = (),
    **how: object,
) -> AttemptPaths:
    """An attempt that failed, or ended as `outcome` says, after these steps and checkpoints."""
    outcome = how.pop("outcome", Outcome.FAILED)
    paths = AttemptPaths(Path(on_disk.write_attempt(out, spec, number=number, outcome=outcome).folder))  # type: ignore[arg-type]
    for step in checkpoints:
        folder = paths.checkpoints / f"ckpt_iter_{step}"
        folder.mkdir(parents=True)
        (folder / "model.pt").write_bytes(b"12345")
        files.write_json(folder / "checkpoint.json", {"step": step, "world_size": spec.place.ranks, "files": {"model.pt": 5}, **how})
    if steps is not None:
        paths.heartbeat(0).write_text(f'{{"rank": 0, "step": {steps[1]}}}\n')
        paths.events(0).write_text("".join(f'{{"kind": "step", "step": {step}}}\n' for step in range(steps[0], steps[1] + 1)))
    return paths


def start_of(out: Path, spec: RunSpec = SPEC, **how: bool) -> Resumption | None:
    return choose_start(training(spec), CampaignPaths(out).run(spec.run), spec, **how)


def test_a_training_goes_on_from_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    assert start_of(tmp_path) is None
    first = write_stopped(tmp_path, checkpoints=(500, 1000))
    assert start_of(tmp_path) == Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_1000", step=1000)
    write_stopped(tmp_path, 2, outcome=Outcome.INTERRUPTED)
    assert start_of(tmp_path) == Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_1000", step=1000), "2 has none"
    (first.checkpoints / "ckpt_iter_1000" / "model.pt").write_bytes(b"123")
    (first.checkpoints / ".ckpt_iter_1500.part").mkdir()
    damaged = ("attempt 1's .ckpt_iter_1500.part: it was not written to its end", "attempt 1's ckpt_iter_1000: model.pt has 3 of 5 bytes")
    assert start_of(tmp_path) == Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_500", step=500, skipped=damaged)
    (first.checkpoints / "ckpt_iter_500" / "checkpoint.json").write_text("{")
    found = start_of(tmp_path)
    assert found is not None and found.from_attempt is None and len(found.skipped) == 3


def test_a_pipe_in_place_of_the_name_of_the_newest_checkpoint_blocks_nothing(tmp_path: Path) -> None:
    (tmp_path / "ckpt_iter_4").mkdir()
    files.write_json(tmp_path / "ckpt_iter_4" / "checkpoint.json", {"step": 4, "world_size": 1, "files": {}})
    os.mkfifo(tmp_path / "latest")
    assert [one.step for one in find_checkpoints(tmp_path).whole] == [4]


def test_what_starts_at_step_0(tmp_path: Path) -> None:
    write_stopped(tmp_path, checkpoints=(500,))
    other = factory.spec("mb16")
    assert choose_start(training(SPEC, other), CampaignPaths(tmp_path).run(SPEC.run), SPEC) is None, "it is measured"
    write_stopped(tmp_path / "without")
    assert start_of(tmp_path / "without", CHANGED) is None, "there is nothing to go on from"
    assert start_of(tmp_path, from_start=True) == start_of(tmp_path, CHANGED, from_start=True) == Resumption(from_start=True)
    second = write_stopped(tmp_path, 2)
    files.write_json(second.resume, to_json(Resumption(from_start=True)))
    assert start_of(tmp_path) is None, "attempt 1 was left behind"
    write_stopped(tmp_path, 3, checkpoints=(20,))
    assert start_of(tmp_path) == Resumption(from_attempt=3, checkpoint="checkpoints/ckpt_iter_20", step=20)
    write_stopped(tmp_path, 4, outcome=Outcome.OK, checkpoints=(900,))
    assert start_of(tmp_path) is None, "with --again, after it has finished"
    assert start_of(tmp_path, CHANGED) is None, "another training, after one that has finished"


CHANGED = replace(SPEC, hash="another", script_sha256="edited")


def test_a_training_that_changed_since_its_checkpoint_is_refused_unless_it_is_to_go_on(tmp_path: Path) -> None:
    write_stopped(tmp_path, checkpoints=(500,))
    sentence = (
        f"{SPEC.run} stopped with a checkpoint of step 500 (attempt 1), and script changed since. Resume anyway with "
        "--resume-changed, restart with --from-start, or undo the change"
    )
    with pytest.raises(RefusedError) as caught:
        start_of(tmp_path, CHANGED)
    assert str(caught.value) == sentence
    paths, plan = CampaignPaths(tmp_path), replace(training(CHANGED), output=str(tmp_path))
    with pytest.raises(RefusedError, match="script changed since"):
        refuse_changed_training(plan, paths, again=False, from_start=False)
    refuse_changed_training(plan, paths, again=False, from_start=True)
    where = {"from_attempt": 1, "checkpoint": "checkpoints/ckpt_iter_500", "step": 500}
    resumed = choose_start(replace(plan, resume_changed=True), paths.run(SPEC.run), CHANGED)
    assert resumed == Resumption(**where, changed="script changed")  # type: ignore[arg-type]
    assert states(resumed.text, "attempt 1", "checkpoints/ckpt_iter_500", "step 500", "script")
    # It stopped again before a checkpoint of its own: what was decided once is not asked for again.
    second = write_stopped(tmp_path, 2, spec=CHANGED)
    files.write_json(second.resume, to_json(resumed))
    assert start_of(tmp_path, CHANGED) == resumed
    # Told itself what to go on from, as by TRAIN_RESUME_FROM of the driver, it is not asked again.
    by_key = replace(CHANGED, hash="key", workload=replace(SPEC.workload, args=("++train.resume_from=out/ckpt_iter_500",)))
    by_setting = replace(CHANGED, hash="setting", settings={"resume_from": "out/ckpt_iter_500"})
    assert start_of(tmp_path, by_key) is None and start_of(tmp_path, by_setting) is None
    with pytest.raises(RefusedError):
        start_of(tmp_path, replace(CHANGED, hash="none", settings={"resume_from": None}))
    bundled = replace(SPEC.workload, module="sft", script=None)
    write_stopped(tmp_path / "bundled", spec=replace(SPEC, workload=bundled), checkpoints=(500,))
    with pytest.raises(RefusedError, match=r"--resume-changed.*restart"):
        start_of(tmp_path / "bundled", replace(CHANGED, workload=bundled))
    # Run as it was, it goes on from its own.
    assert start_of(tmp_path) == Resumption(**where)  # type: ignore[arg-type]


def resolved_training(folder: Path, steps: int, lr: float = 0.1, args: Sequence[str] = ()) -> RunSpec:
    (folder / "train.py").write_text("")
    args = args or ["--steps", "{steps}", "--out={steps}.pt", "--rows", "60", "--lr", str(lr), "--hf_token", "s3"]
    mapping = {"name": "final", "workload": {"script": "train.py", "args": args}, "steps": steps, "output": "out"}
    return resolve_plan(plan_from_mapping(mapping, "p"), source="p", cwd=folder).runs[0]


def test_more_steps_alone_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    before = resolved_training(tmp_path, 60)
    write_stopped(tmp_path, spec=masked_spec(before), checkpoints=(40,))
    longer = resolved_training(tmp_path, 100)
    assert longer.hash != before.hash and longer.workload.args[:3] == ("--steps", "100", "--out=100.pt")
    found = start_of(tmp_path, longer)
    assert found == Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_40", step=40, changed="steps 60 → 100")
    with pytest.raises(RefusedError, match=r"step 40 .* 30 steps.*[Rr]aise"):
        start_of(tmp_path, resolved_training(tmp_path, 30))
    with pytest.raises(RefusedError, match="command and steps changed since"):
        start_of(tmp_path, resolved_training(tmp_path, 100, lr=0.2))


@pytest.mark.parametrize(
    ("args", "is_alone"),
    [
        (["{steps}", "--batch", "32"], True),
        (["--max_steps", "N"], True),
        (["--train-iters=N"], True),
        (["train.num_steps=N"], True),
        (["{steps}", "--batch", "N"], False),
        (["--steps", "{steps}", "--batch=N"], False),
        (["--steps", "{steps}", "--warmup_steps", "N"], False),
        (["--steps", "{steps}", "N"], False),
    ],
)
def test_only_arguments_that_set_the_steps_may_change_with_them(tmp_path: Path, args: list[str], is_alone: bool) -> None:
    def planned(steps: int) -> RunSpec:
        return resolved_training(tmp_path, steps, args=[argument.replace("N", str(steps)) for argument in args])

    write_stopped(tmp_path, spec=masked_spec(planned(30)), checkpoints=(20,))
    if is_alone:
        found = start_of(tmp_path, planned(60))
        assert found is not None and found.changed == "steps 30 → 60"
    else:
        with pytest.raises(RefusedError, match="command and steps changed since"):
            start_of(tmp_path, planned(60))


def test_a_training_that_has_finished_goes_on_where_more_steps_are_asked_for(tmp_path: Path) -> None:
    write_stopped(tmp_path, spec=masked_spec(resolved_training(tmp_path, 60)), checkpoints=(59,), outcome=Outcome.OK)
    longer = start_of(tmp_path, resolved_training(tmp_path, 100))
    assert longer is not None and (longer.step, longer.changed) == (59, "steps 60 → 100")
    assert start_of(tmp_path, resolved_training(tmp_path, 50)) is None, "fewer are another training"
    assert start_of(tmp_path, resolved_training(tmp_path, 60, lr=0.2)) is None, "so is another learning rate"
    changed = resolved_training(tmp_path, 100, lr=0.2)
    with pytest.raises(RefusedError, match=r"step 59 .* command and steps.*--resume-changed.*--from-start"):
        start_of(tmp_path, changed)
    run = CampaignPaths(tmp_path).run(changed.run)
    resumed = choose_start(replace(training(changed), resume_changed=True), run, changed)
    assert resumed is not None and resumed.step == 59
    assert start_of(tmp_path, changed, from_start=True) == Resumption(from_start=True)


def test_a_training_that_finished_after_it_went_on_may_have_only_the_checkpoint_before(tmp_path: Path) -> None:
    spec = masked_spec(resolved_training(tmp_path, 60))
    write_stopped(tmp_path, spec=spec, checkpoints=(40,))
    second = write_stopped(tmp_path, 2, spec=spec, outcome=Outcome.OK)
    files.write_json(second.resume, to_json(Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_40", step=40)))
    with pytest.raises(RefusedError, match=r"step 40 .*attempt 1.*command and steps"):
        start_of(tmp_path, resolved_training(tmp_path, 100, lr=0.2))
    longer = start_of(tmp_path, resolved_training(tmp_path, 100))
    assert longer is not None and (longer.from_attempt, longer.step) == (1, 40)
    files.write_json(second.resume, to_json(Resumption(from_start=True)))
    assert start_of(tmp_path, resolved_training(tmp_path, 100, lr=0.2)) is None, "attempt 1 was left behind"


def test_checkpoints_of_another_number_of_ranks_are_refused_and_other_gpus_are_not(tmp_path: Path) -> None:
    write_stopped(tmp_path, checkpoints=(500,))
    ranks = SPEC.place.ranks
    moved = replace(SPEC, hash="moved", place=replace(SPEC.place, devices=("6", "7")))
    assert start_of(tmp_path, moved) == Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_500", step=500)
    larger = replace(SPEC, hash="larger", place=replace(SPEC.place, ranks=ranks + 1))
    with pytest.raises(RefusedError, match=f"step 500.* {ranks} rank.* {ranks + 1} ranks.*--from-start"):
        start_of(tmp_path, larger)
    assert start_of(tmp_path, larger, from_start=True) == Resumption(from_start=True)
    bundled = replace(SPEC, workload=replace(SPEC.workload, module="tiny_lm", script=None))
    write_stopped(tmp_path / "found", spec=bundled, checkpoints=(500,), world_size=ranks + 3)
    with pytest.raises(RefusedError, match=f"saved by {ranks + 3} ranks"):
        start_of(tmp_path / "found", bundled)


def test_a_script_with_checkpoints_of_its_own_format_gets_the_attempt(tmp_path: Path) -> None:
    paths = write_stopped(tmp_path)
    paths.checkpoints.mkdir()
    (paths.checkpoints / "zero_to_fp32.py").touch()
    assert start_of(tmp_path) is None
    (paths.checkpoints / "epoch=3.ckpt").touch()
    assert start_of(tmp_path) == Resumption(from_attempt=1)
    ranks = SPEC.place.ranks
    larger = replace(SPEC, hash="larger", place=replace(SPEC.place, ranks=ranks + 1))
    with pytest.raises(RefusedError, match=f"attempt 1.* {ranks} rank.* {ranks + 1} ranks.*--from-start"):
        start_of(tmp_path, larger)
    assert start_of(tmp_path, larger, from_start=True) == Resumption(from_start=True)


def ended(out: Path, number: int, started_t: float, ended_t: float) -> RunOutcome:
    """The attempt's outcome between these times, on disk."""
    paths = CampaignPaths(out).run(SPEC.run).attempt(number)
    how = RunOutcome(run=SPEC.run, attempt=number, hash=SPEC.hash, outcome=Outcome.FAILED, started_t=started_t, ended_t=ended_t)
    found = with_resumption(how, paths)
    files.write_json(paths.outcome, to_json(found))
    return found


def test_lost_steps_add_up_over_attempts_of_a_training_that_changed_twice(tmp_path: Path) -> None:
    write_stopped(tmp_path, 1, steps=(0, 35), checkpoints=(30,))
    ended(tmp_path, 1, 100.0, 200.0)
    for number, steps, source, expected in ((2, (31, 59), 30, 5), (3, (51, 89), 50, 5 + 9)):
        paths = write_stopped(tmp_path, number, spec=replace(SPEC, hash=f"changed {number}"), steps=steps, checkpoints=(50,))
        files.write_json(paths.resume, to_json(Resumption(from_attempt=number - 1, step=source, changed="steps 60 → 90")))
        assert ended(tmp_path, number, 100.0 * number, 100.0 * number + 50).lost_steps == expected
        assert len(earlier_attempts(paths)) == number - 1


def test_lost_steps_and_downtime_add_up_over_all_attempts(tmp_path: Path) -> None:
    write_stopped(tmp_path, 1, steps=(0, 1240), checkpoints=(1000,))
    assert ended(tmp_path, 1, 100.0, 200.0).lost_steps is None
    # The second had taken 200 steps when it died before its first checkpoint; the third goes on from the first's too.
    for number, steps, times, expected in (
        (2, (1001, 1200), (260.0, 300.0), (240, 60.0)),
        (3, (1001, 1500), (300.5, 900.0), (440, 60.5)),
    ):
        paths = write_stopped(tmp_path, number, steps=steps)
        files.write_json(paths.resume, to_json(Resumption(from_attempt=1, checkpoint="checkpoints/ckpt_iter_1000", step=1000)))
        found = ended(tmp_path, number, *times)
        assert (found.resumed_from, found.resumed_at, found.lost_steps, found.downtime_s) == (1, 1001, *expected)
    scripts = write_stopped(tmp_path / "script")
    scripts.heartbeat(0).write_text('{"rank": 0, "step": 11}\n')
    files.write_json(scripts.resume, to_json(Resumption(from_attempt=1)))
    assert ended(tmp_path / "script", 1, 1.0, 2.0).resumed_at is None, "where it went on, only the script knows"
    unseen = write_stopped(tmp_path, 4)
    files.write_json(unseen.resume, to_json(Resumption(from_attempt=1, step=1000)))
    found = ended(tmp_path, 4, 0.0, 0.0)
    assert (found.resumed_at, found.lost_steps, found.downtime_s) == (1001, 940, None), "when it ran is not known"
