"""`seatrial run PLAN`: from a plan file to a verdict. `sweep` shares everything after the plan is read.

Imports what runs a campaign only when one is run, so that `run --help` comes at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.cli import options
from seatrial.cli.program import console_for, print_first_line, print_json
from seatrial.core.errors import FAILED, INCONCLUSIVE, INTERRUPTED, STOP_SIGNALS, WRONG_USE, UsageError
from seatrial.core.paths import CampaignPaths

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.campaign.invocation import CampaignEnd
    from seatrial.campaign.tracking import StopRequested, Tracking
    from seatrial.cli.live_view import PlainView
    from seatrial.cli.pernode import NodeOptions, ThisNode
    from seatrial.plan.stages import StagedPlan
    from seatrial.records.plan import CampaignPlan
    from seatrial.records.results import CampaignResults
    from seatrial.results.cache import MeasureCache

EXAMPLES = {"run": "seatrial run plans/tiny-lm-demo.yaml\n\nseatrial run plan.yaml --set steps=500 --only 'mb16_*' --budget 2h"}
# A night of one-minute runs has half as many; more are usually a mistake in the axes.
MAX_RUNS_WITHOUT_YES = 1_000
SIGNALS_AT_ONCE = 4096

ViewFactory = Callable[["Console", float | None], AbstractContextManager["PlainView"]]
"""Console and seconds between two heartbeat lines (None for the view's own) → the view of the running campaign."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a campaign is run and shown: the options of `run` and `sweep`."""

    yes: bool = False
    as_json: bool = False
    track: tuple[str, ...] = ()
    heartbeat_s: float | None = None
    again: bool = False
    """Also run finished runs."""
    from_start: bool = False
    """Run those with checkpoints from step 0."""
    keep_going: bool = False
    """Continue after identical failures."""
    full: bool = False
    """Print the whole report."""
    allow_confounded: bool = False
    """Compare confounded groups."""
    view: ViewFactory | None = None
    how_to_resume: str = ""
    """For commands other than `seatrial`."""
    first_line: str = ""
    """Printed before anything is started."""


# More than 60 lines: typer reads the options from the signature.
def run(
    plan: options.PlanFile,
    set: options.Overrides = None,
    only: options.Only = None,
    budget: options.Budget = None,
    out: options.Out = None,
    place: options.PlaceKind = None,
    site: options.SiteName = None,
    track: options.Track = None,
    heartbeat: options.Heartbeat = None,
    again: options.Again = False,
    from_start: options.FromStart = False,
    resume_changed: options.ResumeChanged = False,
    keep_going: options.KeepGoing = False,
    ignore_needs: options.IgnoreNeeds = False,
    ignore_fit: options.IgnoreFit = False,
    yes: options.Yes = False,
    full: options.Full = False,
    allow_confounded: options.AllowConfounded = False,
    json: options.AsJson = False,
    node_rank: options.NodeRank = None,
    master_addr: options.MasterAddr = None,
    master_port: options.MasterPort = None,
) -> int:
    """Run a plan: every group, every repeat, then rank and judge. The same command again resumes. Starts the programs that the plan names.

    A plan with `stages` is several campaigns and commands in order, with one acceptance at the end; --only then selects stages, and --set
    is for the plan of each.

    Finished runs are not run again; runs whose settings changed are. A training (one group, one repeat) resumes from its last complete
    checkpoint, with more steps too.

    Exit code 0 PASS; 2 FAIL, or refused before the start; 3 INCONCLUSIVE, also when stopped after 3 identical failures in a row;
    130 interrupted; 1 a plan or command that cannot be read, or a file that could not be written.
    """
    from seatrial.cli.pernode import NodeOptions
    from seatrial.cli.plan import read_plan
    from seatrial.plan.stages import load_stages
    from seatrial.plan.yaml_text import read_plan_file

    document = read_plan_file(plan)
    how = RunOptions(
        yes=yes,
        as_json=json,
        track=tuple(track or ()),
        heartbeat_s=heartbeat,
        again=again,
        from_start=from_start,
        keep_going=keep_going,
        full=full,
        allow_confounded=allow_confounded,
        first_line=f"Running {plan}. It starts the programs in the plan as your user.",
    )
    if staged := load_stages(plan, document):
        one_campaign = {"--budget": budget, "--place": place, "--node-rank": node_rank, "--master-addr": master_addr}
        one_campaign |= {"--master-port": master_port, "--ignore-needs": ignore_needs or None}
        one_campaign |= {"--ignore-fit": ignore_fit or None, "--resume-changed": resume_changed or None}
        return _run_stages(staged, how, out=out, overrides=set or (), site=site, only=only or (), one_campaign=one_campaign)
    overrides = [*(set or ()), *([f"place.kind={place}"] if place else ())]
    campaign = read_plan(plan, overrides, only, budget, out, site, document=document)
    if ignore_needs and campaign.needs is not None:
        campaign = replace(campaign, needs=replace(campaign.needs, enforced=False))
    refuse_two_starts(from_start=from_start, resume_changed=resume_changed)
    campaign = replace(campaign, fit_enforced=not ignore_fit, resume_changed=resume_changed)
    return execute_on_this_node(campaign, NodeOptions(rank=node_rank, address=master_addr, port=master_port), how)


def _run_stages(
    staged: StagedPlan,
    how: RunOptions,
    *,
    out: Path | None,
    overrides: Sequence[str],
    site: str | None,
    only: Sequence[str],
    one_campaign: Mapping[str, object],
) -> int:
    """`one_campaign`: the values of options that are for one campaign, by name."""
    from seatrial.cli.pernode import NodeOptions
    from seatrial.cli.stages import StagedRun

    def run_campaign(campaign: CampaignPlan) -> int:
        return execute_on_this_node(campaign, NodeOptions(), replace(how, first_line=""))

    output = staged.output_folder(out)
    refuse_unusable_output(output)
    run = StagedRun(staged, run_campaign, output=output, overrides=overrides, site=site, as_json=how.as_json, again=how.again)
    return run.run(only, one_campaign, how.first_line)


def refuse_two_starts(*, from_start: bool, resume_changed: bool) -> None:
    if from_start and resume_changed:
        raise UsageError("--from-start and --resume-changed exclude each other: name the one you mean")


def execute_on_this_node(plan: CampaignPlan, node: NodeOptions, how: RunOptions) -> int:
    """Run the plan, or this node's share of it; returns the exit code."""
    from seatrial.cli.pernode import run_client_node, this_node

    here = this_node(plan, node)
    if here is not None and here.rank:
        print_first_line(console_for(as_json=how.as_json), how.first_line)
        return run_client_node(plan, here, as_json=how.as_json)
    return execute(plan, how, here)


def execute(plan: CampaignPlan, how: RunOptions, here: ThisNode | None = None) -> int:
    """Run the campaign and return the exit code; `here` is node 0 of a campaign without ssh."""
    from seatrial.campaign.loop import run_campaign
    from seatrial.campaign.tracking import TrackingListener
    from seatrial.cli.live_view import live_view
    from seatrial.cli.pernode import open_server
    from seatrial.cli.plan import warn_of_impossible_criteria
    from seatrial.results.gather import NO_POLARS, can_measure
    from seatrial.results.recompute import RunRecorder

    console = console_for(as_json=how.as_json)
    out, trackers = Path(plan.output), usable_trackers(how.track)
    require_yes(plan, how.yes)
    refuse_unusable_output(out)
    print_first_line(console, how.first_line)
    warn_of_impossible_criteria(plan, console)
    recorder = RunRecorder(CampaignPaths(out))
    with (
        open_server(plan, here, console) as server,
        stop_requests(out) as stop_requested,
        tracking_to(trackers, out, console, stop_requested) as tracking,
    ):
        with (how.view or live_view)(console, how.heartbeat_s) as shown:
            end = run_campaign(
                plan,
                TrackingListener(shown, tracking),
                again=how.again,
                from_start=how.from_start,
                keep_going=how.keep_going,
                server=server,
                recorder=recorder,
            )
        if can_measure():
            code = _report(plan, end, console, tracking, recorder.cache, how)
        else:
            console.print(NO_POLARS, style="yellow", markup=False)
            code = INTERRUPTED if end.interrupted else FAILED if shown.failed else INCONCLUSIVE
        if server is not None:
            server.finish(code)
        return code


def _report(plan: CampaignPlan, end: CampaignEnd, console: Console, tracking: Tracking, cache: MeasureCache, how: RunOptions) -> int:
    from seatrial.report.terminal import print_report
    from seatrial.results.recompute import recompute_or_explain

    try:
        results, unwritten = recompute_or_explain(Path(plan.output), cache, allow_confounded=how.allow_confounded)
    except KeyboardInterrupt:
        console.print(f"interrupted before the report was written: `seatrial report {plan.output}` writes it", style="yellow", markup=False)
        raise
    print_report(results, console, full=how.full)
    resume = how.how_to_resume or ("run the same plan without --again to resume" if how.again else "run the same command to resume")
    _print_what_is_left(console, end, plan, resume)
    if unwritten:
        console.print(unwritten, style="red", markup=False, highlight=False, emoji=False)
    if not end.interrupted:
        tracking.send_campaign(results)
    print_account(tracking, console)
    if how.as_json:
        print_json(result_json(results))
    if end.interrupted:
        return INTERRUPTED
    if unwritten or end.disk_trouble:
        return WRONG_USE
    # Nothing was measured, so no setting is judged.
    return INCONCLUSIVE if end.repeated_failure else results.verdict.verdict.exit_code


def result_json(results: CampaignResults) -> dict[str, object]:
    """The JSON line: verdict, winners and paths of the rest."""
    from seatrial.records.ranking import ranked_group_json

    return {
        "verdict": results.verdict.verdict.value,
        "winner": results.ranking.winner,
        "decided": results.ranking.decided,
        "metric": results.ranking.metric,
        "latency_winner": results.ranking.latency_winner,
        "ranking": [ranked_group_json(group) for group in results.ranking.groups],
        "pending": list(results.pending),
        "report": str(CampaignPaths(Path(results.output)).summary_md),
        "recommended": results.ranking.recommended,
        "confounded": results.ranking.confounded or None,
        "condition": results.ranking.condition or None,
    }


def _print_what_is_left(console: Console, end: CampaignEnd, plan: CampaignPlan, remedy: str) -> None:
    if plan.selected:
        console.print(f"--only: {len(plan.selected)} of the plan's {len(plan.runs)} runs; the verdict is on these.", markup=False)
    if reason := _why_it_ended(end):
        console.print(f"{reason}: {end.left} of {len(plan.runs)} runs left; {remedy}.", style="yellow", markup=False)
    if end.jobs_left:
        console.print(f"{end.jobs_left}.", style="yellow", markup=False, soft_wrap=True)


def _why_it_ended(end: CampaignEnd) -> str:
    """Why the invocation ended before all runs; empty if it did not."""
    if end.interrupted:
        return "interrupted"
    if end.stopped_on_error:
        return "stopped at the first failure (stop_on_error)"
    if end.out_of_budget:
        return "the budget is used up"
    if end.repeated_failure:
        from seatrial.campaign.invocation import MAX_IDENTICAL_FAILURES

        after = f"after {MAX_IDENTICAL_FAILURES} identical failures in a row"
        return f"stopped with exit code 3 {after} ({end.repeated_failure}; --keep-going runs the others anyway)"
    if end.jobs_ended or end.job_too_short:
        return end.jobs_ended or end.job_too_short
    return f"no further run could be prepared ({end.disk_trouble}), fix that disk first" if end.disk_trouble else ""


def require_yes(plan: CampaignPlan, yes: bool) -> None:
    """A UsageError where there are so many runs that `--yes` must confirm them."""
    from seatrial.plan.matrix import sizes_text

    runs = len(plan.chosen)
    if runs > MAX_RUNS_WITHOUT_YES and not yes:
        sizes = sizes_text({name: len(values) for name, values in plan.axes.items()}, plan.repeats)
        raise UsageError(f"{runs:,} runs ({sizes}): add --yes to run them all, select some with --only, or remove values or repeats")


def refuse_unusable_output(folder: Path) -> None:
    """A UsageError where the output folder cannot be created or written to, or holds what must not be overwritten."""
    from seatrial.collect.original.runs import is_original

    problem = _problem_of(folder)
    if not problem and is_original(folder):
        problem = f"was written by the original stage-1 scripts and stays as it is (`seatrial report {folder}` reads it)"
    if problem:
        raise UsageError(f"the output folder {folder} {problem}; choose another with --out")


def _problem_of(folder: Path) -> str | None:
    """The problem with the folder, or with the nearest existing one above it."""
    for place in (folder, *folder.parents):
        try:
            mode = place.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if place.is_symlink():
                return f"cannot be created: {place} is a link to {place.readlink()}, which does not exist"
            continue
        except OSError as error:
            return f"cannot be used: {place}: {error.strerror}"
        above = "" if place == folder else f"cannot be created: {place} "
        if not stat.S_ISDIR(mode):
            return f"{above}is a file"
        return None if os.access(place, os.W_OK | os.X_OK) else f"{above}is not writable: fix its permissions, or its mount"
    return None


def usable_trackers(names: Sequence[str]) -> list[str]:
    """The requested trackers; a UsageError before anything has started where one cannot be used here."""
    from seatrial.report.trackers import chosen_trackers
    from seatrial.results.gather import NO_POLARS, can_measure

    chosen = chosen_trackers(names)
    if chosen and not can_measure():
        raise UsageError(f"--track: {NO_POLARS}")
    return chosen


def tracking_to(names: Sequence[str], out: Path, console: Console, stop_requested: StopRequested = lambda: False) -> Tracking:
    """Trackers that warn on the console; to be used as a context."""
    from seatrial.campaign.tracking import Tracking

    def warn(line: str) -> None:
        console.print(line, style="yellow", markup=False, soft_wrap=True)

    return Tracking(names, CampaignPaths(out), warn, stop_requested=stop_requested)


def track_all(names: Sequence[str], results: CampaignResults, console: Console) -> None:
    """Send every finished attempt of a campaign."""
    if not names:
        return
    with tracking_to(names, Path(results.output), console) as tracking:
        tracking.send_all(results)
        print_account(tracking, console)


def print_account(tracking: Tracking, console: Console) -> None:
    """How many runs each tracker has now."""
    for line in tracking.account():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def stop_requests(out: Path) -> Iterator[StopRequested]:
    """A function that returns whether a stop was requested since, by a signal or `seatrial stop`."""
    paths, requested = CampaignPaths(out), False
    receiver, sender = socket.socketpair()

    def is_requested() -> bool:
        nonlocal requested
        requested = requested or _has_stop_signal(receiver) or _has_stop_request(paths)
        return requested

    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        # While runs run, other handlers count signals; this descriptor gets each of them too.
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield is_requested
        finally:
            signal.set_wakeup_fd(before)


def _has_stop_signal(receiver: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return any(number in STOP_SIGNALS for number in receiver.recv(SIGNALS_AT_ONCE))
    return False


def _has_stop_request(paths: CampaignPaths) -> bool:
    from seatrial.campaign.lock import is_stop_requested, read_owner

    owner = read_owner(paths)
    return owner is not None and owner.pid == os.getpid() and is_stop_requested(paths, owner)
