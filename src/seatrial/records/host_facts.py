"""What one host of a run is, as it told itself before the campaign: its make, its versions, its network, and how far its clock is off."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """One host; what it could not tell is empty."""

    name: str = ""
    """As the hostfile has it."""
    host: str = ""
    """What it calls itself."""
    boot_id: str = ""
    """The kernel's, new at every start: with `host` it tells two names of one machine from two machines."""
    platform: str = ""
    cpu: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """The name of each, in the order of the PCI bus."""
    driver_version: str = ""
    driver_cuda: str = ""
    """The newest CUDA that the driver takes."""
    seatrial: str = ""
    """The version of Seatrial that answered."""
    code: str = ""
    """Digest of its files: two checkouts of one version differ by it."""
    scripts: dict[str, str] = field(default_factory=dict)
    """Path of a plan's script → sha256 of it as this host sees it."""
    python: str = ""
    """Of the interpreter that the runs use."""
    packages: dict[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    user: str = ""
    uid: int = -1
    interfaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Every interface that is up → its addresses, in the kernel's order, loopback included."""
    campaigns: tuple[str, ...] = ()
    """Folders of the campaigns that had an agent there when it was asked."""
    clock_offset_s: float | None = None
    """How far its wall clock is ahead of the harness's; None where it was not measured."""
    clock_round_trip_s: float | None = None
