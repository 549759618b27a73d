"""The winner's files: keys in order, a file a shell can source, overrides that can be used again."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import yaml

from seatrial.core.paths import CampaignPaths
from seatrial.records.columns import BEST_CONFIG, BEST_ENV
from seatrial.records.results import CampaignResults
from seatrial.report.best_config import best_overrides, find_best, write_best
from tests.unit.report import factory

NASTY = 'it\'s $(touch pwned) `x` "y"; [b]'


def named_winner(value: str) -> CampaignResults:
    """The campaign with `value` as one of the winner's axis values."""
    groups = tuple(
        dataclasses.replace(group, axes={**group.axes, "odd-name": value}) if group.group == "mb16_nw2" else group
        for group in factory.groups()
    )
    return factory.results(groups=groups)


def test_keys_are_the_seeds_then_ours(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_best(factory.results(), paths)
    config = json.loads(paths.best_config_json.read_text())
    assert tuple(config)[: len(BEST_CONFIG)] == BEST_CONFIG
    assert {key: config[key] for key in tuple(config)[len(BEST_CONFIG) :]} == {
        "settings": {"d_model": 128, "num_workers": 2, "micro_batch": 16, "loader": "fork"},
        "axes": {"micro_batch": 16, "loader": "fork"},
        "rank_metric": "samples_per_s",
        "rank_unit": "samples/s",
        "value": 1270.0,
        "value_low": 1257.3,
        "value_high": 1282.7,
        "n_runs": 2,
        "n_steps": 356,
        "decided": False,
        "reason": "mb16_nw2 and mb16_nw0 are indistinguishable at 95 %.",
        "latency_winner": "mb16_nw2",
        "caution": None,
        "recommended_reason": "the lower p90/p50",
    }


def test_a_winner_measured_with_debugging_on_says_so_in_every_file(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    groups = [dataclasses.replace(group, debug=("NCCL_DEBUG=INFO\ntouch pwned",)) for group in factory.groups()]
    write_best(factory.results(groups=tuple(groups)), paths)
    told = "measured with NCCL_DEBUG=INFO touch pwned on: its figures are not those of a plain run"
    assert json.loads(paths.best_config_json.read_text())["caution"] == told
    for path in (paths.best_config_env, paths.best_overrides):
        assert path.read_text().startswith(f"# {told}\n"), path


def test_a_shell_reads_back_what_was_meant(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_best(named_winner(NASTY), paths)
    names = [line.partition("=")[0] for line in paths.best_config_env.read_text().splitlines()]
    assert names == [*BEST_ENV, "BEST_AXIS_MICRO_BATCH", "BEST_AXIS_LOADER", "BEST_AXIS_ODD_NAME"]
    script = 'set -eu; source ./best_config.env; printf "%s\\n" "$BEST_GROUP" "$BEST_MICRO_BATCH" "$BEST_ZERO_STAGE" "$BEST_AXIS_ODD_NAME"'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["mb16_nw2", "16", "", NASTY]
    assert not (tmp_path / "pwned").exists()


def test_overrides_of_a_script_are_axes_and_read_back_as_yaml() -> None:
    best = find_best(named_winner(NASTY))
    assert best is not None and best.spec is not None
    scripted = dataclasses.replace(best, spec=dataclasses.replace(best.spec, settings={}))
    lines = best_overrides(scripted).splitlines()[1:]
    assert [line.partition("=")[0] for line in lines] == ["axes.micro_batch", "axes.loader", "axes.odd-name"]
    assert [yaml.safe_load(line.partition("=")[2]) for line in lines] == [[16], ["fork"], [NASTY]]


def test_words_that_yaml_reads_as_something_else_are_quoted() -> None:
    for word in ("true", "No", "null", "1e3", "0x10", "", "a: b", "~", "12"):
        best = find_best(named_winner(word))
        assert best is not None and best.spec is not None
        lines = best_overrides(dataclasses.replace(best, spec=dataclasses.replace(best.spec, settings={}))).splitlines()
        assert yaml.safe_load(lines[-1].partition("=")[2]) == [word]


def test_a_workload_with_a_zero_stage_gets_the_trainers_own_lines() -> None:
    best = find_best(factory.results())
    assert best is not None
    row = {
        **best.row,
        "zero_stage": 0,
        "prefetch_factor": 4,
        "speech_attn_impl_effective": "sdpa",
        "text_attn_impl_effective": "eager",
        "model_load_dtype_effective": "bf16",
        "precision_mode_effective": "bf16",
        "tf32_enabled": True,
    }
    lines = best_overrides(dataclasses.replace(best, row=row)).splitlines()
    assert lines[1:12] == [
        "deepspeed_config_yaml.zero_optimization.stage=0",
        "deepspeed_config_yaml.train_micro_batch_size_per_gpu=16",
        "train.data.num_workers=2",
        "train.data.prefetch_factor=4",
        "model.speech_encoder.attn_implementation=sdpa",
        "model.text_encoder.attn_implementation=eager",
        "model.speech_encoder.torch_dtype=bf16",
        "model.text_encoder.torch_dtype=bf16",
        "train.enable_tf32=true",
        "deepspeed_config_yaml.bf16.enabled=true",
        "deepspeed_config_yaml.fp16.enabled=false",
    ]


def test_without_a_winner_nothing_is_written_and_old_files_go(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_best(factory.results(), paths)
    assert len(list(tmp_path.iterdir())) == 3
    write_best(factory.results(ranking=factory.ranking(recommended=None, reason="None could win.")), paths)
    assert list(tmp_path.iterdir()) == []
