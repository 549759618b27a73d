"""The driver: from variables and words to plans that are run, with the harness stood in for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.cli import carry_out as harness
from seatrial.disk.fallback import VARIABLE as FALLBACK_DIR
from seatrial.errors import RefusedError
from seatrial.records.campaign_plan import CampaignPlan
from seatrial_runbooks.stage1 import driver
from seatrial_runbooks.stage1.plan_words import in_driver_words
from seatrial_runbooks.stage1.variables import VARIABLES

Call = tuple[CampaignPlan, dict[str, Any]]


class Harness:
    """Stands in for `carry_out`: ends with the codes it is given, one for each plan."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.codes = [0, 0]
        self.failed_runs = 0

    def carry_out(self, plan: CampaignPlan, **options: Any) -> int:
        self.calls.append((plan, options))
        with options["view"](None, options["heartbeat_s"]) as view:
            view.failed = self.failed_runs
        return self.codes[len(self.calls) - 1]

    @property
    def plans(self) -> list[str]:
        return [plan.name for plan, _ in self.calls]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Harness:
    made = Harness()
    monkeypatch.setattr(harness, "carry_out", made.carry_out)
    return made


@pytest.fixture
def drive(folder: Path, small: dict[str, str]) -> Callable[..., int]:
    return lambda *words, **environ: driver.main({**small, **environ}, words)


def test_a_sweep_is_run_and_its_code_returned(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.codes = [2]
    assert drive(HEARTBEAT_EVERY_SEC="7") == 2
    ((plan, options),) = stand_in.calls
    assert [run.run for run in plan.runs] == ["sweep_z0_mb4_nw2_pf2_r1"]
    assert (options["heartbeat_s"], options["again"], options["yes"]) == (7.0, False, True)
    said = capsys.readouterr().out
    assert said.startswith(
        f"[INFO] Output root: {Path.cwd() / 'out'}\n[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=localhost, WORLD_SIZE=2\n"
    )
    assert "[INFO] Dataset: root=tree, manifest=tree/manifest.tsv, use_trim=false, offline_trimmed=true\n" in said


def test_no_resuming_is_running_again(drive: Callable[..., int], stand_in: Harness) -> None:
    drive(RESUME_RUNS="false")
    assert stand_in.calls[0][1]["again"] is True


def test_both_runs_one_after_the_other(drive: Callable[..., int], stand_in: Harness) -> None:
    stand_in.codes = [2, 3]
    assert drive(MODE="both") == 3
    assert stand_in.plans == ["stage1-ab", "stage1-sweep_z0_mb4_nw2_pf2"]


@pytest.mark.parametrize(
    ("codes", "failed_runs", "stop_on_error", "ended", "num_plans"),
    [
        ([130, 0], 0, "0", 130, 1),
        ([1, 0], 0, "0", 1, 1),
        ([2, 2], 1, "1", 2, 1),
        ([2, 2], 1, "0", 2, 2),
        ([3, 0], 0, "1", 0, 2),
    ],
)
def test_both_ends_with_the_first_on_an_interrupt_or_an_error(
    drive: Callable[..., int], stand_in: Harness, codes: list[int], failed_runs: int, stop_on_error: str, ended: int, num_plans: int
) -> None:
    stand_in.codes, stand_in.failed_runs = codes, failed_runs
    assert drive(MODE="both", STOP_ON_ERROR=stop_on_error) == ended
    assert len(stand_in.calls) == num_plans


def test_ranks_inherit_none_of_our_variables(folder: Path, small: dict[str, str], stand_in: Harness) -> None:
    environ = {**small, "TORCH_COMPILE_MODE": "default", "MASTER_PORT": "29500", "NCCL_P2P_DISABLE": "1"}
    assert driver.main(environ, []) == 0
    assert environ == {"NCCL_P2P_DISABLE": "1"}


def test_the_fallback_path_names_a_folder(
    folder: Path, small: dict[str, str], stand_in: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {**small, "MANIFEST_FALLBACK_PATH": "/scratch/me/manifest.tsv"}
    driver.main(environ, [])
    assert environ == {FALLBACK_DIR: f"/scratch/me/seatrial-fallback-{os.getuid()}"}
    assert f"kept in the folder /scratch/me/seatrial-fallback-{os.getuid()}" in capsys.readouterr().out
    environ = {**small, "MANIFEST_FALLBACK_PATH": "/scratch/me/manifest.tsv", FALLBACK_DIR: "/mine"}
    driver.main(environ, [])
    assert environ == {FALLBACK_DIR: "/mine"}
    assert "[WARN] MANIFEST_FALLBACK_PATH has no effect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SWEEP_MICRO_BATCH": "160"}, "[ERROR] SWEEP_MICRO_BATCH is no variable of this driver: did you mean SWEEP_MICRO_BATCHES?\n"),
        ({"INCLUDE": "localhost:0", "WORLD_SIZE": "2"}, "[ERROR] WORLD_SIZE is 2, and INCLUDE=localhost:0 names 1 GPUs"),
        ({"SPEECH_MODEL_PATH": "data/x/y"}, "[ERROR] SPEECH_MODEL_PATH is data/x/y, and there is no such folder"),
        ({"REPEATS": "2000"}, "[ERROR] 2,000 runs are asked for"),
        ({"OUTPUT_ROOT": "x" * 300}, "[ERROR] "),
    ],
)
def test_wrong_use_is_told_and_nothing_is_run(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], environ: dict[str, str], said: str
) -> None:
    assert drive(**environ) == 1
    assert capsys.readouterr().err.startswith(said)
    assert stand_in.calls == [] and sorted(path.name for path in Path.cwd().iterdir()) == ["tree"]


