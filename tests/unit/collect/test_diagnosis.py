"""The first cause in logs of any length: who failed, where, and how the log itself says that the run ended."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from seatrial.collect.logs.diagnosis import LogReader, diagnose
from seatrial.collect.logs.launcher_log import read_lines
from seatrial.collect.logs.launcher_report import signal_name
from seatrial.collect.logs.line_relevance import DIGITS_MATTER, FRAGMENTS, HEAD
from seatrial.collect.logs.log_outcome import STEPS_OF_OTHERS
from seatrial.records.outcome import Cause, Diagnosis, Fault, Outcome
from seatrial.records.signatures.registry import signatures
from tests.facts import states
from tests.unit.collect.test_failure_causes import LOST, TORCHRUN_END, WAITED, report, traceback

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NCCL_INFO = "[rank{}]: gpu-01:4003:4100 [0] NCCL INFO Channel {:02d}/32 : 0[0] -> 1[1] via P2P/CUMEM/read"


def read(lines: list[str], **known: Any) -> Diagnosis:
    reader = LogReader()
    for line in lines:
        reader.feed(line)
    return reader.result(**known)


def of_ranks(count: int) -> list[str]:
    """A ValueError on rank 7, then what every other rank prints about losing it, and torchrun's report."""
    others = [rank for rank in range(count) if rank != 7]
    lost = [f"[rank{rank}]: {line.partition(': ')[2]}" for rank in others for line in LOST[:5]]
    waited = [f"[rank{rank}]: {line.partition(': ')[2]}" for rank in others for line in WAITED[:3]]
    return [
        *(f"[rank{rank}]: step 3" for rank in range(count)),
        *traceback("ValueError: bad sample 17", rank=7),
        *lost,
        *waited,
        *report(7, 1),
    ]


@pytest.mark.parametrize("count", [8, 60, 512])
def test_the_first_cause_is_found_behind_what_many_ranks_print(count: int) -> None:
    found = read(of_ranks(count), exit_code=1)
    assert (found.cause, found.detail, found.rank) == (Cause.EXCEPTION, "ValueError: bad sample 17", 7)
    assert found.line == count + 4
    assert found.excerpt == ('  File "train.py", line 9, in <module>', "    main()", "ValueError: bad sample 17")
    # The traceback and the abort of every other rank, at least.
    assert found.num_consequences >= 2 * (count - 1)


@pytest.mark.parametrize("behind", [2100, 40_000])
def test_the_first_cause_is_found_behind_a_long_log(behind: int) -> None:
    lines = [*traceback("ValueError: bad sample 17", rank=7), *(NCCL_INFO.format(at % 7, at % 32) for at in range(behind)), *WAITED]
    found = read(lines, exit_code=-6)
    assert (found.detail, found.rank, found.line) == ("ValueError: bad sample 17", 7, 4)


def test_an_early_exception_that_was_survived_is_not_the_cause() -> None:
    lines = [
        *traceback("KeyError: 'apex'", rank=0),
        "[rank0]: step 1",
        *(["[rank0]: step 2"] * 5000),
        *traceback("ValueError: late", rank=0),
    ]
    assert read(lines, exit_code=1).detail == "ValueError: late"
    assert read(lines[:-4], exit_code=0).outcome is Outcome.OK


@pytest.mark.parametrize("mark", ["[rank6]: ", "[default6]:", "[1,6]<stderr>:", "6: "])
def test_the_rank_is_named_by_its_prefix(mark: str) -> None:
    found = read([f"{mark}step 1", *(f"{mark}{line}" for line in traceback(OOM)), *TORCHRUN_END], exit_code=1)
    assert (found.cause, found.rank) == (Cause.CUDA_OOM, 6)


def test_without_prefixes_the_launcher_s_report_names_the_rank() -> None:
    assert read(["step 1", *traceback("ValueError: bad"), *report(6, 1)], exit_code=1).rank == 6
    assert read(["step 1", *traceback("ValueError: bad"), *TORCHRUN_END], exit_code=1).rank is None


def test_who_only_waited_is_not_blamed() -> None:
    assert read(WAITED[:1], exit_code=-6).rank is None
    assert read(["srun: error: gpu-01: task 3: Out Of Memory"], exit_code=1).rank == 3


def test_the_caller_may_know_rank_and_file() -> None:
    reader = LogReader()
    for rank in range(4):
        for line in ["step 1", *(traceback("ValueError: bad") if rank == 2 else ["step 2"])]:
            reader.feed(line, source=f"rank{rank}.log", rank=rank)
    found = reader.result(exit_code=1)
    assert (found.rank, found.source, found.line) == (2, "rank2.log", 5)
    unnamed = read(["step 1", *traceback("ValueError: bad")], exit_code=1)
    assert (unnamed.rank, unnamed.source) == (None, "")


def test_a_traceback_behind_an_unfinished_progress_bar() -> None:
    lines = [" 12%|█▏   | 3/25 [00:01<00:09,  2.2it/s]\r 16%|█▌ | 4/25 [00:02<00:09,  2.2it/s]" + traceback("x")[0], *traceback(OOM)[1:]]
    assert read(lines, exit_code=1).cause is Cause.CUDA_OOM


REPORTS = {
    "torchrun": report(6, 1),
    "deepspeed": ["[2026-11-15 12:43:31,393] [ERROR] [launch.py:325:sigkill_handler] ['python', 't.py'] exits with return code = 1"],
    "srun": ["srun: error: gpu-01: task 6: Exited with exit code 1"],
    "mpirun": ["mpirun noticed that process rank 6 with PID 0 on node gpu-01 exited on signal 9 (Killed)."],
    "accelerate": [*traceback("subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 1.")],
}


@pytest.mark.parametrize("name", REPORTS)
def test_exit_code_0_after_a_launcher_s_failure_report_is_a_failure(name: str) -> None:
    failing = [line for rank in range(8) for line in traceback(OOM, rank)]
    found = read([*(f"step {step}" for step in range(100)), *failing, *REPORTS[name]], exit_code=0, requested_steps=100)
    assert (found.outcome, found.cause, found.launcher_report) == (Outcome.FAILED, Cause.CUDA_OOM, True)
    assert found.rank == 0


