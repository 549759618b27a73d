"""Runs campaigns: what runs next, one run, resume, interrupts, escalation, the lock on the folder."""
