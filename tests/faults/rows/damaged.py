"""Faults of what lies on the disk: torn, rewritten, removed."""

from __future__ import annotations

from tests.faults.rows.row import FILES, MEASURING, Part, Row

PART = Part(
    "What lies on the disk is damaged",
    (
        Row(
            "Any file of a campaign missing, empty, torn, rubbish, doubled, a pipe, a folder, a loop",
            "The rest is reported; nothing is made of the rubbish.",
            "A caution that names the file.",
            f"{FILES}::test_a_damaged_file_costs_only_itself_and_is_named",
        ),
        Row(
            "Clock jumps, duplicate steps, NaN, other ranks and runs in the events",
            "Such lines are left out.",
            "A caution; no figure of theirs.",
            f"{FILES}::test_lies_of_the_events_are_seen_and_make_no_figure",
        ),
        Row(
            "An outcome of another run",
            "It is not this one's.",
            "A caution; the run is to be run again.",
            f"{FILES}::test_an_outcome_of_another_run_is_not_this_one_s",
        ),
        Row(
            "A line of 200 MB",
            "It is cut.",
            "The figures stand.",
            f"{FILES}::test_a_line_of_two_hundred_megabytes",
        ),
        Row(
            "A log of 10 GB",
            "Its two ends are read.",
            "A caution.",
            f"{FILES}::test_a_log_of_ten_gigabytes_is_read_at_both_ends",
        ),
        Row(
            "No plan can be read any more",
            "Nothing is guessed.",
            "Exit code 1, what to do.",
            f"{FILES}::test_without_any_plan_it_is_said_what_to_do",
        ),
        Row(
            "Measuring of many runs broken off",
            "Its workers end with it, kill -9 included.",
            "Exit code 130.",
            f"{MEASURING}::test_no_worker_stays_when_measuring_is_broken_off",
        ),
    ),
)
