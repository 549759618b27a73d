"""Telemetry of the original scripts, as files that our readers take.

In: gpu_telemetry.csv and host_telemetry.csv in either layout: the driver's, one file a run, or that of the hand-made sampler at the root,
which spans all runs and calls the memory of the processes `train_rss_kib`. Out: the rows of one attempt and the account of them. Rows
whose utilisation cannot be are left out and counted, as our own sampler does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.collect.original.cells import number
from seatrial.collect.original.local_clock import sampled_zone_s
from seatrial.collect.original.spans import Span, span_of_samples
from seatrial.collect.original.text_lines import LARGEST_BYTES, read_lines
from seatrial.paths import AttemptPaths
from seatrial.records.telemetry import SamplerAccount

TIME, STAMP = "epoch_sec", "timestamp"
RSS, SAMPLER_RSS = "rss_kib", "train_rss_kib"
SHARES = ("util_gpu_pct", "util_mem_pct")
MOST_PCT = 100.0
SLACK_S = 5.0
"""A run's own samplers begin a little before the launcher and end a little after it."""
LARGEST_SAMPLES_BYTES = 8 * LARGEST_BYTES
ZONE_ROWS = 50
NO_ROWS = "the file has a header and no rows: the original sampler ended at once, or could not ask the driver"
Cells = list[str]


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """What could be read of one file."""

    path: Path
    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()
    invalid: int = 0
    """Rows with a share that cannot be; they are not among `rows`."""
    problem: str = ""

    @property
    def exists(self) -> bool:
        return bool(self.columns or self.problem)

    def epochs_s(self) -> list[float | None]:
        """When each row was taken."""
        at = self.columns.index(TIME) if TIME in self.columns else None
        return [None if at is None else number(row[at]) for row in self.rows]

    def zone_s(self) -> float | None:
        """How far the clock of the machine was ahead of UTC."""
        if TIME not in self.columns or STAMP not in self.columns:
            return None
        stamp, epoch = self.columns.index(STAMP), self.columns.index(TIME)
        return sampled_zone_s([(row[stamp], row[epoch]) for row in self.rows[:ZONE_ROWS]])

    def span(self) -> Span | None:
        """From the first row to the last."""
        return span_of_samples((at for at in self.epochs_s() if at is not None), self.path.name)

    def within(self, span: Span, slack_s: float = 0.0) -> SampleFile:
        """The rows of that time alone."""
        rows = tuple(row for row, at in zip(self.rows, self.epochs_s(), strict=True) if at is not None and span.covers(at, slack_s))
        return replace(self, rows=rows)

    def text(self) -> str:
        """As our readers take it: with `rss_kib`, whatever the sampler called it."""
        lines = [self.columns, *self.rows]
        if RSS not in self.columns and SAMPLER_RSS in self.columns:
            at = self.columns.index(SAMPLER_RSS)
            lines = [(*self.columns, RSS), *([*row, row[at]] for row in self.rows)]
        return "".join(f"{','.join(cells)}\n" for cells in lines)


def read_sample_rows(path: Path) -> SampleFile:
    """Every row that is whole."""
    text = read_lines(path, LARGEST_SAMPLES_BYTES)
    if not text.lines:
        return SampleFile(path=path, problem=text.problem)
    columns = tuple(cell.strip() for cell in text.lines[0].split(","))
    if TIME not in columns or len(set(columns)) != len(columns):
        return SampleFile(path=path, problem="it does not begin with the names of its columns")
    rows = [cells for line in text.whole_lines[1:] if len(cells := [cell.strip() for cell in line.split(",")]) == len(columns)]
    # A sampler that was started again wrote its header again.
    told = [cells for cells in rows if tuple(cells) != columns]
    shares = [columns.index(name) for name in SHARES if name in columns]
    kept = tuple(cells for cells in told if not any(_is_impossible(cells[at]) for at in shares))
    return SampleFile(path=path, columns=columns, rows=kept, invalid=len(told) - len(kept))


def _is_impossible(cell: str) -> bool:
    share = number(cell)
    return share is not None and not 0 <= share <= MOST_PCT


@dataclass(frozen=True, kw_only=True)
class RunSamples:
    """Both files of one run, and the hand-made sampler's, which all runs share."""

    gpu: SampleFile
    host: SampleFile
    shared_host: SampleFile

    def zone_s(self) -> float | None:
        """The zone by the first of the run's own files that tells it."""
        return next((zone_s for file in (self.gpu, self.host) if (zone_s := file.zone_s()) is not None), None)

    def of_attempt(self, span: Span, *, alone: bool, is_newest: bool) -> tuple[SampleFile | None, SampleFile | None]:
        """GPU and host samples of one attempt, each None where there are none: the host's from the root where the run has none itself."""
        gpu, host = (_own_rows(file, span, alone=alone, is_newest=is_newest) for file in (self.gpu, self.host))
        if (host is None or not host.rows) and span.first_t is not None:
            from_root = self.shared_host.within(span)
            host = from_root if from_root.rows else host
        return gpu, host


def read_run_samples(folder: Path | None, shared_host: SampleFile) -> RunSamples:
    """Empty ones for a run without a folder."""
    paths = AttemptPaths(folder) if folder else None
    nothing = SampleFile(path=shared_host.path)
    return RunSamples(
        gpu=read_sample_rows(paths.gpu_telemetry) if paths else nothing,
        host=read_sample_rows(paths.host_telemetry) if paths else nothing,
        shared_host=shared_host,
    )


def _own_rows(file: SampleFile, span: Span, *, alone: bool, is_newest: bool) -> SampleFile | None:
    """Of a run with several attempts only the rows of this one's time; None for no file."""
    if not file.exists:
        return None
    taken = file if alone else file.within(span, SLACK_S)
    if taken.rows or not is_newest:
        # An older attempt's file was written over: it has no rows, and that is not amiss.
        return taken if taken.rows else None
    # Where the times of the newest attempt cannot be laid beside the rows, these are still its own: the sampler begins its file anew.
    return file


def account_of(samples: SampleFile | None, interval_s: float | None) -> SamplerAccount | None:
    """How the sampling went, as far as the rows tell; None where there is no file."""
    if samples is None:
        return None
    times = sorted({at for at in samples.epochs_s() if at is not None})
    waits = [later - one for one, later in itertools.pairwise(times)]
    every_s = interval_s or (sorted(waits)[len(waits) // 2] if waits else 0.0)
    # Times are in whole seconds, so a wait may look a second longer than it was.
    gaps = [wait for wait in waits if wait > 2 * every_s + 1]
    return SamplerAccount(
        interval_s=every_s,
        rows=len(samples.rows),
        samples=len(times),
        invalid=samples.invalid,
        gaps=len(gaps),
        longest_gap_s=max(gaps, default=0.0),
        wall_s=times[-1] - times[0] if times else 0.0,
        empty=not samples.rows,
        note="; ".join(_notes(samples)),
    )


def _notes(samples: SampleFile) -> Iterator[str]:
    if samples.problem:
        yield f"{samples.path.name} cannot be used ({samples.problem})"
    elif not samples.rows and not samples.invalid:
        yield NO_ROWS
    if samples.invalid:
        yield "utilisation outside 0 to 100 %"
