"""Checks of what a campaign writes and reads: the output folder, disk space and inodes, temporary files, caches, /dev/shm, and data that a
plan names.

In: a `Need`. Out: checks. The output folder is tested: a file is written, renamed, locked and removed. A bundled workload is
refused when its data is missing; for a script's arguments it is only a warning, since the script may create the folder itself, and a name
with a slash need not be a path.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.core.paths import TRIAL_PREFIX
from seatrial.core.text import format_bytes
from seatrial.machine.orphans import SHARED_MEMORY
from seatrial.preflight.check_definition import CheckDefinition, Need, information, options, refusal, warning
from seatrial.preflight.software import judges_its_host
from seatrial.records.caution import Check
from seatrial.records.plan import RunSpec

# Below this a campaign's logs and events are likely to fill the disk.
MIN_FREE_BYTES = 200 << 20
LITTLE_FREE_BYTES = 1 << 30
# An attempt leaves about thirty files and folders, plus links and tables.
INODES_OF_A_RUN = 50
# Too few for even one run.
MIN_FREE_INODES = 200
CACHE_VARIABLES = (
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR", "XDG_CACHE_HOME",
)  # fmt: skip

SPACE = refusal(
    name="disk space",
    what="free space on the output's disk; little is a warning, too little to begin with is refused",
    prevents="OSError: [Errno 28] No space left on device",
    fix="free at least {least} or choose another disk with --out",
    in_docs={"least": format_bytes(MIN_FREE_BYTES)},
)
INODES = refusal(
    name="inodes",
    what="free inodes on the output's disk against the files the runs will leave; few are a warning, too few for one run are refused",
    prevents="OSError: [Errno 28] No space left on device, while df shows free space",
    fix="remove folders of many small files (df -i shows where) or choose another disk with --out",
)
TEMPORARY = warning(
    name="temporary files",
    what="free space and write access in the folder for temporary files (TMPDIR)",
    prevents="OSError: [Errno 28] No space left on device: '/tmp/torchinductor_…'; or: No usable temporary directory found",
    fix="free space in {folder}, or point TMPDIR at another disk",
)
CACHE = warning(
    name="cache {variable}",
    what="free space and write access where a variable puts the caches of Hugging Face, torch and Triton",
    prevents="OSError: [Errno 28] No space left on device, or PermissionError, while a model or a kernel is cached",
    fix="free space in {folder}, or point {variable} at another disk",
)
DISK_CHECKS = (SPACE, INODES, TEMPORARY, CACHE)


@dataclass(frozen=True, kw_only=True)
class DiskFacts:
    folder: Path
    """The nearest folder that exists."""
    total_bytes: int = 0
    """0 where the file system does not report it, as some FUSE ones."""
    free_bytes: int = 0
    total_inodes: int = 0
    """0 where the file system does not report them."""
    free_inodes: int = 0
    writable: bool = True
    problem: str = ""
    """Why it could not be read."""


def check_disks(need: Need) -> Iterator[Check]:
    output = read_disk(need.output)
    yield check_space(output)
    yield check_inodes(output, len(need.runs))
    for folder in sorted({Path(given.get("TMPDIR") or "/tmp") for given in _environments(need)}):
        yield check_temporary(read_disk(folder))
    for variable, folder in cache_folders(need):
        yield check_cache(variable, read_disk(folder))


def read_disk(folder: Path) -> DiskFacts:
    """The file system that `folder` is on, or will be on."""
    near = nearest_existing(folder)
    try:
        state = os.statvfs(near)
    except OSError as error:
        return DiskFacts(folder=near, problem=error.strerror or str(error))
    return DiskFacts(
        folder=near,
        total_bytes=state.f_blocks * state.f_frsize,
        free_bytes=state.f_bavail * state.f_frsize,
        total_inodes=state.f_files,
        free_inodes=state.f_favail,
        writable=os.access(near, os.W_OK),
    )


def nearest_existing(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that exists."""
    folder = folder.absolute()
    with contextlib.suppress(OSError):
        # A folder that cannot be searched is reported by the trial of writing to it.
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
    return folder


def cache_folders(need: Need) -> list[tuple[str, Path]]:
    """(variable, folder) of every cache that the base environment or a plan's env names."""
    settings = _environments(need)
    return sorted({(name, Path(given[name]).expanduser()) for given in settings for name in CACHE_VARIABLES if given.get(name)})


def _environments(need: Need) -> list[dict[str, str]]:
    return [need.environment(spec) for spec in need.runs] or [dict(need.base_env)]


def check_space(disk: DiskFacts) -> Check:
    least = format_bytes(MIN_FREE_BYTES if disk.free_bytes < MIN_FREE_BYTES else LITTLE_FREE_BYTES)
    if disk.problem:
        return SPACE.result(False, f"{disk.folder} cannot be read: {disk.problem}", least=least)
    if disk.total_bytes == 0:
        return SPACE.result(True, "not counted by this file system", least=least)
    refuses = disk.free_bytes < MIN_FREE_BYTES
    return SPACE.result(
        disk.free_bytes >= LITTLE_FREE_BYTES, f"{format_bytes(disk.free_bytes)} free in {disk.folder}", refuses=refuses, least=least
    )


