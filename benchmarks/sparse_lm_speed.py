"""The sparse language model on one GPU against its dense twin: same widths, precision, compile, CUDA graph and optimiser, in one run.

    python benchmarks/sparse_lm_speed.py                              needs a GPU; about ten minutes, most of it compiling
    python benchmarks/sparse_lm_speed.py --only trainer b2 b16        parts: ranges trainer b2 b16 profile lengths eager
    python benchmarks/sparse_lm_speed.py --only lengths --lengths 16384 32768 --limit-s 90

    b16  S  2,048  sparse  graph   3xx,xxx tokens/s  (step … ms, n 20, peak … GiB)
    …
    {"benchmark": "sparse_lm_speed", "figures": {"sparse_b16_graph_tokens_per_s": …, …}, "bounds": …, "holds": true, …}

Production configuration: 78 M parameters, S = 2,048, bf16 autocast over fp32 weights, fused AdamW, clipping 1.0, no checkpointing, no
accumulation. A step is the trainer's own (`DdpEngine`): forward, backward, clipping and AdamW, with tensors already on the GPU. `eager`
compiles FlexAttention only; `graph` is torch.compile of a block, shared by all layers, and one CUDA graph of the whole step. The dense twin
has one set of keys and values in the same groups, causal scaled_dot_product_attention, and no gate. `trainer` is the trainer itself, with
loader, statistics and files, as recorded in its training.csv. `lengths` keeps 32,768 tokens per step and searches the length from which the
sparse model is faster. A figure is printed as soon as it is known; one that takes longer than --limit-s is skipped.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outcome import parser, report, skip
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.engines import EngineOptions
from seatrial_workloads.common.engines.ddp import DdpEngine
from seatrial_workloads.common.precision import Precision
from seatrial_workloads.sparse_lm.compiled_step import capture_step, compile_blocks
from seatrial_workloads.sparse_lm.model import SparseLM
from seatrial_workloads.sparse_lm.ops.layout import rotate
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2
from seatrial_workloads.sparse_lm.ops.shape import ModelShape
from seatrial_workloads.sparse_lm.reporting import RunInfo
from seatrial_workloads.sparse_lm.settings import SHAPE_FIELDS, Settings
from seatrial_workloads.sparse_lm.train import train

NAME = "sparse_lm_speed"
AT_LEAST = {
    "sparse_b2_graph_tokens_per_s": 100_000.0,
    "sparse_b16_graph_tokens_per_s": 200_000.0,
    "trainer_b2_tokens_per_s": 100_000.0,
    "trainer_b16_tokens_per_s": 200_000.0,
    "ranges_v2_over_v1": 100.0,
}
PARTS = ("ranges", "trainer", "b2", "b16", "profile", "lengths", "eager")
BATCHES = {"b2": 2, "b16": 16}
LENGTHS = (8192, 32768)
SEQ_LEN = 2048
# Per step in `lengths`.
TOKENS = 32768
# Measured steps, and warm-up steps before them; a graph's capture adds three.
STEPS, LENGTH_STEPS, WARM_UP = 20, 5, 3
# Steps of the trainer, and how many of them, from the end, are measured.
TRAINER_STEPS, TRAINER_MEASURED = 60, 40
SMALL = ModelShape(dim=32, n_layers=1, n_heads=4, n_kv_groups=2, d_k=8, d_v=8, cmp_block=8, cmp_stride=4, sel_block=8, n_sel=4, window=16)
BF16 = Precision("bf16", "bf16", "")
OPTIONS = EngineOptions(lr=2e-4, weight_decay=0.01, schedule="linear_constant")


class TooLong(BaseException):
    """A figure took longer than its limit. Not an Exception, since compilers catch those."""


@contextlib.contextmanager
def time_limit(limit_s: float, what: str) -> Iterator[None]:
    """Print, do not raise, if `what` takes longer or runs out of memory."""

    def end(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except TooLong:
        print(f"{what}: not measured, longer than {limit_s:g} s", flush=True)
    except RuntimeError as error:
        print(f"{what}: not measured: {str(error).splitlines()[0]}", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class DenseAttention(nn.Module):  # type: ignore[misc]
    """Grouped-query causal attention of the same widths."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.widths = [shape.n_heads * shape.d_k, shape.n_kv_groups * shape.d_k, shape.n_kv_groups * shape.d_v]
        self.project_in = nn.Linear(shape.dim, sum(self.widths), bias=False)
        self.project_out = nn.Linear(shape.n_heads * shape.d_v, shape.dim, bias=False)

    def forward(self, hidden: Tensor, layout: Any, cache: object = None) -> tuple[Tensor, None]:
        parts = zip(self.project_in(hidden).split(self.widths, dim=-1), (self.shape.d_k, self.shape.d_k, self.shape.d_v), strict=True)
        query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part, width in parts)
        query, key = (rotate(part, layout.cos, layout.sin) for part in (query, key))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.project_out(mixed.transpose(1, 2).flatten(2)), None


