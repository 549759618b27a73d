"""Runs that fail by themselves: each ends with its cause, and the campaign continues."""

from __future__ import annotations

import json
import re
import shlex
import socket

import pytest

from tests.faults.campaigns import (
    HANGING,
    INCONCLUSIVE,
    QUICK_STALL,
    QUICK_STALL_OF_A_SCRIPT,
    dummy,
    only_attempt,
    outcome,
    run_and_end,
)
from tests.faults.conftest import own_segments
from tests.harness import Harness
from tests.stubs import no_ptrace


def test_every_ordered_crash_gets_its_cause(harness: Harness) -> None:
    kinds = {"sigkill": "killed", "segfault": "native_crash", "cuda_oom": "cuda_oom", "host_oom": "host_oom", "port_in_use": "port_in_use"}
    plan = dummy("crash_at_step: 3", ranks=1, more=f"axes: {{crash_with: [{', '.join(kinds)}]}}")
    harness.run("run", str(harness.plan(plan)), code=2)
    assert {row["axis_crash_with"]: row["cause"] for row in harness.manifest()} == kinds


def test_exit_code_0_without_a_step_is_no_success(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("skip_all_steps: true"))
    assert (ended["outcome"], ended["cause"], ended["exit_code"]) == ("failed", "no_steps", 0)


def test_a_hang_in_python_ends_as_stalled_with_rank_phase_and_frame(harness: Harness) -> None:
    plan = dummy("hang_at_step: 30, hang_rank: 1", steps=60, limits=f"stall: {QUICK_STALL}", **HANGING)
    ended = run_and_end(harness, plan)
    assert (ended["outcome"], ended["cause"], ended["rank"], ended["phase"]) == ("stalled", "stall", 1, "fwd")
    assert "faults.py" in ended["frame"] and ended["frame"] in ended["detail"]
    stacks = only_attempt(harness).stacks
    assert all((stacks / f"rank{rank}.txt").read_text().count("File ") for rank in (0, 1))


def test_a_hang_in_c_that_keeps_the_gil_is_seen_and_named(harness: Harness) -> None:
    plan = dummy("hang_at_step: 30, hang_rank: 1, hang_in: c", steps=60, limits=f"stall: {QUICK_STALL}", **HANGING)
    ended = run_and_end(harness, plan)
    assert (ended["outcome"], ended["cause"], ended["rank"]) == ("stalled", "stall", 1)
    assert "faults.py" in ended["frame"] and "in hang_in_c" in ended["frame"]


def test_no_output_and_no_step_ends_at_the_start_limit_with_stacks(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("start_delay_s: 600, output: none", limits="start_s: 4", **HANGING))
    assert (ended["outcome"], ended["cause"]) == ("timeout", "start_limit")
    assert any(path.read_text() for path in only_attempt(harness).stacks.iterdir())


def test_the_run_limit_ends_a_run_softly(harness: Harness) -> None:
    ended = run_and_end(harness, dummy(steps=60_000, limits="run_s: 5", soft_s=15))
    assert (ended["outcome"], ended["cause"], ended["exit_code"]) == ("timeout", "run_limit", 0)
    last = [json.loads(path.read_text().splitlines()[-1]) for path in only_attempt(harness).all_events()]
    assert [event["kind"] for event in last] == ["stop", "stop"] and last[0]["step"] == last[1]["step"]


def test_a_slow_start_within_its_limit_is_no_fault(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("start_delay_s: 5", limits=f"start_s: 60, stall: {QUICK_STALL}"), code=0)
    assert ended["outcome"] == "ok"


def test_a_long_pause_is_no_stall(harness: Harness) -> None:
    # Longer than the limit plus the interval of heartbeats.
    plan = dummy("pause_every: 20, pause_ms: 13000", steps=30, limits=f"stall: {QUICK_STALL}")
    assert run_and_end(harness, plan, code=0)["outcome"] == "ok"


def test_an_orphan_that_ignores_term_is_ended(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("orphan: true"), code=0)
    assert ended["outcome"] == "ok" and ended["killed"] >= 2
    assert "had to be killed" in harness.out.summary_md.read_text()
    assert harness.left_behind() == [] and not harness.children_of_ours()
    assert not harness.out.owner.exists() and not list(harness.out.folder.rglob(".*.part"))


def test_shared_memory_left_by_a_run_is_removed(harness: Harness) -> None:
    before = own_segments()
    run_and_end(harness, dummy("shared_memory: true"), code=0)
    assert own_segments() <= before


