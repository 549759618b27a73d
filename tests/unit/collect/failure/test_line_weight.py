"""Tracebacks that explain nothing: passed over by Python, of a thread, warned of, or followed by further steps."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.collect.failure.line_weight import Weight, weights
from seatrial.collect.logs.line_marks import marked_lines
from seatrial.records.outcome import Cause
from tests.unit.collect.failure.test_cause import traceback

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
def test_a_block_that_explains_nothing_hides_no_cause(block: list[str], line: str, cause: Cause) -> None:
    found = diagnose(1, ["step 1", *block, *traceback(line)])
    assert (found.cause, found.detail) == (cause, line)
    # Likewise where the ranks are told apart.
    of_rank_1 = [f"[rank1]: {text}" for text in traceback(line)]
    assert diagnose(1, [*(f"[rank0]: {text}" for text in block), *of_rank_1]).detail == line


@pytest.mark.parametrize("block", [IGNORED, LOGGING])
def test_what_python_passes_over_is_never_the_cause(block: list[str]) -> None:
    found = diagnose(1, ["step 1", *block])
    assert (found.cause, found.telling) == (Cause.EXIT_CODE, ("step 1",))


def test_a_thread_s_is_the_cause_where_nothing_else_is() -> None:
    lost = "[rank1]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:1428"
    assert diagnose(1, [*THREAD, lost]).detail == "wandb.errors.CommError: no answer"
    killed = "[2026-11-15 12:43:31,393] [ERROR] [launch.py:259:sigkill_handler] ['python', 't.py'] exits with return code = -9"
    assert diagnose(247, [*THREAD, killed]).cause is Cause.KILLED


def test_the_line_behind_a_block_has_its_full_weight_again() -> None:
    lines = ["Exception ignored in: <x>", "OSError: [Errno 5] Input/output error"]
    assert weights(marked_lines(lines)) == [Weight.NOTHING, Weight.FULL]


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
def test_what_a_rank_went_on_after_is_no_cause(mark: str) -> None:
    early = [
        *traceback("KeyError: 'bleu'"),
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "step 7: loss 3",
        "step 8: loss 3",
    ]
    lines = [f"{mark}{text}" for text in [*early, *traceback("OSError: [Errno 28] No space left on device")]]
    assert diagnose(1, lines).cause is Cause.DISK_FULL


def test_steps_of_another_rank_say_nothing_of_this_one() -> None:
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
def test_what_only_names_a_step_is_none(line: str) -> None:
    lines = [*traceback("KeyError: 'lr'"), line, line, line, "OSError: [Errno 5] Input/output error"]
    assert diagnose(1, lines).detail == "KeyError: 'lr'"


def test_a_traceback_before_the_last_steps_is_told_where_there_is_no_other() -> None:
    lines = [*traceback("KeyError: 'lr'"), "step 1", "step 2"]
    assert diagnose(1, lines).detail == "KeyError: 'lr'"
    assert diagnose(7, lines).cause is Cause.EXIT_CODE


def test_a_broken_gpu_counts_before_what_the_ranks_say_of_it() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4003, GPU has fallen off the bus."
    lines = [*traceback("RuntimeError: CUDA error: an illegal memory access was encountered", rank=0), *traceback("KeyError: 1", rank=1)]
    assert diagnose(1, lines).signature == "gpu_access"
    assert diagnose(1, [*lines, xid]).signature == "gpu_fault"
    # One that the run survived is none.
    assert diagnose(1, [xid, "step 1", "step 2", *lines]).signature == "gpu_access"


@pytest.mark.parametrize(
    "last",
    [
        "Exception: something of its own",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
        "KeyError",
        "my_library.Trouble",
        "AssertionError",
    ],
)
def test_any_name_ends_a_traceback(last: str) -> None:
    lost = traceback("RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.12]:7565", rank=1)
    for rank in (None, 0):
        found = diagnose(1, [*lost, *traceback(last, rank=rank), *lost])
        assert (found.cause, found.detail) == (Cause.EXCEPTION, last)


def test_a_word_with_a_colon_is_an_exception_only_behind_a_traceback() -> None:
    assert diagnose(3, ["loss: 1.25", "done"]).cause is Cause.EXIT_CODE
    lines = ["Traceback (most recent call last):", '  File "t.py", line 1', "[rank0]: loss: 1.25", "Trouble: x"]
    assert diagnose(3, lines).detail == "Trouble: x"
