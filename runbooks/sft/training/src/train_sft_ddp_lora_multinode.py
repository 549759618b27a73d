#!/usr/bin/env python3
"""Full or LoRA fine-tuning with DDP on the GPUs of several nodes; `--help` lists the flags.

sbatch training/slurm/train_ddp_2node.sbatch
"""

import sys

try:
    from seatrial_runbooks.sft.command_line import main
except ModuleNotFoundError as error:
    sys.exit(f"train_sft_ddp_lora_multinode.py: {error} for {sys.executable}; run: source training/env.sh")

if __name__ == "__main__":
    sys.exit(main("train_sft_ddp_lora_multinode"))
