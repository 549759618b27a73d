"""Lines of slowness as torch, NCCL and others print them, by entry of the registry."""

from __future__ import annotations

_STRIDES = "Grad strides do not match bucket view strides. This may indicate grad was not created according to the gradient layout contract"
SLOW_LINES = {
    "flash_fallback": (
        "NSA-LOG sdpa.audit sel=fallback win=flash",
        "UserWarning: 1Torch was not compiled with flash attention. (Triggered internally at sdp_utils.cpp:555.)",
        "UserWarning: Flash attention kernel not used because: (Triggered internally at sdp_utils.cpp:904.)",
        "INFO 11-15 14:02:07 [cuda.py:290] Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
        "flash_attention is not available on this device, falling back to sdpa",
        "attention: falling back to math",
    ),
    "flash_dtype": (
        "Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in Wav2Vec2Model is torch.float32.",
        "You are attempting to use Flash Attention 2.0 without specifying a torch dtype. This might lead to unexpected behaviour",
    ),
    "sequential_prefill": ("NSA-LOG prefill path=sequential S=2048", "using sequential prefill"),
    "bucket_strides": (f"/opt/torch/autograd/graph.py:841: UserWarning: {_STRIDES}, or that the param's strides changed",),
    "find_unused": (
        "[W1115 14:02:40.1 reducer.cpp:1430] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any "
        "unused parameters in the forward pass.",
    ),
    "debug_on": ("/opt/torch/autograd/__init__.py:221: UserWarning: Anomaly Detection has been enabled. This mode will slow",),
    "socket_transport": ("gpu-01:4001:4121 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",),
    "p2p_off": ("gpu-01:4001:4121 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",),
    "few_workers": (
        "The 'train_dataloader' does not have many workers which may be a bottleneck. Consider increasing the value of `num_workers`",
        "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 8",
    ),
    "tf32_off": (
        "UserWarning: TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled.",
        "You are using a CUDA device ('NVIDIA H100') that has Tensor Cores. To properly utilize them, you should set the precision",
    ),
    "allocator_flushes": (
        "[2026-11-15 14:02:31,880] [WARNING] [stage3.py:2171:step] 3 pytorch allocator cache flushes since last step. this happens when",
    ),
    "recompiles": ("W1115 14:02:31.880 torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.recompile_limit (8)",),
    "kv_preemption": ("WARNING 11-15 14:02:31 [core.py:1057] Sequence group 7 is preempted because there is not enough KV cache space.",),
}
