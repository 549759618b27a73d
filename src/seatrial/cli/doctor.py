"""`seatrial doctor [PLAN]`: finds what would break a campaign on this host or on any host of a plan.

seatrial doctor plans/tiny-lm-demo.yaml

output
  ✓ output folder  outputs/tiny-lm-demo can be written to
disks
  ! disk space     900.0 MiB free in /data
      leads to: OSError: [Errno 28] No space left on device
      fix:      free at least 200.0 MiB or choose another disk with --out

Many hosts are shown as a table, with what failed below it. Where the columns do not fit, as for 64 hosts, a row gives counts and names the
others: `✓ 62  ! node7  ✗ node12`.

    hosts                     node1  node2
      sessions
        ssh                     ✓      ✗
        Python and Seatrial     ✓      ·
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import AsJson, Out, Overrides, PlaceKind, SiteName
from seatrial.cli.program import console_for, print_first_line, print_json
from seatrial.core.errors import DONE, FAILED, UsageError
from seatrial.core.hostfile import read_hostfile, select_hosts
from seatrial.core.shell import find_on_path, module_argv
from seatrial.core.text import count
from seatrial.machine import slurm
from seatrial.preflight.check_definition import OK, REFUSED, WARNING, CheckRow, HostsExamined, Section, folded, hosts_text, status
from seatrial.records.codec import to_json
from seatrial.records.plan import SLURM, PlaceSpec, SiteSpec, SlurmSpec, traits_of
from seatrial.report.text import can_encode

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.preflight.check_definition import Need
    from seatrial.preflight.slurm_smoke import NodeTask
    from seatrial.records.caution import Check

EXAMPLES = {
    "doctor": "seatrial doctor plans/tiny-lm-demo.yaml --json\n\nseatrial doctor --hostfile hostfile --interface eth0\n\n"
    "seatrial doctor plans/stage1/base.yaml --warm"
}
NARROWEST = 40
WIDEST_NAME = 30
WIDEST_HOST = 14
GAP = 2
MARKS = {OK: "✓", WARNING: "!", REFUSED: "✗"}
# For a terminal without such characters.
PLAIN_MARKS = {OK: "ok", WARNING: "!", REFUSED: "X"}
STYLES = {OK: "", WARNING: "yellow", REFUSED: "red", "": "bold"}
NOT_CHECKED = "·"
ACTIVATION = "SEATRIAL_ACTIVATION"

PlanToCheck = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="A plan, whose needs are checked too; without one, this host in general.")
]
Fast = Annotated[bool, typer.Option("--fast", help="Only what is checked before every campaign, in a fraction of a second.")]
Warm = Annotated[
    bool,
    typer.Option(
        "--warm",
        help="Then build DeepSpeed's ops and fill torch.compile's cache on every host of the plan, so that no run has to do it.",
    ),
]
Hostfile = Annotated[
    Path | None,
    typer.Option(
        "--hostfile",
        metavar="FILE",
        help="Check every host of this hostfile too (lines `node1 slots=2`), by ssh and all at once. Default: those of the plan.",
        show_default=False,
    ),
]
Interface = Annotated[
    str | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="The network interface that joins the hosts, as NCCL_SOCKET_IFNAME has it (eth0; eth,ib; ^lo,docker). Default: the plan's.",
        show_default=False,
    ),
]


def doctor(
    plan: PlanToCheck = None,
    set: Overrides = None,
    out: Out = None,
    hostfile: Hostfile = None,
    interface: Interface = None,
    fast: Fast = False,
    warm: Warm = False,
    place_kind: PlaceKind = None,
    site: SiteName = None,
    json: AsJson = False,
) -> int:
    """Check this host, and every host of the plan, for what would break a campaign: each finding names the later error and the fix.

    Nothing is changed but the caches that --warm fills; with --place slurm the environment of the nodes is written to
    discovered_environment.json. A PLAN's own Pythons are started, to ask for their versions, and git in its
    folders: look at a plan that you do not trust with `plan show`, which starts nothing.

    Exit code 0 when a campaign may start (warnings included), 2 when it is refused.
    """
    from seatrial.campaign.preflight import examine_by_ssh, need_of_this_host
    from seatrial.machine.run_telemetry import empty_columns
    from seatrial.preflight.run_checks import examine

    began_m = time.monotonic()
    console = console_for(as_json=json, plain=True)
    need = _need(plan, set, out, place_kind, site)
    print_first_line(console, f"Checking {plan}: the Pythons that it names are started, to ask for their versions." if plan else "")
    place = place_of(need, hostfile, interface)
    own = need_of_this_host(need, place.hosts if place else ())
    sections = examine(own, fast=fast, empty_columns=None if fast else empty_columns)
    if place_kind and traits_of(place_kind).runs_in_jobs and not fast and not any(_count((section,), REFUSED) for section in sections):
        sections = (*without_unknown_folder(sections), *_try_jobs(need))
    examined = examine_by_ssh(need, place, fast=fast) if place else None
    print_sections(console, sections)
    if examined is not None:
        print_hosts(console, examined)
    elif later := nodes_checked_later(need):
        console.print(later, soft_wrap=True)
    failed = failed_checks(examined) if examined else ()
    warmed = _warm(need, place, console, (*sections, *failed)) if warm else ()
    counted = (*sections, *warmed, *failed)
    took_s = time.monotonic() - began_m
    total = sum(len(section.checks) for section in (*sections, *warmed)) + (
        sum(len(row.checks) for row in examined.rows) if examined else 0
    )
    console.print(_summary(counted, took_s, total), soft_wrap=True)
    if json:
        print_json(_document((*sections, *warmed), counted, took_s, plan, examined), ensure_ascii=False)
    return FAILED if _count(counted, REFUSED) else DONE


def _warm(need: Need, place: PlaceSpec | None, console: Console, checked: Sequence[Section]) -> tuple[Section, ...]:
    """Fill the caches of every host and print what each did; nothing where preflight refuses the plan."""
    from seatrial.campaign.preflight import warm_hosts

    if not need.planned:
        raise UsageError(
            "--warm needs a plan: what is built depends on its settings; for example: seatrial doctor plans/stage1/base.yaml --warm"
        )
    if _count(checked, REFUSED):
        console.print("Warm-up skipped: preflight refuses this plan.", soft_wrap=True)
        return ()
    if any(spec.place.traits.typed_on_each_node for spec in need.runs):
        console.print("Warming up this machine only: run the same command on every other node.", soft_wrap=True)
    warmed = tuple(Section(subject=f"warm-up on {host}", checks=checks) for host, checks in warm_hosts(need, place).items())
    print_sections(console, warmed)
    return warmed


def _need(plan: Path | None, set: Overrides, out: Path | None, kind: str | None, site: str | None) -> Need:
    from seatrial.cli.plan import read_plan
    from seatrial.preflight.check_definition import Need, need_of

    if kind is not None and not traits_of(kind).runs_in_jobs:
        raise UsageError(f"--place {kind}: only slurm has checks of its own; leave it out")
    if plan is None and site is not None:
        raise UsageError("--site needs a PLAN: a site's facts apply to the runs of a plan")
    if plan is None:
        jobs = (_two_nodes(),) if kind else ()
        return Need(output=out or Path.cwd(), jobs=jobs)
    return need_of(read_plan(plan, [*(set or ()), *([f"place.kind={kind}"] if kind else ())], None, None, out, site))


def _two_nodes() -> PlaceSpec:
    """The place without a plan: two nodes of the default partition, if it has two, since a single one cannot show what is shared."""
    partition = next((one for one in slurm.partitions() or () if one.default), None) if find_on_path("sinfo") else None
    return PlaceSpec(kind=SLURM, slurm=SlurmSpec(), nodes=min(2, partition.nodes) if partition else 1)


def without_unknown_folder(sections: Sequence[Section]) -> Iterator[Section]:
    """The sections without the check of the folder, which the jobs tried next answer."""
    from seatrial.preflight.slurm import VISIBLE

    for section in sections:
        yield replace(section, checks=tuple(check for check in section.checks if check.name != VISIBLE.name or check.ok))


def _try_jobs(need: Need) -> tuple[Section, ...]:
    """Try small jobs with the plan's number of nodes, in the environment of its ranks."""
    from seatrial.preflight.slurm_smoke import try_jobs

    folder = next(path for path in (need.output.absolute(), *need.output.absolute().parents) if path.is_dir())
    site = need.runs[0].site if need.runs else None
    checks = [check for place in need.jobs[:1] for check in try_jobs(place, folder, node_task(place, site, folder))]
    return (Section(subject="jobs", checks=tuple(checks)),)


