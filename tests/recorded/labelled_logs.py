# Lines of other programs are as long as they are.
# ruff: noqa: E501
"""Logs of failed and of healthy jobs with labels, for benchmarks/diagnosis.py and the tests of diagnosis.

In: a seed. Out: `failing_logs`, each with the registry's name of its first cause, a part of the line that shows it, and the rank where the
log names one; `healthy_logs`, none of which may be called failed. A log is put together from a launcher's format, a fault of one rank, what
the other ranks print about losing it, the launcher's epilogue, and disturbances. The formats are those of torchrun, srun, mpirun,
deepspeed, accelerate, Megatron, torchtitan, Lightning, Hugging Face's Trainer and Composer; paths, hosts and numbers are made up.
"""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.records.outcome import Diagnosis, Outcome
from tests.unit.collect.log_texts import RECORDED_SIGNATURES

# Recorded ones whose lines, or whose launcher's report, name the rank that failed first.
_RANK_0 = (
    "checkpoint_write",
    "passed_over_thread",
    "store_timeout_hides_nothing",
    "torchrun_import_error",
    "went_on_after_traceback",
)
_RANK_1 = (
    "collective_mismatch",
    "cuda_oom_optimizer",
    "deepspeed_cuda_oom",
    "duplicate_gpu",
    "gpu_access",
    "gpu_fault_ecc",
    "io_error_stale",
    "nccl_route",
    "no_kernel_image",
    "oom_only_warned_of",
    "open_files",
    "passed_over_del",
    "passed_over_logging",
    "torchrun_disk_full",
    "torchrun_file_missing",
    "torchrun_host_oom",
    "torchrun_io_error",
    "torchrun_nan",
    "torchrun_rank_killed",
    "unused_parameters",
)
RECORDED_RANKS = {**dict.fromkeys(_RANK_0, 0), **dict.fromkeys(_RANK_1, 1), "cache_race": 5}
FOLDER = Path(__file__).parent / "failures"
TEXTS = tomllib.loads((Path(__file__).parent / "labelled_texts.toml").read_text(encoding="utf-8"))
# How the log of a job that ended well says so; the last does not.
GOOD_ENDS = (
    "training finished in 123.4 s",
    "{'train_runtime': 123.4, 'train_samples_per_second': 8.9, 'train_steps_per_second': 2.2, 'train_loss': 2.31, 'epoch': 1.0}",
    "`Trainer.fit` stopped: `max_epochs=2` reached.",
    "[2026-11-17 10:44:17,121] [INFO] [launch.py:351:main] Process 4136 exits successfully.",
    "",
)


@dataclass(frozen=True, kw_only=True)
class LabelledLog:
    """One job's output and what is known about it."""

    name: str
    files: dict[str, bytes]
    signature: str = ""
    """The registry's entry of the first cause; empty for a healthy job."""
    evidence: str = ""
    """Part of the line that shows it."""
    rank: int | None = None
    """The rank that failed first, where the log names it."""
    exit_code: int | None = None
    """What the job's command returned; None where nobody kept it."""

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    def is_cause_found(self, found: Diagnosis) -> bool:
        """With exit code 0 and without a launcher's report the outcome may be open, but it is not `ok`."""
        is_bad = found.outcome is not Outcome.OK if self.exit_code == 0 else found.outcome is Outcome.FAILED
        return is_bad and found.signature == self.signature and self.evidence in found.detail

    def is_rank_found(self, found: Diagnosis) -> bool:
        return self.rank is None or found.rank == self.rank


@dataclass(frozen=True)
class Line:
    """A line and the rank that printed it; None for the launcher's."""

    text: str
    rank: int | None = None


@dataclass(frozen=True)
class Fault:
    """What the failing rank prints last, and its entry in the registry."""

    signature: str
    last: tuple[str, ...]
    frames: tuple[str, ...] = ("train.py:212 in main", "loop.py:88 in step")

    @property
    def evidence(self) -> str:
        return self.last[0][:60]


