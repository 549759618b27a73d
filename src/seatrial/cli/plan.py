"""`seatrial plan list|copy|show|fit|schema|criteria`: look before running; and `read_plan` for every verb that takes a plan."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson, Budget, Only, Out, Overrides, PlanFile, SiteName
from seatrial.cli.program import console_for, print_json
from seatrial.cli.shipped import bundled_plans, in_folder, named_files
from seatrial.core import files, shell
from seatrial.core.errors import RefusedError, UsageError, did_you_mean, printable
from seatrial.core.paths import CampaignPaths
from seatrial.core.text import count, format_duration, parse_limit_s
from seatrial.records.launch import Allocation, Node
from seatrial.records.plan import SENTINEL, PlaceSpec, RunSpec

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.core.paths import CampaignPaths
    from seatrial.plan.schema import Plan
    from seatrial.plan.stages import StagedPlan
    from seatrial.plan.yaml_text import Document
    from seatrial.records.plan import CampaignPlan


def read_plan(
    plan: Path, set: Overrides, only: Only, budget: Budget, out: Out, site: SiteName = None, *, document: Document | None = None
) -> CampaignPlan:
    """The plan with every run resolved, at its site; else a PlanError or UsageError. `document`: as `load_plan` takes it."""
    from seatrial.plan.load import load_plan

    budget_s = budget_of(budget)
    return resolve_loaded(load_plan(plan, set or (), document=document), plan, out, site, only=only or (), budget_s=budget_s)


def resolve_loaded(
    loaded: Plan, source: Path, out: Out, site: SiteName, *, only: Sequence[str] = (), budget_s: float | None = None
) -> CampaignPlan:
    """The second part of `read_plan`, after the file is read; `source` is that file."""
    from seatrial.cli.pernode import refuse_time_in_output
    from seatrial.plan.resolve import resolve_plan
    from seatrial.plan.site import find_site, load_site, with_site

    refuse_time_in_output(loaded.place.kind, str(out) if out else loaded.output)
    resolved = resolve_plan(loaded, source=str(source), cwd=Path.cwd(), only=only, budget_s=budget_s, output=out)
    found = find_site(site, source)
    return with_site(resolved, load_site(found), found) if found else resolved


def budget_of(budget: Budget) -> float | None:
    """`--budget` in seconds; None where it is not given."""
    return parse_limit_s(budget, "--budget") if budget else None


def warn_of_impossible_criteria(plan: CampaignPlan, console: Console) -> None:
    """One line for each criterion that cannot pass; the campaign still runs."""
    from seatrial.plan.criteria import impossible_criteria

    pinned: list[str] = []
    # History is only opened where a criterion needs it.
    if any(criterion.baseline and criterion.baseline.history for criterion in plan.criteria):
        from seatrial.history.rows import history_path, pinned_names

        pinned = pinned_names(history_path())
    for sentence in impossible_criteria(plan, pinned):
        console.print(printable(sentence), style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_hosts(console: Console, plan: CampaignPlan) -> None:
    """A table of hosts and ranks for each place, or why there is none; nothing for runs on this machine."""
    from rich.table import Table
    from rich.text import Text

    from seatrial.launch.places.allocation import nodes_of

    for place in dict.fromkeys(spec.place for spec in plan.chosen if not spec.place.traits.is_this_machine):
        nodes = () if is_unknown(place) else nodes_of(place)
        console.print(printable(_heading(place, len(nodes))))
        table = Table("host", "node_rank", "ranks", "devices", box=None)
        for node in nodes:
            table.add_row(Text(node.name), str(node.node_rank), rank_span(node), ",".join(node.devices))
        if nodes:
            console.print(table)


def _heading(place: PlaceSpec, nodes: int) -> str:
    if not nodes:
        return f"hosts: unknown, since {place.hostfile} cannot be read here; {place.ranks} ranks"
    source = f"of {place.hostfile}" if place.traits.lists_hosts else "that type the command"
    return f"hosts: {count(place.ranks, 'rank')} on {count(nodes, 'host')} {source}"


def rank_span(node: Node) -> str:
    """`0-1`, or `0` for one alone."""
    last = node.first_rank + node.ranks - 1
    return f"{node.first_rank}-{last}" if last > node.first_rank else str(last)


def is_unknown(place: PlaceSpec) -> bool:
    """Whether the hosts of a run cannot be read here."""
    return place.traits.lists_hosts and not place.hosts


def allocation_of_node_0(given: Allocation, spec: RunSpec) -> Allocation:
    """The allocation of node 0, whose command is shown for all nodes; unchanged for a run on this machine."""
    from seatrial.launch.launchers import allocation_for_node
    from seatrial.launch.places.allocation import likely_allocation, nodes_of

    nodes = nodes_of(spec.place)
    if not nodes:
        return given
    return allocation_for_node(likely_allocation(spec, nodes, given.master_port), nodes[0])


EXAMPLES = {"plan": "seatrial plan show plans/tiny-lm-demo.yaml\n\nseatrial plan show plan.yaml --set 'axes.micro_batch=[8,16,32]'"}
CriteriaName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A metric or a criteria preset; default: all.", show_default=False),
]


plan = typer.Typer(no_args_is_help=True)


@plan.command("list", epilog="seatrial plan list\n\nseatrial plan list | grep stage1")
def list_plans() -> int:
    """List the plans that come with Seatrial, each with its purpose."""
    plans = bundled_plans()
    width = max(map(len, plans))
    for name, path in plans.items():
        print(f"{name:<{width}}  {_first_comment(path)}")
    return 0


@plan.command(epilog="seatrial plan copy tiny-lm-demo\n\nseatrial plan copy stage1/smoke my-plans")
def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The plan's name in `seatrial plan list`.", show_default=False)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> int:
    """Copy a plan that comes with Seatrial, with those it names, to run and to change."""
    first, *others = _copy_plan(name, folder, force=force)
    beside = f" and {', '.join(path.name for path in others)}, which it needs" if others else ""
    print(f"wrote {first}{beside}\nnext: look at it with `seatrial plan show {first}`, run it with `seatrial run {first}`")
    return 0


def _first_comment(plan: Path) -> str:
    """The first sentence of the comment it begins with."""
    text = " ".join(line.removeprefix("#").strip() for line in _comment_lines(plan))
    return text.partition(". ")[0].rstrip(".")


def _comment_lines(plan: Path) -> Iterator[str]:
    for line in plan.read_text(encoding="utf-8").splitlines():
        if not line.removeprefix("#").strip() or not line.startswith("#"):
            return
        yield line


def _copy_plan(name: str, folder: Path, *, force: bool) -> list[Path]:
    """Copy a bundled plan and those it names (extends, base, stages, needs), beside one another; the plan itself is the first."""
    import yaml

    plans = bundled_plans()
    if name not in plans:
        raise UsageError(f"no bundled plan '{name}' in `seatrial plan list`; {did_you_mean(name, plans)}")
    sources = [plans[name]]
    # Grows while it is read.
    for source in sources:
        named = (source.parent / name for name in named_files(yaml.safe_load(source.read_text(encoding="utf-8"))))
        sources += [path for path in dict.fromkeys(named) if path not in sources]
    texts = {folder / source.name: in_folder(source.read_text(encoding="utf-8"), name, folder) for source in sources}
    for target, text in texts.items():
        if target.exists() and target.read_text(encoding="utf-8") != text and not force:
            raise UsageError(f"{target} exists already and differs: name another folder, or overwrite it with --force")
    for target, text in texts.items():
        files.write_text(target, text)
    return list(texts)


@plan.command(epilog="seatrial plan schema > seatrial-plan.schema.json\n\nseatrial plan schema | less")
def schema() -> int:
    """Print the JSON Schema of plans, for editors that complete and check YAML by it."""
    from seatrial.plan.reference import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


@plan.command(epilog="seatrial plan criteria\n\nseatrial plan criteria stage1_stability")
def criteria(name: CriteriaName = None) -> int:
    """Print what a plan's `criteria` can name: every metric with its unit and scopes, and every preset with its bounds and reasons."""
    from seatrial.plan.reference import criteria_listing

    console_for(plain=True, soft_wrap=True).print(criteria_listing(name))
    return 0


