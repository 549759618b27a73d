"""Files that appear whole or not at all. In: a final path. Out: the file under that name, and nothing half-written when a writer dies.

What is being written lies beside its final name as `.NAME.PID.part`; `sweep` removes what dead writers left of these, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

PART = re.compile(r"\..+\.(\d+)\.part")
# A name may have 255 bytes, and ours adds some.
LONGEST_NAME_BYTES = 200


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A name beside `path`, renamed onto it when the block ends well and removed when it does not."""
    name = os.fsdecode(os.fsencode(path.name)[-LONGEST_NAME_BYTES:])
    part = path.with_name(f".{name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        # Why the writing failed is what counts, not why the removing did.
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as the whole of `path`, on disk before it has its name."""
    with written_aside(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def is_left_over(name: str) -> bool:
    """Whether a file of this name is a part whose writer is gone."""
    found = PART.fullmatch(name)
    return found is not None and not _is_alive(int(found[1]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
