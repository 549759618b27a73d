"""Every host of a run examined at once, by ssh and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.preflight import examine_by_commands, need_of_this_host
from seatrial.core.hostfile import HostSpec
from seatrial.preflight.check_definition import CheckRow, HostsExamined, Need, folded
from seatrial.preflight.hosts import run_checks
from seatrial.preflight.hosts.queries import (
    NCCL,
    PLACE,
    PernodeFacts,
    file_of,
    first_requests,
    hosts_of,
    need_of_head,
    peer_addresses,
    second_requests,
    third_requests,
    token_of,
)
from seatrial.preflight.hosts.run_checks import examine_hosts, host_definitions
from seatrial.preflight.hosts.uniformity import memory_texts
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec, RunSpec
from tests.facts import states
from tests.unit.preflight.hosts.factory import FakeHosts, examined, failed, make_answers, make_hosts_need, specs
from tests.unit.preflight.needs import make_need, make_run


def test_sound_hosts_are_in_order_and_reported() -> None:
    found = examined(FakeHosts("node1", "node2"))
    assert failed(found) == {}
    assert found.facts["node2"].gpus == ("H100",) * 8 and found.facts["node2"].name == "node2"
    assert found.facts["node1"].clock_offset_s == 0.001
    assert [section.subject for section in found.sections if section.subject != "interfaces"] == [
        title for title in host_definitions() if title != "interfaces"
    ]


def test_time_grows_with_the_slowest_host_and_not_with_their_number() -> None:
    few = FakeHosts("node0", "node1", slow_s={"node1": 1.0})
    many = FakeHosts(*(f"node{number}" for number in range(64)), slow_s={"node40": 1.0})
    assert failed(examined(few)) == {} == failed(examined(many))
    # Of two hosts there is one link, of 64 there are as many: two rounds of trials do.
    assert many.exchanges == few.exchanges + 1 <= 6
    assert many.time_s == few.time_s + 1.0 <= 6.0
    # In the short form the queries of one host do not grow with the number of hosts either, but for node 0's.
    targets = many.requests[1]["node7"]["parts"]["reach"]["targets"]
    assert set(targets) == {"peer node8", "rendezvous", "call"}
    assert len(many.requests[1]["node0"]["parts"]["reach"]["targets"]) == 63


def test_a_host_that_does_not_answer_has_one_finding_and_is_asked_nothing_more() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.trouble("node3", "ssh: connect to host node3 port 22: Connection refused (ended with 255)")
    found = examined(hosts)
    assert list(failed(found)) == [("ssh", "node3")]
    assert all("node3" not in asked for asked in hosts.requests[1:])
    assert set(found.facts) == {"node1", "node2"}
    # The ring closes over those that live.
    assert "peer node1" in hosts.requests[1]["node2"]["parts"]["reach"]["targets"]


def test_a_silent_head_still_gives_rows() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("this machine", "no answer within 14 s")
    assert failed(examined(hosts, head="this machine")) == {}


def test_what_was_opened_is_closed_also_when_an_exchange_breaks() -> None:
    class Breaking(FakeHosts):
        def __call__(self, queries, timeout_s, /):  # type: ignore[no-untyped-def]
            if self.exchanges == 1:
                self.exchanges += 1
                raise KeyboardInterrupt
            return super().__call__(queries, timeout_s)

    hosts = Breaking("node1", "node2")
    with pytest.raises(KeyboardInterrupt):
        examined(hosts)
    assert hosts.requests[-1] == {"node1": {"ask": "close"}, "node2": {"ask": "close"}}


def test_answers_of_another_shape_are_reported_of_and_break_nothing() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "facts", cpu_count="many")
    hosts.change("node2", "names", addresses="none")
    hosts.change("node2", "space", folders=[1])
    hosts.change("node2", "reach", troubles=3)
    found = examined(hosts)
    assert "node2" not in found.facts
    assert not [check for check in failed(found).values() if check.name.startswith("checks of")]


def test_checks_that_break_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(need: object, answers: object) -> list[object]:
        raise RuntimeError("odd")

    monkeypatch.setattr(run_checks, "SUBJECTS", (run_checks.Subject(title="clocks", definitions=(), checks=broken),))  # type: ignore[arg-type]
    (check,) = failed(examined(FakeHosts("node1"))).values()
    assert (check.name, check.found, check.refuses) == ("checks of clocks", "RuntimeError: odd", False)


def test_like_findings_are_folded_with_their_hosts_in_the_name() -> None:
    def one(found: str, ok: bool) -> Check:
        return Check(name="clock", ok=ok, found=found, prevents="x", fix="y", refuses=False)

    many = {f"node{number}": one("off", False) for number in range(7)}
    row = CheckRow(name="clock", checks={**many, "a": one("1 ms", True), "b": one("2 ms", True)})
    assert [check.name for check in folded(row)] == ["clock on node0, node1, node2, node3 and 3 more", "clock on a, b"]


def test_what_hosts_say_cannot_steer_the_terminal() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("node2", "\x1b[2Jboo")
    assert "\x1b" not in failed(examined(hosts))["ssh", "node2"].found


def test_hosts_of_a_plan_are_taken_once_with_their_most_ranks(tmp_path: Path) -> None:
    need = make_need(_on(tmp_path, HostSpec(name="a", ranks=1), HostSpec(name="b", ranks=2)), _on(tmp_path, HostSpec(name="a", ranks=4)))
    assert hosts_of(need) == (HostSpec(name="a", ranks=4), HostSpec(name="b", ranks=2))


def test_the_head_alone_is_asked_for_its_own_share(tmp_path: Path) -> None:
    need = make_need(_on(tmp_path, HostSpec(name="a", ranks=2), HostSpec(name="b", ranks=4, devices=("1",)), port=29500))
    (own,) = need_of_head(need, "b").runs
    assert (own.place.kind, own.place.ranks, own.place.devices, own.place.port) == ("local", 4, ("1",), None)
    assert need_of_head(need, "a").runs[0].place.port == 29500
    assert need_of_head(need, "elsewhere").runs == ()


def _on(cwd: Path, *hosts: HostSpec, port: int | None = None) -> RunSpec:
    place = PlaceSpec(kind="hostfile", hosts=hosts, ranks=sum(host.ranks for host in hosts), port=port)
    return replace(make_run(cwd, bundled="dummy"), place=place)


DEFINITIONS = [definition for definitions in host_definitions().values() for definition in definitions]


def test_no_two_queries_have_one_name() -> None:
    assert len({definition.name for definition in DEFINITIONS}) == len(DEFINITIONS)


def planned(cwd: Path, *names: str, ranks: int = 1, devices: tuple[str, ...] = (), **more: object) -> Need:
    hosts = tuple(HostSpec(name=name, ranks=ranks, devices=devices) for name in names)
    env = more.pop("env", {})
    run = make_run(cwd, **({"script": "train.py"} | more), env=env)  # type: ignore[arg-type]
    place = PlaceSpec(kind="hostfile", hosts=hosts, ranks=ranks * len(hosts), devices=devices)
    return make_need(replace(run, place=place), output=cwd, base_env={"PATH": "/usr/bin"})


def test_two_checkouts_of_one_version_differ_the_head_s_too() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    for host in (*hosts.names, "this machine"):
        hosts.change(host, "facts", code="aaaaaaaa0000" if host != "node3" else "bbbbbbbb0000")
    (found,) = failed(examined(hosts, head="this machine")).items()
    assert found[0] == ("Seatrial version", "node3") and found[1].refuses
    assert states(found[1].found, "code bbbbbbbb", "code aaaaaaaa", "node1, node2, this machine")
    hosts.change("this machine", "facts", code="cccccccc0000")
    hosts.change("node3", "facts", code="aaaaaaaa0000")
    (found,) = failed(examined(hosts, head="this machine")).items()
    assert found[0] == ("Seatrial version", "this machine") and "Seatrial's code differs" in found[1].found


def test_a_script_that_is_another_on_one_host(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    script = str(tmp_path / "train.py")
    for host in hosts.names:
        hosts.change(host, "paths", digests={script: "1" * 64 if host != "node2" else "2" * 64})
    found = examined(hosts, planned(tmp_path, *hosts.names))
    (check,) = [check for check in found.checks if not check.ok]
    assert check.name == "script contents on node2" and check.refuses
    assert check.found == "train.py differs: 22222222; 11111111 on node1, node3"
    assert found.facts["node2"].scripts == {script: "2" * 64}


@pytest.mark.parametrize(("alike", "refuses"), [("say", False), ("refuse", True)])
def test_hosts_of_unlike_make(alike: str, refuses: bool) -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.change("node2", "gpus", gpus=["A100"] * 8, driver_version="535.2")
    hosts.change("node3", "facts", cpu="Xeon", memory_bytes=256 << 30)
    found = failed(examined(hosts, alike=alike))
    assert set(found) == {("GPU model", "node2"), ("GPU driver version", "node2"), ("processor", "node3"), ("host memory", "node3")}
    assert {check.refuses for check in found.values()} == {refuses}
    assert found["GPU model", "node2"].found == "8 x A100; 8 x H100 on node1, node3"


def test_memory_is_alike_within_a_twentieth() -> None:
    assert memory_texts({"a": 512 << 30, "b": 505 << 30, "c": 256 << 30}) == {"a": "512 GiB", "b": "512 GiB", "c": "256 GiB"}


def test_gpus_enough_for_the_ranks(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "gpus", gpus=["H100"] * 2)
    need = planned(tmp_path, "node1", "node2", ranks=4, devices=("0", "1", "2", "3"))
    where = need.runs[0].place
    found = failed(examine_hosts(hosts, need, where.hosts, head="node1", fast=True))
    assert found["GPUs for its ranks", "node2"].refuses and found["GPUs for its ranks", "node2"].found == "2 GPUs, 4 needed"
    hosts.change("node2", "gpus", trouble="the driver does not answer", gpus=[])
    found = failed(examine_hosts(hosts, need, where.hosts, head="node1", fast=True))
    assert not found["GPUs for its ranks", "node2"].refuses, "a driver that hangs is no proof that there are none"


def test_interfaces_of_variables(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    env = {"NCCL_SOCKET_IFNAME": "^lo,docker", "GLOO_SOCKET_IFNAME": "^lo"}
    found = failed(examined(hosts, planned(tmp_path, "node1", "node2", env=env)))
    assert {name for name, _ in found} == {"interface by GLOO_SOCKET_IFNAME"}
    assert "Unable to find address for: ^lo" in found["interface by GLOO_SOCKET_IFNAME", "node1"].prevents


def test_names_that_mean_something_else(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4")
    sound = {name: [hosts.address(name)] for name in hosts.names}
    hosts.change("node2", "names", addresses={**sound, "node1": ["127.0.0.1"]})
    hosts.change("node3", "names", addresses={**sound, "node1": ["192.168.0.9"]})
    hosts.change("node4", "names", addresses={**sound, "node1": []}, troubles={"node1": "Name or service not known"})
    found = failed(examined(hosts))
    assert found["name resolution", "node2"].prevents == "a rendezvous on 127.0.0.1, where each host waits for itself"
    assert "The client socket has timed out" in found["name resolution", "node3"].prevents
    assert "192.168.0.9 here, 10.0.0.1 elsewhere" in found["name resolution", "node3"].found
    assert "Name or service not known" in found["name resolution", "node4"].prevents
    assert all(check.refuses for check in found.values()) and len(found) == 3


def test_an_own_name_on_loopback_breaks_gloo_unless_it_has_an_interface(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "names", addresses={"node1": ["10.0.0.1"], "node2": ["127.0.1.1"]})
    need = planned(tmp_path, "node1", "node2")
    assert not failed(examined(hosts, need))["own name", "node2"].refuses, "one alone is found all the same"
    hosts.change("node1", "names", addresses={"node1": ["127.0.1.1"], "node2": ["10.0.0.2"]})
    found = failed(examined(hosts, need))["own name", "node2"]
    assert found.refuses and "connectFullMesh failed" in found.prevents and "place.interface: eth0" in found.fix
    assert failed(examined(hosts, need, interface="eth0")) == {}
    on_gpus = planned(tmp_path, "node1", "node2", devices=("0",))
    assert not failed(examined(hosts, on_gpus))["own name", "node2"].refuses, "NCCL never asks for the name"


NAMES = ("node0", "node1", "node2")
ADDRESSES = {"gpu-a": ["10.0.0.1"]}


def nodes(*names: str) -> FakeHosts:
    """Whose hosts call themselves otherwise, and know the master's address alone."""
    hosts = FakeHosts(*names)
    for name, own in zip(names, ("gpu-a", "gpu-b", "gpu-c"), strict=False):
        hosts.change(name, "facts", host=own)
        hosts.change(name, "names", own=own, addresses={**ADDRESSES, own: [hosts.address(name)]}, troubles={})
    return hosts