@plan.command(epilog=EXAMPLES["plan"])
def show(plan: PlanFile, set: Overrides = None, only: Only = None, budget: Budget = None, out: Out = None) -> int:
    """Print what a plan would do: the matrix, the ranks of each host, every command in order, the criteria, and an estimate of the time.
    Starts nothing.

    Finished runs are marked, and those that would no longer count. Settings that are made the same in all groups are listed with the group
    that is the reason. Criteria that cannot pass, and what would be refused before the start, are listed at the end.
    """
    from seatrial.campaign.resume import finished_attempt, uncounted_runs
    from seatrial.plan.stages import load_stages
    from seatrial.plan.yaml_text import read_plan_file

    document = read_plan_file(plan)
    if staged := load_stages(plan, document):
        return _show_stages(staged, set or (), out)
    campaign = read_plan(plan, set, only, budget, out, document=document)
    paths = CampaignPaths(Path(campaign.output))
    done = frozenset(spec.run for spec in campaign.chosen if finished_attempt(paths.run(spec.run), spec.hash))
    console = console_for(plain=True, soft_wrap=True)
    _print_matrix(console, campaign)
    for line in campaign.alike:
        console.print(printable(line))
    for check in uncounted_runs(paths, campaign):
        console.print(printable(f"{check.name}: {check.found}"), style="yellow")
    print_hosts(console, campaign)
    _print_commands(console, campaign, paths, done)
    _print_criteria(console, campaign)
    _print_estimate(console, campaign, paths, done)
    warn_of_impossible_criteria(campaign, console)
    print_refusals(console, campaign)
    return 0


