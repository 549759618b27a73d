#!/usr/bin/env python3
"""Full fine-tuning on one GPU; `--help` lists the flags.

python training/src/train_sft_min.py --run_name sft_1gpu_smoke --max_steps 10
"""

import sys

try:
    from seatrial_runbooks.sft.command_line import main
except ModuleNotFoundError as error:
    sys.exit(f"train_sft_min.py: {error} for {sys.executable}; run: source training/env.sh")

if __name__ == "__main__":
    sys.exit(main("train_sft_min"))
