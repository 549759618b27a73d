"""Faults of processes that stand still and come back."""

from __future__ import annotations

from tests.faults.rows.row import HARNESS, TORCH, Part, Row

PART = Part(
    "Processes are suspended",
    (
        Row(
            "A rank is suspended for good",
            "The stall limit; its state tells it from a hang, and from the ranks that wait for it.",
            "`stalled`, cause `suspended`, that rank.",
            f"{HARNESS}::test_a_rank_suspended_for_good_is_named_and_not_the_other",
        ),
        Row("The same in a torch job", "The same.", "The same.", f"{TORCH}::test_a_suspended_rank_is_named_as_such"),
        Row(
            "A rank is suspended for a while",
            "It goes on where it was.",
            "`ok`; one long step.",
            f"{HARNESS}::test_a_rank_suspended_for_a_while_goes_on",
        ),
        Row(
            "The harness is suspended",
            "The run goes on under its agent; the watch starts its clocks anew.",
            "`ok`.",
            f"{HARNESS}::test_a_suspended_harness_is_no_stall",
        ),
        Row(
            "The clock is set back",
            "Durations, stalls and steps are on the monotonic clock.",
            "`ok`, durations right.",
            f"{HARNESS}::test_the_clock_set_back_while_it_runs",
        ),
    ),
)
