"""Runs campaigns: what runs next, one run, resume, interrupts, escalation, the lock on the folder.

More than fifteen modules in one folder: runs here and jobs elsewhere share one_run.py and are driven by loop.py, so two packages would
import each other.
"""
