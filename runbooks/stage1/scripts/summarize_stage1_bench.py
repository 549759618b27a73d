#!/usr/bin/env python3
"""Recompute the tables and reports of a campaign with another tail or baseline; for a folder of the original scripts, in its `seatrial`.

./scripts/summarize_stage1_bench.py --manifest outputs/bench/run_manifest.tsv --output-root outputs/bench --tail-points 10
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.stage1.summarize import main
except ModuleNotFoundError as error:
    sys.exit(f"summarize_stage1_bench.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
