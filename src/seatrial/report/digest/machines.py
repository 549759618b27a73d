"""The machines that a campaign ran on. In: CampaignResults. Out: a line for each kind of machine and code, and how many runs it made."""

from __future__ import annotations

from seatrial import units
from seatrial.machine.fingerprint import make_of
from seatrial.records.command import Provenance
from seatrial.records.results import CampaignResults
from seatrial.wording import count, named

SHOWN_PACKAGES = ("torch", "deepspeed", "transformers")


def machines(results: CampaignResults) -> list[tuple[str, int]]:
    """Each kind of machine and code in one line, with the number of current runs made on it; the most used first."""
    counts: dict[str, int] = {}
    for run in results.runs:
        if run.attempt.current:
            line = _machine(run.attempt.provenance)
            counts[line] = counts.get(line, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def _machine(provenance: Provenance) -> str:
    packages = [f"{name} {provenance.packages[name]}" for name in SHOWN_PACKAGES if name in provenance.packages]
    dirty = " with uncommitted changes" if provenance.git_dirty == "true" else ""
    parts = [
        _hosts(provenance),
        f"{provenance.gpu_name} (driver {provenance.driver_version or 'unknown'})" if provenance.gpu_name else "no GPU",
        f"{provenance.cpu or 'CPU'} × {provenance.cpu_count}" if provenance.cpu_count else provenance.cpu,
        units.format_bytes(provenance.memory_bytes) if provenance.memory_bytes else "",
        f"Python {provenance.python}" if provenance.python else "",
        *packages,
        f"commit {provenance.git_commit_hash[:12]} ({provenance.git_branch or 'no branch'}){dirty}" if provenance.git_commit_hash else "",
    ]
    return ", ".join(part for part in parts if part)


def _hosts(provenance: Provenance) -> str:
    """The host; of many the names of the first, and whether they are of one make."""
    if not provenance.hosts:
        return provenance.host
    makes = len({tuple(sorted(make_of(told).items())) for told in provenance.hosts.values()})
    alike = "of one make" if makes == 1 else f"of {makes} makes"
    return f"{count(len(provenance.hosts), 'host')} {alike} ({named(list(provenance.hosts))}), seen from {provenance.host}"
