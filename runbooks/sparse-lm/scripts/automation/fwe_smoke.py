#!/usr/bin/env python3
"""Whether the FineWeb-Edu loader gives a first batch in time: `[smoke][OK] …`, or `[smoke][FAIL] …` and exit code 2.

python scripts/automation/fwe_smoke.py --seq-len 1024 --batch 1 --timeout 60 --tokenizer gpt2
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.sparse_lm.loader_smoke import run
except ModuleNotFoundError as error:
    sys.exit(f"fwe_smoke.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    run()
