"""`watch --web` beside a running campaign: progress moves, data grow, the end is shown, and Ctrl-C leaves no process."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
from typing import Any

import psutil

from tests.harness import Harness
from tests.unit.security.folders import contents
from tests.waiting import wait_until

PLAN = """
name: watched
workload: dummy
settings: {step_ms: 10, log_every: 10}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [4, 8]
repeats: 1
steps: 250
timing: {log_every: 10}
output: out
"""


class Browser:
    """A client that keeps its cookie; made from the printed address."""

    def __init__(self, address: str) -> None:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=[\w-]{43})", address)
        assert found, address
        self._port = int(found[1])
        self._cookie = self._get(found[2])[0].split(";")[0]
        self._steps: tuple[str, int] = ("", 0)

    def _get(self, path: str, **headers: str) -> tuple[str, str]:
        """The cookie that is set, and the body."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, path
            return answer.headers.get("Set-Cookie", ""), answer.read().decode()

    def text(self, path: str) -> str:
        return self._get(path, Cookie=self._cookie)[1]

    def json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(path))
        return found

    def steps_seen(self, run: str) -> int:
        """How many steps of the run can be drawn; fetched again when there is a new version, as the page does."""
        version = self.json("/state.json")["version"]
        if version != self._steps[0]:
            self._steps = (version, self._count_steps(run))
        return self._steps[1]

    def _count_steps(self, run: str) -> int:
        column = self.json("/data.json")["payload"]["tables"].get("steps", {}).get("columns", {}).get("run", {})
        if run not in column.get("categories", []):
            return 0
        code = column["categories"].index(run)
        pairs = column.get("runs") or [item for value in column["values"] for item in (value, 1)]
        return sum(count for value, count in zip(pairs[::2], pairs[1::2], strict=True) if value == code)


def test_a_campaign_is_seen_while_it_runs_and_when_it_is_over(harness: Harness) -> None:
    campaign = harness.start("run", str(harness.plan(PLAN)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/events_rank1.jsonl")), "a run starts")
    watch = harness.start("watch", str(harness.out.folder), "--web")
    assert watch.stdout is not None
    browser = Browser(watch.stdout.readline().strip())
    page = browser.text("/")
    assert "watched" in page and 'name="seatrial-version"' in page

    states: list[dict[str, Any]] = [{}]
    wait_until(lambda: states.append(browser.json("/state.json")) or states[-1].get("run"), "the current run is in the state")
    state = states[-1]
    run, version = state["run"]["name"], state["version"]
    assert state["runs_now"] and not state["over"] and state["campaign"]["of"] == 2
    wait_until(lambda: browser.steps_seen(run) > 0, "steps of the current run can be drawn")
    wait_until(lambda: browser.json("/state.json")["version"] != version, "the version changes")

    campaign.communicate(timeout=60)
    wait_until(lambda: browser.json("/state.json")["over"], "the state says that it is over")
    wait_until(lambda: browser.steps_seen(run) == 250, "every step of the finished run can be drawn")
    before = contents(harness.out.folder)
    browser.text("/")
    assert contents(harness.out.folder) == before
    assert_ends(watch)


def assert_ends(watch: subprocess.Popen[str]) -> None:
    below = psutil.Process(watch.pid).children(recursive=True)
    watch.send_signal(signal.SIGINT)
    output, _ = watch.communicate(timeout=60)
    assert watch.returncode == 130
    assert "Traceback" not in output and output.endswith("seatrial: interrupted\n")
    assert below == []
