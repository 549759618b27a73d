"""`seatrial sweep` and `seatrial init`: a sweep without a plan file; a plan file from a working command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import (
    PER_NODE,
    AllowConfounded,
    AsJson,
    Budget,
    FromStart,
    Full,
    Heartbeat,
    KeepGoing,
    MasterAddr,
    MasterPort,
    NodeRank,
    Only,
    PlaceKind,
    ResumeChanged,
    SiteName,
    Track,
    Yes,
)
from seatrial.core import files
from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.shell import find_on_path, quote
from seatrial.core.text import parse_limit_s
from seatrial.machine import slurm
from seatrial.records.plan import NODE_AXIS, PERNODE, SLURM

if TYPE_CHECKING:
    from seatrial.records.plan import CampaignPlan


EXAMPLES = {
    "sweep": (
        "seatrial sweep -P bs=8,16 -P nw=0,2 --repeats 3 -- torchrun --nproc_per_node 2 train.py --bs {bs} --workers {nw}\n\n"
        "seatrial sweep -P lr=1e-3,3e-4 --pattern 'it (?P<step>[0-9]+) loss (?P<loss>[0-9.]+)' -- python train.py --lr {lr}"
    ),
    "init": "seatrial init -- torchrun --nproc_per_node 2 train.py --bs 8\n\nseatrial init -o nightly.yaml -- python train.py --lr 3e-4",
}
READING, RUNNING = "Reading the script's lines", "Running"

Command = Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The command, after --.", show_default=False)]
Parameters = Annotated[
    list[str] | None, typer.Option("-P", "--parameter", metavar="NAME=V,V", help="An axis: its name and values; {NAME} in the command.")
]
Repeats = Annotated[int, typer.Option(metavar="N", help="Runs of each group; 3 or more give an interval worth having.", min=1)]
Reads = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="How to read its lines: seed, hf_trainer, deepspeed, torchtitan, lightning, nanogpt, megatron, none. Default: detected.",
        rich_help_panel=READING,
    ),
]
Patterns = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Your own expression with (?P<step>…), (?P<loss>…) and so on.", rich_help_panel=READING),
]
SamplesPerStep = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Samples per rank and step, for samples/s: a number, or a product or sum such as '{bs}*{accum}'. Default: read from the log.",
        rich_help_panel=READING,
    ),
]
TokensPerStep = Annotated[
    str | None, typer.Option(metavar="N", help="Tokens per rank and step, in the form of --samples-per-step.", rich_help_panel=READING)
]
Window = Annotated[
    str | None, typer.Option(metavar="FIRST:LAST", help="Steps that count; default: warm-up is detected.", rich_help_panel=READING)
]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Steps of a run, for {steps} and the ETA.", min=1)]
RunLimit = Annotated[str | None, typer.Option(metavar="TIME", help="End a run that takes longer: 90s, 15m, 2h.", rich_help_panel=RUNNING)]
StartLimit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End a run without a first step or output after this long. Default 15m.", rich_help_panel=RUNNING),
]
QuietLimit = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End a run after this long without step or output. Default without the probe: 10m, or --stall-factor times its longest "
        "silence so far; up to three times that while its processes are busy. The probe's named pauses do not count.",
        rich_help_panel=RUNNING,
    ),
]
StallFactor = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="A step or silence of N times the usual one is a hang. Default 20.",
        min=2,
        show_default=False,
        rich_help_panel=RUNNING,
    ),
]
Environment = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Environment variable for every rank; repeatable.", rich_help_panel=RUNNING)
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Shuffles the order of runs; recorded. Default 0.", rich_help_panel=RUNNING)]
StopOnError = Annotated[bool, typer.Option("--stop-on-error", help="End at the first failed run.", rich_help_panel=RUNNING)]
RankBy = Annotated[str | None, typer.Option(metavar="METRIC", help="Rank by this instead of throughput.")]
Nodes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Run on this many nodes: type the same line on each, with its own --node-rank. The command's ranks and GPUs are per node.",
        min=1,
        max=4096,
        show_default=False,
        rich_help_panel=PER_NODE,
    ),
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="FOLDER", help="Default: a folder that follows from command and axes, so that it resumes.")
]


Partition = Annotated[str | None, typer.Option("--partition", metavar="NAME", help="With --place slurm: the partition.")]
EachNode = Annotated[
    bool,
    typer.Option(
        "--each-node", help="Run it as a job of one node on every node of the Slurm partition, and rank the nodes: which is slow."
    ),
]


# More than 60 lines: typer reads the options from the signature.
def sweep(
    command: Command,
    parameter: Parameters = None,
    repeats: Repeats = 3,
    reads: Reads = None,
    pattern: Patterns = None,
    samples_per_step: SamplesPerStep = None,
    tokens_per_step: TokensPerStep = None,
    window: Window = None,
    steps: Steps = None,
    run_limit: RunLimit = None,
    start_limit: StartLimit = None,
    quiet_limit: QuietLimit = None,
    stall_factor: StallFactor = None,
    env: Environment = None,
    seed: Seed = None,
    stop_on_error: StopOnError = False,
    from_start: FromStart = False,
    resume_changed: ResumeChanged = False,
    keep_going: KeepGoing = False,
    rank_by: RankBy = None,
    only: Only = None,
    budget: Budget = None,
    out: Out = None,
    track: Track = None,
    heartbeat: Heartbeat = None,
    yes: Yes = False,
    full: Full = False,
    allow_confounded: AllowConfounded = False,
    json: AsJson = False,
    place: PlaceKind = None,
    partition: Partition = None,
    each_node: EachNode = False,
    site: SiteName = None,
    nodes: Nodes = None,
    node_rank: NodeRank = None,
    master_addr: MasterAddr = None,
    master_port: MasterPort = None,
) -> int:
    """Sweep a command over settings without writing a plan: every combination, in shuffled rounds, then rank and judge.

    The script needs no change: its own lines are read where a known format or your pattern matches, else the whole run is timed.

    The same line again resumes; more repeats extend.

    Exit code 0 PASS; 2 FAIL, or refused before the start; 3 INCONCLUSIVE, also when stopped after 3 identical failures in a row;
    130 interrupted; 1 a command that cannot be read, or a disk that did not take a file.
    """
    from seatrial.cli.pernode import NodeOptions
    from seatrial.cli.run import RunOptions, execute_on_this_node, refuse_two_starts
    from seatrial.plan.from_command import mapping_from_command

    limits = _limits(run_limit, start_limit, quiet_limit, stall_factor)
    more = _more_keys(limits, window, env, seed=seed, rank_by=rank_by, stop_on_error=stop_on_error or None)
    mapping = mapping_from_command(
        command,
        axes=parse_axes(parameter or []),
        repeats=repeats,
        reads=reads,
        patterns=pattern or (),
        samples_per_step=samples_per_step,
        tokens_per_step=tokens_per_step,
        steps=steps,
        output=out,
        more=more,
    )
    if nodes is not None:
        mapping = on_nodes(mapping, nodes, is_own_folder=out is not None)
    if place == SLURM or each_node:
        mapping = as_jobs(mapping, partition, each_node=each_node, is_own_folder=out is not None)
    elif place is not None:
        raise UsageError(f"--place {place}: not available for a typed command. Use --nodes N or --place slurm")
    refuse_two_starts(from_start=from_start, resume_changed=resume_changed)
    plan = replace(at_site(_resolved(mapping, command, only, budget), site), resume_changed=resume_changed)
    how = RunOptions(
        yes=yes,
        as_json=json,
        track=tuple(track or ()),
        heartbeat_s=heartbeat,
        from_start=from_start,
        keep_going=keep_going,
        full=full,
        allow_confounded=allow_confounded,
    )
    return execute_on_this_node(plan, NodeOptions(rank=node_rank, address=master_addr, port=master_port), how)


def _resolved(mapping: dict[str, Any], command: Sequence[str], only: Only, budget: Budget) -> CampaignPlan:
    """The plan with every run resolved; notes on how the command was read are printed."""
    from seatrial.cli.pernode import refuse_time_in_output
    from seatrial.cli.plan import budget_of
    from seatrial.plan.from_command import parse_command
    from seatrial.plan.load import plan_from_mapping
    from seatrial.plan.resolve import resolve_plan

    refuse_time_in_output(mapping["place"].get("kind", ""), mapping["output"])
    for note in parse_command(command).notes:
        print(f"note: {note}", file=sys.stderr)
    source = f"seatrial sweep -- {quote(command)}"
    plan = resolve_plan(plan_from_mapping(mapping, source), source=source, cwd=Path.cwd(), only=only or (), budget_s=budget_of(budget))
    return replace(plan, runs=tuple(replace(spec, from_sweep=True) for spec in plan.runs))


def on_nodes(mapping: dict[str, Any], nodes: int, *, is_own_folder: bool) -> dict[str, Any]:
    """The plan of a command that is one node's share, on `nodes` of them; its folder differs from that of the command alone."""
    place = dict(mapping["place"])
    if "place.ranks" in mapping.get("axes", {}):
        raise UsageError("--nodes needs a fixed number of ranks per node; write it as a number in the command")
    if "ranks" in place:
        place["ranks"] *= nodes
    output = mapping["output"] if is_own_folder else f"{mapping['output']}-{nodes}-nodes"
    return {**mapping, "place": {**place, "kind": PERNODE, "nodes": nodes}, "output": output}