def test_a_report_of_an_attempt_that_was_restarted_is_none() -> None:
    lines = [*traceback("ValueError: bad", rank=1), *report(1, 1), *(f"[rank{rank}]: step {step}" for step in range(9) for rank in (0, 1))]
    assert read(lines, exit_code=0, requested_steps=9).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        (100, Outcome.FAILED),
        # The last step asked for was the last one printed.
        (20, None),
        (19, None),
        (None, None),
    ],
)
def test_exit_code_0_after_a_traceback_depends_on_the_steps(asked: int | None, outcome: Outcome | None) -> None:
    found = read([*(f"step {step}: loss 3" for step in range(20)), *traceback("ValueError: bad")], exit_code=0, requested_steps=asked)
    assert (found.outcome, found.traceback_at_end, found.last_step) == (outcome, True, 19)
    assert found.detail == "ValueError: bad"


def test_steps_between_two_log_lines_may_have_been_taken() -> None:
    lines = [*(f"step {step}: loss 3" for step in range(0, 100, 10)), *traceback("ValueError: bad")]
    assert read(lines, exit_code=0, requested_steps=100).outcome is None
    assert read(lines, exit_code=0, requested_steps=111).outcome is Outcome.FAILED


def test_a_handled_failure_of_a_small_command_is_no_launcher_s_report() -> None:
    failed = traceback("subprocess.CalledProcessError: Command '['git', 'push']' returned non-zero exit status 1.")
    lines = [*(f"step {step}: loss 3" for step in range(20)), *failed, *(f"saved {name}" for name in "abcd")]
    assert read(lines, exit_code=0, requested_steps=20).outcome is Outcome.OK


NOISE = {
    "ignored": ["Exception ignored in: <function Reader.__del__ at 0x7f20>", *traceback("AttributeError: no attribute '_handle'")],
    "logging": ["--- Logging error ---", *traceback("TypeError: not all arguments converted"), "Call stack:", "Message: 'lr'"],
    "thread": ["Exception in thread NetStatThr:", *traceback("wandb.errors.CommError: no answer")],
    "handled": [*traceback("KeyError: 'bleu'", function="evaluate"), *(f"evaluated {name}" for name in "abcd")],
    "destroyed": ["[W1115 socket.cpp:1] destroy_process_group() was not called before program exit"],
    "resource_tracker": ["resource_tracker.py:254: UserWarning: There appear to be 3 leaked semaphore objects to clean up at shutdown"],
}


@pytest.mark.parametrize("asked", [None, 20, 100])
@pytest.mark.parametrize("name", NOISE)
def test_noise_at_the_end_fails_no_run(name: str, asked: int | None) -> None:
    lines = [*(f"step {step}: loss 3" for step in range(20)), *NOISE[name]]
    found = read(lines, exit_code=0, requested_steps=asked)
    assert (found.outcome, found.cause) == (Outcome.OK, Cause.NONE)


@pytest.mark.parametrize(
    ("code", "name"), [(139, "SIGSEGV"), (134, "SIGABRT"), (143, "SIGTERM"), (245, "SIGSEGV"), (-7, "SIGBUS"), (3, "")]
)
def test_exit_codes_of_signals(code: int, name: str) -> None:
    assert signal_name(code) == name
    assert name in diagnose(code, ["step 1"]).detail


def test_a_bus_error_by_its_exit_code_alone() -> None:
    assert [diagnose(code, ["step 1"]).signature for code in (135, -7)] == ["bus_error", "bus_error"]


def test_nccl_s_last_error_gives_the_address() -> None:
    lines = [*LOST[:5], "[rank6]: Last error:", "[rank6]: NET/Socket : peer 10.0.0.2<41217> has closed the connection"]
    found = read(lines, exit_code=1)
    assert found.detail.endswith("; last error: NET/Socket : peer 10.0.0.2<41217> has closed the connection")
    refused = read([*lines[:-1], "[rank6]: socketStartConnect: Connect to 10.0.0.2<41217> failed : Connection refused"], exit_code=1)
    assert refused.signature == "nccl_refused" and "10.0.0.2<41217>" in refused.detail


def test_a_huge_log_takes_little_memory() -> None:
    reader = LogReader()
    feeding = (f"[rank{at % 64}]: sample {at}: {'abcdefgh'[at % 8] * (at % 90)} {at * 7919 % 10_007}" for at in range(60_000))
    tracemalloc.start()
    for line in feeding:
        reader.feed(line)
    reader.feed("y" * 5_000_000)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 20 << 20


def test_every_line_of_a_file_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\n\xffb\n" + b"x" * 3_000_000 + b"\r" + b"ValueError: late\nlast")
    lines = list(read_lines(log))
    assert lines[:2] == ["a", "\N{REPLACEMENT CHARACTER}b"] and lines[-1] == "last"
    assert diagnose(1, lines).detail == "ValueError: late"


def literals(pattern: Any) -> list[list[str]]:
    """For each way to match it the texts that it must contain: the last one may be continued."""
    ways: list[list[str]] = [[""]]
    for kind, value in pattern:
        name, inner, gap = str(kind), [[""]], True
        if name == "LITERAL":
            inner, gap = [[chr(value)]], False
        elif name == "BRANCH":
            inner, gap = [way for branch in value[1] for way in literals(branch)], False
        elif name == "SUBPATTERN":
            inner, gap = literals(value[3]), False
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0:
            inner = literals(value[2])
        ways = [[*way[:-1], way[-1] + more[0], *more[1:], *([""] if gap else [])] for way in ways for more in inner][:500]
    return ways


PATTERNS = [(entry.id, pattern) for entry in signatures() if not entry.slows for pattern in entry.patterns]


@pytest.mark.parametrize(("id", "pattern"), PATTERNS)
def test_the_quick_search_misses_no_pattern(id: str, pattern: str) -> None:
    """Add a word of the pattern to FRAGMENTS, and to DIGITS_MATTER where it matches some digits and not others."""
    for way in literals(parser.parse(pattern)):
        low = [text.lower() for text in way]
        assert any(fragment in text for text in low for fragment in FRAGMENTS), way
        if any(re.search(r"[0-9]", text) for text in low):
            assert any(word in text for text in low for word in DIGITS_MATTER), way


