"""Definition of a check, its input and its results.

`CheckDefinition` describes one check once: the result on the terminal and the table in docs/doctor.md both come from it. `Need` is what a
plan requires of this host (without runs: the host in general). Results are `records.caution.Check`s: in a `Section`
per subject for one host, in a `CheckRow` per check with every host's own result for many.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType

from seatrial.core.errors import printable
from seatrial.core.launcher_options import long_option
from seatrial.records.attempt import HostFacts
from seatrial.records.caution import Check
from seatrial.records.plan import CampaignPlan, NeededCampaign, PlaceSpec, RunSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckDefinition:
    """What is checked, the later error it prevents, verbatim, and the fix. `{name}` in a text is filled per result."""

    name: str
    what: str
    prevents: str
    fix: str
    refuses: bool = False
    """Whether a campaign may be refused for it; else it is a warning."""
    informational: bool = False
    """Never a problem by itself: a fact that explains figures or later errors."""
    noise: bool = False
    """What it finds makes step times vary, so that it is offered as a cause where figures turn out unstable."""
    in_docs: Mapping[str, str] = field(default_factory=dict)
    """What docs/doctor.md shows for a name in braces, where the name in capitals would not do."""

    def result(self, ok: bool, found: str, *, refuses: bool | None = None, **values: object) -> Check:
        """The check for what was found; `refuses=False` makes this one a warning."""
        return Check(
            name=self.name.format(**values),
            ok=ok or self.informational,
            found=found,
            prevents=self.prevents.format(**values),
            fix=self.fix.format(**values),
            refuses=self.refuses if refuses is None else refuses and self.refuses,
            noise=self.noise,
        )

    def on(self, host: str, ok: bool, found: str, /, *, refuses: bool | None = None, **values: object) -> HostCheck:
        """The same for one of many hosts."""
        return HostCheck(host=host, check=self.result(ok, found, refuses=refuses, **values))

    def described(self, text: str) -> str:
        """`text` with the names in braces as docs/doctor.md shows them."""
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        return text.format(**{name: self.in_docs.get(name, name.upper()) for name in names})


# What a check can do is the first word of its definition.
refusal = functools.partial(CheckDefinition, refuses=True)
warning = CheckDefinition
information = functools.partial(CheckDefinition, informational=True)


@dataclass(frozen=True, kw_only=True)
class Section:
    subject: str
    checks: tuple[Check, ...]


NOT_ASKED = "not asked here: this verb starts no program that a plan names; `seatrial doctor PLAN` does"
WORKER_SETTINGS = ("num_workers", "dataloader_num_workers", "workers", "nw")


@dataclass(frozen=True, kw_only=True)
class Need:
    """What the checks are run for."""

    output: Path
    """Where the campaign will write; the current folder without a plan."""
    runs: tuple[RunSpec, ...] = ()
    jobs: tuple[PlaceSpec, ...] = ()
    """Places of runs that are jobs of Slurm, each once."""
    shared: str = ""
    """The root of the file system that all nodes share, by site.yaml."""
    needs: NeededCampaign | None = None
    """The campaign that must have passed first."""
    whole_runs: tuple[RunSpec, ...] = ()
    """The runs with all their ranks, where `runs` are this host's share of them."""
    fit_enforced: bool = True
    """Whether a run that will not fit into GPU memory refuses the campaign; else it is a warning."""
    host_facts: Mapping[str, HostFacts] = field(default_factory=dict)
    """The hosts of the plan by name, in its order, with the facts from before the start; {} without any."""
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Environment that every run inherits."""
    starts_programs: bool = True
    """Whether the plan's own Pythons, and git in its folders, may be started to ask for versions. Read-only verbs start
    nothing that a plan names; their checks leave out what only these know."""

    @property
    def planned(self) -> bool:
        return bool(self.runs)

    @property
    def ranks(self) -> int:
        """The most ranks one run has; 1 without a plan."""
        return max((spec.place.ranks for spec in self.runs), default=1)

    @property
    def workers_of_a_rank(self) -> int | None:
        """The most loader workers of one rank; None where no run sets them."""
        return max((count for spec in self.runs if (count := loader_workers(spec)) is not None), default=None)

    @property
    def workers(self) -> int | None:
        """The most loader workers of all ranks of one run together."""
        counts = [count * spec.place.ranks for spec in self.runs if (count := loader_workers(spec)) is not None]
        return max(counts, default=None)

    def environment(self, spec: RunSpec) -> dict[str, str]:
        """Environment of the processes of `spec`, without what launchers add."""
        return {**self.base_env, **spec.env}


def need_of(plan: CampaignPlan) -> Need:
    jobs = dict.fromkeys(spec.place for spec in plan.chosen if spec.place.traits.runs_in_jobs)
    site = next((spec.site for spec in plan.chosen), None)
    return Need(
        output=Path(plan.output),
        runs=plan.chosen,
        whole_runs=plan.chosen,
        jobs=tuple(jobs),
        shared=site.shared if site else "",
        needs=plan.needs,
        fit_enforced=plan.fit_enforced,
    )


def loader_workers(spec: RunSpec) -> int | None:
    """Loader workers of one rank, from the workload's settings, an axis or an option of the script; None where nothing sets them."""
    found = [{**spec.axes, **spec.settings}.get(name) for name in WORKER_SETTINGS]
    found += [value for name, value in options(spec) if name in WORKER_SETTINGS]
    numbers = [int(value) for value in found if isinstance(value, int) or (isinstance(value, str) and value.isdigit())]
    return numbers[0] if numbers else None


