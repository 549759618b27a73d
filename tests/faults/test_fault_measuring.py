"""Measuring on every core, broken off: no worker stays, whichever way the reporting process ends."""

from __future__ import annotations

import json
import shutil
import signal

import psutil
import pytest

from tests.faults.campaigns import dummy
from tests.harness import Harness
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults]

MANY = 210


@pytest.fixture
def many_attempts(harness: Harness) -> Harness:
    """A campaign with enough attempts for workers to be worth it."""
    harness.run("run", str(harness.plan(dummy(ranks=1, steps=300))))
    (run,) = harness.out.runs()
    first = run.attempt(1)
    for number in range(2, MANY + 1):
        attempt = run.attempt(number)
        shutil.copytree(first.folder, attempt.folder)
        attempt.outcome.write_text(json.dumps({**json.loads(first.outcome.read_text()), "attempt": number}))
        for events in attempt.all_events():
            events.write_text(events.read_text().replace('"attempt":1,', f'"attempt":{number},'))
    return harness


@pytest.mark.parametrize("times", [1, 2])
def test_no_worker_stays_when_measuring_is_broken_off(times: int, many_attempts: Harness) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert broken_off(many_attempts, number, times) == (130, "seatrial: interrupted\n")
    assert broken_off(many_attempts, signal.SIGKILL, times) == (-signal.SIGKILL, "")
    assert not list(many_attempts.out.folder.rglob("*.part"))


def broken_off(harness: Harness, number: signal.Signals, times: int) -> tuple[int, str]:
    """Exit code and last words of a report that was measuring; none of its workers outlives it."""
    program = harness.start("report", "out")
    measuring = psutil.Process(program.pid)
    wait_until(lambda: len(measuring.children(recursive=True)) >= 2, "the workers are started")
    workers = measuring.children(recursive=True)
    for _ in range(times):
        program.send_signal(number)
    said, _ = program.communicate(timeout=60)
    wait_until(lambda: not any(worker.is_running() for worker in workers), f"every worker ends: {workers}", 60.0)
    return program.returncode, said
