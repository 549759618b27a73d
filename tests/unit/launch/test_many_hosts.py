"""Commands, variables and files of a run on many hosts: pure, or written to a folder; nothing is started."""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.core.errors import LaunchError
from seatrial.core.files import read_json
from seatrial.core.hostfile import HostSpec
from seatrial.core.launcher_options import PDSH_APPEND, ssh_command
from seatrial.core.paths import AttemptPaths
from seatrial.launch.launchers.commands import command_for, variables_set_by_launcher
from seatrial.launch.launchers.environment import environment, portable_environment
from seatrial.launch.places.allocation import is_cpu_only, nodes_of
from seatrial.launch.prepare import prepare_attempt
from seatrial.records.codec import from_json
from seatrial.records.launch import AgentOrder
from seatrial.records.plan import PlaceSpec, RunSpec
from tests.unit.launch.factory import attempt_in, hosts_allocation, make_spec, on_hosts

CWD = Path("/job dir")
ATTEMPT = attempt_in(CWD)
TWO = (HostSpec(name="node1", ranks=2), HostSpec(name="node2", ranks=3))


def _argv(kind: str, node_rank: int, hosts: tuple[HostSpec, ...] = TWO, **choices: object) -> tuple[str, ...]:
    spec = on_hosts(make_spec(CWD, kind=kind, **choices), hosts)  # type: ignore[arg-type]
    return command_for(spec, hosts_allocation(spec, node_rank), ATTEMPT).argv


def test_ranks_are_counted_through_the_hosts_in_their_order() -> None:
    nodes = nodes_of(on_hosts(make_spec(CWD), (*TWO, HostSpec(name="a", ranks=1))).place)
    assert [(node.name, node.node_rank, node.first_rank, node.ranks) for node in nodes] == [
        ("node1", 0, 0, 2),
        ("node2", 1, 2, 3),
        ("a", 2, 5, 1),
    ]


def test_nodes_without_ssh_are_equal() -> None:
    nodes = nodes_of(PlaceSpec(kind="pernode", nodes=3, ranks=6, devices=("0", "1")))
    assert [(node.name, node.first_rank, node.ranks, node.devices) for node in nodes] == [
        (f"node{rank}", 2 * rank, 2, ("0", "1")) for rank in range(3)
    ]
    with pytest.raises(LaunchError, match=r"multiple of place\.nodes"):
        nodes_of(PlaceSpec(kind="pernode", nodes=3, ranks=4))


def test_a_hostfile_without_hosts_is_never_this_machine() -> None:
    with pytest.raises(LaunchError, match="no host given"):
        nodes_of(PlaceSpec(kind="hostfile", hostfile="/gone", ranks=2))
    assert nodes_of(PlaceSpec(kind="local", ranks=2)) == ()


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "../up", ""])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(LaunchError):
        nodes_of(PlaceSpec(kind="hostfile", hosts=(HostSpec(name=name),)))


def test_a_host_that_is_named_twice_is_refused() -> None:
    with pytest.raises(LaunchError, match="'node1' is named twice"):
        nodes_of(PlaceSpec(kind="hostfile", hosts=(HostSpec(name="node1"), HostSpec(name="node1"))))


def test_torchrun_on_the_second_host() -> None:
    assert _argv("torchrun", 1, args=("--bs", "8")) == (
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "3"),
        *("--master-addr", "node1", "--master-port", "29650"),
        *("--log-dir", str(ATTEMPT.node("node2").rank_logs), "--redirects", "3"),
        *("train.py", "--bs", "8"),
    )
    assert str(ATTEMPT.rank_logs) in _argv("torchrun", 0)


def test_a_node_rank_that_the_user_typed_is_kept() -> None:
    argv = _argv("torchrun", 1, launcher_args=("--node_rank", "7"))
    assert "--node-rank" not in argv and argv[argv.index("--node_rank") + 1] == "7"


def test_deepspeed_on_the_second_host_starts_that_hosts_ranks_alone() -> None:
    assert _argv("deepspeed", 1) == (
        *(sys.executable, "-m", "deepspeed.launcher.runner"),
        *("--hostfile", str(ATTEMPT.hostfile), "--no_ssh", "--node_rank", "1"),
        *("--master_addr", "node1", "--master_port", "29650"),
        *("--enable_each_rank_log", str(ATTEMPT.node("node2").rank_logs)),
        "train.py",
    )


def test_deepspeed_gets_the_devices_of_every_host() -> None:
    hosts = (HostSpec(name="node1", ranks=2, devices=("2", "3")), HostSpec(name="node2", ranks=2))
    argv = _argv("deepspeed", 0, hosts)
    assert argv[argv.index("--include") + 1] == "node1:2,3@node2"


