"""`seatrial logs RUN`: what a run printed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seatrial.paths import AttemptPaths

EXAMPLES = (
    "seatrial logs outputs/tiny-lm-demo/mb16_nw2_r1 --rank 1\n\nseatrial logs outputs/tiny-lm-demo/mb16_nw2_r1 --follow\n\n"
    "seatrial logs outputs/smoke/mb128_r1 --node node2"
)
FOLLOW_EVERY_S = 0.3
# A bar ends its line with a carriage return, and is shown as it moves.
PARTS = re.compile(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("logs", epilog=EXAMPLES)(logs)


def logs(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, OUT/<group>_r<n>.", show_default=False)],
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", help="Only this rank's lines.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", metavar="K", help="An earlier attempt instead of the newest.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this host's lines, of a run on many hosts.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the run is over.")] = False,
) -> int:
    """Print a run's output: all ranks merged as it arrived, each line marked with its rank, or one rank's lines alone.

    A run on many hosts prints the lines of one host after those of another, each marked with its host, or one host's lines alone.
    """
    from seatrial.collect.logs.line_marks import host_mark
    from seatrial.errors import CampaignError
    from seatrial.log_lines import split_rank

    show = _harmless if sys.stdout.isatty() else str
    seen: set[int] = set()
    for host, line in _lines(_attempt(run, attempt), node, follow):
        marked, text = split_rank(line)
        seen.add(marked or 0)
        if rank is None:
            sys.stdout.write(show(host_mark("" if node else host) + line))
        elif marked == rank or (marked is None and rank == 0 and not line.startswith("[rank")):
            sys.stdout.write(show(text))
        if follow:
            sys.stdout.flush()
    if rank is not None and seen and rank not in seen:
        raise CampaignError(f"rank {rank} printed nothing in {run}; ranks that did: {', '.join(map(str, sorted(seen)))}")
    return 0


def _harmless(line: str) -> str:
    """For a terminal: colours stay, everything else that it would act on is taken out; a file or a pipe gets the bytes as they are."""
    return "".join(part if COLOUR.fullmatch(part) else CONTROL.sub("", part) for part in COLOUR.split(line))


def _attempt(run: Path, number: int | None) -> AttemptPaths:
    from seatrial.campaign.original import run_of
    from seatrial.campaign.run_folder import attempts_of
    from seatrial.errors import CampaignError

    attempts = attempts_of(run_of(run))
    chosen = [attempt for attempt in attempts if number in (None, attempt.number)]
    if not chosen:
        raise CampaignError(f"{run} has no attempt {number}; it has {', '.join(str(attempt.number) for attempt in attempts)}")
    return chosen[-1]


def _lines(attempt: AttemptPaths, node: str | None, follow: bool) -> Iterator[tuple[str, str]]:
    """(host, line) of every host's log, or of one's; the host is empty where there is but one."""
    read: dict[Path, int] = {}
    while True:
        # Asked before reading, so that nothing written before the end is missed.
        over = _is_over(attempt) if follow else True
        for host, path in _logs(attempt, node, must_be=over):
            yield from ((host, line) for line in _new_lines(path, read, whole_only=not over))
        if over:
            return
        time.sleep(FOLLOW_EVERY_S)


def _logs(attempt: AttemptPaths, node: str | None, *, must_be: bool) -> list[tuple[str, Path]]:
    """Asked again at every turn: hosts begin to write one after another."""
    from seatrial.collect.hosts.logs import logs_of
    from seatrial.errors import CampaignError, did_you_mean

    found = logs_of(attempt)
    chosen = [(log.host, log.path) for log in found if node in (None, log.host)]
    if not chosen and must_be:
        hosts = [log.host for log in found if log.host]
        raise CampaignError(f"{attempt.folder} has no host {node}; {did_you_mean(str(node), hosts) if hosts else 'it ran on one host'}")
    return chosen


def _new_lines(path: Path, read: dict[Path, int], *, whole_only: bool) -> Iterator[str]:
    """What was written since the last turn; a line that has no end yet waits for it, as long as more may come."""
    from seatrial.errors import CampaignError

    if not path.exists():
        return
    if not path.is_file():
        raise CampaignError(f"{path} is no file: something else was put in the place of the run's output")
    with open(path, "rb") as log:
        log.seek(read.get(path, 0))
        for part in (part for line in log for part in PARTS.findall(line)):
            if whole_only and not part.endswith((b"\n", b"\r")):
                return
            read[path] = read.get(path, 0) + len(part)
            yield part.decode("utf-8", errors="replace")


def _is_over(attempt: AttemptPaths) -> bool:
    """The attempt has its outcome, or nobody runs the campaign that would write it."""
    from seatrial.campaign.owner import read_owner
    from seatrial.paths import CampaignPaths

    return attempt.outcome.exists() or read_owner(CampaignPaths(attempt.folder.parent.parent)) is None
