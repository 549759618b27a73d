"""preflight.json, the refusal and the warnings of a campaign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.campaign import preflight
from seatrial.core.errors import RefusedError
from seatrial.core.paths import CampaignPaths
from seatrial.records.caution import Check
from seatrial.records.plan import CampaignPlan

OK = Check(name="ports", ok=True, found="can be bound", prevents="x")
WARNED = Check(name="shared memory", ok=False, found="64 MiB", prevents="Bus error", fix="more of it", refuses=False)
REFUSED = Check(name="script t.py", ok=False, found="no such file", prevents="can't open file", fix="name it")


def checked(found: list[Check], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Check, ...]:
    monkeypatch.setattr(preflight, "fast_checks", lambda need: found)
    return preflight.run_preflight(CampaignPlan(name="p", output=str(folder)), CampaignPaths(folder)).warnings


def test_warnings_are_returned_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked([OK, WARNED], tmp_path, monkeypatch) == (WARNED,)
    stored = json.loads((tmp_path / "preflight.json").read_text())
    assert [(check["name"], check["ok"], check["refuses"]) for check in stored] == [("ports", True, True), ("shared memory", False, False)]


def test_a_refusal_names_what_refuses_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError) as refused:
        checked([OK, WARNED, REFUSED], tmp_path, monkeypatch)
    assert str(refused.value) == (
        "refused before anything was started:\n  script t.py: no such file. Would end in: can't open file. Fix: name it."
    )
    assert refused.value.exit_code == 2 and (tmp_path / "preflight.json").exists()
