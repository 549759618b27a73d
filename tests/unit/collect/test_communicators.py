"""The world that ranks formed: read from their events, from rank variables and from NCCL's lines, and compared with the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.collect.communicators import ProcessGroups, are_connected, communicator_cautions, effective_backend, read_process_groups
from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.observe.communicators import WorldCheck, smaller_world, world_at_end
from seatrial.observe.progress import Progress, RankState
from seatrial.records.attempt import Attempt
from seatrial.records.caution import OTHER_NETWORK, SMALLER_WORLD, WORLD_UNKNOWN
from seatrial.records.codec import to_json
from seatrial.records.launch import Communicator, NodeRecord, NodesRecord, ObservedRanks, RankConnection, RankListener
from seatrial.records.plan import SiteSpec
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

NCCL = """\
node1:41:60 [0] NCCL INFO ncclCommInitRank comm 0x5d rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9f - Init COMPLETE
node1:42:61 [1] NCCL INFO ncclCommInitRank comm 0x5e rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0x9f - Init COMPLETE
node1:41:60 [0] NCCL INFO ncclCommSplit comm 0x6d rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0x8f - Init COMPLETE
node1:41:66 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:41:66 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA
node1:42:67 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] [send] via NET/Socket/0
"""


def group(rank: int, size: int, backend: str = "gloo") -> Communicator:
    return Communicator(rank=rank, backend=backend, size=size, transport="TCP" if backend == "gloo" else "")


@pytest.mark.parametrize(
    ("communicators", "sizes", "problem"),
    [
        ([group(0, 2), group(1, 2)], (), ""),
        # More than planned is no smaller world; and what a rank reports counts before variables.
        ([group(0, 4)], (1,), ""),
        ([group(0, 1), group(1, 1)], (2,), "the process group (gloo) has 1 of 2 planned ranks: 2 processes formed a world each"),
        ([], (1,), "WORLD_SIZE of its processes is 1, and the plan has 2 ranks"),
        # A helper that ran alone proves nothing.
        ([], (1, 2), ""),
        ([], (), ""),
    ],
)
def test_a_world_smaller_than_planned(communicators: list[Communicator], sizes: tuple[int, ...], problem: str) -> None:
    assert smaller_world(2, communicators, ObservedRanks(world_sizes=sizes)) == problem


def attempt_with_groups(out: Path, sizes: list[int], backend: str = "gloo") -> Attempt:
    run = factory.spec()
    attempt = on_disk.write_attempt(out, replace(run, place=replace(run.place, ranks=2)))
    for rank, size in enumerate(sizes):
        line = on_disk.event(attempt, "process_group", rank=rank, backend=backend, size=size, transport=None, interface="eth0")
        on_disk.write_events(attempt, rank, f"{line}\nno event\n")
    return attempt


def test_it_is_noticed_at_the_first_step_and_at_the_end(tmp_path: Path) -> None:
    attempt = AttemptPaths(Path(attempt_with_groups(tmp_path, [1, 1]).folder))
    check = WorldCheck(2, attempt)
    ranks = (RankState(rank=0), RankState(rank=1))
    assert check.problem(Progress(rank_states=ranks)) == ""
    assert "has 1 of 2 planned ranks" in check.problem(Progress(rank_states=ranks, step=0))
    assert "has 1 of 2 planned ranks" in world_at_end(2, attempt)
    assert world_at_end(1, attempt) == ""


def test_the_agent_s_observation_counts_for_a_script_without_the_probe(tmp_path: Path) -> None:
    attempt = AttemptPaths(Path(on_disk.write_attempt(tmp_path).folder))
    assert world_at_end(2, attempt) == ""
    files.write_json(attempt.observed_ranks, to_json(ObservedRanks(world_sizes=(1,), ranks=(0,))))
    assert world_at_end(2, attempt).startswith("WORLD_SIZE of its processes is 1")


def test_nccl_s_lines_give_the_transport_of_each_rank(tmp_path: Path) -> None:
    attempt = attempt_with_groups(tmp_path, [2, 2], backend="nccl")
    assert [one.transport for one in read_process_groups(attempt).communicators] == ["", ""]
    on_disk.write_log(attempt, NCCL)
    found = read_process_groups(attempt).communicators
    assert [(one.rank, one.size, one.transport, one.interface) for one in found] == [
        (0, 2, "NET/IB, P2P", "eth0"),
        (1, 2, "NET/Socket", "eth0"),
    ]


def test_nccl_s_lines_alone_show_the_communicators_of_a_script(tmp_path: Path) -> None:
    run = factory.spec()
    attempt = on_disk.write_attempt(tmp_path, replace(run, place=replace(run.place, ranks=2)))
    on_disk.write_log(attempt, NCCL)
    assert [(one.rank, one.backend, one.size) for one in read_process_groups(attempt).communicators] == [(0, "nccl", 2), (1, "nccl", 2)]
    assert not list(communicator_cautions(attempt, read_process_groups(attempt), 2))
    on_disk.write_log(attempt, NCCL.replace("nranks 2", "nranks 1"))
    (caution,) = communicator_cautions(attempt, read_process_groups(attempt), 2)
    assert caution.kind == SMALLER_WORLD


def connection(rank: int, local: str, remote: str) -> RankConnection:
    return RankConnection(rank=rank, local=local, remote=remote)


FAR = (connection(0, "10.0.0.1:40", "10.0.0.2:50"), connection(1, "10.0.0.2:50", "10.0.0.1:40"))
NEAR = (connection(0, "127.0.0.1:40", "127.0.0.1:50"), connection(1, "127.0.0.1:50", "127.0.0.1:40"))


@pytest.mark.parametrize(
    ("first", "second", "ranks", "connected"),
    [
        (FAR[:1], FAR[1:], 2, True),
        (NEAR, (), 2, True),
        # The same loopback addresses on two hosts are two connections, each to somebody else.
        (NEAR[:1], NEAR[1:], 2, False),
        # One end alone may be anybody's.
        (FAR[:1], (), 2, False),
        ((), (), 2, False),
        # Two pairs that know nothing of each other are no world of four.
        ((*FAR[:1], connection(2, "10.0.0.1:41", "10.0.0.2:51")), (*FAR[1:], connection(3, "10.0.0.2:51", "10.0.0.1:41")), 4, False),
        # A ring is.
        (
            (*FAR[:1], connection(2, "10.0.0.1:41", "10.0.0.2:51")),
            (*FAR[1:], connection(3, "10.0.0.2:51", "10.0.0.1:41"), *(replace(one, rank=one.rank + 2) for one in NEAR[:1])),
            4,
            False,
        ),
        (
            (*FAR[:1], connection(2, "10.0.0.1:41", "10.0.0.2:51")),
            (
                *(*FAR[1:], connection(3, "10.0.0.2:51", "10.0.0.1:41")),
                *(connection(1, "127.0.0.1:60", "127.0.0.1:61"), connection(3, "127.0.0.1:61", "127.0.0.1:60")),
            ),
            4,
            True,
        ),
    ],
)
def test_connections_between_ranks_show_that_they_are_in_touch(
    tmp_path: Path, first: tuple[RankConnection, ...], second: tuple[RankConnection, ...], ranks: int, connected: bool
) -> None:
    run = factory.spec()
    script = replace(run.workload, module=None, script="train.py")
    attempt = on_disk.write_attempt(tmp_path, replace(run, place=replace(run.place, ranks=ranks), workload=script))
    paths = AttemptPaths(Path(attempt.folder))
    paths.command.write_text("")
    nodes = NodesRecord(nodes=tuple(NodeRecord(name=f"node{at + 1}", node_rank=at) for at in (0, 1)))
    files.write_json(paths.nodes_record, to_json(nodes))
    paths.node("node2").folder.mkdir(parents=True)
    for path, connections in ((paths.observed_ranks, first), (paths.node("node2").observed_ranks, second)):
        listening = tuple(RankListener(rank=one.rank, at="10.0.0.1:9") for one in connections)
        files.write_json(path, to_json(ObservedRanks(world_sizes=(ranks,), connections=connections, listening=listening)))
    cautions = list(communicator_cautions(attempt, ProcessGroups(), ranks))
    assert are_connected(paths, ranks) == connected == (not cautions)
    assert connected or (cautions[0].kind == WORLD_UNKNOWN and f"the {ranks} ranks formed one process group" in cautions[0].text)
    # What a rank reports itself counts, and a single rank is together with itself.
    assert not list(communicator_cautions(attempt, ProcessGroups(communicators=(group(0, ranks),)), ranks)) and not list(
        communicator_cautions(attempt, ProcessGroups(), 1)
    )


# What 127.0.0.1 shows with torchrun: gloo's ranks all listen at one address, a TCPStore at any; (rank, listens at), (rank, local, remote).
def sockets(listens: list[tuple[int, str]], links: list[tuple[int, str, int, str]]) -> ObservedRanks:
    both = [pair for rank, local, other, remote in links for pair in ((rank, local, remote), (other, remote, local))]
    listening = tuple(RankListener(rank=rank, at=at) for rank, at in listens)
    return ObservedRanks(connections=tuple(connection(*one) for one in both), listening=listening)


def on_loopback(ports: list[tuple[int, int]]) -> list[tuple[int, str]]:
    return [(rank, f"127.0.0.1:{port}") for rank, port in ports]


def link(rank: int, port: int, other: int, accepts: int) -> tuple[int, str, int, str]:
    return rank, f"127.0.0.1:{port}", other, f"127.0.0.1:{accepts}"


GLOO_2 = sockets(on_loopback([(0, 343), (1, 348)]), [link(1, 431, 0, 343)])
GLOO_3 = sockets(on_loopback([(0, 343), (1, 348), (2, 349)]), [link(1, 431, 0, 343), link(2, 432, 0, 343), link(2, 433, 1, 348)])
NCCL_3 = sockets(on_loopback([(0, 343), (1, 348), (2, 349)]), [link(0, 431, 1, 348), link(1, 432, 2, 349), link(2, 433, 0, 343)])
STORE = sockets([(0, ":::297")], [link(0, 430, 0, 297), link(1, 431, 0, 297)])
# Each rank has a debugger of its own too.
STORE_AND_DEBUGGERS = replace(STORE, listening=(*STORE.listening, *GLOO_2.listening))
METRICS = sockets(on_loopback([(0, 800)]), [link(1, 431, 0, 800)])
STAR = sockets(on_loopback([(0, 800), (1, 801), (2, 802)]), [link(1, 431, 0, 800), link(2, 432, 0, 800)])


@pytest.mark.parametrize(
    ("observed", "ranks", "connected"),
    [
        *[(GLOO_2, 2, True), (GLOO_3, 3, True), (NCCL_3, 3, True)],
        *[(STORE, 2, False), (STORE_AND_DEBUGGERS, 2, False), (METRICS, 2, False), (STAR, 3, False)],
    ],
)
def test_a_server_of_one_rank_shows_no_process_group(tmp_path: Path, observed: ObservedRanks, ranks: int, connected: bool) -> None:
    paths = AttemptPaths(Path(on_disk.write_attempt(tmp_path, factory.spec()).folder))
    files.write_json(paths.observed_ranks, to_json(observed))
    assert are_connected(paths, ranks) == connected


def test_gloo_where_nccl_was_requested_is_a_caution_and_an_effective_setting(tmp_path: Path) -> None:
    attempt = attempt_with_groups(tmp_path, [2, 2])
    workload = replace(attempt.spec.workload, args=("--ddp_backend", "nccl"))
    asked = replace(attempt, spec=replace(attempt.spec, workload=workload))
    found = read_process_groups(asked)
    (caution,) = communicator_cautions(asked, found, 2)
    backend = effective_backend(asked, found.communicators)["backend"]
    assert (caution.kind, backend.requested, backend.effective) == ("other_backend", "nccl", "gloo")
    assert not list(communicator_cautions(attempt, found, 2)) and effective_backend(attempt, found.communicators) == {}


NETWORK = """\
node1:41:41 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node1:41:60 [0] NCCL INFO Failed to initialize NET plugin IB
node1:41:60 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]ib0:fe80::1%ib0<0>
node1:41:60 [0] NCCL INFO Using network Socket
"""
IB = "node1:41:60 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nnode1:41:60 [0] NCCL INFO Using network IB\n"


@pytest.mark.parametrize(
    ("log", "env", "interface", "difference"),
    [
        (NETWORK, {"NCCL_IB_DISABLE": "1"}, "", ""),
        (IB, {"NCCL_IB_DISABLE": "1"}, "", "NCCL_IB_DISABLE=1 was set, and NCCL used IB"),
        (NETWORK, {"NCCL_IB_DISABLE": "0"}, "", "NCCL_IB_DISABLE=0 was set, and NCCL used Socket"),
        (IB, {"NCCL_IB_DISABLE": "0"}, "", ""),
        (NETWORK, {"NCCL_NET": "Socket"}, "", ""),
        (NETWORK, {"NCCL_NET": "IB"}, "", "NCCL_NET=IB was set, and NCCL used Socket"),
        # Nobody asked for anything.
        (NETWORK, {}, "", ""),
        (IB, {}, "eth", ""),
        (NETWORK, {}, "eth0", "Interface eth0 was named, and NCCL used ib0"),
        (NETWORK, {}, "^lo,docker", ""),
        (NETWORK, {}, "^ib", "Interface ^ib was named, and NCCL used ib0"),
        # Without its lines nothing is known.
        ("", {"NCCL_IB_DISABLE": "1"}, "eth0", ""),
    ],
)
def test_another_network_than_the_site_names_is_a_caution(
    tmp_path: Path, log: str, env: dict[str, str], interface: str, difference: str
) -> None:
    run = factory.spec()
    place = replace(run.place, ranks=2, interface=interface)
    attempt = on_disk.write_attempt(tmp_path, replace(run, place=place, site=SiteSpec(name="lab", env=env)))
    on_disk.write_log(attempt, NCCL + log)
    cautions = [one.text for one in communicator_cautions(attempt, read_process_groups(attempt), 2) if one.kind == OTHER_NETWORK]
    assert [text.partition(":")[0] for text in cautions] == ([difference] if difference else [])
    # What the plan says counts before the site.
    planned = replace(attempt, spec=replace(attempt.spec, env={"NCCL_IB_DISABLE": "2", "NCCL_NET": "", "NCCL_SOCKET_IFNAME": "eth,ib"}))
    assert not [one for one in communicator_cautions(planned, read_process_groups(planned), 2) if one.kind == OTHER_NETWORK]


def test_gloo_on_another_interface_than_the_place_names(tmp_path: Path) -> None:
    attempt = attempt_with_groups(tmp_path, [2, 2])
    named = {
        name: replace(attempt, spec=replace(attempt.spec, place=replace(attempt.spec.place, interface=name))) for name in ("eth0", "ib0")
    }
    found = {name: [one.kind for one in communicator_cautions(one, read_process_groups(one), 2)] for name, one in named.items()}
    assert found == {"eth0": [], "ib0": [OTHER_NETWORK]}