def node_task(place: PlaceSpec, site: SiteSpec | None, folder: Path) -> NodeTask:
    from seatrial.launch.launchers.commands import activation_script
    from seatrial.launch.transports.srun import container_options
    from seatrial.machine.network import interface_variables
    from seatrial.preflight.slurm_smoke import NODE_MODULE, NodeTask

    container = place.slurm.container if place.slurm else None
    argv = module_argv(NODE_MODULE, (container.python if container else "") or place.python)
    options = container_options(container, folder) if container else ()
    if site is None:
        return NodeTask(argv=argv, srun_options=options)
    variables = {**interface_variables(site.interface), **site.env}
    if not site.activate:
        return NodeTask(argv=argv, srun_options=options, variables=variables)
    # In a variable: every user can read a process's arguments, and the lines may hold secrets.
    activation = ("bash", "-c", f'eval "${ACTIVATION}"', "bash")
    variables[ACTIVATION] = activation_script(site, variables)
    return NodeTask(argv=argv if container else (*activation, *argv), srun_options=options, activation=activation, variables=variables)


def place_of(need: Need, hostfile: Path | None, interface: str | None) -> PlaceSpec | None:
    """The place of runs on many hosts, from the plan or a hostfile; None for one host."""
    from seatrial.campaign.preflight import hostfile_place

    place = hostfile_place(need)
    if hostfile is not None:
        hosts = select_hosts(read_hostfile(hostfile))
        place = replace(place or PlaceSpec(kind="hostfile"), hostfile=str(hostfile), hosts=hosts, include="", exclude="")
    return replace(place, interface=interface) if place and interface else place


