"""Checks of every host of a run at once: pure functions of `HostsNeed` and what the hosts answered, run by `run_checks.examine_hosts`."""
