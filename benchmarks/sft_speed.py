"""LoRA fine-tuning of Mistral-7B's shape on one GPU: the stock PEFT loop, eager and compiled, and ours, in one run.

    python benchmarks/sft_speed.py                        needs a GPU with 100 GiB; about ten minutes, most of it compiling stock
    python benchmarks/sft_speed.py --only ours_b16        one of: ours_b1 ours_b16 packed peaks profile stock_b1_eager …

    ours_b16             18,xxx tokens/s  (step … ms, n 20, peak … GiB, start-up … s, loss …)
    …
    {"benchmark": "sft_speed", "figures": {"ours_b1_tokens_per_s": …, …}, "bounds": …, "holds": true, …}

Random weights in bf16, LoRA r 8 on all projections (its weights fp32, dropout 0), sequences of 512, fused AdamW, clipping 1.0, tensors
already on the GPU. A step is forward, backward, clipping and AdamW; padding tokens count too. Stock is transformers' and PEFT's unmodified
modules; `compiled` is torch.compile of a layer, shared by all, and at one row the step as one CUDA graph; `whole` is torch.compile of the
whole model (at one row in mode reduce-overhead), which takes minutes. Ours has every part of `fast_paths`, and the step as one CUDA graph.
`packed` has the tokens of 16 rows in one, filled with examples of Alpaca's lengths; only real tokens count. `peaks` is the peak memory of
the shapes that `seatrial plan fit` forecasts.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import MistralConfig, MistralForCausalLM
from transformers.models.mistral import modeling_mistral

from outcome import parser, report, skip
from seatrial_workloads.sft.fast import PARTS as FAST_PARTS
from seatrial_workloads.sft.fast.apply import apply_fast_paths, causal_lm, remove_fast_paths
from seatrial_workloads.sft.fast.graph import GraphedStep

NAME = "sft_speed"
AT_LEAST = {"ours_b1_tokens_per_s": 13_000.0, "ours_b16_tokens_per_s": 18_000.0, "packed_real_over_padded": 0.9}
SEQ_LEN = 512
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Rows → the faster mode of torch.compile.
COMPILE_MODES = {1: "reduce-overhead", 16: "default"}
STOCK = {f"stock_b{rows}_{mode}": (rows, mode) for mode in ("eager", "compiled", "whole") for rows in COMPILE_MODES}
OURS = {f"ours_b{rows}": rows for rows in COMPILE_MODES}
VARIANTS = (*OURS, "packed", "profile", "peaks", *STOCK)
# (rows, gradient checkpointing), in this order.
PEAK_SHAPES = ((1, False), (4, False), (8, False), (16, False), (16, True))
STEPS, STOCK_STEPS, PEAK_STEPS = 20, 10, 1
# A graph needs four: three before its capture, and the capture.
WARM_UP = 5
# Approximates Alpaca's examples with their template: log-normal, truncated at the sequence length.
MEDIAN_LENGTH, SIGMA, SHORTEST = 105, 0.55, 24
MAX_SEQUENCES = 128


@dataclass(frozen=True)
class FastSettings:
    seq_len: int
    packing: bool = False


@dataclass(frozen=True)
class Size:
    """The real shape on a GPU, or a toy model on the CPU that runs the same code."""

    device: str
    seq_len: int
    vocabulary: int

    def steps(self, wanted: int) -> int:
        return wanted if self.device == "cuda" else 1


REAL, TOY = Size("cuda", SEQ_LEN, 32_000), Size("cpu", 32, 256)


def build_model(size: Size) -> Any:
    """The model with its adapters, in training mode."""
    small: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    shape = small if size == TOY else {}
    config = MistralConfig(sliding_window=None, attn_implementation="sdpa", vocab_size=size.vocabulary, **shape)
    torch.manual_seed(1337)
    with torch.device(size.device):
        model = MistralForCausalLM._from_config(config, dtype=torch.bfloat16)
    adapters = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=list(PROJECTIONS), task_type="CAUSAL_LM")
    return get_peft_model(model, adapters).train()


class Loop:
    """A training loop over the model's trainable weights."""

    def __init__(self, model: Any, mode: str, **fixed: int) -> None:
        self.model, self.fixed = model, fixed
        self.autocast = mode == "autocast"
        self.is_graphed = mode == "graph"
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        on_gpu = self.weights[0].is_cuda
        self.optimiser = torch.optim.AdamW(self.weights, lr=2e-5, fused=True, capturable=on_gpu)
        self.forward = self.loss_of
        self.step: Callable[[Mapping[str, Tensor]], Tensor] = self.eager_step
        if mode == "graph" and on_gpu:
            self.step = GraphedStep(self.eager_step)
        elif mode in COMPILE_MODES.values() and on_gpu:
            self.forward = torch.compile(self.loss_of, mode=mode)

    def loss_of(self, batch: Mapping[str, Tensor]) -> Tensor:
        with torch.autocast(self.weights[0].device.type, torch.bfloat16, enabled=self.autocast):
            loss: Tensor = self.model(**batch, **self.fixed, use_cache=False).loss
        return loss

    def eager_step(self, batch: Mapping[str, Tensor]) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        loss = self.forward(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()


def measure(name: str, loop: Loop, batches: list[dict[str, Tensor]], num_steps: int, warm_up: int = WARM_UP) -> dict[str, Any]:
    """Median time of a step, measured and printed."""
    on_gpu = batches[0]["input_ids"].is_cuda
    synchronise = torch.cuda.synchronize if on_gpu else lambda: None
    started_s = time.perf_counter()
    for index in range(warm_up if on_gpu else 1):
        loop.step(batches[index % len(batches)])
        if index == 0:
            synchronise()
            first_s = time.perf_counter() - started_s
    times = []
    for index in range(num_steps):
        synchronise()
        before_s = time.perf_counter()
        loss = loop.step(batches[index % len(batches)])
        synchronise()
        times.append(1000 * (time.perf_counter() - before_s))
    step_ms = statistics.median(times)
    rate = round(batches[0]["input_ids"].numel() / step_ms * 1000)
    peak_gib = round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None
    print(
        f"{name:24} {rate:8,} tokens/s  (step {step_ms:.2f} ms, n {num_steps}, peak {peak_gib} GiB, first step {first_s:.1f} s, "
        f"loss {float(loss):.4f})",
        flush=True,
    )
    found = {"tokens_per_s": rate, "step_ms": round(step_ms, 2), "peak_gib": peak_gib, "first_step_s": round(first_s, 1)}
    return {f"{name}_{key}": value for key, value in found.items()}


def reset() -> None:
    """Drop compiled code and memory of the previous variant."""
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def rows_of(rows: int, size: Size) -> dict[str, Tensor]:
    generator = torch.Generator(size.device).manual_seed(1337)
    tokens = torch.randint(0, size.vocabulary, (rows, size.seq_len), device=size.device, generator=generator)
    return {"input_ids": tokens, "labels": tokens.clone()}


def stock(name: str, model: Any, size: Size) -> dict[str, Any]:
    rows, mode = STOCK[name]
    reset()
    layers = causal_lm(model).model.layers
    if mode == "compiled" and size == REAL:
        for layer in layers:
            layer.compile()
    loop = Loop(model, {"eager": "eager", "whole": COMPILE_MODES[rows], "compiled": "graph" if rows == 1 else "eager"}[mode])
    # Building the mask reads positions back to the host, which a graph cannot capture; for whole rows the mask is None anyway.
    no_mask = patch.object(modeling_mistral, "create_causal_mask", return_value=None) if loop.is_graphed else nullcontext()
    with no_mask:
        return measure(name, loop, [rows_of(rows, size)], size.steps(STOCK_STEPS))


def ours(name: str, model: Any, batches: list[dict[str, Tensor]], size: Size, *, packing: bool = False) -> dict[str, Any]:
    reset()
    effective = apply_fast_paths(model, FAST_PARTS, FastSettings(size.seq_len, packing))
    for part, (is_effective, reason) in effective.items():
        if not is_effective:
            print(f"    without {part}: {reason}", flush=True)
    try:
        # The longest sequence is a Python number; a graph's inputs are tensors only.
        fixed = {"max_length_q": size.seq_len} if packing else {}
        return measure(name, Loop(model, "graph", **fixed), batches, size.steps(STEPS))
    finally:
        remove_fast_paths(model)


def packings(size: Size, num_rows: int) -> list[list[int]]:
    """Lengths of the examples in each row of 16 sequences' tokens."""
    rng, tokens = random.Random(1337), 16 * size.seq_len
    num_examples = 2 * tokens * num_rows // SHORTEST
    pool = [min(size.seq_len, max(SHORTEST, round(rng.lognormvariate(0, SIGMA) * MEDIAN_LENGTH))) for _ in range(num_examples)]
    rows = []
    for _ in range(num_rows):
        row: list[int] = []
        # In the order drawn until less than a sequence is left, then best fit.
        while tokens - sum(row) > size.seq_len:
            row.append(pool.pop())
        while fitting := [length for length in pool if length <= tokens - sum(row)]:
            pool.remove(max(fitting))
            row.append(max(fitting))
        rows.append(row)
    return rows


def packed_batch(lengths: list[int], size: Size) -> dict[str, Tensor]:
    """One row; the rest of it is one sequence of padding."""
    tokens = 16 * size.seq_len
    filled = [*lengths, tokens - sum(lengths)]
    positions = torch.cat([torch.arange(length) for length in filled])
    ids = torch.randint(0, size.vocabulary, (1, tokens), generator=torch.Generator().manual_seed(len(lengths)))
    labels = ids.clone()
    labels[0, positions == 0] = -100
    labels[0, sum(lengths) :] = -100
    offsets = [0, *accumulate(filled)]
    offsets += [tokens] * (MAX_SEQUENCES + 1 - len(offsets))
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions[None], "cu_seq_lens_q": torch.tensor(offsets, dtype=torch.int32)}
    return {name: tensor.to(size.device) for name, tensor in batch.items()}


