"""Launcher and place: what is refused, and which hosts and GPUs a run gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.hostfile import HostSpec
from seatrial.plan.load import load_plan
from seatrial.plan.place import (
    Capacity,
    capacity_of,
    check_hosts,
    check_keys_of_kind,
    check_launcher,
    check_place,
    devices_in,
)
from seatrial.plan.resolve import resolve_plan
from seatrial.plan.schema import Axis, Launcher, Place, Plan, Workload
from seatrial.records.plan import CampaignPlan, PlaceSpec

HOSTS: dict[str, Any] = {"kind": "hostfile", "hostfile": "hosts"}


def plan(kind: str, *args: str, place: dict[str, Any] | None = None, program: tuple[str, ...] = ()) -> Plan:
    launcher = Launcher(kind=kind, args=list(args), program=list(program))
    return Plan(name="x", workload=Workload(script="t.py"), launcher=launcher, place=Place(**(place or {})))


@pytest.mark.parametrize(
    "written",
    [
        plan("python", "-X", "dev"),
        plan("torchrun", "--max-restarts", "0"),
        plan("torchrun", "--nproc_per_node", "gpu"),
        plan("torchrun", "--rdzv_backend", "c10d"),
        plan("deepspeed", "--master_port", "29500"),
        plan("torchrun"),
    ],
)
def test_other_options_are_passed_on(written: Plan) -> None:
    check_launcher(written)


@pytest.mark.parametrize(
    "written",
    [
        plan("python"),
        plan("python", place={"include": "localhost:1,0", "ranks": 2, "port": 29500}),
        plan("deepspeed", place={"include": "localhost:2,10"}),
        plan("torchrun", place={**HOSTS, "include": "n1@n2"}),
        plan("torchrun", place={"kind": "pernode", "nodes": 2, "include": "localhost:0,1", "ranks": 4}),
    ],
)
def test_a_place_that_can(written: Plan) -> None:
    check_place(written)


ON_HOSTS: dict[str, Any] = {"kind": "hostfile", "hostfile": "hosts"}
ON_NODES: dict[str, Any] = {"kind": "pernode", "nodes": 2}


def plan_on(launcher: str = "torchrun", **place: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), launcher=Launcher(kind=launcher), place=Place(**place))


@pytest.mark.parametrize(
    "place",
    [
        {**ON_HOSTS, "ssh_args": ["-p", "2222", "-oStrictHostKeyChecking=no", "-Av", "-i", "key"]},
        {**ON_HOSTS, "include": "n1@n2:0,1", "ranks": 64},
        {**ON_HOSTS, "interface": "^lo,docker", "python": "/opt/venv/bin/python", "master_addr": "fe80::1%eth0"},
        {**ON_NODES, "ranks": 4, "interface": "=eth0", "python": "python3.11"},
    ],
)
def test_what_they_can_have(place: dict[str, Any]) -> None:
    check_keys_of_kind(plan_on(**place))
    check_hosts(plan_on(**place))


@pytest.mark.parametrize(
    ("include", "devices"),
    [
        ("localhost:0", ("0",)),
        (" localhost:0,1 ", ("0", "1")),
        ("127.0.0.1:3, 1", ("3", "1")),
        ("localhost:GPU-aa11,MIG-b/2", ("GPU-aa11", "MIG-b/2")),
    ],
)
def test_the_ids_in_the_order_they_are_named(include: str, devices: tuple[str, ...]) -> None:
    assert devices_in(include) == devices


@pytest.mark.parametrize(
    ("include", "problem"),
    [
        ("", "names no GPUs; write localhost:0"),
        ("localhost", "names no GPUs"),
        ("localhost:", "names no GPUs"),
        (":0,1", "names no GPUs"),
        ("localhost:0,0", "names a GPU twice"),
        ("localhost:0,", "'' is not a GPU id"),
        ("localhost:0-3", "'0-3' is not a GPU id"),
        ("node1:0", "'node1' is another host; write `kind: hostfile`"),
        ("localhost:0@node2:1", "'node2' is another host"),
        ("localhost:0@127.0.0.1:1", "names several hosts that are all this machine"),
    ],
)
def test_what_is_wrong_is_reported_with_what_to_write(include: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        devices_in(include)


def placed(axes: dict[str, Axis] | None = None, **place: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), place=Place(**place), axes=axes or {})


@pytest.mark.parametrize(
    ("place", "capacity"),
    [
        ({}, Capacity(ranks=1)),
        ({"ranks": 3}, Capacity(ranks=3)),
        ({"include": "localhost:2,3"}, Capacity(ranks=2, devices=("2", "3"))),
        ({"kind": "pernode", "nodes": 4}, Capacity(ranks=4)),
        ({"kind": "pernode", "nodes": 4, "include": "localhost:0,1"}, Capacity(ranks=8, devices=("0", "1"))),
    ],
)
def test_what_this_machine_or_each_node_has(place: dict[str, Any], capacity: Capacity, tmp_path: Path) -> None:
    assert capacity_of(placed(**place), tmp_path) == capacity


Resolved = Callable[..., CampaignPlan]


@pytest.mark.parametrize(
    ("place", "layouts"), [({"gpus_per_node": 8}, {(1, 8), (2, 16)}), ({}, {(1, 1), (2, 2)}), ({"ranks": 4}, {(1, 4), (2, 4)})]
)
def test_jobs_of_one_node_and_of_two(place: dict[str, Any], layouts: set[tuple[int, int]], resolved: Resolved) -> None:
    runs = resolved({**PLAN, "place": {"kind": "slurm", **place}, "axes": {"place.nodes": [1, 2]}}).runs
    assert {(run.place.nodes, run.place.ranks) for run in runs} == layouts and {run.group for run in runs} == {"nodes1", "nodes2"}
    assert len({run.hash for run in runs}) == 2


HEAD = "name: x\nworkload: dummy\n"
ON = "kind: hostfile, hostfile: hosts"
HOSTFILE = "node1 slots=2\nnode2 slots=4\n"
PLAN: dict[str, Any] = {"name": "x", "workload": "dummy", "launcher": "torchrun"}
NODE1, NODE2 = HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=4)

MESSAGES = {
    "place: {via: ssh}": "place.via: belongs to `kind: hostfile`; leave it out to run on this machine",
    "place: {exclude: 'localhost:0'}": "place.exclude: belongs to `kind: hostfile`; name the GPUs to use with place.include",
    "place: {nodes: 2}": "place.nodes: belongs to `kind: pernode`",
    "place: {interface: eth0}": "place.interface: belongs to `kind: hostfile` or `kind: pernode`",
    "place: {python: /usr/bin/python3}": "place.python: belongs to `kind: hostfile` or `kind: pernode`",
    "place: {kind: pernode, nodes: 2, hostfile: hosts}": "place.hostfile: belongs to `kind: hostfile`",
    f"place: {{{ON}, nodes: 2}}": "place.nodes: belongs to `kind: pernode`",
    "place: {allocation: campaign}": "place.allocation: belongs to `kind: slurm`",
    "place: {kind: slurm, time: '2'}": "place.time: '2' leaves 0 s before the warning (warn_s: 120), and a job needs 30 s to start",
    "place: {kind: slurm, time: '00:00:30', warn_s: 31}": "place.time: '00:00:30' leaves 29 s before the warning",
    "place: {kind: slurm, jobs: 2, exclusive: false}": "place.exclusive: with jobs: 2 Slurm may put two runs on one node",
    "place: {kind: slurm, sbatch_args: [--oversubscribe]}": "place.sbatch_args[0]: '--oversubscribe' is set by Seatrial: jobs of a",
    "place: {kind: slurm, sbatch_args: [--exclusi=user]}": "place.sbatch_args[0]: '--exclusi=user' (--exclusive) is set by Seatrial: use",
    "place: {kind: slurm, sbatch_args: [--hold, --arr=1-3]}": "place.sbatch_args[1]: '--arr=1-3' (--array) is set by Seatrial: each run",
    "place: {kind: slurm, sbatch_args: [--oversub]}": "place.sbatch_args[0]: '--oversub' (--oversubscribe) is set by Seatrial",
    "place: {kind: slurm, sbatch_args: [--no-req]}": "place.sbatch_args[0]: '--no-req' (--no-requeue) is set by Seatrial",
    "place: {kind: slurm, sbatch_args: [--sig=KILL@1]}": "place.sbatch_args[0]: '--sig=KILL@1' (--signal) is set by Seatrial",
    "place: {kind: slurm, sbatch_args: [--n=2]}": "place.sbatch_args[0]: '--n=2' (--nodes) is set by Seatrial",
    "place: {kind: slurm, sbatch_args: [-a1-3]}": "place.sbatch_args[0]: '-a1-3' is not a long option of sbatch in one word",
    "place: {kind: slurm, allocation: job}": "place.allocation: unknown: 'job'; known: campaign, current, run",
    "place: {kind: slurm, allocation: campaign, jobs: 2}": "place.jobs: allocation: campaign runs one after another on the same nodes",
    "axes: {place.node: [n1, n2]}\nplace: {kind: slurm, allocation: campaign}": "axes.place.node: allocation: campaign runs one",
    "axes: {place.nodes: [1, 2]}\nplace: {kind: slurm, allocation: campaign}": "axes.place.nodes: allocation: campaign runs one",
    "place: hostfile": "place.hostfile: name the file that lists the hosts, such as /etc/deepspeed/hostfile",
    "place: pernode": "place.nodes: is missing",
    "place: {kind: pernode, nodes: 3, ranks: 4}": "place.ranks: 4 ranks do not divide evenly over 3 nodes (place.nodes); use 3 or 6",
    "place: {kind: pernode, nodes: 3, ranks: 2}": "place.ranks: 2 ranks do not divide evenly over 3 nodes (place.nodes); use 3",
    "place: {kind: pernode, nodes: 2, ranks: 2, include: 'localhost:0,1'}": "place.ranks: 2 ranks, but include names 2 GPUs",
    f"place: {{{ON}, include: n1, exclude: n2}}": "place.exclude: cannot be combined with place.include",
    f"place: {{{ON}, include: ''}}": "place.include: names no host",
    f"place: {{{ON}, include: 'n1:0@n2:0', ranks: 3}}": "place.ranks: 3 ranks, but include names 2 slots (n1:0@n2:0)",
    f"place: {{{ON}, ranks: 4, via: rsh}}": "place.via: unknown: 'rsh'; did you mean 'ssh'?",
    f"place: {{{ON}, ranks: 4, ssh_args: [node1]}}": "place.ssh_args[0]: 'node1' is not an ssh option: ssh would take it for the host",
    f"place: {{{ON}, ranks: 4, ssh_args: [-p, '22', -AN]}}": "place.ssh_args[2]: -N would keep ssh from running the agent",
    f"place: {{{ON}, ranks: 4, ssh_args: [-p22, -o]}}": "place.ssh_args: '-o' is not followed by its value",
    f"place: {{{ON}, ranks: 4, master_addr: '-x'}}": "place.master_addr: '-x' is not a host name or address",
    f"place: {{{ON}, ranks: 4, interface: 'eth0;reboot'}}": "place.interface: 'eth0;reboot' is not NCCL's grammar",
    f"place: {{{ON}, ranks: 4, interface: {'a' * 16}}}": f"place.interface: '{'a' * 16}' is not NCCL's grammar",
    f"place: {{{ON}, ranks: 4, python: venv/bin/python}}": "place.python: 'venv/bin/python' is looked for on every host",
    f"env: {{NCCL_SOCKET_IFNAME: ib0}}\nplace: {{{ON}, ranks: 4, interface: eth0}}": "env.NCCL_SOCKET_IFNAME: is set from place.interface",
    f"axes: {{env.GLOO_SOCKET_IFNAME: [ib0]}}\nplace: {{{ON}, ranks: 4, interface: '=eth0'}}": "axes.env.GLOO_SOCKET_IFNAME: is fixed",
    f"env: {{MASTER_ADDR: n1}}\nplace: {{{ON}, ranks: 4}}": "env.MASTER_ADDR: is set from place.master_addr",
    f"env: {{MASTER_PORT: '1'}}\nplace: {{{ON}, ranks: 4}}": "env.MASTER_PORT: is set from place.port",
    f"env: {{RANK: '1'}}\nplace: {{{ON}}}": "env.RANK: is set for each rank at its start",
    f"env: {{CUDA_VISIBLE_DEVICES: '1'}}\nplace: {{{ON}, ranks: 4, exclude: 'n1:0'}}": "env.CUDA_VISIBLE_DEVICES: is set from place.",
    "axes: {place.nodes: [1, 2]}\nplace: {kind: pernode, nodes: 2}": "axes.place.nodes: is for jobs: `place: {kind: slurm}`",
    "axes: {place.nodes: [1, 2]}\nplace: {kind: slurm, nodes: 2}": "axes.place.nodes: is fixed by `place.nodes` and varied as an axis",
    "axes: {place.nodes: [1, 0]}\nplace: slurm": "axes.place.nodes[1]: must be a number of nodes, 1 or more, not 0",
    "axes: {place.nodes: [1, 2], place.node: [n1]}\nplace: slurm": "axes.place.node: is for jobs of one node",
    "axes: {place.nodes: [1, 2]}\nplace: {kind: slurm, ranks: 3}": "place.ranks: 3 ranks do not divide evenly over 2 nodes",
}
# As the version before many hosts made them.
OF_TWO_RANKS, OF_TWO_GPUS = "52469684b28c6d19", "df4e62b60b93b687"
# Option → what the message points to.
LAUNCHERS = {
    "torchrun": {
        "--nnodes=2": "kind: pernode",
        "--nproc-per-node=auto": "place.ranks",
        "--master-addr=n1": "place.master_addr",
        "--log-dir=x": "leave it out",
    },
    "deepspeed": {
        "--master_addr=n1": "place.master_addr",
        "--include=n1": "place.include",
        "--node_rank=0": "kind: pernode",
        "--no_ssh": "kind: pernode",
        "--launcher=pdsh": "place.via",
        "--enable_each_rank_log=x": "leave it out",
        "--log_level=error": "leave it out",
    },
}


@pytest.fixture
def place(resolved: Resolved, tmp_path: Path) -> Callable[..., PlaceSpec]:
    """The place of a plan's only run, beside a hostfile of two hosts."""
    (tmp_path / "hosts").write_text(HOSTFILE)

    def of(**keys: Any) -> PlaceSpec:
        return resolved({**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts", **keys}}).runs[0].place

    return of


@pytest.mark.parametrize("text", MESSAGES)
def test_keys_that_contradict_each_other(text: str, message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}{text}\n").partition(": ")[2].startswith(MESSAGES[text])


@pytest.mark.parametrize("place", [f"{{{ON}, ranks: 2}}", "{kind: slurm, nodes: 2}"])
def test_a_launcher_of_programs_has_one_host(place: str, message_of: Callable[..., str]) -> None:
    text = f"name: x\nworkload: {{script: ./t.sh}}\nlauncher: command\nplace: {place}\n"
    assert message_of(text).endswith("launcher.kind: 'command' starts one program on one host; on many use python, torchrun or deepspeed")


def test_options_of_sbatch_whose_names_only_look_like_others(resolved: Resolved) -> None:
    options = ["--exclude=n3", "--mem-per-cpu=2G", "--time-min=5", "--nodefile=f", "--export-file=f", "--gpus=2", "--no-kill"]
    place = resolved({**PLAN, "place": {"kind": "slurm", "sbatch_args": options}}).runs[0].place
    assert place.slurm is not None and place.slurm.sbatch_args == tuple(options)


def test_a_program_can_be_a_job_of_one_node(resolved: Resolved) -> None:
    plan = {"name": "x", "workload": {"script": "./t.sh"}, "launcher": "command", "place": "slurm"}
    assert resolved(plan).runs[0].launcher.kind == "command"


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind, args in LAUNCHERS.items() for option in args])
def test_options_that_a_place_says_name_its_key(kind: str, option: str, message_of: Callable[..., str]) -> None:
    problem = message_of(f"{HEAD}launcher: {{kind: {kind}, args: ['{option}']}}\nplace: {{{ON}, ranks: 2}}\n")
    assert f"launcher.args[0]: '{option}' is " in problem and LAUNCHERS[kind][option] in problem


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
    (tmp_path / "hosts").write_text(HOSTFILE)
    on = {"kind": "hostfile", "hostfile": "hosts"}
    runs = resolved({**PLAN, "place": on, "axes": {"place.ranks": [1, 4]}, "order": "rounds"}).runs
    assert [[(host.name, host.ranks) for host in run.place.hosts] for run in runs] == [[("node1", 1)], [("node1", 2), ("node2", 2)]]


