"""What no entry explains stays unknown, with the most telling lines; and lines that only look like a cause."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.collect.failure.telling_lines import LONGEST, MOST_LINES
from seatrial.records.outcome import Cause, Fault

REPORT = [
    "E1115 14:43:06.1 4001 torch/distributed/elastic/api.py:984] failed (exitcode: 7) local_rank: 1 (pid: 4003) of binary: python",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
    "Failures:",
    "Root Cause (first observed failure):",
    "[0]:",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : 7 (pid: 4003)",
]


def test_lines_that_speak_of_trouble_are_picked_the_earliest_first() -> None:
    lines = ["step 1", "[app] could not open the shard map", "step 2", "[app] FATAL: shard 17 is invalid", "bye"]
    found = diagnose(3, lines)
    assert (found.cause, found.fault) == (Cause.EXIT_CODE, Fault.UNKNOWN)
    assert found.telling == ("[app] could not open the shard map", "[app] FATAL: shard 17 is invalid")
    assert found.detail.endswith("the log tells no cause; its most telling line: [app] could not open the shard map")


def test_where_none_does_the_last_lines_of_the_rank_that_ended_first_are() -> None:
    lines = [*(f"[rank{rank}]: step {step}" for step in range(9) for rank in (0, 1)), "[rank0]: still here", *REPORT]
    found = diagnose(1, lines)
    assert found.detail == "rank 1 ended first, with exit code 7, and said nothing that tells why"
    assert found.telling == tuple(f"step {step}" for step in range(4, 9))


def test_else_the_last_lines_of_all() -> None:
    assert diagnose(None, ["a", "", "b"]).telling == ("a", "b")
    assert diagnose(None, []).telling == ()
    assert diagnose(None, []).cause is Cause.UNKNOWN


def test_lines_are_few_short_and_none_twice() -> None:
    found = diagnose(3, ["error: " + "x" * 900, *["it failed"] * 50, *(f"failure {n}" for n in range(50))])
    assert len(found.telling) == MOST_LINES and len(found.telling[0]) == LONGEST
    assert found.telling[1:3] == ("it failed", "failure 0")


@pytest.mark.parametrize(
    "line",
    [
        "0 errors",
        "word error rate 0.31",
        "mean_abs_error 0.1",
        "no failures so far",
        "    raise ValueError('failed')",
        "UserWarning: it may fail",
    ],
)
def test_lines_that_speak_of_trouble_only_by_the_way_are_not_picked(line: str) -> None:
    found = diagnose(3, [line, "step 7"])
    assert "most telling" not in found.detail and found.cause is Cause.EXIT_CODE


def test_complaints_of_lost_peers_and_the_launcher_are_not_telling() -> None:
    lost = "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"
    found = diagnose(1, ["[rank1]: step 1", lost, *REPORT])
    assert found.telling == ("step 1",)


def test_a_lost_peer_explains_nothing_and_what_else_is_said_is_kept() -> None:
    lines = ["[rank1]: [app] shard 17 could not be read", "[rank0]: ConnectionResetError: it closed its connection"]
    found = diagnose(1, lines)
    assert (found.cause, found.telling) == (Cause.PEER_LOST, ("[app] shard 17 could not be read",))


def test_a_cause_that_is_told_needs_no_telling_lines() -> None:
    assert diagnose(1, ["it failed", "ValueError: bad"]).telling == ()


@pytest.mark.parametrize(
    "line",
    [
        "/opt/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old.",
        "[W1115 14:02:40.1 socket.cpp:697] [c10d] The IPv6 network addresses of (h1, 29500) cannot be retrieved (gai error: -2 - "
        "Name or service not known).",
        "mkdir -p failed for path /root/.config/matplotlib: [Errno 30] Read-only file system: '/root/.config'",
        "WARNING 11-15 14:02:31 [core.py:1057] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode",
        "h:1:1 [0] NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "srun: error: gpu-01: task 0: Exited with exit code 1",
        "slurmstepd: error: couldn't chdir to `/srv/x': going to /tmp instead",
    ],
)
def test_what_a_run_goes_on_after_is_not_its_cause(line: str) -> None:
    assert diagnose(1, [line, "Traceback (most recent call last):", "ValueError: bad sample 17"]).detail == "ValueError: bad sample 17"