def packed(model: Any, size: Size, figures: dict[str, Any]) -> None:
    """Real tokens/s of packed rows, their figures, and the shares of real tokens."""
    rows = packings(size, size.steps(8))
    lengths = [length for row in rows for length in row]
    mean = statistics.mean(lengths)
    share, padded_share = sum(lengths) / (16 * size.seq_len * len(rows)), mean / size.seq_len
    print(
        f"lengths: log-normal, median {MEDIAN_LENGTH}, sigma {SIGMA}, cut to {SHORTEST} to {size.seq_len}; mean {mean:.1f}, "
        f"n {len(lengths)}; real share {share:.2%} packed, {padded_share:.2%} padded to {size.seq_len}",
        flush=True,
    )
    figures |= ours("packed", model, [packed_batch(row, size) for row in rows], size, packing=True)
    figures |= {"packed_real_share": round(share, 4), "padded_real_share": round(padded_share, 4)}
    figures["packed_real_tokens_per_s"] = round(figures["packed_tokens_per_s"] * share)


def peaks(model: Any, size: Size, figures: dict[str, Any]) -> None:
    """Peak memory by shape, without a graph (which holds a little more): stock, stock under autocast as in the Trainer, and ours."""
    for rows, checkpointing in PEAK_SHAPES if size == REAL else ((1, False), (1, True)):
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        for variant in ("stock", "autocast", "ours"):
            reset()
            if variant == "ours":
                apply_fast_paths(model, FAST_PARTS, FastSettings(size.seq_len))
            name = f"peak_{variant}_b{rows}{'_checkpointing' if checkpointing else ''}"
            figures |= measure(name, Loop(model, variant), [rows_of(rows, size)], size.steps(PEAK_STEPS), warm_up=1)
            remove_fast_paths(model)
        if checkpointing:
            model.gradient_checkpointing_disable()
            model.disable_input_require_grads()