def test_python_ranks_have_global_and_local_numbers() -> None:
    spec = on_hosts(make_spec(CWD), TWO)
    ranks = command_for(spec, hosts_allocation(spec, 1), ATTEMPT).ranks
    shared = {"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "29650"}
    assert ranks == tuple({"RANK": str(2 + local), "LOCAL_RANK": str(local), **shared} for local in range(3))


def test_one_rank_on_each_host_still_meets_the_others() -> None:
    spec = on_hosts(make_spec(CWD), (HostSpec(name="node1"), HostSpec(name="node2")))
    (overlay,) = command_for(spec, hosts_allocation(spec, 1), ATTEMPT).ranks
    assert (overlay["RANK"], overlay["LOCAL_RANK"], overlay["WORLD_SIZE"], overlay["LOCAL_WORLD_SIZE"]) == ("1", "0", "2", "1")
    assert "OMP_NUM_THREADS" not in command_for(spec, hosts_allocation(spec, 1), ATTEMPT).env


def test_a_program_as_typed_is_refused_on_many_hosts() -> None:
    with pytest.raises(LaunchError, match="one program on one host"):
        _argv("command", 0)


@pytest.mark.parametrize("kind", ["python", "torchrun", "deepspeed"])
def test_the_plans_interpreter_is_every_hosts(kind: str) -> None:
    spec = on_hosts(make_spec(CWD, kind=kind), TWO, python="/opt/py")
    assert command_for(spec, hosts_allocation(spec, 1), ATTEMPT).argv[0] == "/opt/py"


def test_what_deepspeed_shows_the_ranks_of_each_node() -> None:
    hosts = (HostSpec(name="node1", ranks=2, devices=("2", "3")), HostSpec(name="node2", ranks=2))
    spec = on_hosts(make_spec(CWD, kind="deepspeed"), hosts)
    shown = [variables_set_by_launcher(spec, hosts_allocation(spec, rank), {"CUDA_VISIBLE_DEVICES": "7"}) for rank in range(2)]
    assert shown == [{"CUDA_VISIBLE_DEVICES": "2,3"}, {"CUDA_VISIBLE_DEVICES": "0,1"}]


def test_devices_that_are_named_are_all_that_a_host_shows() -> None:
    hosts = (HostSpec(name="node1", ranks=2, devices=("2", "3")), HostSpec(name="node2", ranks=2))
    spec = on_hosts(make_spec(CWD, kind="torchrun"), hosts)
    assert command_for(spec, hosts_allocation(spec, 0), ATTEMPT).env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in command_for(spec, hosts_allocation(spec, 1), ATTEMPT).env


def test_the_interface_replaces_the_callers_variable() -> None:
    spec = on_hosts(make_spec(CWD), TWO, interface="=eth0")
    found = {variable.name: variable for variable in environment(spec, hosts_allocation(spec, 0), ATTEMPT, {"NCCL_SOCKET_IFNAME": "x"})}
    assert (found["NCCL_SOCKET_IFNAME"].set_by, found["NCCL_SOCKET_IFNAME"].replaced) == ("place", "x")
    assert found["GLOO_SOCKET_IFNAME"].value == "eth0"


def test_what_belongs_to_this_host_stays_here() -> None:
    stays = {
        "HOSTNAME": "head",
        "SSH_AUTH_SOCK": "/s",
        "DISPLAY": ":0",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "PWD": "/",
        "SHLVL": "1",
        "_": "x",
    }
    own = {"SEATRIAL_RUN_DIR": "/old", "CUDA_VISIBLE_DEVICES": "7"}
    travels = {"PATH": "/bin", "HOME": "/root", "HF_TOKEN": "t", "NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/l", "PYTHONPATH": "/p"}
    assert portable_environment({**stays, **own, **travels}) == travels


@pytest.mark.parametrize(
    ("kind", "settings", "devices", "expected"),
    [
        ("deepspeed", {"device": "cpu"}, (), True),
        ("deepspeed", {"device": "cpu"}, ("0",), False),
        ("deepspeed", {"device": "auto"}, (), False),
        ("deepspeed", {}, (), False),
        ("torchrun", {"device": "cpu"}, (), False),
    ],
)
def test_only_a_plan_with_device_cpu_is_for_cpu(kind: str, settings: dict[str, str], devices: tuple[str, ...], expected: bool) -> None:
    spec = replace(make_spec(CWD, kind=kind), settings=settings)  # type: ignore[arg-type]
    assert is_cpu_only(on_hosts(spec, [HostSpec(name="node1", devices=devices)])) is expected


def test_every_file_of_every_node_is_written(tmp_path: Path) -> None:
    attempt = attempt_in(tmp_path)
    spec = on_hosts(make_spec(tmp_path, kind="torchrun", module="seatrial_workloads.dummy.train", env={"HF_TOKEN": "hf_secret_1"}), TWO)
    orders = prepare_attempt(spec, attempt, hosts_allocation(spec), {"PATH": "/bin", "SSH_TTY": "/dev/pts/1", "NCCL_ALGO": "Ring"})
    assert from_json(RunSpec, read_json(attempt.spec)).place == spec.place
    assert attempt.hostfile.read_text() == "node1 slots=2\nnode2 slots=3\n"
    assert attempt.settings.exists() and attempt.environment.exists() and not attempt.agent_order.exists()
    for node, order in zip(("node1", "node2"), orders, strict=True):
        own = attempt.node(node)
        assert from_json(AgentOrder, read_json(own.agent_order)) == order
        assert [stat.S_IMODE(path.stat().st_mode) for path in (own.agent_order, own.command)] == [0o600, 0o700]
        assert "hf_secret_1" not in attempt.command.read_text() and "export NCCL_ALGO=${NCCL_ALGO-Ring}" in own.command.read_text()
    assert [(order.own_folder, order.first_rank, order.rank_logs) for order in orders] == [
        ("", 0, str(attempt.rank_logs)),
        (str(attempt.node("node2").folder), 2, str(attempt.node("node2").rank_logs)),
    ]
    assert {order.attempt_folder for order in orders} == {str(attempt.folder)}
    assert {order.command.env["SEATRIAL_RUN_DIR"] for order in orders} == {str(attempt.folder)}
    assert f"{shlex.join(by_hand('node2', attempt))} &\n" in attempt.command.read_text()
    assert str(attempt.node("node2").folder / "by-hand" / "ranks") in attempt.node("node2").command.read_text()


@pytest.mark.parametrize(("via", "args"), [("ssh", ("-p", "2222")), ("pdsh", ("-p", "2222", "-i", "my key"))])
def test_the_script_enters_hosts_as_agents_were_started(
    tmp_path: Path, via: str, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.launch.prepare.is_this_host", lambda name: name == "node1")
    attempt = attempt_in(tmp_path)
    spec = on_hosts(make_spec(tmp_path, kind="torchrun"), TWO)
    spec = replace(spec, place=replace(spec.place, via=via, ssh_args=("-p", "2222")))
    prepare_attempt(spec, attempt, hosts_allocation(spec), {"PATH": "/bin", PDSH_APPEND: "-i 'my key'"})
    assert shlex.join(by_hand("node2", attempt, args)) in attempt.command.read_text()


def by_hand(host: str, attempt: AttemptPaths, args: Sequence[str] = ()) -> list[str]:
    """As agents are started, but with a terminal: what runs there is hung up when the script ends."""
    program, *argv = ssh_command(host, ["bash", str(attempt.node(host).command)], args)
    return [program, "-tt", "-n", *(argument for argument in argv if argument != "-T")]


def test_without_ssh_the_script_prints_what_to_type(tmp_path: Path) -> None:
    attempt = attempt_in(tmp_path)
    spec = replace(make_spec(tmp_path, kind="torchrun"), place=PlaceSpec(kind="pernode", nodes=2, ranks=2))
    prepare_attempt(spec, attempt, hosts_allocation(spec), {"PATH": "/bin"})
    text = attempt.command.read_text()
    assert f"node1: bash {attempt.node('node1').command}" in text and "BatchMode" not in text


def test_what_is_written_of_node_0_here_has_what_belongs_to_this_host_and_another_s_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "3", "NCCL_ALGO": "Ring"}
    for number, (here, recorded) in enumerate((("node1", "3"), ("elsewhere", None))):
        monkeypatch.setattr("seatrial.launch.prepare.is_this_host", lambda name, here=here: name == here)
        attempt = attempt_in(tmp_path / str(number))
        spec = on_hosts(make_spec(tmp_path, kind="torchrun"), TWO)
        prepare_attempt(spec, attempt, hosts_allocation(spec), caller)
        stored = {one["name"]: one["value"] for one in read_json(attempt.environment)["variables"]}
        assert (stored.get("CUDA_VISIBLE_DEVICES"), stored["NCCL_ALGO"]) == (recorded, "Ring")
