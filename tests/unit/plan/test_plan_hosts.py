"""Places on many hosts: which keys go together, how ranks lie on the hosts of a hostfile, and what of it is in the hash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import HostSpec, PlaceSpec

Resolved = Callable[..., CampaignPlan]

HEAD = "name: x\nworkload: dummy\n"
ON = "kind: hostfile, hostfile: hosts"
HOSTS = "node1 slots=2\nnode2 slots=4\n"
PLAN: dict[str, Any] = {"name": "x", "workload": "dummy", "launcher": "torchrun"}
NODE1, NODE2 = HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=4)
ANOTHER_HOST = "write `kind: hostfile` to run on those of a hostfile, or localhost:0,1 for GPUs of this machine"

COMPLAINTS = {
    "place: {via: ssh}": "place.via: belongs to `kind: hostfile`; leave it out to run on this machine",
    "place: {ssh_args: [-p, '22']}": "place.ssh_args: belongs to `kind: hostfile`; leave it out to run on this machine",
    "place: {exclude: 'localhost:0'}": "place.exclude: belongs to `kind: hostfile`; name the GPUs to use with place.include",
    "place: {nodes: 2}": "place.nodes: belongs to `kind: pernode`; leave it out to run on this machine",
    "place: {master_addr: n1}": "place.master_addr: belongs to `kind: hostfile` or `kind: pernode`; leave it out to run on this machine",
    "place: {interface: eth0}": (
        "place.interface: belongs to `kind: hostfile` or `kind: pernode`; on this machine set env: {NCCL_SOCKET_IFNAME: NAME}"
    ),
    "place: {python: /usr/bin/python3}": (
        "place.python: belongs to `kind: hostfile` or `kind: pernode`; on this machine launcher.program names the interpreter"
    ),
    "place: {alike: refuse}": "place.alike: belongs to `kind: hostfile` or `kind: pernode`; leave it out to run on this machine",
    "place: {kind: pernode, nodes: 2, hostfile: hosts}": (
        "place.hostfile: belongs to `kind: hostfile`; place.nodes says how many nodes type the command"
    ),
    "place: {kind: pernode, nodes: 2, via: pdsh}": "place.via: belongs to `kind: hostfile`; leave it out, nobody is reached by ssh",
    f"place: {{{ON}, nodes: 2}}": "place.nodes: belongs to `kind: pernode`; place.include says which hosts of the file to use",
    "place: hostfile": "place.hostfile: name the file that lists the hosts, such as /etc/deepspeed/hostfile",
    "place: pernode": "place.nodes: is missing; say how many nodes type the command",
    "place: {kind: pernode, nodes: 3, ranks: 4}": "place.ranks: 4 ranks cannot be shared alike by 3 nodes (place.nodes); make it 3 or 6",
    "place: {kind: pernode, nodes: 3, ranks: 2}": "place.ranks: 2 ranks cannot be shared alike by 3 nodes (place.nodes); make it 3",
    "place: {kind: pernode, nodes: 2, ranks: 2, include: 'localhost:0,1'}": (
        "place.ranks: 2 ranks, but include names 2 GPUs (localhost:0,1) on each of 2 nodes; leave ranks out or make them agree"
    ),
    "place: {kind: pernode, nodes: 2, include: 'n1:0@n2:0'}": f"place.include: 'n1' is another host; {ANOTHER_HOST}",
    f"place: {{{ON}, include: n1, exclude: n2}}": "place.exclude: has no meaning beside place.include; keep one of the two",
    f"place: {{{ON}, include: ''}}": "place.include: names no host; write node1@node2:0,1, or leave it out",
    f"place: {{{ON}, exclude: 'n1:a'}}": (
        "place.exclude: 'a' is no slot in 'n1:a'; write numbers with commas between them, node1:0,1, and @ between hosts"
    ),
    f"place: {{{ON}, include: 'n1:0@n2:0', ranks: 3}}": (
        "place.ranks: 3 ranks, but include names 2 slots (n1:0@n2:0); lower ranks or name more"
    ),
    f"place: {{{ON}, ranks: 4, via: rsh}}": "place.via: unknown: 'rsh'; did you mean 'ssh'?",
    f"place: {{{ON}, ranks: 4, ssh_args: [node1]}}": (
        "place.ssh_args[0]: 'node1' is no option of ssh, which would take it for a host; write -p 2222 or -o NAME=VALUE"
    ),
    f"place: {{{ON}, ranks: 4, ssh_args: [-p, '22', -AN]}}": (
        "place.ssh_args[2]: -N would keep ssh from starting the agent and telling its end; leave it out"
    ),
    f"place: {{{ON}, ranks: 4, ssh_args: [-p22, -o]}}": "place.ssh_args: '-o' is not followed by its value",
    f"place: {{{ON}, ranks: 4, master_addr: '-x'}}": ("place.master_addr: '-x' is no name or address of a host; write node1 or 10.0.0.1"),
    f"place: {{{ON}, ranks: 4, interface: 'eth0;reboot'}}": (
        "place.interface: 'eth0;reboot' is not NCCL's grammar; write eth0, or eth,ib for names that begin so, =eth0 or ^lo,docker"
    ),
    f"place: {{{ON}, ranks: 4, python: venv/bin/python}}": (
        "place.python: 'venv/bin/python' is looked for on every host; write its whole path, such as /opt/venv/bin/python"
    ),
    f"env: {{NCCL_SOCKET_IFNAME: ib0}}\nplace: {{{ON}, ranks: 4, interface: eth0}}": (
        "env.NCCL_SOCKET_IFNAME: is set from place.interface; keep one of the two"
    ),
    f"axes: {{env.GLOO_SOCKET_IFNAME: [ib0]}}\nplace: {{{ON}, ranks: 4, interface: '=eth0'}}": (
        "axes.env.GLOO_SOCKET_IFNAME: is fixed by `place.interface` and varied as an axis; keep one of the two"
    ),
    f"env: {{MASTER_ADDR: n1}}\nplace: {{{ON}, ranks: 4}}": "env.MASTER_ADDR: is set from place.master_addr; keep one of the two",
    f"env: {{MASTER_PORT: '1'}}\nplace: {{{ON}, ranks: 4}}": "env.MASTER_PORT: is set from place.port; keep one of the two",
    f"env: {{RANK: '1'}}\nplace: {{{ON}}}": "env.RANK: is set for each rank when it is started; leave it out",
    f"env: {{CUDA_VISIBLE_DEVICES: '1'}}\nplace: {{{ON}, ranks: 4, exclude: 'n1:0'}}": (
        "env.CUDA_VISIBLE_DEVICES: is set from place.exclude; keep one of the two"
    ),
}
# As the version before many hosts made them.
OF_TWO_RANKS, OF_TWO_GPUS = "52469684b28c6d19", "df4e62b60b93b687"
LAUNCHERS = {
    "torchrun": {
        "--nnodes=2": "`place: {kind: hostfile, hostfile: FILE}` or `{kind: pernode, nodes: N}` says on which nodes it runs",
        "--node-rank=0": "`place: {kind: hostfile, hostfile: FILE}` or `{kind: pernode, nodes: N}` says on which nodes it runs",
        "--nproc-per-node=auto": "place.ranks says how many ranks there are",
        "--master-addr=n1": "place.master_addr and place.port say where ranks meet",
        "--standalone": "place.master_addr and place.port say where ranks meet",
        "--rdzv-endpoint=n1:1": "place.master_addr and place.port say where ranks meet",
        "--log-dir=x": "each node has a folder of its own for them; leave it out",
    },
    "deepspeed": {
        "--master_addr=n1": "place.master_addr and place.port say where ranks meet",
        "--include=n1": "place.include says which GPUs there are",
        "--hostfile=hosts": "`place: {kind: hostfile, hostfile: FILE}` says which hosts there are",
        "--node_rank=0": "`place: {kind: pernode, nodes: N}` starts one command on each node, without ssh",
        "--no_ssh": "`place: {kind: pernode, nodes: N}` starts one command on each node, without ssh",
        "--launcher=pdsh": "place.via says what starts the agents on other hosts, pdsh or ssh",
        "--ssh_port=22": '`place: {ssh_args: ["-p", PORT]}` says it',
        "--venv_script=x": "place.python says which interpreter the hosts have",
        "--enable_each_rank_log=x": "each node has a folder of its own for them; leave it out",
    },
}


@pytest.fixture
def place(resolved: Resolved, tmp_path: Path) -> Callable[..., PlaceSpec]:
    """The place of a plan's only run, beside a hostfile of two hosts."""
    (tmp_path / "hosts").write_text(HOSTS)

    def of(**keys: Any) -> PlaceSpec:
        return resolved({**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts", **keys}}).runs[0].place

    return of


@pytest.mark.parametrize("text", COMPLAINTS)
def test_keys_that_cannot_stand_together(text: str, complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}{text}\n").partition(": ")[2] == COMPLAINTS[text]


def test_a_launcher_of_programs_has_one_machine(complaint: Callable[..., str]) -> None:
    text = f"name: x\nworkload: {{script: ./t.sh}}\nlauncher: command\nplace: {{{ON}, ranks: 2}}\n"
    assert complaint(text).endswith(
        "launcher.kind: 'command' starts one program on this machine; on many hosts use python, torchrun or deepspeed"
    )


@pytest.mark.parametrize(("kind", "word"), [(kind, word) for kind, words in LAUNCHERS.items() for word in words])
def test_options_that_a_place_says_name_its_key(kind: str, word: str, complaint: Callable[..., str]) -> None:
    said = complaint(f"{HEAD}launcher: {{kind: {kind}, args: ['{word}']}}\nplace: {{{ON}, ranks: 2}}\n")
    assert f"launcher.args[0]: '{word}' is " in said and said.endswith(LAUNCHERS[kind][word])


@pytest.mark.parametrize("kind", ["python", "torchrun", "deepspeed"])
def test_every_launcher_of_ranks_takes_many_hosts(kind: str, resolved: Resolved) -> None:
    for keys in ({"kind": "hostfile", "hostfile": "hosts", "ranks": 2}, {"kind": "pernode", "nodes": 2}):
        assert resolved({**PLAN, "launcher": kind, "place": keys}).runs[0].place.ranks == 2


@pytest.mark.parametrize("interface", ["eth0", "eth,ib", "=eth0", "^lo,docker0", "^=lo", "bond0.100", "enp1s0f0np0"])
def test_the_grammar_of_interfaces(interface: str, place: Callable[..., PlaceSpec]) -> None:
    assert place(interface=interface).interface == interface


def test_ranks_are_all_slots_of_all_hosts(place: Callable[..., PlaceSpec]) -> None:
    assert (place().ranks, place().hosts) == (6, (NODE1, NODE2))


def test_fewer_ranks_are_the_first_slots(place: Callable[..., PlaceSpec]) -> None:
    assert place(ranks=3).hosts == (NODE1, HostSpec(name="node2", ranks=1))
    assert place(ranks=2).hosts == (NODE1,)


def test_hosts_and_slots_that_are_chosen(place: Callable[..., PlaceSpec]) -> None:
    some = place(include="node2:1,3@node1:0")
    assert (some.ranks, some.include) == (3, "node2:1,3@node1:0")
    assert some.hosts == (HostSpec(name="node1", ranks=1, devices=("0",)), HostSpec(name="node2", ranks=2, devices=("1", "3")))
    assert place(exclude="node2").hosts == (NODE1,)


def test_the_other_keys_are_kept(place: Callable[..., PlaceSpec]) -> None:
    keys = {"via": "ssh", "master_addr": "10.0.0.1", "python": "/opt/python", "alike": "refuse", "port": 29500}
    kept = place(ssh_args=["-p", "2222", "-oUser=x"], **keys)
    assert {key: getattr(kept, key) for key in keys} == keys and kept.ssh_args == ("-p", "2222", "-oUser=x")


def test_an_axis_of_ranks_takes_the_first_slots_of_each(resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    on = {"kind": "hostfile", "hostfile": "hosts"}
    runs = resolved({**PLAN, "place": on, "axes": {"place.ranks": [1, 4]}, "order": "rounds"}).runs
    assert [[(host.name, host.ranks) for host in run.place.hosts] for run in runs] == [[("node1", 1)], [("node1", 2), ("node2", 2)]]


def test_more_ranks_than_slots(complaint: Callable[..., str], plan_file: Callable[..., Path]) -> None:
    plan_file(HOSTS, "hosts")
    said = "7 ranks, but the hosts have 6 slots together (hosts)"
    assert complaint(f"{HEAD}place: {{{ON}, ranks: 7}}\n").endswith(f"place.ranks: {said}")
    assert complaint(f"{HEAD}place: {{{ON}}}\naxes: {{place.ranks: [2, 7]}}\n").endswith(f"axes.place.ranks: {said}")


def test_wrong_hosts_are_told_at_their_key(complaint: Callable[..., str], plan_file: Callable[..., Path]) -> None:
    plan_file(HOSTS, "hosts")
    assert complaint(f"{HEAD}place: {{{ON}, include: node11}}\n").endswith(
        "place.include: 'node11' is no host of the hostfile; did you mean 'node1'? (hosts)"
    )
    plan_file("node1\n", "hosts")
    assert "place.hostfile: " in complaint(f"{HEAD}place: {{{ON}, ranks: 2}}\n")
    assert "hosts:1: 'node1' is no host with its slots" in complaint(f"{HEAD}place: {{{ON}, ranks: 2}}\n")


@pytest.mark.parametrize("text", [None, "", "# none\n"])
def test_a_hostfile_that_is_not_here_leaves_hosts_open(text: str | None, resolved: Resolved, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "hosts").write_text(text)
    on = {"kind": "hostfile", "hostfile": "hosts"}
    for keys, ranks in (({"ranks": 4}, 4), ({"include": "n1:0,1@n2:0"}, 3)):
        place = resolved({**PLAN, "place": {**on, **keys}}).runs[0].place
        assert (place.ranks, place.hosts) == (ranks, ())
    axis = resolved({**PLAN, "place": on, "axes": {"place.ranks": [2]}}).runs[0].place
    assert (axis.ranks, axis.hosts) == (2, ())


def test_a_hostfile_that_is_not_here_is_needed_to_count_ranks(complaint: Callable[..., str]) -> None:
    said = complaint(f"{HEAD}place: {{{ON}}}\n")
    assert said.startswith("p.yaml:3: place.hostfile: ") and said.endswith("where place.ranks says how many ranks there are)")
    assert "there is no such hostfile" in said


def test_ranks_of_nodes_that_type_the_command(resolved: Resolved) -> None:
    def place(**keys: Any) -> PlaceSpec:
        return resolved({**PLAN, "place": {"kind": "pernode", "nodes": 2, **keys}}).runs[0].place

    assert (place().ranks, place(ranks=6).ranks, place(include="localhost:0,3").ranks) == (2, 6, 4)
    assert (place(include="localhost:0,3").devices, place().nodes) == (("0", "3"), 2)


def test_an_axis_of_ranks_is_shared_alike(complaint: Callable[..., str], resolved: Resolved) -> None:
    on = {"kind": "pernode", "nodes": 2, "include": "localhost:0,1"}
    assert resolved({**PLAN, "place": on, "axes": {"place.ranks": [2]}}).runs[0].place.devices == ("0",)
    text = f"{HEAD}place: {{kind: pernode, nodes: 2, include: 'localhost:0,1'}}\n"
    assert complaint(f"{text}axes: {{place.ranks: [3]}}\n").endswith(
        "3 ranks cannot be shared alike by 2 nodes (place.nodes); make it 2 or 4"
    )
    assert complaint(f"{text}axes: {{place.ranks: [6]}}\n").endswith("6 ranks, but include names 2 GPUs (localhost:0,1)")


def test_a_lane_may_be_the_slots_of_a_hostfile(resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    asked = {**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts"}, "lane": {"place.ranks": 6}}
    assert resolved(asked).runs[0].lane


@pytest.mark.parametrize(
    "keys",
    [
        {"via": "ssh"},
        {"ssh_args": ["-p", "22"]},
        {"python": "/opt/python"},
        {"alike": "refuse"},
        {"master_addr": "node2"},
        {"port": 29500},
        {"hostfile": "others"},
        {"ranks": 6},
    ],
    ids=str,
)
def test_which_hosts_and_how_they_are_reached_is_no_part_of_the_hash(keys: dict[str, Any], resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    (tmp_path / "others").write_text("gpu7 slots=2\ngpu9 slots=4\n")
    assert _hash(resolved, **keys) == _hash(resolved)


@pytest.mark.parametrize(
    "keys",
    [
        {"ranks": 5},
        {"include": "node1:0,1@node2"},
        {"exclude": "node2:0"},
        {"hostfile": "others"},
        {"hostfile": "missing", "ranks": 6},
        {"interface": "eth0"},
    ],
    ids=str,
)
def test_how_ranks_lie_on_hosts_is_a_part_of_the_hash(keys: dict[str, Any], resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    (tmp_path / "others").write_text("node1 slots=3\nnode2 slots=3\n")
    assert _hash(resolved, **keys) != _hash(resolved)


def test_kinds_and_numbers_of_nodes_are_told_apart(resolved: Resolved) -> None:
    places = [{"ranks": 4}, {"kind": "pernode", "nodes": 2, "ranks": 4}, {"kind": "pernode", "nodes": 4, "ranks": 4}]
    places += [{"kind": "hostfile", "hostfile": "no", "ranks": 4}, {"kind": "hostfile", "hostfile": "no", "ranks": 4, "include": "a"}]
    assert len({resolved({**PLAN, "place": place}).runs[0].hash for place in places}) == 5


def test_hashes_of_one_machine_are_those_of_old(resolved: Resolved) -> None:
    plan = {**PLAN, "settings": {"step_ms": 5.0}, "steps": 10}
    assert resolved({**plan, "place": {"ranks": 2}}).runs[0].hash == OF_TWO_RANKS
    assert resolved({**plan, "place": {"include": "localhost:0,1"}}).runs[0].hash == OF_TWO_GPUS


def _hash(resolved: Resolved, **keys: Any) -> str:
    return resolved({**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts", **keys}}).runs[0].hash


def test_a_relative_hostfile_lies_where_seatrial_is_started(plan_file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/hosts").write_text(HOSTS)
    plan = load_plan(plan_file(f"{HEAD}place: {{{ON}}}\n"))
    assert resolve(plan, source="p.yaml", cwd=tmp_path / "here").runs[0].place.ranks == 6
