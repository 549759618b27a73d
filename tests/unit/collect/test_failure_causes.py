"""Causes of failure from exit codes and recorded ends of logs: the first cause, not the noise after it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from docs.troubleshooting_page import troubleshooting_page

from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.logs.launcher_log import num_finished_ranks, num_started_ranks
from seatrial.collect.logs.line_relevance import LONGEST_SHOWN, MAX_LINES
from seatrial.records.outcome import Cause, Diagnosis, Fault
from seatrial.records.signatures.harmless import HARMLESS
from seatrial.records.signatures.registry import STAGE1, advice, signature, signatures
from tests.facts import states
from tests.unit.collect.log_texts import FOLDER, HARMLESS_LINES, RECORDED_SIGNATURES, WORDINGS, recorded

TORCHRUN_END = """\
W1114 09:30:05.100000 4001 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 4002 closing signal SIGTERM
E1114 09:30:06.100000 4001 torch/distributed/elastic/multiprocessing:984] failed (exitcode: 1) local_rank: 1 (pid: 4003) of binary: python
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
  exitcode  : 1 (pid: 4003)
============================================================""".splitlines()


def traceback(last: str, rank: int | None = None, function: str = "<module>") -> list[str]:
    mark = f"[rank{rank}]: " if rank is not None else ""
    frame = f'  File "train.py", line 9, in {function}'
    return [f"{mark}{line}" for line in ("Traceback (most recent call last):", frame, "    main()", last)]


@pytest.mark.parametrize(
    ("code", "line", "cause"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB in all", Cause.CUDA_OOM),
        (1, "RuntimeError: [../pair.cc:534] Connection closed by peer [127.0.0.1]:4711", Cause.PEER_LOST),
        (2, "train.py: error: unrecognized arguments: --bz 8", Cause.BAD_ARGUMENT),
        (127, "bash: torchrun: command not found", Cause.PROGRAM_MISSING),
        (1, "KeyError: 'lr'", Cause.EXCEPTION),
        (1, "mypackage.errors.ConfigError: bad", Cause.EXCEPTION),
        (1, "AssertionError", Cause.EXCEPTION),
    ],
)
def test_each_cause_by_its_line(code: int, line: str, cause: Cause) -> None:
    found = diagnose(code, ["step 1", *traceback(line), *TORCHRUN_END])
    assert found.cause is cause
    assert found.detail == line
    assert found.action == advice(cause)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (-9, Cause.KILLED),
        (137, Cause.KILLED),
        (3, Cause.EXIT_CODE),
        (-11, Cause.NATIVE_CRASH),
        (-6, Cause.NATIVE_CRASH),
        (-15, Cause.EXIT_CODE),
        (127, Cause.PROGRAM_MISSING),
        (124, Cause.EXIT_CODE),
        (None, Cause.UNKNOWN),
    ],
)
def test_a_silent_end_is_diagnosed_by_the_exit_code(code: int | None, cause: Cause) -> None:
    found = diagnose(code, ["step 1", "step 2"])
    assert found.cause is cause
    assert found.detail and found.action


def test_the_exit_code_of_timeout_has_advice_of_its_own() -> None:
    found = diagnose(124, ["step 1", "step 2"])
    assert found.signature == "timeout_command" and states(found.detail, "exit code 124")
    assert diagnose(124, ["step 1", *LOST_PEERS]).signature == "timeout_command"
    assert diagnose(125, ["step 1"]).signature == "exit_code"
    # Among ranks that lost one another 127 is a code that a script chose.
    assert diagnose(127, ["step 1", *LOST_PEERS]).signature == "exit_code"


def test_a_rank_that_aborts_is_diagnosed_by_its_last_line() -> None:
    lines = ["[rank0]: iter 24: loss 1.0, time 5.00ms", "[rank1]: terminate called without an active exception", *report(1, -6)]
    found = diagnose(1, lines)
    assert (found.cause, found.detail) == (Cause.NATIVE_CRASH, "terminate called without an active exception")


def report(rank: int, code: int) -> list[str]:
    """torchrun's closing report of the rank that ended first."""
    return [
        *TORCHRUN_END[:-2],
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-14_09:30:06",
        "  host      : localhost",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: 4003)",
        "  error_file: <N/A>",
    ]


