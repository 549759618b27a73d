"""Checks before anything is started, each naming the later error it prevents.

Every module holds the definitions of its checks (docs/doctor.md is generated from them) and functions from a `Need` to results;
`run_checks` has the table of subjects. hosts/ does the same for every host of a run at once.
"""
