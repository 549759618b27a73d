"""Who differs from the others."""

from __future__ import annotations

from seatrial.preflight.hosts.alike import compared, most_common
from seatrial.preflight.question import Question

SAME = Question(name="version", looks_at="that it is the same", prevents="a hang", fix="install the same", refuses=True)


def test_what_most_have_and_of_several_what_comes_first() -> None:
    assert most_common({}) == ""
    assert most_common({"a": "1"}) == "1"
    assert most_common({"a": "2", "b": "1", "c": "1"}) == "1"
    assert most_common({"a": "2", "b": "1"}) == "2", "two that differ have no majority: the first counts"


def test_each_host_is_held_against_the_others() -> None:
    checks = {one.host: one.check for one in compared(SAME, {"a": "1", "b": "1", "c": "2", "d": ""}, labels={"a": "a (gpu-1)"})}
    assert [host for host, check in checks.items() if check.ok] == ["a", "b"]
    assert checks["a"].found == "1" and checks["c"].found == "2; 1 on a (gpu-1), b" and checks["d"].found == "none; 1 on a (gpu-1), b"
    assert checks["c"].refuses


def test_a_softer_answer_and_nobody_at_all() -> None:
    assert not any(one.check.refuses for one in compared(SAME, {"a": "1", "b": "2"}, refuses=False))
    assert list(compared(SAME, {})) == []
    assert [one.check.found for one in compared(SAME, {"a": "", "b": ""})] == ["none", "none"]
