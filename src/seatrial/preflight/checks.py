"""Looked at before a campaign starts, so that what can only fail is refused in a second and not after the first hour.

Goes in: a plan, or this host in general. Comes out: one `Check` a question, each naming the later error it prevents and the fix,
in sections by subject. A trial file is written and removed; nothing else is changed on the machine. campaign/ writes preflight.json
and refuses; `seatrial doctor` shows everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.paths import ATTEMPT_FILES
from seatrial.preflight import (
    datasets,
    deepspeed,
    disks,
    folders,
    gpus,
    limits,
    load,
    memory,
    names,
    ports,
    processes,
    processors,
    programs,
    pythons,
    shared_memory,
    telemetry,
    variables,
    workload_settings,
)
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question, Section
from seatrial.records.check import Check
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS

TELEMETRY_COLUMNS = {ATTEMPT_FILES.gpu_telemetry.name: GPU_COLUMNS, ATTEMPT_FILES.host_telemetry.name: HOST_COLUMNS}

EmptyColumns = Callable[[], Mapping[str, Sequence[str]]]
"""File → columns that one look through the samplers could not fill."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module of checks."""

    title: str
    questions: tuple[Question, ...]
    checks: Callable[[Need], Iterable[Check]]
    fast: bool = True
    """Made before every campaign too."""


SUBJECTS = (
    Subject(title="programs", questions=programs.QUESTIONS, checks=programs.checks),
    Subject(title="Python and torch", questions=pythons.QUESTIONS, checks=pythons.checks),
    Subject(title="GPUs", questions=gpus.QUESTIONS, checks=gpus.checks),
    Subject(title="DeepSpeed", questions=deepspeed.QUESTIONS, checks=deepspeed.checks),
    Subject(title="workload settings", questions=workload_settings.QUESTIONS, checks=workload_settings.checks),
    Subject(title="output", questions=folders.QUESTIONS, checks=folders.checks),
    Subject(title="data", questions=datasets.QUESTIONS, checks=datasets.checks),
    Subject(title="disks", questions=disks.QUESTIONS, checks=disks.checks),
    Subject(title="shared memory", questions=shared_memory.QUESTIONS, checks=shared_memory.checks),
    Subject(title="memory", questions=memory.QUESTIONS, checks=memory.checks),
    Subject(title="processors", questions=processors.QUESTIONS, checks=processors.checks),
    Subject(title="limits", questions=limits.QUESTIONS, checks=limits.checks),
    Subject(title="ports", questions=ports.QUESTIONS, checks=ports.checks),
    # The resolver may take its time.
    Subject(title="names", questions=names.QUESTIONS, checks=names.checks, fast=False),
    Subject(title="environment", questions=variables.QUESTIONS, checks=variables.checks),
)
UNMADE = Question(
    name="checks of {subject}",
    looks_at="whether the checks of a subject could be made at all on this host",
    prevents="an error that these checks would have named",
    fix="go on if you know this host; and report it, with the output of `seatrial doctor --json`",
)
LOAD = "load"
TELEMETRY = "telemetry"


def fast_checks(need: Need) -> list[Check]:
    """What is checked before every campaign."""
    return [check for section in examine(need, fast=True) for check in section.checks]


def examine(need: Need, *, fast: bool, empty_columns: EmptyColumns | None = None) -> tuple[Section, ...]:
    """Every check that applies, by subject; `fast` leaves out what may take longer than a campaign's start should."""
    before = processes.take()
    asked: dict[str, Callable[[], Iterable[Check]]] = {
        subject.title: functools.partial(subject.checks, need) for subject in SUBJECTS if subject.fast or not fast
    }
    if empty_columns is not None:
        asked[TELEMETRY] = lambda: telemetry.checks(empty_columns(), TELEMETRY_COLUMNS)
    asked[LOAD] = lambda: load.checks(before)
    found = {title: _made(title, checks) for title, checks in asked.items()}
    return tuple(Section(subject=title, checks=checks) for title, checks in found.items() if checks)


def _made(title: str, checks: Callable[[], Iterable[Check]]) -> tuple[Check, ...]:
    """The checks of one subject. A host so odd that they break is told of, and does not keep a campaign from starting; what was found
    before counts."""
    made: list[Check] = []
    try:
        made.extend(checks())
    except Exception as error:
        made.append(UNMADE.answer(False, f"{type(error).__name__}: {error}", subject=title))
    return tuple(made)


def all_questions() -> dict[str, tuple[Question, ...]]:
    """Everything that can be asked, by subject, in the order it is shown."""
    questions = {subject.title: subject.questions for subject in SUBJECTS}
    return {**questions, TELEMETRY: telemetry.QUESTIONS, LOAD: load.QUESTIONS, "any": (UNMADE,)}