LOST_PEER = traceback("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565", rank=0)


@pytest.mark.parametrize(
    ("code", "cause", "detail"),
    [
        (-9, Cause.KILLED, "rank 1 was killed by signal 9 (SIGKILL)"),
        (7, Cause.EXIT_CODE, "rank 1 ended first, with exit code 7, and printed no reason"),
        (-11, Cause.NATIVE_CRASH, "rank 1 crashed: SIGSEGV"),
        (-3, Cause.EXIT_CODE, "rank 1 ended first, by signal 3 (SIGQUIT), and printed no reason"),
        (1, Cause.PEER_LOST, "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"),
    ],
)
def test_a_rank_that_died_silently_is_diagnosed_by_torchruns_report(code: int, cause: Cause, detail: str) -> None:
    found = diagnose(1, ["step 1", *LOST_PEER, *report(1, code)])
    assert (found.cause, found.detail) == (cause, detail)


LOST_PEERS = [
    *traceback("ConnectionResetError: it closed its connection", rank=1),
    "[rank1]: The above exception was the direct cause of the following exception:",
    *traceback("seatrial_workloads.dummy.barrier.PeerLost: rank 0 was lost at step 5: it closed its connection", rank=1),
    *traceback("BrokenPipeError: [Errno 32] Broken pipe", rank=2),
]


def test_an_exit_code_the_script_chose_counts_before_lost_peers() -> None:
    found = diagnose(7, ["step 1", *LOST_PEERS])
    assert found.cause is Cause.EXIT_CODE
    assert found.detail.endswith(": ConnectionResetError: it closed its connection")


@pytest.mark.parametrize("code", [1, None, -15, 137, 0])
def test_other_exit_codes_count_after_lost_peers(code: int | None) -> None:
    found = diagnose(code, ["step 1", *LOST_PEERS])
    assert (found.cause, found.detail) == (Cause.PEER_LOST, "ConnectionResetError: it closed its connection")


def test_an_exception_counts_whatever_the_exit_code() -> None:
    assert diagnose(7, [*LOST_PEERS, *traceback("ValueError: bad sample 17", rank=0)]).detail == "ValueError: bad sample 17"


def test_source_quoted_in_a_traceback_is_not_the_cause() -> None:
    quoted = ["Traceback (most recent call last):", '    raise RuntimeError("CUDA out of memory")', "ValueError: another thing"]
    assert diagnose(1, quoted).detail == "ValueError: another thing"


def test_prefixes_and_colours_are_removed_and_long_lines_shortened() -> None:
    found = diagnose(1, ["[rank0]: [rank0]: \x1b[31mValueError: " + "x" * 900 + "\x1b[0m"])
    assert found.cause is Cause.EXCEPTION
    assert len(found.detail) == 500 and found.detail.endswith("…")


@pytest.mark.parametrize(("code", "id"), [(1, "exit_code"), (-9, "killed"), (7, "exit_code"), (None, "unknown")])
def test_a_failed_run_with_harmless_lines_only_is_diagnosed_by_its_exit_code(code: int | None, id: str) -> None:
    found = diagnose(code, ["step 1", *HARMLESS_LINES])
    assert found.signature == id
    assert not any(word in found.detail for word in ("triton", "scheduler", "destroy"))


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (
            "/opt/venv/lib/deepspeed/ops/csrc/cpu/comm/shm.cpp:12:10: fatal error: numa.h: No such file or directory",
            signature("shm_comm_build").action,
        ),
        ("/opt/venv/lib/ops/csrc/adam/multi_tensor_adam.cu(31): error: identifier is undefined", advice(Cause.OP_BUILD)),
    ],
)
def test_a_compiler_error_before_the_traceback_counts(line: str, action: str) -> None:
    found = diagnose(1, [line, *traceback("RuntimeError: Error building extension 'x'")])
    assert (found.cause, found.detail, found.action) == (Cause.OP_BUILD, line, action)