def as_jobs(mapping: dict[str, Any], partition: str | None, *, each_node: bool, is_own_folder: bool) -> dict[str, Any]:
    """The plan of a command whose runs are jobs; `each_node`: of one node each, the same on every node of the partition."""
    place = {**mapping["place"], "kind": SLURM, **({"partition": partition} if partition else {})}
    if not each_node:
        return {**mapping, "place": place, "output": mapping["output"] if is_own_folder else f"{mapping['output']}-jobs"}
    usable, away = _nodes_of(partition or "")
    if not usable:
        raise UsageError(f"--each-node: {partition or 'the cluster'} has no node that is up")
    if away:
        print(f"note: skipped, down or drained: {', '.join(away)}", file=sys.stderr)
    axes = {**mapping.get("axes", {}), NODE_AXIS: {"label": "node", "values": list(usable)}}
    output = mapping["output"] if is_own_folder else f"{mapping['output']}-each-node"
    return {**mapping, "place": {**place, "jobs": len(usable)}, "axes": axes, "output": output}


def _nodes_of(partition: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nodes of the partition or the cluster: those that are up, and those that are not."""
    if find_on_path("sinfo") is None:
        raise UsageError("--each-node: sinfo is not in PATH; start it on a login node of the cluster, or load its module")
    known = slurm.partitions()
    found = slurm.partition_nodes(partition) if known is not None else None
    if known is None or found is None:
        raise UsageError("--each-node: Slurm's controller does not answer; try `sinfo`, or start it on a login node of the cluster")
    names = [one.name for one in known]
    if partition and partition not in names:
        raise UsageError(f"--partition {partition}: the cluster has no such partition; {did_you_mean(partition, names)}")
    return found


def at_site(plan: CampaignPlan, site: SiteName) -> CampaignPlan:
    from seatrial.plan.site import find_site, load_site, with_site

    found = find_site(site, None)
    return with_site(plan, load_site(found), found) if found else plan


def _limits(run: str | None, start: str | None, quiet: str | None, stall_factor: float | None) -> dict[str, Any]:
    """`limits` of a plan by the options given."""
    options = (("run_s", "--run-limit", run), ("start_s", "--start-limit", start), ("quiet_s", "--quiet-limit", quiet))
    limits: dict[str, Any] = {key: parse_limit_s(text, option) for key, option, text in options if text is not None}
    stall = {key: value for key, value in (("quiet_s", limits.pop("quiet_s", None)), ("factor", stall_factor)) if value is not None}
    return limits | ({"stall": stall} if stall else {})


def _more_keys(limits: dict[str, Any], window: str | None, env: list[str] | None, **plain: Any) -> dict[str, Any]:
    """Keys of a plan that options give; those not given are left out."""
    keys = {
        **plain,
        "limits": limits or None,
        "timing": {"window": window} if window else None,
        "env": dict(_assignment(text, "--env") for text in env) if env else None,
    }
    return {key: value for key, value in keys.items() if value is not None}


def parse_axes(parameters: list[str]) -> dict[str, list[Any]]:
    """`bs=8,16` → {"bs": [8, 16]}; values that would change on the way to the command (1e3, 007, 1.10) stay text."""
    from seatrial.plan.load import parse_scalars

    axes: dict[str, list[Any]] = {}
    for text in parameters:
        name, values = _assignment(text, "-P")
        if name in axes:
            raise UsageError(f"-P {name} is given twice; put all its values into one: -P {name}=…,{values}")
        axes[name] = _as_typed(values, parse_scalars(values, f"-P {text}"))
    return axes


def _as_typed(text: str, parsed: list[Any]) -> list[Any]:
    """The values, as numbers only if their text stays as typed. YAML's own quotes and brackets count as YAML."""
    from seatrial.plan.placeholders import value_text

    typed = [part.strip() for part in text.split(",")]
    if len(typed) != len(parsed) or any(mark in text for mark in "'\"["):
        return parsed
    return [value if value_text(value) == part else part for value, part in zip(parsed, typed, strict=True)]


def _assignment(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text}: write {option} NAME={'VALUE' if option == '--env' else 'VALUE,VALUE'}")
    return name, value


def init(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="A command that works, after --.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The plan to write.")] = Path("plan.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> int:
    """Write a plan from a command that works, with comments that say what to change."""
    from seatrial.plan.from_command import mapping_from_command, parse_command
    from seatrial.plan.load import plan_from_mapping
    from seatrial.plan.yaml_text import plan_yaml

    if output.is_dir():
        raise UsageError(f"{output} is a folder: name the file to write in it, as in -o {output / 'plan.yaml'}")
    if output.exists() and not force:
        raise UsageError(f"{output} exists already: choose another name with -o, or overwrite it with --force")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} to write {output.name} to: create it first, or choose another place with -o")
    mapping = mapping_from_command(command, axes={}, repeats=3)
    plan_from_mapping(mapping, str(output))
    files.write_text(output, plan_yaml(mapping, command=command, notes=parse_command(command).notes))
    print(f"wrote {output}\nnext: give it axes, look at it with `seatrial plan show {output}`, run it with `seatrial run {output}`")
    return 0
