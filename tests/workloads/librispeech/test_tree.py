"""What lies in a tree: its files by relative path, and what has no place in a line of text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seatrial_workloads.librispeech.tree import Found, TreePaths, look_through


def test_an_empty_tree_and_none_at_all(tmp_path: Path) -> None:
    assert look_through(tmp_path) == Found()
    assert look_through(tmp_path / "none").refused == {".": "the folder cannot be read: No such file or directory"}


def test_files_are_found_in_every_case_and_sorted_with_slashes(tmp_path: Path) -> None:
    for name in ("b/2.flac", "b/1.FLAC", "a.flac", "b/x.trans.TXT", "b/notes.md", ".hidden.flac", ".git/c.flac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert look_through(tmp_path) == Found(flacs=["a.flac", "b/1.FLAC", "b/2.flac"], texts=["b/x.trans.TXT"])


def test_links_are_followed_and_a_ring_of_them_ends(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.flac").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "round").symlink_to(tmp_path)
    assert look_through(tmp_path).flacs == ["linked/1.flac", "real/1.flac"]


@pytest.mark.parametrize(
    ("name", "why"), [(b"a\tb.flac", "a tab or an end of line"), (b"a\nb.txt", "a tab or an end of line"), (b"\xff.flac", "not UTF-8")]
)
def test_names_that_no_line_can_hold_are_refused_with_the_reason(tmp_path: Path, name: bytes, why: str) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
        pass
    found = look_through(tmp_path)
    assert (found.flacs, found.texts) == ([], [])
    (reason,) = found.refused.values()
    assert why in reason


def test_every_file_of_ours_lies_at_the_root() -> None:
    paths = TreePaths(Path("tree"))
    assert [path.as_posix() for path in (paths.record, paths.prepared, paths.rejected, paths.manifest)] == [
        "tree/prepare.json", "tree/prepared.tsv", "tree/rejected.tsv", "tree/manifest.tsv",
    ]  # fmt: skip
