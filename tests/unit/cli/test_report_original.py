"""`seatrial report`, `export` and `diff` on a folder of the original scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign

FAILED = OriginalAttempt(status="failed", exit_code=1, last_step=100, launcher_lines=("torch.OutOfMemoryError: CUDA out of memory.",))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [sweep_run(repeat=number) for number in (1, 2)]
    folder = tmp_path_factory.mktemp("original") / "bench_2x4090"
    return write_original_campaign(folder, *runs, sweep_run(0, 160, attempts=(FAILED, OriginalAttempt())), torn_line=True, own_tables=True)


def test_the_head_says_what_it_was_made_of(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = (bench / "summary.md").read_text()
    assert run_command(["report", str(bench)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Made from the folder that the original stage-1 scripts wrote,") and "512.0" in out and "Verdict: PASS" in out
    assert out.count("original stage-1 scripts wrote") == 1 and "torn" in out
    page = (bench / "seatrial" / "summary.md").read_text()
    assert page.startswith("# Sea trial: original-stage1-scripts") and "Made from the folder that the original" in page
    assert (bench / "summary.md").read_text() == own and not (bench / "plan.json").exists()


def test_machines_get_the_same(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(bench), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "PASS"
    summary = json.loads((bench / "seatrial" / "summary.json").read_text())
    assert summary["tail_points"] == 20 and summary["cautions"][0]["kind"] == "original_scripts"


def test_the_translation_itself_can_be_named(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["report", str(bench)])
    capsys.readouterr()
    assert run_command(["report", str(bench / "seatrial")]) == 0
    assert "original stage-1 scripts" in capsys.readouterr().out


def test_failures_set_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(FAILED,)))
    assert run_command(["report", str(tmp_path)]) == 2
    assert "cuda_oom" in capsys.readouterr().out


def test_tables_are_exported(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(bench), "manifest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Four attempts: one of them failed and was made again.
    assert len(lines) == 1 + 4 and lines[0].startswith("mode,group,repeat,status")


def test_runs_are_compared(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(bench / name) for name in ("sweep_z0_mb128_nw6_pf4_r1", "sweep_z0_mb160_nw6_pf4_r1")]
    assert run_command(["diff", *runs]) == 0
    assert "128 → 160" in capsys.readouterr().out


def test_what_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run_manifest.tsv").write_text("group\trepeat\tstatus\n")
    assert run_command(["report", str(tmp_path)]) == 1
    assert "holds no run that can be read" in capsys.readouterr().err
