"""All checks of this host, made before a campaign so that what can only fail is refused in a second and not after the first hour.

In: a `Need`. Out: one `Check` per definition, in sections by subject; `markdown()` is docs/doctor.md, generated from the definitions. A
trial file is written and removed; nothing else is changed. campaign/ writes preflight.json and refuses; `seatrial doctor` shows
everything. Each check is one row (`CheckDefinition`: name, question, later error, remedy), kept beside the function that makes it, since
the function fills in the row's names; `SUBJECTS` is the table over them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import join_names
from seatrial.preflight import environment, gpu_memory, gpus, needed_campaign, resources, slurm, software, storage, system_load, warm
from seatrial.preflight.definitions import CheckDefinition, Need, Section, information, warning
from seatrial.preflight.hosts.examine import HOST_CHECKS_CRASHED, host_definitions
from seatrial.preflight.slurm_smoke import SMOKE_CHECKS
from seatrial.records.caution import Check
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS

MAX_NAMED = 6

COLUMNS = information(
    name="{file}",
    what="one look through NVML and /proc: which columns of the telemetry will be empty",
    prevents="columns of {file} that stay empty, which one finds after the campaign",
    fix="update the driver, or give the container what it lacks (--gpus all, the host's /proc); for GPUs without ECC or energy counters "
    "there is none",
    in_docs={"file": "gpu_telemetry.csv, host_telemetry.csv"},
)
TELEMETRY_CHECKS = (COLUMNS,)


TELEMETRY_COLUMNS = {ATTEMPT_FILES.gpu_telemetry.name: GPU_COLUMNS, ATTEMPT_FILES.host_telemetry.name: HOST_COLUMNS}


def check_telemetry(empty: Mapping[str, Sequence[str]]) -> Iterator[Check]:
    """`empty`: file → columns that one sample could not fill."""
    for file, columns in empty.items():
        count = len(TELEMETRY_COLUMNS[file])
        found = f"empty here: {join_names(columns, MAX_NAMED)}" if columns else f"all {count} filled"
        if len(columns) == count:
            found = "none will be filled: no GPU driver answers"
        yield COLUMNS.result(True, found, file=file)


EmptyColumns = Callable[[], Mapping[str, Sequence[str]]]
"""File → columns that one sample could not fill. Called by whoever may import the samplers."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    title: str
    definitions: tuple[CheckDefinition, ...]
    checks: Callable[[Need], Iterable[Check]]
    fast: bool = True
    """Made before every campaign too."""


SUBJECTS = (
    Subject(title="needed campaign", definitions=needed_campaign.NEEDED_CHECKS, checks=needed_campaign.check_needed),
    Subject(title="Slurm", definitions=slurm.SLURM_CHECKS, checks=slurm.check_slurm),
    Subject(title="programs", definitions=software.PROGRAM_CHECKS, checks=software.check_programs),
    Subject(title="Python and torch", definitions=software.PYTHON_CHECKS, checks=software.check_pythons),
    Subject(title="GPUs", definitions=gpus.GPU_CHECKS, checks=gpus.check_gpus),
    Subject(title="GPU memory", definitions=gpu_memory.GPU_MEMORY_CHECKS, checks=gpu_memory.check_gpu_memory),
    Subject(title="DeepSpeed", definitions=software.DEEPSPEED_CHECKS, checks=software.check_deepspeed),
    Subject(title="workload settings", definitions=software.SETTING_CHECKS, checks=software.check_workload_settings),
    Subject(title="output", definitions=storage.OUTPUT_CHECKS, checks=storage.check_output),
    Subject(title="data", definitions=storage.DATA_CHECKS, checks=storage.check_data),
    Subject(title="disks", definitions=storage.DISK_CHECKS, checks=storage.check_disks),
    Subject(title="shared memory", definitions=storage.SHARED_MEMORY_CHECKS, checks=storage.check_shared_memory),
    Subject(title="memory", definitions=resources.MEMORY_CHECKS, checks=resources.check_memory),
    Subject(title="processors", definitions=resources.PROCESSOR_CHECKS, checks=resources.check_processors),
    Subject(title="limits", definitions=resources.LIMIT_CHECKS, checks=resources.check_limits),
    Subject(title="ports", definitions=environment.PORT_CHECKS, checks=environment.check_ports),
    # The resolver may be slow.
    Subject(title="names", definitions=environment.NAME_CHECKS, checks=environment.check_names, fast=False),
    Subject(title="environment", definitions=environment.VARIABLE_CHECKS, checks=environment.check_variables),
)
CHECKS_CRASHED = warning(
    name="checks of {subject}",
    what="whether the checks of a subject could be made at all on this host",
    prevents="an error that these checks would have named",
    fix="continue if you trust this host; and report it, with the output of `seatrial doctor --json`",
)
LOAD = "load"
TELEMETRY = "telemetry"
WARM = "warm-up"
JOBS = "jobs of Slurm"


def fast_checks(need: Need) -> list[Check]:
    """What is checked before every campaign."""
    return [check for section in examine(need, fast=True) for check in section.checks]


