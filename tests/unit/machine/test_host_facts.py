from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seatrial.machine import fingerprint, provenance
from seatrial.machine.gpus import Driver
from seatrial.machine.host import cpu_model, host
from seatrial.machine.packages import package_versions, version_of


def test_cpu_model_is_the_first_name_with_single_spaces(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some  CPU   9000\nmodel name\t: Other\n")
    assert cpu_model(info) == "Some CPU 9000"


def test_cpu_without_a_name_still_has_one(tmp_path: Path) -> None:
    assert cpu_model(tmp_path / "none")


def test_host_facts_are_there() -> None:
    facts = host()
    assert facts.name and facts.platform and facts.cpu
    assert facts.cpu_count >= 1
    assert facts.memory_bytes > 2**20


def test_versions_come_without_importing() -> None:
    before = "torch" in sys.modules
    versions = package_versions()
    assert versions["seatrial"] == version_of("seatrial") != ""
    assert "no-such-package" not in versions and version_of("no-such-package") == ""
    assert ("torch" in sys.modules) == before


def test_gathered_in_a_folder_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "read_driver", Driver)
    found = provenance.gather(tmp_path, [])
    assert found.git_commit_hash == "" and found.gpu_name == "" and found.gpu_cc == ""
    assert found.host and found.python and len(found.fingerprint) == fingerprint.HASH_LENGTH
