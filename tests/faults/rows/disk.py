"""Faults of the disk: full, read-only, gone for a while."""

from __future__ import annotations

from tests.faults.rows.row import DISK, WRITERS, Part, Row

PART = Part(
    "The disk fails",
    (
        Row(
            "It fills up under a run and is freed again",
            "Events, logs and tables go to the temporary folder and are merged back.",
            "`ok`; a caution says what was kept elsewhere.",
            f"{DISK}::test_the_disk_fills_up_under_a_run_and_nothing_of_it_is_lost",
        ),
        Row(
            "It stays full",
            "The run under way ends by itself; the next cannot be prepared.",
            "Exit code 1, one sentence; resumes when there is room.",
            f"{DISK}::test_a_disk_that_stays_full_ends_the_campaign_with_one_sentence_and_it_resumes",
        ),
        Row(
            "The folder turns read-only",
            "The same.",
            "The same.",
            f"{DISK}::test_a_folder_turned_read_only",
        ),
        Row(
            "No space, in each writer",
            "Tried again, kept elsewhere, merged back in order.",
            "A caution.",
            f"{WRITERS}::test_a_full_disk_in_each_writer",
        ),
        Row(
            "Input/output errors, in each writer",
            "The same.",
            "The same.",
            f"{WRITERS}::test_an_input_output_error_in_each_writer",
        ),
        Row(
            "Input/output errors on the manifest",
            "Tried again, then kept elsewhere; it can be made anew from the attempts.",
            "The campaign goes on; nothing is lost.",
            f"{DISK}::test_an_input_output_error_on_the_manifest",
        ),
    ),
)
