"""A folder that holds an earlier run: known by its steps, and refused to a trainer that was started by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.common.used_folder import FIRST_EVENTS, holds_a_run, refuse_used_folder

STEP_LINE = '{"v":1,"kind":"step","step":0}\n'


def write(folder: Path, text: str) -> Path:
    (folder / FIRST_EVENTS).write_text(text)
    return folder


@pytest.mark.parametrize(("text", "holds"), [("", False), ('{"v":1,"kind":"start"}\n', False), (STEP_LINE, True), (STEP_LINE[:-9], True)])
def test_only_steps_make_a_folder_used(tmp_path: Path, text: str, holds: bool) -> None:
    assert holds_a_run(write(tmp_path, text), {}) is holds


def test_no_folder_and_no_file_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "odd" / FIRST_EVENTS).mkdir(parents=True)
    assert [holds_a_run(tmp_path / name, {}) for name in ("none", ".", "odd")] == [False] * 3


@pytest.mark.parametrize(
    ("env", "holds"),
    [({}, True), ({"TORCHELASTIC_RESTART_COUNT": "0"}, True), ({"TORCHELASTIC_RESTART_COUNT": "1"}, False), ({ENV_RUN_DIR: "/out"}, False)],
)
def test_the_harness_and_a_restart_may_write_on(tmp_path: Path, env: dict[str, str], holds: bool) -> None:
    assert holds_a_run(write(tmp_path, STEP_LINE), env) is holds


def test_by_hand_it_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENV_RUN_DIR, "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert refuse_used_folder(tmp_path) is None
    with pytest.raises(StartupError, match=r"holds an earlier run: give a folder of its own \(--resume_from takes the old one\)"):
        refuse_used_folder(write(tmp_path, STEP_LINE))
