"""Faults of what people and their programs hand in."""

from __future__ import annotations

from tests.faults.rows.row import INPUT, Part, Row

PART = Part(
    "Bad input",
    (
        Row(
            "YAML bombs, cycles in extends, names with slashes, control characters, not UTF-8 …",
            "Refused before anything is made.",
            "Exit code 1, file, line, key.",
            f"{INPUT}::test_a_bad_plan_is_one_sentence",
        ),
        Row(
            "A gigabyte, a device, a folder, a loop as plan",
            "Refused without reading it.",
            "Exit code 1.",
            f"{INPUT}::test_what_is_no_plan_file_is_told_at_once",
        ),
        Row(
            "A huge matrix",
            "Over 10,000 runs refused, over 1,000 only with `--yes`.",
            "Exit code 1, the axes and their sizes.",
            f"{INPUT}::test_a_huge_matrix_is_refused_at_once_and_a_large_one_needs_yes",
        ),
        Row(
            "An output that is a file, under a file, closed, too long",
            "Refused before anything is made.",
            "Exit code 1.",
            f"{INPUT}::test_an_output_that_cannot_be_written_to",
        ),
        Row(
            "No HOME, no PATH, no temporary folder, odd locale, odd time zone",
            "It runs.",
            "Exit code 0.",
            f"{INPUT}::test_an_odd_environment_keeps_nobody_from_running",
        ),
        Row(
            "No git, or one that hangs or prints rubbish",
            "It counts as no repository.",
            "Exit code 0.",
            f"{INPUT}::test_a_git_that_does_not_work_is_no_git",
        ),
        Row(
            "Closed streams, /dev/full, few file handles",
            "The campaign goes on.",
            "Exit code 0.",
            f"{INPUT}::test_streams_and_limits_that_break_end_no_campaign",
        ),
        Row(
            "The package may not be written to",
            "It runs.",
            "Exit code 0.",
            f"{INPUT}::test_a_package_that_nobody_may_write_to",
        ),
        Row(
            "INT, TERM or HUP during any other verb",
            "Whole files, no process left.",
            "Exit code 130.",
            f"{INPUT}::test_a_signal_outside_of_a_campaign_is_ctrl_c",
        ),
    ),
)
