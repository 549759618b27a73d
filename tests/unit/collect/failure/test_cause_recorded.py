"""Every entry with patterns, one by one, on recorded text: the first cause among the noise of many ranks."""

from __future__ import annotations

import re

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.collect.logs.line_marks import marked_lines
from seatrial.signatures.registry import signature, signatures
from tests.unit.collect.failure_wordings import WORDINGS
from tests.unit.collect.harmless_lines import HARMLESS_LINES
from tests.unit.collect.recorded_failures import FOLDER, RECORDED_SIGNATURES, recorded

# What ranks say that have only lost another one.
LOST = [
    "[rank6]: Traceback (most recent call last):",
    '[rank6]:   File "/srv/job/train.py", line 96, in main',
    "[rank6]:     dist.all_reduce(grad)",
    "[rank6]: torch.distributed.DistBackendError: NCCL error in: NCCL.cpp:3690, remote process exited or there was a network error",
    "[rank6]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "[rank7]: Traceback (most recent call last):",
    '[rank7]:   File "/srv/job/train.py", line 96, in main',
    "[rank7]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.12]:7565",
    "[rank7]:[W1115 14:30:31.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer",
]
# What ranks say that waited for it, and were ended in the end.
WAITED = [
    "[rank5]: [rank5]:[E1115 14:30:31.5 ProcessGroupNCCL.cpp:685] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(9)",
    "[rank5]: terminate called after throwing an instance of 'c10::DistBackendError'",
    "[rank5]: Fatal Python error: Aborted",
    "[rank4]: RuntimeError: [Rank 4]: Ranks 1 failed to pass monitoredBarrier in 1800000 ms",
]
MARK = re.compile(r"^(?:\[rank\d+\]: )+|^\w+: (?=Tra|\w+Error)")
# Ends before there are ranks: a shell, a scheduler, a launcher or a program of one process.
BEFORE_RANKS = {
    "batch_shell", "deepspeed_host_not_in_hostfile", "deepspeed_hostfile_empty", "deepspeed_master_address", "deepspeed_missing_bash",
    "deepspeed_missing_env", "deepspeed_node_rank",
    "deepspeed_missing_sh", "deepspeed_no_hostfile", "deepspeed_no_pdsh", "deepspeed_no_pdsh_sh", "deepspeed_no_slot",
    "deepspeed_not_installed", "loader_timeout", "loadgen_invalid", "permission", "program_missing", "slurm_mpi", "slurm_refused",
    "slurm_refused_processors",
}  # fmt: skip
ROOTS = [name for name, (id, _) in RECORDED_SIGNATURES.items() if not signature(id).after_effect]
NO_ECHOES = [name for name, (id, _) in RECORDED_SIGNATURES.items() if not signature(id).echo]


@pytest.mark.parametrize("name", RECORDED_SIGNATURES)
def test_recorded_ends_give_their_entry(name: str) -> None:
    id, words = RECORDED_SIGNATURES[name]
    entry = signature(id)
    # deepspeed hands on -9 as 247.
    found = diagnose(247 if name == "deepspeed_rank_killed" else 1, recorded(name))
    assert (found.signature, found.cause, found.action, found.fault) == (id, entry.cause, entry.action, entry.fault)
    assert words in found.detail
    assert entry.echo or found.telling == ()


@pytest.mark.parametrize("name", sorted(set(RECORDED_SIGNATURES) - BEFORE_RANKS))
def test_other_ranks_or_hosts_speak_in_it_too(name: str) -> None:
    sources = {line.source for line in marked_lines(recorded(name))}
    assert len(sources) > 1 and sources != {""}


@pytest.mark.parametrize("name", RECORDED_SIGNATURES)
def test_harmless_lines_before_and_after_change_nothing(name: str) -> None:
    lines = recorded(name)
    assert diagnose(1, [*HARMLESS_LINES, *lines, *HARMLESS_LINES]) == diagnose(1, lines)


@pytest.mark.parametrize("name", ROOTS)
def test_other_ranks_that_speak_first_and_last_do_not_hide_a_cause(name: str) -> None:
    lines = recorded(name)
    assert diagnose(1, [*LOST, *WAITED, *lines, *WAITED, *LOST]) == diagnose(1, lines)


@pytest.mark.parametrize("name", NO_ECHOES)
def test_ranks_that_only_lost_another_one_do_not_hide_what_tells_more(name: str) -> None:
    lines = recorded(name)
    assert diagnose(1, [*LOST, *lines]) == diagnose(1, lines)


def test_every_recorded_end_is_read_and_every_entry_with_a_pattern_has_one() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == set(RECORDED_SIGNATURES)
    assert {entry.id for entry in signatures() if entry.patterns and not entry.slows} == {id for id, _ in RECORDED_SIGNATURES.values()}


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in WORDINGS.items() for line in lines])
def test_other_wordings_are_told_too(id: str, line: str) -> None:
    assert diagnose(1, ["step 1", line, *HARMLESS_LINES]).signature == id
    # With the marks of srun, of pdsh, and of the merged log.
    assert diagnose(1, ["3: step 1", f"3: {line}"]).signature == id
    assert (
        diagnose(1, ["jw2: Traceback (most recent call last):", f"jw2: {line}", "pdsh@jw1: jw2: ssh exited with exit code 1"]).signature
        == id
    )
    assert diagnose(1, [f"[rank3]: [rank3]: {line}"]).signature == id


def test_every_pattern_finds_a_line_that_is_recorded_here() -> None:
    texts = [line for name in RECORDED_SIGNATURES for line in recorded(name)]
    texts += [text for lines in WORDINGS.values() for text in lines]
    patterns = [(entry.id, pattern) for entry in signatures() if not entry.slows for pattern in entry.patterns]
    assert [one for one in patterns if not any(re.search(one[1], MARK.sub("", text)) for text in texts)] == []


def test_cuda_oom_keeps_its_sizes() -> None:
    detail = diagnose(1, recorded("cuda_oom_optimizer")).detail
    sizes = ("Tried to allocate 112.00 MiB", "total capacity of 79.19 GiB", "61.06 MiB is free", "74.40 GiB is allocated by PyTorch")
    assert [size for size in sizes if size not in detail] == []