def traceback(last: Sequence[str], frames: Sequence[str] = ("train.py:212 in main", "loop.py:88 in step")) -> list[str]:
    quoted = []
    for frame in frames:
        file, _, function = frame.partition(" in ")
        name, _, number = file.partition(":")
        quoted += [f'  File "/srv/job/{name}", line {number}, in {function}', f"    {function}_inner(batch, state)"]
    return ["Traceback (most recent call last):", *quoted, *last]


FAULTS = (
    Fault(
        "cuda_oom",
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB "
            "is free. Including non-PyTorch memory, this process has 77.88 GiB memory in use.",
        ),
    ),
    Fault("cuda_oom", ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 3; 39.39 GiB total capacity)",)),
    Fault("exception", ("ValueError: num_samples should be a positive integer value, but got num_samples=0",)),
    Fault("exception", ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x512)",)),
    Fault("exception", ("KeyError: 'attention_mask'",)),
    Fault("exception", ("AssertionError: vocab size 50257 is not divisible by tensor parallel size 8",)),
    Fault("exception", ("IndexError: list index out of range",)),
    Fault("exception", ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",)),
    Fault("exception", ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",)),
    Fault(
        "exception",
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for TrainArguments",
            "learning_rate",
            "  Input should be a valid number [type=float_type, input_value='1e-4x', input_type=str]",
        ),
    ),
    Fault(
        "exception",
        (
            'RuntimeError: Error(s) in loading state_dict for GPT:\n\tMissing key(s) in state_dict: "lm_head.weight".',
            "\tsize mismatch for wte.weight: copying a param with shape torch.Size([50257, 768]) from checkpoint",
        ),
    ),
    Fault(
        "exception", ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376.",)
    ),
    Fault("exception", ("pytorch_lightning.utilities.exceptions.MisconfigurationException: No `test_dataloader()` method defined.",)),
    Fault("file_missing", ("FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/train_00017.bin'",)),
    Fault("disk_full", ("OSError: [Errno 28] No space left on device: '/scratch/ckpt/step-400/model.pt'",)),
    Fault("permission", ("PermissionError: [Errno 13] Permission denied: '/shared/cache/tokenizer.json'",)),
    Fault("import_error", ("ModuleNotFoundError: No module named 'apex'",)),
    Fault("io_error", ("OSError: [Errno 5] Input/output error: '/mnt/nfs/data/shard-3.tar'",)),
    Fault("host_oom", ("RuntimeError: DataLoader worker (pid 88121) is killed by signal: Killed.",)),
    Fault("shared_memory", ("RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly: insufficient shared memory (shm)",)),
    Fault("open_files", ("OSError: [Errno 24] Too many open files: '/srv/data/00017.flac'",)),
    Fault("nan", ("ValueError: loss is nan at step 40, stopping",)),
    Fault("gpu_access", ("RuntimeError: CUDA error: device-side assert triggered", "CUDA kernel errors might be asynchronously reported")),
    Fault("gpu_access", ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "For debugging consider passing")),
    Fault("gpu_fault", ("RuntimeError: CUDA error: uncorrectable ECC error encountered",)),
    Fault("unused_parameters", ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",)),
    Fault("flash_attention_fp32", ("RuntimeError: FlashAttention only support fp16 and bf16 data type",)),
)
BY_SIGNATURE = {fault.signature: fault for fault in reversed(FAULTS)}


@dataclass(frozen=True)
class Job:
    """What a log is made from."""

    world: int
    rank: int
    fault: Fault
    random: random.Random

    @property
    def host(self) -> str:
        return f"gpu-{self.rank // 8 + 1:02d}"

    def others(self, most: int = 127) -> list[int]:
        found = [rank for rank in range(self.world) if rank != self.rank]
        self.random.shuffle(found)
        return found[:most]


# What a run prints before anything is wrong.


def plain_steps(job: Job) -> list[Line]:
    return [Line(f"step {step}: loss {6 - step / 20:.4f} | {98 + step % 7}.3 ms", 0) for step in range(1, 41)]


def nanogpt_steps(job: Job) -> list[Line]:
    return [Line(f"iter {step * 10}: loss {6 - step / 20:.4f}, time {101 + step % 5}.20ms, mfu 31.10%", 0) for step in range(40)]


