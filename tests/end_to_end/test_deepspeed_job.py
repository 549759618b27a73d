"""Campaigns through the real `deepspeed` runner on two CPU ranks: its exit code is not trusted, and no process of it is left."""

from __future__ import annotations

import importlib.util
import json

import psutil
import pytest

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import ENVIRONMENT, LIGHT_DEEPSPEED, Harness
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]

JOB = str(SCRIPTS / "ds_job.py")
QUIET = f"""
name: quiet-ds
workload: {{script: {JOB}, args: [--wait-for, never, --ignore-signals]}}
launcher: deepspeed
place: {{kind: local, ranks: 2}}
limits: {{stall: {{quiet_s: 2}}, term_s: 1}}
output: out
"""


@pytest.fixture(autouse=True)
def light_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(LIGHT_DEEPSPEED))


def launcher_of(harness: Harness) -> psutil.Process:
    """deepspeed's second process, which starts the ranks."""
    return next(process for process in harness.left_behind() if "deepspeed.launcher.launch" in process.cmdline())


def has_printed(harness: Harness, run: str, text: str) -> bool:
    log = harness.out.run(run).attempt(1).launcher_log
    return log.exists() and text in log.read_text()


def test_a_sweep_is_timed_by_lines_and_a_killed_launcher_is_no_success(harness: Harness) -> None:
    sweep = ("sweep", "-P", "bs=2,4", "--repeats", "1", "--out", "out", "--yes", "--")
    command = ("deepspeed", "--num_gpus", "2", "--quiet", JOB, "--bs", "{bs}", "--wait-for", "go{bs}")
    (harness.folder / "go2").touch()
    process = harness.start(*sweep, *command)
    wait_until(lambda: has_printed(harness, "bs4_r1", "iter 29"), "the steps of bs4")
    launcher_of(harness).kill()
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 2, text
    assert "note: --quiet is left out" in text

    rows = {row["group"]: row for row in harness.manifest()}
    assert (rows["bs2"]["outcome"], rows["bs2"]["source"], rows["bs2"]["world_size"]) == ("ok", "log:nanogpt", "2")
    assert (rows["bs4"]["outcome"], rows["bs4"]["cause"], rows["bs4"]["exit_code"]) == ("failed", "ranks_missing", "0")
    assert "logged success of 0 of 2 ranks" in rows["bs4"]["detail"]
    assert harness.call("logs", "out/bs2_r1", "--rank", "1") == "rank 1 took 30 steps\n"
    recorded = json.loads(harness.out.run("bs2_r1").attempt(1).environment.read_text())["variables"]
    assert [variable["set_by"] for variable in recorded if variable["name"] == "DS_ACCELERATOR"] == ["seatrial"]


def test_ranks_that_hang_and_ignore_signals_are_killed(harness: Harness) -> None:
    harness.run("run", str(harness.plan(QUIET)), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("stalled", "stall")
    assert harness.left_behind() == []
