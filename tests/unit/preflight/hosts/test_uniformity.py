"""Hosts that differ from the others."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.core.control_connection.protocol import ClockOffset
from seatrial.preflight.check_definition import CheckDefinition
from seatrial.preflight.hosts.queries import Answers
from seatrial.preflight.hosts.uniformity import check_clocks, check_other_campaigns, check_versions, compare_hosts, most_common, offset_text
from seatrial.records.caution import Check
from tests.facts import states
from tests.unit.preflight.hosts.factory import found, make_answers, make_hosts_need, reply

SAME = CheckDefinition(name="version", what="that it is the same", prevents="a hang", fix="install the same", refuses=True)


def test_what_most_have_and_of_several_what_comes_first() -> None:
    assert most_common({}) == ""
    assert most_common({"a": "1"}) == "1"
    assert most_common({"a": "2", "b": "1", "c": "1"}) == "1"
    assert most_common({"a": "2", "b": "1"}) == "2", "two that differ have no majority: the first counts"


def test_each_host_is_held_against_the_others() -> None:
    checks = {one.host: one.check for one in compare_hosts(SAME, {"a": "1", "b": "1", "c": "2", "d": ""}, labels={"a": "a (gpu-1)"})}
    assert [host for host, check in checks.items() if check.ok] == ["a", "b"]
    assert checks["a"].found == "1" and checks["c"].found == "2; 1 on a (gpu-1), b" and checks["d"].found == "none; 1 on a (gpu-1), b"
    assert checks["c"].refuses


SOUND: dict[str, Any] = {"seatrial": "0.1.0", "code": "abcdef0123", "python": "3.11.7", "packages": {"torch": "2.4", "numpy": "2.0"}}


def _failed(other: dict[str, Any], **more: Any) -> dict[str, Check]:
    facts = {"a": SOUND, "b": SOUND, "c": {**SOUND, **other}}
    results = found(check_versions(make_hosts_need("a", "b", "c", **more), make_answers(facts=facts)))
    assert all(check.ok for (_, host), check in results.items() if host != "c")
    return {name: check for (name, host), check in results.items() if host == "c" and not check.ok}


def test_all_alike() -> None:
    assert _failed({}) == _failed({"python": "3.11.9"}) == _failed({"python": "", "packages": {}}) == {}
    assert found(check_versions(make_hosts_need("a"), make_answers())) == {}


@pytest.mark.parametrize(
    ("other", "name", "text"),
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
def test_what_differs_is_refused_with_both(other: dict[str, Any], name: str, text: str) -> None:
    failed = _failed(other)
    assert list(failed) == [name] and failed[name].found.startswith(text) and failed[name].refuses


def test_other_packages_are_reported_and_refused_only_where_the_plan_wants_it() -> None:
    other = {"packages": {"torch": "2.4", "einops": "1", "triton": "3", "xformers": "1"}}
    (check,) = _failed(other).values()
    assert states(check.found, "einops 1", "none", "numpy missing", "2.0", "triton 3", "none", "1 more") and not check.refuses
    (check,) = _failed(other, place={"alike": "refuse"}).values()
    assert check.refuses


def test_without_a_plan_nobody_knows_whether_torch_is_needed() -> None:
    (check,) = _failed({"packages": {"numpy": "2.0"}}, planned=False).values()
    assert check.name == "torch version" and not check.refuses


def test_others_are_named_a_few_of_them_and_this_campaign_is_none() -> None:
    need = make_hosts_need("a", "b", "c", output="/out/mine")
    answers = make_answers(facts={"a": {"campaigns": ("/out/mine/",)}, "b": {"campaigns": ("/1", "/2", "/out/mine", "/3", "/4")}})
    results = found(check_other_campaigns(need, answers))
    assert results["running campaigns", "a"].ok and results["running campaigns", "a"].found == "none"
    assert not results["running campaigns", "b"].ok and results["running campaigns", "b"].found == "/1, /2, /3"
    assert not results["running campaigns", "b"].refuses, "it is said, and the campaign goes on"
    assert ("running campaigns", "c") not in results, "one that told nothing has no row"


@pytest.mark.parametrize(
    ("offset_s", "round_trip_s", "ok"), [(0.0, 0.0, True), (1.0, 0.0, True), (-1.5, 0.0, False), (1.5, 1.2, True), (3600.0, 0.2, False)]
)
def test_a_clock_is_off_by_more_than_the_doubt(offset_s: float, round_trip_s: float, ok: bool) -> None:
    clock = ClockOffset(offset_s=offset_s, round_trip_s=round_trip_s)
    (check,) = found(check_clocks(make_hosts_need("a"), Answers(first={"a": reply(clock=clock)}))).values()
    assert check.ok is ok and check.found.startswith(f"{offset_text(offset_s)} (within {round_trip_s * 500:.0f} ms)")
    assert ("events are corrected" in check.found) is not ok


def test_a_clock_that_nobody_measured_has_no_row() -> None:
    answers = Answers(first={"a": reply(), "b": reply(trouble="no answer", clock=ClockOffset(offset_s=9.0, round_trip_s=0.0))})
    assert found(check_clocks(make_hosts_need("a", "b"), answers)) == {}


@pytest.mark.parametrize(
    ("offset_s", "text"), [(0.0, "the same"), (-0.04, "the same"), (0.05, "0.1 s ahead"), (-3600.0, "3600.0 s behind")]
)
def test_an_offset_as_text(offset_s: float, text: str) -> None:
    assert offset_text(offset_s) == text