def check_inodes(disk: DiskFacts, runs: int) -> Check:
    if disk.total_inodes == 0:
        return INODES.result(True, "not counted by this file system")
    needed = MIN_FREE_INODES + INODES_OF_A_RUN * runs
    found = f"{disk.free_inodes} free of {disk.total_inodes}, about {needed} needed"
    # Finished runs need none, so the real need may be far less. Zero is either a file system that does not report inodes, or one
    # where the trial of the output folder fails.
    return INODES.result(disk.free_inodes >= needed, found, refuses=0 < disk.free_inodes < MIN_FREE_INODES)


def check_temporary(disk: DiskFacts) -> Check:
    return TEMPORARY.result(_has(disk, MIN_FREE_BYTES), _found(disk), folder=disk.folder)


def check_cache(variable: str, disk: DiskFacts) -> Check:
    return CACHE.result(_has(disk, LITTLE_FREE_BYTES), _found(disk), variable=variable, folder=disk.folder)


def _has(disk: DiskFacts, wanted_bytes: int) -> bool:
    return not disk.problem and disk.writable and (disk.total_bytes == 0 or disk.free_bytes >= wanted_bytes)


def _found(disk: DiskFacts) -> str:
    if disk.problem:
        return f"{disk.folder} cannot be read: {disk.problem}"
    return f"{format_bytes(disk.free_bytes)} free in {disk.folder}" + ("" if disk.writable else ", which cannot be written to")


MOUNTS = Path("/proc/self/mountinfo")
# Network file systems: slower to lock and rename, and an error may come long after the write.
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "afs", "virtiofs")
TRIED_TEXT = b"written to try this folder\n"

OUTPUT = refusal(
    name="output folder",
    what="the output folder, or the nearest one above it: a file is written, renamed, locked and removed",
    prevents="{error} while the first run starts",
    in_docs={"error": "PermissionError: [Errno 13] Permission denied, or OSError: [Errno 30] Read-only file system,"},
    fix="choose another folder with --out, or fix this one: its permissions, its mount (read-only?) or its space",
)
FILE_SYSTEM = information(
    name="file system",
    what="whether the output is on a network file system, in memory, or in a container's own layer",
    prevents="results that are gone with the container or the next start, or slow to appear for others",
    fix="choose a folder on a local disk with --out, and copy it when the campaign has ended",
)
OUTPUT_CHECKS = (OUTPUT, FILE_SYSTEM)


@dataclass(frozen=True, kw_only=True)
class FolderTrial:
    folder: Path
    """Where it was tried: the nearest folder that exists."""
    act: str = ""
    """The failed operation; empty if none failed."""
    error: str = ""


def check_output(need: Need) -> Iterator[Check]:
    yield judge_output(need.output, try_folder(need.output))
    yield judge_file_system(file_system_of(need.output))


def try_folder(folder: Path) -> FolderTrial:
    """Write, rename, lock and remove one small file; nothing is left behind."""
    near = nearest_existing(folder)
    act = "created"
    names: list[Path] = []
    try:
        handle, name = tempfile.mkstemp(dir=near, prefix=TRIAL_PREFIX)
        names.append(Path(name))
        try:
            act = "written"
            os.write(handle, TRIED_TEXT)
            os.fsync(handle)
            act = "locked"
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        act = "renamed"
        names.append(Path(f"{name}.renamed"))
        os.replace(*names)
        act = "removed"
        names[-1].unlink()
    except OSError as error:
        return FolderTrial(folder=near, act=act, error=f"{type(error).__name__}: [Errno {error.errno}] {error.strerror}")
    finally:
        for path in names:
            with contextlib.suppress(OSError):
                path.unlink()
    return FolderTrial(folder=near)


def judge_output(needed: Path, trial: FolderTrial) -> Check:
    found = f"in {trial.folder} no file can be {trial.act}: {trial.error}" if trial.act else f"{needed} can be written to"
    return OUTPUT.result(not trial.act, found, error=trial.error or "PermissionError: [Errno 13] Permission denied")


def file_system_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """Type of the file system, such as `ext4`; empty if unknown."""
    with contextlib.suppress(OSError):
        return _type_in(mounts.read_text(encoding="utf-8", errors="replace"), nearest_existing(folder).resolve())
    return ""


def _type_in(text: str, folder: Path) -> str:
    """Type of the deepest mount that holds `folder`; of two on one path the later hides the earlier."""
    best, best_type = -1, ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        place = Path(fields[4].encode().decode("unicode_escape"))
        if folder.is_relative_to(place) and len(place.parts) >= best:
            best, best_type = len(place.parts), right.split()[0]
    return best_type


def judge_file_system(kind: str) -> Check:
    note = ""
    if kind in REMOTE or kind.startswith("fuse"):
        note = ": shared over the network or translated by a server"
    elif kind in ("tmpfs", "ramfs"):
        note = ": in memory, gone after a restart"
    elif kind == "overlay":
        note = ": a container's own layer, gone with the container"
    return FILE_SYSTEM.result(True, (kind or "unknown") + note)


