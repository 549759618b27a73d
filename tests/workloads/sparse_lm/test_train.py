"""Real trainings of a tiny sparse language model on the CPU: with one rank in this process, with two on gloo."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import re
import shutil
import signal
from pathlib import Path
from unittest import mock

import pytest

from tests.facts import states

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")

from seatrial.collect.logs.diagnosis import diagnose  # noqa: E402
from seatrial.core.ports import reserve_port  # noqa: E402
from seatrial.records.sparse_lm_halt import read_halt  # noqa: E402
from seatrial_workloads.common.checkpoints import CheckpointError  # noqa: E402
from seatrial_workloads.common.distributed import Ranks  # noqa: E402
from seatrial_workloads.common.effective_settings import Choice, as_requested  # noqa: E402
from seatrial_workloads.common.engines import EngineOptions, ddp  # noqa: E402
from seatrial_workloads.common.engines.step_graph import unchanged  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.sparse_lm import model as model_module  # noqa: E402
from seatrial_workloads.sparse_lm import step_profile  # noqa: E402
from seatrial_workloads.sparse_lm import train as trainer_module  # noqa: E402
from seatrial_workloads.sparse_lm.compiled_step import why_no_graph  # noqa: E402
from seatrial_workloads.sparse_lm.ops import masked, tiles  # noqa: E402
from seatrial_workloads.sparse_lm.ops.attention_paths import choose_paths  # noqa: E402
from seatrial_workloads.sparse_lm.reporting import Reporter, RunInfo, fallback_counts  # noqa: E402
from seatrial_workloads.sparse_lm.results import set_earlier_run_aside  # noqa: E402
from seatrial_workloads.sparse_lm.settings import Settings  # noqa: E402
from seatrial_workloads.sparse_lm.showcase import prepare_out_dir  # noqa: E402
from seatrial_workloads.sparse_lm.step_profile import backend_of, summarize_trace  # noqa: E402
from seatrial_workloads.sparse_lm.stopping import HaltPoll  # noqa: E402
from tests.workloads.cpu_ranks import ALONE  # noqa: E402
from tests.workloads.ranks import events, run_module  # noqa: E402
from tests.workloads.sparse_lm.trainings import RUN_ID, TINY, WHOLE, losses, rows, run  # noqa: E402

TWO = 2


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    run_dir = tmp_path_factory.mktemp("alone")
    assert run(ALONE, run_dir, {**WHOLE, "tensorboard": True, "sdpa_audit": True}) == "steps"
    return run_dir


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    with reserve_port() as held:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.port)}
        done = run_module(["tests.workloads.sparse_lm.trainings", str(folder)], TWO, **address)
    assert done.returncodes == [0, 0], done.stderr
    return folder


def ended(folder: Path, name: str) -> list[str]:
    return [json.loads((folder / f"ended_rank{rank}.json").read_text())[name] for rank in range(TWO)]


@pytest.mark.slow
def test_two_ranks_have_the_loss_curve_of_one_with_the_same_global_batch(alone, two_ranks):
    """With unequal shares, accumulation and gradient checkpointing."""
    assert losses(two_ranks / "whole") == pytest.approx(losses(alone), abs=1e-5)
    for name in ("loss", "lr", "grad_norm"):
        assert [float(row[name]) for row in rows(two_ranks / "whole")] == pytest.approx([float(row[name]) for row in rows(alone)], rel=1e-4)
    validation = [[float(row["val_loss"]) for row in rows(folder, "val.csv")] for folder in (two_ranks / "whole", alone)]
    assert validation[0] == pytest.approx(validation[1], abs=1e-5)


@pytest.mark.slow
def test_resuming_gives_the_same_curve(two_ranks):
    assert losses(two_ranks / "resumed") == losses(two_ranks / "whole")[3:]
    assert [row["step"] for row in rows(two_ranks / "resumed")] == ["4", "5", "6"]


@pytest.mark.slow
def test_compressed_gradients_are_in_effect_on_gloo_and_said_once_they_are(alone, two_ranks):
    log = (two_ranks / "compressed" / "train.log").read_text()
    assert log.count("[ddp] gradient compression enabled: bf16") == 1
    assert "gradient compression enabled" not in (alone / "train.log").read_text() + (two_ranks / "whole" / "train.log").read_text()
    plain, compressed = losses(two_ranks / "whole")[:3], losses(two_ranks / "compressed")
    assert compressed == pytest.approx(plain, rel=1e-3) and compressed[0] == plain[0] and compressed[2] != plain[2]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_on_one_rank_ends_both(two_ranks):
    folder = two_ranks / "nan"
    assert ended(two_ranks, "nan") == ["nan_loss", "nan_loss"]
    assert (folder / ".anomaly_type").read_text() == "nan_loss\n"
    assert read_halt(folder / ".HALT").anomaly == "nan_loss"
    assert rows(folder)[2]["loss"] == "nan"
    assert {path.name for path in (folder / "checkpoints").glob("ckpt*")} == {"ckpt_iter_0", "ckpt_iter_1"}
    assert json.loads((folder / "metrics.json").read_text())["status"] == "nan_loss"
    sentence = (folder / "train.log").read_text().splitlines()[-1].partition(" | ")[2]
    assert diagnose(1, [f"sparse_lm: error: {sentence}"]).signature == "nan"


@pytest.mark.slow
def test_halt_ends_all_ranks_at_the_same_step_and_a_stale_one_none(two_ranks):
    assert ended(two_ranks, "halted") == ["halt", "halt"]
    steps = [len(events(two_ranks / "halted", "step", rank)) for rank in range(TWO)]
    assert steps == [2, 2]
    assert "ended by .HALT: gate_collapse" in (two_ranks / "halted" / "train.log").read_text()
    assert (two_ranks / "halted" / "checkpoints" / "ckpt_iter_1").is_dir(), "where checkpoints are configured, one is left"
    assert ended(two_ranks, "touched") == ["halt", "halt"]
    assert "ended by .HALT: by_hand" in (two_ranks / "touched" / "train.log").read_text()
    assert ended(two_ranks, "stale") == ["steps", "steps"]
    assert "[halt] ignored .HALT: it is for run another-run" in (two_ranks / "stale" / "train.log").read_text()


PROCEDURE_COUNTERS = [
    *("selection_triton_fails", "selection_cuda_fails", "selection_pack_fails", "selection_mask_fails"),
    *("compressed_fa2_fails", "sliding_fa2_fails", "total_fallbacks"),
]


def dtypes_of(folder):
    return (folder / "dtypes_report.txt").read_text()


def test_a_path_that_was_not_taken_is_counted_by_layer():
    auto, flex = Choice("auto", "mask", "cpu"), Choice("flex", "mask", "no backward on cpu")
    choices = {"layers.0.selected": flex, "layers.1.selected": flex, "layers.0.window": auto, "selected_path": flex, "compile": auto}
    counts = fallback_counts(choices | {"compile": Choice(True, False, "no compiler")})
    assert {name: count for name, count in counts.items() if count} == {"selection_flex_fails": 2, "compile_fails": 1, "total_fallbacks": 3}


def test_the_files_of_a_run(alone):
    training, statistics = rows(alone), rows(alone, "k_stats.csv")
    assert list(training[0])[:4] == ["step", "loss", "lr", "toks_per_s"] and {row["run_id"] for row in training} == {RUN_ID}
    assert [row["step"] for row in training] == ["1", "2", "3", "4", "5", "6"]
    assert list(statistics[0])[:5] == ["step", "k_mean", "k_max", "rows", "pct_at_max"]
    assert [row["step"] for row in statistics] == ["1", "3", "5", "6"], "the logged steps"
    assert [row["step"] for row in rows(alone, "val.csv")] == ["3", "6"]
    environment, metrics = (json.loads((alone / name).read_text()) for name in ("env.json", "metrics.json"))
    assert environment["run_id"] == metrics["run_id"] == RUN_ID and environment["out_dir"] == str(alone)
    assert environment["settings"]["dim"] == 32 and environment["effective"]["selected_path"]["effective"] == "mask"
    assert metrics["loss_last"] == pytest.approx(float(training[-1]["loss"]), abs=1e-6) and metrics["steps"] == 6
    (counters,) = {tuple(row.items())[1:-1] for row in rows(alone, "fallback_counters.csv")}
    assert list(dict(counters))[:7] == PROCEDURE_COUNTERS and set(dict(counters).values()) == {"0"}
    assert re.search(r"^weights torch.float32: \d+ tensors, [\d,]+ values, [\d.]+ MiB, first embedding", dtypes_of(alone), re.MULTILINE)
    state = dict(line.split(" ", 1) for line in (alone / "opt_state_mb.txt").read_text().splitlines())
    assert state["run_id"] == RUN_ID and state["exp_avg"] == state["exp_avg_sq"] != "0.000 MiB"
    names = {path.name for path in alone.iterdir()}
    assert names >= {"mem_boot.txt", "mem_boot.json", "mem_step1.json", "heartbeat_rank0.jsonl", "tb", "sdpa_audit.json"}
    progress = [json.loads(line) for line in (alone / "heartbeat_rank0.jsonl").read_text().splitlines() if '"progress"' in line][-1]
    assert progress["run_id"] == RUN_ID and progress["gate_entropy_mean"] > 0 and len(progress["gate_branch_shares"]) == 3
    assert {event["name"] for event in events(alone, "figure")} == {"gate_entropy_mean", "gate_max_mean"}


def test_the_effective_model_is_printed_before_the_first_step(alone):
    text = (alone / "train.log").read_text()
    before, _, after = text.partition("step 0001 | loss")
    assert after and "[model] " in before and "S 32 | batch 5 (5 per rank) x 2 | fp32" in before and "selected mask" in before
    paths = {event["setting"]: event["effective"] for event in events(alone, "effective")}
    assert paths["layers.1.window"] == paths["window_path"] == "mask"


def test_the_audit_names_the_backend_that_ran(alone):
    calls = json.loads((alone / "sdpa_audit.json").read_text())["calls"]
    # Two layers; the forward once more where backward recomputes it.
    assert {call["stage"]: (call["backend"], call["count"]) for call in calls} == {
        "nsa.cmp.attn": ("matmul", 4),
        "nsa.sel.attn": ("flash", 4),
        "nsa.win.attn": ("flash", 4),
        "nsa.sel.attn (backward)": ("flash", 2),
        "nsa.win.attn (backward)": ("flash", 2),
    }, "each attention of a layer has its row"
    assert all("for_cpu" in call["call"] for call in calls if call["backend"] == "flash")
    assert re.search(r"\[sdpa-audit\] nsa\.cmp\.attn +matmul +matmul +4", (alone / "train.log").read_text())


def test_gathered_blocks_are_matmuls_in_the_audit(tmp_path):
    run(ALONE, tmp_path, {**TINY, "steps": 1, "selected_path": "gather", "sdpa_audit": True})
    calls = json.loads((tmp_path / "sdpa_audit.json").read_text())["calls"]
    assert {call["backend"] for call in calls if call["stage"] == "nsa.sel.attn"} == {"matmul"}


def test_flex_attention_is_compiled_in_a_pause_before_the_first_step(tmp_path, monkeypatch):
    """As on CUDA, with the explicit mask in place of the kernels, which have no backward on a CPU."""
    calls = []

    def window(*args):
        calls.append(args)
        return masked.window(*args)

    monkeypatch.setattr(model_module, "choose_paths", lambda paths, *, device, seq_len: choose_paths(paths, device="cuda", seq_len=seq_len))
    monkeypatch.setattr(tiles, "selected", masked.selected)
    monkeypatch.setattr(tiles, "window", window)
    run(ALONE, tmp_path, {**TINY, "steps": 2})
    assert [(event["name"], event["step"]) for event in events(tmp_path, "pause")] == [("compile", 0)]
    assert len(calls) == 2 * 3, "two layers: once to compile, and in each of two steps"


class ReplayedOnCpu:
    """In place of `StepGraph`: its interface, without a graph."""

    def __init__(self, step, optimizer, inputs):
        self.step = step
        with unchanged(optimizer):
            step(inputs)

    def __call__(self, inputs):
        return self.step(inputs)


def test_a_captured_step_has_the_curve_statistics_and_end_of_the_eager_one(tmp_path, monkeypatch):
    """Schedule, statistics, resume and faults around the graph, on the CPU; tests/gpu has the graph itself."""
    settings = {**TINY, "steps": 6, "log_every": 3, "fused_adam": True, "checkpoint_every": 3, "checkpoint_keep": 5, "eval_every": 4}
    run(ALONE, tmp_path / "eager", settings)
    monkeypatch.setattr(ddp, "StepGraph", ReplayedOnCpu)
    monkeypatch.setattr(ddp.DdpEngine, "cannot_capture", None)
    captured = {**settings, "cuda_graph": True}
    run(ALONE, tmp_path / "captured", captured)
    for file in ("training.csv", "k_stats.csv", "val.csv"):
        kept = ("step", "loss", "lr", "grad_norm", "k_mean", "gate_entropy_mean", "val_loss")
        one, other = (
            [float(row[name]) for row in rows(tmp_path / folder, file) for name in kept if name in row] for folder in ("captured", "eager")
        )
        assert one == pytest.approx(other, rel=1e-4)
    for source, resumed in (("captured", settings), ("eager", captured)):
        run(ALONE, tmp_path / f"after {source}", {**resumed, "resume_from": str(tmp_path / source / "checkpoints" / "ckpt_iter_2")})
        assert losses(tmp_path / f"after {source}") == pytest.approx(losses(tmp_path / "eager")[3:], rel=1e-4)
    assert run(ALONE, tmp_path / "nan", {**captured, "fault": "nan@4"}) == "nan_loss"
    pauses = [event["name"] for event in events(tmp_path / "captured", "pause")]
    assert pauses[0] == "cuda_graph" and effective(tmp_path / "captured", "cuda_graph")[:2] == (True, True)


class FailsToCapture:
    """In place of `StepGraph`: an operator that waits for the GPU, between backward and update."""

    def __init__(self, step, optimizer, inputs):
        with unchanged(optimizer):
            step(inputs)
            optimizer.step = mock.Mock(side_effect=RuntimeError("operation not permitted when stream is capturing"))
            try:
                step(inputs)
            finally:
                del optimizer.step


def test_a_capture_that_fails_leaves_the_eager_training(tmp_path, monkeypatch):
    settings = {**TINY, "steps": 3, "fused_adam": True}
    run(ALONE, tmp_path / "eager", settings)
    monkeypatch.setattr(ddp, "StepGraph", FailsToCapture)
    monkeypatch.setattr(ddp.DdpEngine, "cannot_capture", None)
    run(ALONE, tmp_path / "failed", {**settings, "cuda_graph": True})
    reason = "the capture failed: RuntimeError: operation not permitted when stream is capturing"
    assert effective(tmp_path / "failed", "cuda_graph") == (True, False, reason)
    assert losses(tmp_path / "failed") == pytest.approx(losses(tmp_path / "eager"), rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "requested", "reason"),
    [
        ({}, "auto", "cpu: CUDA graphs need CUDA"),
        ({"cuda_graph": True}, True, "cpu: CUDA graphs need CUDA"),
        ({"cuda_graph": False}, False, "as requested"),
    ],
)
def test_no_graph_on_a_cpu(tmp_path, changed, requested, reason):
    run(ALONE, tmp_path, {**TINY, "steps": 1, **changed})
    assert effective(tmp_path, "cuda_graph") == (requested, False, reason)


@pytest.mark.parametrize(
    ("changed", "compiled", "reason"),
    [
        ({}, False, "use compile=true, or cuda_graph=true"),
        ({}, True, ""),
        ({"cuda_graph": True}, False, ""),
        ({"cuda_graph": True, "profile": True}, True, "profile names the stages"),
        ({"cuda_graph": True, "ranges": "v1"}, True, "works on the host"),
    ],
)
def test_why_a_step_is_not_captured_on_a_gpu(changed, compiled, reason):
    settings = Settings(**changed)
    choices = {"compile": Choice(compiled, compiled, ""), "prefill": as_requested("batched"), "ranges": as_requested(settings.ranges)}
    found = why_no_graph(settings, choices, None)
    assert reason in found if reason else not found


@pytest.mark.parametrize(
    ("device", "world_size", "options", "precision", "reason"),
    [
        ("cuda", 1, {}, "bf16", None),
        ("cuda", 2, {}, "bf16", "2 ranks: DDP's gradient all-reduce"),
        ("cuda", 1, {"accumulate": 4}, "bf16", "4 passes a step"),
        ("cuda", 1, {}, "fp16", "fp16: loss scaling"),
    ],
)
def test_what_an_engine_cannot_capture(device, world_size, options, precision, reason):
    ranks = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
    engine = ddp.DdpEngine(torch.nn.Linear(2, 2), ranks, Precision(precision, precision, ""), EngineOptions(lr=1.0, **options))
    engine.ranks = dataclasses.replace(ranks, world_size=world_size, device=torch.device(device))
    assert (engine.cannot_capture is None) if reason is None else reason in engine.cannot_capture


def effective(run_dir: Path, setting: str) -> tuple[object, object, str]:
    found = next(event for event in events(run_dir, "effective") if event["setting"] == setting)
    return found["requested"], found["effective"], found["reason"]


def test_a_profile_has_the_share_of_the_host_the_stages_and_the_frames_with_time_of_their_own():
    def event(cat: str, name: str, ts: float, dur: float, tid: int = 7) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid}

    frames = [event("python_function", "loop", 0, 1000), event("python_function", "<built-in linear at 0x7f>", 100, 300)]
    others = [event("python_function", "waiting", 0, 9000, tid=8), event("user_annotation", "topk+ranges", 0, 500)]
    kernels = [event("kernel", "a", 0, 400, tid=9), event("kernel", "b", 200, 400, tid=9)]
    assert summarize_trace([*frames, *others, *kernels], main_thread=7) == [
        "host share 40.0 % of 1.0 ms: no kernel ran in it",
        "stage 0.50 ms  topk+ranges",
        "python 0.70 ms  loop",
        "python 0.30 ms  <built-in linear>",
    ]
    assert summarize_trace([*frames, *others], main_thread=7)[0].startswith("host share 100.0 % (no GPU")


def test_a_run_too_short_for_a_profile_says_that_none_was_taken(tmp_path):
    run(ALONE, tmp_path, {**TINY, "steps": 3, "profile": True})
    log = (tmp_path / "train.log").read_text()
    assert effective(tmp_path, "profile")[1] is False
    assert states(log, "no profile", "3 steps", "6 or more")
    assert "[profile] none was taken: the run ended before step 4" in log and not (tmp_path / "profile_summary.txt").exists()


def test_the_time_of_the_sequential_reference_is_that_of_its_length(tmp_path, monkeypatch):
    """A token costs 1 s, and a hundredth more for each before it."""
    now_s = [0.0]

    def prefill(*args):
        now_s[0] += sum(1 + at / 100 for at in args[-1])

    monkeypatch.setattr(step_profile, "prefill", prefill)
    monkeypatch.setattr(step_profile.time, "monotonic", lambda: now_s[0])
    model = model_module.SparseLM(Settings(**TINY).shape(256))
    for seq_len in (32, 2048):
        expected_s = 2 * sum(1 + at / 100 for at in range(seq_len))
        assert step_profile.sequential_pass_s(model, 2, seq_len, torch.device("cpu")) == pytest.approx(expected_s)


@pytest.mark.parametrize(("checkpointing", "expected"), [(False, 36), (True, 48)])
def test_the_sequential_reference_warns_before_step_1(tmp_path, monkeypatch, checkpointing, expected):
    monkeypatch.setattr(trainer_module, "SLOW_SEQUENTIAL", 32)
    monkeypatch.setattr(trainer_module, "sequential_pass_s", lambda *args: 6.0)
    settings = {"prefill": "sequential", "steps": 1, "accumulate": 2, "batch_size": 1, "gradient_checkpointing": checkpointing}
    run(ALONE, tmp_path, {**TINY, **settings})
    before = (tmp_path / "train.log").read_text().partition("step 0001")[0]
    assert f"a Python loop over 32 tokens: about {expected} s a step" in before


@pytest.mark.parametrize(
    ("call", "kernel", "backend"),
    [
        ("aten::_scaled_dot_product_flash_attention", "pytorch_flash::flash_fwd_kernel<…>", "flash"),
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "cudnn"),
        ("aten::_scaled_dot_product_efficient_attention", "fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "efficient"),
        ("aten::_scaled_dot_product_attention_math", "ampere_sgemm_128x64_nn", "math"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "", "flash"),
        ("aten::_scaled_dot_product_attention_math", "", "math"),
    ],
)
def test_a_backend_is_named_by_the_kernel_that_ran(call, kernel, backend):
    assert backend_of(call, kernel) == backend


def test_the_text_is_learnt(tmp_path):
    run(ALONE, tmp_path, {**TINY, "steps": 40, "statistics": False, "csv": True, "prefetch": 1})
    found = losses(tmp_path)
    assert sum(found[-5:]) / 5 < found[0] - 0.5
    assert not (tmp_path / "k_stats.csv").exists()


def test_bf16_keeps_fp32_weights_unless_pure_ones_are_requested(tmp_path):
    for mixed in ("autocast", "pure"):
        run(ALONE, tmp_path / mixed, {**TINY, "steps": 2, "precision": "bf16", "mixed_precision": mixed, "checkpoint_every": 2})
        weights = torch.load(tmp_path / mixed / "checkpoints" / "ckpt_iter_1" / "model.pt", weights_only=True)["model"]
        assert {value.dtype for value in weights.values()} == {torch.float32 if mixed == "autocast" else torch.bfloat16}
    assert losses(tmp_path / "pure") == pytest.approx(losses(tmp_path / "autocast"), rel=0.02)


def test_without_clipping_the_gradient_norm_is_the_same_and_still_reported(tmp_path):
    for name, clip in (("clipped", 1e9), ("off", 0.0)):
        run(ALONE, tmp_path / name, {**TINY, "steps": 3, "grad_clip": clip})
    norms = [[float(row["grad_norm"]) for row in rows(tmp_path / name)] for name in ("off", "clipped")]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5) and min(norms[0]) > 0
    assert "grad_norm" in (tmp_path / "off" / "heartbeat_rank0.jsonl").read_text()


@pytest.mark.parametrize(("backoff", "ended_by"), [(0.5, "steps"), (0.999, "nan_loss")])
def test_steps_that_a_loss_scaler_skips_are_counted_and_only_an_overflow_that_lasts_ends_the_run(tmp_path, monkeypatch, backoff, ended_by):
    """fp16 as on a GPU before bf16, here on the CPU: the scale begins far beyond the range of fp16."""
    monkeypatch.setattr(trainer_module, "choose_precision", lambda requested, lowest: Precision(requested, "fp16", ""))
    scaler = functools.partial(torch.amp.GradScaler, init_scale=2.0**30, backoff_factor=backoff)
    monkeypatch.setattr(ddp.torch.amp, "GradScaler", scaler)
    assert run(ALONE, tmp_path, {**TINY, "steps": 32, "batch_size": 2, "grad_clip": 1.0 if backoff == 0.5 else 0.0}) == ended_by
    table, log = rows(tmp_path), (tmp_path / "train.log").read_text()
    skipped = [row for row in table if not row["grad_norm"]]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["skipped_steps"] == len(skipped) > 0 and f"[scaler] {len(skipped)} steps skipped" in log
    in_a_row = list(itertools.accumulate((not row["grad_norm"] for row in table), lambda before, now: before + 1 if now else 0, initial=0))
    assert [int(row["skipped_in_a_row"]) for row in table] == in_a_row[1:] and max(in_a_row) > 5
    assert (tmp_path / ".anomaly_type").exists() == (ended_by == "nan_loss") == (max(in_a_row) >= 25)
    assert all(math.isfinite(float(row["loss"])) for row in table)
    if ended_by == "nan_loss":
        sentence = log.splitlines()[-1].partition(" | ")[2]
        assert sentence.startswith("the gradients of 25 steps in a row overflow fp16, up to step 25: all ranks end")
        assert diagnose(1, [f"sparse_lm: error: {sentence}"]).signature == "nan"


def test_another_model_or_text_cannot_resume(alone, tmp_path):
    with pytest.raises(CheckpointError, match="saved with seq_len 32, and this run has 16"):
        run(ALONE, tmp_path, {**WHOLE, "seq_len": 16, "resume_from": str(alone)})


def test_local_files_train_and_resume_where_the_loader_was(tmp_path):
    lines = (json.dumps({"text": f"line {number} of a text that is long enough"}) for number in range(200))
    (tmp_path / "text.jsonl").write_text("\n".join(lines) + "\n")
    settings = {**TINY, "dataset": "fineweb_edu_local", "local_path": str(tmp_path / "text.jsonl"), "steps": 4, "checkpoint_every": 2}
    run(ALONE, tmp_path / "whole", settings)
    resumed = {**settings, "resume_from": str(tmp_path / "whole" / "checkpoints" / "ckpt_iter_1")}
    run(ALONE, tmp_path / "resumed", resumed)
    assert losses(tmp_path / "resumed") == losses(tmp_path / "whole")[2:]


def test_term_ends_the_training_with_a_checkpoint(tmp_path, monkeypatch):
    reported = Reporter.step

    def step_and_term(self, values, lr, *, is_first):
        reported(self, values, lr, is_first=is_first)
        if values.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Reporter, "step", step_and_term)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended_by:
        trainer_module.train(Settings(**TINY, steps=50, checkpoint_every=40), tmp_path, RunInfo(run_id=RUN_ID))
    assert ended_by.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == handler
    assert len(list((tmp_path / "checkpoints").glob("ckpt_iter_*"))) == 1 and len(rows(tmp_path)) < 10
    assert json.loads((tmp_path / "metrics.json").read_text())["status"] == "term"


def test_a_second_run_in_a_folder_sets_the_first_aside(alone, tmp_path):
    for name in ("training.csv", ".HALT", "events_rank0.jsonl", "events_rank1.jsonl", "events_rank5.jsonl"):
        (tmp_path / name).write_text('{"run": "first"}\n')
    os.utime(tmp_path / ".HALT", (1, 1))
    (tmp_path / "notes.txt").write_text("the user's")
    (tmp_path / "checkpoints").mkdir()
    notes = set_earlier_run_aside(tmp_path, 0, 2, keep_checkpoints=True)
    assert "stale .HALT" in notes[1]
    assert sorted(path.name for path in (tmp_path / "earlier" / "first").iterdir()) == [
        ".HALT", "events_rank0.jsonl", "events_rank5.jsonl", "training.csv",
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {"earlier", "notes.txt", "checkpoints", "events_rank1.jsonl"}


@pytest.mark.parametrize("way", ["{out}", "{out}/../out/checkpoints/ckpt_iter_2", "{link}", "{link}/checkpoints"])
def test_a_run_resumes_from_its_own_folder_by_any_path_to_it(alone, tmp_path, way):
    out, link = tmp_path / "out", tmp_path / "link"
    shutil.copytree(alone, out)
    link.symlink_to(out)
    notes = prepare_out_dir(out, way.format(out=out, link=link), 0, 1)
    assert "earlier run" in notes[0] and not (out / "training.csv").exists()
    assert (out / "checkpoints" / "ckpt_iter_2").is_dir(), "what it resumes from stays"


def test_nothing_is_moved_where_the_checkpoint_is_missing_or_damaged(alone, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(alone, out)
    before = sorted(out.rglob("*"))
    (out / "checkpoints" / "ckpt_iter_2" / "model.pt").write_bytes(b"cut")
    for source, problem in ((out / "checkpoints" / "ckpt_iter_2", "is damaged"), (tmp_path / "none", "is not a folder")):
        with pytest.raises(CheckpointError, match=problem):
            prepare_out_dir(out, str(source), 0, 1)
    assert sorted(out.rglob("*")) == before
    # One of another folder is no reason to keep this one's.
    prepare_out_dir(out, str(alone), 0, 1)
    assert not (out / "checkpoints").exists() and list(out.glob("earlier/*/checkpoints"))


@pytest.mark.parametrize("text", ["", "out of quota, stop please", "halt: by hand\n"])
def test_a_halt_file_made_by_hand_ends_the_run_that_had_begun(tmp_path, text):
    path, said = tmp_path / ".HALT", []
    path.write_text(text)
    os.utime(path, (1, 1))
    poll = HaltPoll(tmp_path, RUN_ID, 1, said.append)
    poll.look()
    poll.look()
    assert poll.found is None and len(said) == 1 and states(said[0], "[halt]", ".HALT", "older", "touch")
    # By another clock than this host's, too.
    os.utime(path, (2, 2))
    poll.look()
    assert poll.found is not None and poll.wants_end(0)
    assert poll.found.anomaly == ("by hand" if "halt:" in text else "by_hand")
    assert poll.found.reason == ("" if "halt:" in text else text)
    # Made while the ranks were starting, it is neither moved with an earlier run's files nor stale.
    path.unlink()
    path.write_text(text)
    assert set_earlier_run_aside(tmp_path, 0, 1, keep_checkpoints=False) == () and path.exists()
    poll = HaltPoll(tmp_path, RUN_ID, 1, said.append)
    poll.look()
    assert poll.found is not None


def test_rank_0_moves_nothing_that_another_rank_of_this_run_has_opened(tmp_path):
    """In a new folder as in one with stacks of an earlier run; each rank moves its own, before it opens them."""
    own = ("events_rank1.jsonl", "heartbeat_rank1.jsonl", "stacks/rank1.txt")
    (tmp_path / "stacks").mkdir()
    for name in own:
        (tmp_path / name).touch()
    assert set_earlier_run_aside(tmp_path, 0, 2, keep_checkpoints=False) == ()
    assert not (tmp_path / "earlier").exists() and all((tmp_path / name).exists() for name in own)
    for name in ("rank0.txt", "rank2.txt", "pid77.txt"):
        (tmp_path / "stacks" / name).touch()
    set_earlier_run_aside(tmp_path, 0, 2, keep_checkpoints=False)
    assert [path.name for path in (tmp_path / "stacks").iterdir()] == ["rank1.txt"]
    assert len(list((tmp_path / "earlier" / "unknown" / "stacks").iterdir())) == 3
    set_earlier_run_aside(tmp_path, 1, 2, keep_checkpoints=False)
    assert not any((tmp_path / name).exists() for name in own)