def nodes_checked_later(need: Need) -> str:
    """A line about nodes that cannot be reached from here; empty where there are none."""
    nodes = max((spec.place.nodes for spec in need.runs if spec.place.traits.typed_on_each_node), default=0)
    return f"nodes: all {nodes} are checked when the campaign starts, by the command that runs on each of them" if nodes else ""


def print_sections(console: Console, sections: Sequence[Section]) -> None:
    """One line per check; for failed ones also the later error and the fix."""
    from rich.text import Text

    width = max(NARROWEST, console.width)
    marks = _marks(console)
    names = [check.name for section in sections for check in section.checks if len(check.name) <= WIDEST_NAME]
    column = min(max(map(len, names), default=0), width // 3)
    for section in sections:
        console.print(Text(section.subject, style="bold"))
        for check in section.checks:
            for line in _check_lines(check, marks[status(check)], column, width):
                console.print(Text(line, style=STYLES[status(check)]), soft_wrap=True)


def _check_lines(check: Check, mark: str, column: int, width: int) -> Iterator[str]:
    """The check as lines no wider than `width`, except for unbreakable words."""
    head = f"  {mark} {check.name:<{column}}  "
    indent = " " * (len(mark) + column + 5)
    if len(head) > len(indent):
        yield head.rstrip()
        head = indent
    yield from _wrap(head, check.found, indent, width)
    if not check.ok:
        for label, text in (("leads to: ", check.prevents), ("fix:      ", check.fix)):
            yield from _wrap(f"      {label}", text, " " * (6 + len(label)), width)


def _wrap(head: str, text: str, indent: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(width, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text) or [head.rstrip()]


def print_hosts(console: Console, examined: HostsExamined) -> None:
    """Print the table, and failed checks below it."""
    from rich.text import Text

    for line, worst in host_table(examined, _marks(console), max(NARROWEST, console.width)):
        shown = line if can_encode(line, console.encoding) else line.replace(NOT_CHECKED, ".")
        console.print(Text(shown, style=STYLES[worst]), soft_wrap=True)
    print_sections(console, failed_checks(examined))


def host_table(examined: HostsExamined, marks: Mapping[str, str], width: int) -> Iterator[tuple[str, str]]:
    """(line, worst status in it; '' for a heading), no line wider than `width` where columns are shown."""
    # The head gets a column too if something was checked there.
    hosts = list(dict.fromkeys([*examined.hosts, *(host for row in examined.rows for host in row.checks)]))
    names = max((len(row.name) for row in examined.rows), default=0) + 4
    longest = max(map(len, hosts), default=0)
    cell = min(WIDEST_HOST, longest) + GAP
    wide = names + GAP + cell * len(hosts) <= width and longest <= WIDEST_HOST
    head = "".join(f"{host:^{cell}}" for host in hosts) if wide else f"{len(hosts)}"
    yield f"{'hosts':<{names}}{' ' * GAP}{head}".rstrip(), ""
    for section in examined.sections:
        yield f"  {section.subject}", ""
        for row in section.rows:
            cells = _columns(row, hosts, marks, cell) if wide else _counts(row, hosts, marks)
            yield f"    {row.name:<{names - 4}}{' ' * GAP}{cells}".rstrip(), _worst(row)


def _columns(row: CheckRow, hosts: Sequence[str], marks: Mapping[str, str], cell: int) -> str:
    shown = [marks[status(row.checks[host])] if host in row.checks else NOT_CHECKED for host in hosts]
    return "".join(f"{mark:^{cell}}" for mark in shown)


def _counts(row: CheckRow, hosts: Sequence[str], marks: Mapping[str, str]) -> str:
    by_status = {
        name: [host for host in hosts if host in row.checks and status(row.checks[host]) == name] for name in (OK, WARNING, REFUSED)
    }
    parts = [f"{marks[OK]} {len(by_status[OK])}"] if by_status[OK] else []
    parts += [f"{marks[name]} {hosts_text(by_status[name])}" for name in (WARNING, REFUSED) if by_status[name]]
    return "  ".join(parts)


def _worst(row: CheckRow) -> str:
    found = {status(check) for check in row.checks.values()}
    return next((name for name in (REFUSED, WARNING) if name in found), OK)


def failed_checks(examined: HostsExamined) -> tuple[Section, ...]:
    """Failed checks by subject: one for all hosts with the same finding, named after them."""
    sections = [
        Section(
            subject=section.subject, checks=tuple(check for row in section.rows for check in folded(row, examined.labels) if not check.ok)
        )
        for section in examined.sections
    ]
    return tuple(section for section in sections if section.checks)


def _marks(console: Console) -> dict[str, str]:
    return MARKS if can_encode("✓✗", console.encoding) else PLAIN_MARKS


def _count(sections: Sequence[Section], wanted: str) -> int:
    return sum(status(check) == wanted for section in sections for check in section.checks)


def _summary(sections: Sequence[Section], took_s: float, total: int) -> str:
    refused, warnings = _count(sections, REFUSED), _count(sections, WARNING)
    verdict = f"{refused} would refuse a campaign" if refused else "a campaign may start"
    warned = f", {count(warnings, 'warning')}" if warnings else ""
    return f"{total} checks in {took_s:.1f} s: {verdict}{warned}"


def _document(
    sections: Sequence[Section], counted: Sequence[Section], took_s: float, plan: Path | None, examined: HostsExamined | None
) -> dict[str, Any]:
    from seatrial.machine.host import read_host

    checks = [{"subject": section.subject, "status": status(check), **to_json(check)} for section in sections for check in section.checks]
    return {
        "host": read_host().name,
        "plan": None if plan is None else str(plan),
        "refused": _count(counted, REFUSED),
        "warnings": _count(counted, WARNING),
        "took_s": round(took_s, 3),
        "checks": checks,
        "hosts": None if examined is None else hosts_document(examined),
    }


def hosts_document(examined: HostsExamined) -> dict[str, Any]:
    """Facts and all checks of every host."""
    rows = [
        {
            "subject": section.subject,
            "name": row.name,
            "hosts": {host: {"status": status(check), **to_json(check)} for host, check in row.checks.items()},
        }
        for section in examined.sections
        for row in section.rows
    ]
    return {"names": list(examined.hosts), "rows": rows, "facts": {host: to_json(facts) for host, facts in examined.facts.items()}}