@pytest.mark.parametrize(
    "reason", ["", "  Original reason for failure was: watchdog timeout", "  Original reason for failure was: [Rank 4] lost"]
)
def test_an_aborted_communicator_is_a_consequence(reason: str) -> None:
    aborted = [
        line
        for rank in (0, 1, 4)
        for line in traceback(f"torch.distributed.DistBackendError: NCCL communicator was aborted on rank {rank}.{reason}", rank=rank)
    ]
    found = read([*aborted, *traceback("ValueError: bad sample 17", rank=6)])
    assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "ValueError: bad sample 17", 6)
    # Alone it names no culprit: whoever prints it only lost another one.
    alone = read(aborted)
    assert (alone.outcome, alone.rank) == (Outcome.FAILED, None)
    assert alone.cause is (Cause.COLLECTIVE_TIMEOUT if "watchdog" in reason else Cause.PEER_LOST)


def steps(first: int, last: int) -> list[str]:
    return [f"step {step} loss {5 - step / 10:.4f}" for step in range(first, last + 1)]


@pytest.mark.parametrize("begin", [0, 8])
def test_a_report_followed_by_a_new_series_of_steps_and_a_good_end_was_survived(begin: int) -> None:
    first = [*steps(0, 9), *traceback("ValueError: bad sample 17", rank=5), *report(5, 1)]
    again = [*first, "retrying (2/3)...", *steps(begin, 39)]
    assert read([*again, "Training complete."]).outcome is Outcome.OK
    assert read(again).outcome is None
    assert read(again, exit_code=0).outcome is Outcome.OK
    # The last attempt counts, and it has its own cause.
    found = read([*again, *traceback("KeyError: 'later'", rank=3), *report(3, 1)], exit_code=0)
    assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "KeyError: 'later'", 3)
    assert read(first, exit_code=0).outcome is Outcome.FAILED


def test_ranks_restarted_without_a_report() -> None:
    """As by `torchrun --max-restarts`, whose line about it is not shown by default."""
    lines = [*steps(0, 9), *traceback(OOM, rank=5), *steps(0, 39)]
    assert read([*lines, "Training complete."]).outcome is Outcome.OK
    assert read(lines).outcome is None
    assert read([*steps(0, 9), *traceback(OOM, rank=5), "step 10 loss 4.0"]).outcome is Outcome.FAILED
    few = [
        [*steps(0, 9), *traceback(OOM, rank=5), *steps(0, last), "Training complete."]
        for last in (STEPS_OF_OTHERS - 2, STEPS_OF_OTHERS - 1)
    ]
    assert [read(each).outcome for each in few] == [None, Outcome.OK]


def test_steps_in_another_file_show_nothing_about_a_report() -> None:
    reader = LogReader()
    for line in [*steps(0, 9), *traceback("ValueError: bad sample 17", rank=5), *report(5, 1)]:
        reader.feed(line, source="node0.log")
    for line in steps(0, 12):
        reader.feed(line, source="node1.log")
    found = reader.result()
    assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "ValueError: bad sample 17", 5)


def test_a_cancelled_step_in_the_log_of_one_host_is_no_cause_of_what_another_raised() -> None:
    reader = LogReader()
    for line in [*steps(0, 9), CANCELLED]:
        reader.feed(line, source="node0.log")
    for line in [*steps(0, 12), *traceback("ValueError: bad sample 17")]:
        reader.feed(line, source="node1.log")
    found = reader.result(exit_code=1)
    assert (found.cause, found.detail, found.source) == (Cause.EXCEPTION, "ValueError: bad sample 17", "node1.log")


@pytest.mark.parametrize("num_steps", [2, 3, 40])
def test_steps_of_ranks_that_did_not_know_yet_do_not_hide_what_the_launcher_reports(num_steps: int) -> None:
    """Without prefixes; torchrun ends the other ranks some time after the first one."""
    found = read([*steps(0, 14), *traceback("ValueError: bad shape"), *steps(15, 14 + num_steps), *report(1, 1)], exit_code=0)
    assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "ValueError: bad shape", 1)


@pytest.mark.parametrize("exit_code", [None, 0, 1])
def test_a_report_alone_names_the_rank_and_its_exit_code(exit_code: int | None) -> None:
    found = read([*steps(0, 9), *report(5, 1)], exit_code=exit_code)
    assert (found.outcome, found.cause, found.rank) == (Outcome.FAILED, Cause.EXIT_CODE, 5)
    assert "rank 5" in found.detail and "exit code 1" in found.detail
    aborted = read([*steps(0, 9), *report(5, -6)], exit_code=exit_code)
    assert aborted.rank == 5 and "SIGABRT" in aborted.detail


def test_a_traceback_before_a_good_end_is_no_sure_failure() -> None:
    lines = [*steps(0, 39), "Sample generation:", *traceback(OOM), "Training complete, saved model to out/"]
    assert read(lines).outcome is None
    assert read(lines[:-1]).outcome is Outcome.FAILED
    # A shell may print such a line after anything: missing steps are sure.
    assert read(lines, exit_code=0, requested_steps=100).outcome is Outcome.FAILED


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_log_that_ends_within_a_traceback(rank: int | None, kept: int) -> None:
    lines = [*steps(0, 19), *traceback("ValueError: bad shape", rank=rank)[:kept]]
    for exit_code in (None, 0):
        found = read(lines, exit_code=exit_code)
        assert (found.outcome, found.traceback_at_end, found.cause, found.rank) == (None, True, Cause.EXCEPTION, rank)
    assert read(lines, exit_code=1).cause is Cause.EXCEPTION
    assert read(lines, exit_code=-9).cause is Cause.KILLED


@pytest.mark.parametrize("exit_code", [None, 1, 130, -2])
def test_an_interrupt_at_the_end(exit_code: int | None) -> None:
    lines = [*steps(0, 19), "^C" + traceback("KeyboardInterrupt")[0], *traceback("KeyboardInterrupt")[1:]]
    found = read(lines, exit_code=exit_code)
    assert (found.outcome, found.cause) == (Outcome.INTERRUPTED, Cause.USER)
    # What somebody interrupted because it had failed already.
    failed = read([*traceback("ValueError: bad shape", rank=2), *lines[-4:]], exit_code=exit_code)
    assert failed.detail == "ValueError: bad shape"
    assert read([*lines, *steps(20, 40), "Training complete."]).outcome is Outcome.OK
    piped = read(lines, exit_code=0)
    assert (piped.outcome, piped.traceback_at_end, piped.cause) == (None, True, Cause.USER)
    assert read(lines, exit_code=0, requested_steps=100).outcome is Outcome.FAILED


