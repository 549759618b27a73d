"""How fast a LibriSpeech tree is prepared, against a bare loop that only decodes and encodes the same files.

    python benchmarks/prepare_speed.py

    round 1: bare 172.0, one worker 186.9, two workers 352.2 files/s; other processes used 0.01 of the CPU
    …
    {"benchmark": "prepare_speed", "figures": {"fraction_of_bare_loop": 1.08, "two_workers_ratio": 1.88, "same_trims_as_librosa": …}, …}

The files are synthetic and as long as LibriSpeech's (12 s on average). The bare loop is one process that reads each file with soundfile and
writes the same samples with soundfile: no trim, no atomic rename, no record. Ours is the whole of `prepare librispeech --trim`, from
process start to exit. The three run alternately, and the medians of the rounds' ratios are reported. Two workers need two cores: rounds in
which other processes used more than 5 % of the CPU are left out if there are enough others (`quiet_rounds`). `same_trims_as_librosa` is
over the same files, and null if librosa is not installed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from outcome import parser, report

AT_LEAST = {"fraction_of_bare_loop": 0.95, "two_workers_ratio": 1.8, "same_trims_as_librosa": True}
FILES, ROUNDS = 1_500, 5
TRIES_PER_ROUND = 3
QUIET_SHARE = 0.05
MEAN_S = 12.0
NAMES = ("bare", "one_worker", "two_workers")
BARE_LOOP = """
import pathlib, sys
import soundfile
source, target = map(pathlib.Path, sys.argv[1:])
for path in sorted(source.rglob("*.flac")):
    samples, rate = soundfile.read(path, dtype="int16")
    written = target / path.relative_to(source)
    written.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(written, samples, rate, subtype="PCM_16")
"""


class Round(NamedTuple):
    seconds: dict[str, float]
    others_share: float

    @property
    def is_quiet(self) -> bool:
        return self.others_share <= QUIET_SHARE


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--files", type=int, default=FILES, help="files to prepare; fewer are faster and noisier")
    arguments.add_argument("--rounds", type=int, default=ROUNDS, help="rounds with little load from other processes")
    options = arguments.parse_args()
    if options.quick:
        options.files, options.rounds = 6, 1
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        write_source(source, options.files)
        rounds = all_rounds(source, target, options)
        trims = same_trims(source)
    quiet = [one for one in rounds if one.is_quiet]
    counted = quiet if len(quiet) == options.rounds else rounds
    figures = figures_of(counted, options.files) | {"same_trims_as_librosa": trims}
    report("prepare_speed", figures, {}, AT_LEAST, quick=options.quick, rounds=len(rounds), quiet_rounds=len(quiet), cores=os.cpu_count())


def figures_of(rounds: Sequence[Round], num_files: int) -> dict[str, float | bool | None]:
    figures: dict[str, float | bool | None] = {
        "fraction_of_bare_loop": round(median(one.seconds["bare"] / one.seconds["one_worker"] for one in rounds), 3),
        "two_workers_ratio": round(median(one.seconds["one_worker"] / one.seconds["two_workers"] for one in rounds), 3),
    }
    return figures | {f"{name}_files_per_s": round(num_files / median(one.seconds[name] for one in rounds), 1) for name in NAMES}


def write_source(root: Path, num_files: int) -> None:
    from seatrial_workloads.librispeech.synthetic import write_tree

    print(f"writing {num_files} files", file=sys.stderr)
    write_tree(root, num_files, mean_s=MEAN_S)


def all_rounds(source: Path, target: Path, options: argparse.Namespace) -> list[Round]:
    """Rounds until enough of them were quiet, or too many were not."""
    rounds: list[Round] = []
    tries = options.rounds * (1 if options.quick else TRIES_PER_ROUND)
    while sum(one.is_quiet for one in rounds) < options.rounds and len(rounds) < tries:
        rounds.append(one_round(source, target, len(rounds)))
        paces = (f"{name.replace('_', ' ')} {options.files / rounds[-1].seconds[name]:.1f}" for name in NAMES)
        others = f"other processes used {rounds[-1].others_share:.2f} of the CPU"
        print(f"round {len(rounds)}: {', '.join(paces)} files/s; {others}", file=sys.stderr)
    return rounds


def one_round(source: Path, target: Path, number: int) -> Round:
    """The bare loop, one worker and two, in alternating order."""
    commands = dict(zip(NAMES, (bare(source, target), ours(source, target, 1), ours(source, target, 2)), strict=True))
    seconds, shares = {}, []
    for name in NAMES if number % 2 == 0 else NAMES[::-1]:
        shutil.rmtree(target, ignore_errors=True)
        # So that no command waits for the writes of the one before.
        os.sync()
        seconds[name], share = run(commands[name])
        shares.append(share)
    return Round(seconds, max(shares))


def bare(source: Path, target: Path) -> list[str]:
    return [sys.executable, "-c", BARE_LOOP, str(source), str(target)]


def ours(source: Path, target: Path, num_workers: int) -> list[str]:
    module = [sys.executable, "-m", "seatrial_workloads.librispeech.prepare"]
    return [*module, "--input-root", str(source), "--output-root", str(target), "--trim", "--workers", str(num_workers), "--quiet"]


def run(command: list[str]) -> tuple[float, float]:
    """Wall time, and the share of the machine's CPU time that other processes used meanwhile."""
    busy_s, own_s, began_s = machine_cpu_s(), children_cpu_s(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    took_s = time.perf_counter() - began_s
    others_s = (machine_cpu_s() - busy_s) - (children_cpu_s() - own_s)
    return took_s, max(0.0, others_s) / (took_s * (os.cpu_count() or 1))


def machine_cpu_s() -> float:
    """CPU time of all cores and processes since boot."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def same_trims(source: Path) -> bool | None:
    """Whether every file is trimmed at the same samples as by librosa."""
    try:
        trim = librosa_trim()
    except ImportError:
        return None
    import soundfile

    from seatrial_workloads.librispeech.audio import trim_bounds

    for path in source.rglob("*.flac"):
        samples, _ = soundfile.read(path, dtype="int16")
        _, bounds = trim(samples.astype("float32") / 32768, top_db=60.0)
        if trim_bounds(samples) != tuple(bounds):
            return False
    return True


def librosa_trim() -> Callable[..., Any]:
    """librosa's trim without the compilation of some twenty functions at import (30 s of CPU), none of which it calls."""
    import numpy

    with mock.patch.multiple("numba", guvectorize=uncompiled, stencil=uncompiled, jit=uncompiled, vectorize=uncompiled):
        from librosa.effects import trim

        # Runs its lazy imports.
        trim(numpy.zeros(1))
    found: Callable[..., Any] = trim
    return found


def uncompiled(*arguments: Any, **options: Any) -> Any:
    """A numba decorator that compiles nothing."""
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function


if __name__ == "__main__":
    main()
