"""The folder a tree is made in: ours alone for a while, and its disk's trouble in plain words."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from seatrial_workloads.librispeech.output_folder import owned_folder, told_plainly, unwritten
from seatrial_workloads.librispeech.record import PrepareError


def test_it_is_made_and_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with owned_folder(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b").is_dir()


def test_a_second_owner_is_told_to_wait(tmp_path: Path) -> None:
    with owned_folder(tmp_path), pytest.raises(PrepareError, match="another process is preparing"), owned_folder(tmp_path):
        pass


def test_it_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), owned_folder(tmp_path):
        raise KeyError
    with owned_folder(tmp_path):
        assert tmp_path.is_dir()


def test_a_file_in_its_place_is_the_disks_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PrepareError, match=r"cannot be written to .*: what is done stays; mend it"), owned_folder(tmp_path / "file"):
        pass


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, "is full"), (errno.EDQUOT, "is full"), (errno.EIO, "cannot be written to")])
def test_a_full_disk_and_a_bad_one_are_told_apart(number: int, says: str) -> None:
    assert says in str(unwritten(Path("out"), number, "why"))
    with pytest.raises(PrepareError, match=says), told_plainly(Path("out")):
        raise OSError(number, "why")


def test_an_error_that_is_not_the_disks_passes() -> None:
    with pytest.raises(ValueError, match=r"^mine$"), told_plainly(Path("out")):
        raise ValueError("mine")
