"""One row after the other: what is amiss, the later error as people see it, the fix, and whether it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seatrial.preflight.hosts.makes import memory_texts
from seatrial.preflight.need import Need
from seatrial.records.line import ClockOffset
from seatrial.records.run_spec import HostSpec, PlaceSpec
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, amiss, examined, specs
from tests.unit.preflight.needs import make_need, make_run


def planned(cwd: Path, *names: str, ranks: int = 1, devices: tuple[str, ...] = (), **more: object) -> Need:
    hosts = tuple(HostSpec(name=name, ranks=ranks, devices=devices) for name in names)
    env = more.pop("env", {})
    run = make_run(cwd, **({"script": "train.py"} | more), env=env)  # type: ignore[arg-type]
    place = PlaceSpec(kind="hostfile", hosts=hosts, ranks=ranks * len(hosts), devices=devices)
    return make_need(dataclasses.replace(run, place=place), output=cwd, caller={"PATH": "/usr/bin"})


@pytest.mark.parametrize(
    ("said", "error", "fix"),
    [
        ("ann@node2: Permission denied (publickey). (ended with 255)", "Permission denied (publickey)", "ssh-copy-id node2"),
        ("Host key verification failed. (ended with 255)", "Host key verification failed", "ssh-keyscan node2"),
        ("ssh: Could not resolve hostname node2: Name or service not known", "Could not resolve hostname node2", "hostfile"),
        ("ssh: connect to host node2 port 22: Connection refused", "Connection refused", "start sshd"),
        ("ssh: connect to host node2 port 22: No route to host", "Connection timed out", "place.exclude: node2"),
        ("the session has not begun within 20 s", "Connection timed out", "ping node2"),
        ("kex_exchange_identification: odd", "kex_exchange_identification: odd", "ssh -v -o BatchMode=yes node2 true"),
    ],
)
def test_ssh_that_lets_nobody_in(said: str, error: str, fix: str) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("node2", said)
    (found,) = amiss(examined(hosts)).items()
    assert found[0] == ("ssh", "node2") and found[1].refuses
    assert error in found[1].prevents and fix in found[1].fix and found[1].found == said


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("env: ‘/opt/venv/bin/python’: No such file or directory (ended with 127)", "No such file or directory"),
        ("bash: line 1: /opt/venv/bin/python: No such file or directory (ended with 127)", "No such file or directory"),
        ("/usr/bin/python3: No module named seatrial (ended with 1)", "No module named seatrial"),
        (
            "/usr/bin/python3: Error while finding module specification: No module named 'seatrial.agent.answers' (ended with 1)",
            "No module",
        ),
    ],
)
def test_a_python_that_does_not_start(said: str, error: str) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.trouble("node2", said)
    (found,) = amiss(examined(hosts)).items()
    assert found[0] == ("Python and Seatrial", "node2") and found[1].refuses
    assert error in found[1].prevents and "place.python" in found[1].fix


def test_the_head_that_cannot_enter_itself_is_only_a_warning_and_only_in_the_long_form() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "ssh", trouble="node1: Permission denied (publickey).")
    (found,) = amiss(examined(hosts, fast=False)).items()
    assert found[0] == ("ssh to itself", "node1") and not found[1].refuses and "Permission denied (publickey)" in found[1].prevents
    assert amiss(examined(hosts)) == {}


def test_two_names_of_one_machine() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "facts", host="node1", boot_id="boot of node1")
    found = amiss(examined(hosts))["a machine of its own", "node2"]
    assert found.refuses and found.found == "node1 and node2 are both node1"


def test_versions_name_who_differs() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.change("node3", "facts", packages={"torch": "2.12.0", "deepspeed": "0.19.8", "numpy": "1.0"}, python="3.12.1", seatrial="0.0.9")
    found = amiss(examined(hosts))
    assert {name for name, host in found} == {"Seatrial version", "Python version", "torch version", "other packages"}
    assert {host for _, host in found} == {"node3"}
    assert found["torch version", "node3"].found == "2.12.0; 2.13.0 on node1, node2"
    assert found["other packages", "node3"].found == "numpy 1.0 (2.4.6 elsewhere)"
    assert not found["other packages", "node3"].refuses


def test_two_checkouts_of_one_version_differ_the_head_s_too() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    for host in (*hosts.names, "this machine"):
        hosts.change(host, "facts", code="aaaaaaaa0000" if host != "node3" else "bbbbbbbb0000")
    (found,) = amiss(examined(hosts, head="this machine")).items()
    assert found[0] == ("Seatrial version", "node3") and found[1].refuses
    assert found[1].found == "Seatrial's code differs: 0.1.0, code bbbbbbbb; 0.1.0, code aaaaaaaa on node1, node2, this machine"
    hosts.change("this machine", "facts", code="cccccccc0000")
    hosts.change("node3", "facts", code="aaaaaaaa0000")
    (found,) = amiss(examined(hosts, head="this machine")).items()
    assert found[0] == ("Seatrial version", "this machine") and "Seatrial's code differs" in found[1].found


def test_a_script_that_is_another_on_one_host(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    script = str(tmp_path / "train.py")
    for host in hosts.names:
        hosts.change(host, "paths", digests={script: "1" * 64 if host != "node2" else "2" * 64})
    found = examined(hosts, planned(tmp_path, *hosts.names))
    (check,) = [check for check in found.checks if not check.ok]
    assert check.name == "text of the script on node2" and check.refuses
    assert check.found == "train.py differs: 22222222; 11111111 on node1, node3"
    assert found.facts["node2"].scripts == {script: "2" * 64}


def test_unlike_torch_refuses_a_plan(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "facts", packages={"torch": "2.12.0", "deepspeed": "0.19.8", "numpy": "2.4.6"})
    assert amiss(examined(hosts, planned(tmp_path, "node1", "node2")))["torch version", "node2"].refuses
    assert not amiss(examined(hosts))["torch version", "node2"].refuses, "without a plan nobody needs torch"


@pytest.mark.parametrize(("alike", "refuses"), [("say", False), ("refuse", True)])
def test_hosts_of_unlike_make(alike: str, refuses: bool) -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.change("node2", "gpus", gpus=["A100"] * 8, driver_version="535.2")
    hosts.change("node3", "facts", cpu="Xeon", memory_bytes=256 << 30)
    found = amiss(examined(hosts, alike=alike))
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
    from seatrial.preflight.hosts.examine import examine_hosts

    found = amiss(examine_hosts(hosts, need, where.hosts, head="node1", fast=True))
    assert found["GPUs for its ranks", "node2"].refuses and found["GPUs for its ranks", "node2"].found == "2 GPUs, 4 needed"
    hosts.change("node2", "gpus", trouble="the driver does not answer", gpus=[])
    found = amiss(examine_hosts(hosts, need, where.hosts, head="node1", fast=True))
    assert not found["GPUs for its ranks", "node2"].refuses, "a driver that hangs is no proof that there are none"


def test_pdsh_is_needed_where_the_plan_asks_for_it() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "programs", where={"ssh": "/usr/bin/ssh"})
    assert amiss(examined(hosts)) == {}
    found = amiss(examined(hosts, via="pdsh"))["pdsh", "node1"]
    assert found.refuses and found.prevents == "RuntimeError: launcher 'pdsh' not installed" and "place.via: ssh" in found.fix


def test_ninja_where_deepspeed_builds(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "programs", where={"ssh": "/usr/bin/ssh", "pdsh": "/usr/bin/pdsh"})
    found = amiss(examined(hosts, planned(tmp_path, "node1", "node2", kind="deepspeed")))["ninja", "node2"]
    assert not found.refuses and "Unable to JIT load the fused_adam op due to ninja not being installed" in found.prevents


@pytest.mark.parametrize(
    ("interface", "interfaces", "error"),
    [
        ("ib", {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}, "Bootstrap : no socket interface found"),
        ("=eth", {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}, "Bootstrap : no socket interface found"),
        ("eth0", {"lo": ["127.0.0.1"], "eth0": []}, "Bootstrap : no socket interface found"),
        ("^eth0", {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}, "socketStartConnect: Connect to 127.0.0.1<…> failed"),
    ],
)
def test_interfaces_that_will_not_do(interface: str, interfaces: dict[str, list[str]], error: str) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "facts", interfaces={"lo": ["127.0.0.1"], "ib0": ["10.1.0.1"], "eth": ["10.0.0.1"], "eth0": ["10.0.0.1"]})
    hosts.change("node2", "facts", interfaces=interfaces)
    found = amiss(examined(hosts, interface=interface))["interface by place.interface", "node2"]
    assert found.refuses and error in found.prevents and "place.interface" in found.fix


def test_interfaces_of_variables(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    env = {"NCCL_SOCKET_IFNAME": "^lo,docker", "GLOO_SOCKET_IFNAME": "^lo"}
    found = amiss(examined(hosts, planned(tmp_path, "node1", "node2", env=env)))
    assert {name for name, _ in found} == {"interface by GLOO_SOCKET_IFNAME"}
    assert "Unable to find address for: ^lo" in found["interface by GLOO_SOCKET_IFNAME", "node1"].prevents


def test_named_interfaces_are_where_hosts_are_called() -> None:
    hosts = FakeHosts("node1", "node2")
    for number, host in enumerate(hosts.names):
        hosts.change(host, "facts", interfaces={"lo": ["127.0.0.1"], "eth0": [f"10.0.0.{number}"], "ib0": [f"10.9.0.{number}"]})
    examined(hosts, interface="ib0")
    targets = hosts.asked[1]["node2"]["parts"]["reach"]["targets"]
    assert targets["peer node1"]["addresses"] == ["10.9.0.0"]
    assert targets["rendezvous"]["addresses"] == ["node1"]
    assert targets["call"]["addresses"] == ["10.0.0.0", "10.9.0.0"]


def test_names_that_mean_something_else(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4")
    sound = {name: [hosts.address(name)] for name in hosts.names}
    hosts.change("node2", "names", addresses={**sound, "node1": ["127.0.0.1"]})
    hosts.change("node3", "names", addresses={**sound, "node1": ["192.168.0.9"]})
    hosts.change("node4", "names", addresses={**sound, "node1": []}, troubles={"node1": "Name or service not known"})
    found = amiss(examined(hosts))
    assert found["names of the others", "node2"].prevents == "a rendezvous on 127.0.0.1, where each host waits for itself"
    assert "The client socket has timed out" in found["names of the others", "node3"].prevents
    assert "192.168.0.9 here, 10.0.0.1 elsewhere" in found["names of the others", "node3"].found
    assert "Name or service not known" in found["names of the others", "node4"].prevents
    assert all(check.refuses for check in found.values()) and len(found) == 3


def test_an_own_name_on_loopback_breaks_gloo_unless_it_is_told_an_interface(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "names", addresses={"node1": ["10.0.0.1"], "node2": ["127.0.1.1"]})
    need = planned(tmp_path, "node1", "node2")
    assert not amiss(examined(hosts, need))["own name", "node2"].refuses, "one alone is found all the same"
    hosts.change("node1", "names", addresses={"node1": ["127.0.1.1"], "node2": ["10.0.0.2"]})
    found = amiss(examined(hosts, need))["own name", "node2"]
    assert found.refuses and "connectFullMesh failed" in found.prevents and "place.interface: eth0" in found.fix
    assert amiss(examined(hosts, need, interface="eth0")) == {}
    on_gpus = planned(tmp_path, "node1", "node2", devices=("0",))
    assert not amiss(examined(hosts, on_gpus))["own name", "node2"].refuses, "NCCL never asks for the name"


def test_ports_that_are_closed() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.change("node2", "reach", troubles={"rendezvous": "node1: no answer within 3 s", "call": "10.0.0.1: Connection refused"})
    hosts.change("node1", "reach", troubles={"peer node3": "node3: No route to host"})
    found = amiss(examined(hosts, port=29500))
    assert set(found) == {("reaches the rendezvous", "node2"), ("reaches the head", "node2"), ("reaches other hosts", "node1")}
    assert "has timed out after … while trying to connect to (node1, 29500)" in found["reaches the rendezvous", "node2"].prevents
    assert "socketStartConnect: Connect to … failed : No route to host" in found["reaches other hosts", "node1"].prevents
    assert all(check.refuses for check in found.values())


def test_a_port_that_is_taken_on_node_0() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "rendezvous", trouble="Address already in use", port=None)
    found = amiss(examined(hosts, port=29500))
    assert found["a port to meet at", "node1"].found == "port 29500: Address already in use"


def test_a_clock_that_is_off_is_said_with_its_figure() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.clocks = {"node2": ClockOffset(offset_s=3600.2, round_trip_s=0.004), "node3": ClockOffset(offset_s=-1.5, round_trip_s=2.0)}
    (found,) = amiss(examined(hosts)).items()
    assert found[0] == ("clock", "node2") and not found[1].refuses
    assert found[1].found.startswith("3600.2 s ahead (within 2 ms)") and "events are corrected" in found[1].found


def test_a_folder_that_is_not_shared(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    need = planned(tmp_path, "node1", "node2")
    examined(hosts, need)
    (file,) = hosts.asked[1]["node2"]["parts"]["look"]["wanted"]
    assert file.startswith(".seatrial-trial-")
    hosts.change("node2", "look", trouble="No such file or directory")
    found = amiss(examined(hosts, need))
    assert set(found) == {("output folder is shared", "node2")} and found["output folder is shared", "node2"].refuses
    assert "--out" in found["output folder is shared", "node2"].fix


def test_files_of_a_host_that_the_head_does_not_see(tmp_path: Path) -> None:
    class Unshared(FakeHosts):
        def _look(self, host: str, asked: dict[str, object]) -> dict[str, object]:
            return {"troubles": dict.fromkeys(asked["wanted"], "No such file or directory")} if host == "node1" else {"troubles": {}}  # type: ignore[call-overload]

    found = amiss(examined(Unshared("node1", "node2"), planned(tmp_path, "node1", "node2")))
    assert found["output folder is shared", "node2"].found.endswith("its file is not seen by the head: No such file or directory")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "put", trouble="in /out no file can be written: No space left on device")
    found = amiss(examined(hosts, planned(tmp_path, "node1", "node2")))
    assert set(found) == {("output folder is writable", "node2")}
    assert "No space left on device" in found["output folder is writable", "node2"].prevents


def test_renames_and_locks_that_do_not_cross_are_warnings() -> None:
    class Late(FakeHosts):
        def _look(self, host: str, asked: dict[str, object]) -> dict[str, object]:
            late = all(isinstance(text, str) for text in asked["wanted"].values())  # type: ignore[attr-defined]
            return {"troubles": dict.fromkeys(asked["wanted"], "an older text is seen there") if late else {}}  # type: ignore[call-overload]

    hosts = Late("node1", "node2", "node3")
    hosts.change("node2", "is_held", held=False)
    hosts.change("node3", "is_held", trouble="No locks available", held=None)
    found = amiss(examined(hosts))
    assert set(found) == {("rename is seen", "node2"), ("rename is seen", "node3"), ("lock is seen", "node2"), ("lock is seen", "node3")}
    assert not any(check.refuses for check in found.values())


def test_space_as_each_host_sees_it(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    need = planned(tmp_path, "node1", "node2", "node3")
    little = {"free_bytes": 1 << 20, "total_bytes": 99 << 30, "writable": True}
    plenty = {"free_bytes": 9 << 30, "total_bytes": 99 << 30, "writable": True}
    hosts.change("node2", "space", folders={str(tmp_path): little, "/tmp": plenty})
    hosts.change("node3", "space", folders={str(tmp_path): plenty, "/tmp": little})
    found = amiss(examined(hosts, need))
    assert {key: check.refuses for key, check in found.items()} == {
        ("space in the output folder", "node2"): True,
        ("temporary files", "node3"): False,
    }


def test_paths_and_users(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    script = str(tmp_path / "train.py")
    hosts.change("node2", "paths", troubles={script: f"{script}: No such file or directory"})
    hosts.change("node2", "facts", uid=1001)
    found = amiss(examined(hosts, planned(tmp_path, "node1", "node2")))
    assert {key: check.refuses for key, check in found.items()} == {("script", "node2"): True, ("user", "node2"): False}
    assert found["user", "node2"].found == "ann (1001); 1000 on the head"


def test_nodes_without_ssh_are_called_at_any_address() -> None:
    hosts = FakeHosts("node0", "node1")
    place = PlaceSpec(kind="pernode", nodes=2, ranks=2, master_addr="10.0.0.1")
    from seatrial.preflight.hosts.examine import examine_hosts

    hosts.change("node0", "names", addresses={"10.0.0.1": ["10.0.0.1"], "node0": ["10.0.0.1"]})
    hosts.change("node1", "names", addresses={"10.0.0.1": ["10.0.0.1"], "node1": ["10.0.0.2"]})
    found = examine_hosts(hosts, make_need(), specs("node0", "node1"), head="node0", fast=True, place=place)
    assert amiss(found) == {}
    assert {row.name for row in found.rows}.isdisjoint({"ssh", "pdsh", "hostfile", "ssh program"})
    assert hosts.asked[1]["node1"]["parts"]["reach"]["targets"]["rendezvous"]["addresses"] == ["10.0.0.1"]
    assert hosts.asked[0]["node1"]["parts"]["names"]["names"] == ["10.0.0.1"]


def test_another_campaign_on_a_host_is_said(tmp_path: Path) -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node2", "facts", campaigns=[str(tmp_path / "out"), "/elsewhere/out"])
    need = planned(tmp_path, "node1", "node2")
    found = amiss(examined(hosts, need))
    assert set(found) == {("campaigns there", "node2")} and not found["campaigns there", "node2"].refuses
    assert found["campaigns there", "node2"].found.endswith("/elsewhere/out")
