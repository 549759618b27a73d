"""What lies under a plan's name when it is no file of text: devices, pipes, folders, links, gigabytes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from seatrial.errors import PlanError
from seatrial.plan.plan_file import LARGEST_FILE_BYTES, is_plan_file, plan_text


def refusal(path: Path, pipe_patience_s: float = 0.2) -> str:
    with pytest.raises(PlanError) as caught:
        plan_text(path, pipe_patience_s)
    return str(caught.value)


def test_a_gigabyte_is_refused_by_its_size_and_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with open(large, "wb") as file:
        file.truncate(2**30)
    assert "larger than 1024 KiB" in refusal(large)


def test_a_device_is_no_plan() -> None:
    assert refusal(Path("/dev/zero")) == "/dev/zero: the plan cannot be read: it is a device or a socket; name a YAML file"


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"name: x\n" * 1000)
    os.close(writing)
    try:
        # As a shell names its end of `<(…)`.
        assert plan_text(Path(f"/proc/self/fd/{reading}")) == "name: x\n" * 1000
    finally:
        os.close(reading)


def test_a_pipe_that_nobody_ends_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR)
    try:
        assert "a pipe that was not written to its end in 0.2 s" in refusal(pipe)
    finally:
        os.close(keeper)


def test_a_pipe_without_end_is_refused_by_its_size(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR)

    def write() -> None:
        with open(pipe, "wb") as end:
            end.write(b"#" * (LARGEST_FILE_BYTES + 1))

    writer = threading.Thread(target=write)
    writer.start()
    assert "larger than 1024 KiB" in refusal(pipe, 10.0)
    writer.join()
    os.close(keeper)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("loop.yaml", "Too many levels of symbolic links"), ("file/x.yaml", "Not a directory"), ("x" * 300, "File name too long")],
)
def test_a_path_that_leads_nowhere_says_why(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "file").touch()
    assert f"the plan cannot be read: {reason}; name a YAML file that you may read" in refusal(tmp_path / name)


def test_what_is_a_plan_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").touch()
    assert is_plan_file(tmp_path / "a.yaml")
    assert not is_plan_file(tmp_path) and not is_plan_file(tmp_path / "b.yaml") and not is_plan_file(tmp_path / "a.yaml" / "c")
