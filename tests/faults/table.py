"""The fault table: docs/reliability.md is made from it by `make docs`, and a test holds that every row's test is there.

In: the parts under `rows/`, a file for each. Out: PARTS, in the order of the page.
"""

from __future__ import annotations

from tests.faults.rows import bad_input, damaged, disk, harness, hosts, runs, suspended
from tests.faults.rows.row import Part, Row

__all__ = ["PARTS", "Part", "Row"]

PARTS: tuple[Part, ...] = (runs.PART, suspended.PART, harness.PART, disk.PART, damaged.PART, bad_input.PART, hosts.PART)
