"""The checks before a campaign, written down; the refusal when one of them is red, the warnings when they are not.

A plan on many hosts is checked on this machine, as far as it has a part in it, and on every host at once: by ssh, or through the
commands that already run there (place `pernode`). What the hosts told of themselves is kept for the runs' provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial import files
from seatrial.campaign.host_check import examine_by_gate, examine_by_ssh, hostfile_place, own_need
from seatrial.errors import RefusedError
from seatrial.launch.gate import Gate
from seatrial.paths import CampaignPaths
from seatrial.preflight.checks import fast_checks
from seatrial.preflight.hosts.rows import HostsExamined
from seatrial.preflight.hosts.wanted import hosts_of
from seatrial.preflight.need import Need, need_of
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.codec import to_json
from seatrial.records.host_facts import HostFacts


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What was found before a campaign that may start."""

    amiss: tuple[Check, ...]
    """Worth saying, and no reason to stop."""
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)


def refuse_what_can_only_fail(plan: CampaignPlan, paths: CampaignPaths, gate: Gate | None = None) -> Looked:
    """Write preflight.json; raise RefusedError naming each red check."""
    need = need_of(plan)
    hosts = _on_hosts(need, gate)
    checks = [*fast_checks(own_need(need, hosts_of(need))), *(hosts.checks if hosts else ())]
    files.write_json(paths.preflight, to_json(checks))
    amiss = [check for check in checks if not check.ok]
    red = [check for check in amiss if check.refuses]
    if red:
        raise RefusedError("refused before anything was started:\n  " + "\n  ".join(one_line(check) for check in red))
    return Looked(amiss=tuple(amiss), hosts=hosts.facts if hosts else {})


def _on_hosts(need: Need, gate: Gate | None) -> HostsExamined | None:
    """None for a plan on this machine alone."""
    place = hostfile_place(need)
    if place is not None:
        return examine_by_ssh(need, place, fast=True)
    return examine_by_gate(need, gate, fast=True) if gate is not None else None


def one_line(check: Check) -> str:
    """A check that is not ok, for people."""
    return f"{check.name}: {check.found}. Would end in: {check.prevents}. Fix: {check.fix}."
