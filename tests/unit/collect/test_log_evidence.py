"""How much a line of a failed run's log counts: harmless lines, tracebacks, what a run survived."""

from __future__ import annotations

import pytest

from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.logs.line_relevance import HEAD, is_indented
from seatrial.records.outcome import Cause
from seatrial.records.signatures.harmless import HARMLESS, count_harmless, without_harmless
from tests.unit.collect.log_texts import BY_ID
from tests.unit.collect.test_failure_causes import traceback


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in BY_ID.items() for line in lines])
def test_each_form_is_recognised(id: str, line: str) -> None:
    assert count_harmless(f"step 1\n{line}\nstep 2\n".encode()) == {id: 1}
    assert without_harmless(line) != line


def test_every_entry_has_forms() -> None:
    assert {entry.id for entry in HARMLESS} == set(BY_ID)


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/root/.triton/autotune/Fp16Matmul_2d_kernel.pickle.tmp'",
        "df: /mnt/data: Input/output error",
        "df: /mnt/data: No such file or directory",
        "RuntimeError: destroy_process_group() was called twice",
        "dist.destroy_process_group()",
        "lr_scheduler.step()",
        "",
    ],
)
def test_other_lines_are_unchanged(line: str) -> None:
    assert count_harmless(line.encode()) == {}
    assert without_harmless(line) == line


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("df: /root/.triton/autotune: No such file or directoryRuntimeError: bad", "RuntimeError: bad"),
        ("df: /root/.triton/autotune: No such file or directory RuntimeError: bad", "RuntimeError: bad"),
        ("ValueError: bad df: /root/.triton/autotune: No such file or directory", "ValueError: bad "),
        ("    raise X('destroy_process_group() was not called before program exit')", "    raise X('')"),
    ],
)
def test_text_beside_a_harmless_line_stays(line: str, rest: str) -> None:
    assert without_harmless(line) == rest


def test_harmless_lines_among_binary_data() -> None:
    assert count_harmless(b"\xff\xfe\x00 df: /root/.triton/autotune: No such file or directory\xff\n") == {"triton_autotune": 1}


@pytest.mark.parametrize("name", ["ValueError: no", "torch.OutOfMemoryError: no", "a.b.PortTakenException: x"])
def test_an_exception_is_recognised_by_how_its_name_ends(name: str) -> None:
    assert diagnose(1, ["step 1", name]).detail == name


@pytest.mark.parametrize("name", ["Exception: no", "socket.herror: no", "StopAsync"])
def test_after_a_traceback_any_name_counts(name: str) -> None:
    assert diagnose(1, [name]).cause is Cause.EXIT_CODE
    assert diagnose(1, [HEAD, '  File "train.py", line 9', "    fail()", name]).detail == name


def test_only_the_first_line_that_is_not_indented_ends_it() -> None:
    assert diagnose(1, [HEAD, "  at it", "nothing to see", "gone: away"]).cause is Cause.EXIT_CODE
    assert diagnose(1, [HEAD, "  at it", "gone: away", "once: again"]).detail == "gone: away"


@pytest.mark.parametrize("before", [" 50%|#####     | 5/10 ", "epoch 3: 50%|##", 'resumed from "last" '])
def test_a_traceback_behind_other_text_counts(before: str) -> None:
    assert diagnose(1, [before + HEAD, '  File "train.py", line 9', "gone: away"]).detail == "gone: away"


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_a_quoted_head_of_a_traceback_is_no_traceback(quote: str) -> None:
    assert diagnose(1, [f"searching for {quote}{HEAD}{quote}", "gone: away"]).cause is Cause.EXIT_CODE


def test_interleaved_tracebacks_of_two_ranks() -> None:
    lines = [f"[rank0]: {HEAD}", f"[rank1]: {HEAD}", '[rank0]:   File "a.py", line 3, in a', "[rank1]: hostile: 0", "[rank0]: lost: 1"]
    found = diagnose(1, lines)
    assert (found.detail, found.rank, found.line, found.excerpt) == ("hostile: 0", 1, 4, ("hostile: 0",))


@pytest.mark.parametrize(("text", "indented"), [("", True), ("  x", True), ("\tx", True), ("x", False)])
def test_blank_and_quoted_lines_are_indented(text: str, indented: bool) -> None:
    assert is_indented(text) is indented


IGNORED = ["Exception ignored in: <function Reader.__del__ at 0x7f20>", *traceback("AttributeError: no attribute '_handle'")]
LOGGING = [
    "--- Logging error ---",
    *traceback("TypeError: not all arguments converted"),
    "Call stack:",
    '  File "train.py", line 3, in <module>',
    "Message: 'lr'",
    "Arguments: (0.1,)",
]
THREAD = ["Exception in thread NetStatThr:", *traceback("wandb.errors.CommError: no answer")]
CHAINED = [*THREAD, "", "During handling of the above exception, another exception occurred:", "", *traceback("OSError: closed")]
CAUSES = (
    ("OSError: [Errno 5] Input/output error", Cause.IO_ERROR),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Cause.CUDA_OOM),
    ("OSError: [Errno 28] No space left on device", Cause.DISK_FULL),
    ("KeyError: 'lr'", Cause.EXCEPTION),
)


