"""The benchmark driver from variables to campaigns."""

from __future__ import annotations

import ast
import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

from seatrial.analyse.comparable import comparable
from seatrial.analyse.confounding import CONFOUNDED
from seatrial.analyse.groups import summarise_groups
from seatrial.campaign import preflight as campaign_preflight
from seatrial.campaign.preflight import run_preflight
from seatrial.cli import run as harness
from seatrial.cli.run import RunOptions, execute
from seatrial.core.errors import PlanError, RefusedError, UsageError
from seatrial.core.fallback import FALLBACK_DIR
from seatrial.core.paths import CampaignPaths
from seatrial.machine.gpus import Driver
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.plan.schema import Place
from seatrial.preflight.needed_campaign import check_needed
from seatrial.records.plan import CampaignPlan, LimitsSpec, TelemetrySpec, TimingSpec
from seatrial_runbooks.stage1 import driver, preflight
from seatrial_runbooks.stage1.driver_output import (
    PLAN_KEYS,
    REMEDIES,
    DriverView,
    driver_view,
    plan_error_in_variables,
    plan_terms_as_variables,
)
from seatrial_runbooks.stage1.preflight import check_baseline, check_runnable
from seatrial_runbooks.stage1.to_plan import plan_mappings
from seatrial_runbooks.stage1.variables import VARIABLES, read
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.runbooks.conftest import NOW, SMALL

Call = tuple[CampaignPlan, RunOptions]


