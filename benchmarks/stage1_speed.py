"""Stage 1 on one GPU, with real data loading, against the stock loop without it. All variants in one run, on one machine.

    python benchmarks/stage1_speed.py                          needs a GPU; about eight minutes
    python benchmarks/stage1_speed.py --only ddp               one of: stock stock_compiled ddp compiled deepspeed random_slices zero_1 …

    stock            2,010 samples/s  (step 79.6 ms, n 15)
    ddp              3,4.. samples/s  window 60:299, n 240, data wait 0.2 % of the step
    …
    {"benchmark": "stage1_speed", "figures": {"ddp_samples_per_s": …, "deepspeed_over_ddp": …}, "bounds": …, "holds": true, …}

A synthetic LibriSpeech tree is written and prepared (trimmed, FLAC) first. Each variant of ours is the trainer itself, as the harness
starts it: its wall time over the window, read from its events. bf16, micro batch 160, slices of 2.0 s; `random_slices` has 1 to 3 s.
`deepspeed` is ZeRO 0 under autocast, `zero_1` ZeRO 1 under autocast, as a plan with `fast_paths: equal` compares them; `_weights` variants
have 16-bit weights, ZeRO 1's default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from outcome import parser, report, skip

HERE = Path(__file__).parent
AT_LEAST = {"ddp_samples_per_s": 2000.0, "compiled_samples_per_s": 2450.0, "deepspeed_over_ddp": 0.95}
AT_MOST = {"ddp_data_wait_share": 0.03, "compiled_data_wait_share": 0.03, "deepspeed_data_wait_share": 0.03}
FIRST_STEP = 60
UTTERANCES = 2400
SETTINGS = {
    "speech_model": "base",
    "text_model": "base",
    "precision": "bf16",
    "micro_batch": 160,
    "fixed_slice_s": 2.0,
    "num_workers": 8,
    "prefetch_factor": 4,
    "steps": 300,
    "log_every": 100,
    "warmup_steps": 100,
    "schedule_steps": 1000,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "deepspeed": {"engine": "deepspeed"},
    "random_slices": {"fixed_slice_s": None},
    "compiled": {"torch_compile": True},
    "zero_1": {"engine": "deepspeed", "zero_stage": 1, "mixed_precision": "autocast"},
    "zero_1_weights": {"engine": "deepspeed", "zero_stage": 1, "mixed_precision": "weights"},
    "zero_0_weights": {"engine": "deepspeed", "mixed_precision": "weights"},
    "zero_1_compiled": {"engine": "deepspeed", "zero_stage": 1, "mixed_precision": "autocast", "torch_compile": True},
}
# Figure → the variants whose samples/s it divides.
RATIOS = {
    "deepspeed_over_ddp": ("deepspeed", "ddp"),
    "zero_0_over_zero_1_equal": ("deepspeed", "zero_1"),
    "zero_0_over_zero_1_all": ("deepspeed", "zero_1_weights"),
    "zero_0_over_zero_1_weights": ("zero_0_weights", "zero_1_weights"),
}
COMPILED = ("compiled", "zero_1_compiled")
STOCK = {"stock": "false", "stock_compiled": "true"}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", choices=[*STOCK, *VARIANTS], help="variants to measure (all)")
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="override trainer settings, as in micro_batch=192")
    args = options.parse_args()
    import torch

    if not torch.cuda.is_available():
        skip("stage1_speed", "no GPU found")
    changed: dict[str, Any] = {"steps": FIRST_STEP + 20} if args.quick else {}
    changed |= {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in args.set)}
    wanted = args.only or [*STOCK, *VARIANTS]
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = create_data(Path(scratch)) if any(name in VARIANTS for name in wanted) else {}
        # Stock and ours alternate, so that a slow minute of the machine affects both.
        for name in (
            "stock",
            "ddp",
            "deepspeed",
            "zero_1",
            "zero_1_weights",
            "zero_0_weights",
            "random_slices",
            "stock_compiled",
            *COMPILED,
        ):
            if name in wanted:
                figures |= (
                    run_stock(name) if name in STOCK else run_ours(name, {**SETTINGS, **data, **changed, **VARIANTS[name]}, Path(scratch))
                )
    for ratio, (over, under) in RATIOS.items():
        if f"{over}_samples_per_s" in figures and f"{under}_samples_per_s" in figures:
            figures[ratio] = round(figures[f"{over}_samples_per_s"] / figures[f"{under}_samples_per_s"], 4)
    at_least = {name: bound for name, bound in AT_LEAST.items() if not args.only or name in figures}
    at_most = {name: bound for name, bound in AT_MOST.items() if not args.only or name in figures}
    report(
        "stage1_speed",
        figures,
        at_most,
        at_least,
        quick=args.quick,
        gpu=torch.cuda.get_device_name(),
        torch=torch.__version__,
        settings={**SETTINGS, **changed},
    )


def create_data(scratch: Path) -> dict[str, str]:
    """Create the data set; its location, as settings."""
    raw, prepared = scratch / "raw", scratch / "prepared"
    workers = str(len(os.sched_getaffinity(0)))
    prepare = [sys.executable, "-m", "seatrial_workloads.librispeech.prepare"]
    subprocess.run([*prepare, "--synthetic", str(UTTERANCES), "--output-root", raw, "--workers", workers], check=True, stdout=sys.stderr)
    manifest = prepared / "manifest.tsv"
    flags: list[str | Path] = ["--input-root", raw, "--output-root", prepared, "--trim", "--manifest-path", manifest, "--workers", workers]
    subprocess.run([*prepare, *flags], check=True, stdout=sys.stderr)
    return {"dataset_root": str(prepared), "dataset_manifest_path": str(manifest)}


def run_stock(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, HERE / "stage1_stock.py", "--compiled", STOCK[name]], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{name:16} {found['samples_per_s']:7,.0f} samples/s  (step {found['step_ms']} ms, n {found['n']})", flush=True)
    return {f"{name}_samples_per_s": found["samples_per_s"], f"{name}_step_ms": found["step_ms"], f"{name}_peak_gib": found["peak_gib"]}


def run_ours(name: str, settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Run the trainer in a process of its own; figures from its events."""
    run_dir, file = scratch / f"run-{name}", scratch / f"{name}.json"
    file.write_text(json.dumps(settings))
    argv: list[str | Path] = [sys.executable, "-m", "seatrial_workloads.contrastive.train", "--settings", file, "--run-dir", run_dir]
    subprocess.run(argv, check=True, stdout=sys.stderr)
    events = [json.loads(line) for line in (run_dir / "events_rank0.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step" and event["step"] >= FIRST_STEP]
    span_s = steps[-1]["m"] - steps[0]["m"]
    samples_per_s = sum(step["samples"] for step in steps[1:]) / span_s
    wait_share = sum(step["data_wait_ms"] or 0.0 for step in steps[1:]) / 1000 / span_s
    peak_mib = max(event["peak_mib"] or 0 for event in events if event["kind"] == "memory")
    window = f"{steps[0]['step'] + 1}:{steps[-1]['step']}"
    losses = [step["loss"] for step in steps if step.get("loss") is not None]
    print(
        f"{name:16} {samples_per_s:7,.0f} samples/s  window {window}, n {len(steps) - 1}, data wait {wait_share:.2%} of the step, "
        f"loss {losses[0]:.3f} to {losses[-1]:.3f}",
        flush=True,
    )
    for event in events:
        if event["kind"] == "effective" and event["requested"] != event["effective"]:
            print(f"    {event['setting']}: {event['requested']} -> {event['effective']} ({event['reason']})", file=sys.stderr)
    return {
        f"{name}_samples_per_s": round(samples_per_s, 1),
        f"{name}_step_ms": round(1000 * span_s / (len(steps) - 1), 2),
        f"{name}_data_wait_share": round(wait_share, 4),
        f"{name}_peak_gib": round(peak_mib / 1024, 1),
        f"{name}_window": window,
    }


if __name__ == "__main__":
    main()