# Kind of kernel → pattern of its names; the first match counts.
KINDS = {
    "attention": "flash|fmha|sdpa|cudnn.*attn",
    "matrix products": "gemm|nvjet|cutlass|xmma|cublas|splitK|gemv",
    "optimiser and clipping": "multi_tensor|foreach|lpnorm|fused_adam",
    "fused elementwise and reductions": "triton_",
    "copies and fills": "copy|Memcpy|Memset|fill",
    "elementwise": "elementwise|vectorized",
}


def profile(model: Any, rows: int, figures: dict[str, Any]) -> None:
    """GPU time of one step of ours by kind of kernel, and its longest kernels."""
    reset()
    apply_fast_paths(model, FAST_PARTS, FastSettings(SEQ_LEN))
    loop, batch = Loop(model, "graph"), rows_of(rows, REAL)
    for _ in range(WARM_UP):
        loop.step(batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        loop.step(batch)
        torch.cuda.synchronize()
    remove_fast_paths(model)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    kinds: dict[str, float] = {}
    for event in events:
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, event.key, re.IGNORECASE)), "other")
        kinds[kind] = kinds.get(kind, 0.0) + event.self_device_time_total / 1000
    for event in events[:14]:
        print(f"    {event.self_device_time_total / 1000:8.2f} ms  {event.count:5} ×  {event.key[:110]}", flush=True)
    for kind, spent_ms in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"    {spent_ms:8.2f} ms  {spent_ms / sum(kinds.values()):6.1%}  {kind}", flush=True)
    figures[f"ours_b{rows}_kernels_ms"] = {kind: round(spent_ms, 2) for kind, spent_ms in kinds.items()}