class Harness:
    """Stands in for `execute`: ends with the codes it is given, one for each plan."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.codes = [0, 0]
        self.failed_runs = 0

    def execute(self, plan: CampaignPlan, how: RunOptions) -> int:
        self.calls.append((plan, how))
        with how.view(None, how.heartbeat_s) as view:
            view.failed = self.failed_runs
        return self.codes[len(self.calls) - 1]

    @property
    def plans(self) -> list[str]:
        return [plan.name for plan, _ in self.calls]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Harness:
    made = Harness()
    monkeypatch.setattr(harness, "execute", made.execute)
    return made


@pytest.fixture
def drive(folder: Path, small: dict[str, str]) -> Callable[..., int]:
    return lambda *argv, **environ: driver.main({**small, **environ}, argv)


def test_a_sweep_is_run_and_its_code_returned(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.codes = [2]
    assert drive(HEARTBEAT_EVERY_SEC="7") == 2
    ((plan, how),) = stand_in.calls
    assert [run.run for run in plan.runs] == ["sweep_z0_mb4_nw2_pf2_r1"]
    assert (how.heartbeat_s, how.again, how.yes) == (7.0, False, True)
    text = capsys.readouterr().out
    assert text.startswith(
        f"[INFO] Output root: {Path.cwd() / 'out'}\n[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=localhost, WORLD_SIZE=2\n"
    )
    assert "[INFO] Dataset: root=tree, manifest=tree/manifest.tsv, use_trim=false, offline_trimmed=true\n" in text


def test_no_resuming_is_running_again(drive: Callable[..., int], stand_in: Harness) -> None:
    drive(RESUME_RUNS="false")
    assert stand_in.calls[0][1].again is True


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
    assert f"go to /scratch/me/seatrial-fallback-{os.getuid()}" in capsys.readouterr().out
    environ = {**small, "MANIFEST_FALLBACK_PATH": "/scratch/me/manifest.tsv", FALLBACK_DIR: "/mine"}
    driver.main(environ, [])
    assert environ == {FALLBACK_DIR: "/mine"}
    assert "[WARN] MANIFEST_FALLBACK_PATH has no effect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"SWEEP_MICRO_BATCH": "160"}, "[ERROR] SWEEP_MICRO_BATCH is not a variable of this driver: did you mean SWEEP_MICRO_BATCHES?\n"),
        ({"INCLUDE": "localhost:0", "WORLD_SIZE": "2"}, "[ERROR] WORLD_SIZE is 2, and INCLUDE=localhost:0 has 1 GPUs"),
        ({"SPEECH_MODEL_PATH": "data/x/y"}, "[ERROR] SPEECH_MODEL_PATH is data/x/y, and there is no such folder"),
        ({"REPEATS": "2000"}, "[ERROR] 2,000 runs requested"),
        ({"OUTPUT_ROOT": "x" * 300}, "[ERROR] OUTPUT_ROOT: "),
        ({"INCLUDE": "localhost:1,0"}, "[ERROR] INCLUDE: launcher deepspeed takes GPUs in rising order; write localhost:0,1"),
        ({"DRIVER_LOG_PATH": "tree"}, "[ERROR] DRIVER_LOG_PATH is tree, which is a folder: give a file, such as tree/driver.log"),
    ],
)
def test_wrong_use_is_reported_and_nothing_is_run(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], environ: dict[str, str], text: str
) -> None:
    assert drive(**environ) == 1
    assert capsys.readouterr().err.startswith(text)
    assert stand_in.calls == [] and sorted(path.name for path in Path.cwd().iterdir()) == ["tree"]


def test_many_runs_that_are_meant_are_run(drive: Callable[..., int], stand_in: Harness) -> None:
    assert drive("--yes", REPEATS="2000") == 0
    assert len(stand_in.calls[0][0].runs) == 2000


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--dryrun", "unknown argument '--dryrun': did you mean '--dry-run'?"),
        ("MODE=ab", "unknown argument 'MODE=ab': MODE is a variable: put it before the command"),
    ],
)
def test_unknown_arguments(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], argument: str, text: str
) -> None:
    assert drive(argument) == 1
    assert text in capsys.readouterr().err


def test_help_needs_no_variables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert driver.main({"MODE": "wrong", "DRIVER_LOG_PATH": "log"}, ["--help"]) == 0
    assert all(f"  {name}\n" in capsys.readouterr().out for name in list(VARIABLES)[:1])
    assert not Path("log").exists()


@pytest.mark.parametrize(("argv", "environ"), [(["--dry-run"], {}), ([], {"DRY_RUN": "1"})])
def test_a_dry_run_prints_plans_and_commands_and_starts_nothing(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], argv: list[str], environ: dict[str, str]
) -> None:
    assert drive(*argv, MODE="both", DRIVER_LOG_PATH="out/driver.log", SWEEP_NUM_WORKERS="0", SWEEP_NUM_WORKERS_LIST="1", **environ) == 0
    text = capsys.readouterr().out
    assert "[WARN] SWEEP_NUM_WORKERS has no effect" in text
    assert "   1  old_like_r1\n" in text and "   1  sweep_z0_mb4_nw1_pf2_r1\n" in text
    assert "deepspeed.launcher.runner" in text and "deepspeed_config_yaml.train_micro_batch_size_per_gpu=4" in text
    assert text.count("# This plan starts train.py as a script: only the driver knows which of its effective settings may follow") == 2
    assert stand_in.calls == [] and sorted(path.name for path in Path.cwd().iterdir()) == ["tree"]


def test_a_dry_run_needs_neither_data_nor_weights(drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"DATASET_ROOT": "no/tree", "DATASET_MANIFEST_PATH": "", "PRETRAINED_CKPT": "no.pth", "SPEECH_MODEL_PATH": "data/x/y"}
    assert drive(DRY_RUN="1", **missing) == 0
    text = capsys.readouterr().out
    assert "   1  sweep_z0_mb4_nw2_pf2_r1\n" in text and "++dataset.root_dir=no/tree" in text
    assert all(f"[WARN] not here: {name}" in text for name in ("DATASET_ROOT", "PRETRAINED_CKPT", "SPEECH_MODEL_PATH"))
    refused = [line for line in text.splitlines() if line.startswith("would be refused")]
    assert any("correct DATASET_ROOT" in line for line in refused) and not any("settings." in line or "place" in line for line in refused)
    assert drive(**missing) == 1
    assert drive(DRY_RUN="1", EXPERIMENT="nothing_like_it", **missing) == 1, "a configuration that is wrong is wrong here too"


@pytest.mark.parametrize("environ", [{}, {"DRY_RUN": "1"}])
def test_a_name_that_looks_like_a_setting_is_refused_in_a_dry_run_too(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], environ: dict[str, str]
) -> None:
    assert drive(ZERO_STAGE="1", **environ) == 1
    assert states(capsys.readouterr().err, "[ERROR] ZERO_STAGE", "SWEEP_ZERO_STAGES")
    assert drive(ZERO_STAGE="1", IGNORE_UNKNOWN="1", **environ) == 0
    assert states(capsys.readouterr().out, "[WARN] ZERO_STAGE", "SWEEP_ZERO_STAGES", "ignored")


def test_gpus_that_are_not_there_are_one_sentence(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "read_driver", lambda: Driver(problem="no NVIDIA driver"))
    assert drive(INCLUDE="localhost:0,1", WORLD_SIZE="") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[ERROR] INCLUDE is localhost:0,1")
    assert states(line, "no GPU", "no NVIDIA driver", "INCLUDE=localhost WORLD_SIZE=2")
    assert stand_in.calls == [] and drive(INCLUDE="localhost:0,1", WORLD_SIZE="", DRY_RUN="1") == 0


def test_phase_c_is_refused_without_a_phase_b_that_passed(
    drive: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def checking(plan: CampaignPlan, how: RunOptions) -> int:
        run_preflight(plan, CampaignPaths(Path(plan.output)))
        return 0

    monkeypatch.setattr(harness, "execute", checking)
    monkeypatch.setattr(campaign_preflight, "fast_checks", lambda need: list(check_needed(need)))
    assert drive(NEEDS="outputs/phase_b") == 2
    text = capsys.readouterr().err
    assert f"NEEDS={Path.cwd()}/outputs/phase_b: there is no such campaign" in text
    assert "run_phaseb_4090_stability.sh" in text and "IGNORE_NEEDS=1" in text and "--ignore-needs" not in text
    assert drive(NEEDS="outputs/phase_b", IGNORE_NEEDS="1") == 0


@pytest.mark.parametrize("argv", [[], ["--dry-run"]])
def test_what_is_made_the_same_in_all_groups_is_said_with_its_reason(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    assert drive(*argv, SWEEP_ZERO_STAGES="0,3") == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "FAST_PATHS equal: none. Without " in line]
    assert "ZeRO 3" in line and line.startswith("# " if argv else "[INFO] ")
    assert not argv or ("++model.fast_paths=" in text and "equal:none" in text)


def test_runs_of_the_driver_know_what_the_trainer_declares_about_its_settings(drive: Callable[..., int], stand_in: Harness) -> None:
    from seatrial_workloads.contrastive.settings import ALIKE_BY, FOLLOWS

    assert drive(SWEEP_ZERO_STAGES="0,1") == 0
    ((plan, _),) = stand_in.calls
    assert all(run.workload.follows == FOLLOWS and set(run.workload.alike_by) == set(ALIKE_BY) for run in plan.runs)
    remedies = {remedy for run in plan.runs for remedy in run.workload.alike_by.values()}
    assert remedies == {"FAST_PATHS=equal|{common}", "TRAIN_TORCH_ADAM=true"}, "as it is typed here"
    from_variables = resolve_plan(
        plan_from_mapping(plan_mappings(read({**SMALL, "SWEEP_ZERO_STAGES": "0,1"}), Path.cwd(), NOW)[0], "x"), source="x", cwd=Path.cwd()
    )
    assert [run.hash for run in plan.runs] == [run.hash for run in from_variables.runs], "no part of the hash"


def test_groups_of_the_driver_are_confounded_by_a_path_that_one_lost_and_not_by_what_follows_zero(
    drive: Callable[..., int], stand_in: Harness
) -> None:
    def unlike(reported: dict[int, dict[str, tuple[Any, Any, str]]]) -> list[tuple[str, str]]:
        by_stage = {stage: factory.effective(settings) for stage, settings in reported.items()}
        measured = [
            factory.measured(run, measure={"samples_per_s": 100.0 + run.repeat, "effective": by_stage[int(run.axes["zero_stage"])]})
            for run in stand_in.calls[0][0].runs
        ]
        z0, z1 = summarise_groups(measured, "")
        return [(each.setting, each.remedy) for each in comparable(z0, z1).mismatches if each.kind == CONFOUNDED]

    assert drive(SWEEP_ZERO_STAGES="0,1", REPEATS="3") == 0
    on, off = (True, True, "as requested"), (True, False, "not available")
    assert unlike({0: {"overlap_comm": off}, 1: {"overlap_comm": on}}) == []
    lost = {stage: {"front_end": on, "tower_graph": value} for stage, value in ((0, on), (1, off))}
    asked = {name: {"fast_paths": (name, "", "")} for name in ("all", "equal:front_end,tower_graph")}
    for requested, remedy in (("all", "equal"), ("equal:front_end,tower_graph", "front_end")):
        reported = {stage: {**parts, **asked[requested]} for stage, parts in lost.items()}
        assert unlike(reported) == [("tower_graph", f"set FAST_PATHS={remedy}")], "what the two do not have yet"


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


def test_the_trainer_is_in_the_runbook_that_was_started(
    drive: Callable[..., int], stand_in: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("book").mkdir()
    assert drive("--runbook", "book") == 1
    assert "there is no book/train.py" in capsys.readouterr().err
    Path("book/train.py").write_text("")
    assert drive("--runbook", "book") == 0
    assert stand_in.calls[0][0].runs[0].workload.script == str(Path.cwd() / "book" / "train.py")


def test_a_refusal_is_reported_in_variables_too(
    drive: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(plan: CampaignPlan, how: RunOptions) -> int:
        raise RefusedError("refused before anything was started:\n  GPUs: 0 here. Fix: use place: {kind: local, ranks: N}.")

    monkeypatch.setattr(harness, "execute", refusing)
    assert drive() == 2
    assert capsys.readouterr().err.endswith("\n  (Here place.include is INCLUDE; for CPU ranks use INCLUDE=localhost and WORLD_SIZE=N.)\n")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("place.ranks: must be at most 4096", "WORLD_SIZE: must be at most 4096"),
        ("Run it with 2, or start over with --from-start", "Run it with 2, or start over with RESUME_RUNS=false"),
        ("the output folder x is a file; choose another with --out", "the output folder x is a file; choose another OUTPUT_ROOT"),
    ],
)
def test_what_the_harness_says_of_a_plan_is_reported_of_variables(text: str, meant: str) -> None:
    assert plan_terms_as_variables(text) == meant


@pytest.mark.parametrize(
    ("key", "variable"), [("output", "OUTPUT_ROOT"), ("place.ranks", "WORLD_SIZE"), ("place.port_base", "MASTER_PORT_BASE")]
)
def test_an_error_of_the_plan_names_the_variable(key: str, variable: str) -> None:
    error = PlanError("the output: is wrong", file="driver", key=key)
    assert plan_error_in_variables(error, "driver") == f"{variable}: the output: is wrong"


@pytest.mark.parametrize("text", ["output: 3.2", "/data/place.ranks.csv is gone", "my.place.ranks", "x/place.port/y", "--from-start-here"])
def test_paths_and_output_of_the_user_stay_as_they_are(text: str) -> None:
    assert plan_terms_as_variables(text) == text


PLAN_PARTS = {"place": Place, "limits": LimitsSpec, "telemetry": TelemetrySpec, "timing": TimingSpec}


def test_every_key_that_is_reported_as_a_variable_is_one() -> None:
    known = {f"{part}.{name}" for part, model in PLAN_PARTS.items() for name in get_type_hints(model)}
    own = {key for key in PLAN_KEYS if not key.startswith("settings.")}
    assert own <= known


def test_every_remedy_that_is_reported_in_variables_is_one_of_the_harness() -> None:
    source = "".join(text.replace("{{", "{").replace("}}", "}") for text in texts_of_the_harness())
    composed = {"run it first, or start anyway with --ignore-needs", "data dataset_root", "data dataset_manifest_path"}
    assert {term for term in REMEDIES if term not in source} == composed


def texts_of_the_harness() -> Iterator[str]:
    for path in (Path(harness.__file__).parents[1]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{node.value}\n"


SCRIPTS = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts"
DRIVER, PHASEB = SCRIPTS / "run_stage1_ab_bench.sh", SCRIPTS / "run_phaseb_4090_stability.sh"
LONGEST_S = 60
# Tells who it is and what it was started with; says yes where it is asked for an import.
PYTHON = """#!/usr/bin/env bash
[[ ${2:-} == -c ]] && exit "${CANNOT_IMPORT:-0}"
printf '%s|' "$0" "$$" "$@"
"""
# Knows the environment `training`, whose folder is beside it and whose activation prints something.
CONDA = """#!/usr/bin/env bash
[[ $1 == run && $3 == training ]] || { echo "EnvironmentLocationNotFound: Not a conda environment: $3" >&2; exit 1; }
echo "Loading module cuda/12"
shift 3
PATH="$ENV_BIN:$PATH" CONDA_PREFIX=training FROM_CONDA="two
lines 'quoted'" exec "$@"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs of our own, in a path that needs quotes."""
    folder = tmp_path / "my programs"
    (folder / "env").mkdir(parents=True)
    for name, text in (("python", PYTHON), ("conda", CONDA), ("env/python", PYTHON)):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    return folder


