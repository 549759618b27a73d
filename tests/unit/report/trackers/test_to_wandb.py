"""Runs in wandb's offline files, read back through wandb's own messages."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.report.trackers import to_wandb
from tests.unit.report.trackers import sent

BLOCK_BYTES = 32 * 1024
WHOLE, LAST = 1, 4


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for name in ("WANDB_DIR", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**to_wandb._ENVIRONMENT, "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / "wandb-home"))
    # Not while tests are collected: it takes seconds to load.
    pytest.importorskip("wandb")
    yield
    end_service()


def end_service() -> None:
    """It writes behind the library's back, until it is told to end."""
    import wandb

    wandb.teardown()


def records(folder: Path) -> list[Any]:
    """Every record of one .wandb file: LevelDB's log format, after a header of seven bytes, around wandb's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    end_service()
    (path,) = folder.glob("*.wandb")
    data, at, parts, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < 7:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (WHOLE, LAST):
            found.append(Record.FromString(parts))
            parts = b""
    return found


def history(found: list[Any]) -> list[dict[str, Any]]:
    rows = [record.history for record in found if record.WhichOneof("record_type") == "history"]
    return [{item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_a_run_with_everything_in_it(tmp_path: Path) -> None:
    tracker = to_wandb.open_tracker(tmp_path)
    tracker.send_run(sent.run())
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found = records(folder)
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.display_name, run.run_group, run.job_type, run.project) == (
        sent.run().key,
        "mb8_r1",
        "smoke",
        "mb8",
        "seatrial",
    )
    assert {item.key: json.loads(item.value_json) for item in run.config.update}["micro_batch"] == 8
    rows = history(found)
    assert [row["wall_iter_ms"] for row in rows if "wall_iter_ms" in row] == [10.0 + step for step in range(50)]
    assert [row["telemetry/gpu0/power_w"] for row in rows if "telemetry/gpu0/power_w" in row] == [302.0, 304.0]
    assert "offline" in tracker.where


def test_sending_again_leaves_one_run(tmp_path: Path) -> None:
    to_wandb.open_tracker(tmp_path).send_run(sent.run())
    end_service()
    to_wandb.open_tracker(tmp_path).send_run(sent.run(steps=sent.run().steps[:3]))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert len([row for row in history(records(folder)) if "wall_iter_ms" in row]) == 3


def test_the_campaign_is_one_run_with_the_report(tmp_path: Path) -> None:
    to_wandb.open_tracker(tmp_path).send_campaign(sent.campaign(name="smoke+more"))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found = records(folder)
    (artifact,) = [record.artifact for record in found if record.WhichOneof("record_type") == "artifact"]
    assert artifact.name == "smoke_more-report" and [entry.path for entry in artifact.manifest.contents] == ["summary.md"]


def test_without_a_key_the_user_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="wandb login"):
        to_wandb.open_tracker(tmp_path)
