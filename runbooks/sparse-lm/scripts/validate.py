#!/usr/bin/env python3
"""The whole validation as one command, from the snapshot to the acceptance table.

python scripts/validate.py --out outputs/sparse-lm
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.sparse_lm.validate import main
except ModuleNotFoundError as error:
    sys.exit(f"validate.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
