"""The harness's wish that a run end early. In: halt.json of the run's folder. Out: the step before which its ranks are to end.

The file is looked at by its size and times and read only when they changed. What is torn or is no request at all is passed over, and
so is one for another attempt: a stale file stops nobody.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class HaltRequest:
    """End before step `at_step` begins; at once where it has."""

    at_step: int
    reason: str


class HaltFile:
    """One run's halt.json, asked again and again."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._path = path
        self._attempt = attempt
        self._seen: tuple[int, int, int] | None = None

    def look(self) -> HaltRequest | None:
        """A request for this attempt that was not there at the last look."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen or found.st_size > MOST_BYTES:
                return None
            value = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            # Not there, not readable just now, or not whole yet: the next look tells.
            return None
        self._seen = seen
        return _request(value, self._attempt)


def _request(value: Any, attempt: int) -> HaltRequest | None:
    if not isinstance(value, dict) or not _is_count(value.get("attempt")) or not _is_count(value.get("at_step")):
        return None
    if value["attempt"] != attempt:
        log.info("halt.json is for attempt %s, this is attempt %s: it is passed over", value["attempt"], attempt)
        return None
    return HaltRequest(at_step=value["at_step"], reason=str(value.get("reason") or "no reason given"))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
