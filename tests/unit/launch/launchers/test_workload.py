"""The words after the launcher's own."""

from __future__ import annotations

from pathlib import Path

from seatrial.launch.launchers.workload import workload_words
from tests.unit.launch.factory import attempt_in, make_spec

CWD = Path("/job")
ATTEMPT = attempt_in(CWD)


def test_a_bundled_workload_reads_its_settings_from_the_attempts_file() -> None:
    spec = make_spec(CWD, module="seatrial_workloads.dummy.train", args=("--steps", "3"))
    assert workload_words(spec, ATTEMPT) == (
        *("-m", "seatrial_workloads.dummy.train", "--settings", "/job/out/mb8_r1/attempt-1/settings.json"),
        *("--steps", "3"),
    )


def test_a_script_gets_its_arguments_as_typed() -> None:
    assert workload_words(make_spec(CWD, args=("--name", "a b", "")), ATTEMPT) == ("train.py", "--name", "a b", "")


def test_without_a_script_the_arguments_are_all_there_is() -> None:
    assert workload_words(make_spec(CWD, script=None, args=("x",)), ATTEMPT) == ("x",)
    assert workload_words(make_spec(CWD, script=None), ATTEMPT) == ()