def test_endless_output_is_stopped_at_the_disk_limit(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("output: endless", ranks=1, steps=60_000, limits="disk_gib: 0.02"))
    assert (ended["outcome"], ended["cause"]) == ("failed", "disk_limit")


def test_binary_output_is_skipped(harness: Harness) -> None:
    assert run_and_end(harness, dummy("output: rubbish"), code=0)["outcome"] == "ok"
    assert "launcher.log holds binary data" in harness.out.summary_md.read_text()


def test_a_leak_is_stopped_at_the_memory_limit(harness: Harness) -> None:
    ended = run_and_end(harness, dummy("leak_mib_per_step: 4", ranks=1, steps=2_000, limits="memory_gib: 0.25"))
    assert (ended["outcome"], ended["cause"]) == ("failed", "memory_limit")


def test_a_nan_loss_is_reported(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(dummy("loss: nan"))))
    assert "The loss is nan from step 20 on" in " ".join(text.split())
    assert "The loss is nan from step 20 on" in harness.out.summary_md.read_text()


def test_events_that_lie_do_not_change_the_figures(harness: Harness) -> None:
    plan = dummy(more="axes: {lies: [none, steps_back, other_run, other_attempt]}", ranks=1)
    text = harness.run("run", str(harness.plan(plan)), code=None)
    rows = harness.manifest()
    assert len(rows) == 4 and {row["outcome"] for row in rows} == {"ok"}
    assert {row["last_step"] for row in rows} == {"39"}, [row["last_step"] for row in rows]
    assert "events_rank0.jsonl" in text or "events" in harness.out.summary_md.read_text()


def test_a_port_that_is_taken_is_named(harness: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = harness.folder / "bind.py"
        script.write_text("import socket, sys\nsocket.create_server(('127.0.0.1', int(sys.argv[1])))\n")
        plan = f'name: port\nworkload: {{script: bind.py, args: ["{port}"]}}\noutput: out\n'
        # A port held by somebody else is no fault of the group: INCONCLUSIVE, not FAIL.
        ended = run_and_end(harness, plan, code=INCONCLUSIVE)
    assert (ended["outcome"], ended["cause"], ended["fault"]) == ("failed", "port_in_use", "infrastructure")


def test_a_foreign_script_that_hangs_is_seen_by_its_lines_and_its_stack_is_taken_from_outside(harness: Harness) -> None:
    script = harness.folder / "mine.py"
    script.write_text(
        "import time\n"
        "def stuck():\n    time.sleep(3600)\n"
        "for step in range(200):\n    print(f'step {step}: loss {1 / (step + 1):.4f}', flush=True)\n    time.sleep(0.05)\n"
        "    if step == 40:\n        stuck()\n"
    )
    ended = run_and_end(
        harness,
        f"name: mine\nworkload: {{script: mine.py}}\nlimits: {{stall: {QUICK_STALL_OF_A_SCRIPT}, term_s: 1}}\noutput: out\n",
    )
    assert (ended["outcome"], ended["cause"]) == ("stalled", "stall")
    assert "mine.py:3 in stuck" in ended["frame"]


def test_a_swept_script_that_prints_one_line_and_then_nothing_is_ended_and_the_option_named(harness: Harness) -> None:
    script = harness.folder / "mine.py"
    script.write_text("import time\ndef stuck():\n    time.sleep(3600)\nprint('begun', flush=True)\nstuck()\n")
    options = ("--repeats", "1", "--quiet-limit", "4s", "--heartbeat", "1", "--out", "out")
    text = harness.run("sweep", *options, "--", "python", "mine.py", code=2)
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["frame"]) == ("stalled", "stall", "mine.py:3 in stuck")
    assert "--quiet-limit" in ended["detail"] and "raise --quiet-limit" in ended["action"] and "limits." not in ended["action"]
    assert any(only_attempt(harness).stacks.iterdir())
    assert re.search(r"heartbeat .*elapsed=[\d.]+ s, quiet=[\d.]+ m?s", text)


def test_where_py_spy_is_not_to_be_had_the_last_way_still_names_the_line(harness: Harness) -> None:
    script = harness.folder / "mine.py"
    script.write_text("import time\ndef stuck():\n    time.sleep(3600)\nprint('begun', flush=True)\nstuck()\n")
    plan = f"name: mine\nworkload: {{script: mine.py, reads: none}}\nlimits: {{stall: {QUICK_STALL_OF_A_SCRIPT}, term_s: 1}}\noutput: out\n"
    harness.run("run", str(harness.plan(plan)), code=2, env=no_ptrace.environment(harness.folder))
    ended = outcome(harness)
    assert (ended["outcome"], ended["frame"]) == ("stalled", "mine.py:3 in stuck")