def test_more_ranks_than_slots(message_of: Callable[..., str], plan_file: Callable[..., Path]) -> None:
    plan_file(HOSTFILE, "hosts")
    problem = "7 ranks, but the hosts have 6 slots together (hosts)"
    assert message_of(f"{HEAD}place: {{{ON}, ranks: 7}}\n").endswith(f"place.ranks: {problem}")
    assert message_of(f"{HEAD}place: {{{ON}}}\naxes: {{place.ranks: [2, 7]}}\n").endswith(f"axes.place.ranks: {problem}")


def test_wrong_hosts_are_reported_at_their_key(message_of: Callable[..., str], plan_file: Callable[..., Path]) -> None:
    plan_file(HOSTFILE, "hosts")
    unknown = message_of(f"{HEAD}place: {{{ON}, include: node11}}\n")
    assert "place.include: 'node11' is " in unknown and unknown.endswith("did you mean 'node1'? (hosts)")
    assert "place.exclude: 'a' is " in message_of(f"{HEAD}place: {{{ON}, exclude: 'n1:a'}}\n")
    plan_file("node1\n", "hosts")
    assert "place.hostfile: " in message_of(f"{HEAD}place: {{{ON}, ranks: 2}}\n")
    assert "hosts:1: 'node1' is " in message_of(f"{HEAD}place: {{{ON}, ranks: 2}}\n")


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


