"""Fixtures of several folders: temporary folders, and what the workers of one lane share.

xdist_group marks do not work here: pytest 9.2 ignores the node id suffix that xdist 3.8 uses for them. File locks are used instead, for
what must be created once or must not run in parallel.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from filelock import FileLock

from tests.stubs.answers import answer

MadeOnce = Callable[[str, Callable[[Path], object]], Path]
ROOT = Path(__file__).parents[1]

# Timings never decide a test, and a busy machine takes longer than the 200 ms that hypothesis allows. GPU machines need not have it.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # Its own profile for CI=1 would try the same examples every time.
    settings.register_profile("any speed", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any speed")

# A job in the background of a shell ignores SIGINT, one under nohup SIGHUP, and so would every process that a test starts and interrupts.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


# Reasons to skip that .ci/run can do something about; others are facts of the machine (a kernel without netem, no seeds, no GPU).
LACKING = re.compile(r"deepspeed is not installed|could not import '(?:deepspeed|hydra|torch|transformers)'|no C compiler|needs root")
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _failed_where_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _failed_where_skipped((yield))


def _failed_where_skipped(report: Report) -> Report:
    """Under CI=1 a test that is skipped for what could be installed has failed: a lane that nobody ran has shown nothing."""
    if os.environ.get("CI") == "1" and report.skipped and isinstance(report.longrepr, tuple) and LACKING.search(report.longrepr[2]):
        report.outcome, report.longrepr = "failed", f"under CI=1 this is a failure: {report.longrepr[2]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Nothing of what collection makes is garbage, and looking for some takes a third of its time; what it made stays until the end."""
    gc.disable()
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _import_share(config: pytest.Config) -> None:
    """Workers begin with different files, the first with every third, say, so that each file's asserts are rewritten by one of them and the
    others find it in the cache: in a new checkout every worker would rewrite them all, for longer than all else it does to collect."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    for path in _lane_files(config)[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # Its collection reports what is wrong with it.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _lane_files(config: pytest.Config) -> list[Path]:
    """Of the folders of the command line, largest first: the shares of the workers then take about as long."""
    folders, ignored = ([config.invocation_params.dir / one for one in given] for given in (config.args, config.getoption("ignore") or ()))
    files = {path for folder in folders for path in folder.rglob("test_*.py") if not any(path.is_relative_to(one) for one in ignored)}
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def put_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Begin with the tests whose names begin so, in this order: none is left running alone at the end. For `--maxschedchunk 1`."""
    first = [item for name in names for item in items if item.name.startswith(name)]
    items[:] = [item for item in items if item not in first]
    for at, item in enumerate(first):
        # Each worker is given two tests to begin with: only one of them is of these.
        items.insert(2 * at, item)


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this lane see."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def made_once(shared_root: Path) -> MadeOnce:
    """`made_once("small", make)` → the folder `small`, filled by `make(folder)` in the first worker that needs it. A folder whose `make`
    failed is removed. It is created under its final name, since campaigns store the paths of their files."""

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared_root / name, shared_root / f"{name}.made"
        with FileLock(shared_root / f"{name}.lock"):
            if not done.exists():
                if folder.exists():
                    shutil.rmtree(folder)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def one_at_a_time(shared_root: Path) -> FileLock:
    """Held for what needs most of the machine."""
    return FileLock(shared_root / "one_at_a_time.lock")


@pytest.fixture
def fallback_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where lines go that cannot be written to their file; not created yet."""
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "fallback"))
    return tmp_path / "fallback"


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file that no byte can be written to until it is removed: a link to /dev/full, which alone is followed."""
    really_open = os.open

    def opened(path: str | Path, flags: int, *more: int, **options: int) -> int:
        is_full = Path(path).is_symlink() and Path(path).readlink() == Path("/dev/full")
        return really_open(path, flags & ~os.O_NOFOLLOW if is_full else flags, *more, **options)

    monkeypatch.setattr(os, "open", opened)
    return lambda path: path.symlink_to("/dev/full")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """The file of answers for the stub of NVML: one GPU without any figures."""
    path = tmp_path / "answers.txt"
    answer(path, ("count", 1))
    return path
