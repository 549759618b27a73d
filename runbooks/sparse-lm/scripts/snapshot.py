#!/usr/bin/env python3
"""What a validation runs on: git_sha.txt, collect_env.txt, nvidia_smi.xml.

python scripts/snapshot.py --out artifacts
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.sparse_lm.snapshot import main
except ModuleNotFoundError as error:
    sys.exit(f"snapshot.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