def examine(need: Need, *, fast: bool, empty_columns: EmptyColumns | None = None) -> tuple[Section, ...]:
    """Every check that applies, by subject; `fast` leaves out slow ones."""
    before = system_load.take_sample()
    subjects: dict[str, Callable[[], Iterable[Check]]] = {
        subject.title: functools.partial(subject.checks, need) for subject in SUBJECTS if subject.fast or not fast
    }
    if empty_columns is not None:
        subjects[TELEMETRY] = lambda: check_telemetry(empty_columns())
    subjects[LOAD] = lambda: system_load.check_load(before)
    found = {title: _run_checks(title, checks) for title, checks in subjects.items()}
    return tuple(Section(subject=title, checks=checks) for title, checks in found.items() if checks)


def _run_checks(title: str, checks: Callable[[], Iterable[Check]]) -> tuple[Check, ...]:
    """The results of one subject. A host on which a check crashes gets a warning; results before the crash count."""
    results: list[Check] = []
    try:
        results.extend(checks())
    except Exception as error:
        results.append(CHECKS_CRASHED.result(False, f"{type(error).__name__}: {error}", subject=title))
    return tuple(results)


def all_definitions() -> dict[str, tuple[CheckDefinition, ...]]:
    definitions = {subject.title: subject.definitions for subject in SUBJECTS}
    return {
        **definitions,
        TELEMETRY: TELEMETRY_CHECKS,
        LOAD: system_load.LOAD_CHECKS,
        WARM: warm.WARM_CHECKS,
        JOBS: SMOKE_CHECKS,
        "any": (CHECKS_CRASHED,),
    }


_HEAD = """\
# What is checked before a campaign

For whoever wants problems named before they happen.
`seatrial doctor` checks this host, `seatrial doctor PLAN` also what the plan needs. Every line is one check: `✓` passed, `!` is a warning,
`✗` would refuse a campaign. A check that fails names the error you would have met later, and the fix. The exit code is 0 without a `✗` and
2 with one; `--json` ends with one JSON document.

`run` and `sweep` make the same checks before the first run, except those that may be slow ({slow}); `seatrial doctor --fast` makes exactly
these. The result is written to `preflight.json`. A `✗` ends with exit code 2 and starts nothing; a `!` is one line, and the campaign
goes on.

`seatrial doctor PLAN --warm` then fills caches on every host of the plan, which the first run there would otherwise do in its start-up:
DeepSpeed's ops, torch.compile's kernels. It says per host what was built and in how many seconds, or why not.

With a PLAN, the Pythons that it names are started to ask for their versions, and git in its folders; `seatrial plan show PLAN` starts
nothing. A file is written and removed to try the output folder; without --warm nothing else is changed. Names in capitals are filled in by
the check.
The last column says what a check can do: **refuse** a campaign, **warn**, or only **inform**.
"""
_HOSTS = """\
# Every host of a run at once

For a plan with `place: {kind: hostfile}`, `seatrial doctor PLAN` also checks every host of it, and `seatrial doctor --hostfile FILE` does
without a plan. All hosts are asked at once, one ssh session each: it takes as long as the slowest host, whatever their number, and a host
that does not answer is reported and delays nobody. The result is a table, a row for each check and a column for each host; where the
columns do not fit, a row gives counts and names the hosts that differ. `·` is a host without a result in this row.

`run` and `sweep` make the same checks before the first run, except the head's ssh to itself, and connections between all pairs of hosts:
each host then connects to node 0, the next host and the head, and node 0 to every host. The hosts' facts are kept.

For `place: {kind: pernode}` there is no ssh: nodes are checked when the campaign starts, through the command that runs on each, and are
shown as `node1 (gpu-b)`, rank and host name. Only `--master-addr` need resolve there.

Link speed is measured between neighbours in a ring of the hosts, each with one other at a time: in two or three rounds, whatever the number
of hosts. A trial ends as soon as its bytes are through, after a few hundredths of a second on a fast link. What looks slow is tried once
more, so that a slow link costs one to four seconds.

Small files whose names begin with `.seatrial-trial-` are written to the output folder and removed; ports are opened for a moment.
"""


def markdown() -> str:
    head = _HEAD.format(slow=f"names, {TELEMETRY}")
    sections = [_section(title, definitions) for title, definitions in all_definitions().items()]
    host_sections = [
        _section(title, definitions) for title, definitions in {**host_definitions(), "any of them": (HOST_CHECKS_CRASHED,)}.items()
    ]
    return "\n".join([head, *sections, _HOSTS, *host_sections])


def _section(title: str, definitions: Sequence[CheckDefinition]) -> str:
    heading = {LOAD: "What else the host is doing", "any": "Any subject"}.get(title, title[0].upper() + title[1:])
    rows = [
        f"## {heading}\n",
        "| check | what is checked | the later error it prevents | the fix | can |",
        "|---|---|---|---|---|",
        *(_row(definition) for definition in definitions),
    ]
    return "\n".join(rows) + "\n"


def _row(definition: CheckDefinition) -> str:
    can = "refuse" if definition.refuses else "inform" if definition.informational else "warn"
    texts = (definition.name, definition.what, definition.prevents, definition.fix)
    cells = [definition.described(text).replace("|", "\\|") for text in texts]
    return f"| {' | '.join([*cells, can])} |"