def looked_at(hosts: FakeHosts, **place: Any) -> HostsExamined:
    where = PlaceSpec(kind="pernode", nodes=len(hosts.names), ranks=len(hosts.names), **{"master_addr": "gpu-a", **place})
    gathered = PernodeFacts(addresses=("gpu-a", "10.0.0.1"), host_names={"node2": "gpu-c"})
    return examine_hosts(hosts, make_need(), specs(*hosts.names), head="node0", fast=True, place=where, pernode=gathered)


def test_nothing_but_the_master_s_address_is_looked_up() -> None:
    hosts = nodes(*NAMES)
    found = looked_at(hosts)
    assert failed(found) == {}
    assert hosts.requests[0]["node1"]["parts"]["names"]["names"] == ["gpu-a"]
    rows = {row.name for row in found.rows}
    assert "master address" in rows and rows.isdisjoint({"name resolution", "ssh", "pdsh", "ssh program"})


def test_a_master_s_address_that_means_nothing_or_loopback() -> None:
    hosts = nodes("node0", "node1", "node2", "node3")
    # Node 0 itself may take it for loopback, which is only said.
    hosts.change("node0", "names", addresses={"gpu-a": ["127.0.1.1"]})
    hosts.change("node1", "names", addresses={"gpu-a": ["127.0.1.1"]})
    hosts.change("node2", "names", addresses={"gpu-a": []}, troubles={"gpu-a": "Name or service not known"})
    hosts.change("node3", "names", addresses=ADDRESSES)
    found = failed(looked_at(hosts))
    assert set(found) == {("own name", "node0"), ("master address", "node1"), ("master address", "node2")}
    assert not found["own name", "node0"].refuses
    assert found["master address", "node1"].found == "gpu-a is 127.0.1.1 here" and found["master address", "node1"].refuses
    assert "Name or service not known" in found["master address", "node2"].prevents
    assert "--master-addr" in found["master address", "node2"].fix


