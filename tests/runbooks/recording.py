"""What a section would call, without calling it. In: a section's blocks, the text of each as it is to be run. Out: every program of ours
that its shell starts, with arguments and variables.

The blocks run in a real shell in an empty folder, where scripts/, `deepspeed`, `python`, `conda` and `seatrial` only write down how they
were called: exports, assignments before a command, loops and functions are then what bash makes of them.
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
PATIENCE_S = 30
_WRITE_DOWN = """#!/usr/bin/env bash
file="$RECORDED/$(date +%s%N)-$$"
{ printf '%s\\0' "$(basename "$0")" "$#" "$@"; env -0; } > "$file"
"""


@dataclass(frozen=True)
class Call:
    """One start of a program of ours."""

    program: str
    words: tuple[str, ...]
    variables: Mapping[str, str]
    """What the blocks put into its environment."""
    block: int
    """Which block of the section did it, the first being 0."""


def recorded(texts: Sequence[str], folder: Path) -> list[Call]:
    """The calls of the blocks, in order; `folder` is empty and theirs to write in."""
    recorded_at = _make_stand_ins(folder)
    before = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RECORDED": str(recorded_at), "HOME": str(folder)}
    script = "\n".join(f"BLOCK={number}; export BLOCK\n{text}" for number, text in enumerate(texts))
    # To a file and not a pipe: what a block leaves in the background would keep a pipe open.
    with open(folder / "output", "wb") as output:
        subprocess.run(
            ["bash", "-c", script], cwd=folder / "work", env=before, stdout=output, stderr=output, timeout=PATIENCE_S, check=False
        )
    return [_read(path.read_bytes(), before) for path in sorted(recorded_at.iterdir())]


def _make_stand_ins(folder: Path) -> Path:
    for place, names in ((folder / "bin", PROGRAMS), (folder / "work" / "scripts", SCRIPTS)):
        place.mkdir(parents=True)
        for name in names:
            (place / name).write_text(_WRITE_DOWN)
            (place / name).chmod(0o755)
    (folder / "recorded").mkdir()
    return folder / "recorded"


def _read(content: bytes, before: Mapping[str, str]) -> Call:
    program, count, *rest = content.decode().rstrip("\0").split("\0")
    words, pairs = rest[: int(count)], dict(pair.partition("=")[::2] for pair in rest[int(count) :])
    block = int(pairs.pop("BLOCK"))
    added = {name: value for name, value in pairs.items() if name not in (*before, "PWD", "OLDPWD", "SHLVL", "_")}
    return Call(program, tuple(words), added, block)


def known_scripts() -> list[str]:
    """What the runbook's folder really has, for a test that SCRIPTS is that."""
    return sorted(path.name for path in (RUNBOOK / "scripts").iterdir() if path.is_file())
