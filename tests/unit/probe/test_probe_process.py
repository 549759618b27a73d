"""The probe in a process of its own: forked, suspended, ended in every way; and what importing it brings in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

LOOP = """
import sys
from seatrial.probe.loop import Probe, _is_clean
probe = Probe(sys.argv[1])
for i in range(3):
    with probe.step():
        pass
"""


@pytest.mark.parametrize(
    ("ending", "returncode", "stops"),
    [
        ("", 0, 1),
        ("sys.exit(0)", 0, 1),
        ("raise RuntimeError('lost')", 1, 0),
        ("with probe.step(): sys.exit(3)", 3, 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, 0),
        ("import os; os._exit(0)", 0, 0),
    ],
)
def test_how_a_process_ends_decides_whether_it_stopped_well(lines, ending, returncode, stops):
    done = subprocess.run([sys.executable, "-c", LOOP + ending, str(lines.run_dir)], capture_output=True, timeout=60, check=False)
    assert done.returncode == returncode, done.stderr.decode()
    assert len(lines.events("stop")) == stops
    if returncode in (0, 1, 3) and "_exit" not in ending:
        assert len(lines.steps()) == 3, "what was measured before the end is written"


def test_a_forked_child_writes_nothing(lines):
    script = LOOP + textwrap.dedent("""
        import os
        child = os.fork()
        if child == 0:
            for i in range(5000):
                with probe.step(): pass
            probe.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with probe.step(): pass
        probe.close()
    """)
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(lines.run_dir)], check=True, timeout=60)
    assert [step["step"] for step in lines.steps()] == [0, 1, 2, 3]
    assert len({beat["pid"] for beat in lines.heartbeats()}) == 1
    assert len(lines.events("stop")) == 1


def test_importing_the_probe_brings_in_the_standard_library_only():
    script = "import sys, seatrial.probe; print(sorted({n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    foreign = {name for name in eval(done.stdout) if not name.startswith(("_", "__editable__"))}
    assert foreign <= {"seatrial", "sitecustomize", "distutils-precedence"}


def test_a_suspended_rank_goes_on_and_the_step_it_stood_in_is_as_long_as_it_was(lines):
    script = LOOP + textwrap.dedent("""
        with probe.step(), probe.phase("fwd"):
            print("in the step", flush=True)
            sys.stdin.readline()
        with probe.step():
            pass
    """)
    process = subprocess.Popen([sys.executable, "-c", script, str(lines.run_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        time.sleep(0.4)
        process.send_signal(signal.SIGCONT)
        process.communicate("\n", timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    steps = lines.steps()
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4]
    assert steps[3]["iter_ms"] >= steps[3]["fwd_ms"] >= 400
    assert len(lines.events("stop")) == 1
