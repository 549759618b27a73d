"""Variables of Seatrial's own in the environment of a campaign: what all begin with, and those that are the user's to set."""

from __future__ import annotations

PREFIX = "SEATRIAL_"
FALLBACK_DIR = f"{PREFIX}FALLBACK_DIR"
"""Folder for what the disk does not take."""
HISTORY = f"{PREFIX}HISTORY"
"""The file of history rows."""
SET_BY_USERS = frozenset({FALLBACK_DIR, HISTORY})
"""All others are set for each rank when it is started, and are out of place in the shell a campaign starts from."""
