"""Interfaces that a plan or the caller names, by the rules of NCCL and of Gloo."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.preflight.hosts.interfaces import checks
from seatrial.preflight.hosts.wanted import GLOO, NCCL, PLACE
from seatrial.records.check import Check
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted

THERE = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.1",), "ib0": (), "eth1": ("fe80::1",)}


def _check(who: str, text: str, interfaces: Any = THERE) -> Check:
    wanted = make_wanted("a", interfaces={who: text})
    return found(checks(wanted, make_answers(facts={"a": {"interfaces": interfaces}})))[f"interface by {who}", "a"]


@pytest.mark.parametrize(("who", "text"), [(PLACE, "eth0"), (NCCL, "eth"), (NCCL, "^lo"), (NCCL, "=eth0"), (GLOO, "eth0")])
def test_one_that_is_up_and_has_an_address(who: str, text: str) -> None:
    assert _check(who, text).ok and _check(who, text).found == "eth0 10.0.0.1"


@pytest.mark.parametrize(
    ("who", "text", "words"),
    [
        (NCCL, "ib", "ib0 has no address"),
        (NCCL, "eno", "nothing that is up fits 'eno'"),
        (NCCL, "lo", "'lo' takes lo first, which is loopback"),
        (GLOO, "eth", "no interface eth that is up"),
        (GLOO, "=eth0", "'=eth0' is NCCL's way of writing: Gloo takes whole names only"),
        (GLOO, "lo", "lo has no address that others can reach"),
        (GLOO, "eth1", "eth1 has no address that others can reach"),
    ],
)
def test_one_that_is_of_no_use_is_refused_with_those_that_are(who: str, text: str, words: str) -> None:
    check = _check(who, text)
    assert not check.ok and check.refuses and check.found == words and "(eth0)" in check.fix


def test_a_host_without_any_is_told_so() -> None:
    assert "this one has none with an address" in _check(NCCL, "eth0", {}).fix


def test_nobody_names_one_and_a_host_that_told_nothing() -> None:
    assert found(checks(make_wanted("a"), make_answers(facts={"a": {"interfaces": THERE}}))) == {}
    assert found(checks(make_wanted("a", interfaces={PLACE: "eth0"}), make_answers())) == {}
