"""What the workers of a lane share is made once, and whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MadeOnce


def test_a_making_that_failed_is_not_taken_for_one_that_was_made(made_once: MadeOnce) -> None:
    made: list[Path] = []

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError("no room")

    def make(folder: Path) -> None:
        (folder / "whole").touch()
        made.append(folder)

    with pytest.raises(ValueError, match="no room"):
        made_once("failed_at_first", fail)
    folders = {made_once("failed_at_first", make) for _ in range(2)}
    assert folders == {*made} and len(made) == 1
    assert [path.name for path in made[0].iterdir()] == ["whole"]
