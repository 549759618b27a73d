"""Slurm's checks before a job is submitted, with stand-ins for its programs; the real ones are in tests/slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.preflight import slurm
from seatrial.preflight.definitions import Need
from seatrial.records.plan import SLURM, PlaceSpec

NO_CONFIGURATION = "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a configuration source"
NO_CONTROLLER = "sinfo: error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(("stderr", "failed"), [(NO_CONFIGURATION, ["Slurm's configuration"]), (NO_CONTROLLER, ["Slurm's controller"])])
def test_programs_without_a_cluster_are_refused_and_a_silent_controller_is_waited_for(
    stderr: str, failed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in slurm.PROGRAMS:
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{stderr}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    need = Need(output=Path.cwd(), jobs=(PlaceSpec(kind=SLURM),), caller={"PATH": str(tmp_path)})
    checks = [check for check in slurm.check_slurm(need) if check.name != slurm.VISIBLE.name]
    assert [check.name for check in checks if not check.ok] == failed
