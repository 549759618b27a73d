"""From a plan file or a typed command to a CampaignPlan: read strictly, expand the matrix, name, hash and order every run.

Nothing here starts a process or looks at the machine; `load` reads, `resolve` expands.
"""