def dense_twin(shape: ModelShape) -> SparseLM:
    """The same model with dense attention."""
    model = SparseLM(shape)
    for block in model.blocks:
        block.attention = DenseAttention(shape)
    return model


class Step:
    """The trainer's step on device tensors: eager, or compiled and captured in one CUDA graph."""

    def __init__(self, model: SparseLM, tokens: Tensor, *, graph: bool) -> None:
        self.tokens = tokens
        self.inputs = {"tokens": tokens, "targets": tokens.roll(-1, dims=1), "documents": None}
        ranks = Ranks(rank=0, local_rank=0, world_size=1, device=tokens.device)
        self.engine = DdpEngine(model, ranks, BF16, OPTIONS)
        self._step: Callable[[], Tensor] = self.eager
        if graph:
            compiled = compile_blocks(model, lambda: self.engine.warm_up(**self.inputs), ranks)
            for choice in (compiled, capture_step(self.engine, self.inputs, requested=True)):
                if not choice.effective:
                    raise RuntimeError(choice.reason)
            self._step = self.replay

    def run(self) -> None:
        self.loss = self._step()

    def eager(self) -> Tensor:
        loss = self.engine.forward(**self.inputs)
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()

    def replay(self) -> Tensor:
        return self.engine.replay(**self.inputs)


