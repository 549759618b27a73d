"""Warnings of the checks before a campaign on many hosts, as the report tells them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.collect.hosts.warnings import MOST, host_warnings
from seatrial.records.check import Check
from seatrial.records.codec import to_json

SLOW = Check(name="link speed on node2", ok=False, found="0.2 MiB/s", prevents="x", fix="See its cable", refuses=False, hosts=("node2",))
SOUND = Check(name="link speed on node1", ok=True, found="900 MiB/s", prevents="x", hosts=("node1",))
LOCAL = Check(name="load", ok=False, found="9", prevents="x", refuses=False)


def told(folder: Path, *checks: Check) -> list[str]:
    (folder / "preflight.json").write_text(json.dumps([to_json(check) for check in checks]))
    return [caution.text for caution in host_warnings(folder / "preflight.json")]


def test_what_was_amiss_on_a_host_is_told_and_nothing_else(tmp_path: Path) -> None:
    (text,) = told(tmp_path, SOUND, SLOW, LOCAL)
    assert text == "Before the campaign, link speed on node2: 0.2 MiB/s. It may show in the figures (x). See its cable."
    assert len(told(tmp_path, *[SLOW] * 40)) == MOST


@pytest.mark.parametrize("text", ["", "{", "3", "[1, {}]", '{"hosts": 1}'])
def test_a_file_that_cannot_be_read_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "preflight.json").write_text(text)
    assert list(host_warnings(tmp_path / "preflight.json")) == []
    assert list(host_warnings(tmp_path / "none.json")) == []
