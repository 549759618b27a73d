"""How large a file is, for those to whom one that is not there is empty."""

from __future__ import annotations

from pathlib import Path

from seatrial.disk.sizes import size_bytes


def test_bytes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"")
    assert size_bytes(file) == 0
    file.write_bytes(b"three\n")
    assert size_bytes(file) == 6


def test_what_cannot_be_asked_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "round").symlink_to("round")
    assert [size_bytes(tmp_path / name) for name in ("gone", "gone/log", "file/log", "round", "n" * 300)] == [0] * 5