# Prefetched batches of a worker; NCCL's buffers between the GPU ranks of one host.
BYTES_OF_A_WORKER = 32 << 20
BYTES_OF_A_GPU_RANK = 64 << 20
MIN_BYTES = 256 << 20

SHM_ROOM = warning(
    name="shared memory",
    what="size and free space of /dev/shm against loader workers and GPU ranks",
    prevents="RuntimeError: DataLoader worker (pid …) is killed by signal: Bus error. It is possible that dataloader's workers are out "
    "of shared memory",
    fix="docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory on /dev/shm; else `df -h /dev/shm` and "
    "remove what dead jobs left there",
)
SHARED_MEMORY_CHECKS = (SHM_ROOM,)


def check_shared_memory(need: Need) -> Iterator[Check]:
    shm = read_disk(SHARED_MEMORY)
    yield judge_shared_memory(shm if shm.folder == SHARED_MEMORY else DiskFacts(folder=SHARED_MEMORY), need)


def judge_shared_memory(shm: DiskFacts, need: Need) -> Check:
    found = f"{format_bytes(shm.free_bytes)} free of {format_bytes(shm.total_bytes)}" if shm.total_bytes else "there is no /dev/shm"
    needed = needed_shm_bytes(need)
    if need.planned:
        who = f"{need.workers} loader workers" if need.workers else "no loader workers in the plan"
        found += f"; {who}, {format_bytes(needed)} needed"
    return SHM_ROOM.result(shm.free_bytes >= needed, found)


def needed_shm_bytes(need: Need) -> int:
    """What the runs may put there at once; without a plan, a usual job's."""
    if not need.planned:
        return MIN_BYTES
    gpu_ranks = max((len(spec.place.devices) for spec in need.runs), default=0)
    shared_by_gpus = BYTES_OF_A_GPU_RANK * gpu_ranks if gpu_ranks > 1 else 0
    return (max(MIN_BYTES, BYTES_OF_A_WORKER * need.workers) if need.workers else 0) + shared_by_gpus


PATH_ENDINGS = ("_root", "_path", "_dir", "_folder", "_file", "_manifest")
DATA_OPTIONS = ("data", "dataset", "data_root", "train_data", "eval_data", "val_data", "manifest")
# A job may create what it writes.
_WRITTEN = re.compile(r"out|save|log|ckpt|checkpoint|cache|result|tmp|temp|work|export|trace|profile|run|store")
# `org/name` of a model or dataset hub looks like a relative path.
_HUB_NAMED = re.compile(r"model|name|tokenizer|hub|repo")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

DATA_SETTING = refusal(
    name="data {key}",
    what="folders and files that the settings of a bundled workload name",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '{value}'",
    fix="prepare the data, or correct settings.{key}; a relative path counts from {cwd}",
)
DATA_ARGUMENT = warning(
    name="data --{key}",
    what="paths that a script's arguments name for data",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '{value}'",
    fix="check the path (a relative one counts from {cwd}), unless the script makes it",
)
DATA_CHECKS = (DATA_SETTING, DATA_ARGUMENT)


def check_data(need: Need) -> Iterator[Check]:
    for definition, key, value, cwd in sorted(named_paths(need), key=lambda item: item[1:]):
        problem = path_problem(value, Path(cwd))
        yield definition.result(not problem, problem or value, key=key, value=value, cwd=cwd)


def named_paths(need: Need) -> set[tuple[CheckDefinition, str, str, str]]:
    """(definition, key, value, base folder) of every path that the runs read, once."""
    found = set()
    for spec in need.runs:
        # A workload that judges its host reports missing data itself.
        judged = judges_its_host(spec)
        settings = [(key, value) for key, value in _path_settings(spec) if not judged or (Path(spec.cwd) / value).exists()]
        found |= {(DATA_SETTING, key, value, spec.cwd) for key, value in settings}
        found |= {(DATA_ARGUMENT, key, value, spec.cwd) for key, value in options(spec) if _is_data(key, value)}
    return found


def path_problem(value: str, cwd: Path) -> str:
    """Why a path cannot be read; empty if it can."""
    path = cwd / Path(value).expanduser()
    try:
        if not path.exists():
            return f"no such file or folder: {path}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return "" if os.access(path, needed) else f"{path} may not be read"


def _path_settings(spec: RunSpec) -> Iterator[tuple[str, str]]:
    for key, value in spec.settings.items():
        if isinstance(value, str) and value and key.endswith(PATH_ENDINGS) and not _WRITTEN.search(key) and not _is_hub_name(key, value):
            yield key, value


def _is_data(key: str, value: str) -> bool:
    if "/" not in value or _URL.match(value) or _WRITTEN.search(key) or _is_hub_name(key, value):
        return False
    return key.endswith(PATH_ENDINGS) or key in DATA_OPTIONS


def _is_hub_name(key: str, value: str) -> bool:
    """`org/name`: one slash, in an option for a model or a name."""
    return bool(_URL.match(value)) or (bool(_HUB_NAMED.search(key)) and value.count("/") == 1 and value[0] not in "/.~")
