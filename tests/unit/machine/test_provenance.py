"""Everything gathered together: what is passed in is recorded masked, and the code is this folder's."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from seatrial.machine import provenance
from seatrial.machine.gpus import Driver
from seatrial.machine.provenance import gather
from seatrial.records.command import Provenance


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "read_driver", Driver)


def _commit(folder: Path) -> None:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    for words in (["init"], ["add", "."], [*identity, "commit", "-m", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_variables_are_recorded_in_name_order_and_masked(tmp_path: Path) -> None:
    found = gather(
        tmp_path,
        [],
        tuning={"NCCL_NET_TOKEN": "hunter2", "NCCL_ALGO": "Ring"},
        environment={"TORCH_HOME": "/t", "HF_TOKEN": "hunter2", "HTTP_PROXY": "http://me:hunter2@h"},
        plan_hash="abc",
    )
    assert found.variables == {"NCCL_ALGO": "Ring", "NCCL_NET_TOKEN": "***"}
    assert found.environment == {"HF_TOKEN": "***", "HTTP_PROXY": "http://me:***@h", "TORCH_HOME": "/t"}
    assert list(found.environment) == sorted(found.environment)
    assert found.plan_hash == "abc"


def test_uncommitted_code_parts_two_runs_and_results_do_not(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out"
    out.mkdir()
    for path in (script, out / "old.csv"):
        path.write_text("1\n")
    _commit(tmp_path)
    first = gather(tmp_path, [], output=out)
    (out / "new.csv").write_text("2\n")
    (out / "old.csv").write_text("2\n")
    second = gather(tmp_path, [], output=out)
    assert (second.git_dirty, second.git_diff_sha256) == ("false", "")
    assert second.fingerprint == first.fingerprint
    script.write_text("2\n")
    changed = gather(tmp_path, [], output=out)
    assert changed.git_diff_sha256 and changed.fingerprint != first.fingerprint


def test_versions_of_cuda_come_from_the_runs_variables_too(tmp_path: Path) -> None:
    found = gather(tmp_path, [], program=("/bin/ls",), env={"PATH": "/bin", "NCCL_VERSION": "2.28.3", "CUDNN_VERSION": "9.13.0"})
    assert (found.cuda, found.cudnn, found.nccl) == ("", "9.13.0", "2.28.3")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Provenance)])
def test_every_field_is_described(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    section = page.partition("\n## provenance.json\n")[2].partition("\n## ")[0]
    assert f"`{name}`" in section