def measure_all(wanted: list[str]) -> dict[str, Any]:
    """Measure each variant in a process of its own, which frees its memory and compiled code. One that fails has no figures."""
    figures: dict[str, Any] = {}
    for variant in wanted:
        with subprocess.Popen([sys.executable, __file__, "--alone", variant], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    figures |= json.loads(line)
                else:
                    print(line, end="", flush=True)
        if process.returncode:
            print(f"{variant}: failed with exit code {process.returncode}", flush=True)
    add_ratio(figures)
    return figures


def add_ratio(figures: dict[str, Any]) -> None:
    if "packed_real_tokens_per_s" in figures and "ours_b16_tokens_per_s" in figures:
        figures["packed_real_over_padded"] = round(figures["packed_real_tokens_per_s"] / figures["ours_b16_tokens_per_s"], 4)
        print(f"packed, real tokens/s over padded tokens/s: {figures['packed_real_over_padded']}", flush=True)


def measure_toy() -> dict[str, Any]:
    """All variants on the CPU, in this process."""
    # A toy's matrix products are too small for more: threads would wait for one another.
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    model = build_model(TOY)
    for variant in VARIANTS:
        measure_variant(variant, model, TOY, figures)
    add_ratio(figures)
    return figures


def measure_variant(variant: str, model: Any, size: Size, figures: dict[str, Any]) -> None:
    if variant in OURS:
        figures |= ours(variant, model, [rows_of(OURS[variant], size)], size)
    elif variant in STOCK:
        figures |= stock(variant, model, size)
    elif variant == "packed":
        packed(model, size, figures)
    elif variant == "peaks":
        peaks(model, size, figures)
    elif size == REAL:
        for rows in OURS.values():
            profile(model, rows, figures)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", nargs="*", choices=VARIANTS, help="variants to measure, in this order (all)")
    options.add_argument("--alone", choices=VARIANTS, help="measure this variant in this process; the last line has its figures only")
    args = options.parse_args()
    # The compiler warns about transformers' own code.
    warnings.simplefilter("ignore")
    if args.quick:
        report(NAME, measure_toy(), {}, AT_LEAST, quick=True, torch=torch.__version__)
        return
    if not torch.cuda.is_available():
        skip(NAME, "no GPU found")
    torch.set_float32_matmul_precision("high")
    if args.alone:
        figures: dict[str, Any] = {}
        measure_variant(args.alone, build_model(REAL), REAL, figures)
        print(json.dumps(figures))
        return
    figures = measure_all(args.only or list(VARIANTS))
    at_least = {name: bound for name, bound in AT_LEAST.items() if not args.only or name in figures}
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    n = {"ours": STEPS, "stock": STOCK_STEPS, "peaks": PEAK_STEPS}
    report(NAME, figures, {}, at_least, gpu=torch.cuda.get_device_name(), **versions, n=n, warm_up_steps=WARM_UP)


if __name__ == "__main__":
    main()
