"""A lock is taken, held by another, or not to be had on this file system; anything else that is wrong with its file is said."""

from __future__ import annotations

import errno
from pathlib import Path

import filelock
import pytest

from seatrial.machine.file_lock import acquired


class Refusing(filelock.FileLock):
    """A lock whose file system answers with an error."""

    error: Exception

    def acquire(self, *_: object, **__: object) -> filelock.AcquireReturnProxy:
        raise self.error


def refusing(folder: Path, error: Exception) -> Refusing:
    lock = Refusing(folder / "lock")
    lock.error = error
    return lock


def test_a_free_lock_is_held(tmp_path: Path) -> None:
    lock = filelock.FileLock(tmp_path / "lock")
    assert acquired(lock, 0.0) and lock.is_locked
    lock.release()


def test_one_that_another_holds_is_said_to_be(tmp_path: Path) -> None:
    with filelock.FileLock(tmp_path / "lock"), pytest.raises(filelock.Timeout):
        acquired(filelock.FileLock(tmp_path / "lock"), 0.0)


@pytest.mark.parametrize(
    "error", [NotImplementedError(), *(OSError(number, "") for number in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))]
)
def test_a_file_system_without_locks_is_no_error(tmp_path: Path, error: Exception) -> None:
    assert acquired(refusing(tmp_path, error), 0.0) is False


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, number: int) -> None:
    with pytest.raises(OSError) as told:
        acquired(refusing(tmp_path, OSError(number, "")), 0.0)
    assert told.value.errno == number
