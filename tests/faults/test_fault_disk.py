"""A disk that fills up, fails or turns read-only under a whole campaign: a small tmpfs, and a preloaded library that fails calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seatrial.core.paths import CampaignPaths
from tests.faults.campaigns import dummy, started_ranks
from tests.faults.disk import Disk, needs_root
from tests.harness import Harness
from tests.stubs import eio
from tests.waiting import wait_until

pytestmark = [needs_root]
PLAN = dummy(steps=300, more="axes: {micro_batch: [4, 8]}")


@pytest.fixture
def disk(harness: Harness) -> Iterator[Disk]:
    one = Disk(harness.folder / "out", "300m")
    yield one
    one.close()


def test_the_disk_fills_up_under_a_run_and_nothing_of_it_is_lost(harness: Harness, disk: Disk) -> None:
    process = harness.start("run", str(harness.plan(PLAN)))
    started_ranks(harness, 2, least_step=50)
    disk.fill()
    wait_until(lambda: process.poll() is not None or fallback_has_grown(harness), "events go elsewhere")
    disk.free()
    assert process.wait(120) == 0, process.stdout.read() if process.stdout else ""
    rows = harness.manifest()
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert all(len(path.read_text().splitlines()) >= 300 for path in harness.out.folder.glob("*/attempt-1/events_rank*.jsonl"))
    assert "merged back" in harness.out.summary_md.read_text()


def fallback_has_grown(harness: Harness) -> bool:
    return any("events_rank" in path.name for path in harness.fallback.rglob("*"))


def test_a_disk_that_stays_full_ends_the_campaign_with_one_sentence_and_it_resumes(harness: Harness, disk: Disk) -> None:
    process = harness.start("run", str(harness.plan(PLAN)))
    started_ranks(harness, 2, least_step=50)
    disk.fill()
    text = process.communicate(timeout=200)[0]
    assert process.returncode == 1, text
    # Where there was a page left for the files of the second run, that one ran too, and only the tables have no room.
    assert "No space left" in text and ("the same command" in text or "seatrial report" in text) and "Traceback" not in text
    disk.free()
    harness.run("run", str(harness.plan(PLAN)))
    assert {row["outcome"] for row in harness.manifest() if row["current"] == "true"} == {"ok"}


def test_a_folder_turned_read_only(harness: Harness, disk: Disk) -> None:
    process = harness.start("run", str(harness.plan(PLAN)))
    started_ranks(harness, 2, least_step=50)
    disk.set_writable(False)
    text = process.communicate(timeout=200)[0]
    assert process.returncode == 1 and "Read-only" in text and "Traceback" not in text
    disk.set_writable(True)
    harness.run("run", str(harness.plan(PLAN)))
    assert {row["outcome"] for row in harness.manifest() if row["current"] == "true"} == {"ok"}


def test_an_input_output_error_on_the_manifest(harness: Harness) -> None:
    env = eio.environment("run_manifest.tsv")
    text = harness.run("run", str(harness.plan(PLAN)), env=env)
    assert "Traceback" not in text
    harness.run("report", "out")
    rows = harness.manifest()
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert CampaignPaths(harness.folder / "out").verdict.exists()
    assert (
        "run_manifest.tsv" in harness.out.summary_md.read_text() and "written to the fallback folder" in harness.out.summary_md.read_text()
    )