@pytest.mark.parametrize("block", [IGNORED, LOGGING, THREAD, CHAINED])
@pytest.mark.parametrize(("line", "cause"), CAUSES)
def test_ignored_and_thread_tracebacks_hide_no_cause(block: list[str], line: str, cause: Cause) -> None:
    found = diagnose(1, ["step 1", *block, *traceback(line)])
    assert (found.cause, found.detail) == (cause, line)
    # Likewise with rank prefixes.
    rank_1 = [f"[rank1]: {text}" for text in traceback(line)]
    assert diagnose(1, [*(f"[rank0]: {text}" for text in block), *rank_1]).detail == line


@pytest.mark.parametrize("block", [IGNORED, LOGGING])
def test_what_python_ignores_is_never_the_cause(block: list[str]) -> None:
    found = diagnose(1, ["step 1", *block])
    assert (found.cause, found.telling) == (Cause.EXIT_CODE, ("step 1",))


def test_a_threads_exception_is_the_cause_where_nothing_else_is() -> None:
    lost = "[rank1]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:1428"
    assert diagnose(1, [*THREAD, lost]).detail == "wandb.errors.CommError: no answer"
    killed = "[2026-11-15 12:43:31,393] [ERROR] [launch.py:259:sigkill_handler] ['python', 't.py'] exits with return code = -9"
    assert diagnose(247, [*THREAD, killed]).cause is Cause.KILLED


def test_the_line_after_a_block_has_full_weight() -> None:
    lines = ["Exception ignored in: <x>", "OSError: [Errno 5] Input/output error"]
    assert diagnose(1, lines).cause is Cause.IO_ERROR


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CUDA out of memory at batch 128, retrying with 64",
        "2026-11-15 14:02:31,880 - train - WARNING - CUDA out of memory. Tried to allocate 2.00 GiB, retrying",
        "[2026-11-15 14:02:31,880] [WARNING] [batch.py:3:fit] CUDA error: out of memory at batch 128",
        "(EngineCore_0 pid=51) WARNING 11-15 14:02:36 [core.py:708] RuntimeError: CUDA out of memory.",
        "[trainer] CUDA out of memory at batch 128, retrying with 64",
        'prompt 3: "my run says RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB, what now?"',
        "prompt 4: why does CUDA out of memory come up?",
    ],
)
def test_a_warning_or_a_quotation_is_no_cause(line: str) -> None:
    assert diagnose(1, [line, *traceback("ValueError: bad sample 17")]).detail == "ValueError: bad sample 17"
    assert diagnose(3, [line]).cause is Cause.EXIT_CODE


@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_what_a_rank_survived_is_no_cause(mark: str) -> None:
    early = [
        *traceback("KeyError: 'bleu'"),
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "step 7: loss 3",
        "step 8: loss 3",
    ]
    lines = [f"{mark}{text}" for text in [*early, *traceback("OSError: [Errno 28] No space left on device")]]
    assert diagnose(1, lines).cause is Cause.DISK_FULL


def test_steps_of_another_rank_do_not_clear_this_one() -> None:
    lines = [*traceback("KeyError: 'lr'", rank=1), "[rank0]: step 7", "[rank0]: step 8", "[rank0]: OSError: [Errno 5] Input/output error"]
    assert diagnose(1, lines).detail == "KeyError: 'lr'"
    # Without marks one step may be that of a rank which has not noticed yet.
    assert diagnose(1, [*traceback("KeyError: 'lr'"), "step 7", "OSError: [Errno 5] Input/output error"]).detail == "KeyError: 'lr'"


@pytest.mark.parametrize(
    "line",
    [
        "  3%|▎         | 12/400 [00:10<05:00, 1.2it/s]",
        "wandb:       step 12",
        "stopped: failed at step 12",
        "E1115 14:02 [api.py:1] ValueError at step 12: error",
    ],
)
def test_a_line_that_mentions_a_step_is_not_progress(line: str) -> None:
    lines = [*traceback("KeyError: 'lr'"), line, line, line, "OSError: [Errno 5] Input/output error"]
    assert diagnose(1, lines).detail == "KeyError: 'lr'"


def test_a_traceback_before_the_last_steps_counts_where_there_is_no_other() -> None:
    lines = [*traceback("KeyError: 'lr'"), "step 1", "step 2"]
    assert diagnose(1, lines).detail == "KeyError: 'lr'"
    assert diagnose(7, lines).cause is Cause.EXIT_CODE


def test_a_broken_gpu_counts_before_the_ranks_errors() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4003, GPU has fallen off the bus."
    lines = [*traceback("RuntimeError: CUDA error: an illegal memory access was encountered", rank=0), *traceback("KeyError: 1", rank=1)]
    assert diagnose(1, lines).signature == "gpu_access"
    assert diagnose(1, [*lines, xid]).signature == "gpu_fault"
    # One that the run survived is none.
    assert diagnose(1, [xid, "step 1", "step 2", *lines]).signature == "gpu_access"
