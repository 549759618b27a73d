"""Turns a plan file or a typed command into a CampaignPlan: reads strictly, expands the matrix, names, hashes and orders every run.

Nothing here starts a process or looks at the machine; `load` reads, `resolve` expands.
"""
