"""Runs all checks of this host before a campaign, so that what must fail is refused in a second and not after the first hour.

In: a `Need`. Out: one `Check` per definition, in sections by subject. A trial file is written and removed; nothing else is changed.
campaign/ writes preflight.json and refuses; `seatrial doctor` shows everything. Each check is one row (`CheckDefinition`: name, question,
later error, remedy), kept beside the function that runs it, since the function fills in the row's names; `SUBJECTS` is the table over
them, from which docs/doctor.md is generated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import join_names
from seatrial.preflight import (
    cache_warmup,
    environment,
    gpu_memory,
    gpus,
    needed_campaign,
    resources,
    slurm,
    software,
    storage,
    system_load,
)
from seatrial.preflight.check_definition import CheckDefinition, Need, Section, information, warning
from seatrial.preflight.slurm_smoke import SMOKE_CHECKS
from seatrial.records.caution import Check
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS

MAX_NAMED = 6

COLUMNS = information(
    name="{file}",
    what="one sample from NVML and /proc: which columns of the telemetry will be empty",
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
"""File → columns that one sample could not fill. Called by a package that may import the samplers."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    title: str
    definitions: tuple[CheckDefinition, ...]
    checks: Callable[[Need], Iterable[Check]]
    fast: bool = True
    """Also run before every campaign."""


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
    """The checks before every campaign."""
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
        WARM: cache_warmup.WARM_CHECKS,
        JOBS: SMOKE_CHECKS,
        "any": (CHECKS_CRASHED,),
    }
