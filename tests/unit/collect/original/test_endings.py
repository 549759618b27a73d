"""How an attempt of the original scripts ended, by row and log."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.cause import Diagnosis
from seatrial.collect.original.advice import INSTEAD, action_for
from seatrial.collect.original.endings import outcome_of
from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.run_specs import spec_of
from seatrial.collect.original.spans import span_of
from seatrial.collect.original.train_log import Segment
from seatrial.records.outcome import RunOutcome
from seatrial.signatures.registry import signatures
from tests.original_campaign import FIRST_START, sweep_run, train_lines
from tests.original_campaign import OriginalAttempt as Written

OOM = ("Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
SEGMENT = Segment(tuple(train_lines(sweep_run(), Written(last_step=100), FIRST_START)))
START = {"timestamp": FIRST_START.isoformat(timespec="seconds")}
ZONE_S = 8 * 3600.0


def ended(
    code: int | None, *output: str, status: str = "failed", segment: Segment | None = SEGMENT, meta: dict[str, str] = START
) -> RunOutcome:
    cells = {"group": "g", "repeat": "1", "status": status, "duration_sec": "1800", "port": "29650"}
    row = Row(cells=cells if code is None else {**cells, "exit_code": str(code)})
    attempt = OriginalAttempt(row=row, segment=segment, block=Block(meta=meta, output=output))
    return outcome_of(attempt, 2, spec_of(attempt, "g", 1, 20), span_of(attempt, ZONE_S))


@pytest.mark.parametrize(
    ("code", "output", "how", "why"),
    [
        (124, (), "timeout", "run_limit"),
        (124, OOM, "timeout", "cuda_oom"),
        (124, ("Connection reset by peer",), "timeout", "run_limit"),
        (137, (), "failed", "killed"),
        (137, OOM, "failed", "cuda_oom"),
        (137, ("Connection reset by peer",), "failed", "killed"),
        (139, (), "failed", "native_crash"),
        (125, (), "timeout", "run_limit"),
        (1, OOM, "failed", "cuda_oom"),
        (1, ("RuntimeError: The server socket has failed to listen: EADDRINUSE, Address already in use",), "failed", "port_in_use"),
        (1, (), "failed", "exit_code"),
    ],
)
def test_outcome_and_cause(code: int, output: tuple[str, ...], how: str, why: str) -> None:
    found = ended(code, *output)
    assert (found.outcome.value, found.cause.value, found.exit_code) == (how, why, code)
    assert found.detail and found.action and found.log_tail


@pytest.mark.parametrize(
    ("code", "output", "id", "fault"),
    [
        (1, OOM, "cuda_oom", "configuration"),
        (1, ("OSError: [Errno 5] Input/output error",), "io_error", "infrastructure"),
        (124, (), "run_limit", "unknown"),
        (1, (), "exit_code", "unknown"),
    ],
)
def test_the_entry_and_whose_fault_it_is_are_kept(code: int, output: tuple[str, ...], id: str, fault: str) -> None:
    found = ended(code, *output)
    assert (found.signature, found.fault.value) == (id, fault)
    assert (ended(0, status="success").signature, ended(0, status="success").fault.value) == ("", "unknown")


def test_125_is_a_time_out_only_where_steps_were_left() -> None:
    whole = Segment(tuple(train_lines(sweep_run(), Written(), FIRST_START)))
    assert ended(125).detail == "it was ended at step 100, the last being 300 (exit code 125), after 30m 00s"
    assert ended(125, segment=whole).cause.value == "exit_code" and ended(125, segment=None).cause.value == "exit_code"


def test_advice_names_nothing_that_such_a_run_never_had() -> None:
    absent = ("command.sh", "limits.", "place.", "`env`", "in the plan", "`seatrial ", "stacks/", "for Seatrial to choose")
    reached = [entry for entry in signatures() if entry.patterns or entry.exit_codes or entry.id in ("exception", "exit_code", "unknown")]
    told = {entry.id: action_for(Diagnosis(cause=entry.cause, detail="", action=entry.action, signature=entry.id)) for entry in reached}
    assert {id: action for id, action in told.items() if not action or any(word in action for word in absent)} == {}
    assert set(INSTEAD) <= set(told)
    assert ended(1, "ValueError: no such key").action == "Read the traceback in launcher.log; the command stands at its head, under CMD."


def test_a_good_end() -> None:
    found = ended(0, status="success")
    assert (found.outcome.value, found.cause.value, found.detail, found.log_tail) == ("ok", "none", "", ())
    assert (found.run, found.attempt, found.port, found.duration_s) == ("g_r1", 2, 29650, 1800.0)
    assert found.started_t == FIRST_START.timestamp() and found.ended_t == found.started_t + 1800


def test_ended_while_train_log_was_waited_for() -> None:
    assert ended(143, segment=None).cause.value == "start_limit"
    assert ended(143).cause.value == "exit_code"


def test_without_a_row_it_was_interrupted() -> None:
    attempt = OriginalAttempt(segment=SEGMENT, block=Block(meta=START))
    found = outcome_of(attempt, 1, spec_of(attempt, "g", 1, 20), span_of(attempt, ZONE_S))
    assert (found.outcome.value, found.exit_code) == ("interrupted", None)
    # 30 s of start-up and 100 steps of half a second.
    assert found.duration_s == pytest.approx(80.0)


def test_a_start_that_nobody_wrote_down_is_not_made_up() -> None:
    found = ended(0, status="success", meta={})
    assert found.started_t == 0.0 and found.ended_t == FIRST_START.timestamp() + 80
    assert ended(1, segment=None, meta={}).ended_t == 0.0


def test_secrets_do_not_travel() -> None:
    token = "hf_abcdefghijklmnopqrstuvwxyz012345"
    found = ended(1, f"ValueError: no access with {token}")
    assert token not in repr(found)
