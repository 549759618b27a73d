"""Ways to damage a file of a campaign, and the report on the damaged campaign.

A damage is a function of a path. `report_of` copies a campaign, damages one file, recomputes every table and report with the function
behind `seatrial report`, and returns what they contain.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.paths import CampaignPaths
from seatrial.report.view.campaign import SharedCaution, all_cautions
from seatrial.results.recompute import recompute
from tests.csv_files import rows_of

Damage = Callable[[Path], None]
# Columns with the path of the campaign.
PLACES = ("run_dir", "train_log", "launcher_log")


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_to(share: float) -> Damage:
    def cut(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return cut


def without_last_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(max(path.stat().st_size, 4096)))


def flipped_bits(path: Path) -> None:
    """The highest bit of a few bytes: a digit that turns into another digit could not be noticed."""
    data = bytearray(path.read_bytes())
    for at in random.Random(3).sample(range(len(data)), min(5, len(data))):
        data[at] ^= 1 << 7
    path.write_bytes(bytes(data))


def nul_bytes(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size + 1))


def nul_block(path: Path) -> None:
    """As a power cut leaves it on some file systems: a block in the middle was never written."""
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(min(300, len(data) - middle)) + data[middle + 300 :])


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("kept")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_dead_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def doubled_lines(path: Path) -> None:
    path.write_bytes(b"".join(line + line for line in path.read_bytes().splitlines(keepends=True)))


def reversed_lines(path: Path) -> None:
    """All but the header of a table."""
    lines = path.read_bytes().splitlines(keepends=True)
    heads = 1 if path.suffix in (".csv", ".tsv") else 0
    path.write_bytes(b"".join([*lines[:heads], *reversed(lines[heads:])]))


def a_long_line(path: Path, mib: int = 200) -> None:
    with open(path, "ab") as target:
        for _ in range(mib):
            target.write(b"x" * (1 << 20))
        target.write(b"\n")


def with_numbers(text: str) -> Damage:
    """Every number of a JSON file, or of some lines of a table or .jsonl file, replaced by `text`."""

    def replace(path: Path) -> None:
        lines = path.read_text().splitlines()
        if path.suffix == ".json":
            path.write_text(_with_numbers_json("\n".join(lines), text))
            return
        some = range(1 if len(lines) < 10 else 7, len(lines), 10)
        change = _with_numbers_json if path.suffix == ".jsonl" else _with_numbers_row
        path.write_text("".join((change(line, text) if at in some else line) + "\n" for at, line in enumerate(lines)))

    return replace


def _with_numbers_json(line: str, text: str) -> str:
    """All numbers but those that identify the line."""

    def walk(item: Any, name: str = "") -> Any:
        if isinstance(item, dict):
            return {key: walk(one, key) for key, one in item.items()}
        if isinstance(item, list):
            return [walk(one) for one in item]
        is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
        return "@@" if is_number and name not in ("rank", "attempt", "v") else item

    return json.dumps(walk(json.loads(line))).replace('"@@"', text)


def _with_numbers_row(line: str, text: str) -> str:
    mark = "\t" if "\t" in line else ","
    return mark.join(text for _ in line.split(mark))


WHOLE: dict[str, Damage] = {
    "missing": missing,
    "empty": empty,
    "one byte": cut_to(0.0001),
    "a third": cut_to(0.33),
    "nearly whole": cut_to(0.97),
    "without its last bytes": without_last_bytes,
    "random bytes": random_bytes,
    "flipped bits": flipped_bits,
    "all NUL": nul_bytes,
    "a block of NUL": nul_block,
    "a folder": a_folder,
    "a pipe": a_pipe,
    "a loop of links": a_loop,
    "a dead link": a_dead_link,
    "every line twice": doubled_lines,
    "lines backwards": reversed_lines,
}
NUMBERS: dict[str, Damage] = {
    "NaN": with_numbers("NaN"),
    "an infinite number": with_numbers("Infinity"),
    "1e400": with_numbers("1e400"),
    "a number of 400 digits": with_numbers("1" + "0" * 400),
    "a number of 5000 digits": with_numbers("7" * 5000),
    "a negative number": with_numbers("-17"),
}


def each_of(files: Sequence[str], make: Damage) -> Damage:
    """The same damage to several files of a folder."""

    def change(folder: Path) -> None:
        for file in files:
            make(folder / file)

    return change


def damages_for(file: str) -> dict[str, Damage]:
    """Every damage that applies to a file of that name."""
    return WHOLE | (NUMBERS if Path(file).suffix in (".json", ".jsonl", ".csv", ".tsv") else {})


@dataclass(frozen=True, kw_only=True)
class Told:
    """The contents of a report."""

    runs: dict[str, dict[str, str]]
    """Rows of per_run_metrics.csv by run, without paths."""
    outcomes: dict[str, str]
    """Of run_manifest.tsv, by run."""
    pending: tuple[str, ...]
    cautions: list[SharedCaution]

    def names(self, file: str) -> bool:
        """Whether a caution names the file."""
        return any(Path(file).name in caution.text for caution in self.cautions)

    def kinds(self) -> set[str]:
        return {caution.kind for caution in self.cautions}


def report_of(campaign: Path, into: Path, file: str = "", damage: Damage | None = None) -> Told:
    """Copy, damage, report."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(campaign, into, symlinks=True)
    if damage is not None:
        damage(into / file)
    return told(into)


def told(folder: Path) -> Told:
    """Everything recomputed from the folder, and read back."""
    results, paths = recompute(folder), CampaignPaths(folder)
    return Told(
        runs={row["run"]: {name: cell for name, cell in row.items() if name not in PLACES} for row in rows(paths.per_run_metrics)},
        outcomes={row["run"]: row["outcome"] for row in rows(paths.manifest)},
        pending=results.pending,
        cautions=all_cautions(results),
    )


def rows(path: Path) -> list[dict[str, str]]:
    """Rows of a table; [] where it was not written because it would be empty."""
    return rows_of(path) if path.exists() else []


def change_events(path: Path, change: Callable[[int, dict[str, Any]], dict[str, Any] | list[dict[str, Any]] | None]) -> None:
    """Every event replaced by what `change` returns for it: one, several, or none."""
    kept: list[dict[str, Any]] = []
    for at, line in enumerate(path.read_text().splitlines()):
        changed = change(at, json.loads(line))
        kept += changed if isinstance(changed, list) else [changed] if changed is not None else []
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in kept))