def measure(step: Step, num_steps: int) -> dict[str, float]:
    """Median step time between CUDA events, and peak memory since the last reset."""
    for _ in range(WARM_UP):
        step.run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(num_steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step.run()
        mark.record()
    torch.cuda.synchronize()
    times = [before.elapsed_time(after) for before, after in pairwise(marks)]
    step_ms = statistics.median(times)
    return {
        "tokens_per_s": round(step.tokens.numel() / step_ms * 1000),
        "step_ms": round(step_ms, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
        "loss": round(float(step.loss), 4),
    }


def random_tokens(batch: int, seq_len: int, device: str) -> Tensor:
    return torch.randint(0, 256, (batch, seq_len), device=device, generator=torch.Generator(device).manual_seed(1337))


def measure_model(name: str, shape: ModelShape, batch: int, seq_len: int, *, graph: bool, steps: int = STEPS) -> dict[str, float]:
    """Measure one model, and print it."""
    torch.manual_seed(1337)
    reset()
    # Before the capture: it allocates a graph's memory, replays allocate none.
    torch.cuda.reset_peak_memory_stats()
    model = dense_twin(shape) if name == "dense" else SparseLM(shape)
    step = Step(model.cuda(), random_tokens(batch, seq_len, "cuda"), graph=graph)
    found = measure(step, steps)
    mode = "graph" if graph else "eager"
    print(
        f"b{batch:<3} S {seq_len:6,}  {name:7} {mode}  {found['tokens_per_s']:9,} tokens/s  (step {found['step_ms']} ms, n {steps}, "
        f"peak {found['peak_gib']} GiB, loss {found['loss']})",
        flush=True,
    )
    return found


def ranges_speed(device: str, repeats: int) -> dict[str, float]:
    """Both conversions at (2, 256, 4, 32), each with a synchronisation."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(-1, 40, (2, 256, 4, 32), generator=generator).sort(dim=-1).values.to(device)
    seconds = {}
    for name, convert in (("v1", ranges_v1), ("v2", ranges_v2)):
        times = []
        for _ in range(5 + repeats):
            start = time.perf_counter()
            convert(ids, 64, 36)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        seconds[name] = statistics.median(times[5:])
    print(
        f"ranges at (2, 256, 4, 32) on {device}: v1 {1000 * seconds['v1']:.2f} ms, v2 {1000 * seconds['v2']:.3f} ms, n {repeats}",
        flush=True,
    )
    ratio = round(seconds["v1"] / seconds["v2"], 1)
    return {"ranges_v1_ms": round(1000 * seconds["v1"], 3), "ranges_v2_ms": round(1000 * seconds["v2"], 4), "ranges_v2_over_v1": ratio}


def measure_batches(wanted: list[str], figures: dict[str, Any], limit_s: float) -> None:
    """Both models at the production length, alternately."""
    for mode in ("graph", "eager"):
        for part, batch in BATCHES.items():
            if part in wanted if mode == "graph" else "eager" in wanted:
                for name in ("sparse", "dense"):
                    with time_limit(limit_s, f"{part} {name} {mode}"):
                        found = measure_model(name, ModelShape(), batch, SEQ_LEN, graph=mode == "graph")
                        figures |= {f"{name}_{part}_{mode}_{key}": value for key, value in found.items()}


def trainer(figures: dict[str, Any], limit_s: float) -> None:
    """The trainer itself, compiled and captured: the rate in its training.csv."""
    for part, batch in BATCHES.items():
        with time_limit(limit_s, f"trainer {part}"):
            found = run_trainer(ModelShape(), batch, PRODUCTION)
            figures |= {f"trainer_{part}_{key}": value for key, value in found.items()}
            print(
                f"{part:4} S {SEQ_LEN:6,}  trainer        {found['tokens_per_s']:9,} tokens/s  (step {found['step_ms']} ms, "
                f"n {TRAINER_MEASURED}, compile {found['compile']}, cuda_graph {found['cuda_graph']}, loss {found['loss']})",
                flush=True,
            )


def reset() -> None:
    """Drop compiled code and memory of the previous model."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


PRODUCTION = {"seq_len": SEQ_LEN, "steps": TRAINER_STEPS, "log_every": 20, "precision": "bf16", "compile": True, "device": "cuda"}
TOY = {"seq_len": 64, "steps": 3, "device": "cpu"}


def run_trainer(shape: ModelShape, batch: int, settings: dict[str, Any]) -> dict[str, Any]:
    reset()
    widths = {name: getattr(shape, name) for name in SHAPE_FIELDS}
    with tempfile.TemporaryDirectory() as folder:
        train(Settings(**widths, **settings, batch_size=batch, tensorboard=False), Path(folder), RunInfo(run_id=f"b{batch}"))
        with open(Path(folder) / "training.csv", newline="") as source:
            rows = list(csv.DictReader(source))
        effective = json.loads((Path(folder) / "env.json").read_text())["effective"]
    measured = rows[-TRAINER_MEASURED:]
    return {
        "tokens_per_s": round(statistics.median(float(row["toks_per_s"]) for row in measured)),
        "step_ms": round(statistics.median(float(row["step_ms"]) for row in measured), 2),
        "loss": round(float(rows[-1]["loss"]), 4),
        "compile": "compile" in effective and effective["compile"]["effective"],
        "cuda_graph": effective["cuda_graph"]["effective"],
    }


def lengths(seq_lens: list[int], figures: dict[str, Any], limit_s: float) -> None:
    """Step time of both by length, and the first length from which the sparse model is faster; None if there is none."""
    # The production length at batch 16 has as many tokens.
    times = {SEQ_LEN: {name: figures[key] for name in ("sparse", "dense") if (key := f"{name}_b16_graph_step_ms") in figures}}
    for seq_len in seq_lens:
        times[seq_len] = {}
        for name in ("dense", "sparse"):
            with time_limit(limit_s, f"S {seq_len:6,}  {name}"):
                found = measure_model(name, ModelShape(), TOKENS // seq_len, seq_len, graph=True, steps=LENGTH_STEPS)
                times[seq_len][name] = figures[f"{name}_s{seq_len}_step_ms"] = found["step_ms"]
    measured = [seq_len for seq_len, both in times.items() if len(both) == 2]
    slower = [seq_len for seq_len in measured if times[seq_len]["sparse"] >= times[seq_len]["dense"]]
    crossover = next((seq_len for seq_len in measured if not slower or seq_len > slower[-1]), None)
    figures |= {"crossover_seq_len": crossover, "crossover_searched": measured}
    print(f"crossover: {crossover or 'not found'} over S = {measured}", flush=True)


# Kind of kernel → pattern of its names; the first match counts.
KINDS = {
    "FlexAttention backward": "triton_tem.*flex_attention_backward",
    "FlexAttention forward": "triton_tem.*flex_attention",
    "dense attention": "flash|fmha|cudnn.*sdpa",
    "matrix products": "gemm|nvjet|cutlass|xmma|cublas",
    "sorting": "sort|Sort",
    "optimiser and clipping": "multi_tensor|foreach|lpnorm",
    "fused elementwise and reductions": "triton_",
}


def profile(figures: dict[str, Any]) -> None:
    """GPU time of one step at batch 16, by kind of kernel."""
    reset()
    step = Step(SparseLM(ModelShape()).cuda(), random_tokens(16, SEQ_LEN, "cuda"), graph=True)
    step.run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step.run()
        torch.cuda.synchronize()
    kinds: dict[str, float] = {}
    for event in profiler.key_averages():
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, event.key)), "other")
        kinds[kind] = kinds.get(kind, 0.0) + event.self_device_time_total / 1000
    for kind, spent_ms in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"    {spent_ms:7.2f} ms  {spent_ms / sum(kinds.values()):6.1%}  {kind}", flush=True)
    figures["sparse_b16_kernels_ms"] = {kind: round(spent_ms, 2) for kind, spent_ms in kinds.items()}


