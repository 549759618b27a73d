"""From what was seen of a run to its outcome: cause, host, advice, masked log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.outcome_rules import Ending, LostHost, RankEndings, judge_ending, with_oom_kill
from seatrial.campaign.run_outcome import (
    FAILURE_TAIL_LINES,
    line_before,
    locate_stall,
    mask_outcome,
    outcome_of,
    outcome_of_unstarted,
    read_rank_endings,
    with_host,
    with_host_log,
)
from seatrial.core import files
from seatrial.core.errors import HostError, LaunchError, PortTakenError, StoppedError
from seatrial.core.paths import AttemptPaths
from seatrial.observe.watchdog import Alarm, name_options
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.codec import to_json
from seatrial.records.launch import AGENT_GOT_TERM, NodeRecord
from seatrial.records.outcome import Cause, Diagnosis, Fault, Outcome, RunOutcome
from seatrial.records.plan import LauncherSpec, WorkloadSpec
from seatrial.records.signatures.registry import advice, signature, signatures
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.collect import on_disk
from tests.unit.launch.factory import make_spec

ALARM = Alarm(cause=Cause.RUN_LIMIT, text="t", action="a")


@pytest.mark.parametrize(
    ("ending", "ranks", "outcome", "cause"),
    [
        (Ending(returncode=0), RankEndings(started=2, done=2, stepped=True), Outcome.OK, Cause.NONE),
        (Ending(returncode=0), RankEndings(), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankEndings(started=2, done=1, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankEndings(started=1, done=1, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankEndings(started=2, done=0, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankEndings(started=2, done=2, stepped=False), Outcome.FAILED, Cause.NO_STEPS),
        (Ending(returncode=0), RankEndings(started=2, done=2, stepped=True, small_world="s"), Outcome.FAILED, Cause.WORLD_TOO_SMALL),
        (Ending(returncode=1), RankEndings(started=2, done=2, stepped=True), None, Cause.UNKNOWN),
        (Ending(returncode=-9), RankEndings(), None, Cause.UNKNOWN),
        (Ending(returncode=-15, alarm=ALARM), RankEndings(), Outcome.TIMEOUT, Cause.RUN_LIMIT),
        (Ending(returncode=-15, interrupted=True), RankEndings(), Outcome.INTERRUPTED, Cause.USER),
        (Ending(returncode=-15, agent_stopped=True), RankEndings(started=2), Outcome.FAILED, Cause.AGENT_LOST),
        (Ending(returncode=0, agent_stopped=True), RankEndings(started=2, done=2, stepped=True), Outcome.OK, Cause.NONE),
        (Ending(returncode=None, agent_lost=True), RankEndings(), Outcome.FAILED, Cause.AGENT_LOST),
        (Ending(returncode=None, agent_lost=True, interrupted=True), RankEndings(), Outcome.INTERRUPTED, Cause.USER),
    ],
)
def test_judgement(ending: Ending, ranks: RankEndings, outcome: Outcome | None, cause: Cause) -> None:
    judged = judge_ending(ending, ranks, world_size=2, steps=None)
    assert (judged.outcome, judged.cause) == (outcome, cause)


def test_a_script_without_the_probe_is_judged_by_its_exit_code_alone() -> None:
    assert judge_ending(Ending(returncode=0), RankEndings(), world_size=0, steps=None).outcome is Outcome.OK


@pytest.mark.parametrize(("min_steps", "steps", "cause"), [(12, 60, Cause.ENDED_EARLY), (60, 60, Cause.NONE), (12, None, Cause.NONE)])
def test_a_rank_that_stopped_early_is_no_success(min_steps: int, steps: int | None, cause: Cause) -> None:
    ranks = RankEndings(started=2, done=2, stepped=True, min_steps=min_steps)
    assert judge_ending(Ending(returncode=0), ranks, world_size=2, steps=steps).cause is cause


@pytest.mark.parametrize(
    ("ranks", "cause"),
    [
        (RankEndings(logged_ok=2, launched=2), Cause.NONE),
        (RankEndings(logged_ok=0, launched=2), Cause.RANKS_MISSING),
        (RankEndings(logged_ok=1, launched=2), Cause.RANKS_MISSING),
        # The probe in rank 0 only does not cover rank 1.
        (RankEndings(logged_ok=1, launched=2, started=1, done=1, stepped=True), Cause.RANKS_MISSING),
        # Where every rank reported its own end, the launcher's lines may be missing.
        (RankEndings(logged_ok=0, launched=2, started=2, done=2, stepped=True), Cause.NONE),
    ],
)
def test_exit_code_0_of_deepspeed_needs_a_logged_end_of_every_rank(ranks: RankEndings, cause: Cause) -> None:
    judged = judge_ending(Ending(returncode=0), ranks, world_size=ranks.started, steps=None)
    assert judged.cause is cause
    if cause is not Cause.NONE:
        assert states(judged.detail, "exit code 0", f"{ranks.logged_ok} of 2 ranks")
        assert "was killed" in judged.action


def killed_cause(id: str) -> Diagnosis:
    return Diagnosis(outcome=Outcome.FAILED, cause=Cause.KILLED, detail="rank 1 was killed by signal 9", action="a", signature=id)


@pytest.mark.parametrize("id", ["killed", "deepspeed_launcher_killed"])
def test_the_kernel_s_counter_explains_a_process_that_was_killed(id: str) -> None:
    found = with_oom_kill(killed_cause(id), "oom_kill 3 → 4 in its cgroup")
    assert (found.cause, found.signature, found.outcome) == (Cause.HOST_OOM, "host_oom", Outcome.FAILED)
    assert states(found.detail, "OOM", "oom_kill 3 → 4 in its cgroup", "rank 1 was killed by signal 9")
    assert "more memory" in found.action


def test_it_explains_nothing_else_and_without_it_killed_stays_killed() -> None:
    assert with_oom_kill(killed_cause("killed"), "") == killed_cause("killed")
    assert with_oom_kill(killed_cause("nan"), "oom_kill 3 → 4 on this host") == killed_cause("nan")


SILENT = LostHost(host="node2", why="no heartbeat from it for 21 s", silent=True)
ENDED = LostHost(host="node2", why="the peer closed the connection", silent=False)


@pytest.mark.parametrize(("lost", "signature"), [(SILENT, "node_silent"), (ENDED, "node_gone")])
def test_a_lost_host_is_the_cause_whatever_the_ranks_and_the_watchdog_say(lost: LostHost, signature: str) -> None:
    for ending in (
        Ending(returncode=1, lost_hosts=(lost,)),
        Ending(returncode=0, lost_hosts=(lost,)),
        Ending(returncode=-15, lost_hosts=(lost,), alarm=ALARM),
    ):
        judged = judge_ending(ending, RankEndings(started=2, done=1, stepped=True), world_size=2, steps=None)
        assert (judged.outcome, judged.cause, judged.signature) == (Outcome.FAILED, Cause.HOST_LOST, signature)
        assert states(judged.detail, "node2", lost.why)


def test_every_lost_host_is_named() -> None:
    lost = (SILENT, LostHost(host="node3", why="x", silent=True))
    judged = judge_ending(Ending(returncode=None, lost_hosts=lost), RankEndings(), world_size=2, steps=None)
    assert states(judged.detail, "node2", "node3", "no heartbeat")


def test_the_host_whose_agent_was_stopped_is_named() -> None:
    nodes = (NodeRecord(name="node1", returncode=-15), NodeRecord(name="node2", returncode=-15, detail=AGENT_GOT_TERM))
    ending = Ending(returncode=-15, agent_stopped=True, nodes=nodes)
    assert "on node2 received SIGTERM" in judge_ending(ending, RankEndings(), world_size=2, steps=None).detail
    assert ending.broken_host == "node2"


def test_the_host_that_broke_is_the_lost_one_else_the_stopped_one_else_the_failed_one() -> None:
    nodes = (NodeRecord(name="node2", detail=AGENT_GOT_TERM),)
    assert Ending(returncode=7, failed_host="node1").broken_host == "node1"
    assert Ending(returncode=7, failed_host="node1", nodes=nodes).broken_host == "node2"
    assert Ending(returncode=7, failed_host="node1", nodes=nodes, lost_hosts=(LostHost(host="x", why="", silent=True),)).broken_host == "x"
    assert Ending(returncode=7).broken_host == ""


@pytest.mark.parametrize("ended_by_us", [{"alarm": ALARM}, {"interrupted": True}])
def test_who_failed_first_after_an_alarm_is_not_where_it_broke(ended_by_us: dict[str, Any]) -> None:
    assert Ending(returncode=-15, failed_host="node1", **ended_by_us).broken_host == ""


def ending_advice(cause: Cause, ranks: RankEndings, phase: str = "", *, has_gpus: bool = True) -> str:
    alarm = Alarm(cause=cause, outcome=Outcome.STALLED, text="t", action="read stacks/ first", phase=phase)
    return judge_ending(Ending(returncode=-15, alarm=alarm), ranks, world_size=ranks.started, steps=None, has_gpus=has_gpus).action


@pytest.mark.parametrize("cause", [Cause.START_LIMIT, Cause.RUN_LIMIT, Cause.MEMORY_LIMIT, Cause.DISK_LIMIT])
def test_a_limit_has_the_registry_s_advice(cause: Cause) -> None:
    assert ending_advice(cause, RankEndings(started=2)) == advice(cause)


@pytest.mark.parametrize(
    ("ranks", "phase", "tries_p2p"),
    [
        (RankEndings(started=2), "bwd", True),
        (RankEndings(started=2), "", True),
        # Without the probe the number of ranks is unknown.
        (RankEndings(), "", True),
        (RankEndings(started=1), "bwd", False),
        (RankEndings(started=2), "data_wait", False),
        (RankEndings(started=2), "loop", False),
    ],
)
def test_a_stall_says_where_to_look_and_what_to_try_where_ranks_may_wait_for_one_another(
    ranks: RankEndings, phase: str, tries_p2p: bool
) -> None:
    action = ending_advice(Cause.STALL, ranks, phase)
    assert action.startswith("read stacks/ first")
    assert ("NCCL_P2P_DISABLE=1" in action) is tries_p2p
    assert "NCCL" not in ending_advice(Cause.STALL, ranks, phase, has_gpus=False)
    assert "stage-1" not in action and "`env`" not in name_options(action, replace(factory.spec(), from_sweep=True))


@pytest.mark.parametrize(("gpus", "tries_p2p"), [("", False), ("GPU-1", True)])
def test_a_stall_on_a_host_without_gpus_is_not_nccl_s(tmp_path: Path, gpus: str, tries_p2p: bool) -> None:
    attempt = on_disk.write_attempt(tmp_path)
    paths = AttemptPaths(Path(attempt.folder))
    files.write_json(paths.provenance, to_json(Provenance(gpu_uuid_list=gpus)))
    alarm = Alarm(cause=Cause.STALL, outcome=Outcome.STALLED, text="t", action="read stacks/ first")
    found = outcome_of(attempt.spec, paths, Ending(returncode=-15, alarm=alarm), started_t=0.0, port=1)
    assert ("NCCL_P2P_DISABLE" in found.action) is tries_p2p


def test_every_bad_end_that_is_judged_without_the_log_is_an_entry() -> None:
    ended = [
        judge_ending(Ending(returncode=None, agent_lost=True), RankEndings(), 2, None),
        judge_ending(Ending(returncode=-15, agent_stopped=True), RankEndings(), 2, None),
        judge_ending(Ending(returncode=-15, interrupted=True), RankEndings(), 2, None),
        judge_ending(Ending(returncode=0), RankEndings(logged_ok=1, launched=2), 0, None),
        judge_ending(Ending(returncode=0), RankEndings(), 2, None),
        judge_ending(Ending(returncode=0), RankEndings(started=2, done=2), 2, None),
        judge_ending(Ending(returncode=0), RankEndings(started=2, done=1, stepped=True), 2, None),
        judge_ending(Ending(returncode=0), RankEndings(started=2, done=2, stepped=True, min_steps=1), 2, 5),
    ]
    known = {entry.action: entry.id for entry in signatures()}
    assert [known[judged.action] for judged in ended] == [
        "agent_lost",
        "agent_stopped",
        "user",
        "deepspeed_launcher_killed",
        "events_removed",
        "no_steps",
        "ranks_missing",
        "ended_early",
    ]
    assert all(judged.cause is signature(known[judged.action]).cause for judged in ended)
    assert [judged.signature for judged in ended] == [known[judged.action] for judged in ended]


NODES = (NodeRecord(name="a", node_rank=0, first_rank=0, ranks=2), NodeRecord(name="b", node_rank=1, first_rank=2, ranks=1))


@pytest.mark.parametrize(("rank", "host"), [(1, "a"), (2, "b"), (3, ""), (None, "")])
def test_the_host_of_the_rank_that_stalled_is_named(tmp_path: Path, rank: int | None, host: str) -> None:
    assert outcome(written(tmp_path), Ending(returncode=-15, alarm=alarm(rank=rank), nodes=NODES)).host == host


def test_the_host_stands_before_what_happened_once() -> None:
    assert with_host("ValueError: x", "node2") == "on node2: ValueError: x"
    assert with_host("node2 was lost", "node2") == "node2 was lost"
    assert with_host("ValueError: x", "") == "ValueError: x" and with_host("", "node2") == ""


def test_advice_names_the_log_of_the_host_that_broke() -> None:
    assert with_host_log("Read the end of launcher.log.", "b", NODES) == "Read the end of nodes/b/launcher.log."
    for host in ("a", ""):
        assert with_host_log("Read the end of launcher.log.", host, NODES) == "Read the end of launcher.log."
    assert with_host_log("Read launcher.log", "x", ()) == "Read nodes/x/launcher.log"


HANGS = 'Thread 1 (idle): "MainThread"\n    hang (/home/me/train.py:24)\n    main (/home/me/train.py:60)\n'
WAITS = (
    'Thread 2 (idle): "MainThread"\n    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3047)\n'
    "    main (/home/me/train.py:61)\n"
)
LAUNCHER = (
    'Thread 3 (idle): "MainThread"\n    sleep (libc.so.6)\n    _invoke_run (/venv/site-packages/torch/distributed/elastic/api.py:923)\n'
)


def alarm(rank: int | None = None, cause: Cause = Cause.STALL) -> Alarm:
    return Alarm(cause=cause, outcome=Outcome.STALLED, text="t", action="a", rank=rank, phase="fwd")


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    attempt = AttemptPaths(tmp_path / "run" / "attempt-1")
    attempt.stacks.mkdir(parents=True)
    return attempt


def put(attempt: AttemptPaths, pid: int, text: str, rank: int | None = None, state: str = "") -> None:
    heading = f"# rank {rank} pid {pid}\n" if rank is not None else f"# pid {pid}\n"
    attempt.process_stack(pid).write_text(heading + (f"# state {state}: stopped\n" if state else "") + text)


def test_the_alarm_s_own_rank_is_the_one(attempt: AttemptPaths) -> None:
    put(attempt, 2, WAITS, rank=0)
    put(attempt, 1, HANGS, rank=1)
    location = locate_stall(attempt, alarm(rank=1))
    assert (location.rank, location.phase, location.frame) == (1, "fwd", "train.py:24 in hang")
    assert location.clause == "; rank 1 was at train.py:24 in hang"


def test_where_nobody_knows_the_rank_it_is_one_that_does_not_wait_for_others(attempt: AttemptPaths) -> None:
    put(attempt, 3, LAUNCHER)
    put(attempt, 2, WAITS, rank=0)
    put(attempt, 1, HANGS, rank=1)
    location = locate_stall(attempt, alarm())
    assert (location.rank, location.frame) == (1, "train.py:24 in hang")


def test_a_launcher_is_named_only_where_there_is_no_more(attempt: AttemptPaths) -> None:
    put(attempt, 3, LAUNCHER)
    assert locate_stall(attempt, alarm()).rank is None


@pytest.mark.parametrize("cause", [Cause.STALL, Cause.START_LIMIT])
def test_a_suspended_rank_is_the_one_whatever_the_alarm_says(attempt: AttemptPaths, cause: Cause) -> None:
    put(attempt, 1, HANGS, rank=1, state="T")
    put(attempt, 2, WAITS, rank=0)
    location = locate_stall(attempt, alarm(rank=0, cause=cause))
    assert (location.rank, location.cause) == (1, Cause.SUSPENDED)
    assert location.clause == "; rank 1 is suspended (SIGSTOP), at train.py:24 in hang"


def test_a_trace_in_the_log_serves_where_there_is_no_other(attempt: AttemptPaths) -> None:
    trace = 'Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n  File "mine.py", line 3 in stuck\n'
    attempt.launcher_log.write_text("".join(f"[rank1]: {line}\n" for line in trace.splitlines()))
    location = locate_stall(attempt, alarm())
    assert (location.rank, location.frame) == (1, "mine.py:3 in stuck")


OUTCOME = RunOutcome(
    run="mb8_r1",
    attempt=1,
    hash="h",
    outcome=Outcome.FAILED,
    cause=Cause.EXCEPTION,
    detail="RuntimeError: 401 for plan-hunter at http://me:pw@host",
    log_tail=("args: --api-key args-hunter", "caller-hunter refused", "step 3 loss 1.5"),
    telling=("caller-hunter refused",),
)


def test_log_and_sentence_hold_none_of_the_runs_secrets() -> None:
    spec = make_spec("/", args=("--api-key", "args-hunter"), env={"DB_PASSWORD": "plan-hunter"})
    shown = mask_outcome(OUTCOME, spec, {"HF_TOKEN": "caller-hunter", "HOME": "/home/me"})
    assert shown.detail == "RuntimeError: 401 for *** at http://me:***@host"
    assert shown.log_tail == ("args: --api-key ***", "*** refused", "step 3 loss 1.5")
    assert shown.telling == ("*** refused",)
    assert (shown.run, shown.cause, shown.outcome) == (OUTCOME.run, OUTCOME.cause, OUTCOME.outcome)


def test_settings_and_axes_with_a_secret_name_are_known_wherever_they_stand() -> None:
    spec = make_spec(
        "/", settings={"hub_token": "settings-hunter", "lr": 0.1, "steps": 5}, axes={"api_key": "axis-hunter", "loader": "forked"}
    )
    bare = replace(OUTCOME, detail="ValueError: settings-hunter", log_tail=("refused: axis-hunter", "loader forked, lr 0.1"))
    shown = mask_outcome(bare, spec, {})
    assert shown.detail == "ValueError: ***"
    assert shown.log_tail == ("refused: ***", "loader forked, lr 0.1")


def test_one_name_with_a_value_here_and_another_there() -> None:
    spec = make_spec("/", env={"hf_token": "plan-hunter"}, settings={"hf_token": "settings-hunter"})
    bare = replace(OUTCOME, detail="caller-hunter, plan-hunter, settings-hunter", log_tail=())
    assert mask_outcome(bare, spec, {"hf_token": "caller-hunter"}).detail == "***, ***, ***"


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


def test_what_each_rank_left_is_counted(tmp_path: Path) -> None:
    found = read_rank_endings(AttemptPaths(Path(written(tmp_path, ["start", "step", "stop"], ["start", "step"], ["start"]).folder)))
    assert (found.started, found.done, found.stepped, found.min_steps) == (3, 1, True, 3)


def test_lines_of_another_attempt_and_torn_ones_are_none_of_it(tmp_path: Path) -> None:
    attempt = written(tmp_path, ["start"])
    path = AttemptPaths(Path(attempt.folder)).events(0)
    other = on_disk.event(replace(attempt, number=7), "stop", steps=3)
    path.write_text(f'{path.read_text()}{other}\n{{"kind": "stop", "ste')
    found = read_rank_endings(AttemptPaths(Path(attempt.folder)))
    assert (found.started, found.done) == (1, 0)


def test_a_good_end(tmp_path: Path) -> None:
    found = outcome(written(tmp_path, ["start", "step", "stop"]), Ending(returncode=0, elapsed_s=12.0))
    assert (found.outcome, found.cause, found.exit_code, found.port) == (Outcome.OK, Cause.NONE, 0, 29650)
    assert (found.started_t, found.ended_t, found.duration_s) == (100.0, 112.0, 12.0)
    assert found.log_tail == () and found.detail == "" and found.host == ""


def test_a_script_has_no_known_number_of_ranks_and_steps(tmp_path: Path) -> None:
    assert outcome(written(tmp_path, steps=50), Ending(returncode=0)).outcome is Outcome.OK
    bundled = written(tmp_path / "b", ["start", "step", "stop"], ["start", "step"], module="dummy", steps=50)
    found = outcome(bundled, Ending(returncode=0))
    assert (found.outcome, found.cause) == (Outcome.FAILED, Cause.RANKS_MISSING)


def test_deepspeeds_exit_code_0_does_not_hide_killed_ranks(tmp_path: Path) -> None:
    found = outcome(written(tmp_path, launcher="deepspeed"), Ending(returncode=0))
    assert found.outcome is Outcome.FAILED and "logged success of 0 of 1 ranks" in found.detail


def test_the_log_gives_the_cause_and_its_end_is_kept(tmp_path: Path) -> None:
    attempt = written(tmp_path)
    on_disk.write_log(attempt, "".join(f"line {number}\n" for number in range(500)) + OOM)
    found = outcome(attempt, Ending(returncode=1))
    assert (found.outcome, found.cause, found.signature, found.fault) == (Outcome.FAILED, Cause.CUDA_OOM, "cuda_oom", Fault.CONFIGURATION)
    assert found.action and len(found.log_tail) == FAILURE_TAIL_LINES and found.log_tail[-1] == OOM.strip()


def test_what_a_failed_line_of_the_site_printed_is_in_the_cause(tmp_path: Path) -> None:
    attempt = written(tmp_path)
    line = "seatrial: item 1 of activate in site.yaml failed with exit code 1"
    on_disk.write_log(attempt, f"loading\nno module cuda\n{line}\n")
    found = outcome(attempt, Ending(returncode=1))
    assert (found.signature, found.detail) == ("activate_failed", f"{line}, after: no module cuda")
    assert line_before([f"[host node2]: {line}"]) == "" and line_before(["[host node2]: a", f"[host node2]: {line}"]) == ", after: a"


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


STEPS = "".join(f"[rank0]: step {step}: loss 3\n" for step in range(100))
RAISED = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "train.py", line 41, in step
[rank{rank}]:     loss.backward()
[rank{rank}]: {last}
"""
TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-14_09:30:06
  rank      : 6 (local_rank: 6)
  exitcode  : 1 (pid: 4003)
