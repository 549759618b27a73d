"""Faults of hosts, links and clocks between them."""

from __future__ import annotations

from tests.faults.rows.row import CAMPAIGNS, HOSTS, Part, Row

PART = Part(
    "Hosts go wrong (make test-cluster: hosts of namespaces, each with its own sshd)",
    (
        Row(
            "A link is cut in the middle of a step",
            "Neither side hears of the other: after 20 s the harness takes the host for lost and stops the others, and the host's own \
agent kills everything it started.",
            "`failed`, cause `host_lost`, the host named; exit code 3. Nothing is left on any host.",
            f"{HOSTS}::test_a_link_that_is_cut_in_the_middle_of_a_step",
        ),
        Row(
            "A host goes down",
            "Its line closes; the others get five seconds and are stopped.",
            "The same, at once.",
            f"{HOSTS}::test_a_host_that_goes_down",
        ),
        Row(
            "The harness is killed",
            "Every agent sees its line end and kills all it started.",
            "No rank on any host; the same command goes on.",
            f"{HOSTS}::test_the_head_killed_leaves_no_rank_on_any_host",
        ),
        Row(
            "The head loses its power",
            "No line ends, all fall silent: after 20 s every agent kills all it started.",
            "No rank on any host after 30 s.",
            f"{HOSTS}::test_the_head_s_power_lost_leaves_no_rank_on_any_host",
        ),
        Row(
            "sshd refuses",
            "Every host is asked before the campaign.",
            "Refused, exit code 2, with ssh's own words and the host; nothing was started.",
            f"{HOSTS}::test_ssh_that_is_refused",
        ),
        Row(
            "One host's link is slow",
            "The doctor measures every link.",
            "A warning with the host and its figure.",
            f"{HOSTS}::test_a_slow_link_is_named_by_the_doctor",
        ),
        Row(
            "A network interface that is not there",
            "The names in the plan are looked for on every host, in NCCL's grammar.",
            "Refused, with the interfaces that are there.",
            f"{HOSTS}::test_an_interface_that_is_not_there",
        ),
        Row(
            "A port that is blocked",
            "Every host tries to reach the others at the port of the rendezvous, both ways.",
            "Refused, with hosts and port.",
            f"{HOSTS}::test_a_port_that_is_blocked",
        ),
        Row(
            "A host whose name is loopback on itself",
            "All names are resolved on all hosts.",
            "Said, with the line of /etc/hosts to mend.",
            f"{HOSTS}::test_a_name_that_is_loopback_on_its_own_host",
        ),
        Row(
            "A disk is full on one host",
            "The rank there fails; logs of all hosts are read.",
            "`failed`, cause `disk_full`, the host named.",
            f"{HOSTS}::test_a_disk_that_is_full_on_one_host",
        ),
        Row(
            "A clock an hour ahead",
            "Offsets are measured by the beats of the line, and all times are brought to one clock.",
            "The same figures, and a caution with host and offset.",
            f"{HOSTS}::test_a_clock_an_hour_ahead_changes_no_figure",
        ),
        Row(
            "pdsh is missing",
            "`via: auto` takes ssh.",
            "With `via: pdsh` refused, with how to install it.",
            f"{HOSTS}::test_pdsh_that_is_missing",
        ),
        Row(
            "pdsh is killed in the middle of a run",
            "Nothing: agents have lines of their own.",
            "`ok`.",
            f"{HOSTS}::test_pdsh_killed_by_a_signal_costs_the_run_nothing",
        ),
        Row(
            "pdsh is killed below a deepspeed runner of the user's, which then exits 0",
            "The runner says which ranks it starts, its launchers say which ended well: the two must agree.",
            "`failed`, exit code 0 and all.",
            f"{HOSTS}::test_pdsh_killed_below_a_deepspeed_runner_that_then_exits_0",
        ),
        Row(
            "Versions are unlike",
            "Interpreter, packages and Seatrial's own code are compared.",
            "Refused, with both versions and the host that differs.",
            f"{HOSTS}::test_versions_that_are_unlike",
        ),
        Row(
            "The output folder is not shared",
            "Files are written and looked for both ways.",
            "Refused, with the host that sees another folder.",
            f"{HOSTS}::test_a_folder_that_is_not_shared",
        ),
        Row(
            "A rank on one host fails",
            "Exit codes of all hosts are kept; the others get five seconds and are stopped.",
            "The true exit code and the host.",
            f"{HOSTS}::test_one_of_two_exit_codes_is_the_true_one",
        ),
        Row(
            "The hostfile is missing or empty",
            "It is read before anything else.",
            "Refused: never a run on this machine alone.",
            f"{HOSTS}::test_a_missing_or_empty_hostfile_is_never_a_local_run",
        ),
        Row(
            "Ctrl-C on the head",
            "halt.json, then TERM, on every host.",
            "Exit code 130; the same command goes on.",
            f"{CAMPAIGNS}::test_an_interrupted_campaign_goes_on_where_it_was",
        ),
    ),
)
