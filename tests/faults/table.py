"""The fault table: docs/reliability.md is made from it by `make docs`, and a test checks that every row's test exists.

Out: PARTS, in the order of the page.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One fault. `test` is file and function under tests/faults, or under tests/cluster where it begins so."""

    fault: str
    happens: str
    seen: str
    test: str


@dataclass(frozen=True)
class Part:
    """Faults of one kind."""

    title: str
    rows: tuple[Row, ...]


RUNS, TORCH, HARNESS, DISK = "test_fault_runs.py", "test_fault_torch.py", "test_fault_harness.py", "test_fault_disk.py"
FILES, INPUT, MEASURING = "test_fault_files.py", "test_fault_input.py", "test_fault_measuring.py"
STAGE1 = "test_fault_stage1.py"
SPARSE_LM = "test_fault_sparse_lm.py"
TRAINING = "test_fault_training.py"
HOSTS, CHECKS = "cluster/test_host_faults.py", "cluster/test_host_checks.py"
LAUNCHERS = "cluster/test_launcher_faults.py"
CAMPAIGNS, KILLED = "cluster/test_campaigns.py", "cluster/test_killed_agents.py"
FLOOD, SWEEPS = "test_fault_unauthenticated_flood.py", "end_to_end/test_dummy_campaign.py"
LEFTOVERS, MEMORY, WRITERS = "test_fault_agent_leftovers.py", "test_fault_agent_memory.py", "test_fault_writers.py"


