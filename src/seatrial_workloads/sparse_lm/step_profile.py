"""What a profiled step shows. In: torch.profiler's events. Out: the attention backends of its calls; the host's share and the Python
frames with the most time. Also an estimate of a pass of the sequential reference, from a few of its tokens.

Backends are those that ran, not those requested: on a GPU from the names of the kernels under each call, on a CPU from the operator
that the call was dispatched to.
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from seatrial.core.files import BY_UMASK, write_json, write_text
from seatrial_workloads.sparse_lm.attention import RANGES
from seatrial_workloads.sparse_lm.model import SparseLM
from seatrial_workloads.sparse_lm.ops import naive
from seatrial_workloads.sparse_lm.ops.attention_paths import choose_paths
from seatrial_workloads.sparse_lm.ops.layout import create_layout
from seatrial_workloads.sparse_lm.ops.sequential import prefill
from seatrial_workloads.sparse_lm.ops.spans import COMPRESSED, SELECTED, WINDOW

ATTENTION_CALL = re.compile(r"scaled_dot_product|flash_attention|efficient_attention|cudnn_attention|flex_attention")
# Tried in order: a kernel of cuDNN's flash attention names both.
KERNEL_BACKENDS = (
    ("cudnn", re.compile(r"cudnn", re.IGNORECASE)),
    ("flex", re.compile(r"flex", re.IGNORECASE)),
    ("flash", re.compile(r"flash", re.IGNORECASE)),
    ("efficient", re.compile(r"fmha|mem_eff|efficient", re.IGNORECASE)),
)
OPERATOR_BACKENDS = (
    ("cudnn", re.compile(r"cudnn_attention")),
    ("flex", re.compile(r"flex_attention")),
    ("flash", re.compile(r"flash_attention")),
    ("efficient", re.compile(r"efficient_attention")),
    ("math", re.compile(r"scaled_dot_product")),
)
BRANCHES = (COMPRESSED, SELECTED, WINDOW)
NO_STAGE, BACKWARD = "-", " (backward)"
# Backend of the compressed branch, whose scores selection needs, and of the selected one over gathered blocks.
MATMUL = "matmul"
TOP_FRAMES = 10


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """Calls of one kind in the profiled step."""

    stage: str
    """The innermost named stage around it."""
    call: str
    backend: str
    kernel: str
    """The longest kernel under it; empty on a CPU."""
    count: int


def profile_step(step: Callable[[], object]) -> Any:
    """Profile one call."""
    with profile(activities=activities()) as profiler:
        step()
    return profiler


def attention_calls(events: Sequence[Any]) -> list[AttentionCall]:
    """One entry for each kind of call, in the order of the step; a branch without a call has an entry too."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    operators = [event for event in events if event.sequence_nr >= 0]
    forward = {(event.thread, event.sequence_nr): stage for event in operators if (stage := stage_of(event)) in BRANCHES}
    for event in events:
        if ATTENTION_CALL.search(event.name) and not any(ATTENTION_CALL.search(inner.name) for inner in descendants(event)):
            kernels = [kernel for inner in (event, *descendants(event)) for kernel in inner.kernels]
            longest = max(kernels, key=lambda kernel: kernel.duration).name if kernels else ""
            found[stage_of(event, forward), event.name, backend_of(event.name, longest), longest] += 1
        elif not ATTENTION_CALL.search(event.name):
            # Compiled code launches its kernels without such an operator.
            for kernel in event.kernels:
                if re.search(r"flex", kernel.name, re.IGNORECASE) and not is_under_call(event):
                    found[stage_of(event, forward), "flex_attention (compiled)", "flex", kernel.name] += 1
    called = {stage for stage, *_ in found}
    for event in events:
        if event.name in BRANCHES and event.name not in called and event.is_user_annotation and event.device_type == DeviceType.CPU:
            found[event.name, MATMUL, MATMUL, ""] += 1
    return [
        AttentionCall(stage=stage, call=call, backend=backend, kernel=kernel, count=count)
        for (stage, call, backend, kernel), count in found.items()
    ]


def descendants(event: Any) -> Iterator[Any]:
    for child in event.cpu_children:
        yield child
        yield from descendants(child)


