"""From step tables to figures: what a run measured, its group's summary, the ranking, and comparisons.

More than fifteen modules in one folder: each is one subject, merging more would make files too long, and a sub-package below
measure.py would import its neighbours and be imported by them.
"""