RUN_FAULTS = Part(
    "A run goes wrong",
    (
        Row(
            "A training reports collapsed gates or gradients of zero (`probe.progress`)",
            "`limits.health: end`: stacks, halt.json, TERM, KILL; `warn`: a line in alarms.jsonl, and the run goes on.",
            "`failed`, cause `gate_collapse` or `zero_grad` with the figures; or `ok` with the alarm.",
            f"{RUNS}::test_a_training_whose_own_figures_are_unhealthy_is_ended_or_warned_of",
        ),
        Row(
            "A training falls to a tenth of its usual tokens a second for a minute",
            "The same; samples come once a second, so that a busy neighbour of a few seconds ends nothing.",
            "`failed`, cause `throughput_flatline`, with the usual speed.",
            "unit/observe/test_watchdog.py::test_a_throughput_that_has_fallen_for_a_minute_is_an_alarm_of_its_own",
        ),
        Row(
            "A rank raises an exception",
            "The other ranks get five seconds, then TERM, then KILL; the sweep goes on with the next run.",
            "`failed`, cause `exception`, its last line, the end of the log.",
            f"{SWEEPS}::test_a_crash_is_data_and_the_sweep_goes_on",
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
            "A shell's pipeline hides the exit code of a program that failed (`… | tee log`)",
            "Preflight warns. A launcher's failure report, or a traceback before the steps asked for, counts before exit code 0.",
            "`failed` with the first cause; detail begins with `exit code 0, but`.",
            f"{RUNS}::test_a_pipeline_that_hides_a_failure_does_not_make_it_a_success",
        ),
        Row(
            "The same after the last step asked for, or with fewer steps than the other repeats",
            "The run stays in the tables; no criterion passes on it.",
            "`ok` with a caution (`may_have_failed`), INCONCLUSIVE.",
            f"{RUNS}::test_a_traceback_after_the_last_step_leaves_the_verdict_open",
        ),
        Row(
            "Run after run fails for a cause that no setting explains (import error, missing file, port)",
            "After three identical failures with no success before, the campaign stops; `--keep-going` runs the others anyway.",
            "INCONCLUSIVE, exit code 3; the others stay pending.",
            f"{RUNS}::test_alike_failures_that_no_setting_explains_end_the_campaign",
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
            "`stalled` with rank and line; its phase as last reported.",
            f"{RUNS}::test_a_hang_in_c_that_keeps_the_gil_is_seen_and_named",
        ),
        Row(
            "A rank of a torch job hangs, the other waits in all_reduce",
            "The rank with fewer steps, or in the other phase, is the culprit.",
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
            "A script that prints one line and then nothing",
            "Ten minutes, or 20 times its longest silence before; up to three times that while its processes are busy. `--quiet-limit`, "
            "`limits.stall.quiet_s`: exactly that.",
            "`stalled` and the line; the advice names the option or the key.",
            f"{RUNS}::test_a_swept_script_that_prints_one_line_and_then_nothing_is_ended_and_the_option_named",
        ),
        Row(
            "The same without py-spy",
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
            "`limits.start_s`: stacks, then the run is ended.",
            "`timeout`, cause `start_limit`.",
            f"{RUNS}::test_no_output_and_no_step_ends_at_the_start_limit_with_stacks",
        ),
        Row(
            "The run takes too long",
            "`limits.run_s`: all ranks end at the same step by themselves.",
            "`timeout`, cause `run_limit`; the steps so far are on disk.",
            f"{RUNS}::test_the_run_limit_ends_a_run_softly",
        ),
        Row(
            "A slow start",
            "Nothing, within `limits.start_s`.",
            "`ok`; start-up is reported separately.",
            f"{RUNS}::test_a_slow_start_within_its_limit_is_no_fault",
        ),
        Row(
            "A long checkpoint or evaluation in a named pause",
            "No stall is reported while heartbeats come.",
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
            "They are found as descendants or by `SEATRIAL_RUN_DIR`, and killed within 10 s.",
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
            f"{RUNS}::test_shared_memory_left_by_a_run_is_removed",
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
            "Binary output",
            "The bytes are skipped.",
            "`ok`, with a caution.",
            f"{RUNS}::test_binary_output_is_skipped",
        ),
        Row(
            "The loss becomes NaN",
            "The run goes on; its figures count.",
            "A caution with the step.",
            f"{RUNS}::test_a_nan_loss_is_reported",
        ),
        Row(
            "Wrong events: steps going back, another run, another attempt",
            "Such lines are skipped.",
            "A caution that names the file.",
            f"{RUNS}::test_events_that_lie_do_not_change_the_figures",
        ),
        Row(
            "A port is taken",
            "Seatrial's port is reserved, not probed; a script's own is named.",
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


SUSPENSION_FAULTS = Part(
    "Processes are suspended",
    (
        Row(
            "A rank is suspended",
            "The stall limit; its process state distinguishes it from a hang and from waiting ranks.",
            "`stalled`, cause `suspended`, that rank.",
            f"{HARNESS}::test_a_rank_suspended_for_good_is_named_and_not_the_other",
        ),
        Row("The same in a torch job", "The same.", "The same.", f"{TORCH}::test_a_suspended_rank_is_named_as_such"),
        Row(
            "A rank is suspended and resumed",
            "It continues.",
            "`ok`; one long step.",
            f"{HARNESS}::test_a_rank_suspended_for_a_while_goes_on",
        ),
        Row(
            "The harness is suspended",
            "The run goes on under its agent; the harness restarts its timers.",
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


HARNESS_FAULTS = Part(
    "The harness is stopped",
    (
        Row(
            "Ctrl-C, TERM or HUP, once",
            "halt.json, TERM, KILL, each with its timeout; tables and report are written.",
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
            "Each file is complete or unchanged.",
            "Exit code 130; `seatrial report` writes it again.",
            f"{HARNESS}::test_interrupted_during_the_report",
        ),
        Row(
            "kill -9, at 20 random moments",
            "The agent sees its pipe close and kills everything within 10 s; the next start closes the attempt.",
            "After resuming: the same manifest as an undisturbed campaign's, except for times.",
            f"{HARNESS}::test_killed_at_20_moments_and_resumed_it_ends_as_if_undisturbed",
        ),
        Row(
            "A training of one group and one repeat is killed -9, its newest checkpoint truncated",
            "The next start goes on from the last complete checkpoint, and names those it skips.",
            "The losses of an undisturbed training; lost steps and downtime reported.",
            f"{TRAINING}::test_a_killed_training_goes_on_from_its_last_whole_checkpoint",
        ),
        Row(
            "The agent is killed -9",
            "The harness finds the processes by `SEATRIAL_RUN_DIR` and kills them.",
            "`failed`, cause `agent_lost`.",
            f"{HARNESS}::test_a_killed_agent_is_noticed_and_its_processes_are_killed",
        ),
        Row(
            "Either of them with a torch job",
            "The same.",
            "No rank lives after 10 s.",
            f"{TORCH}::test_harness_or_agent_killed_leaves_no_rank",
        ),
        Row(
            "The agent is sent TERM",
            "It ends the run and reports why.",
            "`failed`, cause `agent_lost`.",
            f"{HARNESS}::test_the_agent_sent_term_ends_the_run_and_is_named",
        ),
        Row(
            "The agent is suspended",
            "It is resumed (SIGCONT) when the run is to end.",
            "`timeout` at its limit, as without.",
            f"{HARNESS}::test_a_suspended_agent_is_resumed_to_end_the_run",
        ),
        Row(
            "Harness and agent are killed together",
            "Parent-death signals end the ranks; the next start kills the rest.",
            "`interrupted`, cause `harness_lost`, then run again.",
            f"{HARNESS}::test_harness_and_agent_killed_together",
        ),
        Row(
            "A second harness on the same folder",
            "A lock that names holder and host; across hosts, its heartbeat.",
            "Exit code 1: who holds it, and `seatrial stop`.",
            f"{SWEEPS}::test_stop_from_another_terminal",
        ),
        Row(
            "The plan changed between two starts",
            "Changed runs have another hash and are run; old attempts are kept.",
            "Old attempts are in the manifest, not current.",
            f"{SWEEPS}::test_finished_runs_are_kept_more_repeats_extend_and_changed_settings_run_again",
        ),
    ),
)


DISK_FAULTS = Part(
    "The disk fails",
    (
        Row(
            "It fills up under a run and is freed again",
            "Events, logs and tables go to the temporary folder and are merged back.",
            "`ok`; a caution names what was written to the fallback folder.",
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
            "Retried, written to the fallback folder, merged back in order.",
            "A caution.",
            f"{WRITERS}::test_a_full_disk_in_each_writer",
        ),
        Row(
            "After a full disk the folder is removed and the command repeated",
            "What the old campaign wrote to the fallback folder carries its identity and is left alone.",
            "A caution names it.",
            "unit/core/test_durable_writes.py::test_nothing_of_a_removed_campaign_gets_into_the_next_one_under_its_name",
        ),
        Row(
            "Input/output errors, in each writer",
            "The same.",
            "The same.",
            f"{WRITERS}::test_an_input_output_error_in_each_writer",
        ),
        Row(
            "Input/output errors on the manifest",
            "Retried, then written to the fallback folder; it can be recomputed from the attempts.",
            "The campaign goes on; nothing is lost.",
            f"{DISK}::test_an_input_output_error_on_the_manifest",
        ),
    ),
)


DAMAGED_FILES = Part(
    "Files are damaged",
    (
        Row(
            "Any file of a campaign missing, empty, truncated, garbage, duplicated, a pipe, a folder, a loop",
            "The rest is reported; garbage is ignored.",
            "A caution that names the file.",
            f"{FILES}::test_a_damaged_file_costs_only_itself_and_is_named",
        ),
        Row(
            "Clock jumps, duplicate steps, NaN, other ranks and runs in the events",
            "Such lines are skipped.",
            "A caution; they count in no figure.",
            f"{FILES}::test_lies_of_the_events_are_seen_and_make_no_figure",
        ),
        Row(
            "An outcome of another run",
            "It is ignored.",
            "A caution; the run is pending.",
            f"{FILES}::test_an_outcome_of_another_run_is_not_this_one_s",
        ),
        Row(
            "A line of 200 MB",
            "It is cut.",
            "The figures are unchanged.",
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
            f"{FILES}::test_without_a_readable_plan_the_error_says_what_to_do",
        ),
        Row(
            "Measuring of many runs is interrupted",
            "Its workers end with it, kill -9 included.",
            "Exit code 130.",
            f"{MEASURING}::test_no_worker_stays_when_measuring_is_broken_off",
        ),
    ),
)


BAD_INPUT = Part(
    "Bad input",
    (
        Row(
            "YAML bombs, cycles in extends, names with slashes, control characters, not UTF-8 …",
            "Refused before anything is created.",
            "Exit code 1, file, line, key.",
            f"{INPUT}::test_a_bad_plan_is_one_sentence",
        ),
        Row(
            "A gigabyte, a device, a folder, a loop as plan",
            "Refused without reading it.",
            "Exit code 1.",
            f"{INPUT}::test_a_file_that_is_no_plan_is_refused_at_once",
        ),
        Row(
            "A huge matrix",
            "Over 10,000 runs refused, over 1,000 only with `--yes`.",
            "Exit code 1, the axes and their sizes.",
            f"{INPUT}::test_a_huge_matrix_is_refused_at_once_and_a_large_one_needs_yes",
        ),
        Row(
            "An output that is a file, under a file, closed, too long",
            "Refused before anything is created.",
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
            "No git, or one that hangs or prints garbage",
            "It counts as no repository.",
            "Exit code 0.",
            f"{INPUT}::test_a_git_that_does_not_work_is_no_git",
        ),
        Row(
            "Closed streams, /dev/full, a low file descriptor limit",
            "The campaign continues.",
            "Exit code 0.",
            f"{INPUT}::test_streams_and_limits_that_break_end_no_campaign",
        ),
        Row(
            "The package is read-only",
            "It runs.",
            "Exit code 0.",
            f"{INPUT}::test_a_package_that_nobody_may_write_to",
        ),
        Row(
            "INT, TERM or HUP during any other verb",
            "Complete files, no process left.",
            "Exit code 130.",
            f"{INPUT}::test_a_signal_outside_of_a_campaign_is_ctrl_c",
        ),
    ),
)


HOST_FAULTS = Part(
    "Hosts go wrong (make test-cluster: hosts of namespaces, each with its own sshd)",
    (
        Row(
            "A link is cut in the middle of a step",
            "No heartbeats: after 20 s the harness counts the host as lost and stops the others, and the host's agent kills everything it \
started.",
            "`failed`, cause `host_lost`, the host named; exit code 3. Nothing is left on any host.",
            f"{HOSTS}::test_a_link_that_is_cut_in_the_middle_of_a_step",
        ),
        Row(
            "A host goes down",
            "Its connection closes; the others get five seconds and are stopped.",
            "The same, at once.",
            f"{HOSTS}::test_a_host_that_goes_down",
        ),
        Row(
            "The harness is killed",
            "Every agent's connection closes, and it kills all it started.",
            "No rank on any host; the same command resumes.",
            f"{KILLED}::test_a_harness_that_is_killed_leaves_nothing_on_any_host",
        ),
        Row(
            "Programs without the token connect to the harness's port, 500 a second",
            "Each is closed after a second, the oldest of the busiest address first.",
            "Nothing: every agent is let in within 5 s.",
            f"{FLOOD}::test_an_unauthenticated_flood_keeps_no_agent_out",
        ),
        Row(
            "The head loses its power",
            "No heartbeats: after 20 s every agent kills all it started.",
            "No rank on any host after 30 s.",
            f"{HOSTS}::test_the_head_s_power_lost_leaves_no_rank_on_any_host",
        ),
        Row(
            "sshd refuses",
            "Every host is checked before the campaign.",
            "Refused, exit code 2, with ssh's error and the host; nothing was started.",
            f"{CHECKS}::test_ssh_that_is_refused",
        ),
        Row(
            "One host's link is slow",
            "The doctor measures every link.",
            "A warning with the host and its figure.",
            f"{CHECKS}::test_a_slow_link_is_named_by_the_doctor",
        ),
        Row(
            "A network interface that is not there",
            "The plan's names are looked up on every host, in NCCL's syntax.",
            "Refused, with the interfaces that exist.",
            f"{CHECKS}::test_an_interface_that_is_not_there",
        ),
        Row(
            "A port that is blocked",
            "Every host tries to reach the others at the port of the rendezvous, both ways.",
            "Refused, with hosts and port.",
            f"{CHECKS}::test_a_port_that_is_blocked",
        ),
        Row(
            "A host whose name is loopback on itself",
            "All names are resolved on all hosts.",
            "Reported, with the line of /etc/hosts to fix.",
            f"{CHECKS}::test_a_name_that_is_loopback_on_its_own_host",
        ),
        Row(
            "A disk is full on one host",
            "The rank there fails; logs of all hosts are read.",
            "`failed`, cause `disk_full`, the host named.",
            f"{HOSTS}::test_a_disk_that_is_full_on_one_host",
        ),
        Row(
            "A clock an hour ahead",
            "Offsets are measured by the heartbeats, and all times are converted to one clock.",
            "The same figures, and a caution with host and offset.",
            f"{HOSTS}::test_a_clock_an_hour_ahead_changes_no_figure",
        ),
        Row(
            "pdsh is missing",
            "`via: auto` takes ssh.",
            "With `via: pdsh` refused, with how to install it.",
            f"{CHECKS}::test_pdsh_that_is_missing",
        ),
        Row(
            "pdsh is killed in the middle of a run",
            "Nothing: agents have their own connections.",
            "`ok`.",
            f"{LAUNCHERS}::test_pdsh_killed_by_a_signal_costs_the_run_nothing",
        ),
        Row(
            "pdsh is killed below a deepspeed runner of the user's, which then exits 0",
            "The ranks the runner started must match those its launchers report as ended well.",
            "`failed`, despite exit code 0.",
            f"{LAUNCHERS}::test_pdsh_killed_below_a_deepspeed_runner_that_then_exits_0",
        ),
        Row(
            "Versions differ",
            "Interpreter, packages and Seatrial's own code are compared.",
            "Refused, with both versions and the host that differs.",
            f"{CHECKS}::test_versions_that_are_unlike",
        ),
        Row(
            "The output folder is not shared",
            "Files are written and read in both directions.",
            "Refused, with the host that sees another folder.",
            f"{CHECKS}::test_a_folder_that_is_not_shared",
        ),
        Row(
            "A rank on one host fails",
            "Exit codes of all hosts are kept; the others get five seconds and are stopped.",
            "The right exit code and the host.",
            f"{LAUNCHERS}::test_one_of_two_exit_codes_is_the_true_one",
        ),
        Row(
            "The hostfile is missing or empty",
            "It is read before anything else.",
            "Refused: never a run on this machine alone.",
            f"{CHECKS}::test_a_missing_or_empty_hostfile_is_never_a_local_run",
        ),
        Row(
            "Ctrl-C on the head",
            "halt.json, then TERM, on every host.",
            "Exit code 130; the same command resumes.",
            f"{CAMPAIGNS}::test_an_interrupted_campaign_goes_on_where_it_was",
        ),
    ),
)


WATCHDOG_FAULTS = Part(
    "A sparse-LM training without the harness, with its watchdog",
    (
        Row(
            "A rank hangs in backward, in C++ (torch)",
            "No step for 20 times the measured step time, at least NSA_WATCH_HEARTBEAT_STALL_S: stacks of all ranks, `.HALT`, TERM, KILL.",
            "`.anomaly_type` `heartbeat_stall`, `stacks/rank1.txt` with the line (by hand: `kill -USR1`); the watchdog's exit code 2.",
            f"{SPARSE_LM}::test_a_rank_that_hangs_in_backward_is_stopped_from_outside",
        ),
        Row(
            "A rank dies (torch)",
            "torchrun ends the other; the watchdog ends with the run.",
            "The rank that ended before being done; the watchdog's exit code 2.",
            f"{SPARSE_LM}::test_a_rank_that_dies_ends_the_run_and_its_watchdog",
        ),
        Row(
            "The loss of one rank is NaN (torch)",
            "All ranks agree on the step and end.",
            "`.anomaly_type` `nan_loss`, and `.HALT` with the run's id.",
            f"{SPARSE_LM}::test_a_loss_that_is_not_finite_is_reported_by_both",
        ),
        Row(
            "A `.HALT` before the last step, under the harness (torch)",
            "All ranks end at the same step with exit code 4; rank 0 prints who asked.",
            "`failed`, cause `halted`; the detail has the anomaly, run and attempt of `.HALT`.",
            f"{SPARSE_LM}::test_a_run_halted_before_its_last_step_is_no_success",
        ),
        Row(
            "A `.HALT` that an earlier run left (torch)",
            "It names another run, and is ignored.",
            "All steps are done.",
            f"{SPARSE_LM}::test_a_stale_halt_file_stops_nobody",
        ),
        Row(
            "A loader that never yields (torch)",
            "The trainer ends at its loader timeout; where that is long, the watchdog ends it at NSA_WATCH_START_S.",
            "`.anomaly_type` `no_first_step`; the watchdog's exit code 2.",
            f"{SPARSE_LM}::test_a_loader_that_never_yields_is_stopped_from_outside",
        ),
    ),
)


PARTS: tuple[Part, ...] = (
    RUN_FAULTS,
    SUSPENSION_FAULTS,
    HARNESS_FAULTS,
    DISK_FAULTS,
    DAMAGED_FILES,
    BAD_INPUT,
    WATCHDOG_FAULTS,
    HOST_FAULTS,
)
