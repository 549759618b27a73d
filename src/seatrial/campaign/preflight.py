"""The checks before a campaign, on this machine and on every host of the plan: preflight.json, then a refusal or warnings.

Hosts are checked all at once, by ssh or through the commands that already run there (place `pernode`). Their facts are kept for the
provenance of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.collect.attempts import read_checks
from seatrial.core import files
from seatrial.core.errors import RefusedError
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import CampaignPaths
from seatrial.launch.host_queries import HostSessions, answer_commands, own_host
from seatrial.launch.pernode_server import PernodeServer
from seatrial.launch.transports.choice import user_ssh_args
from seatrial.preflight.cache_warmup import NOTHING, warm_checks, warm_query
from seatrial.preflight.check_definition import HostsExamined, Need, need_of
from seatrial.preflight.hosts.access import no_hosts_check
from seatrial.preflight.hosts.queries import PernodeFacts, hosts_of, need_of_head
from seatrial.preflight.hosts.run_checks import examine_hosts, no_hosts
from seatrial.preflight.run_checks import fast_checks
from seatrial.preflight.slurm import check_paths_on_nodes
from seatrial.records.attempt import HostFacts
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.plan import CampaignPlan, PlaceSpec

EARLIER_START = " (at an earlier start)"
# Longer than a host's own timeout of the warm-up.
WARM_TIMEOUT_S = 1900.0


@dataclass(frozen=True, kw_only=True)
class PreflightResult:
    """What preflight found for a campaign that may start."""

    warnings: tuple[Check, ...]
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)


def run_preflight(plan: CampaignPlan, paths: CampaignPaths, server: PernodeServer | None = None) -> PreflightResult:
    """Write preflight.json; raise a RefusedError that names each check that refuses."""
    need = need_of(plan)
    hosts = _examine_hosts(need, server)
    need = replace(need, host_facts=hosts.facts if hosts else {})
    checks = [*fast_checks(need_of_this_host(need, hosts_of(need))), *(hosts.checks if hosts else ())]
    if not paths.runs():
        checks = check_paths_on_nodes(need, checks)
    files.write_json(paths.preflight, to_json([*checks, *_noise_of_earlier_starts(paths, checks)]))
    failed = [check for check in checks if not check.ok]
    refusing = [check for check in failed if check.refuses]
    if refusing:
        raise RefusedError("refused before anything was started:\n  " + "\n  ".join(check_line(check) for check in refusing))
    return PreflightResult(warnings=tuple(failed), hosts=hosts.facts if hosts else {})


def _noise_of_earlier_starts(paths: CampaignPaths, checks: Sequence[Check]) -> list[Check]:
    """Noise that earlier starts in this folder found and this one does not: their runs were measured beside it."""
    now = {(check.name, check.hosts) for check in checks if not check.ok}
    noise = [check for check in read_checks(paths.preflight) if check.noise and not check.ok and (check.name, check.hosts) not in now]
    return [replace(check, found=f"{check.found.removesuffix(EARLIER_START)}{EARLIER_START}", refuses=False) for check in noise]


def _examine_hosts(need: Need, server: PernodeServer | None) -> HostsExamined | None:
    """None for a plan on this machine alone."""
    place = hostfile_place(need)
    if place is not None:
        return examine_by_ssh(need, place, fast=True)
    return examine_by_commands(need, server, fast=True) if server is not None else None


def hostfile_place(need: Need) -> PlaceSpec | None:
    """The place of the plan's runs on many hosts; None where there are none."""
    return next((spec.place for spec in need.runs if spec.place.traits.starts_agents_over_ssh), None)


def examine_by_ssh(need: Need, place: PlaceSpec, *, fast: bool) -> HostsExamined:
    """Every host of `place`, or of the plan's runs where those name more."""
    hosts = hosts_of(need) or place.hosts
    head = own_host(hosts)
    if not hosts:
        return no_hosts(need, place, head)
    # With the ssh options of the agents, so that nothing is refused that would work.
    place = replace(place, ssh_args=user_ssh_args(place, [host.name for host in hosts if host.name != head], need.base_env))
    commands = answer_commands(hosts, head, python=place.python, ssh_args=place.ssh_args, env=need.base_env)
    with HostSessions(commands) as sessions:
        return examine_hosts(sessions.ask, need, hosts, head=head, fast=fast, place=place)


def examine_by_commands(need: Need, server: PernodeServer, *, fast: bool) -> HostsExamined:
    """Every node of place `pernode`, through the command that runs there, without ssh. The plan's address counts before --master-addr."""
    given = need.runs[0].place
    place = replace(given, master_addr=given.master_addr or server.master_addr)
    share = place.ranks // max(1, place.nodes)
    hosts = [HostSpec(name=node, ranks=share, devices=place.devices) for node in server.nodes]
    pernode = PernodeFacts(addresses=tuple(server.addresses), host_names={node: server.hostname_of(node) for node in server.nodes})
    return examine_hosts(server.ask, need, hosts, head=server.nodes[0], fast=fast, place=place, pernode=pernode)


def warm_hosts(need: Need, place: PlaceSpec | None) -> dict[str, tuple[Check, ...]]:
    """Fill the caches of every host of the plan at once: host → what was built, in how many seconds, or why not. Without other hosts, of
    this machine."""
    question = warm_query(need)
    hosts = (hosts_of(need) or place.hosts) if place else ()
    head = own_host(hosts)
    names = [host.name for host in hosts] or [head]
    if question is None:
        return {name: (NOTHING.result(True, "nothing to do: no workload of this plan has caches to fill"),) for name in names}
    ssh_args = user_ssh_args(place, [name for name in names if name != head], need.base_env) if place else ()
    commands = answer_commands(hosts, head, python=place.python if place else "", ssh_args=ssh_args, env=need.base_env)
    with HostSessions({name: commands[name] for name in names}) as sessions:
        replies = sessions.ask(dict.fromkeys(names, question), WARM_TIMEOUT_S)
    return {name: tuple(warm_checks(reply)) for name, reply in replies.items()}


def need_of_this_host(need: Need, hosts: Sequence[HostSpec]) -> Need:
    return need_of_head(need, own_host(hosts))


def local_checks(need: Need) -> list[Check]:
    """The checks that need no other host: of this machine's part in the plan, and of a hostfile without hosts."""
    place, hosts = hostfile_place(need), hosts_of(need)
    unknown = [no_hosts_check(place, Path(need.runs[0].cwd))] if place is not None and not hosts else []
    return [*unknown, *fast_checks(need_of_this_host(need, hosts))]


def check_line(check: Check) -> str:
    # A suggestion ends as a question.
    found = check.found if check.found.endswith("?") else f"{check.found}."
    return f"{check.name}: {found} Leads to: {check.prevents}. Fix: {check.fix}."
