"""How often the first cause of a failed job is found in its log, and how long a log of 1 GB takes.

    python benchmarks/diagnosis.py

    recorded   118 of 118 first causes, ranks 26 of 26
    written     53 of  53 first causes, ranks 14 of 15
    split        5 of   5 first causes, ranks 4 of 4
    generated   72 of  72 first causes, ranks 63 of 63
    healthy     40 logs: 0 false positives
    {"benchmark": "diagnosis", "figures": {"first_cause_fraction": 1.0, "rank_fraction": 0.991, "false_cause_fraction": 0.0, …}, …}

The labelled logs (tests/recorded/labelled_logs.py) are recorded ones, endings in the formats of many programs, and generated ones: every
launcher, up to 128 ranks, noisy, interleaved, truncated, after thousands of NCCL lines, with bytes that are not UTF-8. Each is read as by
`seatrial diagnose`. `first_cause_fraction`: signature and line match the label; `lowest_family_fraction` is that of the worst kind of log.
`rank_fraction` is of the logs that name the rank, `false_cause_fraction` of the healthy logs, read with exit code 0 and without one.
`large_s`, `large_cpu_s` and `large_mib` are the cost of `seatrial diagnose` on a log of 1 GB, with the first cause in its middle; `steps_s`
and so on, of another in which every other line is a step, with the lowest loss in the middle. `-v` lists the misdiagnosed logs, `--seed`
generates other logs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outcome import parser, report
from seatrial.records.outcome import Diagnosis, Outcome
from seatrial.results.diagnose import diagnose_logs, find_logs

# The labelled logs are in tests/.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.labelled_logs import LabelledLog, failing_logs, healthy_logs

LARGE_BYTES = 10**9
QUICK_BYTES = 5 * 10**6
CAUSE = b"[rank7]: ValueError: sample 88123 has no label\n"
LOWEST = 0.12345
NOISE = "".join(f"gpu-01:5000:6000 [0] NCCL INFO Channel {channel:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n" for channel in range(5000))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=0, help="seed of the generated logs (0)")
    options.add_argument("-v", "--verbose", action="store_true", help="list the misdiagnosed logs")
    args = options.parse_args()
    failing, healthy = failing_logs(args.seed), healthy_logs(args.seed)
    if args.quick:
        failing, healthy = failing[::12], healthy[::8]
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        found = [diagnose(log, Path(folder), log.exit_code) for log in failing]
        judged = [(log, diagnosis, log.is_cause_found(diagnosis)) for log, diagnosis in zip(failing, found, strict=True)]
        false_positives = [
            (log, diagnosis) for log in healthy for code in (0, None) if is_failed(diagnosis := diagnose(log, Path(folder), code))
        ]
        large = read_large(Path(folder) / "large.log", QUICK_BYTES if args.quick else LARGE_BYTES)
        large |= read_steps(Path(folder) / "large.log", 4 * QUICK_BYTES if args.quick else LARGE_BYTES)
    families: defaultdict[str, list[bool]] = defaultdict(list)
    for log, _, is_right in judged:
        families[log.family].append(is_right)
    ranks = [(log, diagnosis) for log, diagnosis, _ in judged if log.rank is not None]
    right_ranks = [log for log, diagnosis in ranks if log.is_rank_found(diagnosis)]
    for family, right in families.items():
        named = [log for log, _ in ranks if log.family == family]
        right_named = sum(log in right_ranks for log in named)
        print(f"{family:<10} {sum(right):3d} of {len(right):3d} first causes, ranks {right_named} of {len(named)}")
    print(f"healthy    {len(healthy):3d} logs: {len({log.name for log, _ in false_positives})} false positives")
    if args.verbose:
        print_wrong([(log, diagnosis) for log, diagnosis, is_right in judged if not (is_right and log.is_rank_found(diagnosis))])
        print_wrong(false_positives)
    figures = {
        "first_cause_fraction": round(sum(is_right for *_, is_right in judged) / len(judged), 3),
        "lowest_family_fraction": round(min(sum(right) / len(right) for right in families.values()), 3),
        "rank_fraction": round(len(right_ranks) / len(ranks), 3),
        "false_cause_fraction": round(len({log.name for log, _ in false_positives}) / len(healthy), 3),
        **large,
    }
    at_least = {"first_cause_fraction": 0.95, "lowest_family_fraction": 0.95, "rank_fraction": 0.95}
    at_least |= {"large_cause_found": 1.0, "steps_found": 1.0}
    at_most = {"false_cause_fraction": 0.0, "large_s": 60.0, "large_mib": 500.0, "steps_s": 60.0, "steps_mib": 500.0}
    report("diagnosis", figures, at_most, at_least, quick=args.quick, failing=len(failing), healthy=len(healthy), seed=args.seed)


def diagnose(log: LabelledLog, folder: Path, exit_code: int | None) -> Diagnosis:
    """From files, as the command reads them."""
    log_dir = Path(tempfile.mkdtemp(dir=folder))
    for name, data in log.files.items():
        (log_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (log_dir / name).write_bytes(data)
    return diagnose_logs(find_logs([log_dir]), exit_code).diagnosis


def is_failed(diagnosis: Diagnosis) -> bool:
    return diagnosis.outcome is Outcome.FAILED


def read_large(path: Path, size: int) -> dict[str, float]:
    """The command on a log of this size, with the follow-up errors of 127 ranks after the cause."""
    write_large(path, size)
    report, took = run_diagnose(path, "large")
    found = report["diagnosis"]
    return {**took, "large_cause_found": float(found["rank"] == 7 and "sample 88123 has no label" in found["detail"])}


def read_steps(path: Path, size: int) -> dict[str, float]:
    """The command on a log of this size in which every other line is a step."""
    num_lines, last = write_steps(path, size)
    report, took = run_diagnose(path, "steps")
    found = report["steps"]
    return {**took, "steps_found": float((found["num_lines"], found["last"], found["lowest_loss"]) == (num_lines, last, LOWEST))}


def run_diagnose(path: Path, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The command's JSON; its wall time, CPU time and peak memory."""
    command = [sys.executable, "-m", "seatrial", "diagnose", str(path), "--json"]
    began_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    # Of this process alone: getrusage(RUSAGE_CHILDREN) has the peak over all children.
    _, process.returncode, used = os.wait4(process.pid, 0)
    took = {f"{name}_s": time.perf_counter() - began_s, f"{name}_cpu_s": used.ru_utime + used.ru_stime}
    figures = {key: round(value, 2) for key, value in took.items()} | {f"{name}_mib": round(used.ru_maxrss / 1024, 1)}
    return json.loads(printed.splitlines()[-1]), figures


