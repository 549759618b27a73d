"""One rank of tiny_lm that trains several times in turn: importing torch takes longer than the training.

python -m tests.workloads.tiny_lm_in_turn PORT SETTINGS.json RUN_DIR [PORT SETTINGS.json RUN_DIR …]
"""

from __future__ import annotations

import os
import sys

from seatrial_workloads.tiny_lm.train import main

if __name__ == "__main__":
    for port, settings, run_dir in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3], strict=True):
        os.environ["MASTER_PORT"] = port
        main(["--settings", settings, "--run-dir", run_dir])
