"""What `run` and `sweep` share: check, run, remake the tables, show them, say the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console

from seatrial.campaign.all_runs import CampaignEnd, run_all
from seatrial.campaign.grouped import NO_POLARS, can_measure
from seatrial.campaign.results import remake_or_say
from seatrial.campaign.tracking import Tracking, TrackingListener
from seatrial.cli.before_start import refuse_unasked, refuse_unusable_output
from seatrial.cli.foreseen import say_what_cannot_pass
from seatrial.cli.live_view import PlainView, live_view
from seatrial.cli.pernode import NodeWords, ThisNode, gate_of, take_part, this_node
from seatrial.cli.say import people, print_json
from seatrial.cli.track import say_account, stop_wishes, tracking_to, usable_trackers
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.records.exit_codes import FAILED, INCONCLUSIVE, INTERRUPTED, WRONG_USE
from seatrial.records.results import CampaignResults
from seatrial.report.terminal import print_report

MakeView = Callable[[Console, float | None], AbstractContextManager[PlainView]]
"""Console and seconds between two heartbeats (None for the view's own) → what shows the campaign as it goes."""


def carry_out_here(plan: CampaignPlan, words: NodeWords, *, as_json: bool, **how: Any) -> int:
    """What this command has to do of the plan: all of it, or this node's share; the exit code. `how` is that of `carry_out`."""
    here = this_node(plan, words)
    if here is not None and here.rank:
        return take_part(plan, here, as_json=as_json)
    return carry_out(plan, as_json=as_json, here=here, **how)


def carry_out(
    plan: CampaignPlan,
    *,
    yes: bool = False,
    as_json: bool = False,
    track: Sequence[str] = (),
    heartbeat_s: float | None = None,
    again: bool = False,
    view: MakeView = live_view,
    here: ThisNode | None = None,
) -> int:
    """Run the campaign and return the exit code; `again` runs finished runs too, `here` is node 0 of a campaign without ssh."""
    console = people(as_json=as_json)
    out, trackers = Path(plan.output), usable_trackers(track)
    refuse_unasked(plan, yes)
    refuse_unusable_output(out)
    say_what_cannot_pass(plan, console)
    with (
        gate_of(plan, here, console) as gate,
        stop_wishes(out) as stop_wished,
        tracking_to(trackers, out, console, stop_wished) as tracking,
    ):
        with view(console, heartbeat_s) as shown:
            end = run_all(plan, TrackingListener(shown, tracking), again=again, gate=gate)
        if can_measure():
            code = _report(plan, end, console, tracking, as_json=as_json, again=again)
        else:
            console.print(NO_POLARS, style="yellow", markup=False)
            code = INTERRUPTED if end.interrupted else FAILED if shown.failed else INCONCLUSIVE
        if gate is not None:
            gate.over(code)
        return code


def _report(plan: CampaignPlan, end: CampaignEnd, console: Console, tracking: Tracking, *, as_json: bool, again: bool) -> int:
    try:
        results, unwritten = remake_or_say(Path(plan.output))
    except KeyboardInterrupt:
        console.print(f"interrupted while the report was made: `seatrial report {plan.output}` makes it", style="yellow", markup=False)
        raise
    print_report(results, console)
    _say_what_is_left(console, end, plan, "the same plan without --again resumes" if again else "the same command resumes")
    if unwritten:
        console.print(unwritten, style="red", markup=False, highlight=False, emoji=False)
    if not end.interrupted:
        tracking.send_campaign()
    say_account(tracking, console)
    if as_json:
        print_json(last_line(results))
    if end.interrupted:
        return INTERRUPTED
    return WRONG_USE if unwritten or end.disk_trouble else results.verdict.verdict.exit_code


def last_line(results: CampaignResults) -> dict[str, object]:
    """The machine's line: verdict, winners and where the rest is."""
    return {
        "verdict": results.verdict.verdict.value,
        "winner": results.ranking.winner,
        "decided": results.ranking.decided,
        "metric": results.ranking.metric,
        "latency_winner": results.ranking.latency_winner,
        "ranking": [to_json(group) for group in results.ranking.groups],
        "pending": list(results.pending),
        "report": str(CampaignPaths(Path(results.output)).summary_md),
    }


def _say_what_is_left(console: Console, end: CampaignEnd, plan: CampaignPlan, how: str) -> None:
    if plan.selected:
        console.print(
            f"--only: {len(plan.selected)} of the plan's {len(plan.runs)} runs were asked for; the verdict is on these.", markup=False
        )
    if why := _why_it_ended(end):
        console.print(f"{why}: {end.left} of {len(plan.runs)} runs are still to be run; {how}.", style="yellow", markup=False)


def _why_it_ended(end: CampaignEnd) -> str:
    """What ended the invocation before all runs were over; empty where nothing did."""
    if end.interrupted:
        return "interrupted"
    if end.stopped_on_error:
        return "stopped at the first failure (stop_on_error)"
    if end.out_of_budget:
        return "the budget is used up"
    return f"no further run could be prepared ({end.disk_trouble}): mend that disk first" if end.disk_trouble else ""