def test_the_last_signature_of_a_chain_counts_before_the_first() -> None:
    lines = [
        *traceback("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
        "The above exception was the direct cause of the following exception:",
        *traceback("RuntimeError: Unable to JIT load the cpu_adam op due to ninja not being installed."),
    ]
    assert diagnose(1, lines).signature == "ninja_missing"
    lines[-1] = "RuntimeError: could not set up the optimiser"
    assert diagnose(1, lines).cause is Cause.FILE_MISSING


@pytest.mark.parametrize(
    ("code", "cause", "detail"),
    [
        (-11, Cause.NATIVE_CRASH, "a rank crashed: SIGSEGV"),
        (7, Cause.EXIT_CODE, "a rank ended first, with exit code 7, and printed no reason"),
        (1, Cause.PEER_LOST, "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"),
    ],
)
def test_a_rank_that_died_silently_is_diagnosed_by_deepspeeds_report(code: int, cause: Cause, detail: str) -> None:
    report = f"[2026-11-15 12:43:31,393] [ERROR] [launch.py:259:sigkill_handler] ['python', 't.py'] exits with return code = {code}"
    found = diagnose(code % 256, ["step 1", *LOST_PEER, report])
    assert (found.cause, found.detail) == (cause, detail)


@pytest.mark.parametrize(
    "line",
    [
        "csrc/adam.cpp:12:3: warning: comparison that may be an error [-Wextra]",
        "/code/kernels/attn.cu:88: CUDA error: an illegal memory access was encountered",
    ],
)
def test_a_source_line_that_mentions_an_error_is_no_failed_build(line: str) -> None:
    assert diagnose(1, [line, "torch.OutOfMemoryError: CUDA out of memory."]).cause is not Cause.OP_BUILD


# Output of ranks that have only lost another one.
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
# Output of ranks that waited for it, and were ended.
WAITED = [
    "[rank5]: [rank5]:[E1115 14:30:31.5 ProcessGroupNCCL.cpp:685] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(9)",
    "[rank5]: terminate called after throwing an instance of 'c10::DistBackendError'",
    "[rank5]: Fatal Python error: Aborted",
    "[rank4]: RuntimeError: [Rank 4]: Ranks 1 failed to pass monitoredBarrier in 1800000 ms",
]
MARK = re.compile(r"^(?:\[rank\d+\]: )+|^\w+: (?=Tra|\w+Error)")
ROOTS = [name for name, (id, _) in RECORDED_SIGNATURES.items() if not signature(id).after_effect]
NO_ECHOES = [name for name, (id, _) in RECORDED_SIGNATURES.items() if not signature(id).echo]


@pytest.mark.parametrize("name", RECORDED_SIGNATURES)
def test_recorded_logs_give_their_entry(name: str) -> None:
    id, words = RECORDED_SIGNATURES[name]
    entry = signature(id)
    # deepspeed hands on -9 as 247.
    found = diagnose(247 if name == "deepspeed_rank_killed" else 1, recorded(name))
    assert (found.signature, found.cause, found.action, found.fault) == (id, entry.cause, entry.action, entry.fault)
    assert words in found.detail
    assert entry.echo or found.telling == ()


def explained(lines: list[str]) -> Diagnosis:
    """The cause, but not where in the log it is and what came after it."""
    return replace(diagnose(1, lines), line=None, num_consequences=0)


@pytest.mark.parametrize("name", RECORDED_SIGNATURES)
def test_harmless_lines_before_and_after_change_nothing(name: str) -> None:
    lines = recorded(name)
    assert explained([*HARMLESS_LINES, *lines, *HARMLESS_LINES]) == explained(lines)


@pytest.mark.parametrize("name", ROOTS)
def test_complaints_of_other_ranks_do_not_hide_a_cause(name: str) -> None:
    lines = recorded(name)
    assert explained([*LOST, *WAITED, *lines, *WAITED, *LOST]) == explained(lines)


@pytest.mark.parametrize("name", NO_ECHOES)
def test_ranks_that_lost_a_peer_do_not_hide_other_signatures(name: str) -> None:
    lines = recorded(name)
    assert explained([*LOST, *lines]) == explained(lines)


def test_every_entry_with_a_pattern_has_a_recorded_log() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == set(RECORDED_SIGNATURES)
    assert {entry.id for entry in signatures() if entry.patterns and not entry.slows} == {id for id, _ in RECORDED_SIGNATURES.values()}


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in WORDINGS.items() for line in lines])
def test_other_wordings_match_their_entry(id: str, line: str) -> None:
    assert diagnose(1, ["step 1", line, *HARMLESS_LINES]).signature == id
    # With the marks of srun, of pdsh, and of the merged log.
    assert diagnose(1, ["3: step 1", f"3: {line}"]).signature == id
    assert (
        diagnose(1, ["jw2: Traceback (most recent call last):", f"jw2: {line}", "pdsh@jw1: jw2: ssh exited with exit code 1"]).signature
        == id
    )
    assert diagnose(1, [f"[rank3]: [rank3]: {line}"]).signature == id


