"""Errors that are the machine's and not the program's, as one sentence each: a full disk, a folder that is gone, a limit that is reached.

In: what was raised. Out: the sentence, or None for an error of ours, which is best seen whole.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on that disk, then the same command goes on from there"),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE), "mend that disk, then the same command goes on from there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "mend its permissions, or use another folder"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n 1024`) and run the same command again"),
    **dict.fromkeys((errno.EAGAIN,), "allow more processes (`ulimit -u`) or end some, then run the same command again"),
    **dict.fromkeys((errno.ENOMEM,), "end other programs or raise the memory limit, then run the same command again"),
    **dict.fromkeys((errno.ENAMETOOLONG,), "choose a shorter path"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "a file stands where a folder is needed: choose another path"),
    **dict.fromkeys((errno.EFBIG,), "allow larger files (`ulimit -f unlimited`) and run the same command again"),
}
MEMORY = "out of memory: end other programs or raise the memory limit, then run the same command again"
GONE = "the folder this was started in is gone or closed to you: change to another one and run the same command again"


def machine_trouble(error: Exception) -> str | None:
    """What is said of `error`; None when it is not the machine's."""
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return f"no thread can be started: {REMEDIES[errno.EAGAIN]}"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if _depends_on_the_folder(error) and _folder_is_gone():
        return GONE
    nameless = "the disk" if error.errno in DISK else "the system"
    where = _shown(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else nameless
    return f"{where}: {error.strerror}; {REMEDIES.get(error.errno, 'mend that and run the same command again')}"


def _shown(name: str) -> str:
    """The folder, where the file is one that is written aside and has a name nobody has heard of."""
    path = Path(name)
    return str(path.parent) if path.suffix == ".part" and path.name.startswith(".") else name


def _depends_on_the_folder(error: OSError) -> bool:
    """Whether what failed was found from where one stands: it names no file, or a relative one."""
    return error.filename is None or (isinstance(error.filename, (str, bytes)) and not Path(os.fsdecode(error.filename)).is_absolute())


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False
