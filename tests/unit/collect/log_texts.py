"""Lines as torch, NCCL, DeepSpeed and schedulers print them: failures recorded and in other wordings, harmless lines, signs of slowness."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "recorded" / "failures"
# File → (entry, part of its line).
RECORDED_SIGNATURES = {
    "activate_failed": ("activate_failed", "item 2 of activate in site.yaml failed with exit code 1"),
    "batch_shell": ("batch_shell", "set: Illegal option -o pipefail"),
    "bus_error": ("bus_error", "4003 Bus error (core dumped) python train.py"),
    "cache_race": ("cache_race", "cache-4f1c0d9a77b2e3aa.arrow"),
    "checkpoint_write": ("checkpoint_write", "unexpected pos 9437312 vs 9437206"),
    "collective_mismatch": ("collective_mismatch", "Detected mismatch between collectives on ranks"),
    "cuda_oom_in_nccl": ("cuda_oom", "Cuda failure 2 'out of memory'"),
    "cuda_oom_optimizer": ("cuda_oom", "Tried to allocate 112.00 MiB"),
    "deepspeed_collective_timeout": ("collective_timeout", "[Rank 0] Watchdog caught collective operation timeout"),
    "deepspeed_cuda_oom": ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.34 GiB."),
    "deepspeed_flash_attention_fp32": ("flash_attention_fp32", "RuntimeError: FlashAttention only support fp16 and bf16 data type"),
    "deepspeed_host_not_in_hostfile": ("hostfile", "Hostname 'worker-1' not found in hostfile"),
    "deepspeed_hostfile_empty": ("hostfile", "ValueError: Hostfile is empty or not formatted correctly"),
    "deepspeed_local_rank": ("local_rank", "unrecognized arguments: --local_rank=0"),
    "deepspeed_loss_scale": ("nan", "Exception: Current loss scale already at minimum"),
    "deepspeed_master_address": ("master_address", "Unable to detect suitable master address via 'hostname -I'"),
    "deepspeed_missing_bash": ("deepspeed_missing", "deepspeed: command not found"),
    "deepspeed_missing_env": ("deepspeed_missing", "deepspeed’: No such file or directory"),
    "deepspeed_missing_sh": ("deepspeed_missing", "/opt/venv/bin/deepspeed: not found"),
    "deepspeed_no_hostfile": ("hostfile", "no extra nodes available via hostfile"),
    "deepspeed_no_ninja": ("ninja_missing", "Unable to JIT load the fused_adam op due to ninja"),
    "deepspeed_no_ninja_sh": ("ninja_missing", "ninja: command not found"),
    "deepspeed_no_pdsh": ("pdsh_missing", "RuntimeError: launcher 'pdsh' not installed"),
    "deepspeed_no_pdsh_sh": ("pdsh_missing", "/bin/sh: 1: pdsh: not found"),
    "deepspeed_no_slot": ("no_slot", "No slot '1' specified on host 'localhost'"),
    "deepspeed_node_rank": ("node_rank", "Launching training without ssh, but --node_rank is not set correctly"),
    "deepspeed_not_installed": ("deepspeed_not_installed", "No module named 'deepspeed'"),
    "deepspeed_rank_killed": ("killed", "a rank was killed by signal 9"),
    "deepspeed_shm_comm_build": ("shm_comm_build", "Error building extension 'deepspeed_shm_comm'"),
    "sft_refused": ("trainer_refused", "sft: error: model 'mistralai/Mistral-7B-v0.1' must be downloaded"),
    "deepspeed_trainer_refused": ("trainer_refused", "train.py: error: dataset.manifest_path is data/other.tsv"),
    "driver_mismatch": ("driver_mismatch", "driver on your system is too old"),
    "driver_mismatch_nvml": ("driver_mismatch", "Driver/library version mismatch"),
    "duplicate_gpu": ("duplicate_gpu", "both on CUDA device 3b000"),
    "evicted": ("evicted", "low on resource: ephemeral-storage"),
    "extension_abi": ("extension_abi", "undefined symbol: _ZN3c105"),
    "fp16_on_cpu": ("fp16_on_cpu", "Type fp16 is not supported"),
    "gated_model": ("gated_model", "GatedRepoError"),
    "gpu_access": ("gpu_access", "device-side assert triggered"),
    "gpu_busy": ("gpu_busy", "devices are busy or unavailable"),
    "gpu_fault_behind_access": ("gpu_fault", "uncorrectable ECC error encountered"),
    "gpu_fault_ecc": ("gpu_fault", "uncorrectable ECC error"),
    "gpu_fault_xid": ("gpu_fault", "fallen off the bus"),
    "host_lost_slurm": ("host_lost", "Node failure on gpu-07"),
    "host_lost_ssh": ("host_lost", "ssh: connect to host jw2 port 22: No route to host"),
    "hub_offline": ("hub_offline", "offline mode is enabled"),
    "hub_rate_limit": ("hub_rate_limit", "429 Client Error: Too Many Requests"),
    "hub_unreachable": ("hub_unreachable", "couldn't connect to 'https://huggingface.co'"),
    "ibv_completion": ("ibv_completion", "with status=12 opcode=0"),
    "ibv_memlock": ("ibv_memlock", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"),
    "ibv_memlock_qp": ("ibv_memlock", "Call to ibv_create_qp failed with error Cannot allocate memory"),
    "ibv_modify_qp": ("ibv_error", "Call to ibv_modify_qp failed with error Connection timed out"),
    "io_error_stale": ("io_error", "Stale file handle"),
    "kernel_oom": ("host_oom", "Out of memory: Killed process 4003"),
    "kubernetes_oom": ("kubernetes_oom", "reason: OOMKilled"),
    "launch_failure": ("launch_failure", "unspecified launch failure"),
    "loader_timeout": ("loader_timeout", "[smoke][FAIL] no batch within 60.0s"),
    "loadgen_invalid": ("loadgen_invalid", "Result is : INVALID"),
    "monitored_barrier": ("monitored_barrier", "Ranks 3 failed to pass monitoredBarrier"),
    "mpirun_killed": ("killed", "exited on signal 9 (Killed)"),
    "name_unknown": ("name_unknown", "socket.gaierror: [Errno -2]"),
    "nan_halt": ("nan", "halt: nan_loss"),
    "nccl_handshake": ("nccl_handshake", "socketFinalizeAccept: wrong type 3 != 4"),
    "loopback_address": ("loopback_address", "Gloo connectFullMesh failed with"),
    "nccl_interface": ("nccl_interface", "Bootstrap : no socket interface found"),
    "nccl_interface_gloo": ("nccl_interface", "Unable to find address for: eth9"),
    "nccl_refused": ("nccl_refused", "Connect to 10.0.0.2<41217> failed : Connection refused"),
    "nccl_remote": ("nccl_remote", "remote process exited or there was a network error"),
    "nccl_route": ("nccl_route", "failed : No route to host"),
    "nccl_transport": ("nccl_transport", "unhandled system error"),
    "nccl_version": ("nccl_version", "Mismatched NCCL version detected"),
    "no_driver": ("no_driver", "Found no NVIDIA driver"),
    "no_kernel_image": ("no_kernel_image", "no kernel image is available"),
    "oom_only_warned_of": ("disk_full", "No space left on device"),
    "op_build": ("op_build", "RuntimeError: Error building extension 'fused_thing'"),
    "op_build_inductor": ("op_build", "Failed to find C compiler"),
    "op_build_no_cuda_home": ("op_build", "CUDA_HOME does not exist"),
    "open_files": ("open_files", "Too many open files"),
    "passed_over_del": ("io_error", "[Errno 5] Input/output error"),
    "passed_over_logging": ("cuda_oom", "Tried to allocate 1.19 GiB"),
    "passed_over_thread": ("disk_full", "[Errno 28] No space left on device"),
    "permission": ("permission", "./run.sh: Permission denied"),
    "permission_mkdir": ("permission", "mkdir: cannot create directory"),
    "preempted": ("preempted", "DUE TO PREEMPTION"),
    "program_missing": ("program_missing", "torchrunn: command not found"),
    "read_only": ("read_only", "Read-only file system"),
    "ready_twice": ("ready_twice", "mark a variable ready only once"),
    "rendezvous_clients": ("rendezvous_timeout", "1/2 clients joined"),
    "rendezvous_timeout": ("rendezvous_timeout", "The client socket has timed out after 3000ms"),
    "shared_library": ("shared_library", "libcudart.so.12: cannot open shared object file"),
    "shared_memory_bus": ("shared_memory", "insufficient shared memory (shm)"),
    "shared_memory_nccl": ("shared_memory", "failed to extend /dev/shm/nccl-a1B2c3"),
    "slurm_cancelled": ("scheduler", "STEP 494591.0 ON gpu-01 CANCELLED AT"),
    "slurm_mpi": ("slurm_mpi", "plugin name for mpi/pmix"),
    "slurm_oom": ("slurm_oom", "Detected 1 oom_kill event"),
    "slurm_refused": ("slurm_refused", "Invalid generic resource (gres)"),
    "slurm_refused_processors": ("slurm_refused", "More processors requested than permitted"),
    "slurm_time_limit": ("slurm_time_limit", "DUE TO TIME LIMIT"),
    "ssh_denied": ("ssh_denied", "Permission denied (publickey,password)"),
    "store_timeout": ("store_timeout", "got error: wait timeout after 600000ms"),
    "store_timeout_hides_nothing": ("file_missing", "'/data/tokens.bin'"),
    "torchrun_bad_argument": ("bad_argument", "train.py: error: unrecognized arguments: --bz 8"),
    "torchrun_bad_usage": ("bad_usage", "python -m seatrial_workloads.sparse_lm.train: error: dim is 0; it must be 1 or more"),
    "torchrun_disk_full": ("disk_full", "OSError: [Errno 28] No space left on device"),
    "torchrun_file_missing": ("file_missing", "No such file or directory: 'data/train.bin'"),
    "torchrun_host_oom": ("host_oom", "DefaultCPUAllocator: can't allocate memory"),
    "torchrun_import_error": ("import_error", "ModuleNotFoundError: No module named 'flash_attn'"),
    "torchrun_io_error": ("io_error", "OSError: [Errno 5] Input/output error"),
    "torchrun_nan": ("nan", "ValueError: loss is nan at step 2"),
    "shell_segfault": ("native_crash", "Segmentation fault (core dumped) python train.py"),
    "torchrun_native_crash": ("crash_with_stack", "Fatal Python error: Aborted"),
    "torchrun_peer_lost": ("peer_lost", "Connection closed by peer [127.0.0.1]:1428"),
    "torchrun_port_in_use": ("port_in_use", "port: 29775, useIpv6: false, code: -98, name: EADDRINUSE"),
    "torchrun_rank_killed": ("killed", "rank 1 was killed by signal 9"),
    "unused_parameters": ("unused_parameters", "finished reduction in the prior iteration"),
    "vllm_dtype": ("vllm_dtype", "Bfloat16 is only supported"),
    "vllm_engine": ("engine_start", "Engine core initialization failed"),
    "vllm_kv_cache": ("vllm_kv_cache", "No available memory for the cache blocks"),
    "vllm_kv_cache_old": ("vllm_kv_cache", "tokens that can be stored in KV cache"),
    "watchdog_halt": ("halted", "halt: heartbeat_stall"),
    "communicator_aborted": ("communicator_aborted", "NCCL communicator was aborted on rank 1"),
    "went_on_after_traceback": ("io_error", "[Errno 5] Input/output error"),
}


def recorded(name: str) -> list[str]:
    """The lines of one of them."""
    return (FOLDER / f"{name}.log").read_text(encoding="utf-8").splitlines()


# Other wordings: id → lines that each must match it alone.
WORDINGS = {
    "halted": ("sparse_lm: halted by .HALT before step 41 of 1200: gate_collapse (run base_r1, attempt 1)",),
    "communicator_aborted": ("RuntimeError: NCCL communicator was aborted.",),
    "shared_library": (
        "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        "python: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory",
    ),
    "bus_error": ("Bus error (core dumped)", "srun: error: gpu-01: task 3: Bus error (core dumped)"),
    "nccl_refused": (
        "gpu-02:4003:4100 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41217> failed : Connection refused",
        "gpu-02:4003:4100 [0] NCCL WARN socketPollConnect: Connect to 10.0.0.2<41217> returned 111(Connection refused) errno 115",
        "gpu-02:4003:4100 [0] include/socket.h:403 NCCL WARN Call to connect to 10.0.0.2<41217> failed : Connection refused",
    ),
    "hub_offline": (
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been "
        "disabled. To enable hf.co look-ups and downloads online, set 'local_files_only' to False.",
        "ConnectionError: Couldn't reach 'org/data' on the Hub (OfflineModeIsEnabled)",
    ),
    "hub_rate_limit": ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/org/model",),
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
    "host_oom": (
        "[812.5] oom_reaper: reaped process 4003 (python), now anon-rss:0kB",
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    ),
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
    "loader_timeout": (
        "RuntimeError: DataLoader timed out after 120 seconds",
        "sparse_lm: error: no batch of fineweb_edu within 60 s (loader_timeout_s, --loader-timeout): use dataset=fineweb_edu_local",
        "train_showcase: error: opening fineweb_edu took longer than 60 s (loader_timeout_s, --loader-timeout): use …",
    ),
    "bad_argument": ("Error: No such option: --bz", "torchrun: error: ambiguous option: --n could match --nnodes, --nproc-per-node"),
    "trainer_refused": (
        "sft: error: strategy is fsdp, and LlamaModel has no list of decoder layers to shard: use strategy=ddp",
        "contrastive: error: precision is 'fp16', and a CPU has no loss scaling for it: use precision=auto, bf16 or fp32, or a GPU",
    ),
    "native_crash": (
        "bash: line 1:  4003 Segmentation fault      (core dumped) python train.py",
        "mpirun noticed that process rank 0 with PID 1 on node n1 exited on signal 11 (Segmentation fault).",
        "srun: error: gpu-01: task 1: Segmentation fault (core dumped)",
    ),
    "killed": ("srun: error: gpu-01: tasks 1-3: Killed", "Killed", "run.sh: line 28:  8156 Killed                  python3 main.py"),
    "collective_timeout": (
        "RuntimeError: [unbound_buffer.cc:82] Timed out waiting 1800000ms for recv operation to complete",
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0. Original reason for failure was: watchdog timeout",
    ),
    "peer_lost": (
        "ConnectionResetError: [Errno 104] the other side is gone",
        "sparse_lm: error: another rank got no first batch",
        "sft: error: the checkpoint runs/a/checkpoints/ckpt_iter_9 could not be written (another rank failed to write; 12 MiB free): …",
    ),
    "nan": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "FloatingPointError: Loss became not finite",
        "train_showcase: error: the loss of step 41 is not finite (nan): all ranks end; look at the data and the learning rate",
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
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    ),
    "program_missing": ("/bin/sh: 1: numactl: not found",),
    "permission": ("cp: cannot create regular file '/data/x': Permission denied",),
}


EARLY_QUERY = "Attempting to get learning rate from scheduler before it has started"
WRONG_ORDER = (
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them"
)
NOT_CALLED = "Warning: WARNING: destroy_process_group() was not called before program exit"
WHERE_TO_READ = "which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown"
NOT_DESTROYED = "Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. On normal program exit, the"
# With and without the mark that the merged log puts before a rank's lines.
BY_ID = {
    "triton_autotune": (
        "df: /root/.triton/autotune: No such file or directory",
        "df: .triton/autotune: No such file or directory",
        "[rank3]: df: ‘/home/me/.cache/triton_7/autotune’: No such file or directory",
    ),
    "lr_scheduler_early": (
        f"[2026-11-15 14:02:31,880] [WARNING] [lr_schedules.py:906:get_lr] {EARLY_QUERY}",
        f"[rank1]: /opt/venv/lib/torch/optim/lr_scheduler.py:267: {WRONG_ORDER} in the opposite order: `optimizer.step()` first.",
    ),
    "no_hostfile": (
        "[2026-11-15 14:02:11,120] [WARNING] [runner.py:232:fetch_hostfile] Unable to find hostfile, will proceed with training with local "
        "resources only.",
    ),
    "destroy_process_group": (
        f"[rank0]:[W1115 14:02:40.115640219 ProcessGroupNCCL.cpp:1538] {NOT_CALLED}, {WHERE_TO_READ} (function operator())",
        f"[rank0]: [rank0]:[W702 01:08:23.472346684 ProcessGroupNCCL.cpp:1476] {NOT_CALLED}",
        f"[rank1]:[W402 14:24:36.814764033 ProcessGroupNCCL.cpp:1250] {NOT_DESTROYED} application should call destroy_process_group to "
        "ensure that any pending NCCL operations have finished in this process.",
    ),
}
HARMLESS_LINES = [line for lines in BY_ID.values() for line in lines]


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
