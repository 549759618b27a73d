"""Faults of a run: what a rank, a launcher or the machine does to it."""

from __future__ import annotations

from tests.faults.rows.row import LEFTOVERS, MEMORY, RUNS, STAGE1, TORCH, Part, Row

PART = Part(
    "A run goes wrong",
    (
        Row(
            "A rank raises an exception",
            "The other ranks get five seconds, then TERM, then KILL; the sweep goes on with the next run.",
            "`failed`, cause `exception`, its last line, the end of the log.",
            f"{RUNS}::test_a_crash_names_its_exception_and_the_others_run",
        ),
        Row(
            "Out of memory (GPU or host), port in use, killed, segmentation fault",
            "The signature is found in the log or the exit code.",
            "`failed` with its own cause, and what to do.",
            f"{RUNS}::test_every_ordered_crash_gets_its_cause",
        ),
        Row(
            "A rank is killed (a real torchrun job)",
            "torchrun ends the others; what is left is ended.",
            "`failed`, cause `killed`.",
            f"{TORCH}::test_a_rank_killed_by_the_kernel_or_anybody",
        ),
        Row(
            "torchrun itself is killed",
            "Its ranks, in sessions of their own, become the agent's children and are ended.",
            "`failed`, cause `killed`; no rank lives on.",
            f"{TORCH}::test_torchrun_killed",
        ),
        Row(
            "A sweep of DeepSpeed runs is killed in the middle",
            "Every rank ends; the same command runs only what is missing.",
            "The killed run gets a second attempt; those that were over are not run again.",
            f"{STAGE1}::test_a_deepspeed_sweep_killed_in_the_middle_goes_on",
        ),
        Row(
            "Exit code 0 without a step",
            "Success needs a `stop` event of every rank and at least one step.",
            "`failed`, cause `no_steps`.",
            f"{RUNS}::test_exit_code_0_without_a_step_is_no_success",
        ),
        Row(
            "A rank hangs in Python",
            "No step for `limits.stall`: stacks of every rank, halt.json, TERM, KILL.",
            "`stalled` with rank, phase and line; `attempt-N/stacks/`.",
            f"{RUNS}::test_a_hang_in_python_ends_as_stalled_with_rank_phase_and_frame",
        ),
        Row(
            "A rank hangs in C and keeps the GIL",
            "Its heartbeat stops too; the stack is written by a handler in C.",
            "`stalled` with rank and line; of its phase only what it told last.",
            f"{RUNS}::test_a_hang_in_c_that_keeps_the_gil_is_seen_and_named",
        ),
        Row(
            "A rank of a torch job hangs, the other waits in all_reduce",
            "The rank with fewer steps, or in the other phase, is the one.",
            "`stalled`, the hanging rank and its line, not those of the one that waits.",
            f"{TORCH}::test_a_rank_that_hangs_is_named_and_not_the_one_that_waits_for_it",
        ),
        Row(
            "A script without the probe, whose lines are read, hangs",
            "Its lines stop; stacks are taken from outside by py-spy.",
            "`stalled` and the line.",
            f"{RUNS}::test_a_foreign_script_that_hangs_is_seen_by_its_lines_and_its_stack_is_taken_from_outside",
        ),
        Row(
            "The same where py-spy is not to be had",
            "ABRT, at which Python's own fault handler writes a trace into launcher.log.",
            "The same.",
            f"{RUNS}::test_where_py_spy_is_not_to_be_had_the_last_way_still_names_the_line",
        ),
        Row(
            "The same under torchrun",
            "The same, for every rank.",
            "The same.",
            f"{TORCH}::test_a_script_without_the_probe_that_hangs",
        ),
        Row(
            "No output, no first step",
            "`limits.start_s`: stacks, then the end.",
            "`timeout`, cause `start_limit`.",
            f"{RUNS}::test_no_output_and_no_step_ends_at_the_start_limit_with_stacks",
        ),
        Row(
            "It takes longer than allowed",
            "`limits.run_s`: all ranks end at the same step by themselves.",
            "`timeout`, cause `run_limit`; the steps so far are on disk.",
            f"{RUNS}::test_the_run_limit_ends_a_run_softly",
        ),
        Row(
            "A slow start",
            "Nothing, within `limits.start_s`.",
            "`ok`; the start-up is a figure of its own.",
            f"{RUNS}::test_a_slow_start_within_its_limit_is_no_fault",
        ),
        Row(
            "A long checkpoint or evaluation in a named pause",
            "The stall watch is quiet while its heartbeat comes.",
            "`ok`.",
            f"{RUNS}::test_a_long_pause_is_no_stall",
        ),
        Row(
            "A grandchild that ignores TERM and keeps the output open",
            "As subreaper the agent is its parent: KILL.",
            "`ok`, with the number of processes that had to be killed.",
            f"{RUNS}::test_an_orphan_that_ignores_term_is_ended",
        ),
        Row(
            "Data workers, double forks, own sessions, chains of forks, stopped processes",
            "They are found as descendants, or by their mark, and killed; nothing lives after 10 s.",
            "Nothing.",
            f"{LEFTOVERS}::test_nothing_stays",
        ),
        Row(
            "Shared memory of a run that was killed",
            "Removed, by the agent or, when that was killed too, by the harness.",
            "Nothing.",
            f"{MEMORY}::test_segments_of_a_killed_run_are_removed_and_no_others",
        ),
        Row(
            "Shared memory left in /dev/shm",
            "What is new, named as torch, NCCL and Python name theirs, and in no process's use is removed; beside another "
            "campaign only what names a maker that is gone.",
            "Nothing.",
            f"{RUNS}::test_shared_memory_that_a_run_leaves_is_given_back",
        ),
        Row(
            "Endless output",
            "`limits.disk_gib` for the logs and events of a run.",
            "`failed`, cause `disk_limit`.",
            f"{RUNS}::test_endless_output_is_stopped_at_the_disk_limit",
        ),
        Row(
            "A memory leak",
            "`limits.memory_gib` for the whole process tree.",
            "`failed`, cause `memory_limit`.",
            f"{RUNS}::test_a_leak_is_stopped_at_the_memory_limit",
        ),
        Row(
            "Bytes that are no text in the output",
            "They are passed over.",
            "`ok`, with a caution.",
            f"{RUNS}::test_rubbish_in_the_output_harms_nothing",
        ),
        Row(
            "The loss becomes NaN",
            "The run goes on; figures stand.",
            "A caution with the step.",
            f"{RUNS}::test_a_loss_that_is_nan_is_said",
        ),
        Row(
            "Events with lies: steps going back, another run, another attempt",
            "Such lines are left out.",
            "A caution that names the file.",
            f"{RUNS}::test_events_that_lie_do_not_change_the_figures",
        ),
        Row(
            "A port is taken",
            "The port Seatrial gives is bound and held, not probed; a script's own is named.",
            "`failed`, cause `port_in_use`.",
            f"{RUNS}::test_a_port_that_is_taken_is_named",
        ),
        Row(
            "A stale halt file",
            "halt.json lies in the attempt's folder and names the attempt: any other is ignored.",
            "Nothing.",
            f"{RUNS}::test_a_stale_halt_file_stops_nobody",
        ),
    ),
)