@pytest.mark.parametrize("last", ["RuntimeError: Connection reset by peer", "RuntimeError: Broken pipe", "RuntimeError: ncclRemoteError"])
def test_a_lost_peer_at_the_end_is_a_failure(last: str) -> None:
    assert read([*steps(0, 9), *traceback(last)]).outcome is Outcome.FAILED
    assert read([*steps(0, 9), "Training complete.", *traceback(last)]).outcome is not Outcome.FAILED
    # Behind a pipe: sure where steps are missing, and noise at shutdown where none is.
    behind = [*steps(0, 9), *traceback(last)]
    assert [read(behind, exit_code=0, requested_steps=asked).outcome for asked in (None, 30, 10)] == [None, Outcome.FAILED, Outcome.OK]


@pytest.mark.parametrize(
    "last",
    [
        "run.sh: line 3: 12345 Killed                  python train.py",
        "Killed",
        "Segmentation fault (core dumped)",
        "Bus error (core dumped)",
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-17T10:00:00 ***",
    ],
)
def test_a_process_that_was_ended_is_never_ok_by_exit_code_0(last: str) -> None:
    assert read([*steps(0, 9), last], exit_code=0).outcome is None
    assert read([*steps(0, 9), last]).outcome is Outcome.FAILED


def test_steps_after_a_good_end_take_it_back() -> None:
    lines = [*steps(0, 39), "Training complete.", "Stage 2: finetuning", *steps(0, 6)]
    assert read(lines).outcome is None
    assert read([*lines, "Training complete."]).outcome is Outcome.OK
    assert [read([*lines[:41], *steps(0, last)]).outcome for last in (0, 1)] == [Outcome.OK, None], "two steps are a restart"
    bar = [f"epoch 2:  {at}0%|█    | {at}0/100 [00:01<00:09, 9.00it/s]" for at in (1, 2)]
    assert read([*lines[:41], *bar]).outcome is Outcome.OK, "a bar may be drawn twice, of an upload"


def test_a_task_that_nobody_waited_for_is_no_failure() -> None:
    task = ["Task exception was never retrieved", "future: <Task finished name='Task-3' coro=<upload()>>", *traceback("ConnectionError: x")]
    assert read([*steps(0, 9), *task, "Training complete."]).outcome is Outcome.OK
    assert read([*steps(0, 9), *task], exit_code=0).outcome is Outcome.OK


CANCELLED = "slurmstepd: error: *** STEP 17.0 ON node05 CANCELLED AT 2026-11-18T08:00:00 ***"
ENDED_BY_SRUN = ["srun: Terminating StepId=17.0", CANCELLED, "srun: error: node05: tasks 0-2: Terminated"]
MPIRUN = [
    "mpirun detected that one or more processes exited with non-zero status, thus causing",
    "the job to be terminated. The first process to do so was:",
    "",
    "  Process name: [[1234,1],3]",
    "  Exit code:    7",
]
SRUN = "srun: error: node07: task 3: "


@pytest.mark.parametrize(
    ("last", "cause", "rank", "detail"),
    [
        ([f"{SRUN}Exited with exit code 1"], Cause.EXIT_CODE, 3, "task 3 (rank 3) on node07 ended first, with exit code 1, and printed no"),
        ([f"{SRUN}Exited with exit code 137"], Cause.KILLED, 3, "task 3 (rank 3) on node07 was killed by signal 9 (SIGKILL)"),
        ([f"{SRUN}Killed"], Cause.KILLED, 3, "task 3 (rank 3) on node07 was killed by signal 9 (SIGKILL)"),
        ([f"{SRUN}Segmentation fault (core dumped)"], Cause.NATIVE_CRASH, 3, "task 3 (rank 3) on node07 crashed: SIGSEGV"),
        (["srun: error: n1: tasks 0-3: Exited with exit code 2"], Cause.EXIT_CODE, None, "tasks 0-3 on n1 ended first, with exit code 2"),
        (["command terminated with exit code 137"], Cause.KILLED, None, "the command was killed by signal 9 (SIGKILL)"),
        (MPIRUN, Cause.EXIT_CODE, 3, "rank 3 ended first, with exit code 7, and printed no reason"),
        ([*MPIRUN[:3], "   Process name: [prterun-n1-4711@1,5]", MPIRUN[-1]], Cause.EXIT_CODE, 5, "rank 5 ended first, with exit code 7"),
    ],
)
def test_a_launchers_line_is_the_reason_where_nothing_else_is(last: list[str], cause: Cause, rank: int | None, detail: str) -> None:
    for exit_code, after in itertools.product((None, 0, 1), ([], ENDED_BY_SRUN)):
        found = read([*steps(0, 9), *last, *after], exit_code=exit_code)
        assert (found.outcome, found.cause, found.rank) == (Outcome.FAILED, cause, rank)
        assert found.detail.startswith(detail)
        assert found.fault is not Fault.INFRASTRUCTURE


def test_a_task_that_fails_is_not_the_scheduler_s_fault_and_its_last_error_is_shown() -> None:
    failed = ["FATAL: tokenizer file not found: /data/tok.json", f"{SRUN}Exited with exit code 1", *ENDED_BY_SRUN]
    found = read([*steps(0, 9), *failed], exit_code=1)
    assert found.detail.endswith("with exit code 1; most relevant line: FATAL: tokenizer file not found: /data/tok.json")
    assert found.line == 12


@pytest.mark.parametrize(
    "after",
    [
        ["srun: error: node05: tasks 0-2: Terminated"],
        ["srun: error: node05: tasks 0-2: Killed"],
        ["srun: error: node05: task 0: Exited with exit code 143"],
        ["srun: error: node05: task 0: Exited with exit code 2"],
        traceback("RuntimeError: DataLoader worker (pid 12) is killed by signal: Terminated."),
    ],
)
def test_what_follows_a_job_that_was_cancelled_from_outside_is_its_consequence(after: list[str]) -> None:
    found = read([*steps(0, 9), "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", CANCELLED, *after], exit_code=1)
    assert (found.cause, found.fault, found.line) == (Cause.SCHEDULER, Fault.INFRASTRUCTURE, 12)


def test_a_task_that_is_torchrun_itself_has_the_number_of_a_node() -> None:
    term = "W1118 08:10:01.000000 999 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal"
    found = read([*steps(0, 9), term, f"{SRUN}Exited with exit code 1"], exit_code=1)
    assert found.rank is None and states(found.detail, "task 3", "node07", "exit code 1")


def test_an_error_instead_of_the_steps_asked_for_is_not_ok() -> None:
    assert read(["Error: no data found"], exit_code=0, requested_steps=30).outcome is None
    assert read(["Error: no data found"], exit_code=0).outcome is Outcome.OK


