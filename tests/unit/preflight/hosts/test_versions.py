"""Versions that must be the same on all hosts."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.preflight.hosts.versions import checks
from seatrial.records.check import Check
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted

SOUND: dict[str, Any] = {"seatrial": "0.1.0", "code": "abcdef0123", "python": "3.11.7", "packages": {"torch": "2.4", "numpy": "2.0"}}


def _amiss(other: dict[str, Any], **more: Any) -> dict[str, Check]:
    facts = {"a": SOUND, "b": SOUND, "c": {**SOUND, **other}}
    told = found(checks(make_wanted("a", "b", "c", **more), make_answers(facts=facts)))
    assert all(check.ok for (_, host), check in told.items() if host != "c")
    return {name: check for (name, host), check in told.items() if host == "c" and not check.ok}


def test_all_alike() -> None:
    assert _amiss({}) == {} and found(checks(make_wanted("a"), make_answers())) == {}


@pytest.mark.parametrize(
    ("other", "name", "words"),
    [
        ({"seatrial": "0.2.0"}, "Seatrial version", "0.2.0, code abcdef01; 0.1.0, code abcdef01 on a, b"),
        ({"code": "999999999999"}, "Seatrial version", "Seatrial's code differs: 0.1.0, code 99999999; "),
        ({"python": "3.12.1"}, "Python version", "3.12; 3.11 on a, b"),
        ({"packages": {"torch": "2.5", "numpy": "2.0"}}, "torch version", "2.5; 2.4 on a, b"),
        ({"torch_cuda": "12.4"}, "torch version", "2.4 for CUDA 12.4; 2.4 on a, b"),
        ({"packages": {**SOUND["packages"], "deepspeed": "0.15"}}, "deepspeed version", "0.15; none on a, b"),
        ({"packages": {**SOUND["packages"], "nvidia-nccl-cu12": "2.21"}}, "NCCL version", "2.21; none on a, b"),
    ],
)
def test_what_differs_is_refused_with_both(other: dict[str, Any], name: str, words: str) -> None:
    amiss = _amiss(other)
    assert list(amiss) == [name] and amiss[name].found.startswith(words) and amiss[name].refuses


def test_a_patch_release_of_python_is_the_same() -> None:
    assert _amiss({"python": "3.11.9"}) == {}


def test_other_packages_are_said_and_refused_only_where_the_plan_wants_it() -> None:
    other = {"packages": {"torch": "2.4", "einops": "1", "triton": "3", "xformers": "1"}}
    (check,) = _amiss(other).values()
    assert (
        check.found == "einops 1 (none elsewhere), numpy missing (2.0 elsewhere), triton 3 (none elsewhere) and 1 more"
        and not check.refuses
    )
    (check,) = _amiss(other, place={"alike": "refuse"}).values()
    assert check.refuses


def test_without_a_plan_nobody_knows_whether_torch_is_needed() -> None:
    (check,) = _amiss({"packages": {"numpy": "2.0"}}, planned=False).values()
    assert check.name == "torch version" and not check.refuses


def test_an_interpreter_that_told_nothing_is_not_compared() -> None:
    assert _amiss({"python": "", "packages": {}}) == {}
