"""What a launcher itself said of the ends of its ranks.

The `deepspeed` runner returns 0 also when the launcher it started was killed (its own, or pdsh), so its exit code tells nothing. It says
first which ranks it starts on which hosts, and its launchers say of each rank that ended well that it did. In: launcher.log. Out: the
number of ranks that were started, and of those that ended well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path

from seatrial.files import open_file

# Searched, not matched: where ranks share the output, their unfinished line may stand before it.
ENDED_WELL = re.compile(rb"\[launch\.py:\d+:\w+\] Process (\d+) exits successfully\.")
# The runner's own line: the command it starts, with ranks and hosts in it.
STARTED = re.compile(rb"\[runner\.py:\d+:main\] cmd = .*?--world_info=([A-Za-z0-9_=-]{1,100000})")
# What a rank prints is marked, and is not the launcher's word.
RANK_MARK = b"[rank"


def num_ended_well_on(logs: Iterable[Path]) -> int:
    """On all hosts, each of which has a log of its own: two of them may give one number to two processes."""
    return sum(map(num_ended_well, logs))


def num_ended_well(launcher_log: Path) -> int:
    """How many ranks deepspeed's launcher said to have ended well; 0 for a log that cannot be read."""
    told: set[bytes] = set()
    try:
        with open_file(launcher_log) as log:
            for line in log:
                if b"exits successfully." in line and not line.startswith(RANK_MARK):
                    told.update(ENDED_WELL.findall(line))
    except OSError:
        return 0
    return len(told)


def num_started(launcher_log: Path) -> int | None:
    """How many ranks the newest deepspeed runner in a log said it starts; None where none speaks in it."""
    found: int | None = None
    try:
        with open_file(launcher_log) as log:
            for line in log:
                if b"--world_info=" in line and not line.startswith(RANK_MARK) and (told := STARTED.search(line)):
                    found = _num_ranks(told.group(1)) or found
    except OSError:
        return None
    return found


def _num_ranks(world_info: bytes) -> int | None:
    """Of `{"node1": [0, 1], …}` in base64; None for what is none."""
    try:
        hosts = json.loads(base64.urlsafe_b64decode(world_info))
        return sum(len(slots) for slots in hosts.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
