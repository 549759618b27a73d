"""The hosts of a campaign: what they told of themselves before it, and what of that goes into a run's provenance.

In: `HostFacts` of every host that answered. Out: `Provenance` whose machine is node 0's, not that of the harness, which need not be one
of the hosts; and the make of each host beside it, so that unlike ones are not averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from seatrial.machine.fingerprint import fingerprint
from seatrial.records.command import Provenance
from seatrial.records.host_facts import HostFacts

NO_HOSTS: Mapping[str, HostFacts] = MappingProxyType({})


def with_hosts(gathered: Provenance, names: Sequence[str], hosts: Mapping[str, HostFacts]) -> Provenance:
    """`gathered` on this machine, as it is for a run on the hosts `names`; unchanged for a run on one."""
    known = {name: hosts[name] for name in names if name in hosts}
    if not known:
        return gathered
    first = known.get(names[0])
    machine = gathered if first is None else _of(first, gathered)
    told = replace(machine, hosts={name: _make(facts) for name, facts in known.items()})
    return replace(told, fingerprint=fingerprint(told))


def _of(first: HostFacts, gathered: Provenance) -> Provenance:
    """Node 0's own; what it was not asked for stays empty where it would be this machine's, and not node 0's."""
    if first.host == gathered.host:
        return gathered
    return replace(
        gathered,
        host=first.host,
        platform=first.platform,
        cpu=first.cpu,
        cpu_count=first.cpu_count,
        memory_bytes=first.memory_bytes,
        gpu_name=";".join(dict.fromkeys(first.gpus)),
        driver_version=first.driver_version,
        python=first.python or gathered.python,
        packages=dict(first.packages) or gathered.packages,
        gpu_cc="",
        gpu_uuid_list="",
        gpu_power_limit_w="",
        gpu_power_default_w="",
        gpu_clocks="",
        pcie_gen="",
        container="",
        nics={name: ", ".join(addresses) for name, addresses in first.interfaces.items()},
    )


def _make(facts: HostFacts) -> dict[str, str]:
    """What two hosts of one make have in common."""
    packages = " ".join(f"{name}={version}" for name, version in sorted(facts.packages.items()))
    return {
        "host": facts.host,
        "cpu": facts.cpu,
        "cpu_count": str(facts.cpu_count),
        "memory_bytes": str(facts.memory_bytes),
        "gpu_name": ";".join(facts.gpus),
        "driver_version": facts.driver_version,
        "platform": facts.platform,
        "python": facts.python,
        "packages": packages,
    }
