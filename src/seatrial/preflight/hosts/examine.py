"""Every check of every host of a run, from a few exchanges with all of them at once.

    with Sessions(ask_commands(hosts, head, …)) as sessions:
        examined = examine_hosts(sessions.ask, need, hosts, head=head, fast=True)

In: how to ask (an `Ask`: real sessions, the shares of place `pernode`, or a fake), what the plan needs, and the hosts. Out: a row for each
question with every host's answer, and the facts of every host that answered. The time is the slowest host's, whatever their number.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.errors import printable
from seatrial.preflight.hosts import (
    campaigns,
    clocks,
    exchanges,
    folders,
    hostfiles,
    interfaces,
    makes,
    names,
    paths,
    programs,
    reach,
    sessions,
    speeds,
    versions,
)
from seatrial.preflight.hosts.answers import Answers, part, texts
from seatrial.preflight.hosts.link_trials import measured
from seatrial.preflight.hosts.rows import HostCheck, HostSection, HostsExamined, rows_of
from seatrial.preflight.hosts.wanted import Gathered, Wanted, wanted
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.codec import described
from seatrial.records.host_facts import HostFacts
from seatrial.records.reply import Ask, Reply
from seatrial.records.run_spec import HOSTFILE, HostSpec, PlaceSpec

UNMADE = Question(
    name="checks of {subject}",
    looks_at="whether the checks of a subject could be made with what the hosts answered",
    prevents="an error that these checks would have named",
    fix="go on if you know these hosts; and report it, with the output of `seatrial doctor --json`",
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module of checks of many hosts."""

    title: str
    questions: tuple[Question, ...]
    checks: Callable[[Wanted, Answers], Iterable[HostCheck]]


SUBJECTS = (
    Subject(title="hostfile", questions=hostfiles.QUESTIONS, checks=hostfiles.checks),
    Subject(title="sessions", questions=sessions.QUESTIONS, checks=sessions.checks),
    Subject(title="programs of the hosts", questions=programs.QUESTIONS, checks=programs.checks),
    Subject(title="versions", questions=versions.QUESTIONS, checks=versions.checks),
    Subject(title="make of the hosts", questions=makes.QUESTIONS, checks=makes.checks),
    Subject(title="interfaces", questions=interfaces.QUESTIONS, checks=interfaces.checks),
    Subject(title="names of the hosts", questions=names.QUESTIONS, checks=names.checks),
    Subject(title="reach", questions=reach.QUESTIONS, checks=reach.checks),
    Subject(title="links", questions=speeds.QUESTIONS, checks=speeds.checks),
    Subject(title="other campaigns", questions=campaigns.QUESTIONS, checks=campaigns.checks),
    Subject(title="clocks", questions=clocks.QUESTIONS, checks=clocks.checks),
    Subject(title="shared folder", questions=folders.QUESTIONS, checks=folders.checks),
    Subject(title="paths", questions=paths.QUESTIONS, checks=paths.checks),
)


def host_questions() -> dict[str, tuple[Question, ...]]:
    """Everything that is asked of hosts, by subject, in the order it is shown."""
    return {subject.title: subject.questions for subject in SUBJECTS}


def examine_hosts(
    ask: Ask,
    need: Need,
    hosts: Sequence[HostSpec],
    *,
    head: str,
    fast: bool,
    place: PlaceSpec | None = None,
    gathered: Gathered | None = None,
) -> HostsExamined:
    """All rows for `hosts`; `head` is the name under which the machine of the harness is asked, one of them or not. `place` is the plan's
    own unless it is given, as for a hostfile without a plan. `fast` tries fewer pairs of hosts. `gathered`: of nodes without ssh."""
    if not hosts:
        return no_hosts(need, place, head)
    asked_for = replace(wanted(need, hosts, head, place), gathered=gathered or Gathered())
    answers = _exchanged(ask, asked_for, secrets.token_hex(8), fast)
    sections = [HostSection(subject=subject.title, rows=rows_of(_made(subject, asked_for, answers))) for subject in SUBJECTS]
    facts = {host: one for host, one in answers.facts.items() if host in asked_for.names}
    shown = tuple(section for section in sections if section.rows)
    return HostsExamined(hosts=asked_for.names, sections=shown, facts=facts, labels=answers.labels)


def _exchanged(ask: Ask, asked_for: Wanted, nonce: str, fast: bool) -> Answers:
    word = secrets.token_hex(16)
    first = ask(exchanges.first(asked_for, nonce, fast, word), exchanges.FIRST_PATIENCE_S)
    files = {host: exchanges.file_of(nonce, number) for number, host in enumerate(exchanges.asked(asked_for))}
    facts = _facts(first)
    answers = Answers(first=first, facts=facts, files=files, fast=fast, labels=_labels(asked_for, facts))
    try:
        answers = replace(answers, second=ask(exchanges.second(asked_for, nonce, answers), exchanges.SECOND_PATIENCE_S))
        answers = replace(answers, links=measured(ask, asked_for, nonce, word, answers))
        last = exchanges.third(asked_for, nonce, answers)
        return replace(answers, third=ask(last, exchanges.LAST_PATIENCE_S)) if last else answers
    finally:
        ask(exchanges.closing(asked_for, answers), exchanges.LAST_PATIENCE_S)


def _labels(asked_for: Wanted, facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Nodes that have no name but their rank are shown with what their hosts call themselves."""
    if asked_for.by_ssh:
        return {}
    names = {**asked_for.gathered.host_names, **{host: one.host for host, one in facts.items()}}
    return {node: printable(f"{node} ({names[node]})") for node in asked_for.names if names.get(node)}


def _facts(replies: Mapping[str, Reply]) -> dict[str, HostFacts]:
    found = {}
    for host, reply in replies.items():
        told = part(replies, host, "facts")
        gpus = part(replies, host, "gpus")
        driver = {key: gpus[key] for key in ("gpus", "driver_version", "driver_cuda") if key in gpus}
        scripts = texts(part(replies, host, "paths"), "digests")
        facts = described(HostFacts, {**driver, "scripts": scripts, **told})
        if facts is None or told.get("trouble"):
            continue
        clock = reply.clock
        found[host] = replace(
            facts,
            name=host,
            clock_offset_s=clock.offset_s if clock else None,
            clock_round_trip_s=clock.round_trip_s if clock else None,
        )
    return found


def _made(subject: Subject, asked_for: Wanted, answers: Answers) -> list[HostCheck]:
    """The checks of one subject; hosts so odd that they break are told of, and what was found before counts."""
    made: list[HostCheck] = []
    try:
        made.extend(subject.checks(asked_for, answers))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        made.append(HostCheck(host=asked_for.head, check=UNMADE.answer(False, found, subject=subject.title)))
    return made


def no_hosts(need: Need, place: PlaceSpec | None, head: str) -> HostsExamined:
    """What is said of a hostfile without hosts: there is nobody to ask."""
    spec = next((spec for spec in need.runs if spec.place.kind == HOSTFILE), None)
    where = place or (spec.place if spec else PlaceSpec(kind="hostfile"))
    rows = rows_of([HostCheck(host=head, check=hostfiles.nobody(where, Path(spec.cwd) if spec else Path()))])
    return HostsExamined(hosts=(head,), sections=(HostSection(subject="hostfile", rows=rows),))