def _show_stages(staged: StagedPlan, overrides: Sequence[str], out: Path | None) -> int:
    """Print the stages, and what each would run; starts nothing."""
    from seatrial.machine.gpus import read_driver
    from seatrial.plan.stages import ACCEPTANCE, fill

    output, console = staged.output_folder(out), console_for(plain=True, soft_wrap=True)
    num_gpus = len(read_driver().gpus)
    console.print(f"{staged.name}: {count(len(staged.stages), 'stage')}, into {printable(str(output))}")
    for number, stage in enumerate(staged.stages, 1):
        what = shell.quote(fill(stage.command, output))
        if stage.plan is not None and num_gpus < stage.needs_gpus:
            what = stage.plan
        elif stage.plan is not None:
            path, loaded = staged.load(stage, num_gpus, overrides)
            campaign = resolve_loaded(loaded, path, output / stage.name, None)
            what = f"{path}: {count(len(campaign.runs), 'run')}, {count(campaign.runs[0].steps or 0, 'step')} each"
        needs = f"; not run here: needs {count(stage.needs_gpus, 'GPU')}" if num_gpus < stage.needs_gpus else ""
        console.print(printable(f"{number:4d}  {stage.name}: {what}{needs}"))
    if staged.acceptance:
        console.print(printable(f"{'':4}  {ACCEPTANCE}: {shell.quote(fill(staged.acceptance, output))}"))
    console.print("`seatrial plan show` of a stage's plan prints its commands.")
    return 0


GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="The GPU to fit into: T4-16GB, V100-16GB, V100-32GB, RTX4090-24GB, L4-24GB, A10G-24GB, A100-40GB, L40S-48GB, A100-80GB, "
        "H100-80GB, H200-141GB or B200-192GB. Default: the plan's place.gpu, else the GPUs of this machine where runs are local.",
        show_default=False,
    ),
]
GpuMemoryGib = Annotated[
    float | None,
    typer.Option("--gpu-memory", metavar="GIB", help="Memory of the GPU in GiB, in place of a name.", min=0.1, show_default=False),
]


@plan.command(
    epilog="seatrial plan fit plans/stage1-gpu.yaml --gpu H100-80GB\n\nseatrial plan fit plan.yaml --set settings.micro_batch=16 --json"
)
def fit(
    plan: PlanFile,
    set: Overrides = None,
    only: Only = None,
    out: Out = None,
    gpu: GpuName = None,
    gpu_memory: GpuMemoryGib = None,
    json: AsJson = False,
) -> int:
    """Forecast the memory of one GPU for each group of a plan, from its settings alone: weights, gradients, optimiser states, activations,
    logits. Starts nothing and needs no torch.

    A group that will not fit is listed with changes that would make it fit, each computed. Peaks of runs that have ended stand beside it.
    `run` makes the same check and refuses.

    Exit code 0 all fit; 2 one will not; 3 it is unknown, or only the allowances for CUDA, NCCL and fragmentation exceed the memory.
    """
    from seatrial.cli import plan_fit

    given = plan_fit.given_memory(gpu, gpu_memory)
    rows = plan_fit.fit_groups(read_plan(plan, set, only, None, out), given)
    plan_fit.print_fits(console_for(as_json=json, plain=True, soft_wrap=True), rows)
    if json:
        print_json(plan_fit.as_json(rows))
    return plan_fit.exit_code(rows)


