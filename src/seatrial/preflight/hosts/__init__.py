"""Checks of every host of a run at once: pure functions of `HostsNeed` and what the hosts answered, run by `examine.examine_hosts`."""
