"""Who reaches whom: ports, the rendezvous, neighbours and the head."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.preflight.hosts.reach import checks, way_out
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted

LISTENS: dict[str, Any] = {"rendezvous": {"port": 29650}, "call": {"port": 40000}}


def _reach(**troubles: str) -> dict[str, Any]:
    return {"reach": {"troubles": {name.replace("_", " "): trouble for name, trouble in troubles.items()}}}


def test_all_is_well() -> None:
    answers = make_answers({"a": LISTENS, "b": LISTENS}, second={"a": _reach(), "b": _reach()})
    told = found(checks(make_wanted("a", "b"), answers))
    assert all(check.ok for check in told.values())
    assert {name for name, host in told if host == "b"} == {
        "a port to meet at",
        "reaches the rendezvous",
        "reaches other hosts",
        "reaches the head",
    }
    assert {name for name, host in told if host == "a"} == {"a port to meet at", "reaches other hosts"}
    assert told["reaches the rendezvous", "b"].found == "a port 29650" and told["reaches other hosts", "a"].found == "b"


def test_each_way_that_is_closed_is_told_with_what_to_open() -> None:
    troubles = {"rendezvous": "a: Connection refused", "peer_a": "10.0.0.1: No route to host", "call": "10.0.0.1: timed out"}
    answers = make_answers({"a": LISTENS, "b": LISTENS}, second={"a": _reach(), "b": _reach(**troubles)})
    told = found(checks(make_wanted("a", "b"), answers))
    assert told["reaches the rendezvous", "b"].found == "port 29650: a: Connection refused" and told["reaches the rendezvous", "b"].refuses
    assert "socketStartConnect: Connect to … failed : No route to host" in told["reaches other hosts", "b"].prevents
    assert told["reaches other hosts", "b"].found == "not a (10.0.0.1: No route to host)"
    assert told["reaches the head", "b"].found == "10.0.0.1: timed out" and "from b" in told["reaches the head", "b"].prevents


def test_of_many_that_are_not_reached_a_few_are_named() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    missed = {f"peer_{name}": "timed out" for name in names[1:]}
    answers = make_answers(dict.fromkeys(names, LISTENS), second={"a": _reach(**missed)})
    told = found(checks(make_wanted(*names), answers))
    assert told["reaches other hosts", "a"].found == "not b (timed out), c (timed out), d (timed out) and 2 more"


def test_a_port_that_cannot_be_had_names_the_plans_own_on_node_0_alone() -> None:
    busy = {"rendezvous": {"trouble": "Address already in use"}}
    told = found(checks(make_wanted("a", "b", place={"port": 29500}), make_answers({"a": busy, "b": busy})))
    assert told["a port to meet at", "a"].found == "port 29500: Address already in use"
    assert told["a port to meet at", "b"].found == "Address already in use"


def test_a_host_that_fell_silent_is_one_trouble_and_one_that_was_not_asked_none() -> None:
    answers = make_answers({"a": LISTENS, "b": LISTENS, "c": LISTENS}, second={"b": {"reach": {"trouble": "no answer within 10 s"}}})
    told = {key: check for key, check in found(checks(make_wanted("a", "b", "c"), answers)).items() if not check.ok}
    assert list(told) == [("reaches other hosts", "b")] and told["reaches other hosts", "b"].found == "no answer within 10 s"


@pytest.mark.parametrize(
    ("complaint", "begins"),
    [("Name or service not known", "mend the name"), ("cannot resolve it", "mend the name"), ("refused", "open it"), ("", "open it")],
)
def test_a_name_is_mended_before_a_port_is_opened(complaint: str, begins: str) -> None:
    assert way_out(complaint).startswith(begins)
