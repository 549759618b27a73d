#!/usr/bin/env bash
# The part of train_ddp_2node.sbatch that srun starts on every node: environment, what this node sees, checks, torchrun.
set -euo pipefail

# shellcheck disable=SC1091
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../env.sh"
cd -- "$SHARED_ROOT"
address="$(bash "$REPO_ROOT/training/slurm/address.sh" "$NIC")"
export NPROC_PER_NODE="${NPROC_PER_NODE:-8}"

python - <<'PY'
import os, socket
names = ("MASTER_ADDR", "MASTER_PORT", "RDZV_ENDPOINT", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
seen = {"host": socket.gethostname(), **{name: os.environ.get(name) for name in names}}
# In one piece: lines of two nodes would mix.
print("".join(f"{name} {value}\n" for name, value in seen.items()), end="", flush=True)
PY
nvidia-smi -L || echo "$(hostname): no nvidia-smi: no GPU here"

script="$REPO_ROOT/training/src/train_sft_ddp_lora_multinode.py"
arguments=(
  --run_name sft_ddp_2node_lora_smoke
  --max_steps 10
  --seq_len 512
  --bsz 1
  --grad_accum 1
  --bf16 True
  --gradient_checkpointing False
  --use_lora
  --lora_r 8
  --lora_alpha 16
  --lora_dropout 0.05
)
python "$script" --check "${arguments[@]}"

# --local_addr: by itself torchrun announces whatever the node's name resolves to.
torchrun \
  --nnodes="$SLURM_JOB_NUM_NODES" \
  --nproc_per_node="$NPROC_PER_NODE" \
  --node_rank="$SLURM_NODEID" \
  --rdzv_backend=c10d \
  --rdzv_id="$SLURM_JOB_ID" \
  --rdzv_endpoint="$RDZV_ENDPOINT" \
  --local_addr="$address" \
  "$script" "${arguments[@]}"
