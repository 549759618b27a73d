"""launcher.log as the original driver wrote it: a META block of key=value lines, a CMD block with the command, then what was printed.

In: its lines. Out: one `Block` for each start that the file tells of, oldest first. A log without these blocks is all output.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.collect.original.local_clock import local_s, written_zone_s
from seatrial.collect.original.manifest_rows import ABSENT
from seatrial.records.columns import SEED_SETTINGS
from seatrial.records.original_names import TRAINER_KEYS

META = "=== META ==="
CMD = "=== CMD ==="
SCRIPT = "train.py"
# The manifest calls this one by another name than the trainer's settings do.
_COLUMN = {"log_every": "log_every_steps"}
OVERRIDES = {
    **{key.lstrip("+"): _COLUMN.get(setting, setting) for key, setting in TRAINER_KEYS.items() if setting in (*SEED_SETTINGS, *_COLUMN)},
    "train.max_step_iterations": "max_steps",
    "train.enable_cuda_sync_timing": "enable_cuda_sync_timing",
    "train.timing_rank_scope": "timing_rank_scope",
}
"""Keys of the trainer's configuration → the columns that the manifest has for them."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One start of the launcher."""

    meta: dict[str, str]
    """Keys that say something."""
    command: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    """Both blocks as they were written."""
    output: tuple[str, ...] = ()
    """What came after the command."""

    @property
    def start_local_s(self) -> float | None:
        """When the driver began it, by its machine's clock; None where it does not say."""
        return local_s(self.meta.get("timestamp", ""))

    @property
    def zone_s(self) -> float | None:
        return written_zone_s(self.meta.get("timestamp", ""))

    @property
    def cells(self) -> dict[str, str]:
        """What the manifest would hold, from META and, where that is silent, from the command."""
        return {**_overridden(self.command), **self.meta}

    @property
    def devices(self) -> tuple[str, ...]:
        """GPU ids of `--include HOST:0,1` where one host is named; none otherwise."""
        words = list(self.command)
        include = words[words.index("--include") + 1] if "--include" in words[:-1] else ""
        ids = include.partition(":")[2]
        return tuple(ids.split(",")) if ids and "@" not in include else ()

    @property
    def launcher_args(self) -> tuple[str, ...]:
        """Words between `deepspeed` and the script."""
        words, script = self.command, self._script_at
        first = next((at + 1 for at, word in enumerate(words[:script]) if word.rpartition("/")[2] == "deepspeed"), script)
        return words[first:script]

    @property
    def script_args(self) -> tuple[str, ...]:
        return self.command[self._script_at + 1 :]

    @property
    def _script_at(self) -> int:
        return next((at for at, word in enumerate(self.command) if word.rpartition("/")[2] == SCRIPT), len(self.command))


def read_blocks(lines: Sequence[str]) -> list[Block]:
    """Every block; [] for a file without lines."""
    starts = [at for at, line in enumerate(lines) if line.strip() == META]
    if not starts:
        return [Block(meta={}, output=tuple(lines))] if lines else []
    ends = [*starts[1:], len(lines)]
    return [_block(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def _block(lines: Sequence[str]) -> Block:
    cmd = next((at for at, line in enumerate(lines) if line.strip() == CMD), len(lines))
    meta = dict(_assigned(line) for line in lines[1:cmd] if "=" in line)
    rest = cmd + 1
    words: list[str] = []
    while rest < len(lines) and not words:
        words = _words(lines[rest])
        rest += 1
    return Block(
        meta={name: value for name, value in meta.items() if value.lower() not in ABSENT},
        command=tuple(words),
        head=tuple(lines[:rest]),
        output=tuple(lines[rest:]),
    )


def _assigned(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value.strip()


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        # A quote without its end: the log was torn here.
        return line.split()


def _overridden(command: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in command:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and key in OVERRIDES and value.strip("'\"").lower() not in ABSENT:
            found[OVERRIDES[key]] = value.strip("'\"")
    return found