def test_every_pattern_matches_a_recorded_line() -> None:
    texts = [line for name in RECORDED_SIGNATURES for line in recorded(name)]
    texts += [text for lines in WORDINGS.values() for text in lines]
    patterns = [(entry.id, pattern) for entry in signatures() if not entry.slows for pattern in entry.patterns]
    assert [one for one in patterns if not any(re.search(one[1], MARK.sub("", text)) for text in texts)] == []


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


def test_the_earliest_lines_that_mention_an_error_are_kept() -> None:
    lines = ["step 1", "[app] could not open the shard map", "step 2", "[app] FATAL: shard 17 is invalid", "bye"]
    found = diagnose(3, lines)
    assert (found.cause, found.fault) == (Cause.EXIT_CODE, Fault.UNKNOWN)
    assert found.telling == ("[app] could not open the shard map", "[app] FATAL: shard 17 is invalid")
    assert found.detail.endswith("the log shows no cause; most relevant line: [app] could not open the shard map")


@pytest.mark.parametrize("host", ["", "[host node7]: "])
def test_else_the_last_lines_of_the_rank_that_ended_first(host: str) -> None:
    printed = [*(f"[rank{rank}]: step {step}" for step in range(9) for rank in (0, 1)), "[rank0]: still here"]
    lines = [*(f"{host}{line}" for line in printed), *REPORT]
    found = diagnose(1, lines)
    assert found.detail == "rank 1 ended first, with exit code 7, and printed no reason"
    assert found.telling == tuple(f"step {step}" for step in range(4, 9))


def test_else_the_last_lines_of_all() -> None:
    assert diagnose(None, ["a", "", "b"]).telling == ("a", "b")
    assert diagnose(None, []).telling == ()
    assert diagnose(None, []).cause is Cause.UNKNOWN


def test_kept_lines_are_few_short_and_distinct() -> None:
    found = diagnose(3, ["error: " + "x" * 900, *["it failed"] * 50, *(f"failure {n}" for n in range(50))])
    assert len(found.telling) == MAX_LINES and len(found.telling[0]) == LONGEST_SHOWN
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
def test_lines_that_mention_an_error_in_passing_are_not_kept(line: str) -> None:
    found = diagnose(3, [line, "step 7"])
    assert "most relevant" not in found.detail and found.cause is Cause.EXIT_CODE


def test_complaints_of_lost_peers_and_the_launcher_are_not_kept() -> None:
    lost = "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"
    found = diagnose(1, ["[rank1]: step 1", lost, *REPORT])
    assert found.telling == ("step 1",)