def _print_matrix(console: Console, plan: CampaignPlan) -> None:
    from rich.table import Table
    from rich.text import Text

    from seatrial.plan.placeholders import value_text

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
    from seatrial.launch.launchers.commands import command_for
    from seatrial.launch.places.allocation import local_allocation
    from seatrial.launch.prepare import planned_variables
    from seatrial.machine.gpus import read_driver
    from seatrial.machine.secrets import mask, mask_argv

    driver = read_driver()
    for number, spec in enumerate(plan.chosen, 1):
        if spec.run in done:
            console.print(f"{number:4d}  {spec.run}: finished, would not be run again")
            continue
        if is_unknown(spec.place):
            console.print(f"{number:4d}  {spec.run}: command unknown without {printable(spec.place.hostfile)}")
            continue
        # A port is chosen when a run starts; where the plan names none, 0 is shown.
        given = allocation_of_node_0(local_allocation(spec, master_port=spec.place.port or 0, driver=driver), spec)
        command = command_for(spec, given, paths.run(spec.run).next_attempt(), os.environ)
        times = f" × {len(command.ranks)} processes" if len(command.ranks) > 1 else ""
        shown = {**{name: mask(name, value) for name, value in command.env.items()}, **planned_variables(spec)}
        variables = [f"{name}={value}" for name, value in sorted(shown.items()) if not name.startswith("SEATRIAL_")]
        command_line = printable(shell.quote(["env", *variables, *mask_argv(command.argv)]))
        where = f" on {given.node.name}, node 0 of {len(given.nodes)}" if given.node else ""
        console.print(f"{number:4d}  {spec.run}{times}{where}\n      {command_line}")
        if start := _start_text(plan, paths, spec):
            console.print(f"      {start}", markup=False)


def _start_text(plan: CampaignPlan, paths: CampaignPaths, spec: RunSpec) -> str:
    """Where a training would go on; empty for an ordinary start at step 0."""
    from seatrial.campaign.resume import choose_start

    try:
        resumption = choose_start(plan, paths.run(spec.run), spec)
    except RefusedError as error:
        return f"would be refused: {error}"
    return f"would {resumption.infinitive}" if resumption else ""


def _print_criteria(console: Console, plan: CampaignPlan) -> None:
    from seatrial.plan.reference import criterion_line

    for criterion in plan.criteria:
        console.print(f"must hold: {printable(criterion_line(criterion))}")


def _print_estimate(console: Console, plan: CampaignPlan, paths: CampaignPaths, done: frozenset[str]) -> None:
    from seatrial.plan.resolve import estimate_time
    from seatrial.results.recompute import known_durations_s

    left = replace(plan, selected=(), runs=tuple(spec for spec in plan.chosen if spec.run not in done))
    guess = estimate_time(left, known_durations_s(paths))
    if not left.runs:
        text = "time: none, every run is finished"
    elif guess.total_s is None:
        text = "time: not known before a first run; `--only GROUP` on one group gives a measure"
    else:
        text = f"time: about {format_duration(guess.total_s)} to go, from {guess.measured_groups} of {guess.groups} groups measured so far"
    if guess.at_most_s is not None:
        text += f"; at most {format_duration(guess.at_most_s)} by its limits"
    console.print(text)


def print_refusals(console: Console, plan: CampaignPlan) -> None:
    from seatrial.campaign.preflight import local_checks
    from seatrial.preflight.check_definition import NOT_ASKED, need_of

    for check in local_checks(replace(need_of(plan), starts_programs=False)):
        if not check.ok and check.refuses:
            console.print(f"would be refused: {check.name}: {check.found}. Fix: {check.fix}.", style="yellow")
        elif check.found == NOT_ASKED:
            console.print(f"{printable(check.name)}: {check.found}", style="yellow")
