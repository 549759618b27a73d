"""What the lane's tests share: one working folder for all of them, and a table of how long each block took."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.runbooks.blocks import Section, runbook_sections, seed_sections
from tests.runbooks.lane import Lane
from tests.runbooks.workplace import lay_out

_LANES: list[Lane] = []
_TOLD: set[str] = set()
BLOCK_TIME = "block_time"
PREPARES = ("000 2.1", "001 1", "README Data")
"""Sections that prepare the data, which all others need; whichever comes first."""


@pytest.fixture(scope="session")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """The working folder, laid out. Where a repository would have it: plans are two folders up."""
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    base = tmp_path_factory.mktemp("lane")
    work = base / "repository" / "runbooks" / "stage1"
    work.mkdir(parents=True)
    _LANES.append(Lane(work=lay_out(work), scratch=base / "sessions"))
    return _LANES[-1]


@pytest.fixture(autouse=True)
def _tell_times(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test ran goes into its report, which a worker hands to whoever prints it."""
    yield
    for lane in _LANES:
        for key in [key for key in lane.done if key not in _TOLD]:
            _TOLD.add(key)
            request.node.user_properties += [(BLOCK_TIME, f"{block.seconds:.1f}\t{key}") for block in lane.done[key].blocks]


@pytest.fixture
def prepared(lane: Lane) -> Lane:
    """The same with the data prepared, by the procedure itself."""
    if not any(key in lane.done for key in PREPARES):
        lane.run(section("README Data"))
    return lane


def section(key: str) -> Section:
    """A section by its key."""
    return next(found for found in [*runbook_sections(), *seed_sections()] if found.key == key)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for group in ("passed", "failed") for report in terminalreporter.stats.get(group, []) if report.when == "teardown"]
    reports += [report for report in terminalreporter.stats.get("", []) if report.when == "teardown"]
    times = [value.split("\t") for report in reports for name, value in report.user_properties if name == BLOCK_TIME]
    if times:
        terminalreporter.section("how long each block took")
        for seconds, key in times:
            terminalreporter.write_line(f"{float(seconds):7.1f} s  {key}")
        terminalreporter.write_line(f"{sum(float(seconds) for seconds, _ in times):7.1f} s  in all")
