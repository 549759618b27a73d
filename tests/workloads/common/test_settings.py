"""Settings of workloads from files and flags, their checks, and the run folder of a start by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import FrozenInstanceError, dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common import run_folder
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.run_folder import FIRST_EVENTS, NoSharedStartTime, check_folder_unused, holds_a_run, shared_start_t
from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types, load_settings
from seatrial_workloads.dummy.settings import Settings as DummySettings
from seatrial_workloads.sft.settings import Settings as SftSettings
from seatrial_workloads.sparse_lm.settings import Settings as SparseLMSettings
from seatrial_workloads.tiny_lm.settings import Settings as TinyLMSettings

BOTH = pytest.mark.parametrize("kind", [DummySettings, SftSettings, SparseLMSettings, TinyLMSettings])


@pytest.fixture(autouse=True)
def by_hand(monkeypatch, tmp_path):
    for name in ("SEATRIAL_RUN_DIR", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_flags_override_the_file(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"steps": 50, "micro_batch": 16, "eval_every": 10, "lr": 1}))
    start = load_settings(TinyLMSettings, ["--settings", str(file), "--micro_batch", "32", "--eval_every", "never", "--compile", "true"])
    settings = start.settings
    assert (settings.steps, settings.micro_batch, settings.eval_every, settings.compile, settings.lr) == (50, 32, None, True, 1)


@pytest.mark.parametrize(
    ("content", "argv", "message"),
    [
        ('{"mikro_batch": 1}', [], "unknown setting 'mikro_batch': did you mean 'micro_batch'?"),
        ('{"micro_batch": "8"}', [], "micro_batch is '8'; expected a whole number"),
        ("[1]", [], "contains list; expected one object of settings"),
        ("{", [], "is not JSON"),
        ("{}", ["--steps", "many"], "argument --steps: 'many' is not a whole number"),
        ("{}", ["--crash_at_step", "soon"], "'soon' is not a whole number, or null for never"),
        ("{}", ["--orphan", "perhaps"], "'perhaps' is not true or false"),
        ("{}", ["--stepz", "1"], "unrecognized arguments: --stepz 1"),
        ("{}", ["--settings", "missing.json"], "No such file"),
    ],
)
def test_invalid_files_and_flags_are_refused_by_name(tmp_path, capsys, content, argv, message):
    file = tmp_path / "settings.json"
    file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        load_settings(DummySettings, ["--settings", str(file), *argv])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": 130}, r"d_model \(130\) is not a multiple of n_heads \(4\): use for example d_model=128"),
        ({"precision": "int4"}, "precision is 'int4'; expected one of auto, bf16, fp16, fp32"),
        ({"device": "cpu", "precision": "fp16"}, "precision is 'fp16'"),
        ({"lr": 0.0}, "lr is 0.0; it must be above 0"),
        ({"eval_every": 0}, "eval_every is 0; it must be 1 or more"),
    ],
)
def test_invalid_settings_of_tiny_lm_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        TinyLMSettings(**values)


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


def test_the_run_folder_is_the_given_one_else_the_harness_s_else_named_by_time(tmp_path, monkeypatch):
    assert load_settings(DummySettings, ["--run-dir", "here"]).run_dir.name == "here"
    by_hand = load_settings(DummySettings, []).run_dir
    assert by_hand.parent.name == "runs"
    assert by_hand.name.startswith("dummy-2")
    monkeypatch.setenv("SEATRIAL_RUN_DIR", str(tmp_path / "attempt-1"))
    assert load_settings(DummySettings, []).run_dir == tmp_path / "attempt-1"


def test_ranks_without_a_common_launcher_need_a_folder(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        load_settings(DummySettings, [])
    assert "give each the same --run-dir FOLDER" in capsys.readouterr().err


@dataclass(frozen=True)
class Some:
    steps: int = 1
    lr: float = 0.1
    engine: str = "ddp"
    compile: bool = False
    every: int | None = None


@pytest.mark.parametrize("values", [{}, {"lr": 1}, {"every": 3}, {"every": None}, {"compile": True}, {"engine": ""}])
def test_values_of_the_annotated_type_are_accepted(values: dict[str, Any]) -> None:
    assert check_types(Some(**values)) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 1.5}, "steps is 1.5; expected a whole number"),
        ({"steps": True}, "steps is True; expected a whole number"),
        ({"steps": None}, "steps is None; expected a whole number"),
        ({"lr": "fast"}, "lr is 'fast'; expected a number"),
        ({"lr": math.nan}, "lr is nan; expected a number"),
        ({"lr": False}, "lr is False; expected a number"),
        ({"compile": 1}, "compile is 1; expected true or false"),
        ({"engine": 3}, "engine is 3; expected a string"),
        ({"every": "often"}, "every is 'often'; expected a whole number, or null for never"),
    ],
)
def test_values_of_another_type_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_types(Some(**values))


def test_bounds_include_the_bound_and_skip_none() -> None:
    assert check_at_least(Some(), steps=1, every=1) is None
    with pytest.raises(ValueError, match="steps is 0; it must be 1 or more"):
        check_at_least(Some(steps=0), steps=1)
    with pytest.raises(ValueError, match="lr is nan"):
        check_at_least(Some(lr=math.nan), lr=0)


def test_choices_are_checked() -> None:
    assert check_one_of(Some(), engine=("ddp", "deepspeed"), every=("never",)) is None
    with pytest.raises(ValueError, match="engine is 'dpd'; expected one of ddp, deepspeed"):
        check_one_of(Some(engine="dpd"), engine=("ddp", "deepspeed"))


TWO_NODES = {"WORLD_SIZE": "2", "LOCAL_SIZE": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


class Store(dict):
    """As torch's, for one process."""

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return self.setdefault(key, value).encode()

    def get(self, key: str) -> bytes:
        return self[key].encode()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """Address, port and whether to listen of each store opened; every read of the clock is a second later."""
    seen, store, clock = [], Store(), itertools.count(100.0)
    monkeypatch.setattr(run_folder, "store_at", lambda *place: seen.append(place) or store)
    monkeypatch.setattr(run_folder.time, "time", lambda: next(clock))
    return seen