def megatron_steps(job: Job) -> list[Line]:
    text = " [2026-11-17 10:{m:02d}:{s:02d}] iteration {step:8d}/    5000 | consumed samples: {n:12d} | elapsed time per iteration (ms): {ms:.1f} | "
    rest = "learning rate: 1.5E-04 | global batch size:   256 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.4 | number of nan iterations:   0 |"
    return [
        Line((text + rest).format(m=step // 6, s=step * 10 % 60, step=step, n=step * 256, ms=998.1, loss=9 - step / 9), job.world - 1)
        for step in range(1, 40)
    ]


def titan_steps(job: Job) -> list[Line]:
    text = "[titan] 2026-11-17 10:00:{s:02d},000 - root - INFO - \x1b[36mstep: {step:2d}  \x1b[32mloss: {loss:8.5f}  \x1b[34mtps: 5,{tps}\x1b[39m"
    return [Line(text.format(s=step, step=step, loss=9 - step / 7, tps=130 + step), 0) for step in range(1, 41)]


def bar_steps(job: Job) -> list[Line]:
    """One line with carriage returns, as tqdm draws it; it is still open when the traceback comes."""
    bars = [f"\r {step:3d}%|{'█' * (step // 10):<10}| {step * 2}/200 [00:{step:02d}<00:38,  4.62it/s]" for step in range(1, 50)]
    return [Line("".join(bars), 0)]


def hf_steps(job: Job) -> list[Line]:
    lines = [
        f"{{'loss': {4 - step / 30:.4f}, 'grad_norm': 0.81, 'learning_rate': 4e-05, 'epoch': {step / 40:.2f}}}" for step in range(1, 25)
    ]
    bar = [f"\r {step * 4:2d}%|{'█' * (step // 3):<10}| {step * 10}/250 [00:{step:02d}<01:10,  3.2it/s]" for step in range(1, 25)]
    return [
        Line(f"{drawn}\n{logged}" if number % 3 else f"{drawn}{logged}", 0)
        for number, (drawn, logged) in enumerate(zip(bar, lines, strict=True))
    ]


def lightning_steps(job: Job) -> list[Line]:
    bars = [
        f"\rEpoch 0:  {step * 2:2d}%|{'█' * (step // 5):<10}| {step}/50 [00:{step:02d}<00:21,  2.05it/s, v_num=3, train_loss={5 - step / 15:.3f}]"
        for step in range(1, 31)
    ]
    return [Line("GPU available: True (cuda), used: True", 0), Line("".join(bars), 0)]


STEPS = (plain_steps, nanogpt_steps, megatron_steps, titan_steps, bar_steps, hf_steps, lightning_steps)

# What the ranks print that did not fail: each takes a job and one of the others.


def sees_closed_connection(job: Job, rank: int) -> list[Line]:
    last = f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.{rank % 250 + 1}]:24727"
    return [Line(text, rank) for text in traceback([last], ("train.py:230 in main", "distributed_c10d.py:3252 in all_reduce"))]


def sees_nccl_remote_error(job: Job, rank: int) -> list[Line]:
    last = (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process "
        "exited or there was a network error, NCCL version 2.27.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:",
        f"socketProgress: Connection closed by remote peer {job.host}<49326>",
    )
    return [Line(text, rank) for text in traceback(last, ("train.py:231 in main", "ddp.py:1639 in forward"))]


def times_out(job: Job, rank: int) -> list[Line]:
    mark = f"[rank{rank}]:[E1117 10:22:31.{rank:03d}284711 ProcessGroupNCCL.cpp:"
    work = "WorkNCCL(SeqNum=1712, OpType=ALLREDUCE, NumelIn=25, NumelOut=25, Timeout(ms)=600000) ran for 600041 milliseconds before timing out."
    return [
        Line(f"{mark}685] [Rank {rank}] Watchdog caught collective operation timeout: {work}", rank),
        Line(f"{mark}2252] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 1712", rank),
        Line(f"{mark}739] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent "
             "GPU operations might run on corrupted/incomplete data.", rank),
        Line("terminate called after throwing an instance of 'c10::DistBackendError'", rank),
        Line(f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: {work}", rank),
        Line("Fatal Python error: Aborted", rank),
        Line("Thread 0x00007f3a1c7fe640 (most recent call first):", rank),
        Line('  File "/usr/lib/python3.11/threading.py", line 331 in wait', rank),
    ]  # fmt: skip


def loses_the_store(job: Job, rank: int) -> list[Line]:
    mark = f"[rank{rank}]:[W1117 10:12:31.118540219 "
    return [
        Line(f"{mark}TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu-01]:51044, remote=[gpu-01]:29500): Connection reset by peer", rank),
        Line("Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:679 (most recent call first):", rank),
        Line("frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f1d2a3785e8 in /opt/venv/lib/libc10.so)", rank),
        Line(f'{mark}ProcessGroupNCCL.cpp:1659] [PG ID 0 Rank {rank}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has '
             "shut down too early), with error: failed to recv, got 0 bytes", rank),
    ]  # fmt: skip


def is_terminated(job: Job, rank: int) -> list[Line]:
    return []


def fails_alike(job: Job, rank: int) -> list[Line]:
    """The same fault a moment later: eight ranks out of memory."""
    return [Line(text, rank) for text in traceback(job.fault.last, job.fault.frames)]


REACTIONS = (sees_closed_connection, sees_nccl_remote_error, times_out, loses_the_store, is_terminated, fails_alike)

# Launchers: how lines look and what is printed at the end.


# Lines of steps, and those that C++ prints.
UNMARKED = (
    " [2026",
    "step ",
    "iter ",
    "\r",
    "[titan]",
    "GPU ",
    "[rank",
    "terminate called",
    "  what()",
    "Fatal Python",
    "Thread 0x",
    "frame #",
    "Exception raised",
)


def unmarked(line: Line, job: Job) -> str:
    """Steps are printed by rank 0 alone; torch marks the lines of a traceback."""
    return line.text


def marked_traceback(line: Line, job: Job) -> str:
    is_raised = line.rank is not None and not line.text.startswith(UNMARKED)
    return f"[rank{line.rank}]: {line.text}" if is_raised else line.text


def marked(line: Line, job: Job) -> str:
    return line.text if line.rank is None else f"[rank{line.rank}]:{line.text}"


def marked_twice(line: Line, job: Job) -> str:
    """torchrun's own mark before torch's."""
    return line.text if line.rank is None else f"[rank{line.rank}]:{marked_traceback(line, job)}"


def marked_default(line: Line, job: Job) -> str:
    return line.text if line.rank is None else f"[default{line.rank}]:{line.text}"


def labelled_by_srun(line: Line, job: Job) -> str:
    return line.text if line.rank is None else f"{line.rank:>{len(str(job.world - 1))}}: {line.text}"


def labelled_by_mpirun(line: Line, job: Job) -> str:
    return line.text if line.rank is None else f"[1,{line.rank}]<stderr>:{line.text}"


def torchrun_end(job: Job, code: int = 1, program: str = "torchrun") -> list[Line]:
    """The report of the failing rank's node, with at most eight ranks of its own."""
    local, first = job.rank % 8, job.rank // 8 * 8
    peers = [rank for rank in range(first, min(first + 8, job.world)) if rank != job.rank]
    stamp = "2026-11-17_10:22:40"
    signals = {-9: "  (SIGKILL)", -11: "  (SIGSEGV)", -6: "  (SIGABRT)", -7: "  (SIGBUS)"}
    report = [
        *(f"W1117 10:22:39.100000 4001 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process {5000 + rank} closing signal SIGTERM" for rank in peers),
        f"E1117 10:22:40.100000 4001 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: {local} (pid: {5000 + job.rank}) "
        "of binary: /opt/venv/bin/python3.11",
        "Traceback (most recent call last):",
        f'  File "/opt/venv/bin/{program}", line 8, in <module>',
        "    sys.exit(main())",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        *([] if peers else ["  <NO_OTHER_FAILURES>"]),
    ]  # fmt: skip
    for number, rank in enumerate(peers, start=1):
        report += [f"[{number}]:", f"  time      : {stamp}", f"  host      : {job.host}", f"  rank      : {rank} (local_rank: {rank % 8})",
                   f"  exitcode  : -15 (pid: {5000 + rank})  (SIGTERM)", "  error_file: <N/A>", f"  traceback : Signal 15 (SIGTERM) received by PID {5000 + rank}"]  # fmt: skip
    report += [
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {stamp}",
        f"  host      : {job.host}",
        f"  rank      : {job.rank} (local_rank: {local})",
        f"  exitcode  : {code} (pid: {5000 + job.rank}){signals.get(code, '')}",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        "=" * 60,
    ]
    return [Line(text) for text in report]


def accelerate_end(job: Job, code: int = 1) -> list[Line]:
    return torchrun_end(job, code, program="accelerate")


def srun_end(job: Job, code: int = 1) -> list[Line]:
    rest = [rank for rank in range(job.world) if rank != job.rank]
    how = (
        f"Exited with exit code {code}"
        if code > 0
        else {-9: "Killed", -11: "Segmentation fault (core dumped)", -7: "Bus error (core dumped)"}[code]
    )
    return [
        Line(f"srun: error: {job.host}: task {job.rank}: {how}"),
        Line("srun: Terminating StepId=494583.0"),
        Line("slurmstepd: error: *** STEP 494583.0 ON gpu-01 CANCELLED AT 2026-11-17T10:22:40 ***"),
        Line(f"srun: error: gpu-01: tasks {rest[0]}-{rest[-1]}: Terminated"),
        Line("srun: Force Terminated StepId=494583.0"),
    ]


def deepspeed_end(job: Job, code: int = 1) -> list[Line]:
    mark = "[2026-11-17 10:22:40,121]"
    killed = [Line(f"{mark} [INFO] [launch.py:335:sigkill_handler] Killing subprocess {5000 + rank}") for rank in range(min(job.world, 8))]
    command = f"['/opt/venv/bin/python', '-u', 'train.py', '--local_rank={min(job.world, 8) - 1}', '--deepspeed', 'ds.json']"
    return [*killed, Line(f"{mark} [ERROR] [launch.py:341:sigkill_handler] {command} exits with return code = {code}")]


def mpirun_end(job: Job, code: int = 1) -> list[Line]:
    return [
        Line("-" * 74),
        Line("mpirun detected that one or more processes exited with non-zero status, thus causing"),
        Line("the job to be terminated. The first process to do so was:"),
        Line(""),
        Line(f"  Process name: [[41233,1],{job.rank}]"),
        Line(f"  Exit code:    {code}"),
        Line("-" * 74),
    ]


def lightning_end(job: Job, code: int = 1) -> list[Line]:
    return [
        Line(
            f"[rank: {job.rank}] Child process with PID {5000 + job.rank} terminated with code {code}. Forcefully terminating all other processes to avoid zombies 🧟"
        )
    ]


def composer_end(job: Job, code: int = 1) -> list[Line]:
    return [
        Line(f"ERROR:composer.cli.launcher:Rank {job.rank} crashed with exit code {code}."),
        Line("Waiting up to 30 seconds for all training processes to terminate. Press Ctrl-C to exit immediately."),
        Line(f"Global rank {job.rank} (PID {5000 + job.rank}) exited with code {code}"),
    ]


def no_end(job: Job, code: int = 1) -> list[Line]:
    return []


Mark = Callable[[Line, Job], str]
End = Callable[..., list[Line]]


@dataclass(frozen=True)
class Launcher:
    """A format: how lines are marked, what stands at the end, and whether it names the rank."""

    name: str
    mark: Mark
    end: End
    names_rank: bool = True
    most_ranks: int = 128


LAUNCHERS = {
    one.name: one
    for one in (
        Launcher("torchrun", marked_traceback, torchrun_end),
        Launcher("torchrun_unmarked", unmarked, torchrun_end),
        Launcher("torchrun_tee", marked, torchrun_end),
        Launcher("torchrun_twice", marked_twice, torchrun_end),
        Launcher("torchrun_default", marked_default, torchrun_end, most_ranks=8),
        Launcher("accelerate", marked_traceback, accelerate_end),
        Launcher("srun_label", labelled_by_srun, srun_end),
        Launcher("srun", unmarked, srun_end),
        Launcher("deepspeed", marked_traceback, deepspeed_end),
        Launcher("mpirun", labelled_by_mpirun, mpirun_end),
        Launcher("lightning", marked_traceback, lightning_end),
        Launcher("composer", unmarked, composer_end),
        Launcher("python", unmarked, no_end, names_rank=False),
    )
}

# Disturbances: each takes the lines of a log as they are printed and the index of the decisive one.

Disturb = Callable[[list[str], Job], list[str]]


def nccl_lines(job: Job, count: int) -> list[str]:
    kinds = (
        "NCCL INFO Channel {c:02d}/0 : {r}[{l}] -> {n}[{m}] via P2P/CUMEM/read",
        "NCCL INFO [Service thread] Connection closed by localRank {l}",
        "NCCL INFO comm 0x55d0a1b2c3d0 rank {r} nranks {w} cudaDev {l} busId 1b000 - Abort COMPLETE",
        "NCCL INFO misc/socket.cc:749 -> 6",
    )
    found = []
    for number in range(count):
        rank = number % job.world
        text = kinds[number // job.world % len(kinds)]
        after = (rank + 1) % job.world
        body = text.format(c=number % 24, r=rank, l=rank % 8, n=after, m=after % 8, w=job.world)
        found.append(f"gpu-{rank // 8 + 1:02d}:{5000 + rank}:{6000 + rank} [{rank % 8}] {body}")
    return found


def with_nccl_after(lines: list[str], job: Job) -> list[str]:
    """2,200 lines of NCCL between the fault and the launcher's report."""
    at = len(lines) - min(20, len(lines) // 4)
    return [*lines[:at], *nccl_lines(job, 2200), *lines[at:]]


def with_nccl_before(lines: list[str], job: Job) -> list[str]:
    return [*nccl_lines(job, 2200), *lines]


def with_broken_bytes(lines: list[str], job: Job) -> list[str]:
    """Bytes that are no UTF-8, as surrogates."""
    return [f"{line} caf\udce9 \udcff\udcfe" if number % 9 == 3 and "Error" not in line else line for number, line in enumerate(lines)]


def torn(lines: list[str], job: Job) -> list[str]:
    """Two processes write at once: a line break comes late, or in the middle of a line of steps."""
    found: list[str] = []
    for number, line in enumerate(lines):
        if "Error" in line or "  rank  " in line or "exitcode" in line or "Root Cause" in line:
            found.append(line)
        elif number % 23 == 5 and len(line) > 20 and not line.startswith("["):
            found += [line[:11], line[11:]]
        elif number % 29 == 7 and found and not found[-1].startswith("[") and "Error" not in found[-1]:
            found[-1] += line
            found.append("")
        else:
            found.append(line)
    return found


def with_stamps(lines: list[str], job: Job) -> list[str]:
    """As `kubectl logs --timestamps` prints them."""
    return [
        f"2026-11-17T10:{number // 600 % 60:02d}:{number // 10 % 60:02d}.{number % 10}00000000Z {line}" for number, line in enumerate(lines)
    ]


def with_warnings(lines: list[str], job: Job) -> list[str]:
    """What many jobs print at their start, and is no cause."""
    noise = [
        "W1117 10:00:01.114000 4001 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "slurmstepd: error: couldn't chdir to `/home/user/run': No such file or directory: going to /tmp instead",
        "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.",
        "[W1117 10:00:02.000 socket.cpp:752] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97).",
        "Failed to import flash_attn (No module named 'flash_attn'); using sdpa",
        "wandb: WARNING Unable to verify login in offline mode.",
    ]
    return [*noise, *lines]


DISTURBANCES: dict[str, Disturb] = {
    "nccl_after": with_nccl_after,
    "nccl_before": with_nccl_before,
    "broken_bytes": with_broken_bytes,
    "torn": torn,
    "stamps": with_stamps,
    "warnings": with_warnings,
}


def interleave(parts: Sequence[Sequence[Line]], chooser: random.Random) -> list[Line]:
    """Lines of several ranks mixed; the order within each is kept."""
    left = [list(reversed(part)) for part in parts if part]
    found = []
    while left:
        part = chooser.choice(left)
        found.append(part.pop())
        if not part:
            left.remove(part)
    return found


def encode(lines: Sequence[str]) -> bytes:
    """As a terminal would have shown it: a bar that is still open stands before what comes next."""
    text = ""
    for line in lines:
        text += line if line.startswith("\r") and not line.rstrip().endswith("}") else line + "\n"
    return text.encode("utf-8", errors="surrogateescape")


@dataclass(frozen=True)
class Recipe:
    """One log, put together."""

    launcher: str
    steps: Callable[[Job], list[Line]]
    signature: str
    reaction: Callable[[Job, int], list[Line]]
    world: int
    rank: int
    disturbances: tuple[str, ...] = ()
    mixed: bool = False
    """Whether the ranks' tracebacks are interleaved line by line."""

    def build(self, number: int, chooser: random.Random) -> LabelledLog:
        launcher = LAUNCHERS[self.launcher]
        candidates = [fault for fault in FAULTS if fault.signature == self.signature]
        job = Job(self.world, self.rank, candidates[number % len(candidates)], chooser)
        own = [Line(text, self.rank) for text in traceback(job.fault.last, job.fault.frames)]
        reactions = [self.reaction(job, rank) for rank in job.others()]
        # The first line of the failing rank is the first of all: the others only notice later.
        after = interleave([own[2:], *reactions], chooser) if self.mixed else [*own[2:], *itertools.chain(*reactions)]
        lines = [*self.steps(job), *own[:2], *after, *launcher.end(job)]
        printed = [launcher.mark(Line(part, line.rank), job) for line in lines for part in line.text.split("\n")]
        for name in self.disturbances:
            printed = DISTURBANCES[name](printed, job)
        names = "+".join((self.launcher, self.reaction.__name__, f"{self.world}r", *self.disturbances))
        return LabelledLog(
            name=f"generated/{number:03d} {self.signature} {names}",
            files={"job.log": encode(printed)},
            signature=self.signature,
            evidence=job.fault.evidence.split("\n")[0],
            rank=self.rank if launcher.names_rank and not (self.reaction is fails_alike and self.mixed) else None,
            exit_code=chooser.choice((1, 1, None, 0)),
        )


def recipes(chooser: random.Random) -> Iterator[Recipe]:
    """Every launcher, every way of noticing, every disturbance and every fault at least twice."""
    names = sorted(LAUNCHERS)
    signatures = sorted(BY_SIGNATURE)
    for number in range(72):
        launcher = LAUNCHERS[names[number % len(names)]]
        world = min(chooser.choice((2, 8, 8, 16, 64, 128)), launcher.most_ranks)
        if launcher.name == "python":
            world = 1
        reaction = REACTIONS[number % len(REACTIONS)]
        chosen = [name for name in DISTURBANCES if chooser.random() < 0.3]
        if launcher.name == "srun_label":
            # A shell's own lines are not labelled.
            chosen = [name for name in chosen if name != "stamps"]
        is_markable = launcher.mark is not unmarked
        yield Recipe(
            launcher=launcher.name,
            steps=STEPS[number % len(STEPS)]
            if launcher.mark in (unmarked, marked_traceback)
            else chooser.choice((plain_steps, nanogpt_steps)),
            signature=signatures[number % len(signatures)],
            reaction=reaction if world > 1 else is_terminated,
            world=world,
            rank=chooser.randrange(world),
            disturbances=tuple(chosen),
            mixed=is_markable and chooser.random() < 0.4,
        )


def failing_logs(seed: int = 0) -> list[LabelledLog]:
    """Recorded, written and generated ones."""
    chooser = random.Random(seed)
    generated = [recipe.build(number, chooser) for number, recipe in enumerate(recipes(chooser))]
    return [*recorded_logs(), *written_logs(), *split_logs(), *generated]


def recorded_logs() -> list[LabelledLog]:
    """Those of the tests of the registry; a rank is the label where a person has read it in the log."""
    return [
        LabelledLog(
            name=f"recorded/{name}",
            files={"job.log": (FOLDER / f"{name}.log").read_bytes()},
            signature=signature,
            evidence=evidence,
            rank=RECORDED_RANKS.get(name),
            exit_code=1,
        )
        for name, (signature, evidence) in RECORDED_SIGNATURES.items()
    ]


def written_logs() -> list[LabelledLog]:
    found = []
    for name, table in TEXTS["failed"].items():
        label = {key: value for key, value in table.items() if key != "text"}
        found.append(LabelledLog(name=f"written/{name}", files={"job.log": table["text"].encode()}, **label))
    return found


def split_logs() -> Iterator[LabelledLog]:
    """One job in several files: a Slurm pair, a file for each rank as torchrun's --log-dir writes them, a file for each node."""
    job = Job(8, 5, BY_SIGNATURE["file_missing"], random.Random(1))
    own = traceback(job.fault.last)
    label = LabelledLog(name="", files={}, signature="file_missing", evidence=job.fault.evidence, rank=5, exit_code=1)
    steps = [line.text for line in plain_steps(job)]
    peers = {rank: [line.text for line in sees_closed_connection(job, rank)] for rank in range(8) if rank != 5}
    marked_peers = [f"[rank{rank}]: {text}" for rank, texts in peers.items() for text in texts]
    report = [line.text for line in torchrun_end(job)]
    error = [*(f"[rank5]: {text}" for text in own), *marked_peers, *report]
    yield replace(label, name="split/slurm_pair", files={"slurm-17.out": encode(steps), "slurm-17.err": encode(error)})
    ranks = {f"attempt_0/{rank}/stderr.log": encode(texts) for rank, texts in {**peers, 5: own}.items()}
    yield replace(label, name="split/log_dir", files=ranks)
    named = {f"train_rank{rank}.log": encode([*steps, *texts]) for rank, texts in {**peers, 5: own}.items()}
    yield replace(label, name="split/file_per_rank", files=named)
    stamped = [f"2026-11-17T10:11:{number:02d}.000000000Z {text}" for number, text in enumerate(own)]
    late = [f"2026-11-17T10:21:{number:02d}.000000000Z {text}" for number, text in enumerate(peers[0])]
    nodes = {"node-1.log": encode(late), "node-2.log": encode([f"[rank5]: {text}" for text in own])}
    yield replace(label, name="split/file_per_node", files=nodes)
    yield replace(label, name="split/stamped_nodes", rank=None, files={"node-1.log": encode(late), "node-2.log": encode(stamped)})


def healthy_logs(seed: int = 0) -> list[LabelledLog]:
    """Noise behind the last step, and noise between the steps; some logs say that they ended well, some only stop."""
    chooser = random.Random(seed)
    between_steps, behind_steps = TEXTS["between"], TEXTS["behind"]
    found = []
    noises = [(name, "", text) for name, text in behind_steps.items()] + [(name, text, "") for name, text in between_steps.items()]
    pairs = list(zip(sorted(between_steps), sorted(behind_steps), strict=False))
    noises += [(f"{between}+{behind}", between_steps[between], behind_steps[behind]) for between, behind in pairs]
    for number, (name, between, behind) in enumerate(noises):
        launcher = chooser.choice([LAUNCHERS[one] for one in ("python", "torchrun_tee", "srun_label", "torchrun")])
        job = Job(4, 0, FAULTS[0], chooser)
        steps = chooser.choice((plain_steps, nanogpt_steps, megatron_steps, titan_steps, hf_steps))(job)
        half = len(steps) // 2
        end = GOOD_ENDS[number % len(GOOD_ENDS)]
        lines = [*steps[:half], *(Line(text, 0) for text in between.splitlines()), *steps[half:], *([Line(end, 0)] if end else [])]
        lines += [Line(text, None if text.startswith("[rank") else 0) for text in behind.splitlines()]
        # torch marks nothing but the tracebacks that end a rank.
        mark = unmarked if launcher.mark is marked_traceback else launcher.mark
        printed = [line.text if line.text.startswith(("slurmstepd", "gpu-")) else mark(line, job) for line in lines]
        if number % 4 == 0:
            printed = [*nccl_lines(job, 400), *with_broken_bytes(printed, job)]
        found.append(LabelledLog(name=f"healthy/{number:03d} {name} {launcher.name}", files={"job.log": encode(printed)}, exit_code=0))
    return found