def started(script: Path, *argv: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONDA", "SEATRIAL_"))}
    command = ["bash", "-eu", str(script), *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**kept, **environ}, timeout=LONGEST_S)


@pytest.mark.parametrize(("script", "module"), [(DRIVER, "driver"), (PHASEB, "phaseb")])
def test_the_driver_takes_the_place_of_the_script(script: Path, module: str, programs: Path) -> None:
    environment = {**os.environ, "SEATRIAL_PYTHON": str(programs / "python")}
    process = subprocess.Popen([str(script), "--dry-run", "a b"], stdout=subprocess.PIPE, text=True, cwd=programs, env=environment)
    name, pid, *argv = process.communicate(timeout=LONGEST_S)[0].split("|")
    assert (name, int(pid)) == (str(programs / "python"), process.pid)
    assert argv[:-1] == ["-P", "-m", f"seatrial_runbooks.stage1.{module}", "--runbook", str(SCRIPTS.parent), "--dry-run", "a b"]


def test_a_link_to_the_scripts_finds_the_runbook(programs: Path) -> None:
    (programs / "scripts").symlink_to(SCRIPTS)
    done = started(programs / "scripts" / DRIVER.name, cwd=programs, SEATRIAL_PYTHON=str(programs / "python"))
    assert f"--runbook|{SCRIPTS.parent}|" in done.stdout


