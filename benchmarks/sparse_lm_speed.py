"""The sparse language model on one GPU against its dense twin: same widths, precision, compile, CUDA graph and optimiser, in one run.

    python benchmarks/sparse_lm_speed.py                       needs a GPU; about ten minutes, most of them compiling
    python benchmarks/sparse_lm_speed.py --only b16 ranges     parts: b2 b16 ranges profile lengths eager

    b16  S 2,048  sparse  graph   3xx,xxx tokens/s  (step … ms, n 20, peak … GiB)
    …
    {"benchmark": "sparse_lm_speed", "figures": {"sparse_b16_graph_tokens_per_s": …, …}, "bounds": …, "holds": true, …}

Production configuration: 78 M parameters, S = 2,048, bf16 autocast over fp32 weights, fused AdamW, clipping 1.0, no checkpointing, no
accumulation, tensors already on the GPU. A step is forward, backward, clipping and AdamW. `eager` compiles nothing but FlexAttention;
`graph` is torch.compile of a block, shared by all layers, and one CUDA graph of the whole step. The dense twin has one set of keys and
values in the same groups, causal scaled_dot_product_attention, and no gate. `lengths` holds tokens per step at 32,768 and looks for the
length from which the sparse model is faster.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outcome import parser, report, skip
from seatrial_workloads.sparse_lm.model import SparseLM
from seatrial_workloads.sparse_lm.ops.layout import rotate
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v1, ranges_v2
from seatrial_workloads.sparse_lm.shape import ModelShape

NAME = "sparse_lm_speed"
AT_LEAST = {"sparse_b2_graph_tokens_per_s": 100_000.0, "sparse_b16_graph_tokens_per_s": 200_000.0, "ranges_v2_over_v1": 100.0}
PARTS = ("b2", "b16", "ranges", "profile", "lengths", "eager")
LENGTHS = (2048, 8192, 32768)
SEQ_LEN = 2048
# Per step in `lengths`.
TOKENS = 32768
# Measured steps, and those before them: a graph's capture has three more.
STEPS, LENGTH_STEPS, WARM_UP = 20, 5, 3
SMALL = ModelShape(dim=32, n_layers=1, n_heads=4, n_kv_groups=2, d_k=8, d_v=8, cmp_block=8, cmp_stride=4, sel_block=8, n_sel=4, window=16)


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
    """The same model with its attention exchanged."""
    model = SparseLM(shape)
    for block in model.blocks:
        block.attention = DenseAttention(shape)
    return model


class Step:
    """One training step, eager or as compiled code in one CUDA graph."""

    def __init__(self, model: SparseLM, tokens: Tensor, *, graph: bool) -> None:
        self.tokens, self.targets = tokens, tokens.roll(-1, dims=1)
        self.model, self.on_gpu = model.to(tokens.device), tokens.is_cuda
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True, capturable=self.on_gpu)
        self.run: Callable[[], object] = self.step
        if graph:
            model.compile_blocks(dynamic=False)
            self.run = self.captured()

    def step(self) -> Tensor:
        with torch.autocast(self.tokens.device.type, dtype=torch.bfloat16):
            loss = self.model(self.tokens, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss = loss.detach()
        return loss

    def captured(self) -> Callable[[], object]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        replay: Callable[[], object] = graph.replay
        return replay


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


def side(name: str, shape: ModelShape, batch: int, seq_len: int, *, graph: bool, steps: int = STEPS) -> dict[str, float]:
    """One side, measured and printed."""
    torch.manual_seed(1337)
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    # Before the capture: a graph's memory is allocated there, and no more in its replays.
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
    """Both conversions at (2, 256, 4, 32), each with its result complete on the device."""
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


def batches(wanted: list[str], figures: dict[str, Any]) -> None:
    """Both sides at the production length, taking turns."""
    for part, batch in (("b2", 2), ("b16", 16)):
        for mode in ("graph", "eager"):
            if part in wanted and (mode == "graph" or "eager" in wanted):
                for name in ("sparse", "dense"):
                    found = side(name, ModelShape(), batch, SEQ_LEN, graph=mode == "graph")
                    figures |= {f"{name}_{part}_{mode}_{key}": value for key, value in found.items()}


def lengths(figures: dict[str, Any]) -> None:
    """Step time of both by length, and the first length from which the sparse model is faster; None where there is none."""
    faster = []
    for seq_len in LENGTHS:
        times = {}
        for name in ("sparse", "dense"):
            try:
                # The production length at batch 16 has as many tokens, and is not measured twice.
                known = figures.get(f"{name}_b16_graph_step_ms") if seq_len == SEQ_LEN else None
                times[name] = known or side(name, ModelShape(), TOKENS // seq_len, seq_len, graph=True, steps=LENGTH_STEPS)["step_ms"]
            except RuntimeError as error:
                print(f"S {seq_len:6,}  {name}: {str(error).splitlines()[0]}", flush=True)
            figures[f"{name}_s{seq_len}_step_ms"] = times.get(name)
        faster.append(len(times) == 2 and times["sparse"] < times["dense"])
    figures["crossover_seq_len"] = next((seq_len for at, seq_len in enumerate(LENGTHS) if all(faster[at:])), None)


# What a kernel's name says it is; the first match counts.
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
    """Shares of the GPU's time in one step at batch 16, by kind of kernel."""
    torch._dynamo.reset()
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


def quick() -> dict[str, Any]:
    """A toy model on the CPU: the same step, eager."""
    figures: dict[str, Any] = ranges_speed("cpu", 1)
    for name, model in (("sparse", SparseLM(SMALL)), ("dense", dense_twin(SMALL))):
        step = Step(model, random_tokens(2, 64, "cpu"), graph=False)
        start = time.perf_counter()
        step.run()
        rate = round(step.tokens.numel() / (time.perf_counter() - start))
        figures |= {f"{name}_{part}_graph_tokens_per_s": rate for part in ("b2", "b16")}
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", choices=PARTS, help="parts to measure (all)")
    args = options.parse_args()
    if args.quick:
        report(NAME, quick(), {}, AT_LEAST, quick=True, torch=torch.__version__)
        return
    if not torch.cuda.is_available():
        skip(NAME, "no GPU found: the speed of a CPU says nothing about it")
    torch.set_float32_matmul_precision("high")
    wanted = args.only or list(PARTS)
    figures: dict[str, Any] = ranges_speed("cuda", 10) if "ranges" in wanted else {}
    batches(wanted, figures)
    if "profile" in wanted:
        profile(figures)
    if "lengths" in wanted:
        lengths(figures)
    at_least = {name: bound for name, bound in AT_LEAST.items() if not args.only or name in figures}
    gpu, n = torch.cuda.get_device_name(), {"steps": STEPS, "lengths": LENGTH_STEPS, "ranges": 10}
    report(NAME, figures, {}, at_least, gpu=gpu, torch=torch.__version__, cuda=torch.version.cuda, n=n, warm_up_steps=WARM_UP)


if __name__ == "__main__":
    main()
