"""Checks before anything is started, each naming the later error it prevents.

One module a subject: its QUESTIONS say what is looked at (docs/doctor.md is made of them), its `checks` takes a `Need` and gives a `Check`
for each; `checks.py` puts them together.
"""
