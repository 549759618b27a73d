"""The calls of a section, recorded instead of made. In: the texts of a section's blocks. Out: every program of ours that its shell starts,
with arguments and variables.

The blocks run in a real shell in an empty folder, where scripts/, `deepspeed`, `python`, `conda` and `seatrial` only record how they were
called: exports, assignments before a command, loops and functions are evaluated by bash.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.runbooks.blocks import RUNBOOK

DRIVER = "run_stage1_ab_bench.sh"
STABILITY = "run_phaseb_4090_stability.sh"
PROGRAMS = ("deepspeed", "python", "conda", "seatrial")
SCRIPTS = (
    "check_many_machines.sh",
    "check_phaseb_stability.py",
    "find_python.sh",
    "preprocess_librispeech_16k.py",
    "quick_leak_diagnose.py",
    STABILITY,
    DRIVER,
    "summarize_stage1_bench.py",
)
TIMEOUT_S = 30
_RECORD = """#!/usr/bin/env bash
file="$RECORDED/$(date +%s%N)-$$"
{ printf '%s\\0' "$(basename "$0")" "$#" "$@"; env -0; } > "$file"
"""


@dataclass(frozen=True)
class Call:
    """One start of a program of ours."""

    program: str
    argv: tuple[str, ...]
    """Without the program."""
    variables: Mapping[str, str]
    """Variables that the blocks set."""
    block: int
    """Index of the block in the section."""


def recorded(texts: Sequence[str], folder: Path) -> list[Call]:
    """The calls of the blocks, in order; they run in `folder`, which is empty."""
    recorded_at = _make_stubs(folder)
    before = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RECORDED": str(recorded_at), "HOME": str(folder)}
    script = "\n".join(f"BLOCK={number}; export BLOCK\n{text}" for number, text in enumerate(texts))
    # To a file, not a pipe: a background process of a block would keep a pipe open.
    with open(folder / "output", "wb") as output:
        subprocess.run(
            ["bash", "-c", script], cwd=folder / "work", env=before, stdout=output, stderr=output, timeout=TIMEOUT_S, check=False
        )
    return [_read(path.read_bytes(), before) for path in sorted(recorded_at.iterdir())]


def _make_stubs(folder: Path) -> Path:
    for place, names in ((folder / "bin", PROGRAMS), (folder / "work" / "scripts", SCRIPTS)):
        place.mkdir(parents=True)
        for name in names:
            (place / name).write_text(_RECORD)
            (place / name).chmod(0o755)
    (folder / "recorded").mkdir()
    return folder / "recorded"


def _read(content: bytes, before: Mapping[str, str]) -> Call:
    program, count, *rest = content.decode().rstrip("\0").split("\0")
    argv, pairs = rest[: int(count)], dict(pair.partition("=")[::2] for pair in rest[int(count) :])
    block = int(pairs.pop("BLOCK"))
    added = {name: value for name, value in pairs.items() if name not in (*before, "PWD", "OLDPWD", "SHLVL", "_")}
    return Call(program, tuple(argv), added, block)


def known_scripts() -> list[str]:
    """The scripts in the runbook's folder, for the test of SCRIPTS."""
    return sorted(path.name for path in (RUNBOOK / "scripts").iterdir() if path.is_file())
