#!/usr/bin/env python3
"""Phase B acceptance: exit code 0 where the sentinel groups of a campaign are stable, 2 where they are not, 1 for wrong use.

./scripts/check_phaseb_stability.py --output-root outputs/bench_4090_phaseB_diag \
    --groups sweep_z0_mb128_nw6_pf4,sweep_z1_mb160_nw6_pf2 --min-repeats 3
"""

from __future__ import annotations

import sys
from pathlib import Path

# Only the standard library is needed, so any Python from 3.11 on will do, also one that Seatrial is not installed for.
sys.path.append(str(Path(__file__).resolve().parents[3] / "src"))

from seatrial_runbooks.stage1.phaseb_check import main

if __name__ == "__main__":
    sys.exit(main())
