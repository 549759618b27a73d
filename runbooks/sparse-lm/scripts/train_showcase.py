#!/usr/bin/env python3
"""Sparse-attention language-model training under the name that its commands use; `--help` lists flags and variables.

CONFIG=configs/m7c_125m_2xa100_production.yaml torchrun --nproc_per_node=2 scripts/train_showcase.py --dataset synthetic --ddp 1 --steps 300
"""

import sys

try:
    from seatrial_workloads.sparse_lm.showcase import main
except ModuleNotFoundError as error:
    sys.exit(f"train_showcase.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
