"""`deepspeed`: which hosts and devices its runner is told of, and what it sets for the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import LaunchError
from seatrial.launch.launchers import deepspeed
from seatrial.records.command import Allocation
from seatrial.records.run_spec import HostSpec
from tests.unit.launch.factory import allocation_for, attempt_in, hosts_allocation, make_spec, on_hosts

CWD = Path("/job")
ATTEMPT = attempt_in(CWD)
PROGRAM = ("ds",)


def _words(allocation: Allocation, spec_args: tuple[str, ...] = (), **more: object) -> tuple[str, ...]:
    spec = make_spec(CWD, kind="deepspeed", program=PROGRAM, launcher_args=spec_args, **more)  # type: ignore[arg-type]
    return deepspeed.words(spec, allocation, ATTEMPT, {})


def test_on_many_hosts_each_starts_its_own_ranks_alone() -> None:
    spec = on_hosts(make_spec(CWD, kind="deepspeed", program=PROGRAM), (HostSpec(name="n0", ranks=2), HostSpec(name="n1", ranks=2)))
    words = deepspeed.words(spec, hosts_allocation(spec, 1), ATTEMPT, {})
    assert words == (
        *("ds", "--hostfile", str(ATTEMPT.hostfile), "--no_ssh", "--node_rank", "1"),
        *("--master_addr", "n0", "--master_port", "29650"),
        *("--enable_each_rank_log", str(ATTEMPT.node("n1").rank_logs), "train.py"),
    )


def test_devices_of_some_hosts_are_told_to_all_of_them() -> None:
    hosts = (HostSpec(name="n0", ranks=2, devices=("0", "3")), HostSpec(name="n1", ranks=1))
    spec = on_hosts(make_spec(CWD, kind="deepspeed", program=PROGRAM), hosts)
    for node in (0, 1):
        words = deepspeed.words(spec, hosts_allocation(spec, node), ATTEMPT, {})
        assert words[words.index("--include") + 1] == "n0:0,3@n1"


def test_one_host_is_told_of_no_hostfile_and_of_no_address() -> None:
    spec = make_spec(CWD, kind="deepspeed", program=PROGRAM, ranks=2)
    words = deepspeed.words(spec, allocation_for(spec), ATTEMPT, {})
    assert words[:5] == ("ds", "--hostfile", deepspeed.NO_HOSTFILE, "--num_gpus", "2") and "--master_addr" not in words


def test_a_port_that_was_typed_stands_alone() -> None:
    words = _words(Allocation(ranks=1, master_port=29650), ("--master_port=1234",))
    assert "--master_port" not in words and "--master_port=1234" in words


def test_gpus_by_uuid_are_refused_with_what_to_write_instead() -> None:
    with pytest.raises(LaunchError, match=r"name GPUs by number in place\.include"):
        _words(Allocation(ranks=1, devices=("GPU-1a",), master_port=29650))


def test_ranks_see_the_devices_named_else_as_many_as_there_are_ranks() -> None:
    assert deepspeed.given_to_ranks(Allocation(ranks=2, devices=("1", "3"), master_port=1), {}) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert deepspeed.given_to_ranks(Allocation(ranks=2, master_port=1), {}) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    spec = on_hosts(make_spec(CWD), (HostSpec(name="n0", ranks=1), HostSpec(name="n1", ranks=3)))
    assert deepspeed.given_to_ranks(hosts_allocation(spec, 1), {}) == {"CUDA_VISIBLE_DEVICES": "0,1,2"}


def test_ranks_that_are_to_write_to_the_common_output_have_no_folder() -> None:
    assert deepspeed.rank_logs(make_spec(CWD, launcher_args=("--enable_each_rank_log", "None")), ATTEMPT) is None
    assert deepspeed.rank_logs(make_spec(CWD), ATTEMPT) == str(ATTEMPT.rank_logs)


def test_deepspeed_sets_the_variables_of_ranks_itself() -> None:
    spec = make_spec(CWD, kind="deepspeed", ranks=4)
    assert deepspeed.overlays(spec, allocation_for(spec)) == ({},)