def test_who_waited_for_others_to_join_is_not_the_cause() -> None:
    waited = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined."
    for prefixed in (True, False):
        reader = LogReader()
        for rank, last in enumerate([waited, waited, "KeyError: 'labels'", waited]):
            for line in traceback(last, rank=rank if prefixed else None):
                reader.feed(line, source="" if prefixed else f"rank{rank}.log", rank=None if prefixed else rank)
        found = reader.result()
        assert (found.detail, found.rank) == ("KeyError: 'labels'", 2)


STEPS = [f"step {number} loss {4 - number / 10:.2f}" for number in range(20)]


@pytest.mark.parametrize("exit_code", [None, 0])
@pytest.mark.parametrize("ended", ["run.sh: line 3: 12345 Killed                  python train.py", "Segmentation fault (core dumped)"])
def test_a_process_that_was_ended_is_not_well_whatever_the_script_around_it_prints(ended: str, exit_code: int | None) -> None:
    assert read([*STEPS, ended, "Training finished"], exit_code=exit_code).outcome is None
    assert read([*STEPS, "Training finished"], exit_code=exit_code).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("lines", "is_good"),
    [
        (["Training complete."], True),
        (["INFO:train:Training finished, saved model to out/"], True),
        (["[2026-11-17 10:00:00] Training done", "eval step 1/10 loss 3.0", "eval step 5/10 loss 3.0", "eval step 9/10 loss 3.0"], True),
        (["Epoch 1/10: training done, validating"], False),
        (["Epoch 3 training complete, val loss 2.1"], False),
        (["Error: training done 20 of 1000 steps, aborting"], False),
    ],
)
def test_what_says_that_training_is_over(lines: list[str], is_good: bool) -> None:
    assert (read([*STEPS, *lines]).outcome is Outcome.OK) is is_good


def test_a_launcher_that_was_sent_term_did_not_end_well() -> None:
    terminated = ["Traceback (most recent call last):", '  File "/torchrun", line 8, in <module>', "    sys.exit(main())"]
    terminated += ["torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: 15"]
    assert read([*STEPS, *terminated], exit_code=0).outcome is None
    assert read([*STEPS, *terminated], exit_code=0, requested_steps=40).outcome is Outcome.FAILED
    assert read([*STEPS, *terminated]).outcome is not Outcome.OK


def test_steps_that_only_go_on_after_a_report_are_late_lines_of_others() -> None:
    late = [f"step {number} loss 2.0" for number in range(20, 26)]
    assert read([*STEPS, *report(5, 1), *late], exit_code=0).outcome is Outcome.FAILED
    # A second attempt, or the next of several trainings.
    assert read([*STEPS, *report(5, 1), *STEPS], exit_code=0).outcome is None
    assert read([*STEPS, *report(5, 1), *STEPS], exit_code=0, requested_steps=20).outcome is Outcome.OK


def test_a_second_stage_takes_the_end_of_the_first_back() -> None:
    stage = [f"{{'loss': {3 - number / 10:.2f}, 'grad_norm': 1.0, 'epoch': 0.{number}}}" for number in range(6)]
    summary = "{'train_runtime': 12.5, 'train_steps_per_second': 3.2, 'epoch': 1.0}"
    assert read([*stage, summary]).outcome is Outcome.OK
    assert read([*stage, summary, "Stage 2", *stage]).outcome is None


@pytest.mark.parametrize("before", ["", "Epoch 0: "])
def test_a_bar_of_a_second_stage_takes_the_end_of_the_first_back(before: str) -> None:
    first = [*STEPS, "`Trainer.fit` stopped: `max_epochs=5` reached."]

    def bar(last: int, total: int) -> list[str]:
        """As tqdm draws it: one line."""
        return ["".join(f"\r{before}{100 * done // total}%|██| {done}/{total} [00:01<00:02, 10.0it/s]" for done in range(last + 1))]

    assert read([*first, "Fold 2", *bar(149, 1000)]).outcome is None
    # The bar of an evaluation is full at its end; that of the training is drawn once more, wherever it stopped.
    assert read([*first, *bar(40, 40)]).outcome is Outcome.OK
    assert read([*first, f"{before}62%|██| 25/40 [00:01<00:02, 10.0it/s]"]).outcome is Outcome.OK
    assert read([*first, *bar(7, 40), "accuracy 0.81"]).outcome is Outcome.OK


@pytest.mark.parametrize("exit_code", [None, 0])
@pytest.mark.parametrize("last", ["CUDA error: an illegal memory access was encountered", "Loss is nan, stopping training"])
def test_what_ends_a_training_is_not_well_though_the_script_says_so(last: str, exit_code: int | None) -> None:
    found = read([*STEPS, last, "Training finished."], exit_code=exit_code)
    assert found.outcome is None
    assert last in found.detail
    # What came before each step, such as sample text, and never ended anything.
    often = [line for step in STEPS for line in (f"sample: '{last}'", step)]
    assert read([*often, f"sample: '{last}'", "Training finished."], exit_code=exit_code).outcome is Outcome.OK
    # One rank handled it, and another one prints the steps.
    ranks = [f"[rank3]: {last}", *(f"[rank{rank}]: {step}" for step in STEPS for rank in range(3)), "[rank0]: Training finished."]
    assert read(ranks, exit_code=exit_code).outcome is Outcome.OK


def test_an_exception_before_a_watchdog_s_timeout_is_the_cause() -> None:
    """Without prefixes; the launcher names the rank that waited in vain and aborted."""
    timeout = "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10)"
    lines = [*STEPS, *traceback("ValueError: bad shape"), *steps(20, 40), timeout, *report(0, -6)]
    found = read(lines)
    assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "ValueError: bad shape", None)
    # Hundreds of steps later it was survived.
    much_later = read([*STEPS, *traceback("ValueError: bad shape"), *steps(20, 400), timeout, *report(0, -6)])
    assert much_later.cause is Cause.COLLECTIVE_TIMEOUT


