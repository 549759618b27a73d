"""Variables that were meant for the driver and are misspelled. In: an environment, the names we know. Out: a sentence for each.

What begins as only our names do is ours. Of the rest, what is very like one of ours is taken for a slip, unless it is a name that other
programs use: an environment holds hundreds of names that are none of our business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from seatrial.errors import nearest

OUR_PREFIX = "SWEEP_"
# Others may have variables that begin so; what is somewhat like one of ours is ours.
SHARED_PREFIX, SHARED_LIKENESS = "AB_", 0.7
LIKENESS = 0.84
# Of names as short as MODE too many words are very like.
SHORTEST_NAME = 6
# Programs that have many variables, some of them like ours.
FOREIGN_PREFIXES = (
    "ACCELERATE_", "AWS_", "BASH_", "CI_", "CMAKE_", "CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "DBUS_", "DEEPSPEED_", "DOCKER_", "DS_",
    "GCC_", "GIT_", "GITHUB_", "GITLAB_", "GLOO_", "GOOGLE_", "HF_", "HYDRA_", "I_MPI_", "JUPYTER_", "KMP_", "KUBERNETES_", "LC_", "LD_",
    "MKL_", "MLFLOW_", "MODULES_", "MPI_", "MPICH_", "NCCL_", "NIX_", "NVIDIA_", "NVTE_", "OMP_", "OMPI_", "OPAL_", "OPENBLAS_", "PALS_",
    "PBS_", "PIP_", "PMI_", "PMIX_", "PYTEST_", "PYTHON", "PYTORCH_", "SEATRIAL_", "SLURM_", "SSH_", "TENSORBOARD_", "TF_",
    "TOKENIZERS_", "TORCHELASTIC_", "TORCHINDUCTOR_", "TRANSFORMERS_", "TRITON_", "UCX_", "VLLM_", "VSCODE_", "WANDB_", "XDG_", "XLA_",
)  # fmt: skip
FOREIGN_NAMES = (
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DATA_ROOT", "DATASET_DIR", "DATASET_PATH", "EXPERIMENT_ID", "EXPERIMENT_NAME",
    "GROUP_WORLD_SIZE", "INCLUDE_PATH", "INCLUDES", "LIBRISPEECH_MANIFEST_PATH", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_HOST", "MODEL",
    "MODEL_PATH", "OUTPUT_DIR", "OUTPUT_PATH", "ROLE_WORLD_SIZE", "TIMEOUT_SEC",
)  # fmt: skip
# torch has a dozen names that begin like TORCH_COMPILE_MODE: only what is all but that is taken for it.
TORCH, TORCH_LIKENESS = "TORCH_", 0.9


def misspelled_names(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A sentence for each name that looks like ours and is not; one without a value changes nothing and is let pass."""
    candidates = sorted(name for name, value in environ.items() if value and name not in known)
    meant = {name: _meant(name, known) for name in candidates}
    return [f"{name} is no variable of this driver: {guess}" for name, guess in meant.items() if guess]


def _meant(name: str, known: Collection[str]) -> str | None:
    """What to say instead of this name; None where it is somebody else's."""
    if name.startswith(OUR_PREFIX):
        near = nearest(name, sorted(known), 0.6)
        return f"did you mean {near}?" if near else "--help lists them all"
    if name.startswith(SHARED_PREFIX):
        near = nearest(name, sorted(word for word in known if word.startswith(SHARED_PREFIX)), SHARED_LIKENESS)
        return f"did you mean {near}?" if near else None
    if name in FOREIGN_NAMES or name.startswith(FOREIGN_PREFIXES) or (name != name.upper() and "_" not in name):
        return None
    likeness = TORCH_LIKENESS if name.startswith(TORCH) else LIKENESS
    near = nearest(name.upper(), sorted(word for word in known if len(word) >= SHORTEST_NAME), likeness)
    return f"did you mean {near}?" if near else None


def shortened_names(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A sentence for each name that one of ours would have without one of its words: PRECISION, TAIL_POINTS. Others may use such names,
    so they are only told."""
    told = []
    others = (*FOREIGN_PREFIXES, TORCH)
    for name in sorted(name for name, value in environ.items() if value and name not in known and not name.startswith(others)):
        parts = set(name.split("_"))
        meant = [word for word in known if parts < set(word.split("_")) and len(word.split("_")) == len(name.split("_")) + 1]
        if meant:
            told.append(f"{name} is no variable of this driver and has no effect; did you mean {' or '.join(meant)}?")
    return told