def test_a_lost_peer_explains_nothing_and_other_error_lines_are_kept() -> None:
    lines = ["[rank1]: [app] shard 17 could not be read", "[rank0]: ConnectionResetError: it closed its connection"]
    found = diagnose(1, lines)
    assert (found.cause, found.telling) == (Cause.PEER_LOST, ("[app] shard 17 could not be read",))


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
def test_lines_a_run_survives_are_not_its_cause(line: str) -> None:
    assert diagnose(1, [line, "Traceback (most recent call last):", "ValueError: bad sample 17"]).detail == "ValueError: bad sample 17"


FINISHED_LINE = "[2026-11-15 12:46:35,708] [INFO] [launch.py:285:main] Process {} exits successfully.\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("[rank0]: step 1\n" + FINISHED_LINE.format(6472) + "[rank1]: step 9\n" + FINISHED_LINE.format(6474), 2),
        # Of one process twice is once, and a rank is not the launcher.
        (FINISHED_LINE.format(1) + FINISHED_LINE.format(1) + "[rank1]: " + FINISHED_LINE.format(2), 1),
        ("step 3" + FINISHED_LINE.format(1), 1),
        ("Process 1 exits successfully.\n", 0),
        (FINISHED_LINE.format(1).replace("exits successfully", "exits with return code = 1"), 0),
    ],
)
def test_finished_ranks_are_counted(text: str, count: int, tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(text)
    assert num_finished_ranks([log]) == count


def test_finished_ranks_in_binary_and_missing_logs(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_bytes(b"\xff\x00\r" * 1000 + b"\n" + FINISHED_LINE.format(7).encode())
    assert num_finished_ranks([log]) == 1
    assert num_finished_ranks([tmp_path / "none"]) == num_finished_ranks([tmp_path]) == 0


def runner_line(world_info: bytes) -> bytes:
    before = b"[2026-02-18 17:56:27,000] [INFO] [runner.py:610:main] cmd = pdsh -S -f 1024 -w node1,node2 export PYTHONPATH=/code; "
    return (
        before + b"python -u -m deepspeed.launcher.launch --world_info=" + world_info + b" --node_rank=%n --master_addr=10.0.0.1 train.py\n"
    )


def test_started_ranks_by_the_runners_line(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    info = base64.urlsafe_b64encode(b'{"node1": [0, 1], "node2": [0, 1]}')
    log.write_bytes(b"some line\n" + runner_line(info))
    assert num_started_ranks(log) == 4
    log.write_bytes(b"[rank0]: " + runner_line(info))
    assert num_started_ranks(log) is None


@pytest.mark.parametrize("info", [b"rubbish", base64.urlsafe_b64encode(b"[1]"), base64.urlsafe_b64encode(b'{"a": 3}'), b"="])
def test_a_malformed_runner_line_is_ignored(tmp_path: Path, info: bytes) -> None:
    (tmp_path / "launcher.log").write_bytes(runner_line(info))
    assert num_started_ranks(tmp_path / "launcher.log") is None
    assert num_started_ranks(tmp_path / "no.log") is None


ROOT = Path(__file__).parents[3]


def test_the_page_has_every_entry_and_every_cause() -> None:
    text = troubleshooting_page()
    listed = [entry for entry in signatures() if _cell(entry.symptom) in text and _cell(entry.action) in text]
    assert listed == list(signatures())
    assert [cause for cause in Cause if cause is not Cause.NONE and f"| `{cause.value}`" not in text] == []
    assert [entry.id for entry in HARMLESS if f"`{entry.id}`" not in text] == []


def test_the_page_of_stage_1_has_its_entries_only() -> None:
    text = troubleshooting_page(STAGE1)
    listed = {entry.id for entry in signatures() if _cell(entry.symptom) in text}
    assert listed == {entry.id for entry in signatures() if STAGE1 in entry.topics}
    assert "[docs/troubleshooting.md](../../../docs/troubleshooting.md)" in text


@pytest.mark.parametrize("page", ["docs/troubleshooting.md", "runbooks/stage1/docs/troubleshooting.md"])
def test_every_row_of_a_page_has_the_cells_of_its_head(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    columns = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert set(columns) <= {4, 5, 6} and len(rows) > 20


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
