"""Lines of failure in other wordings than the recorded ends have."""

from __future__ import annotations

# Other wordings of the same: id → lines that each must be told by it alone.
WORDINGS = {
    "ninja_missing": ("[FATAL] ninja missing", "RuntimeError: Ninja is required to load C++ extensions"),
    "pdsh_missing": ("[FATAL] pdsh missing",),
    "hostfile": (
        "[FATAL] hostfile missing/empty",
        "RuntimeError: Using hostfile at hosts but host=worker-2 was not reachable via ssh.",
    ),
    "no_slot": (
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: no GPU resources available",
    ),
    "fp16_on_cpu": ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",),
    "slurm_time_limit": (
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        "=>> PBS: job killed: walltime 3620 exceeded limit 3600",
    ),
    "preempted": ("Preempted by job 4712 in partition high", "Spot instance interruption notice received"),
    "evicted": ("Pod was terminated in response to imminent node shutdown.", "status: Failed, reason: Evicted"),
    "kubernetes_oom": ("[812.4] Memory cgroup out of memory: Killed process 4003 (python) total-vm:1048kB",),
    "host_lost": ("Connection to jw2 closed by remote host.", "ssh: Could not resolve hostname jw4: Name or service not known"),
    "slurm_refused": ("sbatch: error: invalid partition specified: gpus", "sbatch: error: Requested node configuration is not available"),
    "vllm_kv_cache": (
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (3.45 GiB).",
        "ValueError: Free memory on device (3.1/23.5 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB).",
    ),
    "shared_memory": ("RuntimeError: unable to write to file </torch_4003_17_0>: No space left on device (28)",),
    "host_oom": ("[812.5] oom_reaper: reaped process 4003 (python), now anon-rss:0kB", "MemoryError"),
    "gpu_fault": (
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=4003, Double Bit ECC Error",
        "Unable to determine the device handle for GPU0: 0000:3B:00.0: Unknown Error",
    ),
    "driver_mismatch": (
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    "no_driver": (
        "RuntimeError: CUDA error: system not yet initialized",
        "RuntimeError: no CUDA-capable device is detected",
    ),
    "gpu_access": (
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4003, MMU Fault",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "nccl_interface": (
        "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
        "h1:1:1 [0] NCCL WARN Net : No interface found in the same subnet as remote address 10.1.0.2<4711>",
    ),
    "nccl_version": (
        "h1:1:1 [0] bootstrap.cc:81 NCCL WARN Message truncated : received 1024 bytes instead of 256",
        "ImportError: libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
    ),
    "nccl_route": ("h1:1:1 [0] include/socket.h:360 NCCL WARN Call to connect to 10.0.0.9<4711> failed : Connection timed out",),
    "ibv_error": (
        "h1:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "h1:1:1 [0] NCCL WARN NET/IB: ibp198s0f0:1 async fatal event on QP: local access violation work queue error",
        "NCCL error: unhandled system error, Call to ibv_modify_qp failed",
    ),
    "ibv_completion": (
        "h1:1:1 [1] NCCL WARN NET/IB: Got completion from peer 10.0.0.3<40554> with status=IBV_WC_RETRY_EXC_ERR(12) vendor_err=129 hca x",
    ),
    "monitored_barrier": ("RuntimeError: ProcessGroupWrapper: Monitored Barrier encountered error running collective: x",),
    "rendezvous_timeout": ("[c10d] The client socket has failed to connect to any network address of (h1, 29500).",),
    "cache_race": ("FileNotFoundError: Directory /hf/tok is neither a `Dataset` directory nor a `DatasetDict` directory.",),
    "hub_unreachable": ("requests.exceptions.ConnectionError: HTTPSConnectionPool('x'): Temporary failure in name resolution",),
    "read_only": ("tee: out/driver.log: Read-only file system",),
    "loader_timeout": ("RuntimeError: DataLoader timed out after 120 seconds",),
    "native_crash": (
        "mpirun noticed that process rank 0 with PID 1 on node n1 exited on signal 11 (Segmentation fault).",
        "srun: error: gpu-01: task 1: Segmentation fault (core dumped)",
    ),
    "killed": ("srun: error: gpu-01: tasks 1-3: Killed",),
    "collective_timeout": ("RuntimeError: [unbound_buffer.cc:82] Timed out waiting 1800000ms for recv operation to complete",),
    "peer_lost": ("ConnectionResetError: [Errno 104] the other side is gone",),
    "nan": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "FloatingPointError: Loss became not finite",
    ),
    "gpu_busy": ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",),
    "op_build": (
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/t/cuda_utils.c', '-O3']' returned non-zero exit status 1.",
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
        "RuntimeError: Error compiling objects for extension",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "torch._inductor.exc.InductorError: CppCompileError: C++ compile error",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "collect2: error: ld returned 1 exit status",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        "/opt/ops/csrc/adam/multi_tensor_adam.cu(31): error: identifier is undefined",
    ),
    "shm_comm_build": ("/opt/ds/csrc/cpu/comm/shm.cpp:12:10: fatal error: numa.h: No such file or directory",),
    "ibv_memlock": ("h1:1:1 [0] misc/ibvwrap.cc:172 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory errno 12",),
    "checkpoint_write": (
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 1664 vs 1558",
        "RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/3: file write failed",
    ),
    "store_timeout": (
        "torch.distributed.DistNetworkError: Connection timed out",
        "RuntimeError: Socket Timeout",
    ),
    "cuda_oom": (
        "terminate called after throwing an instance of 'c10::OutOfMemoryError'",
        "CUDA error: out of memory",
        "[E1115 14:42:40.1 train.cpp:3] ERROR CUDA out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    "program_missing": ("/bin/sh: 1: numactl: not found",),
    "permission": ("cp: cannot create regular file '/data/x': Permission denied",),
}