def test_a_stale_halt_file_stops_nobody(harness: Harness) -> None:
    harness.run("run", str(harness.plan(dummy("crash_at_step: 5"))), code=2)
    (run,) = harness.out.runs()
    for folder in (harness.out.folder, run.folder, run.attempt(1).folder):
        (folder / "halt.json").write_text(json.dumps({"attempt": 1, "at_step": 3, "reason": "user"}))
        (folder / ".HALT").write_text("halt: heartbeat_stall")
    harness.run("run", str(harness.plan(dummy("crash_at_step: null"))), code=0)
    assert outcome(harness, 2)["outcome"] == "ok"


REPORTS = {
    "gate_collapse": "gate_entropy_mean=0.05, gate_step=step",
    "zero_grad": "grad_norm=0.0",
}


@pytest.mark.parametrize(("health", "cause"), [("end", "gate_collapse"), ("end", "zero_grad"), ("warn", "gate_collapse")])
def test_a_training_whose_own_figures_are_unhealthy_is_ended_or_warned_of(harness: Harness, health: str, cause: str) -> None:
    (harness.folder / "mine.py").write_text(
        "import time\nfrom seatrial.probe import Probe\nwith Probe() as probe:\n    for step in probe.data(range(120)):\n"
        f"        with probe.step(samples=1):\n            time.sleep(0.05)\n        probe.progress({REPORTS[cause]})\n"
    )
    plan = f"name: mine\nworkload: {{script: mine.py}}\nlimits: {{health: {health}}}\noutput: out\n"
    harness.run("run", str(harness.plan(plan)), code=2 if health == "end" else 0)
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"]) == (("failed", cause) if health == "end" else ("ok", "none"))
    alarms = [json.loads(line) for line in only_attempt(harness).alarms.read_text().splitlines()]
    assert cause in {alarm["kind"] for alarm in alarms}
    # Ended softly, with its steps so far.
    assert health == "warn" or (ended["exit_code"] == 0 and "(limits.health)" in ended["detail"])


PIPED = "sweep --repeats 1 --steps 100 -P lr=1,2 --out out -- bash -c 'python -u mine.py {lr} 2>&1 | tee log'"


def test_a_pipeline_that_hides_a_failure_does_not_make_it_a_success(harness: Harness) -> None:
    (harness.folder / "mine.py").write_text(
        "for step in range(20):\n    print(f'step {step}: loss {1 / (step + 1):.4f}')\nraise ValueError('bad sample 17')\n"
    )
    text = harness.run(*shlex.split(PIPED), code=2)
    ended = [json.loads(path.read_text()) for path in harness.out.folder.glob("*/attempt-1/outcome.json")]
    assert {(one["outcome"], one["cause"], one["exit_code"]) for one in ended} == {("failed", "exception", 0)}
    assert "pipefail" in text and "bad sample 17" in text


def test_a_traceback_after_the_last_step_leaves_the_verdict_open(harness: Harness) -> None:
    (harness.folder / "mine.py").write_text(
        "for step in range(100):\n    print(f'step {step}: loss {1 / (step + 1):.4f}')\nraise ValueError('bad sample 17')\n"
    )
    text = harness.run(*shlex.split(PIPED), code=INCONCLUSIVE)
    ended = [json.loads(path.read_text()) for path in harness.out.folder.glob("*/attempt-1/outcome.json")]
    assert {(one["outcome"], one["exit_code"]) for one in ended} == {("ok", 0)}
    assert "exited 0 after a traceback: probably failed" in " ".join(text.split())


def test_alike_failures_that_no_setting_explains_end_the_campaign(harness: Harness) -> None:
    (harness.folder / "mine.py").write_text("import no_such_package\n")
    argv = ["sweep", "--repeats", "3", "-P", "lr=1,2", "--out", "out", "--", "python", "mine.py", "{lr}"]
    text = harness.run(*argv, code=INCONCLUSIVE)
    assert len(list(harness.out.folder.glob("*/attempt-1/outcome.json"))) == 3
    assert "stopped after 3 identical failures in a row" in " ".join(text.split())
    assert "3 of 6 runs left" in " ".join(text.split()) and "--keep-going" in text
    harness.run(*argv[:-4], "--keep-going", *argv[-4:], code=2)
    assert len({row["run"] for row in harness.manifest()}) == 6
