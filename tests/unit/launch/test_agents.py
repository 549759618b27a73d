"""One agent on this machine: start, reports, stop, and what is left when either side dies."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from seatrial.core.log_lines import split_rank
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agents import AgentProcess, agent_argv, query_handler_argv
from seatrial.machine.processes import is_agent_command
from tests.processes import is_gone, pids_in
from tests.unit.launch.factory import attempt_in, make_spec, reports_until_over, run_to_end, started
from tests.waiting import wait_until

# A grandchild in a session of its own that takes no TERM; every process writes its pid to `pids`.
STUBBORN = """\
import os, pathlib, signal, subprocess, sys, time
def up():
    with open("pids", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    up()
    time.sleep(600)
subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=True)
while len(pathlib.Path("pids").read_text().split() if pathlib.Path("pids").exists() else []) < 1:
    time.sleep(0.01)
up()
"""
SAVES_ON_TERM = """\
import signal, sys, time
def save(*_):
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up")
time.sleep(600)
"""
SLEEPER = STUBBORN + "time.sleep(600)\n"


def _script(folder: Path, text: str) -> None:
    (folder / "train.py").write_text(text)


def _sleeper_up(folder: Path) -> list[int]:
    """The pids of a started SLEEPER: grandchild, then the script itself."""
    wait_until(lambda: len(pids_in(folder / "pids")) == 2, "script and grandchild are up")
    return pids_in(folder / "pids")


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return attempt_in(tmp_path)


def test_clean_run_is_copied_byte_for_byte(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import sys\nsys.stdout.write('a\\r50%\\rb\\n')\nsys.stdout.flush()\nsys.stderr.write('no line end')\n")
    reports = run_to_end(make_spec(tmp_path), attempt)
    assert list(reports) == ["started", "exited", "gone"]
    assert reports["exited"].returncode == 0
    assert (reports["gone"].killed, reports["gone"].detail) == (0, "")
    assert attempt.launcher_log.read_bytes() == b"a\r50%\rb\nno line end"
    assert attempt.agent_log.read_text() == ""


def test_default_signals_reach_the_script(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(
        tmp_path, "import signal\nprint([signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)])\n"
    )
    run_to_end(make_spec(tmp_path), attempt)
    assert attempt.launcher_log.read_text() == "[False, False, False]\n"


def test_failed_rank_ends_the_others(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(600)\n")
    reports = run_to_end(make_spec(tmp_path, ranks=2, term_s=2.0), attempt)
    assert reports["exited"].returncode == 5
    assert reports["gone"].killed == 0, "TERM was enough"


def test_what_a_finished_launcher_leaves_is_killed(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, STUBBORN)
    reports = run_to_end(make_spec(tmp_path, term_s=0.5), attempt)
    assert reports["exited"].returncode == 0
    assert reports["gone"].killed == 1
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_stop_terminates_then_kills(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path, term_s=1.0), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        agent.stop()
        reports = reports_until_over(agent)
    assert reports["exited"].returncode == -signal.SIGTERM
    assert reports["gone"].killed == 1
    assert all(is_gone(pid) for pid in pids)


def test_stop_lets_a_script_end_in_its_own_way(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SAVES_ON_TERM)
    with started(make_spec(tmp_path), attempt) as agent:
        wait_until(lambda: attempt.launcher_log.is_file() and "up" in attempt.launcher_log.read_text(), "the script is up")
        agent.stop()
        reports = reports_until_over(agent)
    assert (reports["exited"].returncode, reports["gone"].killed) == (0, 0)
    assert attempt.launcher_log.read_text() == "up\nsaved\n"


def test_closing_kills_what_runs(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        agent.poll()
    assert all(is_gone(pid) for pid in pids) and is_gone(agent.pid)
    assert not agent.alive and agent.poll() == [] and agent.wait(0.0) == []


def test_agent_has_a_session_of_its_own_and_waits_asleep(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        assert os.getsid(agent.pid) == agent.pid != os.getsid(0)
        assert {os.getsid(pid) for pid in pids} == set(pids)
        os.kill(agent.pid, signal.SIGINT)
        os.kill(agent.pid, signal.SIGHUP)
        wait_until(lambda: psutil.Process(agent.pid).status() == psutil.STATUS_SLEEPING, "the agent sleeps")
        assert not any(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("before", ["pass", "os.fork() or time.sleep(600)"], ids=["alone", "with a fork that holds the pipe"])
def test_harness_killed_leaves_nothing(tmp_path: Path, attempt: AttemptPaths, before: str) -> None:
    _script(tmp_path, SLEEPER)
    text = (
        "import os, pathlib, sys, time\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.unit.launch.factory import *\n"
        "folder = pathlib.Path(sys.argv[2])\n"
        "with started(make_spec(folder), attempt_in(folder)) as agent:\n"
        f"    {before}\n"
        "    print(agent.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    root = Path(__file__).parents[3]
    harness = subprocess.Popen([sys.executable, "-c", text, str(root), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    agent_pid = int(harness.stdout.readline())
    pids = _sleeper_up(tmp_path)
    forked = psutil.Process(harness.pid).children()
    harness.kill()
    wait_until(lambda: all(is_gone(pid) for pid in (agent_pid, *pids)), "all processes are gone", timeout_s=60.0)
    assert "killing everything" in attempt.agent_log.read_text()
    for process in forked:
        if process.pid != agent_pid:
            process.kill()
    harness.communicate()


def test_program_that_vanished_is_a_report(tmp_path: Path, attempt: AttemptPaths) -> None:
    program = tmp_path / "run.sh"
    program.write_text("not a script the kernel knows")
    program.chmod(0o755)
    reports = run_to_end(make_spec(tmp_path, kind="command", script="./run.sh"), attempt)
    assert reports["exited"].returncode == 126
    assert "'./run.sh' could not be started" in reports["exited"].detail
    assert "gone" in reports and "started" not in reports


def test_order_that_cannot_be_read_is_lost_with_the_agents_argv(tmp_path: Path, attempt: AttemptPaths) -> None:
    attempt.folder.mkdir(parents=True)
    with AgentProcess.start(attempt) as agent:
        reports = reports_until_over(agent)
    assert "expected PATH/agent.json" in reports["lost"].detail


def test_endless_output_neither_fills_the_memory_nor_holds_up_orders(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import os\nblock = b'y' * 65536\nwhile True: os.write(1, block)\n")
    attempt.folder.mkdir(parents=True)
    attempt.launcher_log.symlink_to("/dev/null")
    with started(make_spec(tmp_path, ranks=2), attempt) as agent:
        logs = [attempt.rank_logs / f"rank{rank}.log" for rank in range(2)]
        wait_until(lambda: all(log.is_file() and log.stat().st_size > 2**24 for log in logs), "16 MiB of each rank are written")
        agent.stacks()
        wait_until(lambda: any(report.kind == "stacks" for report in agent.poll()), "stacks are taken")
        resident_bytes = psutil.Process(agent.pid).memory_info().rss
        agent.kill()
        reports_until_over(agent)
    assert resident_bytes < 2**27
    assert len(list(attempt.stacks.iterdir())) == 2


def test_lines_that_are_no_report_are_skipped(attempt: AttemptPaths) -> None:
    gone = "{'kind': 'gone', 't': 1.0, 'detail': ''}".replace("'", '"')
    argv = [sys.executable, "-c", f"print('libfoo: hello'); print('[1]'); print({gone!r})"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with AgentProcess(attempt, process) as agent:
        assert [report.kind for report in agent.wait(60)] == ["gone"]


def test_agent_killed_and_what_hid_from_it_is_found(tmp_path: Path, attempt: AttemptPaths) -> None:
    """A process without environment, session or parent of the run: only the process that adopts it can find it."""
    _script(
        tmp_path,
        "import os, subprocess, time\n"
        "if os.fork() == 0:\n"
        "    hidden = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n"
        "    open('pids', 'a').write(f'{hidden.pid}\\n')\n"
        "    os._exit(0)\n"
        "os.wait()\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n",
    )
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        with started(make_spec(tmp_path), attempt) as agent:
            pids = _sleeper_up(tmp_path)
            agent.poll()
            os.kill(agent.pid, signal.SIGKILL)
            reports = reports_until_over(agent)
        assert all(is_gone(pid) for pid in pids) and reports["lost"].killed >= 1
        assert "gone" not in reports and "ended with -9" in reports["lost"].detail
        assert bystander.poll() is None, "a process the harness started itself is none of the run's"
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.torch
@pytest.mark.slow
def test_torchrun_ranks_are_merged_and_a_raising_one_fails_the_run(tmp_path: Path, attempt: AttemptPaths) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = "import os\nrank = os.environ['RANK']\nprint('hello from', rank)\nif rank == '1': raise RuntimeError('on purpose')\n"
    _script(tmp_path, text)
    reports = run_to_end(make_spec(tmp_path, kind="torchrun", program=("torchrun",), ranks=2), attempt)
    lines = attempt.launcher_log.read_text().splitlines()
    assert reports["exited"].returncode == 1
    assert {"[rank0]: hello from 0", "[rank1]: hello from 1", "[rank1]: RuntimeError: on purpose"} <= set(lines)
    summary = next(number for number, line in enumerate(lines) if "ChildFailedError" in line)
    assert lines.index("[rank1]: RuntimeError: on purpose") < summary
    assert split_rank(lines[summary])[0] is None


def test_an_agent_that_does_not_exit_after_its_last_report_is_killed(attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.agents.EXIT_TIMEOUT_S", 0.2)
    gone = "{'kind': 'gone', 't': 1.0, 'pid': null, 'returncode': null, 'killed': 0, 'detail': ''}".replace("'", '"')
    argv = [sys.executable, "-c", f"import time; print({gone!r}, flush=True); time.sleep(600)"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with AgentProcess(attempt, process) as agent:
        assert [report.kind for report in agent.wait(60)] == ["gone"]
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("argv", [agent_argv, query_handler_argv])
def test_the_interpreter_named_else_this_one_and_never_the_users_folder(argv: Callable[..., tuple[str, ...]]) -> None:
    python, safe, by_name, module = argv()
    assert (python, safe, by_name) == (sys.executable, "-P", "-m") and importlib.util.find_spec(module)
    assert argv("/env/bin/python") == ("/env/bin/python", "-P", "-m", module)


def test_an_agent_is_recognised_by_its_argv_and_an_answering_process_is_none() -> None:
    assert is_agent_command(agent_argv()) and not is_agent_command(query_handler_argv())