def test_nodes_are_shown_with_what_their_hosts_call_themselves() -> None:
    hosts = nodes(*NAMES)
    hosts.change("node1", "facts", seatrial="0.0.9")
    hosts.change("node0", "reach", troubles={"peer node1": "10.0.0.2: No route to host"})
    hosts.trouble("node2", "the command on node2 has ended")
    named = {check.name: check.found for check in looked_at(hosts).checks if not check.ok}
    assert named["Seatrial version on node1 (gpu-b)"] == "0.0.9; 0.1.0 on node0 (gpu-a)"
    assert named["reaches other hosts on node0 (gpu-a)"] == "not node1 (gpu-b) (10.0.0.2: No route to host)"
    assert named["Python and Seatrial on node2 (gpu-c)"] == "the command on node2 has ended"
    assert set(looked_at(hosts).facts) == {"node0", "node1"}, "the campaign knows them by their ranks"


def test_nodes_on_one_machine_are_reported_and_may_use_loopback() -> None:
    hosts = nodes("node0", "node1")
    for name in hosts.names:
        hosts.change(name, "facts", host="box", boot_id="one", interfaces={"lo": ["127.0.0.1"]})
        hosts.change(name, "names", addresses={"127.0.0.1": ["127.0.0.1"]})
    (found,) = failed(looked_at(hosts, master_addr="127.0.0.1")).items()
    assert found[0] == ("distinct machines", "node1") and not found[1].refuses and found[1].found == "node0 and node1 are both box"
    assert hosts.requests[1]["node0"]["parts"]["reach"]["targets"]["peer node1"]["addresses"] == ["127.0.0.1"]


