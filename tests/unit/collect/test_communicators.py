"""The world that ranks formed: read from their events, from rank variables and from NCCL's lines, and compared with the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.collect.communicators import communicator_cautions, effective_backend, read_communicators
from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.observe.communicators import WorldCheck, smaller_world, world_at_end
from seatrial.observe.progress import Progress, RankState
from seatrial.records.attempt import Attempt
from seatrial.records.codec import to_json
from seatrial.records.launch import Communicator, ObservedRanks
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
    assert [one.transport for one in read_communicators(attempt)] == ["", ""]
    on_disk.write_log(attempt, NCCL)
    found = read_communicators(attempt)
    assert [(one.rank, one.size, one.transport, one.interface) for one in found] == [
        (0, 2, "NET/IB, P2P", "eth0"),
        (1, 2, "NET/Socket", "eth0"),
    ]


def test_nccl_s_lines_alone_show_the_communicators_of_a_script(tmp_path: Path) -> None:
    run = factory.spec()
    attempt = on_disk.write_attempt(tmp_path, replace(run, place=replace(run.place, ranks=2)))
    on_disk.write_log(attempt, NCCL)
    assert read_communicators(attempt) == ()
    with_debug = replace(attempt, provenance=replace(attempt.provenance, environment={"NCCL_DEBUG": "INFO"}))
    assert [(one.rank, one.backend, one.size) for one in read_communicators(with_debug)] == [(0, "nccl", 2), (1, "nccl", 2)]
    on_disk.write_log(attempt, NCCL.replace("nranks 2", "nranks 1"))
    (caution,) = communicator_cautions(with_debug, read_communicators(with_debug))
    assert caution.kind == "single_rank_communicators"


def test_gloo_where_nccl_was_requested_is_a_caution_and_an_effective_setting(tmp_path: Path) -> None:
    attempt = attempt_with_groups(tmp_path, [2, 2])
    workload = replace(attempt.spec.workload, args=("--ddp_backend", "nccl"))
    asked = replace(attempt, spec=replace(attempt.spec, workload=workload))
    found = read_communicators(asked)
    (caution,) = communicator_cautions(asked, found)
    assert (caution.kind, effective_backend(asked, found)["backend"][:2]) == ("other_backend", ("nccl", "gloo"))
    assert not list(communicator_cautions(attempt, found)) and effective_backend(attempt, found) == {}
