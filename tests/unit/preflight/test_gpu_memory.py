"""GPU memory before the start: what is refused, what is a warning, and which changes are offered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.machine.gpu_memory import FITS, GIB, MAY_NOT, WILL_NOT, GpuMemory, judge_fit
from seatrial.machine.gpus import Gpu, GpuState
from seatrial.preflight.check_definition import Need
from seatrial.preflight.gpu_memory import check_gpu_memory, judge_runs
from seatrial.records.caution import Check
from seatrial.records.plan import SLURM, RunSpec
from tests.unit.preflight.needs import make_need, make_run

SMALL, LARGE = GpuState(index=0, name="T4", mem_total_mib=15_000), GpuState(index=1, name="H200", mem_total_mib=143_000)
GPUS = (Gpu(index=0), Gpu(index=1))
# 1.7 billion parameters: 27 GiB of weights, gradients and optimiser states.
BIG = {"d_model": 2048, "n_layers": 32, "n_heads": 16, "seq_len": 1024, "micro_batch": 8, "vocab_size": 32000}


def make_lm(cwd: Path, **more: Any) -> RunSpec:
    return make_run(cwd, bundled="tiny_lm", settings={**BIG, "device": "cuda", **more.pop("settings", {})}, **more)


def judged(need: Need) -> list[Check]:
    return list(judge_runs(need, need.whole_runs or need.runs, GPUS, (SMALL, LARGE)))


def test_runs_that_fit_share_one_line(tmp_path: Path) -> None:
    runs = [make_lm(tmp_path, devices=("1",)), replace(make_lm(tmp_path, devices=("1",), settings={"micro_batch": 2}), group="mb2")]
    (found,) = judged(make_need(*runs))
    assert found.ok and "of 139.6 GiB, group base" in found.found


def test_a_run_that_will_not_fit_is_refused_with_its_arithmetic_unless_the_user_insists(tmp_path: Path) -> None:
    need = make_need(make_lm(tmp_path, devices=("0",)))
    (found,) = judged(need)
    assert (found.ok, found.refuses, found.name) == (False, True, "GPU memory of base")
    assert "weights 6." in found.found and "optimizer 12." in found.found and "of 14.6 GiB (T4)" in found.found
    assert "--ignore-fit" in found.fix
    (insisted,) = judged(replace(need, fit_enforced=False))
    assert (insisted.ok, insisted.refuses) == (False, False)


def test_the_smallest_visible_gpu_decides(tmp_path: Path) -> None:
    assert not judged(make_need(make_lm(tmp_path), base_env={}))[0].ok
    assert judged(make_need(make_lm(tmp_path), base_env={"CUDA_VISIBLE_DEVICES": "1"}))[0].ok


def test_allowances_alone_warn(tmp_path: Path) -> None:
    spec = make_lm(tmp_path)
    forecast = judge_fit(spec, None).forecast
    assert forecast is not None
    between = GpuMemory(size_bytes=(forecast.allocated_bytes + forecast.total_bytes) // 2, source="x")
    assert judge_fit(spec, between).verdict == MAY_NOT
    assert judge_fit(spec, replace(between, size_bytes=forecast.allocated_bytes - 1)).verdict == WILL_NOT


def test_a_range_fits_by_its_most_and_is_refused_by_its_least(tmp_path: Path) -> None:
    settings = {"model": "mistral-7b", "micro_batch": 16, "attn_impl": "flash_attention_2", "device": "cuda"}
    spec = make_run(tmp_path, bundled="sft", settings=settings)
    forecast = judge_fit(spec, None).forecast
    assert forecast is not None and forecast.least_allocated_bytes is not None
    least, most = forecast.least_allocated_bytes, forecast.total_bytes
    verdicts = [judge_fit(spec, GpuMemory(size_bytes=size, source="x")) for size in (most, most - 1, least, least - 1)]
    assert [fit.verdict for fit in verdicts] == [FITS, MAY_NOT, MAY_NOT, WILL_NOT]
    assert f"(at least {least / GIB:.1f})" in verdicts[0].text
    job = replace(spec, place=replace(spec.place, kind=SLURM, gpu="A100-40GB"))
    assert not next(check_gpu_memory(replace(make_need(), whole_runs=(job,)))).ok


def test_lora_that_fits_with_the_default_fast_paths_is_not_refused(tmp_path: Path) -> None:
    """16 rows need 83 GiB with the stock modules, and 53 as the trainer runs."""
    settings = {"model": "mistral-7b", "micro_batch": 16, "precision": "bf16", "device": "cuda"}
    for changes, verdict in (({}, FITS), ({"fast_paths": "none"}, WILL_NOT)):
        spec = make_run(tmp_path, bundled="sft", settings={**settings, **changes})
        assert judge_fit(spec, GpuMemory(size_bytes=round(79.2 * GIB), source="H100-80GB")).verdict == verdict


def test_only_changes_that_fit_are_named_and_the_smallest_of_each_kind(tmp_path: Path) -> None:
    shape = {"dim": 1024, "n_layers": 24, "n_heads": 16, "seq_len": 4096, "batch_size": 16, "d_k": 64, "d_v": 64}
    spec = make_run(tmp_path, bundled="sparse_lm", settings=shape)
    fit = judge_fit(spec, GpuMemory(size_bytes=40 * GIB, source="A100-40GB"))
    assert fit.verdict == WILL_NOT and fit.tried > len(fit.remedies)
    assert [list(remedy.settings) for remedy in fit.remedies] == [["gradient_checkpointing"], ["batch_size"]]
    assert all(remedy.total_bytes <= 40 * GIB for remedy in fit.remedies)
    assert f"try gradient_checkpointing=true ({fit.remedies[0].total_bytes / GIB:.1f} GiB), or batch_size=" in fit.text
    tiny = judge_fit(spec, GpuMemory(size_bytes=GIB, source="x"))
    assert tiny.remedies == () and f"none of the {tiny.tried} changes that were tried fits" in tiny.text


def test_a_share_of_a_run_is_forecast_with_all_its_ranks(tmp_path: Path) -> None:
    """ZeRO 3 over 8 ranks needs less than over this host's 2."""
    settings = {"speech_model": "base", "text_model": "base", "engine": "deepspeed", "zero_stage": 3, "device": "cuda"}
    share = make_run(tmp_path, bundled="contrastive", settings=settings, devices=("1",), ranks=2)
    whole = replace(share, place=replace(share.place, kind="hostfile", ranks=8))
    alone, sharded = (judged(replace(make_need(share), whole_runs=runs))[0].found for runs in ((share,), (whole,)))
    assert alone != sharded


