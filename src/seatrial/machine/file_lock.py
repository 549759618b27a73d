"""Taking a file's lock where the file system may have none.

In: a lock and how long to wait for it. Out: whether it is held; False says that there are no locks here, so nothing to wait by.
"""

from __future__ import annotations

import errno

import filelock

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def acquired(lock: filelock.BaseFileLock, patience_s: float) -> bool:
    """Take the lock; a filelock.Timeout while another holds it, an OSError where its file cannot be written."""
    try:
        lock.acquire(timeout=patience_s)
    except NotImplementedError:
        return False
    except OSError as error:
        # What says that another holds it is an OSError too, without a number.
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True
