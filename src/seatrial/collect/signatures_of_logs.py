"""What any script, library or launcher says when it fails. Part of the registry: collect.signatures.

The earlier entry wins where one line fits two.
"""

from __future__ import annotations

from seatrial.collect.signature import STAGE1, Signature
from seatrial.records.outcome import Cause

_RAISED = r"^(?:\w+\.)*"

OF_LOGS: tuple[Signature, ...] = (
    Signature(
        id="cuda_oom",
        symptom="`CUDA out of memory`, `torch.OutOfMemoryError`",
        cause=Cause.CUDA_OOM,
        why="The group needs more memory than the GPU has free; ranks that an earlier job left behind hold theirs.",
        action="Lower the batch or sequence size of this group, or look with `nvidia-smi` for another process on the GPU.",
        patterns=(r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",),
        topics=(STAGE1,),
    ),
    Signature(
        id="host_oom",
        symptom="`Cannot allocate memory`, `MemoryError`, `DataLoader worker … is killed by signal: Killed`",
        cause=Cause.HOST_OOM,
        why="The machine, or the container's share of it, ran out of memory.",
        action="Lower the number of loader workers or ranks, or give the machine more memory.",
        patterns=(
            r"DefaultCPUAllocator: .*(?:can't allocate|not enough) memory|Cannot allocate memory|Out of memory: Kill",
            rf"{_RAISED}MemoryError\b|is killed by signal: Killed|insufficient shared memory",
        ),
        topics=(STAGE1,),
    ),
    Signature(
        id="port_in_use",
        symptom="`EADDRINUSE`, `Address already in use`",
        cause=Cause.PORT_IN_USE,
        why="A job left behind, or one beside this, holds the master port.",
        action="End the process that holds the port (`ss -ltnp` names it), name another one (place.port, MASTER_PORT), or leave the port "
        "for Seatrial to choose.",
        patterns=(r"EADDRINUSE|[Aa]ddress already in use",),
        topics=(STAGE1,),
    ),
    Signature(
        id="disk_full",
        symptom="`No space left on device`, `Disk quota exceeded`",
        cause=Cause.DISK_FULL,
        why="The disk under the output, the cache or the temporary folder is full, or this user's share of it.",
        action="Free space on that disk, or write the output elsewhere.",
        patterns=(r"No space left on device|Disk quota exceeded",),
        topics=(STAGE1,),
    ),
    Signature(
        id="io_error",
        symptom="`Input/output error`",
        cause=Cause.IO_ERROR,
        why="The storage under a file failed: that is the platform's fault until the opposite is shown.",
        action="Look after the storage first (the kernel's log, the mount), and run again on a healthy node and disk before any figure is "
        "compared with this one.",
        patterns=(r"Input/output error|\[Errno 5\]|\bEIO\b",),
        topics=(STAGE1,),
    ),
    Signature(
        id="import_error",
        symptom="`ModuleNotFoundError`, `ImportError`, `No module named …`",
        cause=Cause.IMPORT_ERROR,
        why="The interpreter that starts the script lacks a package that it imports.",
        action="Install the missing package into the environment that starts the script, or start it with the right interpreter.",
        patterns=(rf"{_RAISED}(?:ModuleNotFoundError|ImportError)\b|^\S*python\S*: No module named ",),
    ),
    Signature(
        id="trainer_refused",
        symptom="`train.py: error: …`",
        cause=Cause.BAD_ARGUMENT,
        why="The stage-1 trainer found something it cannot train with, and ended before it began.",
        action="The line itself says what is wrong and what to do: change the key, or the driver's variable, that it speaks of.",
        # What argparse says of a script of that name is somebody else's.
        patterns=(r"^train\.py: error: (?!unrecognized arguments|argument |the following arguments|ambiguous option|expected )",),
        topics=(STAGE1,),
    ),
    Signature(
        id="bad_argument",
        symptom="`train.py: error: …`, `Error: No such option`",
        cause=Cause.BAD_ARGUMENT,
        why="The script or the launcher refused what it was given.",
        action="Mend the arguments: what that line begins with does not take them; `seatrial plan show` prints what is run.",
        patterns=(r"^\S+: error: |^Error: No such option|^error: unrecognized arguments",),
    ),
    Signature(
        id="program_missing",
        symptom="`command not found`, exit code 127",
        cause=Cause.PROGRAM_MISSING,
        why="A program that the run is started with is not on its PATH.",
        action="Install the program, or write its full path in the plan.",
        patterns=(r"command not found$|No such file or directory: '(?:torchrun|deepspeed|python\S*)'",),
        exit_codes=(127,),
    ),
    Signature(
        id="file_missing",
        symptom="`FileNotFoundError`, `can't open file … No such file or directory`",
        cause=Cause.FILE_MISSING,
        why="A script, a dataset or a checkpoint is not where the command says.",
        action="Check the path: it is looked for from the folder the command is started in.",
        patterns=(rf"{_RAISED}FileNotFoundError\b|can't open file .*No such file|^(?:\S*sh|env|exec): .*No such file",),
    ),
    Signature(
        id="permission",
        symptom="`PermissionError`, `Permission denied`",
        cause=Cause.PERMISSION,
        why="The user who runs it may not read, write or execute a file.",
        action="Give this user the right to that file or folder, or use another one.",
        patterns=(rf"{_RAISED}PermissionError\b|^(?:\S*sh|env|exec): .*Permission denied",),
    ),
    Signature(
        id="flash_attention_fp32",
        symptom="`FlashAttention only support fp16 and bf16 data type`; before it, or alone, the warning `Flash Attention 2 only supports "
        "torch.float16 and torch.bfloat16 dtypes`",
        cause=Cause.EXCEPTION,
        why="The weights were loaded in fp32, for which flash attention has no kernel.",
        action="Load the weights in the precision of the run (model_load_dtype: auto, MODEL_LOAD_DTYPE=auto), or take sdpa; a run that "
        "only warns goes on without the gain.",
        patterns=(r"FlashAttention only supports? fp16(?:,| and) bf16",),
        topics=(STAGE1,),
    ),
    Signature(
        id="nan",
        symptom="`loss is nan`, `FloatingPointError`",
        cause=Cause.NAN,
        why="The training diverged, or a sample or the number format made a value that is no number.",
        action="Lower the learning rate, or check data and precision: the loss is no longer a number.",
        patterns=(
            rf"{_RAISED}FloatingPointError\b|{_RAISED}\w+Error\b.*(?:\b[nN]a[nN]\b|[nN]on-?finite)",
            r"[Ll]oss (?:is|became|was|has become) (?:nan|NaN|not finite|[nN]on-?finite|inf)",
        ),
    ),
    Signature(
        id="rendezvous_timeout",
        symptom="`RendezvousTimeoutError`, `The client socket has timed out`",
        cause=Cause.RENDEZVOUS_TIMEOUT,
        why="A rank waited for others that never came, or could not reach the master.",
        action="See that every node starts, reaches the master address and uses the same port; then run again.",
        patterns=(r"Rendezvous(?:Timeout|Connection)Error|[Rr]endezvous.* timed out|waiting for clients|client socket has timed out",),
    ),
    Signature(
        id="native_crash",
        symptom="`Segmentation fault`, `Fatal Python error`, `terminate called`",
        cause=Cause.NATIVE_CRASH,
        why="Code below Python (a kernel, an extension, NCCL or gloo) broke off.",
        action="A library crashed below Python: PYTHONFAULTHANDLER=1 in `env` prints the stack. Under gloo, free the model before the "
        "group ends.",
        patterns=(r"^terminate called |^Fatal Python error: |^Segmentation fault|^free\(\): |^double free",),
        after_effect=True,
    ),
    Signature(
        id="killed",
        symptom="exit code 137 or -9, `failed (exitcode: -9)`",
        cause=Cause.KILLED,
        why="Signal 9 ended a process, which it cannot say itself.",
        action="Something killed it: most often the kernel for want of memory (`dmesg` says so), else a person or a scheduler.",
        patterns=(r"failed \(exitcode: -9\)|return code = -9\b",),
        exit_codes=(-9, 137),
        after_effect=True,
        topics=(STAGE1,),
    ),
    Signature(
        id="nccl_transport",
        symptom="`NCCL error`, `ncclSystemError`, `Watchdog caught collective operation timeout`",
        cause=Cause.NCCL_TRANSPORT,
        why="NCCL lost the way to another GPU, or waited for one too long.",
        action="Check that the ranks reach one another (interface, firewall, peer access); NCCL_DEBUG=INFO in `env` says more.",
        patterns=(r"nccl(?:System|Remote|Internal|UnhandledCuda)Error|NCCL error|Watchdog caught collective",),
        after_effect=True,
        topics=(STAGE1,),
    ),
    Signature(
        id="peer_lost",
        symptom="`Connection closed by peer`, `Connection reset by peer`, `Broken pipe`",
        cause=Cause.PEER_LOST,
        why="Another rank is gone; this one only noticed.",
        action="Another rank ended first and left no word: `seatrial logs RUN --rank N` shows each one's last lines.",
        patterns=(
            r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|connectFullMesh failed",
            rf"{_RAISED}(?:ConnectionResetError|ConnectionAbortedError|BrokenPipeError|PeerLost)\b",
        ),
        after_effect=True,
    ),
)