def test_gpus_that_the_plan_names_are_judged_before_a_job_is_submitted(tmp_path: Path) -> None:
    run = make_lm(tmp_path)
    job = replace(run, place=replace(run.place, kind=SLURM, gpu="V100-16GB"))
    (found,) = check_gpu_memory(replace(make_need(), whole_runs=(job,)))
    assert found.refuses and "of 15.7 GiB (V100-16GB)" in found.found
    assert list(check_gpu_memory(replace(make_need(), whole_runs=(replace(job, place=replace(job.place, gpu="")),)))) == []


@pytest.mark.parametrize(("name", "says"), [("H100-8GB", "did you mean 'H100-80GB'?"), ("x", "known: A100-40GB")])
def test_an_unknown_gpu_is_refused_with_the_nearest(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(f"name: x\nworkload: dummy\nplace: {{gpu: {name}}}\n")
    assert run_command(["plan", "show", "p.yaml"]) == 1
    assert says in capsys.readouterr().err


def test_run_refuses_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(f"name: x\nworkload: tiny_lm\nsettings: {BIG}\nplace: {{gpu: T4-16GB}}\n")
    assert run_command(["run", "p.yaml"]) == 2
    error = capsys.readouterr().err
    assert "refused before anything was started" in error and "will not fit: " in error and "of 14.5 GiB (T4-16GB)" in error
    assert not list(tmp_path.glob("outputs/x/*_r1"))


def test_full_fine_tuning_of_7b_under_ddp_is_refused_on_80_gb(tmp_path: Path) -> None:
    """Adam's states alone take two thirds of the card; LoRA, or sharding over the ranks, fits."""
    run = make_run(tmp_path, bundled="sft", settings={"model": "mistral-7b", "use_lora": False, "device": "auto"}, ranks=8)
    job = replace(run, place=replace(run.place, kind=SLURM, gpu="H100-80GB"))
    (found,) = check_gpu_memory(replace(make_need(), whole_runs=(job,)))
    assert found.refuses
    assert found.found.startswith("weights 27.0 + gradients 27.0 + optimizer 54.0 + communication 27.0 + temporary 27.0 = 161.9 GiB")
    assert (
        "of 79.2 GiB (H100-80GB)" in found.found and "try use_lora=true (" in found.found and "strategy=fsdp over 8 ranks (" in found.found
    )
