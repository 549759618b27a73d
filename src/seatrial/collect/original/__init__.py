"""Translates a folder of the original stage-1 scripts once into a campaign, so that every tool can read it.

    manifests → runs → attempt_records → translate

The original files are only read: the translation is in FOLDER/seatrial, and `translation.json` there lists its sources. Four modules,
because damaged manifests, interrupted attempts and unknown time zones each need their own rules, and the runbooks' checks use them without
the translation; for those checks no module here imports numpy or polars.
"""
