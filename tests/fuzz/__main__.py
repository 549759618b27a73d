"""Fuzz every parser for a while.

    python -m tests.fuzz --seconds 60                      all targets, in parallel; starting them takes another minute
    python -m tests.fuzz --seconds 600 --target "event lines"
    python -m tests.fuzz --target "event lines" --input build/fuzz/event-lines-3f2a.bin      one saved input again

atheris (coverage-guided) where it is installed, else hypothesis. Prints a line per target:

    event lines                 12,431 runs     0 crashes
    …
    {"fuzz": "atheris", "seconds": 61.2, "targets": 25, "runs": 310442, "crashes": 0}

The last line is JSON. A crash, or an input that takes longer than SLOWEST_S, is saved under build/fuzz and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import engines, scratch

OUTPUT = Path("build") / "fuzz"
# As the two engines print it.
DONE = re.compile(r"FUZZED runs=(\d+)|stat::number_of_executed_units:\s*(\d+)")


@dataclass
class Outcome:
    """Result of one target."""

    runs: int = 0
    crashes: list[Path] = field(default_factory=list)
    text: str = ""


def main() -> int:
    args = _parse_args()
    engine = args.engine or ("atheris" if importlib.util.find_spec("atheris") else "hypothesis")
    if args.child:
        engines.run(engine, args.target, args.seconds, args.output)
        return 0
    # Not before: a coverage-guided engine must import the code under test itself.
    from tests.fuzz import targets

    if args.input is not None:
        targets.taken(targets.all_targets()[args.target], args.input.read_bytes())
        return 0
    names = [args.target] if args.target else list(targets.all_targets())
    began_m, workers = time.monotonic(), min(os.cpu_count() or 1, len(names))
    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(lambda name: fuzz_target(name, engine, args.seconds * workers / len(names), args.output), names))
    crashes = sum(len(one.crashes) for one in outcomes)
    head = {"fuzz": engine, "seconds": round(time.monotonic() - began_m, 1), "targets": len(names)}
    print(json.dumps({**head, "runs": sum(one.runs for one in outcomes), "crashes": crashes}))
    return 1 if crashes else 0


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Arbitrary bytes for every parser.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together (60)")
    parser.add_argument("--target", help="only this one, by its name in the table")
    parser.add_argument("--engine", choices=("atheris", "hypothesis"), help="atheris where it is installed, else hypothesis")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where crashing inputs are saved (build/fuzz)")
    parser.add_argument("--input", type=Path, help="give this file to --target once, to see its traceback")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.input is not None and not args.target:
        parser.error("--input needs --target")
    return args


def fuzz_target(name: str, engine: str, seconds: float, output: Path) -> Outcome:
    """In its own process: the engine ends its process, and a crash of the interpreter counts too."""
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob(f"{engines.slug(name)}-*"):
        old.unlink()
    folder = scratch.new_folder()
    argv = [sys.executable, "-m", "tests.fuzz", "--child", "--target", name, "--engine", engine, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            [*argv, "--output", str(output)],
            env={**os.environ, scratch.VARIABLE: str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds + engines.STARTUP_S,
        )
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, text = -1, (error.stdout or b"").decode(errors="replace") if isinstance(error.stdout, bytes) else (error.stdout or "")
    shutil.rmtree(folder, ignore_errors=True)
    saved = sorted(output.glob(f"{engines.slug(name)}-*"))
    if code and not saved:
        saved = [output / f"{engines.slug(name)}-.log"]
        saved[0].write_text(text)
    runs = max((int(own or atheris) for own, atheris in DONE.findall(text)), default=0)
    print(f"{name:<26} {runs:>9,} runs {len(saved):>5} crashes", flush=True)
    for path in saved:
        print(f"    {path}\n{_traceback(text)}", flush=True)
    return Outcome(runs=runs, crashes=saved, text=text)


def _traceback(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    begins = next((at for at, line in enumerate(lines) if line.startswith(("Traceback", "  | Traceback"))), max(0, len(lines) - 12))
    return "\n".join(f"    {line[:200]}" for line in lines[begins : begins + 40])


if __name__ == "__main__":
    sys.exit(main())
