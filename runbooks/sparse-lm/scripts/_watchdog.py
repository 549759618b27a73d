#!/usr/bin/env python3
"""A watchdog beside a training: started before it, in the background; it ends with it. `--help` lists its variables.

python scripts/_watchdog.py --dir artifacts/m7c_125m_2xa100_prod --halt 1 --interval 30 &
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.sparse_lm.watchdog import main
except ModuleNotFoundError as error:
    sys.exit(f"_watchdog.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
