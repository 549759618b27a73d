"""preflight.json, the refusal and the warnings of a campaign."""

from __future__ import annotations

import json
from dataclasses import replace
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


def test_noise_of_an_earlier_start_is_kept_for_the_runs_that_were_measured_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = Check(name="other processes", ok=True, found="0.1 of 2 cores in use by others", prevents="x", refuses=False, noise=True)
    busy = replace(quiet, ok=False, found="2.0 of 2 cores in use by others")
    for found in ([busy, WARNED], [quiet], [quiet]):
        warnings = checked(found, tmp_path, monkeypatch)
    assert warnings == (), "it is not so now"
    failed = [check for check in json.loads((tmp_path / "preflight.json").read_text()) if not check["ok"]]
    assert [check["found"] for check in failed] == ["2.0 of 2 cores in use by others (at an earlier start)"]
    checked([busy], tmp_path, monkeypatch)
    assert len(json.loads((tmp_path / "preflight.json").read_text())) == 1


def test_a_refusal_names_what_refuses_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError) as refused:
        checked([OK, WARNED, REFUSED], tmp_path, monkeypatch)
    assert str(refused.value) == (
        "refused before anything was started:\n  script t.py: no such file. Leads to: can't open file. Fix: name it."
    )
    assert refused.value.exit_code == 2 and (tmp_path / "preflight.json").exists()
