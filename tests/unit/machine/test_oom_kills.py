"""Counters of the kernel's OOM killer, of either version of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.machine.oom_kills import OomKills, oom_kills


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("0::/user.slice/job\n", "user.slice/job/memory.events"),
        # In a container the folder of its group is the root that it sees, whatever path the kernel names.
        ("0::/\n", "memory.events"),
        ("0::/kubepods/pod1\n", "memory.events"),
        ("5:cpu:/a\n4:memory:/slurm/job_7\n0::/\n", "memory/slurm/job_7/memory.oom_control"),
        ("4:hugetlb,memory:/slurm/job_7\n", "memory/memory.oom_control"),
    ],
)
def test_the_counter_of_its_group_is_told_when_it_rose(tmp_path: Path, cgroup: str, file: str) -> None:
    write(tmp_path / "proc/self/cgroup", cgroup)
    write(tmp_path / "proc/vmstat", "nr_free_pages 1\noom_kill 7\n")
    counter = write(tmp_path / "cgroup" / file, "low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    looked = OomKills(tmp_path / "proc", tmp_path / "cgroup")
    assert looked.words() == ""
    counter.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    assert looked.words() == "oom_kill 3 → 4 in its cgroup"


def test_that_of_the_host_counts_where_the_group_has_none(tmp_path: Path) -> None:
    vmstat = write(tmp_path / "vmstat", "oom_kill 7\n")
    looked = OomKills(tmp_path, tmp_path)
    vmstat.write_text("oom_kill 9\n")
    assert looked.words() == "oom_kill 7 → 9 on this host"


@pytest.mark.parametrize("text", ["", "oom_kill\n", "oom_kill many\n", "0\n::\n\xff"])
def test_what_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    for name in ("self/cgroup", "vmstat", "memory.events"):
        write(tmp_path / name, text)
    assert oom_kills(tmp_path, tmp_path) == {}
    assert OomKills(tmp_path, tmp_path / "nowhere").words() == ""


def test_this_machine_can_be_looked_at() -> None:
    assert all(count >= 0 for count in oom_kills().values())
