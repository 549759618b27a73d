"""`seatrial plan show PLAN` and `seatrial plan schema`: look before running."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from seatrial.cli.options import Budget, Only, Out, Overrides, PlanFile

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.campaign_plan import CampaignPlan
    from seatrial.records.run_spec import RunSpec

HELP = "Look at a plan before running it: matrix, commands, time; or its JSON Schema."
SHOW_EXAMPLES = "seatrial plan show plans/tiny-lm-demo.yaml\n\nseatrial plan show plan.yaml --set 'axes.micro_batch=[8,16,32]'"
SCHEMA_EXAMPLES = "seatrial plan schema > seatrial-plan.schema.json\n\nseatrial plan schema | less"


def register(app: typer.Typer) -> None:
    """Add the verb and its two parts."""
    group = typer.Typer(help=HELP, no_args_is_help=True)
    group.command("show", epilog=SHOW_EXAMPLES)(show)
    group.command("schema", epilog=SCHEMA_EXAMPLES)(schema)
    app.add_typer(group, name="plan")


def schema() -> int:
    """Print the JSON Schema of plans, for editors that complete and check YAML by it."""
    from seatrial.plan.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def show(plan: PlanFile, set: Overrides = None, only: Only = None, budget: Budget = None, out: Out = None) -> int:
    """Print what a plan would do: the matrix, every command in the order they would run, and an estimate of the time. Starts nothing."""
    from rich.console import Console

    from seatrial.cli.run import resolved

    campaign = resolved(plan, set, only, budget, out)
    console = Console()
    _print_matrix(console, campaign)
    _print_commands(console, campaign)
    _print_estimate(console, campaign)
    return 0


def _chosen(plan: CampaignPlan) -> list[RunSpec]:
    return [spec for spec in plan.runs if not plan.selected or spec.run in plan.selected]


def _print_matrix(console: Console, plan: CampaignPlan) -> None:
    from rich.table import Table
    from rich.text import Text

    runs = _chosen(plan)
    console.print(
        f"{plan.name}: {len({spec.group for spec in runs})} groups × {plan.repeats} repeats, {len(runs)} runs, order {plan.order} "
        f"(seed {plan.seed}), into {plan.output}",
        markup=False,
        soft_wrap=True,
    )
    table = Table("group", *plan.axes, "ranks", "lane", box=None)
    for group, spec in {spec.group: spec for spec in sorted(runs, key=lambda spec: spec.group)}.items():
        values = [Text(str(spec.axes.get(axis, ""))) for axis in plan.axes]
        table.add_row(Text(group), *values, str(spec.place.ranks), "" if spec.lane else "off")
    console.print(table)


def _print_commands(console: Console, plan: CampaignPlan) -> None:
    from pathlib import Path

    from seatrial import shell
    from seatrial.launch.launchers.registry import command_for
    from seatrial.paths import CampaignPaths
    from seatrial.records.command import Allocation

    paths = CampaignPaths(Path(plan.output))
    for number, spec in enumerate(_chosen(plan), 1):
        # A port is taken when a run starts; 0 stands for it here.
        allocation = Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=0)
        command = command_for(spec, allocation, paths.run(spec.run).attempt(1))
        times = f" × {len(command.ranks)} processes" if len(command.ranks) > 1 else ""
        console.print(f"{number:4d}  {spec.run}{times}\n      {shell.quote(command.argv)}", markup=False, highlight=False, soft_wrap=True)


def _print_estimate(console: Console, plan: CampaignPlan) -> None:
    from pathlib import Path

    from seatrial.campaign.results import known_durations_s
    from seatrial.paths import CampaignPaths
    from seatrial.plan.estimate import estimate
    from seatrial.units import format_duration

    guess = estimate(plan, known_durations_s(CampaignPaths(Path(plan.output))))
    if guess.total_s is None:
        text = "time: not known before a first run; `--only GROUP` on one group gives a measure"
    else:
        text = f"time: about {format_duration(guess.total_s)} in all, from {guess.measured_groups} of {guess.groups} groups measured so far"
    if guess.at_most_s is not None:
        text += f"; at most {format_duration(guess.at_most_s)} by its limits"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