def test_who_interrupts_a_job_that_had_failed_did_not_end_it() -> None:
    interrupt = traceback("KeyboardInterrupt")
    failed = read([*STEPS, *traceback("KeyError: 'labels'"), *interrupt])
    assert (failed.outcome, failed.detail) == (Outcome.FAILED, "KeyError: 'labels'")
    # What a rank prints because of the interrupt is no cause.
    ended = read([*STEPS, *interrupt, *traceback("RuntimeError: DataLoader worker (pid 4) exited unexpectedly"), *interrupt])
    assert (ended.outcome, ended.cause) == (Outcome.INTERRUPTED, Cause.USER)
    # Nor is what a rank handled long before.
    handled = read(["[rank3]: CUDA out of memory, trying half the batch size", *(f"[rank0]: {step}" for step in STEPS), *interrupt])
    assert (handled.outcome, handled.cause) == (Outcome.INTERRUPTED, Cause.USER)


@pytest.mark.parametrize("last", ["RuntimeError: Connection reset by peer", "RuntimeError: Broken pipe", "RuntimeError: ncclRemoteError"])
def test_files_of_several_ranks_put_into_one(last: str) -> None:
    first = [*steps(0, 9), *traceback("KeyError: 'labels'")]
    found = read([*first, *steps(0, 10), *traceback(last)])
    assert (found.outcome, found.detail) == (Outcome.FAILED, "KeyError: 'labels'")
    # A second attempt, which lost a peer of its own.
    for again in (["retrying (2/3)...", *steps(0, 9)], steps(0, 30)):
        assert read([*first, *again, *traceback(last)]).detail == last
    # Prefixes show that the very rank took them.
    went_on = [*traceback("KeyError: 'labels'", rank=3), *(f"[rank3]: {step}" for step in steps(0, 9))]
    assert read([*steps(0, 9), *went_on, *traceback(last)]).detail == last


@pytest.mark.parametrize("exit_code", [None, 0])
def test_a_restart_from_a_late_checkpoint_that_ends_well(exit_code: int | None) -> None:
    restart = ["[default] Worker group FAILED. 2/3 attempts left; will restart worker group", "Resuming from checkpoint out/ckpt_15.pt"]
    lines = [*STEPS, *traceback(OOM, rank=1), *restart, *steps(15, 39)]
    assert read([*lines, "Training complete."], exit_code=exit_code).outcome is Outcome.OK
    assert read(lines).outcome is None
    # Steps of others that go on, without a word about a restart; or late ones after such a word.
    assert read([*STEPS, *traceback(OOM, rank=1), *steps(18, 24)], exit_code=exit_code).outcome is None
    assert read([*STEPS, *traceback(OOM, rank=1), "retrying", *steps(16, 19)], exit_code=0).outcome is None
    # The last attempt has its own cause.
    found = read([*lines, *traceback("KeyError: 'later'", rank=2)], exit_code=exit_code)
    assert (found.detail, found.rank) == ("KeyError: 'later'", 2)


@pytest.mark.parametrize("program", ["nvidia-smi dmon > gpu.log", "/usr/bin/tensorboard --logdir out", "sleep infinity"])
def test_a_program_beside_the_training_may_be_killed(program: str) -> None:
    killed = f"./run.sh: line 12:  3344 Killed                  {program}"
    assert read([*STEPS, killed], exit_code=0).outcome is Outcome.OK
    assert read([*STEPS, killed]).outcome is None
    assert read([*STEPS, "Training complete.", killed]).outcome is Outcome.OK
    assert read([*STEPS, killed.replace(program, "python train.py")]).outcome is Outcome.FAILED


def test_a_detail_after_exit_code_0_does_not_speak_of_it() -> None:
    """It follows on "exited 0, and …"."""
    found = read(["Error: no data found"], exit_code=0, requested_steps=30)
    assert found.detail == "Error: no data found"


def test_what_a_rank_handled_long_before_is_not_the_cause() -> None:
    """Of many ranks only one prints steps."""
    went_on = [f"[rank0]: {step}" for step in steps(0, 40)]
    for handled in (["[rank3]: CUDA out of memory, trying half the batch size"], traceback(OOM, rank=3)):
        found = read([*handled, *went_on, *traceback("ValueError: bad sample 17", rank=5)])
        assert (found.outcome, found.detail, found.rank) == (Outcome.FAILED, "ValueError: bad sample 17", 5)
        for exit_code in (None, 0):
            assert read([*handled, *went_on, "[rank0]: Training complete."], exit_code=exit_code).outcome is Outcome.OK
        # Where nothing else is found, it may be.
        assert "out of memory" in read([*handled, *went_on], exit_code=1).detail


EVALUATED = [*(f"eval step {step}: loss 2.{step}" for step in range(20)), "Evaluation complete."]