class FakeServer:
    """As much of the server as the doctor needs."""

    def __init__(self, hosts: FakeHosts) -> None:
        self.ask, self.nodes, self.master_addr, self.addresses = hosts, hosts.names, "gpu-a", ["gpu-a", "10.0.0.1"]

    def hostname_of(self, node: str) -> str:
        return {"node0": "gpu-a"}.get(node, "gpu-b")


def test_the_server_s_address_is_the_master_s_unless_the_plan_names_one(tmp_path: Path) -> None:
    need = pernode_need(tmp_path)
    for given, expected in (("", "gpu-a"), ("10.0.0.1", "10.0.0.1")):
        hosts = nodes("node0", "node1")
        for name in hosts.names:
            hosts.change(name, "names", addresses={"gpu-a": ["10.0.0.1"], "10.0.0.1": ["10.0.0.1"]})
        runs = tuple(replace(spec, place=replace(spec.place, master_addr=given)) for spec in need.runs)
        found = examine_by_commands(replace(need, runs=runs), FakeServer(hosts), fast=True)  # type: ignore[arg-type]
        assert failed(found) == {}
        targets = hosts.requests[1]["node1"]["parts"]["reach"]["targets"]
        assert targets["rendezvous"]["addresses"] == [expected] and targets["call"]["addresses"] == ["gpu-a", "10.0.0.1"]


