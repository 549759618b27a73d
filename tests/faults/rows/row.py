"""What a row and a part of the fault table are, and the files its tests stand in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One fault. `test` is file and function under tests/faults, or under tests/cluster where it begins so."""

    fault: str
    happens: str
    seen: str
    test: str


@dataclass(frozen=True)
class Part:
    """Faults of one kind."""

    title: str
    rows: tuple[Row, ...]


RUNS, TORCH, HARNESS, DISK = "test_fault_runs.py", "test_fault_torch.py", "test_fault_harness.py", "test_fault_disk.py"
FILES, INPUT, MEASURING = "test_fault_files.py", "test_fault_input.py", "test_fault_measuring.py"
STAGE1 = "test_fault_stage1.py"
HOSTS, CAMPAIGNS = "cluster/test_host_faults.py", "cluster/test_campaigns.py"
LEFTOVERS, MEMORY, WRITERS = "test_fault_agent_leftovers.py", "test_fault_agent_memory.py", "test_fault_writers.py"
