"""A pytest plugin for mutmut: node ids as it expects them, and no collection that leaves polars' threads running.

mutmut 3.8 reads `_nodeid` of each test, a private attribute that pytest 9.2 no longer has. It forks a child per mutant after collection:
a thread pool that a test module started at import is gone in the child, which then waits for it until its timeout and counts as killed.
"""

from pathlib import Path

import pytest

# Neither in __slots__ nor used by pytest itself: nothing is overridden.
pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    threads = {task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    if "polars-0" in threads:
        raise pytest.UsageError(f"{report.nodeid} uses polars at import: build its tables inside the tests")
