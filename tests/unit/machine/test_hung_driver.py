"""A driver that hangs, played by the stub: nothing of the harness waits for it for ever, or twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seatrial.machine import nvml
from seatrial.machine.nvml import Nvml, ask
from seatrial.machine.patience import NoAnswer, is_stuck, within
from tests.stubs.answers import answer
from tests.stubs.nvml import environment, needs_compiler, told_by

# Far more than the patience with a driver, far less than for ever: these machines may be loaded.
MOST_S = 60.0
LEAVE = "import os, sys; sys.stdout.flush(); os._exit(0)"


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    answers = tmp_path / "answers.txt"
    answer(answers, ("hang", 1))
    return answers


def test_answers_and_errors_come_back() -> None:
    assert within(60.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 // 0)
    assert not is_stuck()


def test_one_question_without_an_answer_is_waited_for_once_and_asked_again_when_it_came_late(monkeypatch: pytest.MonkeyPatch) -> None:
    released, asked = threading.Event(), []
    monkeypatch.setattr(nvml, "start_nvml", Nvml)

    def question(found: Nvml) -> int:
        asked.append(found)
        released.wait(60)
        return len(asked)

    for _ in range(3):
        with pytest.raises(NoAnswer):
            ask(question, patience_s=0.01)
    assert len(asked) == 1 and is_stuck()
    released.set()
    while is_stuck():
        time.sleep(0.001)
    assert ask(question, patience_s=60.0) == 2


@needs_compiler
def test_provenance_says_that_there_was_no_answer_and_waits_once(hung: Path) -> None:
    script = f"""
import json, time
from seatrial.machine import nvml, provenance
began = time.monotonic()
first = provenance.gather(Path("/"), ["0"])
middle = time.monotonic()
again = provenance.gather(Path("/"), ["0"])
ended = time.monotonic()
facts = [first.driver_version, first.gpu_name, first.gpu_cc, first.gpu_power_limit_w, first.fingerprint == again.fingerprint]
print(json.dumps([facts, middle - began, ended - middle]))
{LEAVE}
"""
    facts, waited_s, then_s = told_by(script, hung)
    assert facts == ["no answer", "", "", "", True]
    assert nvml.PATIENCE_S <= waited_s < MOST_S and then_s < nvml.PATIENCE_S


@needs_compiler
def test_checks_before_a_campaign_end_and_refuse_what_asks_for_gpus(hung: Path, tmp_path: Path) -> None:
    script = f"""
import json
from seatrial.preflight.checks import fast_checks
from seatrial.preflight.need import need_of
from seatrial.records.campaign_plan import CampaignPlan
from tests.unit.preflight.needs import make_run
told = []
for devices in ((), ("0",)):
    run = make_run(Path("/"), bundled="dummy", devices=devices)
    found = fast_checks(need_of(CampaignPlan(name="p", output={str(tmp_path)!r}, runs=(run,))))
    told.append([[check.ok, check.refuses, check.found] for check in found if check.name == "GPU driver"])
print(json.dumps(told))
{LEAVE}
"""
    assert told_by(script, hung) == [
        [[False, False, "the driver does not answer"]],
        [[False, True, "the driver does not answer"]],
    ]


@needs_compiler
@pytest.mark.parametrize("words", [("--fast",), ()])
def test_the_doctor_ends(hung: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "seatrial", "doctor", "--json", *words]
    done = subprocess.run(argv, env=environment(hung), cwd=tmp_path, capture_output=True, text=True, timeout=MOST_S, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["GPU driver"]["status"]) == (0, "warning"), done.stderr


@needs_compiler
def test_an_old_driver_is_asked_by_its_older_functions(tmp_path: Path) -> None:
    answers = tmp_path / "answers.txt"
    answer(answers, ("pid", 2**22 + 1), ("reasons", 0x8), ("count", 2))
    script = """
import json
from seatrial.preflight import gpus
from tests.unit.preflight.needs import make_need
print(json.dumps({check.name: check.found for check in gpus.checks(make_need()) if not check.ok}))
"""
    for old_driver in (True, False):
        found = told_by(script, answers, old_driver=old_driver)
        assert set(found) == {"GPUs idle", "GPU throttling", "PCIe link"}
        assert found["GPU throttling"] == "GPU 0: hardware slowdown; GPU 1: hardware slowdown"
        assert "GPU 0: a process (pid 4194305 on the host, 1 MiB)" in found["GPUs idle"]