"""


def ended(tmp_path: Path, log: str, code: int = 0, **changes: Any) -> RunOutcome:
    """The outcome of a user's script that printed `log`."""
    attempt = written(tmp_path, **changes)
    AttemptPaths(Path(attempt.folder)).launcher_log.write_text(log)
    return outcome(attempt, Ending(returncode=code))


def test_exit_code_0_after_the_launcher_s_report_is_a_failure(tmp_path: Path) -> None:
    failing = "".join(RAISED.format(rank=rank, last=OOM.strip()) for rank in (6, 0, 1, 2, 3, 4, 5, 7))
    found = ended(tmp_path, STEPS + failing + TORCHRUN, steps=100)
    assert (found.outcome, found.cause, found.rank, found.exit_code) == (Outcome.FAILED, Cause.CUDA_OOM, 6, 0)
    assert found.detail == f"exit code 0, but rank 6: {OOM.strip()}"
    assert found.excerpt == ('  File "train.py", line 41, in step', "    loss.backward()", OOM.strip())


@pytest.mark.parametrize(("steps", "how"), [(500, Outcome.FAILED), (100, Outcome.OK), (None, Outcome.OK)])
def test_exit_code_0_after_a_traceback_is_a_failure_where_steps_are_missing_else_it_may_have_failed(
    tmp_path: Path, steps: int | None, how: Outcome
) -> None:
    found = ended(tmp_path, STEPS + RAISED.format(rank=0, last="ValueError: bad"), steps=steps)
    assert found.outcome is how
    assert ("ValueError: bad" in found.detail) == (how is Outcome.FAILED)
    assert states(found.may_have_failed, "traceback", "ValueError: bad") == (how is Outcome.OK)


