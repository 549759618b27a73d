"""Measuring on every core, interrupted: no worker outlives the reporting process, however that ends."""

from __future__ import annotations

import json
import shutil
import signal

import psutil
import pytest

from tests.faults.campaigns import dummy
from tests.harness import Harness
from tests.waiting import wait_until

MANY = 210


@pytest.fixture
def many_attempts(harness: Harness) -> Harness:
    """A campaign with enough attempts to be measured by workers."""
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


def test_no_worker_stays_when_measuring_is_broken_off(many_attempts: Harness) -> None:
    for number, times in ((signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGHUP, 2)):
        assert interrupted(many_attempts, number, times) == (130, "seatrial: interrupted\n")
    assert interrupted(many_attempts, signal.SIGKILL, 1) == (-signal.SIGKILL, "")
    assert not list(many_attempts.out.folder.rglob("*.part"))


def interrupted(harness: Harness, number: signal.Signals, times: int) -> tuple[int, str]:
    """Exit code and output of a report that was measuring; none of its workers outlives it."""
    program = harness.start("report", "out")
    measuring = psutil.Process(program.pid)
    wait_until(lambda: len(measuring.children(recursive=True)) >= 2, "the workers are started")
    workers = measuring.children(recursive=True)
    for _ in range(times):
        program.send_signal(number)
    text, _ = program.communicate(timeout=60)
    wait_until(lambda: not any(worker.is_running() for worker in workers), f"every worker ends: {workers}", 60.0)
    return program.returncode, text
