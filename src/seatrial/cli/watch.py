"""`seatrial watch`, `seatrial logs`, `seatrial stop`: a running campaign from another terminal or a browser."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import Folder
from seatrial.core import files
from seatrial.core.errors import CampaignError, UsageError, did_you_mean
from seatrial.core.log_lines import split_rank
from seatrial.core.paths import CampaignPaths
from seatrial.core.ports import LAST_PORT
from seatrial.records.results import LiveState
from seatrial.records.stored import read_record

if TYPE_CHECKING:
    from seatrial.core.paths import AttemptPaths, CampaignPaths, JobPaths
    from seatrial.observe.progress import ProgressReader
    from seatrial.records.results import LiveState

EXAMPLES = {
    "watch": "seatrial watch outputs/tiny-lm-demo --once\n\nseatrial watch outputs/tiny-lm-demo --web --port 8123",
    "logs": (
        "seatrial logs outputs/tiny-lm-demo/mb16_nw1_r1 --rank 1\n\nseatrial logs outputs/tiny-lm-demo/mb16_nw1_r1 --follow\n\n"
        "seatrial logs outputs/smoke/mb128_r1 --node node2"
    ),
    "stop": "seatrial stop outputs/tiny-lm-demo\n\nseatrial run plans/tiny-lm-demo.yaml   (resumes it later)",
}
NOT_RUNNING = " (not running now)"
POLL_S = 1.0
FOLLOW_POLL_S = 0.3
# For jobs known only by their files: as often as ranks write heartbeats.
JOBS_POLL_S = 5.0
# A progress bar ends its line with a carriage return and is shown as it moves.
LONGEST_LINE = 1 << 20
"""A longer one is printed in parts, so that an endless one is never held in memory."""
LINE_PARTS = re.compile(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Once = Annotated[bool, typer.Option("--once", help="Print one line about now and end.")]
Web = Annotated[bool, typer.Option("--web", help="Serve the report as a live page on 127.0.0.1, until interrupted. Read-only.")]
Port = Annotated[
    int | None, typer.Option("--port", metavar="PORT", help="With --web: this port instead of a free one.", min=0, max=LAST_PORT)
]
Open = Annotated[bool, typer.Option("--open", help="With --web: open the page in a browser, if there is a display.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, OUT/<group>_r<n>.", show_default=False)]
Rank = Annotated[int | None, typer.Option("--rank", metavar="N", help="Only this rank's lines.")]
AttemptNumber = Annotated[int | None, typer.Option("--attempt", metavar="K", help="An earlier attempt instead of the newest.")]
NodeName = Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this host's lines, of a run on many hosts.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue to print until the run has ended.")]


def watch(out: Folder, once: Once = False, web: Web = False, port: Port = None, open_it: Open = False) -> int:
    """Watch a running campaign: the run under way, its step, and when it and the campaign will end.

    Bars in a terminal; into a pipe or a file a line for each change, and one every 30 s of a run.

    Reads files only and disturbs nothing. Ends when the campaign does; the page of --web stays until interrupted. Slurm jobs that no
    harness follows are shown by their own heartbeats.
    """
    if once and web:
        raise UsageError("--once prints one line and ends, --web serves a page until it is interrupted: leave one of them out")
    if not web and (open_it or port is not None):
        raise UsageError(f"{'--open' if open_it else '--port'} is for the page of --web: add --web, or leave it out")
    paths = CampaignPaths(out)
    return _watch_in_browser(paths, port or 0, open_it) if web else _watch_in_terminal(paths, once)


def _watch_in_terminal(paths: CampaignPaths, once: bool) -> int:
    from seatrial.campaign.lock import read_owner
    from seatrial.cli.live_view import ChangesView, live_view, state_line
    from seatrial.cli.program import console_for

    state = _read_state(paths.progress)
    owner = read_owner(paths)
    if owner is None and _watch_jobs(paths, once):
        return 0
    if once or owner is None:
        print(state_line(state) if state.over or owner else f"{state_line(state)}{NOT_RUNNING}")
        return 0
    # By the stream itself: FORCE_COLOR makes rich take a pipe for a terminal, and bars are control sequences.
    is_terminal = sys.stdout.isatty()
    with live_view(console_for()) if is_terminal else contextlib.nullcontext(ChangesView(console_for(plain=True))) as view:
        while not state.over and read_owner(paths) is not None:
            view.progress(state)
            time.sleep(POLL_S)
            state = _read_state(paths.progress)
    print(state_line(state) if state.over else f"{state_line(state)}{NOT_RUNNING}")
    return 0


def _watch_jobs(paths: CampaignPaths, once: bool) -> bool:
    """Print progress of jobs that no harness follows, until there are none or a harness is back; False if there are none."""
    from seatrial.campaign.lock import read_owner

    readers: dict[Path, ProgressReader] = {}
    printed: list[str] = []
    while lines := _job_lines(paths, readers):
        if lines != printed:
            print(*lines, sep="\n", flush=True)
        printed = lines
        if once or read_owner(paths) is not None:
            return True
        time.sleep(JOBS_POLL_S)
    return bool(printed)


def _job_lines(paths: CampaignPaths, readers: dict[Path, ProgressReader]) -> list[str]:
    found = [_job_line(attempt, readers) for run in paths.runs() for attempt in run.attempts() if _is_open_job(attempt)]
    held = paths.open_allocation()
    return [f"between runs · {_number(held)}"] if held and not found else found


def _is_open_job(attempt: AttemptPaths) -> bool:
    return not attempt.outcome.exists() and (attempt.job.exists() or attempt.job_script.exists())


def _number(paths: JobPaths) -> str:
    job = files.read_json(paths.job)
    number = f"job {job['job']}" if isinstance(job, dict) and job.get("job") else "a job of unknown number"
    return f"{number}, which no harness follows: `seatrial run` picks it up"


def _job_line(attempt: AttemptPaths, readers: dict[Path, ProgressReader]) -> str:
    """Progress by the attempt's own files: `base_r1: step 41 of 100, heartbeat 2.0 s ago · job 4711, which no harness follows: …`."""
    from seatrial.core.text import format_duration
    from seatrial.observe.progress import ProgressReader
    from seatrial.records.stored import read_spec
    from seatrial.report.text import one_line

    spec = read_spec(attempt)[0]
    if not attempt.job_start.exists() or spec is None:
        how = "not started yet"
    else:
        found = readers.setdefault(attempt.folder, ProgressReader(spec, attempt)).read()
        steps = "no step yet" if found.step is None else f"step {found.step}" + (f" of {found.total}" if found.total else "")
        heartbeats_t = [rank.heartbeat_t for rank in found.rank_states]
        ago = f", heartbeat {format_duration(max(0.0, time.time() - min(heartbeats_t)))} ago" if heartbeats_t else ", no heartbeat"
        how = f"{steps}{ago}"
    return one_line(f"{attempt.run}: {how} · {_number(attempt)}")