def test_the_environments_variables_and_python_are_taken_over(programs: Path) -> None:
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "ENV_BIN": str(programs / "env"), "CONDA_ENV": "training"}
    (programs / "env" / "python").write_text(PYTHON + 'printf \'%s|\' "$CONDA_PREFIX" "$FROM_CONDA"\n')
    done = started(DRIVER, cwd=programs, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{programs / 'env' / 'python'}|")
    assert done.stdout.endswith("|training|two\nlines 'quoted'|")


def test_an_environment_that_is_not_there_is_reported(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, CONDA_EXE=str(programs / "conda"), CONDA_ENV="csref_2")
    assert done.returncode == 1
    assert done.stderr.startswith("[ERROR] CONDA_ENV is csref_2, and conda cannot use such an environment (EnvironmentLocationNotFound: ")
    assert "`conda env list` shows those there are" in done.stderr


def test_no_conda_is_reported(programs: Path) -> None:
    path = ":".join(folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "conda").exists())
    done = started(DRIVER, cwd=programs, PATH=path, CONDA_ENV="csref_2")
    assert done.returncode == 1 and done.stderr.startswith("[ERROR] CONDA_ENV is csref_2")
    assert states(done.stderr, "conda", "PATH", "CONDA_EXE", "CONDA_ENV") and done.stderr.count("\n") == 1


