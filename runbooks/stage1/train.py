"""Stage 1 training under the name that its commands use; `python train.py --help` lists every key, docs/stage1.md explains them.

deepspeed --include localhost:0,1 train.py +experiment=limit_longest_1-3_stage1_bf16 ++dataset.root_dir=data/LibriSpeech_16k_trim
"""

import sys

try:
    from seatrial_workloads.contrastive.hydra_config.train import main
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    how = "activate the environment that seatrial is installed in"
    if not package.startswith("seatrial"):
        how = "pip install 'seatrial[stage1]', in a checkout -e '.[stage1]'"
    sys.exit(f"train.py: {error} for {sys.executable}; {how}")

if __name__ == "__main__":
    main()