def test_every_rank_gets_the_first_time_of_rank_0(opened):
    times = [shared_start_t({**TWO_NODES, "RANK": rank}) for rank in "0011"]
    assert times == [100.0] * 4
    assert opened == [("node1", 29500, True)] * 2 + [("node1", 29500, False)] * 2


def test_torchruns_agent_hosts_the_store_and_a_restart_is_another_start(opened):
    agent = {**TWO_NODES, "RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert [shared_start_t({**agent, "TORCHELASTIC_RESTART_COUNT": count}) for count in "01"] == [100.0, 101.0]
    assert opened == [("node1", 29500, False)] * 2


def test_an_unreachable_rank_0_is_named(monkeypatch):
    def nobody(*place: object) -> object:
        raise RuntimeError("The client socket has timed out after 300000ms while trying to connect to (node1, 29500).\nmore")

    monkeypatch.setattr(run_folder, "store_at", nobody)
    with pytest.raises(NoSharedStartTime, match=r"node1:29500 \(The client socket has timed out .*\)$"):
        shared_start_t({**TWO_NODES, "RANK": "1"})


STEP_LINE = '{"v":1,"kind":"step","step":0}\n'


def write(folder: Path, text: str) -> Path:
    (folder / FIRST_EVENTS).write_text(text)
    return folder


@pytest.mark.parametrize(("text", "holds"), [("", False), ('{"v":1,"kind":"start"}\n', False), (STEP_LINE, True), (STEP_LINE[:-9], True)])
def test_a_folder_with_a_step_holds_a_run(tmp_path: Path, text: str, holds: bool) -> None:
    assert holds_a_run(write(tmp_path, text), {}) is holds
    assert not holds_a_run(tmp_path / "none", {})


@pytest.mark.parametrize(
    ("env", "holds"),
    [({}, True), ({"TORCHELASTIC_RESTART_COUNT": "0"}, True), ({"TORCHELASTIC_RESTART_COUNT": "1"}, False), ({ENV_RUN_DIR: "/out"}, False)],
)
def test_the_harness_and_a_restart_may_reuse_a_folder(tmp_path: Path, env: dict[str, str], holds: bool) -> None:
    assert holds_a_run(write(tmp_path, STEP_LINE), env) is holds


def test_a_used_folder_is_refused_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENV_RUN_DIR, "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert check_folder_unused(tmp_path) is None
    with pytest.raises(StartupError, match="holds an earlier run"):
        check_folder_unused(write(tmp_path, STEP_LINE))