def test_a_hostfile_that_is_not_here_is_needed_to_count_ranks(message_of: Callable[..., str]) -> None:
    problem = message_of(f"{HEAD}place: {{{ON}}}\n")
    assert problem.startswith("p.yaml:3: place.hostfile: ") and problem.endswith("if place.ranks is set)")
    assert "no such hostfile" in problem


def test_ranks_of_nodes_that_type_the_command(resolved: Resolved) -> None:
    def place(**keys: Any) -> PlaceSpec:
        return resolved({**PLAN, "place": {"kind": "pernode", "nodes": 2, **keys}}).runs[0].place

    assert (place().ranks, place(ranks=6).ranks, place(include="localhost:0,3").ranks) == (2, 6, 4)
    assert (place(include="localhost:0,3").devices, place().nodes) == (("0", "3"), 2)


def test_an_axis_of_ranks_is_shared_alike(message_of: Callable[..., str], resolved: Resolved) -> None:
    on = {"kind": "pernode", "nodes": 2, "include": "localhost:0,1"}
    assert resolved({**PLAN, "place": on, "axes": {"place.ranks": [2]}}).runs[0].place.devices == ("0",)
    text = f"{HEAD}place: {{kind: pernode, nodes: 2, include: 'localhost:0,1'}}\n"
    assert message_of(f"{text}axes: {{place.ranks: [3]}}\n").endswith("3 ranks do not divide evenly over 2 nodes (place.nodes); use 2 or 4")
    assert message_of(f"{text}axes: {{place.ranks: [6]}}\n").endswith("6 ranks, but include names 2 GPUs (localhost:0,1)")


