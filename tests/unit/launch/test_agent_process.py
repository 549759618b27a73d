"""Real agents with real processes: every way a run can end, and that nothing is left after any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seatrial.launch.agent_process import AgentProcess
from seatrial.log_lines import split_rank
from seatrial.paths import AttemptPaths
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
    heard = run_to_end(make_spec(tmp_path), attempt)
    assert list(heard) == ["started", "exited", "gone"]
    assert heard["exited"].returncode == 0
    assert (heard["gone"].killed, heard["gone"].detail) == (0, "")
    assert attempt.launcher_log.read_bytes() == b"a\r50%\rb\nno line end"
    assert attempt.agent_log.read_text() == ""


def test_arrivals_cover_the_whole_log_in_order(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "for i in range(50): print('step', i)\n")
    began_t = time.time()
    run_to_end(make_spec(tmp_path), attempt)
    header, *rows = attempt.arrivals.read_text().splitlines()
    assert header == "offset_bytes,t,m"
    offsets = [int(row.split(",")[0]) for row in rows]
    walls = [float(row.split(",")[1]) for row in rows]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == attempt.launcher_log.stat().st_size
    assert began_t <= walls[0] and walls == sorted(walls)


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("raise RuntimeError('x')", 1), ("os.kill(os.getpid(), 9)", -9)])
def test_exit_code_passes_through(tmp_path: Path, attempt: AttemptPaths, ending: str, code: int) -> None:
    _script(tmp_path, f"import os, sys\n{ending}\n")
    assert run_to_end(make_spec(tmp_path), attempt)["exited"].returncode == code


def test_environment_and_folder_reach_the_script(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import os\nprint(os.getcwd(), os.environ['A'], os.environ['SEATRIAL_RUN_DIR'])\n")
    run_to_end(make_spec(tmp_path, env={"A": "from the plan"}), attempt)
    assert attempt.launcher_log.read_text() == f"{tmp_path} from the plan {attempt.folder}\n"


def test_default_signals_reach_the_script(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(
        tmp_path, "import signal\nprint([signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)])\n"
    )
    run_to_end(make_spec(tmp_path), attempt)
    assert attempt.launcher_log.read_text() == "[False, False, False]\n"


def test_ranks_are_marked_and_have_logs_of_their_own(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import os\nfor i in range(20): print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'line', i)\n")
    run_to_end(make_spec(tmp_path, ranks=3), attempt)
    lines = [split_rank(line) for line in attempt.launcher_log.read_text().splitlines()]
    for rank in range(3):
        own = [f"rank {rank} of 3 line {i}" for i in range(20)]
        assert [text for number, text in lines if number == rank] == own
        assert (attempt.rank_logs / f"rank{rank}.log").read_text().splitlines() == own


def test_failed_rank_ends_the_others(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(600)\n")
    heard = run_to_end(make_spec(tmp_path, ranks=2, term_s=2.0), attempt)
    assert heard["exited"].returncode == 5
    assert heard["gone"].killed == 0, "TERM was enough"


def test_what_a_finished_launcher_leaves_is_killed(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, STUBBORN)
    heard = run_to_end(make_spec(tmp_path, term_s=0.5), attempt)
    assert heard["exited"].returncode == 0
    assert heard["gone"].killed == 1
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_stop_terminates_then_kills(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path, term_s=1.0), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        agent.stop()
        heard = reports_until_over(agent)
    assert heard["exited"].returncode == -signal.SIGTERM
    assert heard["gone"].killed == 1
    assert all(is_gone(pid) for pid in pids)


def test_stop_lets_a_script_end_in_its_own_way(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SAVES_ON_TERM)
    with started(make_spec(tmp_path), attempt) as agent:
        wait_until(lambda: attempt.launcher_log.is_file() and "up" in attempt.launcher_log.read_text(), "the script is up")
        agent.stop()
        heard = reports_until_over(agent)
    assert (heard["exited"].returncode, heard["gone"].killed) == (0, 0)
    assert attempt.launcher_log.read_text() == "up\nsaved\n"


def test_kill_is_at_once(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path, term_s=600.0), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        agent.kill()
        heard = reports_until_over(agent)
    assert heard["exited"].returncode == -signal.SIGKILL
    assert heard["gone"].killed == 2
    assert all(is_gone(pid) for pid in pids)


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


def test_agent_killed_is_said_and_its_work_done(tmp_path: Path, attempt: AttemptPaths) -> None:
    _script(tmp_path, SLEEPER)
    with started(make_spec(tmp_path), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        os.kill(agent.pid, signal.SIGKILL)
        heard = reports_until_over(agent)
    assert "gone" not in heard
    assert "ended with -9" in heard["lost"].detail
    assert all(is_gone(pid) for pid in pids)


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
    wait_until(lambda: all(is_gone(pid) for pid in (agent_pid, *pids)), "all processes are gone", patience_s=60.0)
    assert "killing everything" in attempt.agent_log.read_text()
    for process in forked:
        if process.pid != agent_pid:
            process.kill()
    harness.communicate()


def test_program_that_vanished_is_a_report(tmp_path: Path, attempt: AttemptPaths) -> None:
    program = tmp_path / "run.sh"
    program.write_text("not a script the kernel knows")
    program.chmod(0o755)
    heard = run_to_end(make_spec(tmp_path, kind="command", script="./run.sh"), attempt)
    assert heard["exited"].returncode == 126
    assert "'./run.sh' could not be started" in heard["exited"].detail
    assert "gone" in heard and "started" not in heard


def test_order_that_cannot_be_read_is_lost_with_the_agents_words(tmp_path: Path, attempt: AttemptPaths) -> None:
    attempt.folder.mkdir(parents=True)
    with AgentProcess.start(attempt) as agent:
        heard = reports_until_over(agent)
    assert "expected one argument" in heard["lost"].detail


def test_full_disk_costs_neither_the_run_nor_its_text(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "fallback"))
    _script(tmp_path, "print('x' * 99)\n")
    attempt.folder.mkdir(parents=True)
    attempt.launcher_log.symlink_to("/dev/full")
    heard = run_to_end(make_spec(tmp_path), attempt)
    assert (heard["exited"].returncode, heard["gone"].detail) == (0, "")
    assert attempt.agent_log.read_text().count("No space left") == 1
    assert any(path.read_bytes().endswith(b"x" * 99 + b"\n") for path in (tmp_path / "fallback").iterdir() if path.is_file())


def test_disks_that_take_nothing_cost_text_and_not_the_run(tmp_path: Path, attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", "/dev/null/none")
    _script(tmp_path, "print('x' * 99)\nopen('done', 'w').close()\n")
    attempt.folder.mkdir(parents=True)
    attempt.launcher_log.symlink_to("/dev/full")
    heard = run_to_end(make_spec(tmp_path), attempt)
    assert (heard["exited"].returncode, (tmp_path / "done").exists()) == (0, True)
    assert "launcher.log lacks 100 bytes" in heard["gone"].detail
    assert attempt.agent_log.read_text().count("No space left") == 1


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


def test_words_that_are_no_report_are_passed_over(attempt: AttemptPaths) -> None:
    gone = "{'kind': 'gone', 't': 1.0, 'detail': ''}".replace("'", '"')
    argv = [sys.executable, "-c", f"print('libfoo: hello'); print('[1]'); print({gone!r})"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with AgentProcess(attempt, process) as agent:
        assert [report.kind for report in agent.wait(60)] == ["gone"]


def test_agent_killed_and_what_hid_from_it_is_found(tmp_path: Path, attempt: AttemptPaths) -> None:
    """A process without environment, session or parent of the run: only the one that adopts it can know."""
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
            heard = reports_until_over(agent)
        assert all(is_gone(pid) for pid in pids) and heard["lost"].killed >= 1
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
    heard = run_to_end(make_spec(tmp_path, kind="torchrun", program=("torchrun",), ranks=2), attempt)
    lines = attempt.launcher_log.read_text().splitlines()
    assert heard["exited"].returncode == 1
    assert {"[rank0]: hello from 0", "[rank1]: hello from 1", "[rank1]: RuntimeError: on purpose"} <= set(lines)
    summary = next(number for number, line in enumerate(lines) if "ChildFailedError" in line)
    assert lines.index("[rank1]: RuntimeError: on purpose") < summary
    assert split_rank(lines[summary])[0] is None


@pytest.mark.torch
@pytest.mark.slow
def test_stopped_torchrun_leaves_no_rank(tmp_path: Path, attempt: AttemptPaths) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    _script(tmp_path, "import os, time\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n")
    with started(make_spec(tmp_path, kind="torchrun", ranks=2), attempt) as agent:
        pids = _sleeper_up(tmp_path)
        agent.stop()
        heard = reports_until_over(agent)
    assert heard["exited"].returncode != 0
    assert all(is_gone(pid) for pid in pids)


def test_an_agent_that_does_not_leave_after_its_last_word_is_not_waited_for(attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.agent_process.LEAVE_PATIENCE_S", 0.2)
    gone = "{'kind': 'gone', 't': 1.0, 'pid': null, 'returncode': null, 'killed': 0, 'detail': ''}".replace("'", '"')
    argv = [sys.executable, "-c", f"import time; print({gone!r}, flush=True); time.sleep(600)"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with AgentProcess(attempt, process) as agent:
        assert [report.kind for report in agent.wait(60)] == ["gone"]
    assert process.returncode == -signal.SIGKILL
