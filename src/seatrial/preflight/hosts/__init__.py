"""Checks of every host of a run at once: pure judgements over what the hosts answer (`examine.examine_hosts`)."""
