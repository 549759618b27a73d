"""The lane's mark, and clusters that end with their test.

Where hosts cannot be created tests are skipped with the reason; under CI=1 they fail, since a skipped lane would show nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.campaigns import Campaign
from tests.cluster.hosts import Hosts, cluster
from tests.cluster.machines import unavailable

Build = Callable[..., Hosts]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def _reason() -> str:
    return unavailable()


@pytest.fixture(autouse=True)
def _possible(_reason: str) -> None:
    if _reason:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"no hosts can be created here: {_reason}")


@pytest.fixture
def build(_possible: None, tmp_path: Path, shared_root: Path) -> Iterator[Build]:
    """`build(nodes=2, tcp_retries2=5)` → Hosts, in `tmp_path`; the temporary folders of pytest are shared by the hosts."""
    with contextlib.ExitStack() as stack:

        def builder(nodes: int, **how: Any) -> Hosts:
            return stack.enter_context(cluster(nodes, tmp_path, shared=[shared_root], **how))

        yield builder


@pytest.fixture
def hosts(build: Build) -> Hosts:
    """head, node1 and node2."""
    return build(nodes=2)


@pytest.fixture
def campaign(hosts: Hosts, tmp_path: Path) -> Iterator[Campaign]:
    """A campaign that must leave no process on any host."""
    campaign = Campaign(hosts, tmp_path)
    yield campaign
    campaign.assert_nothing_left()
