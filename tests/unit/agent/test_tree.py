"""Descendants of an agent, adopted, signalled, collected: with real processes, in a process that adopts for the test."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from seatrial import kinship
from seatrial.agent import tree
from tests.unit.agent.apart import apart

PR_GET_PDEATHSIG = 2
# Starts a child in a session of its own, tells both pids, and waits.
FAMILY = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read() if sys.argv[1:] == ["stay"] else None
"""


def _family(*stays: str) -> tuple[subprocess.Popen[bytes], int]:
    parent = subprocess.Popen([sys.executable, "-S", "-c", FAMILY, *stays], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def _collected() -> dict[int, int]:
    """Exit codes of all children, waited for."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(status)


def test_a_child_that_is_bound_gets_term_when_its_parent_ends() -> None:
    def act() -> Any:
        tree.bind_to_parent()
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
        return number.value

    assert apart(act) == signal.SIGTERM


def test_descendants_are_signalled_whatever_session_they_are_in() -> None:
    def act() -> Any:
        tree.adopt_all_orphans()
        parent, child = _family("stay")
        found = {process.pid for process in tree.descendants()}
        reached = tree.send(tree.descendants(), signal.SIGKILL)
        codes = _collected()
        return [found == reached == {parent.pid, child}, codes == {parent.pid: -9, child: -9}, tree.descendants()]

    assert apart(act) == [True, True, []]
    assert tree.send([], signal.SIGTERM) == set()


def test_orphans_come_here_and_the_last_one_collected_is_the_end() -> None:
    def act() -> Any:
        tree.adopt_all_orphans()
        parent, child = _family()
        os.waitpid(parent.pid, 0)
        alone = tree.reap()
        killed = tree.kill_children()
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return [alone == ({}, True), killed == {child}, tree.reap() == ({child: -9}, False), tree.reap() == ({}, False)]

    assert apart(act) == [True] * 4


def test_a_stopped_process_is_let_go_on() -> None:
    def act() -> Any:
        child = subprocess.Popen(["sleep", "600"])
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        before = tree.is_stopped(child.pid)
        tree.resume(tree.descendants())
        os.waitpid(child.pid, os.WCONTINUED)
        after = tree.is_stopped(child.pid)
        child.kill()
        return [before, after]

    assert apart(act) == [True, False]
    assert not tree.is_stopped(2**22 + 1), "one that is gone is not stopped"


def test_the_last_care_kills_all_and_waits_for_them() -> None:
    def act() -> Any:
        tree.adopt_all_orphans()
        _family("stay")
        tree.end_all(lambda s: None)
        return tree.reap()[1]

    assert apart(act) is False


def test_a_kernel_without_subreapers_is_told_of(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kinship, "adopt_orphans", lambda: False)
    tree.adopt_all_orphans()
    assert "no child subreaper" in capfd.readouterr().err
