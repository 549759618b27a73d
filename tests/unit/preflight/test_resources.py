"""Shared memory, limits, memory and processors: odd facts, control groups as files, and this host as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.preflight import resources, storage
from seatrial.preflight.check_definition import Need, loader_workers
from seatrial.preflight.resources import CgroupFacts, LimitFacts, MemoryFacts, ProcessorFacts, read_cgroups
from seatrial.preflight.storage import DiskFacts
from tests.facts import states
from tests.unit.preflight.needs import make_need, make_run

HERE = Path("/")
DOCKERS_OWN = DiskFacts(folder=storage.SHARED_MEMORY, total_bytes=64 << 20, free_bytes=64 << 20)


def with_workers(count: int, ranks: int = 2) -> Need:
    return make_need(make_run(HERE, bundled="tiny_lm", ranks=ranks, settings={"num_workers": count}))


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({"settings": {"num_workers": 4}}, 4),
        ({"axes": {"nw": 2}}, 2),
        ({"args": ("--num-workers", "8")}, 8),
        ({"args": ("--dataloader_num_workers=3",)}, 3),
        ({"args": ("--workers", "auto")}, None),
        ({}, None),
    ],
)
def test_loader_workers_are_read_from_settings_axes_and_options(more: dict[str, object], count: int | None) -> None:
    assert loader_workers(make_run(HERE, script="train.py", **more)) == count


def test_dockers_64_mib_of_shared_memory() -> None:
    check = storage.judge_shared_memory(DOCKERS_OWN, with_workers(4))
    assert (check.ok, check.refuses) == (False, False) and "Bus error" in check.prevents and "--shm-size" in check.fix
    assert storage.judge_shared_memory(DOCKERS_OWN, with_workers(0)).ok, "nobody will use it"
    assert not storage.judge_shared_memory(DOCKERS_OWN, make_need()).ok, "without a plan a usual job counts"
    assert not storage.judge_shared_memory(DOCKERS_OWN, make_need(make_run(HERE, script="t.py", devices=("0", "1")))).ok, "NCCL uses it too"
    assert not storage.judge_shared_memory(DiskFacts(folder=storage.SHARED_MEMORY), with_workers(1)).ok


@pytest.mark.parametrize(
    ("soft", "workers", "ok"), [(256, 0, False), (1024, 2, True), (1024, 16, False), (65536, 16, True), (None, 16, True)]
)
def test_open_files_against_workers(soft: int | None, workers: int, ok: bool) -> None:
    check = resources.judge_open_files(LimitFacts(open_files=soft, open_files_hard=524288), with_workers(workers))
    assert check.ok is ok and not check.refuses
    assert check.fix == "ulimit -n 524288 before starting"


def test_a_hard_limit_that_is_too_low_needs_root() -> None:
    assert "after root raised" in resources.judge_open_files(LimitFacts(open_files=256, open_files_hard=256), with_workers(0)).fix


def test_processes_of_user_and_container() -> None:
    need = with_workers(4)
    assert resources.judge_processes(LimitFacts(), CgroupFacts(), need, cores=8).found == "no limit"
    assert not resources.judge_processes(LimitFacts(processes=1024, processes_used=1000), CgroupFacts(), need, cores=8).ok
    tight = resources.judge_processes(LimitFacts(processes=100_000), CgroupFacts(process_limit=64, process_count=10), need, cores=8)
    assert not tight.ok and tight.found == "10 of the container's 64 in use, about 88 needed"


def test_locked_memory_matters_with_infiniband_only() -> None:
    low = LimitFacts(locked_bytes=8 << 20)
    assert resources.judge_locked_memory(low).ok
    assert not resources.judge_locked_memory(LimitFacts(locked_bytes=8 << 20, infiniband=True)).ok
    assert resources.judge_locked_memory(LimitFacts(infiniband=True)).ok


def test_limits_of_this_process_are_read() -> None:
    facts = resources.read_limits()
    assert facts.processes_used >= 1 and (facts.open_files is None or facts.open_files > 0)


@pytest.mark.parametrize(
    ("free", "group", "ok"),
    [
        (50 << 30, CgroupFacts(), True),
        (5 << 30, CgroupFacts(), False),
        (50 << 30, CgroupFacts(memory_limit_bytes=8 << 30, memory_used_bytes=1 << 30), True),
        (50 << 30, CgroupFacts(memory_limit_bytes=8 << 30, memory_used_bytes=int(7.9 * (1 << 30))), False),
    ],
)
def test_memory_of_host_or_container(free: int, group: CgroupFacts, ok: bool) -> None:
    check = resources.judge_memory(MemoryFacts(total_bytes=64 << 30, free_bytes=free, group=group))
    assert check.ok is ok and not check.refuses
    assert ("that this container may use (the host has 64.0 GiB)" in check.found) is (group.memory_limit_bytes is not None)


def test_swap_counts_only_while_memory_is_short() -> None:
    assert resources.judge_swap(MemoryFacts(total_bytes=64 << 30, free_bytes=40 << 30, swap_used_bytes=4 << 30)).ok
    assert not resources.judge_swap(MemoryFacts(total_bytes=64 << 30, free_bytes=4 << 30, swap_used_bytes=4 << 30)).ok


def test_more_ranks_than_processors() -> None:
    need = make_need(make_run(HERE, script="t.py", ranks=4))
    assert resources.judge_processors(ProcessorFacts(machine=8, usable=8), need).ok
    assert not resources.judge_processors(ProcessorFacts(machine=64, usable=2), need).ok
    quota = resources.judge_processors(ProcessorFacts(machine=64, usable=64, quota_cores=1.5, numa_nodes=2), need)
    assert not quota.ok and states(quota.found, "64 of 64", "1.5", "quota", "2 NUMA nodes", "4 wanted")
    assert resources.judge_processors(ProcessorFacts(machine=64, usable=64, quota_cores=0.5), make_need(make_run(HERE, script="t.py"))).ok


def test_governors_are_reported(tmp_path: Path) -> None:
    for cpu, governor in (("cpu0", "powersave"), ("cpu1", "powersave")):
        (tmp_path / "cpu" / cpu / "cpufreq").mkdir(parents=True)
        (tmp_path / "cpu" / cpu / "cpufreq" / "scaling_governor").write_text(f"{governor}\n")
    assert resources.read_processors(tmp_path).governors == ("powersave",)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_control_groups_v2_lowest_limit_on_the_way_up(tmp_path: Path) -> None:
    membership, root = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("0::/pod/container\n")
    write(root / "pod", memory__max=str(4 << 30), memory__current=str(3 << 30), memory__stat=f"anon 5\ninactive_file {1 << 30}\n")
    write(root / "pod", cpu__max="max 100000", pids__max="max")
    write(root / "pod" / "container", memory__max="max", cpu__max="150000 100000", pids__max="512", pids__current="40")
    assert read_cgroups(membership, root) == CgroupFacts(
        memory_limit_bytes=4 << 30, memory_used_bytes=2 << 30, cpu_cores=1.5, process_limit=512, process_count=40
    )


def test_control_groups_v1(tmp_path: Path) -> None:
    membership, root = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:pids:/docker/abc\n0::/\n")
    # Inside the container the host's path is not there, and the mount itself is the group.
    write(root / "memory", memory__limit_in_bytes=str(2 << 30), memory__usage_in_bytes=str(1 << 30), memory__stat="total_inactive_file 0\n")
    write(root / "cpu", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    write(root / "pids", pids__max="100", pids__current="7")
    assert read_cgroups(membership, root) == CgroupFacts(
        memory_limit_bytes=2 << 30, memory_used_bytes=1 << 30, cpu_cores=4.0, process_limit=100, process_count=7
    )


def test_no_control_groups_no_limits(tmp_path: Path) -> None:
    assert read_cgroups(tmp_path / "none", tmp_path) == CgroupFacts()
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/\n3:cpu:/\n")
    write(tmp_path / "memory", memory__limit_in_bytes="9223372036854771712")
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert read_cgroups(membership, tmp_path) == CgroupFacts()
