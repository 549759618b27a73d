"""Causes from recorded ends of logs: the first cause, not the noise after it."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.records.outcome import Cause
from seatrial.signatures.registry import advice, signature
from tests.unit.collect.harmless_lines import HARMLESS_LINES

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


def traceback(last: str, rank: int | None = None) -> list[str]:
    mark = f"[rank{rank}]: " if rank is not None else ""
    return [
        f"{mark}{line}" for line in ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "    main()", last)
    ]


@pytest.mark.parametrize(
    ("code", "line", "cause"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB in all", Cause.CUDA_OOM),
        (1, "RuntimeError: CUDA error: out of memory", Cause.CUDA_OOM),
        (
            1,
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: 12 bytes",
            Cause.HOST_OOM,
        ),
        (1, "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", Cause.HOST_OOM),
        (
            1,
            "torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE, address already in use",
            Cause.PORT_IN_USE,
        ),
        (1, "OSError: [Errno 98] Address already in use", Cause.PORT_IN_USE),
        (
            1,
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, ncclSystemError: System call failed",
            Cause.NCCL_TRANSPORT,
        ),
        (1, "RuntimeError: [../pair.cc:534] Connection closed by peer [127.0.0.1]:4711", Cause.PEER_LOST),
        (
            1,
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms connecting to (h1, 29500)",
            Cause.RENDEZVOUS_TIMEOUT,
        ),
        (1, "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", Cause.RENDEZVOUS_TIMEOUT),
        (1, "ModuleNotFoundError: No module named 'flash_attn'", Cause.IMPORT_ERROR),
        (1, "ImportError: cannot import name 'thing' from 'place'", Cause.IMPORT_ERROR),
        (1, "/usr/bin/python3: No module named train", Cause.IMPORT_ERROR),
        (2, "train.py: error: unrecognized arguments: --bz 8", Cause.BAD_ARGUMENT),
        (2, "train.py: error: argument --bs: invalid int value: 'eight'", Cause.BAD_ARGUMENT),
        (2, "Error: No such option: --bz", Cause.BAD_ARGUMENT),
        (2, "python: can't open file '/srv/job/trian.py': [Errno 2] No such file or directory", Cause.FILE_MISSING),
        (1, "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", Cause.FILE_MISSING),
        (127, "bash: torchrun: command not found", Cause.PROGRAM_MISSING),
        (1, "OSError: [Errno 28] No space left on device", Cause.DISK_FULL),
        (1, "OSError: [Errno 5] Input/output error: '/mnt/data/manifest_16k_trim.tsv'", Cause.IO_ERROR),
        (1, "soundfile.LibsndfileError: Error opening 'a.flac': System error: Input/output error", Cause.IO_ERROR),
        (1, "PermissionError: [Errno 13] Permission denied: '/data'", Cause.PERMISSION),
        (1, "ValueError: loss is nan at step 12", Cause.NAN),
        (1, "FloatingPointError: Loss became not finite", Cause.NAN),
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
def test_a_silent_end_is_told_by_the_exit_code(code: int | None, cause: Cause) -> None:
    found = diagnose(code, ["step 1", "step 2"])
    assert found.cause is cause
    assert found.detail and found.action


def test_the_exit_code_of_timeout_has_advice_of_its_own() -> None:
    found = diagnose(124, ["step 1", "step 2"])
    assert (found.signature, found.detail) == ("timeout_command", "the launcher ended with exit code 124 and the log tells no cause")
    assert diagnose(124, ["step 1", *LOST_PEERS]).signature == "timeout_command"
    assert diagnose(125, ["step 1"]).signature == "exit_code"
    # Among ranks that lost one another 127 is a code that a script chose.
    assert diagnose(127, ["step 1", *LOST_PEERS]).signature == "exit_code"


def test_the_first_cause_wins_over_what_other_ranks_say_later() -> None:
    lines = [
        *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", rank=1),
        *traceback("RuntimeError: [../pair.cc:534] Connection closed by peer [127.0.0.1]:4711", rank=0),
        *traceback("ValueError: something that broke while ending", rank=2),
        *TORCHRUN_END,
    ]
    assert diagnose(1, lines).cause is Cause.CUDA_OOM


def test_a_lost_peer_told_first_does_not_hide_why_it_was_lost() -> None:
    lines = [
        *traceback("RuntimeError: [../pair.cc:534] Connection closed by peer [127.0.0.1]:4711", rank=0),
        *traceback("ValueError: bad sample 17", rank=1),
        *TORCHRUN_END,
    ]
    found = diagnose(1, lines)
    assert (found.cause, found.detail) == (Cause.EXCEPTION, "ValueError: bad sample 17")


def test_a_rank_that_aborts_at_its_end_is_told_by_its_last_words() -> None:
    lines = ["[rank0]: iter 24: loss 1.0, time 5.00ms", "[rank1]: terminate called without an active exception", *report(1, -6)]
    found = diagnose(1, lines)
    assert (found.cause, found.detail) == (Cause.NATIVE_CRASH, "terminate called without an active exception")


def test_of_a_chain_the_last_exception_is_told() -> None:
    lines = [
        *traceback("KeyError: 'lr'", rank=0),
        "[rank0]: During handling of the above exception, another exception occurred:",
        *traceback("RuntimeError: no learning rate in the config", rank=0),
        *traceback("KeyError: 'lr'", rank=1),
    ]
    assert diagnose(1, lines).detail == "RuntimeError: no learning rate in the config"


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
        (-9, Cause.KILLED, "rank 1 was killed by signal 9"),
        (7, Cause.EXIT_CODE, "rank 1 ended first, with exit code 7, and said nothing that tells why"),
        (-11, Cause.NATIVE_CRASH, "rank 1 crashed: SIGSEGV"),
        (-3, Cause.EXIT_CODE, "rank 1 ended first, by signal 3, and said nothing that tells why"),
        (1, Cause.PEER_LOST, "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"),
    ],
)
def test_a_rank_that_died_in_silence_is_told_from_torchrun_s_report(code: int, cause: Cause, detail: str) -> None:
    found = diagnose(1, ["step 1", *LOST_PEER, *report(1, code)])
    assert (found.cause, found.detail) == (cause, detail)


LOST_PEERS = [
    *traceback("ConnectionResetError: it closed its connection", rank=1),
    "[rank1]: The above exception was the direct cause of the following exception:",
    *traceback("seatrial_workloads.dummy.barrier.PeerLost: rank 0 was lost at step 5: it closed its connection", rank=1),
    *traceback("BrokenPipeError: [Errno 32] Broken pipe", rank=2),
]


def test_the_exit_code_a_script_chose_says_more_than_ranks_that_lost_it() -> None:
    found = diagnose(7, ["step 1", *LOST_PEERS])
    assert found.cause is Cause.EXIT_CODE
    assert found.detail == ("ended with exit code 7; the log tells only what came of it: ConnectionResetError: it closed its connection")


@pytest.mark.parametrize("code", [1, None, -15, 137, 0])
def test_a_code_that_no_script_chose_leaves_it_to_the_lost_peer(code: int | None) -> None:
    found = diagnose(code, ["step 1", *LOST_PEERS])
    assert (found.cause, found.detail) == (Cause.PEER_LOST, "ConnectionResetError: it closed its connection")


def test_a_true_exception_is_told_whatever_the_exit_code() -> None:
    assert diagnose(7, [*LOST_PEERS, *traceback("ValueError: bad sample 17", rank=0)]).detail == "ValueError: bad sample 17"


def test_source_quoted_in_a_traceback_is_not_the_cause() -> None:
    quoted = ["Traceback (most recent call last):", '    raise RuntimeError("CUDA out of memory")', "ValueError: another thing"]
    assert diagnose(1, quoted).detail == "ValueError: another thing"


def test_harmless_lines_that_name_a_file_do_not_hide_the_exception() -> None:
    lines = ["warning: libx.so: No such file or directory, going on without", *traceback("ValueError: shapes differ")]
    assert diagnose(1, lines).cause is Cause.EXCEPTION


def test_marks_and_colours_are_no_hindrance_and_long_lines_are_cut() -> None:
    found = diagnose(1, ["[rank0]: [rank0]: \x1b[31mValueError: " + "x" * 900 + "\x1b[0m"])
    assert found.cause is Cause.EXCEPTION
    assert len(found.detail) == 500 and found.detail.endswith("…")


def test_only_the_end_of_a_huge_log_is_read() -> None:
    lines = [*traceback("ValueError: long ago"), *(["step"] * 100_000)]
    assert diagnose(3, lines).cause is Cause.EXIT_CODE


@pytest.mark.parametrize(("code", "id"), [(1, "exit_code"), (-9, "killed"), (7, "exit_code"), (None, "unknown")])
def test_a_failed_run_that_says_only_harmless_things_is_told_by_its_exit_code(code: int | None, id: str) -> None:
    found = diagnose(code, ["step 1", *HARMLESS_LINES])
    assert found.signature == id
    assert not any(word in found.detail for word in ("triton", "scheduler", "destroy"))


def test_what_shares_a_line_with_a_harmless_one_is_not_lost() -> None:
    line = f"{HARMLESS_LINES[0]} RuntimeError: CUDA error: out of memory"
    assert diagnose(1, [line]).cause is Cause.CUDA_OOM


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
def test_a_compiler_that_prints_before_the_traceback_is_told(line: str, action: str) -> None:
    found = diagnose(1, [line, *traceback("RuntimeError: Error building extension 'x'")])
    assert (found.cause, found.detail, found.action) == (Cause.OP_BUILD, line, action)


def test_of_a_chain_the_last_sign_counts_before_the_first() -> None:
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
        (7, Cause.EXIT_CODE, "a rank ended first, with exit code 7, and said nothing that tells why"),
        (1, Cause.PEER_LOST, "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:7565"),
    ],
)
def test_a_rank_that_died_in_silence_is_told_from_deepspeed_s_report(code: int, cause: Cause, detail: str) -> None:
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
def test_a_line_of_source_that_only_speaks_of_an_error_is_no_failed_build(line: str) -> None:
    assert diagnose(1, [line, "torch.OutOfMemoryError: CUDA out of memory."]).cause is not Cause.OP_BUILD


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("[FATAL] pdsh missing", Cause.PROGRAM_MISSING),
        ("[FATAL] ninja missing", Cause.PROGRAM_MISSING),
        ("[FATAL] hostfile missing/empty", Cause.BAD_ARGUMENT),
        ("adam.cu(88): error: identifier undefined", Cause.OP_BUILD),
        ("csrc/adam.cpp:12:3: fatal error: cuda.h: No such file or directory", Cause.OP_BUILD),
    ],
)
def test_lines_that_tell_what_is_missing(line: str, cause: Cause) -> None:
    assert diagnose(2, [line]).cause is cause
