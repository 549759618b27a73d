"""What a launcher itself said of the ends of its ranks.

The `deepspeed` runner returns 0 also when the launcher it started was killed, so its exit code tells nothing. That launcher says of each
rank that ended well that it did. In: launcher.log. Out: the number of such ranks.
"""

from __future__ import annotations

import re
from pathlib import Path

# Searched, not matched: where ranks share the output, their unfinished line may stand before it.
ENDED_WELL = re.compile(rb"\[launch\.py:\d+:\w+\] Process (\d+) exits successfully\.")
# What a rank prints is marked, and is not the launcher's word.
RANK_MARK = b"[rank"


def num_ended_well(launcher_log: Path) -> int:
    """How many ranks deepspeed's launcher said to have ended well; 0 for a log that cannot be read."""
    told: set[bytes] = set()
    try:
        with open(launcher_log, "rb") as log:
            for line in log:
                if b"exits successfully." in line and not line.startswith(RANK_MARK):
                    told.update(ENDED_WELL.findall(line))
    except OSError:
        return 0
    return len(told)
