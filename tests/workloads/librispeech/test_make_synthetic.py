"""A synthetic tree made here: whole, the same again, and never over somebody's data."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("soundfile")

from seatrial_workloads.librispeech import make_synthetic
from seatrial_workloads.librispeech.make_synthetic import WriteOne, make_synthetic_tree
from seatrial_workloads.librispeech.manifest import read_manifest
from seatrial_workloads.librispeech.pool import Died
from seatrial_workloads.librispeech.record import Making, PrepareError
from seatrial_workloads.librispeech.synthetic import utterances
from tests.workloads.librispeech.trees import bytes_of

MAKING = Making(num_utterances=3, seed=1)


def make(root: Path, making: Making = MAKING) -> int:
    return make_synthetic_tree(root, root / "manifest.tsv", making, quiet=True)


def test_every_utterance_is_in_the_manifest_and_there(tmp_path: Path) -> None:
    assert make(tmp_path / "tree") == 3
    rows = read_manifest(tmp_path / "tree" / "manifest.tsv")
    assert len(rows) == 3 and all((tmp_path / "tree" / row.rel_path).is_file() for row in rows)


def test_the_same_again_gives_the_same_bytes_and_mends_what_is_missing(tmp_path: Path) -> None:
    make(tmp_path)
    first = bytes_of(tmp_path)
    next(tmp_path.rglob("*.flac")).unlink()
    make(tmp_path)
    assert bytes_of(tmp_path) == first


def test_another_tree_is_not_made_over_it(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(PrepareError, match=r"holds another tree \(seed was 1 and would be 2\)"):
        make(tmp_path, Making(num_utterances=3, seed=2))


def test_nor_over_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(PrepareError, match="is not empty: choose another --output-root"):
        make(tmp_path)
    assert bytes_of(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_worker_gives_back_the_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = next(iter(utterances(3)))
    assert isinstance(WriteOne(tmp_path / "file", seed=1)(one), OSError)
    assert WriteOne(tmp_path, seed=1)(one) == WriteOne(tmp_path / "again", seed=1)(one)


@pytest.mark.parametrize(
    ("length", "says"),
    [(OSError(errno.ENOSPC, "no space"), "is full"), (Died("was killed by signal 9"), "a worker process was killed by signal 9, twice")],
)
def test_what_a_worker_could_not_write_ends_the_making(tmp_path: Path, length: OSError | Died, says: str) -> None:
    with pytest.raises(PrepareError, match=says):
        make_synthetic._checked(tmp_path, length)


def test_what_users_left_there_stays_and_what_a_killed_writer_left_goes(tmp_path: Path) -> None:
    make(tmp_path)
    of_others = [tmp_path / "dev-clean" / ".mydownload.part", tmp_path / ".keep.link"]
    of_ours = tmp_path / "dev-clean" / ".a.flac.1@elsewhere.abc.part"
    for path in (*of_others, of_ours):
        path.write_text("mine")
        os.utime(path, (0, 0))
    make(tmp_path)
    assert [path.read_text() for path in of_others] == ["mine", "mine"] and not of_ours.exists()


def test_who_may_read_the_tree_is_the_umasks_to_say(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        make(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"manifest.tsv", "prepare.json"} <= set(modes) and set(modes.values()) == {0o664}, modes
