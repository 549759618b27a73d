"""`seatrial watch --web`: the page of a campaign that really runs fills as it goes, is never loaded again, and says when it is over."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import OpenPage
from tests.harness import Harness
from tests.waiting import wait_until

PLAN = """
name: live
workload: dummy
settings: {step_ms: 10, log_every: 20}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [8, 16]
repeats: 3
steps: 200
telemetry: {gpu_s: null, host_s: 0.5}
limits: {soft_s: 2, term_s: 2}
output: out
"""
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+")
NUM_RUNS = 6
# Every rank waits for the file `go` before its first step: until a browser has come up.
HELD_PLAN = PLAN.replace("repeats: 3", "repeats: 2\nenv: {PYTHONPATH: FOLDER}").replace("limits: {", "limits: {start_s: 300, ")
NUM_HELD_RUNS = 4
WAITS = """
import os, time

while "RANK" in os.environ and not os.path.exists("GO"):
    time.sleep(0.05)
"""
OVER_WITHIN_MS = 240_000
NUM_LISTED = "() => document.querySelectorAll('#run-list input[type=checkbox]').length"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    one = Harness(tmp_path)
    yield one
    one.close()


def address_of(watching: subprocess.Popen[str]) -> str:
    """What it prints for people to open."""
    assert watching.stdout is not None
    said = ""
    for line in watching.stdout:
        said += line
        if found := ADDRESS.search(line):
            return found.group()
    raise AssertionError(f"it told no address:\n{said}")


def test_the_page_fills_while_the_campaign_runs_and_says_when_it_is_over(browser: object, harness: Harness, open_page: OpenPage) -> None:
    go = harness.folder / "go"
    (harness.folder / "sitecustomize.py").write_text(WAITS.replace("GO", str(go)))
    running = harness.start("run", str(harness.plan(HELD_PLAN.replace("FOLDER", str(harness.folder)))))
    wait_until(lambda: len(harness.out.runs()) >= 1, "the first run begins")
    address = address_of(harness.start("watch", str(harness.out.folder), "--web"))
    opened = open_page(address, wait=False)
    opened.page.wait_for_selector("#live[data-state=running]", timeout=OVER_WITHIN_MS)
    opened.page.wait_for_function("() => document.querySelector('h1').innerText.includes('RUNNING, ')", timeout=OVER_WITHIN_MS)
    # Gone if the page were loaded anew.
    opened.page.evaluate("() => { window.__same = true }")
    before = opened.page.evaluate(NUM_LISTED)
    go.touch()
    opened.page.wait_for_function(f"before => ({NUM_LISTED})() > before", arg=before, timeout=OVER_WITHIN_MS)
    opened.page.wait_for_selector("#live[data-state=over]", timeout=OVER_WITHIN_MS)
    opened.page.wait_for_function(f"() => ({NUM_LISTED})() === {NUM_HELD_RUNS}", timeout=OVER_WITHIN_MS)
    opened.page.wait_for_function("() => document.querySelector('h1').innerText.includes('PASS')", timeout=OVER_WITHIN_MS)
    opened.drawn()
    assert opened.page.evaluate("() => window.__same") is True
    assert "Campaign finished." in opened.page.inner_text("#live")
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}
    assert running.wait(240) == 0
    host = address.partition("/?")[0]
    assert {url.partition("?")[0].removeprefix(host) for url in opened.requests} <= {"/", "/state.json", "/data.json"}


def test_a_campaign_that_was_stopped_is_not_called_over(harness: Harness, open_page: OpenPage) -> None:
    running = harness.start("run", str(harness.plan(PLAN)))
    wait_until(lambda: len(harness.out.runs()) >= 1, "the first run begins")
    running.send_signal(signal.SIGINT)
    running.wait(60)
    opened = open_page(address_of(harness.start("watch", str(harness.out.folder), "--web")), wait=False)
    opened.page.wait_for_selector("#live[data-state=stopped]", timeout=OVER_WITHIN_MS)
    said = opened.page.inner_text("#live-short")
    assert re.fullmatch(rf"Stopped: (\d) of {NUM_RUNS} runs; (\d) left\. Run the same command to resume", said), said
    # The server has nothing beside the page.
    assert opened.page.locator("#files a").count() and not opened.page.locator("#files a[href]").count()


def test_nobody_looks_on_without_the_token(harness: Harness, open_page: OpenPage) -> None:
    harness.run("run", str(harness.plan(PLAN.replace("repeats: 3", "repeats: 1").replace("steps: 200", "steps: 30"))))
    address = address_of(harness.start("watch", str(harness.out.folder), "--web"))
    stranger = open_page("about:blank", wait=False)
    for path in ("/", "/data.json", "/state.json", "/?token=guess"):
        answer = stranger.page.goto(address.partition("/?")[0] + path)
        assert answer is not None and answer.status == 403, path
        assert "micro_batch" not in answer.text() and "mb8" not in answer.text()
    stranger.troubles.clear()
    known = open_page(address)
    assert known.page.locator("#live[data-state=over]").count() == 1
    # The token is spent: it stays neither in the address bar nor in what another site is told.
    assert "token" not in known.page.url
    assert known.ask("edges") == []
    assert known.ask("order") == []