def test_many_runs_that_are_meant_are_run(drive: Callable[..., int], stand_in: Harness) -> None:
    assert drive("--yes", REPEATS="2000") == 0
    assert len(stand_in.calls[0][0].runs) == 2000


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--dryrun", "unknown word '--dryrun': did you mean '--dry-run'?"),
        ("MODE=ab", "unknown word 'MODE=ab': MODE is a variable: put it before the command"),
    ],
)
def test_unknown_words(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], word: str, said: str) -> None:
    assert drive(word) == 1
    assert said in capsys.readouterr().err


def test_help_needs_no_variables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert driver.main({"MODE": "wrong", "DRIVER_LOG_PATH": "log"}, ["--help"]) == 0
    assert all(f"  {name}\n" in capsys.readouterr().out for name in list(VARIABLES)[:1])
    assert not Path("log").exists()


@pytest.mark.parametrize(("words", "environ"), [(["--dry-run"], {}), ([], {"DRY_RUN": "1"})])
def test_a_dry_run_prints_plans_and_commands_and_starts_nothing(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], words: list[str], environ: dict[str, str]
) -> None:
    assert drive(*words, MODE="both", DRIVER_LOG_PATH="out/driver.log", SWEEP_NUM_WORKERS="0", SWEEP_NUM_WORKERS_LIST="1", **environ) == 0
    said = capsys.readouterr().out
    assert "[WARN] SWEEP_NUM_WORKERS has no effect" in said
    assert "   1  old_like_r1\n" in said and "   1  sweep_z0_mb4_nw1_pf2_r1\n" in said
    assert "deepspeed.launcher.runner" in said and "deepspeed_config_yaml.train_micro_batch_size_per_gpu=4" in said
    assert stand_in.calls == [] and sorted(path.name for path in Path.cwd().iterdir()) == ["tree"]


def test_what_a_dry_run_prints_is_a_plan(drive: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    drive("--dry-run")
    text = capsys.readouterr().out.partition("\nstage1-sweep_z0_mb4_nw2_pf2:")[0]
    plan = yaml.safe_load(text)
    assert (plan["name"], plan["steps"]) == ("stage1-sweep_z0_mb4_nw2_pf2", 4)
    assert plan["place"] == {"kind": "local", "ranks": 2, "port_base": 29650}


def test_everything_that_is_printed_is_in_the_log(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    drive(DRIVER_LOG_PATH="logs/a b/driver.log")
    drive(DRIVER_LOG_PATH="logs/a b/driver.log", MODE="wrong")
    shown = capsys.readouterr()
    assert Path("logs/a b/driver.log").read_text() == shown.out + shown.err
    assert "[ERROR] MODE is 'wrong'" in shown.err


def test_a_log_that_is_a_folder_is_refused(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive(DRIVER_LOG_PATH="tree") == 1
    assert "DRIVER_LOG_PATH is tree, which is a folder" in capsys.readouterr().err


def test_the_trainer_lies_in_the_runbook_that_was_started(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("book").mkdir()
    assert drive("--runbook", "book") == 1
    assert "there is no book/train.py" in capsys.readouterr().err
    Path("book/train.py").write_text("")
    assert drive("--runbook", "book") == 0
    assert stand_in.calls[0][0].runs[0].workload.script == str(Path.cwd() / "book" / "train.py")


def test_a_refusal_is_said_in_variables_too(
    drive: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(plan: CampaignPlan, **options: Any) -> int:
        raise RefusedError("refused before anything was started:\n  GPUs: 0 here. Fix: use place: {kind: local, ranks: N}.")

    monkeypatch.setattr(harness, "carry_out", refusing)
    assert drive() == 2
    assert capsys.readouterr().err.endswith(
        "\n  (Here place.include is INCLUDE; CPU ranks are asked for by INCLUDE=localhost and WORLD_SIZE=N.)\n"
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("place.ranks: must be at most 4096", "WORLD_SIZE: must be at most 4096"),
        ("output: one of its names has 300 bytes", "OUTPUT_ROOT: one of its names has 300 bytes"),
        ("the output folder x is a file; choose another with --out", "the output folder x is a file; choose another OUTPUT_ROOT"),
    ],
)
def test_what_the_harness_says_of_a_plan_is_said_of_variables(said: str, meant: str) -> None:
    assert in_driver_words(said) == meant