def write_large(path: Path, size: int) -> None:
    steps = "".join(step_line(step, 6 - step / 1e6) for step in range(5000))
    block = (steps + NOISE).encode()
    follow_ups = "".join(
        f"[rank{rank}]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.8]:24727\n" for rank in range(128) if rank != 7
    )
    frames = b"[rank7]: Traceback (most recent call last):\n" + b'[rank7]:   File "/srv/job/data.py", line 40, in __getitem__\n'
    with path.open("wb") as log:
        while log.tell() < size // 2:
            log.write(block)
        log.write(frames + CAUSE)
        while log.tell() < size:
            log.write(NOISE.encode())
        log.write(follow_ups.encode())


def write_steps(path: Path, size: int) -> tuple[int, int]:
    """Number of step lines, and the last step."""
    noise = NOISE.splitlines(keepends=True)
    num_steps = size // (len(step_line(size, 6.0)) + len(noise[0]))
    with path.open("w") as log:
        for step in range(num_steps):
            log.write(step_line(step, LOWEST if step == num_steps // 2 else 6 - step / 1e7) + noise[step % len(noise)])
    return num_steps, num_steps - 1


def step_line(step: int, loss: float) -> str:
    return f"[rank0]: step {step}: loss {loss:.5f} | 98.3 ms | lr 3.0e-4 | tokens 4,194,304\n"


def print_wrong(wrong: Sequence[tuple[LabelledLog, Diagnosis]]) -> None:
    for log, diagnosis in wrong:
        outcome = diagnosis.outcome.value if diagnosis.outcome else "unknown"
        print(f"  {log.name} (exit code {log.exit_code}): expected {log.signature} on {log.rank}, {log.evidence!r}")
        print(f"    found {outcome} {diagnosis.signature} on {diagnosis.rank}: {diagnosis.detail[:150]!r}")


if __name__ == "__main__":
    main()