@pytest.mark.parametrize("exit_code", [None, 0])
def test_an_evaluation_after_a_failed_training_is_no_restart(exit_code: int | None) -> None:
    """As of `torchrun train.py; python evaluate.py`, and of `python train.py; python evaluate.py`."""
    reported = read([*STEPS, *traceback("ValueError: bad shape", rank=1), *report(1, 1), *EVALUATED], exit_code=exit_code)
    assert (reported.outcome, reported.detail, reported.rank) == (Outcome.FAILED, "ValueError: bad shape", 1)
    for last in ("ValueError: bad shape", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"):
        alone = read([*STEPS, *traceback(last), *EVALUATED], exit_code=exit_code)
        assert alone.outcome not in (Outcome.OK, Outcome.INTERRUPTED)
        assert alone.detail == last
        short = read([*STEPS, *traceback(last), *EVALUATED], exit_code=0, requested_steps=30)
        assert (short.outcome, short.last_step) != (Outcome.OK, 19)


@pytest.mark.parametrize("failed", [[*traceback("KeyError: 3", rank=1), *report(1, 1)], traceback("KeyError: 3")])
def test_the_next_training_of_a_loop_is_no_restart(failed: list[str]) -> None:
    lines = [*STEPS, *failed, "seed 2", *steps(0, 39), "Training complete."]
    for exit_code in (None, 0):
        found = read(lines, exit_code=exit_code)
        assert (found.outcome, found.detail) == (None, "KeyError: 3")
    # All that was asked for was done after the failure; or a line says that it was a second attempt.
    assert read(lines, exit_code=0, requested_steps=40).outcome is Outcome.OK
    assert read([line.replace("seed 2", "attempt 2 of 3") for line in lines]).outcome is Outcome.OK


def test_a_restart_of_which_only_a_bar_is_drawn() -> None:
    def bars(count: int) -> list[str]:
        return [f"{number}%|###   | {number}/100 [00:10<00:20, 9.9it/s]" for number in range(count)]

    failed = [*bars(40), *traceback("KeyError: 3", rank=1), *report(1, 1)]
    assert read([*failed, "retrying (2/3)", *bars(101), "Training complete."]).outcome is Outcome.OK
    assert read([*failed, "retrying (2/3)", *bars(60), "Training complete."]).outcome is Outcome.FAILED
    assert read([*failed, *bars(101), "Training complete."]).outcome is Outcome.FAILED


BEFORE_LINES = (
    *("Nov 17 23:04:{:02d} ", "2026-11-17 23:04:{:02d} ", "[23:04:{:02d}] ", "2026-11-17T23:04:{:02d} ", "[2026-11-17 23:04:{:02d},123] "),
    *("2026-11-17T23:04:{:02d}.123456789Z stdout F ", "trainer-1  | ", "[pod/train-0/main] ", "train/3 ", "trainer-1  | 23:04:{:02d}.5 "),
)


@pytest.mark.parametrize("before", BEFORE_LINES)
def test_what_stands_before_every_line_hides_nothing(before: str) -> None:
    """As `| ts`, docker, kubectl and torchx put it there."""

    def stamped(lines: list[str]) -> list[str]:
        return [before.format(at % 60) + line for at, line in enumerate(lines)]

    alone = stamped([*STEPS, *traceback("ValueError: bad shape")])
    assert (read(alone).outcome, read(alone).detail) == (Outcome.FAILED, "ValueError: bad shape")
    found = read(alone, exit_code=0)
    assert (found.outcome, found.traceback_at_end, found.detail) == (None, True, "ValueError: bad shape")
    assert read(alone, exit_code=0, requested_steps=40).outcome is Outcome.FAILED
    of_rank = read(stamped([*STEPS, *traceback("IndexError: 9", rank=6), *traceback("RuntimeError: Connection reset by peer", rank=0)]))
    assert (of_rank.detail, of_rank.rank) == ("IndexError: 9", 6)
    reported = read(stamped([*STEPS, *traceback("ValueError: bad shape"), *report(6, 1)]), exit_code=0)
    assert (reported.outcome, reported.detail, reported.rank) == (Outcome.FAILED, "ValueError: bad shape", 6)
    assert read(stamped([*STEPS, *report(6, 1)]), exit_code=0).rank == 6
    assert read(stamped([*STEPS, "Training complete."])).outcome in ((Outcome.OK,) if before[0] in "N2[" else (Outcome.OK, None))


CAUGHT = (
    *("Error in atexit._run_exitfuncs:", "Exception in callback f()\nhandle: <Handle f()>", "ERROR:root:upload failed"),
    *("2026-11-17 10:00:00,123 - trainer - ERROR - upload failed", "2026-11-17 10:00:00.123 | ERROR    | __main__:save:12 - upload failed"),
    *("E1117 10:00:00.000000 140 train.py:12] upload failed", "wandb: ERROR Internal wandb error: file data was not synced"),
)


@pytest.mark.parametrize("before", CAUGHT)
def test_a_traceback_that_was_caught_fails_no_run(before: str) -> None:
    """Of what is called at exit, in asyncio's callbacks, or printed by a logger."""
    for last, function in (("ConnectionError: x", "save"), ("ZeroDivisionError: division by zero", "<module>")):
        noise = [*before.split("\n"), *traceback(last, function=function)]
        assert read([*STEPS, *noise], exit_code=0, requested_steps=20).outcome is Outcome.OK
        assert read([*STEPS, *noise], requested_steps=20).outcome is Outcome.OK
        assert read([*STEPS, "Training complete.", *noise]).outcome is Outcome.OK
        assert read([*STEPS, *noise]).outcome is None
        assert read([*STEPS, *noise], exit_code=1).detail == last
        assert read([*STEPS, *noise], exit_code=0).outcome in (Outcome.OK, None)
    assert read([*STEPS, *before.split("\n"), *traceback("KeyError: 'url'", function="save")], exit_code=0).outcome is Outcome.OK


def test_what_a_program_logs_before_it_dies_is_not_taken_for_caught() -> None:
    """`logger.error(…)`, then `raise`, behind a pipe."""
    lines = [*STEPS, "ERROR:train:shapes differ", *traceback("ValueError: bad shape")]
    assert read(lines, exit_code=0).outcome is None
    assert read(lines, exit_code=0, requested_steps=40).outcome is None


SECOND_STAGES = {
    "steps": steps(0, 1),
    "no_length": [f"{number}it [00:{number:02d},  9.9it/s, loss=2.1]" for number in range(50)],
    "rich": [f"Epoch 0/9 ━━━━━━━━ {number}/100 0:00:10 • 0:00:20 9.9it/s train_loss: 2.1" for number in range(40)],
    "keras": [f" {number}/100 [====>.........] - ETA: 12s - loss: 2.3" for number in range(40)],
    "keras_3": [f"{number}/100 ━━━━━━━━━━━━━━━━━━━━ 12s 300ms/step - loss: 2.3" for number in range(40)],
    "epochs": [f"Epoch {number}: train loss 1.{number}" for number in range(8)],
    "epochs_of": [f"Epoch [{number}/100] loss: 1.{number} acc: 0.5" for number in range(8)],
}


@pytest.mark.parametrize("name", SECOND_STAGES)
def test_a_second_stage_that_is_cut_takes_the_end_of_the_first_back(name: str) -> None:
    lines = [*STEPS, "Training complete.", "Stage 2: finetuning", *SECOND_STAGES[name]]
    assert read(lines).outcome is None
    assert read([*lines, "Training complete."]).outcome is Outcome.OK


@pytest.mark.parametrize("exit_code", [None, 0])
@pytest.mark.parametrize(
    "last",
    [
        "srun: error: Unable to create step for job 123: Memory required by task is not available",
        "python: can't open file '/w/stage2.py': [Errno 2] No such file or directory",
        "run.sh: line 7: torchrun: command not found",
        "ft.py: error: unrecognized arguments: --foo",
        "run.sh: line 9: ./stage2.sh: Permission denied",
        "Training complete. Exit status: 137",
        "Training finished with errors",
        "Job finished with status 1",
        "run.sh: line 5:  4711 Terminated              python train.py",
    ],
)
def test_a_last_line_about_what_did_not_end_or_begin_well_is_not_ok(last: str, exit_code: int | None) -> None:
    for before in ([*STEPS, "Training complete."], STEPS):
        found = read([*before, last], exit_code=exit_code)
        assert found.outcome in (None, Outcome.FAILED)
        assert last.partition(" Terminated")[0].split()[-1] in found.detail


@pytest.mark.parametrize(
    "last",
    [
        "Job finished with exit code 0",
        "run.sh: line 5:  4711 Terminated              nvidia-smi dmon",
        "Best: epoch 3, loss 1.2",
        "Training data: 3 files failed checksum and were skipped",
        "eval server returned status 404 for optional asset",
        "Comparing with baseline run which diverged at step 300",
    ],
)
def test_a_last_line_that_says_nothing_bad(last: str) -> None:
    assert read([*STEPS, "Training complete.", last]).outcome is Outcome.OK
    assert read([*STEPS, last], exit_code=0).outcome is Outcome.OK


@pytest.mark.parametrize(
    "last", ["Training failed.", "Job 17 failed after 3 retries", "run crashed", "12:01:02 - training did not converge"]
)
def test_a_last_line_that_says_that_the_training_failed(last: str) -> None:
    assert read([*STEPS, last], exit_code=0).outcome is None


def test_a_message_of_several_lines_is_shown() -> None:
    more = ["\tsize mismatch for w: copying a param with shape torch.Size([1]) from checkpoint.", '\tMissing key(s) in state_dict: "b". ']
    lines = [*STEPS, *traceback("RuntimeError: Error(s) in loading state_dict for GPT:"), *more, "cleaning up", "\tsaved"]
    found = read(lines, exit_code=1)
    assert found.detail.startswith("RuntimeError: Error(s) in loading state_dict for GPT: size mismatch for w: copying a param")
    assert [line.strip() for line in found.excerpt[-2:]] == [line.strip() for line in more]


BOXED = [
    "╭───────────────────── Traceback (most recent call last) ──────────────────────╮",
    "│ /home/u/train.py:88 in <module>                                              │",
    "│                                                                              │",
    "│   85 def main():                                                             │",
    "│ ❱ 88     main()                                                              │",
    "│ ╭───────── locals ─────────╮                                                 │",
    "│ │ error = 'fatal: no disk' │                                                 │",
    "╰──────────────────────────────────────────────────────────────────────────────╯",
    "ValueError: bad shard 7",
]


def test_a_traceback_in_a_box_is_one() -> None:
    found = read([*STEPS, *BOXED])
    assert (found.outcome, found.detail, found.traceback_at_end) == (Outcome.FAILED, "ValueError: bad shard 7", True)
    assert len(found.excerpt) > 1 and any("88     main()" in line for line in found.excerpt)
    # A table in such a box has nothing to do with it.
    table = ["╭──────┬──────╮", "│ step │ loss │", "│ 10   │ 2.1  │", "╰──────┴──────╯"]
    assert read([*table, *STEPS, "Training complete."]).outcome is Outcome.OK


REFUSED = "socketPollConnect: connect to 10.0.0.7<45678> returned Connection refused, exceeded error retry count after 35 attempts"


def test_a_refused_connection_names_the_address_who_noticed_it_and_that_the_peer_may_be_dead() -> None:
    error = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error"
    lines = [*traceback(error), "ncclRemoteError: A call failed possibly due to a network error.", "Last error:", REFUSED]
    found = read([f"[rank2]: {line}" for line in lines], exit_code=1)
    assert (found.signature, found.rank, found.noticed_by) == ("nccl_refused", None, 2)
    assert "10.0.0.7<45678>" in found.detail and "the rank at the named address: it probably ended first" in found.action


CRASH = [
    "Fatal Python error: Segmentation fault",
    "",
    "Thread 0x00007f3c11223344 (most recent call first):",
    '  File "/usr/lib/python3.11/threading.py", line 324 in wait',
    "",
    "Current thread 0x00007f3c55667788 (most recent call first):",
    '  File "/home/u/kernels.py", line 12 in fused',
    '  File "/home/u/train.py", line 88 in <module>',
]


@pytest.mark.parametrize("before", [[], ["terminate called after throwing an instance of 'c10::Error'"]])
def test_a_stack_that_is_in_the_log_is_shown_and_not_asked_for(before: list[str]) -> None:
    found = read([*STEPS, *before, *CRASH], exit_code=-11)
    assert (found.cause, found.signature) == (Cause.NATIVE_CRASH, "crash_with_stack")
    assert "PYTHONFAULTHANDLER" not in found.action
    assert [line.strip() for line in found.excerpt[-2:]] == [line.strip() for line in CRASH[-2:]]
    by_line = read([*STEPS, *before, *CRASH], exit_code=1)
    assert (by_line.signature, by_line.excerpt[-2:]) == (found.signature, found.excerpt[-2:])
    for code in (-11, 1):
        assert "PYTHONFAULTHANDLER" in read([*STEPS, *before, CRASH[0]], exit_code=code).action


NOT_UPLOADED = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='wandb.ai', port=443): Max retries exceeded"
CAUGHT = [HEAD, '  File "/usr/lib/python3/wandb/sdk/lib/retry.py", line 131, in __call__', "    result = self._call_fn()", NOT_UPLOADED]


