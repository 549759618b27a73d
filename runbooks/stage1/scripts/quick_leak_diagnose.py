#!/usr/bin/env python3
"""Leak diagnosis of campaigns or single runs: one CSV row a run on stdout, the sources of its figures on stderr.

python scripts/quick_leak_diagnose.py outputs/bench/sweep_z0_mb160_nw8_pf4_r1 outputs/bench/sweep_z0_mb192_nw8_pf4_r1
"""

from __future__ import annotations

import sys
from pathlib import Path

# Only the standard library is needed, so any Python from 3.11 on will do, also one that Seatrial is not installed for.
sys.path.append(str(Path(__file__).resolve().parents[3] / "src"))

from seatrial_runbooks.stage1.leak_check import main

if __name__ == "__main__":
    sys.exit(main())
