"""Settings of workloads: from files and flags, checked with the remedy named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest

from seatrial_workloads.common.settings_file import load_settings
from seatrial_workloads.dummy.settings import Settings as DummySettings
from seatrial_workloads.tiny_lm.settings import Settings as TinyLMSettings

BOTH = pytest.mark.parametrize("kind", [DummySettings, TinyLMSettings])


@pytest.fixture(autouse=True)
def by_hand(monkeypatch, tmp_path):
    for name in ("SEATRIAL_RUN_DIR", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_file_gives_settings_and_flags_stand_over_it(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"steps": 50, "micro_batch": 16, "eval_every": 10, "lr": 1}))
    start = load_settings(TinyLMSettings, ["--settings", str(file), "--micro_batch", "32", "--eval_every", "never", "--compile", "true"])
    settings = start.settings
    assert (settings.steps, settings.micro_batch, settings.eval_every, settings.compile, settings.lr) == (50, 32, None, True, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mikro_batch": 1}, "unknown setting 'mikro_batch': did you mean 'micro_batch'?"),
        ({"micro_batch": "8"}, "micro_batch is '8'; expected a whole number"),
        ({"micro_batch": True}, "micro_batch is True; expected a whole number"),
        ({"steps": None}, "steps is None; expected a whole number"),
        ({"step_ms": float("nan")}, "step_ms is nan; expected a number"),
        ({"loss": "rises"}, "loss is 'rises'; expected one of falls, flat, nan"),
        ([1], "holds list; expected one object of settings"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, capsys, values, message):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(values))
    with pytest.raises(SystemExit) as ended:
        load_settings(DummySettings, ["--settings", str(file)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--steps", "many"], "argument --steps: 'many' is not a whole number"),
        (["--crash_at_step", "soon"], "'soon' is not a whole number, or null for never"),
        (["--stepz", "1"], "unrecognized arguments: --stepz 1"),
        (["--settings", "missing.json"], "No such file"),
    ],
)
def test_wrong_flags_are_named(capsys, argv, message):
    with pytest.raises(SystemExit):
        load_settings(DummySettings, argv)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (DummySettings, {"steps": 0}, "steps is 0; it must be 1 or more"),
        (DummySettings, {"jitter_ratio": 1.0}, "jitter_ratio is 1.0; it must be at least 0 and below 1"),
        (DummySettings, {"slow_factor": 0.0}, r"slow_factor is 0.0; it must be above 0"),
        (DummySettings, {"steps": 5, "crash_at_step": 5}, r"crash_at_step \(5\) lies after the last step \(4\): lower it or raise steps"),
        (DummySettings, {"crash_at_step": -1}, "crash_at_step is -1; it must be 0 or more"),
        (DummySettings, {"exit_code": 300}, "a process can only give back 0 to 255"),
        (TinyLMSettings, {"d_model": 130}, r"d_model \(130\) is not a multiple of n_heads \(4\): use for example d_model=128"),
        (TinyLMSettings, {"precision": "int4"}, "precision is 'int4'; expected one of auto, bf16, fp16, fp32"),
        (TinyLMSettings, {"lr": 0.0}, "lr is 0.0; it must be above 0"),
        (TinyLMSettings, {"eval_every": 0}, "eval_every is 0; it must be 1 or more"),
    ],
)
def test_settings_check_themselves(kind, values, message):
    with pytest.raises(ValueError, match=message):
        kind(**values)


@BOTH
def test_every_setting_has_a_line_of_help_and_settings_are_frozen(kind, capsys):
    with pytest.raises(SystemExit) as ended:
        load_settings(kind, ["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for field in fields(kind):
        after = text.partition(f"--{field.name} {field.name.upper()} ")[2]
        assert after and not after.startswith("("), f"{field.name} has no text"
    with pytest.raises(FrozenInstanceError):
        kind().steps = 3


@BOTH
def test_settings_modules_are_standard_library_only(kind):
    script = f"import sys, {kind.__module__}; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_the_run_folder_is_the_one_given_else_the_harness_s_else_one_of_today(tmp_path, monkeypatch):
    assert load_settings(DummySettings, ["--run-dir", "here"]).run_dir.name == "here"
    by_hand = load_settings(DummySettings, []).run_dir
    assert by_hand.parent.name == "runs"
    assert by_hand.name.startswith("dummy-2")
    monkeypatch.setenv("SEATRIAL_RUN_DIR", str(tmp_path / "attempt-1"))
    assert load_settings(DummySettings, []).run_dir == tmp_path / "attempt-1"


def test_ranks_of_one_torchrun_agree_on_a_folder(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert load_settings(DummySettings, []).run_dir == load_settings(DummySettings, []).run_dir


def test_ranks_started_one_by_one_must_name_their_folder(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        load_settings(DummySettings, [])
    assert "give each the same --run-dir FOLDER" in capsys.readouterr().err
