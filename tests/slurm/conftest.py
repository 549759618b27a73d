"""The lane's mark, and a Slurm for each module's tests.

Where Slurm cannot be started tests are skipped with the reason; under CI=1 they fail, since a skipped lane would show nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import machines
from tests.slurm import controller
from tests.slurm.campaigns import JobCampaign
from tests.slurm.controller import SlurmCluster, slurm

# Five workers take a file each, in this order, so that all end together; the first is one long test, and its worker gets the sixth too.
ORDER = ("time_limit", "allocations", "faults", "queue", "runs", "launchers", "sft", "harness", "accounting", "ranks", "fixture")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    own = [item for item in items if here in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.slurm)
    places = {name: place for place, name in enumerate(ORDER)}
    own.sort(key=lambda item: places.get(item.path.stem.removeprefix("test_"), len(ORDER)))
    items[:] = [item for item in items if here not in item.path.parents] + own


def require_slurm() -> None:
    reason = machines.unavailable() or controller.unavailable()
    if reason:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"no Slurm can be started here: {reason}")


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory, shared_root: Path) -> Iterator[SlurmCluster]:
    """Two nodes; the temporary folders of pytest are shared by the hosts."""
    require_slurm()
    with slurm(tmp_path_factory.mktemp("slurm"), shared=[shared_root]) as cluster:
        yield cluster


@pytest.fixture
def campaign(slurm_cluster: SlurmCluster, tmp_path: Path) -> Iterator[JobCampaign]:
    """However it ends, no job and no process may be left."""
    campaign = JobCampaign(slurm_cluster, tmp_path)
    try:
        yield campaign
        campaign.assert_nothing_left()
    finally:
        # A test that failed must not keep the nodes from the next.
        slurm_cluster.run("scancel", "--user=root", check=False)