@pytest.mark.parametrize("exit_code", [None, 0])
def test_an_exception_without_a_traceback_after_a_good_end_is_noise(exit_code: int | None) -> None:
    found = read(
        [*STEPS, "Training finished.", NOT_UPLOADED, "wandb: Network error (ConnectionError), entering retry loop."], exit_code=exit_code
    )
    assert (found.outcome, found.traceback_at_end) == (Outcome.OK, False)
    last = 1 + int(STEPS[-1].split()[1].rstrip(":"))
    assert read([*STEPS, NOT_UPLOADED], exit_code=exit_code, requested_steps=last).outcome is Outcome.OK
    # Without a good end it may be why there is none; that there is a traceback is not said.
    found = read([*STEPS, NOT_UPLOADED], exit_code=exit_code)
    assert found.outcome is not Outcome.OK and not found.traceback_at_end
    # One that was caught and printed does not show that the job failed.
    assert read([*STEPS, "Training finished.", *CAUGHT], exit_code=exit_code).outcome is None
    # But an uncaught one, as of saving the model, does.
    uncaught = [HEAD, '  File "train.py", line 9, in <module>', "    save(model)", "OSError: [Errno 5] Input/output error"]
    found = read([*STEPS, "Training finished.", *uncaught], exit_code=exit_code)
    assert found.outcome is (Outcome.FAILED if exit_code is None else None) and found.traceback_at_end