def _read_state(path: Path) -> LiveState:
    state = read_record(LiveState, path)[0]
    if state is None:
        raise CampaignError(f"nothing has run in {path.parent} yet: name a folder that `seatrial run` or `seatrial sweep` wrote to")
    return state


def _watch_in_browser(paths: CampaignPaths, port: int, open_it: bool) -> int:
    from seatrial.cli.live_view import state_line
    from seatrial.results.gather import NO_POLARS, can_measure, require_plans

    try:
        # Imported, since installed packages may still not load.
        from seatrial.web.server import open_listener, serve
    except ImportError as error:
        raise UsageError(f"`watch --web` needs packages that cannot be loaded here ({error}): pip install 'seatrial[web]'") from error
    if not can_measure():
        raise CampaignError(NO_POLARS)
    require_plans(paths)
    from seatrial.cli.browser import open_private

    listener = open_listener(port)
    print(f"{listener.address}\nRead-only, for anyone with this address. Ctrl-C ends it; the campaign continues.", flush=True)
    with open_private(listener.address, listener.port) if open_it else contextlib.nullcontext("") as sentence:
        if sentence:
            print(sentence, flush=True)
        serve(paths, listener, state_line)
    return 0


def logs(run: RunFolder, rank: Rank = None, attempt: AttemptNumber = None, node: NodeName = None, follow: Follow = False) -> int:
    """Print a run's output: all ranks merged as it arrived, each line marked with its rank, or one rank's lines alone.

    A run on many hosts prints the lines of one host after those of another, each marked with its host, or one host's lines alone.
    """
    from seatrial.collect.logs.launcher_log import host_prefix

    show = _without_controls if sys.stdout.isatty() else str
    seen: set[int] = set()
    for host, line in _lines(_find_attempt(run, attempt), node, follow):
        marked, text = split_rank(line)
        seen.add(marked or 0)
        if rank is None:
            sys.stdout.write(show(host_prefix("" if node else host) + line))
        elif marked == rank or (marked is None and rank == 0 and not line.startswith("[rank")):
            sys.stdout.write(show(text))
        if follow:
            sys.stdout.flush()
    if rank is not None and seen and rank not in seen:
        raise CampaignError(f"rank {rank} printed nothing in {run}; ranks that did: {', '.join(map(str, sorted(seen)))}")
    return 0