def test_a_python_without_seatrial_names_the_command_to_get_it(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, SEATRIAL_PYTHON=str(programs / "python"), CANNOT_IMPORT="1")
    assert done.returncode == 1
    assert states(done.stderr, f"{programs / 'python'}", "seatrial_runbooks", f"{programs / 'python'} -m pip install -e '")
    assert done.stderr.endswith("[stage1]'\n")


def test_a_python_that_is_not_there_is_reported(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, SEATRIAL_PYTHON="/nowhere/python")
    assert done.returncode == 1 and "SEATRIAL_PYTHON is /nowhere/python" in done.stderr


def test_the_real_thing_answers_from_any_folder(tmp_path: Path) -> None:
    done = started(DRIVER, cwd=tmp_path, SEATRIAL_PYTHON=sys.executable, SWEEP_MICRO_BATCH="160")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert states(done.stderr, "[ERROR] SWEEP_MICRO_BATCH", "SWEEP_MICRO_BATCHES")


TRAINER = """
import os, sys
from seatrial.probe import Probe
words = dict(word.split("=", 1) for word in sys.argv[1:])
if words["deepspeed_config_yaml.train_micro_batch_size_per_gpu"] == os.environ.get("FAIL_AT"):
    sys.exit("ValueError: asked to fail")
probe = Probe()
for step in range(int(words["++train.max_step_iterations"])):
    with probe.step(samples=4):
        pass
    probe.loss(1.0)
probe.close()
"""


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """One command of the driver: its exit code, and what it said of runs."""
    (folder / "train.py").write_text(TRAINER)

    def run(again: bool = False, **environ: str) -> tuple[int, list[str]]:
        code, views = 0, list[DriverView]()
        for mapping in plan_mappings(read({**SMALL, "WORLD_SIZE": "1", **environ}), folder, NOW, folder / "train.py"):
            plan = resolve_plan(plan_from_mapping({**mapping, "launcher": "python"}, "test"), source="test", cwd=folder)
            code = execute(plan, RunOptions(again=again, view=driver_view(Path(plan.output), 3, views)))
        text = capsys.readouterr().out.splitlines()
        return code, [" ".join(line.split()[1:4]) for line in text if line.startswith(("[INFO] START", "[INFO] SKIP", "[INFO] DONE"))]

    return run


