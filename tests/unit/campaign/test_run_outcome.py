"""From what was seen of a run to its outcome: ranks, launcher, log, host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.ending import Ending, LostHost
from seatrial.campaign.run_outcome import FAILURE_TAIL_LINES, outcome_of, outcome_of_unstarted, rank_record
from seatrial.errors import HostError, LaunchError, PortTakenError, StoppedError
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.outcome import Cause, Fault, Outcome, RunOutcome
from seatrial.records.run_spec import LauncherSpec, WorkloadSpec
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def written(out: Path, *ranks: list[str], launcher: str = "python", module: str | None = None, **changes: Any) -> Attempt:
    """An attempt whose ranks wrote these kinds of events, with `steps` of three."""
    run = factory.spec(ranks=max(len(ranks), 1), **changes)
    workload = WorkloadSpec(name="w", module=module) if module else run.workload
    attempt = on_disk.write_attempt(out, replace(run, launcher=LauncherSpec(kind=launcher), workload=workload), outcome=None)
    for rank, kinds in enumerate(ranks):
        lines = [on_disk.event(attempt, kind, rank=rank, **({"steps": 3} if kind == "stop" else {})) for kind in kinds]
        on_disk.write_events(attempt, rank, "".join(f"{line}\n" for line in lines))
    return attempt


def outcome(attempt: Attempt, ending: Ending) -> RunOutcome:
    return outcome_of(attempt.spec, AttemptPaths(Path(attempt.folder)), ending, started_t=100.0, port=29650)


def test_ranks_that_wrote_nothing_did_not_start(tmp_path: Path) -> None:
    found = rank_record(AttemptPaths(Path(written(tmp_path).folder)))
    assert (found.started, found.done, found.stepped, found.least_steps) == (0, 0, False, 0)


def test_what_each_rank_left_is_counted(tmp_path: Path) -> None:
    found = rank_record(AttemptPaths(Path(written(tmp_path, ["start", "step", "stop"], ["start", "step"], ["start"]).folder)))
    assert (found.started, found.done, found.stepped, found.least_steps) == (3, 1, True, 3)


def test_lines_of_another_attempt_and_torn_ones_are_none_of_it(tmp_path: Path) -> None:
    attempt = written(tmp_path, ["start"])
    path = AttemptPaths(Path(attempt.folder)).events(0)
    other = on_disk.event(replace(attempt, number=7), "stop", steps=3)
    path.write_text(f'{path.read_text()}{other}\n{{"kind": "stop", "ste')
    found = rank_record(AttemptPaths(Path(attempt.folder)))
    assert (found.started, found.done) == (1, 0)


def test_a_good_end(tmp_path: Path) -> None:
    found = outcome(written(tmp_path, ["start", "step", "stop"]), Ending(returncode=0, elapsed_s=12.0))
    assert (found.outcome, found.cause, found.exit_code, found.port) == (Outcome.OK, Cause.NONE, 0, 29650)
    assert (found.started_t, found.ended_t, found.duration_s) == (100.0, 112.0, 12.0)
    assert found.log_tail == () and found.detail == "" and found.host == ""


def test_of_a_script_nobody_knows_how_many_ranks_and_steps_there_should_be(tmp_path: Path) -> None:
    assert outcome(written(tmp_path, steps=50), Ending(returncode=0)).outcome is Outcome.OK
    bundled = written(tmp_path / "b", ["start", "step", "stop"], ["start", "step"], module="dummy", steps=50)
    found = outcome(bundled, Ending(returncode=0))
    assert (found.outcome, found.cause) == (Outcome.FAILED, Cause.RANKS_MISSING)


def test_deepspeed_says_0_also_of_ranks_that_were_killed(tmp_path: Path) -> None:
    found = outcome(written(tmp_path, launcher="deepspeed"), Ending(returncode=0))
    assert found.outcome is Outcome.FAILED and "said of 0 of 1 ranks that they ended well" in found.detail


def test_the_log_tells_the_cause_and_its_end_is_kept(tmp_path: Path) -> None:
    attempt = written(tmp_path)
    on_disk.write_log(attempt, "".join(f"line {number}\n" for number in range(500)) + OOM)
    found = outcome(attempt, Ending(returncode=1))
    assert (found.outcome, found.cause, found.signature, found.fault) == (Outcome.FAILED, Cause.CUDA_OOM, "cuda_oom", Fault.CONFIGURATION)
    assert found.action and len(found.log_tail) == FAILURE_TAIL_LINES and found.log_tail[-1] == OOM.strip()


def test_a_run_that_left_no_log_at_all_has_an_outcome_too(tmp_path: Path) -> None:
    found = outcome(written(tmp_path), Ending(returncode=3))
    assert (found.outcome, found.exit_code, found.log_tail) == (Outcome.FAILED, 3, ())


def test_a_lost_host_is_named(tmp_path: Path) -> None:
    found = outcome(written(tmp_path), Ending(returncode=1, lost_hosts=(LostHost(host="node2", why="it closed", silent=False),)))
    assert (found.host, found.cause) == ("node2", Cause.HOST_LOST) and "node2" in found.detail


def test_the_kernels_killer_explains_a_kill(tmp_path: Path) -> None:
    attempt = written(tmp_path)
    on_disk.write_log(attempt, "Killed\n")
    found = outcome(attempt, Ending(returncode=-9, oom_kills="oom_kill of the cgroup rose by 1"))
    assert found.cause is Cause.HOST_OOM and "oom_kill of the cgroup rose by 1" in found.detail


@pytest.mark.parametrize(
    ("error", "how", "cause", "host"),
    [
        (LaunchError("no torchrun"), Outcome.FAILED, Cause.PROGRAM_MISSING, ""),
        (PortTakenError("29500 is taken"), Outcome.FAILED, Cause.PORT_IN_USE, ""),
        (StoppedError("asked to stop"), Outcome.INTERRUPTED, Cause.USER, ""),
        (HostError("node2 does not call", host="node2", cause="node_gone"), Outcome.FAILED, Cause.HOST_LOST, "node2"),
    ],
)
def test_a_run_that_could_not_be_started_is_an_outcome(error: LaunchError, how: Outcome, cause: Cause, host: str) -> None:
    run = factory.spec()
    found = outcome_of_unstarted(run, 3, error, started_t=10.0, ended_t=11.0)
    assert (found.run, found.attempt, found.hash) == (run.run, 3, run.hash)
    assert (found.outcome, found.cause, found.host, found.detail) == (how, cause, host, str(error))
    assert (found.exit_code, found.started_t, found.ended_t, found.duration_s) == (None, 10.0, 11.0, 0.0)
    assert found.action