def _without_controls(line: str) -> str:
    """The line for a terminal: colours stay, other control sequences are removed. Files and pipes get unchanged bytes."""
    return "".join(part if COLOUR.fullmatch(part) else CONTROL.sub("", part) for part in COLOUR.split(line))


def _find_attempt(run: Path, number: int | None) -> AttemptPaths:
    from seatrial.results.folders import find_attempts, find_run

    attempts = find_attempts(find_run(run))
    chosen = [attempt for attempt in attempts if number in (None, attempt.number)]
    if not chosen:
        raise CampaignError(f"{run} has no attempt {number}; it has {', '.join(str(attempt.number) for attempt in attempts)}")
    return chosen[-1]


def _lines(attempt: AttemptPaths, node: str | None, follow: bool) -> Iterator[tuple[str, str]]:
    """(host, line) of every host's log, or of one host's; the host is '' where there is only one."""
    read: dict[Path, int] = {}
    while True:
        # Evaluated before reading, so that nothing written before the end is missed.
        over = _is_over(attempt) if follow else True
        for host, path in _log_files(attempt, node, required=over):
            yield from ((host, line) for line in new_lines(path, read, whole_only=not over))
        if over:
            return
        time.sleep(FOLLOW_POLL_S)


def _log_files(attempt: AttemptPaths, node: str | None, *, required: bool) -> list[tuple[str, Path]]:
    """The logs; listed on every poll, since hosts begin to write one after another."""
    from seatrial.collect.logs.launcher_log import host_logs

    found = host_logs(attempt)
    chosen = [(log.host, log.path) for log in found if node in (None, log.host)]
    if not chosen and required:
        hosts = [log.host for log in found if log.host]
        raise CampaignError(f"{attempt.folder} has no host {node}; {did_you_mean(str(node), hosts) if hosts else 'it ran on one host'}")
    return chosen


def new_lines(path: Path, read: dict[Path, int], *, whole_only: bool) -> Iterator[str]:
    """Lines since the last poll; an unfinished line waits for its end, as long as more may come."""
    if not path.exists():
        return
    if not path.is_file():
        raise CampaignError(f"{path} is not a file: the run's output was replaced")
    with open(path, "rb") as log:
        log.seek(read.get(path, 0))
        for part in (part for line in iter(lambda: log.readline(LONGEST_LINE), b"") for part in LINE_PARTS.findall(line)):
            if whole_only and not part.endswith((b"\n", b"\r")) and len(part) < LONGEST_LINE:
                return
            read[path] = read.get(path, 0) + len(part)
            yield part.decode("utf-8", errors="replace")


def _is_over(attempt: AttemptPaths) -> bool:
    """Whether the attempt has its outcome, or the campaign that would write it is not running."""
    from seatrial.campaign.lock import read_owner

    return attempt.outcome.exists() or read_owner(CampaignPaths(attempt.folder.parent.parent)) is None


def stop(out: Folder) -> int:
    """Ask a running campaign to stop: the run under way is ended, results are written, what is finished stays.

    Works from another host on a shared file system too, and for Slurm jobs whose harness is gone. The same `run` or `sweep` command
    resumes the campaign.
    """
    from seatrial.campaign.lock import request_stop

    owner = request_stop(CampaignPaths(out))
    if owner is None:
        return _stop_jobs(out)
    print(f"asked process {owner.pid} on {owner.host} to stop; it ends its run and writes the results so far")
    return 0


def _stop_jobs(out: Path) -> int:
    from seatrial.campaign.slurm.outcomes import stop_jobs

    stopped = stop_jobs(CampaignPaths(out))
    if not stopped:
        raise CampaignError(f"no campaign is running in {out}: name the folder that a running `seatrial run` or `sweep` writes to")
    halted, cancelled = (", ".join(job for job, ran in stopped.items() if ran is how) for how in (True, False))
    if halted:
        print(f"asked Slurm job {halted} to stop; its ranks halt, and it writes its outcome")
    if cancelled:
        print(f"cancelled Slurm job {cancelled}, which was waiting")
    return 0
