"""The questions themselves: who is asked what, and whom each host calls where."""

from __future__ import annotations

from typing import Any

from seatrial.preflight.hosts import exchanges
from seatrial.preflight.hosts.exchanges import asked, closing, file_of, first, gloo_is_told, peer_addresses, second, third, token_of, usable
from seatrial.preflight.hosts.wanted import GLOO, NCCL, PLACE
from tests.unit.preflight.hosts.told import make_answers, make_wanted

LISTENS: dict[str, Any] = {"rendezvous": {"port": 29650}, "call": {"port": 40000}}
NICS = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.1", "fe80::1"), "ib0": ("10.1.0.1",)}


def test_a_head_that_is_no_host_is_asked_too() -> None:
    assert asked(make_wanted("a", "b")) == ("a", "b") and asked(make_wanted("a", "b", head="laptop")) == ("a", "b", "laptop")


def test_first_each_is_asked_what_it_is_and_the_head_for_a_lock_and_a_port() -> None:
    questions = first(make_wanted("a", "b"), "n0nce", fast=True)
    head, other = questions["a"]["parts"], questions["b"]["parts"]
    assert set(head) - set(other) == {"lock", "call"} and {"facts", "gpus", "names", "programs", "paths", "space", "put"} <= set(other)
    assert head["put"]["name"] == file_of("n0nce", 0) != other["put"]["name"] and head["put"]["folder"] == "/out"
    assert "ssh" in first(make_wanted("a", "b"), "n", fast=False)["a"]["parts"]


def test_node_0_listens_on_the_plans_own_port_and_ranks_call_it_on_another() -> None:
    questions = first(make_wanted("a", "b", place={"port": 29500}), "n", fast=True)
    assert questions["a"]["parts"]["rendezvous"]["port"] == 29500 and questions["a"]["parts"]["peer"]["base"] == 29500
    assert questions["b"]["parts"]["rendezvous"]["port"] is None and "peer" not in questions["b"]["parts"]


def test_second_each_calls_node_0_its_neighbour_and_the_head() -> None:
    answers = make_answers(dict.fromkeys("abc", LISTENS), facts={"a": {"interfaces": NICS}}, files={"a": "f0", "b": "f1", "c": "f2"})
    questions = second(make_wanted("a", "b", "c"), "n", answers)
    reach = {host: questions[host]["parts"]["reach"]["targets"] for host in "abc"}
    assert set(reach["a"]) == {"peer b", "peer c"} and set(reach["b"]) == {"peer c", "rendezvous", "call"}
    assert reach["b"]["rendezvous"] == {"addresses": ["a"], "port": 29650, "token": token_of("n", "a")}
    assert reach["b"]["call"]["addresses"] == ["10.0.0.1", "10.1.0.1"] and reach["b"]["call"]["port"] == 40000
    assert "is_held" in questions["b"]["parts"] and "is_held" not in questions["a"]["parts"]


def test_third_the_head_looks_for_what_the_others_replaced() -> None:
    wanted, files = make_wanted("a", "b", "c"), {"a": "f0", "b": "f1", "c": "f2"}
    told = {"a": {"look": {"troubles": {"f2": "not there"}}}, "b": {"replace": {}}, "c": {"replace": {}}}
    questions = third(wanted, "n", make_answers({name: {} for name in "abc"}, second=told, files=files))
    assert list(questions) == ["a"] and set(questions["a"]["parts"]["look"]["wanted"]) == {"f1"}
    assert third(wanted, "n", make_answers({}, second=told, files=files)) == {}, "a head that is silent is asked nothing"


def test_closing_is_for_those_that_answered() -> None:
    assert closing(make_wanted("a", "b"), make_answers({"b": {}})) == {"b": {"ask": "close"}}


def test_peers_are_called_at_the_interface_that_is_named_else_by_name_else_anywhere() -> None:
    answers = make_answers(facts={"b": {"interfaces": NICS}})
    assert peer_addresses(make_wanted("a", "b", interfaces={PLACE: "ib0"}), answers, "b") == ["10.1.0.1"]
    assert peer_addresses(make_wanted("a", "b", interfaces={NCCL: "eno"}), answers, "b") == ["b"]
    assert peer_addresses(make_wanted("a", "b", kind="pernode"), answers, "b") == ["10.0.0.1", "10.1.0.1"]
    assert peer_addresses(make_wanted("a", "b", kind="pernode"), answers, "c") == []


def test_two_nodes_on_one_machine_may_have_no_other_address_than_loopback() -> None:
    same = {"host": "gpu-1", "boot_id": "x", "interfaces": NICS}
    facts = {"node0": same, "node1": same}
    listening = dict.fromkeys(facts, LISTENS)
    answers = make_answers(listening, facts=facts, files={"node0": "f0", "node1": "f1"})
    targets = second(make_wanted("node0", "node1", kind="pernode"), "n", answers)["node1"]["parts"]["reach"]["targets"]
    assert targets["peer node0"]["addresses"] == ["127.0.0.1", "10.0.0.1", "10.1.0.1"]


def test_gloo_is_told_by_its_variable_or_by_one_plain_name() -> None:
    for interfaces, told in (
        ({GLOO: "eth0"}, True),
        ({PLACE: "eth0"}, True),
        ({PLACE: "^lo"}, False),
        ({NCCL: "eth0"}, False),
        ({}, False),
    ):
        assert gloo_is_told(make_wanted("a", interfaces=interfaces)) is told


def test_usable_addresses() -> None:
    assert usable(["127.0.0.1", "::1", "FE80::1", "10.0.0.1", "fd00::1"]) == ["10.0.0.1", "fd00::1"]
    assert exchanges.in_parts({"a": {"ask": "clock"}}) == {"ask": "all", "parts": {"a": {"ask": "clock"}}}
