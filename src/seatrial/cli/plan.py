"""`seatrial plan show PLAN`, `seatrial plan schema` and `seatrial plan criteria`: look before running."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.main import VERBS
from seatrial.cli.options import Budget, Only, Out, Overrides, PlanFile
from seatrial.cli.say import people

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.paths import CampaignPaths
    from seatrial.records.campaign_plan import CampaignPlan

SHOW_EXAMPLES = "seatrial plan show plans/tiny-lm-demo.yaml\n\nseatrial plan show plan.yaml --set 'axes.micro_batch=[8,16,32]'"
SCHEMA_EXAMPLES = "seatrial plan schema > seatrial-plan.schema.json\n\nseatrial plan schema | less"
CRITERIA_EXAMPLES = "seatrial plan criteria\n\nseatrial plan criteria stage1_stability"
CriteriaName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A metric or a ready set, to see only that one; all of them by default.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the verb and its parts."""
    group = typer.Typer(help=VERBS["plan"], no_args_is_help=True)
    group.command("show", epilog=SHOW_EXAMPLES)(show)
    group.command("schema", epilog=SCHEMA_EXAMPLES)(schema)
    group.command("criteria", epilog=CRITERIA_EXAMPLES)(criteria)
    app.add_typer(group, name="plan")


def schema() -> int:
    """Print the JSON Schema of plans, for editors that complete and check YAML by it."""
    from seatrial.plan.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def criteria(name: CriteriaName = None) -> int:
    """Print what a plan's `criteria` can name: every metric with its unit and scopes, and every ready set with its bounds and reasons."""
    from seatrial.plan.criteria_listing import criteria_listing

    people(plain=True, soft_wrap=True).print(criteria_listing(name))
    return 0


def show(plan: PlanFile, set: Overrides = None, only: Only = None, budget: Budget = None, out: Out = None) -> int:
    """Print what a plan would do: the matrix, which host has which ranks, every command in the order they would run, what must hold, and
    an estimate of the time. Starts nothing.

    Runs that are finished already are marked. Criteria that cannot pass, and what would be refused before the start, are said at
    the end.
    """
    from seatrial.campaign.earlier import finished_attempt
    from seatrial.cli.foreseen import say_what_cannot_pass
    from seatrial.cli.plan_hosts import print_hosts
    from seatrial.cli.read_plan import read_plan
    from seatrial.paths import CampaignPaths

    campaign = read_plan(plan, set, only, budget, out)
    paths = CampaignPaths(Path(campaign.output))
    done = frozenset(spec.run for spec in campaign.chosen if finished_attempt(paths.run(spec.run), spec.hash))
    console = people(plain=True, soft_wrap=True)
    _print_matrix(console, campaign)
    print_hosts(console, campaign)
    _print_commands(console, campaign, paths, done)
    _print_criteria(console, campaign)
    _print_estimate(console, campaign, paths, done)
    say_what_cannot_pass(campaign, console)
    _print_refusals(console, campaign)
    return 0


def _print_matrix(console: Console, plan: CampaignPlan) -> None:
    from rich.table import Table
    from rich.text import Text

    from seatrial.errors import printable
    from seatrial.plan.placeholders import value_text
    from seatrial.records.campaign_plan import SENTINEL

    runs = [spec for spec in plan.chosen if spec.mode != SENTINEL]
    groups = {spec.group: spec for spec in runs}
    where = f"{len(groups)} groups, {len(runs)} runs, order {plan.order} (seed {plan.seed}), into {plan.output}"
    console.print(f"{plan.name}: {where}")
    watching = len(plan.chosen) - len(runs)
    if watching:
        console.print(f"sentinel: {plan.sentinel_group} again, {watching} times: first, after every {plan.sentinel_every} runs, and last")
    place = {values: index for index, values in enumerate(itertools.product(*plan.axes.values()))}
    table = Table("group", *plan.axes, "ranks", "lane", box=None)
    for group, spec in sorted(groups.items(), key=lambda item: place[tuple(item[1].axes.values())]):
        values = [Text(printable(value_text(spec.axes.get(axis)))) for axis in plan.axes]
        table.add_row(Text(group), *values, str(spec.place.ranks), "" if spec.lane else "off")
    console.print(table)


def _print_commands(console: Console, plan: CampaignPlan, paths: CampaignPaths, done: frozenset[str]) -> None:
    from seatrial import shell
    from seatrial.cli.plan_hosts import first_share, is_unknown
    from seatrial.errors import printable
    from seatrial.launch.launchers.registry import command_for
    from seatrial.launch.places.local import allocation
    from seatrial.machine.gpus import read_driver
    from seatrial.machine.secrets import mask, mask_words

    driver = read_driver()
    for number, spec in enumerate(plan.chosen, 1):
        if spec.run in done:
            console.print(f"{number:4d}  {spec.run}: finished, would not be run again")
            continue
        if is_unknown(spec.place):
            console.print(f"{number:4d}  {spec.run}: its commands are known where {printable(spec.place.hostfile)} can be read")
            continue
        # A port is taken when a run starts; where the plan names none, 0 stands for it here.
        given = first_share(allocation(spec, master_port=spec.place.port or 0, driver=driver), spec)
        command = command_for(spec, given, paths.run(spec.run).next_attempt(), os.environ)
        times = f" × {len(command.ranks)} processes" if len(command.ranks) > 1 else ""
        variables = [f"{name}={mask(name, value)}" for name, value in sorted(command.env.items()) if not name.startswith("SEATRIAL_")]
        words = printable(shell.quote(["env", *variables, *mask_words(command.argv)]))
        where = f" on {given.node.name}, node 0 of {len(given.nodes)}" if given.node else ""
        console.print(f"{number:4d}  {spec.run}{times}{where}\n      {words}")


def _print_criteria(console: Console, plan: CampaignPlan) -> None:
    from seatrial.errors import printable
    from seatrial.plan.criteria_listing import criterion_line

    for criterion in plan.criteria:
        console.print(f"must hold: {printable(criterion_line(criterion))}")


def _print_estimate(console: Console, plan: CampaignPlan, paths: CampaignPaths, done: frozenset[str]) -> None:
    from seatrial.campaign.results import known_durations_s
    from seatrial.plan.estimate import estimate
    from seatrial.units import format_duration

    left = replace(plan, selected=(), runs=tuple(spec for spec in plan.chosen if spec.run not in done))
    guess = estimate(left, known_durations_s(paths))
    if not left.runs:
        text = "time: none, every run is finished"
    elif guess.total_s is None:
        text = "time: not known before a first run; `--only GROUP` on one group gives a measure"
    else:
        text = f"time: about {format_duration(guess.total_s)} to go, from {guess.measured_groups} of {guess.groups} groups measured so far"
    if guess.at_most_s is not None:
        text += f"; at most {format_duration(guess.at_most_s)} by its limits"
    console.print(text)


def _print_refusals(console: Console, plan: CampaignPlan) -> None:
    from seatrial.campaign.host_check import checks_without_asking
    from seatrial.preflight.need import need_of

    for check in checks_without_asking(need_of(plan)):
        if not check.ok and check.refuses:
            console.print(f"would be refused: {check.name}: {check.found}. Fix: {check.fix}.", style="yellow")