def options(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """(name, value) of every `--name value` and `--name=value` among the script's arguments."""
    args = spec.workload.args
    for argument, following in itertools.zip_longest(args, args[1:], fillvalue=""):
        name, inline = long_option(argument)
        if name:
            yield name, following if inline is None else inline


def script_of(spec: RunSpec) -> str:
    """The file that its ranks run; empty for a bundled trainer, and for a program."""
    script = spec.workload.script or ""
    return script if script.endswith(".py") and spec.launcher.kind != "command" else ""


def needs_torch(spec: RunSpec) -> bool:
    """Whether a bundled workload cannot run without torch: its settings say so, or its launcher is part of torch."""
    if not spec.workload.module:
        return False
    return bool(settings_module(spec.workload.module).NEEDS_TORCH) or spec.launcher.kind in ("torchrun", "deepspeed")


def settings_module(trainer: str) -> ModuleType:
    """The module with a bundled workload's settings: beside its trainer, standard library only."""
    return importlib.import_module(f"{trainer.rpartition('.')[0]}.settings")


def uses_deepspeed(spec: RunSpec) -> bool:
    """Whether DeepSpeed runs in it for certain: as launcher, or as a bundled workload's engine."""
    return spec.launcher.kind == "deepspeed" or spec.settings.get("engine") == "deepspeed"


def asks_for_gpus(spec: RunSpec) -> bool:
    return bool(spec.place.devices) or spec.settings.get("device") == "cuda"


def may_use_gpus(spec: RunSpec) -> bool:
    """Whether it may: a script uses whatever it sees, a bundled workload sets its device."""
    return asks_for_gpus(spec) or not spec.workload.module or spec.settings.get("device") == "auto"


OK, WARNING, REFUSED = "ok", "warning", "refused"
MAX_NAMED = 4
NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    host: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """One check on every host that has a result for it."""

    name: str
    checks: Mapping[str, Check]


@dataclass(frozen=True, kw_only=True)
class HostSection:
    subject: str
    rows: tuple[CheckRow, ...]


@dataclass(frozen=True, kw_only=True)
class HostsExamined:
    """All checks of the hosts of a run."""

    hosts: tuple[str, ...]
    sections: tuple[HostSection, ...]
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    """Host → its facts; hosts that did not answer are left out."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Host → its name in texts, where that is more than its own: `node1 (gpu-b)`."""

    @property
    def rows(self) -> tuple[CheckRow, ...]:
        return tuple(row for section in self.sections for row in section.rows)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The rows as a list, for preflight.json: one check per row and result, with its hosts in the name."""
        return tuple(check for row in self.rows for check in folded(row, self.labels))


def status(check: Check) -> str:
    return OK if check.ok else REFUSED if check.refuses else WARNING


def rows_of(found: Iterable[HostCheck]) -> tuple[CheckRow, ...]:
    """One row per check name, in order of appearance. What hosts answered is made printable for a terminal."""
    rows: dict[str, dict[str, Check]] = {}
    for one in found:
        rows.setdefault(one.check.name, {})[one.host] = replace(one.check, found=printable(one.check.found))
    return tuple(CheckRow(name=name, checks=checks) for name, checks in rows.items())


def folded(row: CheckRow, labels: Mapping[str, str] = NO_LABELS) -> list[Check]:
    """One check for all hosts with the same result; all hosts that pass count as the same."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for host, check in row.checks.items():
        key = (OK, "", "", "") if check.ok else (status(check), check.found, check.prevents, check.fix)
        groups.setdefault(key, []).append(host)
    return [
        replace(row.checks[hosts[0]], name=f"{row.name} on {hosts_text(hosts, labels)}", hosts=tuple(hosts)) for hosts in groups.values()
    ]


def hosts_text(hosts: list[str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """`node1, node2 and 3 more`."""
    more = len(hosts) - MAX_NAMED
    shown = ", ".join(labels.get(host, host) for host in (hosts if more <= 1 else hosts[:MAX_NAMED]))
    return f"{shown} and {more} more" if more > 1 else shown
