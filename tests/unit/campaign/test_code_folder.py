"""Where a run's code lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.code_folder import code_folder
from seatrial.records.run_spec import WorkloadSpec
from tests.unit.records.test_codec import spec


@pytest.mark.parametrize(
    ("script", "args", "folder"),
    [
        ("train.py", (), "."),
        ("repo/train.py", (), "repo"),
        ("python", ("-u", "repo/train.py", "--data", "other.py"), "repo"),
        ("repo/no_such.py", (), "."),
        ("my_program", ("repo",), "."),
    ],
)
def test_it_is_the_script_s_folder(tmp_path: Path, script: str, args: tuple[str, ...], folder: str) -> None:
    (tmp_path / "repo").mkdir()
    for name in ("train.py", "repo/train.py", "other.py"):
        (tmp_path / name).write_text("")
    run = replace(spec(), cwd=str(tmp_path), workload=WorkloadSpec(name="x", script=script, args=args))
    assert code_folder(run).resolve() == (tmp_path / folder).resolve()
