"""`torchrun`: what is added on one of many hosts, and where its ranks write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seatrial.launch.launchers import torchrun
from seatrial.records.run_spec import HostSpec
from tests.unit.launch.factory import allocation_for, attempt_in, hosts_allocation, make_spec, on_hosts

CWD = Path("/job")
ATTEMPT = attempt_in(CWD)
HOSTS = (HostSpec(name="n0", ranks=2), HostSpec(name="n1", ranks=4))


def test_each_host_has_its_own_rank_size_and_folder_and_all_meet_at_the_first() -> None:
    spec = on_hosts(make_spec(CWD, kind="torchrun"), HOSTS)
    first, second = (torchrun.words(spec, hosts_allocation(spec, node, port=29700), ATTEMPT, {}) for node in (0, 1))
    meeting = ("--master-addr", "n0", "--master-port", "29700")
    head = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2")
    logs = ("--log-dir", str(ATTEMPT.rank_logs), "--redirects", "3")
    own_logs = ("--log-dir", str(ATTEMPT.node("n1").rank_logs), "--redirects", "3")
    assert first == (*head, "--node-rank", "0", "--nproc-per-node", "2", *meeting, *logs, "train.py")
    assert second == (*head, "--node-rank", "1", "--nproc-per-node", "4", *meeting, *own_logs, "train.py")


@pytest.mark.parametrize("option", torchrun.RENDEZVOUS_OPTIONS)
def test_whoever_names_a_rendezvous_has_his_own(option: str) -> None:
    typed = f"--{option.replace('_', '-')}" if option == "standalone" else f"--{option.replace('_', '-')}=x"
    spec = make_spec(CWD, kind="torchrun", ranks=2, launcher_args=(typed,))
    words = torchrun.words(spec, allocation_for(spec), ATTEMPT, {})
    assert typed in words and not [word for word in words if word.startswith(("--master", "--rdzv", "--standalone")) and word != typed]


def test_a_node_rank_that_the_user_typed_stands_alone() -> None:
    spec = on_hosts(make_spec(CWD, kind="torchrun", launcher_args=("--node_rank", "7")), HOSTS)
    words = torchrun.words(spec, hosts_allocation(spec, 1), ATTEMPT, {})
    assert "--node-rank" not in words and words[words.index("--node_rank") + 1] == "7"


def test_torchrun_sets_the_variables_of_ranks_itself() -> None:
    spec = make_spec(CWD, kind="torchrun", ranks=8)
    assert torchrun.overlays(spec, allocation_for(spec)) == ({},)


def test_a_folder_that_was_typed_counts_from_the_runs_own() -> None:
    spec = make_spec(CWD, kind="torchrun", launcher_args=("--log-dir", "logs"))
    assert torchrun.rank_logs(spec, ATTEMPT) == "/job/logs"
