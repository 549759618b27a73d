"""A working folder with prepared data for each worker of the lane, and a table of how long each block took."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MadeOnce, put_first
from tests.runbooks.blocks import Section, runbook_sections, seed_sections
from tests.runbooks.lane import Lane
from tests.runbooks.working_folder import lay_out

_LANES: list[Lane] = []
_REPORTED: set[str] = set()
BLOCK_TIME = "block_time"
PREPARES = ("000 2.1", "001 1", "README Data")
"""Sections whose first block prepares the data, by the same command: the first that is here is run, once for all workers."""
# Some minutes each.
LONGEST = ("test_the_validation_ends_in_a_table_and_deliverables", "test_seed_section[001-3.4.1]", "test_a_block_of_our_own_page_runs")
# Where a repository would have it: plans are two folders up.
WORK = Path("repository/runbooks/stage1")


# After the tests of other lanes are deselected.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items, LONGEST)


@pytest.fixture(scope="session")
def lane(made_once: MadeOnce, tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """A working folder of this worker."""
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    base = tmp_path_factory.mktemp("lane")
    shutil.copytree(made_once("prepared", _prepare) / WORK.parts[0], base / WORK.parts[0], symlinks=True, copy_function=os.link)
    _LANES.append(Lane(work=base / WORK, scratch=base / "sessions"))
    return _LANES[-1]


def _prepare(folder: Path) -> None:
    """Lay the working folder out and prepare the data by the procedure itself."""
    (folder / WORK).mkdir(parents=True)
    lane = Lane(work=lay_out(folder / WORK), scratch=folder / "sessions")
    ran = lane.run(next(one for one in all_sections() if one.key in PREPARES))
    assert ran.blocks[0].code == 0, ran.output


@pytest.fixture(autouse=True)
def _report_times(request: pytest.FixtureRequest) -> Iterator[None]:
    """The times of what a test ran go into its report, which a worker hands to the process that prints it."""
    yield
    for lane in _LANES:
        for key in [key for key in lane.done if key not in _REPORTED]:
            _REPORTED.add(key)
            request.node.user_properties += [(BLOCK_TIME, f"{block.seconds:.1f}\t{key}") for block in lane.done[key].blocks]


def all_sections() -> list[Section]:
    return [*seed_sections(), *runbook_sections()]


def section(key: str) -> Section:
    return next(found for found in all_sections() if found.key == key)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for group in ("passed", "failed") for report in terminalreporter.stats.get(group, []) if report.when == "teardown"]
    reports += [report for report in terminalreporter.stats.get("", []) if report.when == "teardown"]
    times = [value.split("\t") for report in reports for name, value in report.user_properties if name == BLOCK_TIME]
    if times:
        terminalreporter.section("how long each block took")
        for seconds, key in times:
            terminalreporter.write_line(f"{float(seconds):7.1f} s  {key}")
        terminalreporter.write_line(f"{sum(float(seconds) for seconds, _ in times):7.1f} s  in all")
