#!/usr/bin/env python3
"""Mean and standard deviation of training.csv over the last steps, with n, window and path.

python scripts/last_window.py artifacts/m7c_125m_2xa100_prod/training.csv --steps 50
"""

from __future__ import annotations

import sys

try:
    from seatrial_runbooks.sparse_lm.training_csv import main
except ModuleNotFoundError as error:
    sys.exit(f"last_window.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