def test_noise_after_the_last_step_is_no_failure(tmp_path: Path) -> None:
    found = ended(tmp_path, STEPS + "Exception ignored in: <x>\nTraceback (most recent call last):\n  File\nAttributeError: x\n", steps=100)
    assert (found.outcome, found.may_have_failed, found.detail) == (Outcome.OK, "", "")


def test_the_first_cause_is_found_before_thousands_of_lines(tmp_path: Path) -> None:
    behind = "".join(f"[rank{at % 7}]: gpu-01:4003:4100 [0] NCCL INFO Channel {at % 32:02d} : 0[0] -> 1[1]\n" for at in range(2100))
    waited = "".join(f"[rank{rank}]: [E1115 14:30:31] [Rank {rank}] Watchdog caught collective operation timeout\n" for rank in range(7))
    found = ended(tmp_path, RAISED.format(rank=7, last="ValueError: bad sample") + behind + waited, -6)
    assert (found.cause, found.detail, found.rank) == (Cause.EXCEPTION, "rank 7: ValueError: bad sample", 7)


def test_a_training_after_a_finished_one_that_has_no_end_may_have_failed(tmp_path: Path) -> None:
    steps = [f"step {number} loss 2.5\n" for number in range(30)]
    found = ended(tmp_path, "".join([*steps, "Training finished.\n", "=== run 2\n", *steps[:12]]), steps=30)
    assert found.outcome is Outcome.OK
    assert states(found.may_have_failed, "exited 0", "step 11", "another")


@pytest.mark.parametrize(("last", "steps", "is_short"), [(12, None, True), (100, None, False), (95, None, False), (12, 12, False)])
def test_a_log_that_ends_long_before_its_own_number_of_steps_may_be_of_a_failed_run(
    tmp_path: Path, last: int, steps: int | None, is_short: bool
) -> None:
    found = ended(tmp_path, "".join(f"step {number}/100 loss 2.5\n" for number in range(1, last + 1)), steps=steps)
    assert (found.outcome, found.may_have_failed) == (Outcome.OK, f"exited 0, and its log ends at {last} of 100" if is_short else "")
