"""Faults of the harness itself: stopped, killed, started twice."""

from __future__ import annotations

from tests.faults.rows.row import HARNESS, TORCH, Part, Row

PART = Part(
    "The harness is stopped",
    (
        Row(
            "Ctrl-C, TERM or HUP, once",
            "halt.json, TERM, KILL, each with its time; tables and report of what there is.",
            "Exit code 130; the same command resumes.",
            f"{HARNESS}::test_interrupted_once_it_stops_softly_writes_results_and_resumes",
        ),
        Row(
            "The same with a torch job",
            "Both ranks end at the same step.",
            "The same.",
            f"{TORCH}::test_an_interrupt_ends_both_ranks_at_the_same_step",
        ),
        Row("Ctrl-C twice", "KILL at once.", "Exit code 130, nothing left.", f"{HARNESS}::test_interrupted_twice_it_is_over_at_once"),
        Row("Ctrl-C during preflight", "No run is started.", "Exit code 130.", f"{HARNESS}::test_interrupted_during_preflight"),
        Row(
            "Ctrl-C or TERM during the report",
            "Each file is whole or as it was.",
            "Exit code 130; `seatrial report` makes it again.",
            f"{HARNESS}::test_interrupted_during_the_report",
        ),
        Row(
            "kill -9, at 20 random moments",
            "The agent sees its pipe close and kills everything within 10 s; the next start closes the attempt.",
            "After resuming: the same manifest as an undisturbed campaign's, times apart.",
            f"{HARNESS}::test_killed_at_20_moments_and_resumed_it_ends_as_if_undisturbed",
        ),
        Row(
            "The agent is killed -9",
            "The harness finds the processes by their mark and kills them.",
            "`failed`, cause `agent_lost`.",
            f"{HARNESS}::test_the_agent_killed_is_seen_and_its_work_is_done",
        ),
        Row(
            "Either of them with a torch job",
            "The same.",
            "No rank lives after 10 s.",
            f"{TORCH}::test_harness_or_agent_killed_leaves_no_rank",
        ),
        Row(
            "The agent is sent TERM",
            "It ends the run and says why.",
            "`failed`, cause `agent_lost`.",
            f"{HARNESS}::test_the_agent_sent_term_ends_the_run_and_is_named",
        ),
        Row(
            "The agent is suspended",
            "It is let go on when the run is to end.",
            "`timeout` at its limit, as without.",
            f"{HARNESS}::test_a_suspended_agent_is_let_go_on_to_end_the_run",
        ),
        Row(
            "Harness and agent are killed together",
            "The kernel tells the ranks; the next start ends what is left.",
            "`interrupted`, cause `harness_lost`, then run again.",
            f"{HARNESS}::test_harness_and_agent_killed_together",
        ),
        Row(
            "A second harness on the same folder",
            "A lock that names holder and host; across hosts, its beat.",
            "Exit code 1: who holds it, and `seatrial stop`.",
            f"{HARNESS}::test_two_harnesses_on_one_folder",
        ),
        Row(
            "The plan changed between two starts",
            "Changed runs have another hash and are run; nothing old is thrown away.",
            "Old attempts stand in the manifest as not current.",
            f"{HARNESS}::test_the_plan_changed_between_runs",
        ),
    ),
)