def test_a_lane_may_be_the_slots_of_a_hostfile(resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTFILE)
    written = {**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts"}, "lane": {"place.ranks": 6}}
    assert resolved(written).runs[0].lane


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
    (tmp_path / "hosts").write_text(HOSTFILE)
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
    (tmp_path / "hosts").write_text(HOSTFILE)
    (tmp_path / "others").write_text("node1 slots=3\nnode2 slots=3\n")
    assert _hash(resolved, **keys) != _hash(resolved)


def test_a_hash_is_that_of_earlier_versions(resolved: Resolved, tmp_path: Path) -> None:
    """Else finished runs of a folder would run again."""
    (tmp_path / "hosts").write_text(HOSTFILE)
    assert (_hash(resolved), _hash(resolved, interface="eth0")) == ("eabff08748a6888d", "18266c33af3812a2")


def test_kinds_and_numbers_of_nodes_are_distinguished(resolved: Resolved) -> None:
    places = [{"ranks": 4}, {"kind": "pernode", "nodes": 2, "ranks": 4}, {"kind": "pernode", "nodes": 4, "ranks": 4}]
    places += [{"kind": "hostfile", "hostfile": "no", "ranks": 4}, {"kind": "hostfile", "hostfile": "no", "ranks": 4, "include": "a"}]
    assert len({resolved({**PLAN, "place": place}).runs[0].hash for place in places}) == 5


def test_hashes_of_one_machine_are_unchanged(resolved: Resolved) -> None:
    plan = {**PLAN, "settings": {"step_ms": 5.0}, "steps": 10}
    assert resolved({**plan, "place": {"ranks": 2}}).runs[0].hash == OF_TWO_RANKS
    assert resolved({**plan, "place": {"include": "localhost:0,1"}}).runs[0].hash == OF_TWO_GPUS


def _hash(resolved: Resolved, **keys: Any) -> str:
    return resolved({**PLAN, "place": {"kind": "hostfile", "hostfile": "hosts", **keys}}).runs[0].hash


def test_a_relative_hostfile_is_where_seatrial_is_started(plan_file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/hosts").write_text(HOSTFILE)
    plan = load_plan(plan_file(f"{HEAD}place: {{{ON}}}\n"))
    assert resolve_plan(plan, source="p.yaml", cwd=tmp_path / "here").runs[0].place.ranks == 6