def measure_toy() -> dict[str, Any]:
    """A toy model on the CPU: the same step, eager, and the trainer."""
    figures: dict[str, Any] = ranges_speed("cpu", 1)
    figures |= {f"trainer_{part}_tokens_per_s": run_trainer(SMALL, batch, TOY)["tokens_per_s"] for part, batch in BATCHES.items()}
    for name, model in (("sparse", SparseLM(SMALL)), ("dense", dense_twin(SMALL))):
        step = Step(model, random_tokens(2, 64, "cpu"), graph=False)
        start = time.perf_counter()
        step.run()
        rate = round(step.tokens.numel() / (time.perf_counter() - start))
        figures |= {f"{name}_{part}_graph_tokens_per_s": rate for part in BATCHES}
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", choices=PARTS, help="parts to measure (all)")
    options.add_argument("--lengths", nargs="*", type=int, default=LENGTHS, metavar="S", help="sequence lengths of the part lengths")
    options.add_argument("--limit-s", type=float, default=150.0, metavar="S", help="longest time for one figure, compiling included (150)")
    args = options.parse_args()
    if args.quick:
        report(NAME, measure_toy(), {}, AT_LEAST, quick=True, torch=torch.__version__)
        return
    if not torch.cuda.is_available():
        skip(NAME, "no GPU found")
    torch.set_float32_matmul_precision("high")
    wanted = args.only or list(PARTS)
    figures: dict[str, Any] = ranges_speed("cuda", 10) if "ranges" in wanted else {}
    if "trainer" in wanted:
        trainer(figures, args.limit_s)
    measure_batches(wanted, figures, args.limit_s)
    if "profile" in wanted:
        with time_limit(args.limit_s, "profile"):
            profile(figures)
    if "lengths" in wanted:
        lengths(sorted(args.lengths), figures, args.limit_s)
    at_least = {name: bound for name, bound in AT_LEAST.items() if not args.only or name in figures}
    n = {"steps": STEPS, "trainer": TRAINER_MEASURED, "lengths": LENGTH_STEPS, "ranges": 10}
    gpu = torch.cuda.get_device_name()
    report(NAME, figures, {}, at_least, gpu=gpu, torch=torch.__version__, cuda=torch.version.cuda, n=n, warm_up_steps=WARM_UP)


if __name__ == "__main__":
    main()