def pernode_need(cwd: Path) -> Any:
    place = PlaceSpec(kind="pernode", nodes=2, ranks=8, devices=("0", "1", "2", "3"), port=29500)
    return make_need(replace(make_run(cwd, bundled="dummy"), place=place), output=cwd)


def test_a_node_alone_is_asked_for_its_own_share(tmp_path: Path) -> None:
    for own in (need_of_head(pernode_need(tmp_path), "this machine"), need_of_this_host(pernode_need(tmp_path), ())):
        (spec,) = own.runs
        assert (spec.place.kind, spec.place.ranks, spec.place.devices, spec.place.port) == ("local", 4, ("0", "1", "2", "3"), 29500)


LISTENS: dict[str, Any] = {"rendezvous": {"port": 29650}, "call": {"port": 40000}}
NICS = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.1", "fe80::1"), "ib0": ("10.1.0.1",)}


def test_first_each_is_asked_what_it_is_and_the_head_for_a_lock_and_a_port() -> None:
    definitions = first_requests(make_hosts_need("a", "b"), "n0nce", fast=True)
    head, other = definitions["a"]["parts"], definitions["b"]["parts"]
    assert set(head) - set(other) == {"lock", "call"} and {"facts", "gpus", "names", "programs", "paths", "space", "put"} <= set(other)
    assert head["put"]["name"] == file_of("n0nce", 0) != other["put"]["name"] and head["put"]["folder"] == "/out"
    assert "ssh" in first_requests(make_hosts_need("a", "b"), "n", fast=False)["a"]["parts"]


def test_node_0_listens_on_the_plans_own_port_and_ranks_call_it_on_another() -> None:
    definitions = first_requests(make_hosts_need("a", "b", place={"port": 29500}), "n", fast=True)
    assert definitions["a"]["parts"]["rendezvous"]["port"] == 29500 and definitions["a"]["parts"]["peer"]["base"] == 29500
    assert definitions["b"]["parts"]["rendezvous"]["port"] is None and "peer" not in definitions["b"]["parts"]


def test_second_each_calls_node_0_its_neighbour_and_the_head() -> None:
    answers = make_answers(dict.fromkeys("abc", LISTENS), facts={"a": {"interfaces": NICS}}, files={"a": "f0", "b": "f1", "c": "f2"})
    definitions = second_requests(make_hosts_need("a", "b", "c"), "n", answers)
    reach = {host: definitions[host]["parts"]["reach"]["targets"] for host in "abc"}
    assert set(reach["a"]) == {"peer b", "peer c"} and set(reach["b"]) == {"peer c", "rendezvous", "call"}
    assert reach["b"]["rendezvous"] == {"addresses": ["a"], "port": 29650, "token": token_of("n", "a")}
    assert reach["b"]["call"]["addresses"] == ["10.0.0.1", "10.1.0.1"] and reach["b"]["call"]["port"] == 40000
    assert "is_held" in definitions["b"]["parts"] and "is_held" not in definitions["a"]["parts"]


def test_third_the_head_looks_for_what_the_others_replaced() -> None:
    need, files = make_hosts_need("a", "b", "c"), {"a": "f0", "b": "f1", "c": "f2"}
    second = {"a": {"look": {"troubles": {"f2": "not there"}}}, "b": {"replace": {}}, "c": {"replace": {}}}
    definitions = third_requests(need, "n", make_answers({name: {} for name in "abc"}, second=second, files=files))
    assert list(definitions) == ["a"] and set(definitions["a"]["parts"]["look"]["wanted"]) == {"f1"}
    assert third_requests(need, "n", make_answers({}, second=second, files=files)) == {}, "a head that is silent is asked nothing"


def test_peers_are_called_at_the_interface_that_is_named_else_by_name_else_anywhere() -> None:
    answers = make_answers(facts={"b": {"interfaces": NICS}})
    assert peer_addresses(make_hosts_need("a", "b", interfaces={PLACE: "ib0"}), answers, "b") == ["10.1.0.1"]
    assert peer_addresses(make_hosts_need("a", "b", interfaces={NCCL: "eno"}), answers, "b") == ["b"]
    assert peer_addresses(make_hosts_need("a", "b", kind="pernode"), answers, "b") == ["10.0.0.1", "10.1.0.1"]
    assert peer_addresses(make_hosts_need("a", "b", kind="pernode"), answers, "c") == []