def ancestors(event: Any) -> Iterator[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def is_under_call(event: Any) -> bool:
    return any(ATTENTION_CALL.search(outer.name) for outer in ancestors(event))


def stage_of(event: Any, forward: Mapping[tuple[int, int], str] | None = None) -> str:
    """The innermost stage around an event; in the backward pass, which has none, that of its forward operator."""
    for outer in (event, *ancestors(event)):
        if outer.is_user_annotation:
            return str(outer.name)
        if forward and outer.fwd_thread and (stage := forward.get((outer.fwd_thread, outer.sequence_nr))):
            return f"{stage}{BACKWARD}"
    return NO_STAGE


def backend_of(call: str, kernel: str) -> str:
    """The backend, by the kernel where there is one, else by the operator."""
    names = [name for name, pattern in KERNEL_BACKENDS if kernel and pattern.search(kernel)]
    return names[0] if names else "math" if kernel else next(name for name, pattern in OPERATOR_BACKENDS if pattern.search(call))


def audit_table(calls: Iterable[AttentionCall]) -> list[str]:
    """Aligned lines for the log."""
    rows = [("stage", "call", "backend", "count", "kernel")]
    rows += [(call.stage, call.call, call.backend, str(call.count), call.kernel[:60] or NO_STAGE) for call in calls]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


NOTHING = "no named branch and no call of scaled_dot_product_attention or FlexAttention: a sequential prefill has none"


def write_audit(run_dir: Path, run_id: str, calls: Sequence[AttentionCall], device: str) -> list[str]:
    """Write sdpa_audit.json and .txt; returns lines for the log."""
    lines = audit_table(calls) if calls else [NOTHING]
    write_json(run_dir / "sdpa_audit.json", {"run_id": run_id, "device": device, "calls": [asdict(call) for call in calls]}, BY_UMASK)
    write_text(run_dir / "sdpa_audit.txt", "\n".join(lines) + "\n", BY_UMASK)
    return lines


class StepProfile:
    """A few steps under the profiler, with Python's frames; on rank 0 only."""

    WARM_UP, PROFILED = 3, 3

    def __init__(self, run_dir: Path, run_id: str, first_step: int) -> None:
        self._run_dir, self._run_id, self._begin = run_dir, run_id, first_step + self.WARM_UP
        self._profiler: Any = None
        self._has_begun = False

    @classmethod
    def ends(cls, step: int, first_step: int) -> bool:
        """Whether `step` is the last that is profiled."""
        return step - first_step == cls.WARM_UP + cls.PROFILED - 1

    def before(self, step: int) -> None:
        if step == self._begin:
            self._profiler = profile(activities=activities(), with_stack=True)
            self._profiler.__enter__()
            self._has_begun = True

    def finish(self) -> list[str]:
        """Write profile_summary.txt and profile_trace.json; returns lines for the log, none when called again."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return [] if self._has_begun else [f"none was taken: the run ended before step {self._begin + 1}, with which it begins"]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        profiler.__exit__(None, None, None)
        trace = self._run_dir / "profile_trace.json"
        profiler.export_chrome_trace(str(trace))
        # The training's thread is the main one, whose id is that of the process.
        lines = summarize_trace(json.loads(trace.read_text(encoding="utf-8", errors="replace"))["traceEvents"], main_thread=os.getpid())
        write_text(self._run_dir / "profile_summary.txt", "\n".join([f"run_id {self._run_id}", *lines]) + "\n", BY_UMASK)
        return lines


def activities() -> list[ProfilerActivity]:
    """Activities to profile: the host's, and with CUDA its kernels."""
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


NO_GPU = "host share 100.0 % (no GPU: everything runs on the host)"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def summarize_trace(events: Sequence[dict[str, Any]], *, main_thread: int) -> list[str]:
    """Host share, named stages, and the Python frames of the training's thread with the most time of their own."""
    timed = [event for event in events if event.get("ph") == "X" and isinstance(event.get("dur"), (int, float))]
    kernels = [event for event in timed if event.get("cat") in ON_DEVICE]
    frames = [event for event in timed if event.get("cat") == "python_function" and event.get("tid") == main_thread]
    wall_us = max((event["ts"] + event["dur"] for event in frames), default=0.0) - min((event["ts"] for event in frames), default=0.0)
    lines = [NO_GPU]
    if kernels and wall_us:
        lines = [f"host share {max(0.0, 1 - busy_us(kernels) / wall_us) * 100:.1f} % of {wall_us / 1000:.1f} ms: no kernel ran in it"]
    stages: Counter[str] = Counter()
    for event in timed:
        if event.get("cat") == "user_annotation":
            stages[event["name"]] += event["dur"]
    lines += [f"stage {spent / 1000:.2f} ms  {name}" for name, spent in stages.most_common()]
    lines += [f"python {spent / 1000:.2f} ms  {ADDRESS.sub('', name)}" for name, spent in self_times(frames).most_common(TOP_FRAMES)]
    return lines


def busy_us(kernels: Iterable[dict[str, Any]]) -> float:
    """Time in which at least one kernel ran."""
    total, until = 0.0, float("-inf")
    for start, stop in sorted((event["ts"], event["ts"] + event["dur"]) for event in kernels):
        total += max(0.0, stop - max(start, until))
        until = max(until, stop)
    return total


def self_times(frames: Iterable[dict[str, Any]]) -> Counter[str]:
    """Time of each frame without the frames it called."""
    found: Counter[str] = Counter()
    by_thread: dict[Any, list[dict[str, Any]]] = {}
    for frame in frames:
        by_thread.setdefault(frame.get("tid"), []).append(frame)
    for own in by_thread.values():
        stack: list[tuple[float, str]] = []
        for frame in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
            while stack and stack[-1][0] <= frame["ts"]:
                stack.pop()
            if stack:
                found[stack[-1][1]] -= frame["dur"]
            found[frame["name"]] += frame["dur"]
            stack.append((frame["ts"] + frame["dur"], frame["name"]))
    return found


# Tokens measured at either end of a sequence.
SAMPLED_TOKENS = 8


@torch.no_grad()
def sequential_pass_s(model: SparseLM, rows: int, seq_len: int, device: torch.device) -> float:
    """Estimated time of a forward pass of the sequential prefill. A token attends to all before it: its time grows linearly with its
    position, so that the mean over the first and the last few is that over all."""
    shape, attention = model.shape, model.blocks[0].attention
    layout = create_layout(shape, choose_paths(model.paths, device=device.type, seq_len=seq_len), seq_len, device)
    hidden = model.embedding(torch.zeros(rows, seq_len, dtype=torch.long, device=device))
    heads = attention.project(hidden, layout)
    pooled = naive.pool(heads.cmp_key, shape, attention.pool_key), naive.pool(heads.cmp_value, shape, attention.pool_value)
    compute = functools.partial(prefill, heads, *pooled, shape, None, RANGES[layout.paths.ranges.effective])
    # The first call initialises libraries.
    compute(range(1))
    spent_s = []
    for first in (0, max(0, seq_len - SAMPLED_TOKENS)):
        tokens = range(first, min(first + SAMPLED_TOKENS, seq_len))
        began_s = time.monotonic()
        compute(tokens)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent_s.append((time.monotonic() - began_s) / len(tokens))
    return sum(spent_s) / len(spent_s) * seq_len * shape.n_layers
