"""Checks of every host of a run at once: pure judgements over what the hosts answer (`examine.examine_hosts`).

One module a subject, as in the folder above: its `checks` takes what is `Wanted` of the hosts and their `Answers`, and gives one
`HostCheck` for each host that has told something of it.
"""
