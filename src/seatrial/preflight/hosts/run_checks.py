"""Runs every check of all hosts of a run, from a few exchanges with all at once.

    with HostSessions(answer_commands(hosts, head, …)) as sessions:
        examined = examine_hosts(sessions.ask, need, hosts, head=head, fast=True)

In: an `AskHosts` (real sessions, the nodes of place `pernode`, or a fake), what the plan needs, and the hosts. Out: a row for
each check with every host's result, and the facts of every host that answered. It takes as long as the slowest host, whatever their
number.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.errors import printable
from seatrial.core.hostfile import HostSpec
from seatrial.preflight.check_definition import CheckDefinition, HostCheck, HostSection, HostsExamined, Need, rows_of, warning
from seatrial.preflight.hosts import access, network, queries, uniformity
from seatrial.preflight.hosts.network import measure_links
from seatrial.preflight.hosts.queries import Answers, HostsNeed, PernodeFacts, answer_part, hosts_need_of, text_mapping
from seatrial.records.attempt import HostFacts
from seatrial.records.codec import from_json_or_none
from seatrial.records.launch import AskHosts, Reply
from seatrial.records.plan import PlaceSpec

HOST_CHECKS_CRASHED = warning(
    name="checks of {subject}",
    what="whether the checks of a subject could be made with what the hosts answered",
    prevents="an error that these checks would have named",
    fix="continue if you trust these hosts; and report it, with the output of `seatrial doctor --json`",
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    title: str
    definitions: tuple[CheckDefinition, ...]
    checks: Callable[[HostsNeed, Answers], Iterable[HostCheck]]


SUBJECTS = (
    Subject(title="hostfile", definitions=access.HOSTFILE_CHECKS, checks=access.check_hostfile),
    Subject(title="sessions", definitions=access.SESSION_CHECKS, checks=access.check_sessions),
    Subject(title="programs of the hosts", definitions=access.PROGRAM_CHECKS, checks=access.check_programs),
    Subject(title="versions", definitions=uniformity.VERSION_CHECKS, checks=uniformity.check_versions),
    Subject(title="hardware of the hosts", definitions=uniformity.HARDWARE_CHECKS, checks=uniformity.check_hardware),
    Subject(title="interfaces", definitions=network.INTERFACE_CHECKS, checks=network.check_interfaces),
    Subject(title="names of the hosts", definitions=network.NAME_CHECKS, checks=network.check_names),
    Subject(title="reach", definitions=network.REACH_CHECKS, checks=network.check_reach),
    Subject(title="links", definitions=network.LINK_CHECKS, checks=network.check_links),
    Subject(title="other campaigns", definitions=uniformity.CAMPAIGN_CHECKS, checks=uniformity.check_other_campaigns),
    Subject(title="clocks", definitions=uniformity.CLOCK_CHECKS, checks=uniformity.check_clocks),
    Subject(title="shared folder", definitions=access.FOLDER_CHECKS, checks=access.check_shared_folder),
    Subject(title="paths", definitions=access.PATH_CHECKS, checks=access.check_paths),
)


def host_definitions() -> dict[str, tuple[CheckDefinition, ...]]:
    return {subject.title: subject.definitions for subject in SUBJECTS}


def examine_hosts(
    ask: AskHosts,
    need: Need,
    hosts: Sequence[HostSpec],
    *,
    head: str,
    fast: bool,
    place: PlaceSpec | None = None,
    pernode: PernodeFacts | None = None,
) -> HostsExamined:
    """All rows for `hosts`. `head` is the harness's own machine, one of them or not; `place` overrides the plan's, as for a hostfile
    without a plan; `fast` tries fewer pairs of hosts; `pernode` is given for nodes without ssh."""
    if not hosts:
        return no_hosts(need, place, head)
    hosts_need = replace(hosts_need_of(need, hosts, head, place), pernode=pernode or PernodeFacts())
    answers = _exchanged(ask, hosts_need, secrets.token_hex(8), fast)
    sections = [HostSection(subject=subject.title, rows=rows_of(_run_checks(subject, hosts_need, answers))) for subject in SUBJECTS]
    facts = {host: one for host, one in answers.facts.items() if host in hosts_need.names}
    shown = tuple(section for section in sections if section.rows)
    return HostsExamined(hosts=hosts_need.names, sections=shown, facts=facts, labels=answers.labels)


def _exchanged(ask: AskHosts, hosts_need: HostsNeed, nonce: str, fast: bool) -> Answers:
    secret = secrets.token_hex(16)
    first = ask(queries.first_requests(hosts_need, nonce, fast, secret), queries.FIRST_TIMEOUT_S)
    files = {host: queries.file_of(nonce, number) for number, host in enumerate(queries.hosts_and_head(hosts_need))}
    facts = host_facts(first)
    answers = Answers(first=first, facts=facts, files=files, fast=fast, labels=_labels(hosts_need, facts))
    try:
        answers = replace(answers, second=ask(queries.second_requests(hosts_need, nonce, answers), queries.SECOND_TIMEOUT_S))
        answers = replace(answers, links=measure_links(ask, hosts_need, nonce, secret, answers))
        last = queries.third_requests(hosts_need, nonce, answers)
        return replace(answers, third=ask(last, queries.LAST_TIMEOUT_S)) if last else answers
    finally:
        ask(queries.closing_requests(hosts_need, answers), queries.LAST_TIMEOUT_S)


def _labels(hosts_need: HostsNeed, facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Names for texts: nodes known by rank only are shown with their host's own name."""
    if hosts_need.by_ssh:
        return {}
    names = {**hosts_need.pernode.host_names, **{host: one.host for host, one in facts.items()}}
    return {node: printable(f"{node} ({names[node]})") for node in hosts_need.names if names.get(node)}


def host_facts(replies: Mapping[str, Reply]) -> dict[str, HostFacts]:
    """Facts of the hosts that answered the queries `facts` and `gpus`."""
    found = {}
    for host, reply in replies.items():
        answer = answer_part(replies, host, "facts")
        gpus = answer_part(replies, host, "gpus")
        driver = {key: gpus[key] for key in ("gpus", "driver_version", "driver_cuda") if key in gpus}
        scripts = text_mapping(answer_part(replies, host, "paths"), "digests")
        facts = from_json_or_none(HostFacts, {**driver, "scripts": scripts, **answer})
        if facts is None or answer.get("trouble"):
            continue
        clock = reply.clock
        found[host] = replace(
            facts,
            name=host,
            clock_offset_s=clock.offset_s if clock else None,
            clock_round_trip_s=clock.round_trip_s if clock else None,
        )
    return found


def _run_checks(subject: Subject, hosts_need: HostsNeed, answers: Answers) -> list[HostCheck]:
    """The results of one subject. A check that crashes gives a warning; results before the crash count."""
    results: list[HostCheck] = []
    try:
        results.extend(subject.checks(hosts_need, answers))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        results.append(HOST_CHECKS_CRASHED.on(hosts_need.head, False, found, subject=subject.title))
    return results


def no_hosts(need: Need, place: PlaceSpec | None, head: str) -> HostsExamined:
    """The result for a hostfile without hosts."""
    spec = next((spec for spec in need.runs if spec.place.traits.lists_hosts), None)
    where = place or (spec.place if spec else PlaceSpec(kind="hostfile"))
    rows = rows_of([HostCheck(host=head, check=access.no_hosts_check(where, Path(spec.cwd) if spec else Path()))])
    return HostsExamined(hosts=(head,), sections=(HostSection(subject="hostfile", rows=rows),))
