"""What can come of one file, as workers tell it. No library that decodes is imported here: the parent process does without them."""

from __future__ import annotations

from typing import NamedTuple


class RejectedError(Exception):
    """Nothing can be made of this file, and why; others are none the worse."""


class Written(NamedTuple):
    num_samples: int
    size_bytes: int


class Rejected(NamedTuple):
    reason: str


class Unwritten(NamedTuple):
    """The output could not be written, which is the disk's doing and concerns every file."""

    error_number: int | None
    what: str
