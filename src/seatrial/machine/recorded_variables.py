"""Which variables are written down of an environment: those that can change how a job runs. The rest reaches the ranks too, and is
nobody's business."""

from __future__ import annotations

# What of the caller's environment can change how a job runs; the rest reaches the ranks too, and is nobody's business.
RECORDED_PREFIXES = (
    "NCCL_",
    "GLOO_",
    "UCX_",
    "TORCH",
    "PYTORCH_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "NSA_",
    "NSYS_",
    "NVTE_",
    "NVTX_",
    "TRITON_",
    "XLA_",
    "HF_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
    "DS_",
    "DEEPSPEED_",
    "ACCELERATE_",
    "VLLM_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "MALLOC_",
    "MASTER_",
    "PYTHON",
    "LD_",
)
# Of these, what tunes a run: another value is another condition, and runs under unlike conditions are not averaged.
TUNING_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVTE_", "XLA_", "NSA_",
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "MALLOC_",
)  # fmt: skip
# Where things lie or which cards are seen: the cards themselves are in the fingerprint already.
NOT_TUNING = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "NCCL_DEBUG_FILE"})
RECORDED_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "ENABLE_CUDA_SYNC_TIMING",
)


def is_recorded(name: str) -> bool:
    """Whether a variable of the caller's is written down."""
    return name.startswith(RECORDED_PREFIXES) or name in RECORDED_NAMES
