#!/usr/bin/env python3
"""Full fine-tuning with FSDP on the GPUs of one node; `--help` lists the flags.

torchrun --standalone --nproc_per_node=8 training/src/train_sft_fsdp_min.py --run_name sft_fsdp_1node_smoke
"""

import sys

try:
    from seatrial_runbooks.sft.command_line import main
except ModuleNotFoundError as error:
    sys.exit(f"train_sft_fsdp_min.py: {error} for {sys.executable}; run: source training/env.sh")

if __name__ == "__main__":
    sys.exit(main("train_sft_fsdp_min"))