def groups_in_report(folder: Path) -> list[str]:
    with open(folder / "out" / "group_summary.csv", newline="") as file:
        return sorted(row["group"] for row in csv.DictReader(file))


def manifest(folder: Path) -> list[tuple[str, str, str]]:
    with open(folder / "out" / "run_manifest.tsv", newline="") as file:
        return sorted((row["run"], row["attempt"], row["status"]) for row in csv.DictReader(file, delimiter="\t"))


def text(argument: str, *groups: str) -> list[str]:
    return [f"{argument} sweep_{group}_nw2_pf2 r1:" for group in groups]


def test_a_second_sentinel_is_appended_and_a_longer_list_resumes(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    first = command(SWEEP_MICRO_BATCHES="4")
    second = command(SWEEP_ZERO_STAGES="1", SWEEP_MICRO_BATCHES="6")
    assert (first, second) == (
        (0, [*text("START", "z0_mb4"), *text("DONE", "z0_mb4")]),
        (0, [*text("START", "z1_mb6"), *text("DONE", "z1_mb6")]),
    )
    assert groups_in_report(folder) == ["sweep_z0_mb4_nw2_pf2", "sweep_z1_mb6_nw2_pf2"]

    code, lines = command(SWEEP_ZERO_STAGES="0,1", SWEEP_MICRO_BATCHES="4,6")
    assert code == 0
    # What is finished is said first, then the rest is run.
    assert lines[:2] == text("SKIP", "z0_mb4", "z1_mb6")
    assert lines[2:] == [line for group in ("z0_mb6", "z1_mb4") for line in (*text("START", group), *text("DONE", group))]
    assert len(groups_in_report(folder)) == 4
    assert manifest(folder) == [(f"sweep_z{z}_mb{mb}_nw2_pf2_r1", "1", "success") for z in (0, 1) for mb in (4, 6)]


def test_other_steps_are_other_runs_and_the_old_ones_stay_on_disk(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    command(SWEEP_MICRO_BATCHES="4")
    code, lines = command(SWEEP_MICRO_BATCHES="4", MAX_STEPS="5")
    assert (code, lines[0]) == (0, "START sweep_z0_mb4_nw2_pf2 r1:")
    # The same matrix: the newer plan takes the place of the older one, whose attempt no longer counts.
    assert groups_in_report(folder) == ["sweep_z0_mb4_nw2_pf2"]
    assert manifest(folder) == [("sweep_z0_mb4_nw2_pf2_r1", "1", "success"), ("sweep_z0_mb4_nw2_pf2_r1", "2", "success")]


def test_plans_that_overlap_are_both_reported(folder: Path, command: Callable[..., tuple[int, list[str]]]) -> None:
    command(SWEEP_MICRO_BATCHES="4")
    command(SWEEP_MICRO_BATCHES="4,6", MAX_STEPS="5")
    names = groups_in_report(folder)
    assert len(names) == 3 and [name.partition("~")[0] for name in names] == ["sweep_z0_mb4_nw2_pf2"] * 2 + ["sweep_z0_mb6_nw2_pf2"]


def test_a_failure_of_the_first_command_counts_in_the_second(
    folder: Path, command: Callable[..., tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", "4")
    assert command(SWEEP_MICRO_BATCHES="4")[0] == 2
    assert command(SWEEP_MICRO_BATCHES="6")[0] == 2
    monkeypatch.delenv("FAIL_AT")
    assert command(SWEEP_MICRO_BATCHES="4")[0] == 0
    assert ("sweep_z0_mb4_nw2_pf2_r1", "2", "success") in manifest(folder)


Plans = Callable[..., list[CampaignPlan]]


@pytest.fixture
def problem(plans: Plans, folder: Path) -> Callable[..., str]:
    """What is said of some variables; empty for nothing."""

    def of(**environ: str) -> str:
        try:
            check_runnable(plans(**environ), read({**SMALL, **environ}), folder)
        except UsageError as error:
            return str(error)
        return ""

    return of


def test_what_can_work_is_let_pass(problem: Callable[..., str]) -> None:
    assert problem() == problem(MODE="both") == ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"DATASET_ROOT": "nowhere", "DATASET_MANIFEST_PATH": ""},
            "DATASET_ROOT: there is no folder nowhere: run seatrial prepare librispeech",
        ),
        (
            {"DATASET_MANIFEST_PATH": "wrong.tsv"},
            "DATASET_MANIFEST_PATH: there is no manifest wrong.tsv; tree has one: use DATASET_MANIFEST_PATH=tree/manifest.tsv",
        ),
        (
            {"DATASET_MANIFEST_PATH": "", "LIBRISPEECH_MANIFEST_PATH": "wrong.tsv"},
            "LIBRISPEECH_MANIFEST_PATH: there is no manifest wrong.tsv; tree has one: use LIBRISPEECH_MANIFEST_PATH=tree/manifest.tsv",
        ),
        (
            {"PRETRAINED_CKPT": "gone.pth"},
            "PRETRAINED_CKPT is gone.pth, and there is no such file: correct it, or use none",
        ),
        (
            {"SPEECH_MODEL_PATH": "data/weights/wav2vec2-base"},
            "SPEECH_MODEL_PATH is data/weights/wav2vec2-base, and there is no such folder: put its weights there, or use base or tiny for "
            "random weights",
        ),
        ({"TEXT_MODEL_PATH": "tinny"}, "TEXT_MODEL_PATH is tinny, and there is no such folder: did you mean 'tiny'?"),
        ({"TEXT_MODEL_PATH": "tree/bert"}, "TEXT_MODEL_PATH is tree/bert, and there is no such folder: put its weights there"),
        ({"PRECISION_MODE": "fp16"}, "PRECISION_MODE is fp16, and INCLUDE=localhost runs on the CPU"),
        ({"MODEL_LOAD_DTYPE": "fp16"}, "MODEL_LOAD_DTYPE is fp16, and INCLUDE=localhost runs on the CPU"),
        ({"EXPERIMENT": "limit_longest_1-3_stage"}, "EXPERIMENT: there is no experiment 'limit_longest_1-3_stage': did you mean"),
        ({"SWEEP_MICRO_BATCHES": "4,1"}, "SWEEP_MICRO_BATCHES is 1: the contrastive loss needs negatives"),
        ({"MODE": "ab", "AB_MICRO_BATCH": "1"}, "AB_MICRO_BATCH is 1: the contrastive loss needs negatives"),
        ({"FAST_PATHS": "al"}, "FAST_PATHS is 'al'; expected all, none, equal, or parts such as front_end,positions: did you mean 'all'?"),
        ({"FAST_PATHS": "tower_graph"}, "FAST_PATHS names tower_graph, which is not available: no GPU: INCLUDE names none; leave it"),
        ({"TRAIN_ENGINE": "ddp", "SWEEP_ZERO_STAGES": "1"}, "SWEEP_ZERO_STAGES is 1, and ddp has no ZeRO: use TRAIN_ENGINE=deepspeed, or"),
        ({"TRAIN_WARMUP_STEPS": "999999"}, "TRAIN_WARMUP_STEPS (999999) must be below TRAIN_SCHEDULE_STEPS (100000)"),
        ({"TRAIN_BETAS": "0.9,1.2"}, "TRAIN_BETAS[1] is 1.2; it must be at least 0 and below 1"),
        ({"LENGTH_BUCKET_BOUNDARIES_SEC": "2,1"}, "LENGTH_BUCKET_BOUNDARIES_SEC is '2.0,1.0'; expected increasing seconds"),
        ({"ENABLE_LENGTH_FIXED_SLICE": "true", "FIXED_SLICE_SECONDS": "0.01"}, "FIXED_SLICE_SECONDS is 0.01: the speech encoder"),
        (
            {"ENABLE_LENGTH_BUCKET": "true", "DATASET_USE_TRIM": "true", "DATASET_OFFLINE_TRIMMED": "false"},
            "ENABLE_LENGTH_BUCKET need the final length, and DATASET_USE_TRIM changes it while loading",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_names_its_variable(problem: Callable[..., str], environ: dict[str, str], expected: str) -> None:
    assert problem(**environ).startswith(expected)


def test_a_model_that_may_be_on_a_hub_is_let_pass(problem: Callable[..., str]) -> None:
    assert problem(SPEECH_MODEL_PATH="facebook/wav2vec2-base", TEXT_MODEL_PATH="bert-base-uncased") == ""


def test_all_of_it_is_reported_each_once(problem: Callable[..., str]) -> None:
    text = problem(MODE="both", SWEEP_MICRO_BATCHES="4,8", DATASET_ROOT="nowhere", PRETRAINED_CKPT="gone.pth").splitlines()
    assert text[0] == "the runs would fail:"
    assert [line.split()[0] for line in text[1:]] == ["DATASET_ROOT:", "PRETRAINED_CKPT"]


def test_a_baseline_must_be_a_group(plans: Callable[..., list[CampaignPlan]], folder: Path) -> None:
    made = plans()
    for baseline in ("sweep_z0_mb4_nw2_pf2", "old_like"):
        check_baseline(made, read({**SMALL, "BASELINE_GROUP": baseline}))
    with pytest.raises(UsageError, match=r"BASELINE_GROUP is sweep_z0_mb4_nw2_pf3.*did you mean"):
        check_baseline(made, read({**SMALL, "BASELINE_GROUP": "sweep_z0_mb4_nw2_pf3"}))
    (Path(made[0].output) / "sweep_z0_mb4_nw2_pf3_r1").mkdir(parents=True)
    check_baseline(made, read({**SMALL, "BASELINE_GROUP": "sweep_z0_mb4_nw2_pf3"}))


def test_a_python_without_hydra_names_what_to_install(problem: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)
    monkeypatch.delitem(sys.modules, "seatrial_workloads.contrastive.hydra_config.compose", raising=False)
    assert problem() == preflight.NEEDS_HYDRA
