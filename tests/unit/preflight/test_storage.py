"""Folders and disks: odd facts, and real ones on small file systems mounted by the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.preflight import storage
from seatrial.preflight.storage import DiskFacts
from tests.unit.preflight.needs import by_name, make_need, make_run

Mount = Callable[[str], Path]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a tmpfs with the given options; skips where that is not allowed."""
    places: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"mounted{len(places)}"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip("mounting is not allowed here")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", str(place)], check=True)


def disk(**facts: int) -> DiskFacts:
    return DiskFacts(folder=Path("/out"), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("free_bytes", "ok", "refuses"), [(5 << 30, True, False), (500 << 20, False, False), (1 << 20, False, True)])
def test_little_space_is_reported_and_too_little_refused(free_bytes: int, ok: bool, refuses: bool) -> None:
    check = storage.check_space(disk(total_bytes=1 << 40, free_bytes=free_bytes))
    assert (check.ok, check.refuses) == (ok, refuses)
    assert check.prevents == "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("total", "free", "ok", "refuses"),
    [(0, 0, True, True), (1000, 0, False, False), (10_000, 5000, True, False), (10_000, 600, False, False), (10_000, 199, False, True)],
)
def test_inodes_against_what_the_runs_leave(total: int, free: int, ok: bool, refuses: bool) -> None:
    check = storage.check_inodes(disk(total_inodes=total, free_inodes=free), runs=10)
    assert (check.ok, check.refuses) == (ok, refuses)


def test_a_disk_that_does_not_count_is_not_full() -> None:
    assert storage.check_space(disk()).ok and storage.check_temporary(disk()).ok


def test_temporary_files(tmp_path: Path) -> None:
    need = make_need(
        make_run(tmp_path, script="t.py", env={"TMPDIR": "/b"}), make_run(tmp_path, script="t.py"), base_env={"TMPDIR": str(tmp_path)}
    )
    found = [check.found for check in storage.check_disks(need) if check.name == "temporary files"]
    assert len(found) == 2 and any(str(tmp_path) in text for text in found)
    assert not storage.check_temporary(DiskFacts(folder=Path("/tmp"), total_bytes=1, free_bytes=1 << 40, writable=False)).ok


def test_caches_that_variables_name(tmp_path: Path) -> None:
    need = make_need(make_run(tmp_path, script="t.py", env={"TORCH_HOME": "/b"}), base_env={"HF_HOME": "/a", "TORCH_HOME": ""})
    assert storage.cache_folders(need) == [("HF_HOME", Path("/a")), ("TORCH_HOME", Path("/b"))]
    check = storage.check_cache("HF_HOME", DiskFacts(folder=Path("/a"), total_bytes=1 << 40, free_bytes=1 << 40, writable=False))
    assert (check.ok, check.refuses) == (False, False) and "cannot be written to" in check.found


def test_a_disk_that_cannot_be_asked_is_refused() -> None:
    check = storage.check_space(DiskFacts(folder=Path("/stale"), problem="Stale file handle"))
    assert not check.ok and check.refuses and "Stale file handle" in check.found


def test_full_disk_is_found_by_writing(mounted: Mount) -> None:
    place = mounted("size=64k")
    with contextlib.suppress(OSError), open(place / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    trial = storage.try_folder(place / "out")
    assert trial.act in ("created", "written") and "No space left" in trial.error
    check = storage.judge_output(place / "out", trial)
    assert (check.ok, check.refuses) == (False, True) and check.prevents.startswith("OSError: [Errno 28] No space left on device")
    assert [path.name for path in place.iterdir()] == ["filler"], "nothing is left behind"


def test_no_inode_left(mounted: Mount) -> None:
    place = mounted("nr_inodes=3,size=1m")
    with contextlib.suppress(OSError):
        for number in range(5):
            (place / str(number)).touch()
    assert storage.try_folder(place).act == "created"
    assert not storage.check_inodes(storage.read_disk(place), runs=1).ok


def test_read_only_disk(mounted: Mount) -> None:
    trial = storage.try_folder(mounted("ro,size=64k"))
    assert trial.act == "created" and "Read-only file system" in trial.error


def test_a_folder_that_can_be_written_to_is_left_as_it_was(tmp_path: Path) -> None:
    trial = storage.try_folder(tmp_path / "out" / "deep")
    assert storage.judge_output(tmp_path / "out" / "deep", trial).ok and trial.folder == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    check = storage.judge_output(tmp_path / "taken", storage.try_folder(tmp_path / "taken"))
    assert not check.ok and "NotADirectoryError" in check.found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in storage.try_folder(tmp_path).error
    tmp_path.chmod(0o700)


def test_the_deepest_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    (tmp_path / "a b").mkdir()
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"30 22 0:40 / {escaped} rw shared:1 - nfs4 server:/x rw\n"
        "31 22 0:41 / /elsewhere rw - tmpfs tmpfs rw\n"
    )
    assert storage.file_system_of(tmp_path / "a b" / "out", mounts) == "nfs4"
    assert storage.file_system_of(tmp_path, mounts) == "ext4"
    assert storage.file_system_of(tmp_path, tmp_path / "none") == ""
    assert "over the network" in storage.judge_file_system("nfs4").found and storage.judge_file_system("nfs4").ok


def test_data_of_a_bundled_workload_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    settings = {"data_root": "here", "train_manifest_path": "gone.tsv", "output_dir": "new", "cache_dir": "new", "model_path": "org/name"}
    found = by_name(storage.check_data(make_need(make_run(tmp_path, bundled="dummy", settings=settings))))
    assert {name: (check.ok, check.refuses) for name, check in found.items()} == {
        "data data_root": (True, True),
        "data train_manifest_path": (False, True),
    }
    assert found["data train_manifest_path"].prevents == "FileNotFoundError: [Errno 2] No such file or directory: 'gone.tsv'"


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (("--data", "/no/such/folder"), ["data --data"]),
        (("--data-dir=./none",), ["data --data_dir"]),
        (("--train_file", "none/a.json"), ["data --train_file"]),
        (("--data", "imagenet"), []),
        (("--output_dir", "/no/such"), []),
        (("--model_name_or_path", "meta/model-7b"), []),
        (("--model_path", "/no/such/model"), ["data --model_path"]),
        (("--dataset", "s3://bucket/x"), []),
        (("--lr", "1e-3", "--flag"), []),
    ],
)
def test_paths_among_a_scripts_arguments_are_warned_of(tmp_path: Path, args: tuple[str, ...], names: list[str]) -> None:
    checks = list(storage.check_data(make_need(make_run(tmp_path, script="train.py", args=args))))
    assert [check.name for check in checks] == names
    assert not any(check.ok or check.refuses for check in checks)
