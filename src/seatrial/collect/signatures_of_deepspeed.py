"""What DeepSpeed and its launcher say when they fail. Part of the registry: collect.signatures."""

from __future__ import annotations

from seatrial.collect.signature import DEEPSPEED, STAGE1, Signature
from seatrial.records.outcome import Cause

_TOPICS = (STAGE1, DEEPSPEED)
# Where a compiler writes it: `adam.cpp:12:3: error: …`, `adam.cu(88): error: …`. A warning that speaks of errors is none.
_ERROR_AT = r"(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b"
_FIND_DEEPSPEED = (
    "Set CONDA_ENV of the stage-1 driver to the environment that has it, or activate that environment so that it is on PATH, and start the "
    "same command again; where none has it: pip install 'seatrial[stage1]'."
)

OF_DEEPSPEED: tuple[Signature, ...] = (
    Signature(
        id="ninja_missing",
        symptom="`Unable to JIT load the fused_adam op due to ninja not being installed`, `Ninja is required to load C++ extensions`",
        cause=Cause.PROGRAM_MISSING,
        why="DeepSpeed's Adam is FusedAdam, which is compiled when it is first used, and that takes ninja.",
        action="Install ninja (pip install ninja; in an image ninja-build and build-essential) and have its folder on PATH, or give the "
        "optimizer `torch_adam: true`: that builds nothing.",
        patterns=(
            r"Unable to JIT load the \w+ op due to ninja not being installed",
            r"Ninja is required to load C\+\+ extensions",
            r"^\[FATAL\] ninja missing",
        ),
        topics=_TOPICS,
    ),
    Signature(
        id="shm_comm_build",
        symptom="`Error building extension 'deepspeed_shm_comm'`",
        cause=Cause.OP_BUILD,
        why="On a CPU DeepSpeed compiles a collective of its own for shared memory, which it can do without.",
        action="On CPU nothing of DeepSpeed's must be built: set `deepspeed.ops.__compatible_ops__['deepspeed_shm_comm'] = False` before "
        "init_distributed, or install a C++ compiler and ninja.",
        patterns=(r"Error building extension 'deepspeed_shm_comm'", rf"^\S*/cpu/comm/shm\S*?{_ERROR_AT}"),
        topics=(DEEPSPEED,),
    ),
    Signature(
        id="op_build",
        symptom="`Error building extension '…'`, a line of the compiler with `error`",
        cause=Cause.OP_BUILD,
        why="An op that is compiled when it is first used did not compile.",
        action="Read the compiler's first error in launcher.log; a C++ compiler must be there (build-essential), and nvcc of torch's "
        "version for CUDA.",
        patterns=(r"Error building extension '", rf"^\S+\.(?:c|cc|cpp|cu|cuh|h|hpp){_ERROR_AT}"),
        topics=_TOPICS,
    ),
    Signature(
        id="pdsh_missing",
        symptom="`RuntimeError: launcher 'pdsh' not installed`",
        cause=Cause.PROGRAM_MISSING,
        why="With a hostfile `deepspeed` starts the ranks of all hosts through pdsh unless it is told otherwise, and there is none here.",
        action="Install it on every host (apt-get install pdsh openssh-client, or in the image) and name it (`--launcher pdsh`). Without "
        "it, start one command a host with `--no_ssh --node_rank N --master_addr HOST --master_port PORT`. On one machine leave "
        "--launcher, --hostfile and --force_multi out.",
        patterns=(r"launcher '\w+' not installed", r"^\[FATAL\] pdsh missing"),
        topics=_TOPICS,
    ),
    Signature(
        id="no_slot",
        symptom="`No slot '1' specified on host 'localhost'`, `no GPU resources available`",
        cause=Cause.BAD_ARGUMENT,
        why="The command names a GPU that this machine, or this container, does not have.",
        action="Name GPUs that `nvidia-smi -L` lists; for CPU ranks say how many (place.ranks, --num_gpus) and name none.",
        patterns=(r"No slot '\d+' specified on host", r"no GPU resources available"),
        topics=_TOPICS,
    ),
    Signature(
        id="hostfile",
        symptom="hostfile missing, empty or of other hosts: `no extra nodes available via hostfile`, `Hostfile is empty or not formatted "
        "correctly`, `Hostname '…' not found in hostfile`, `was not reachable via ssh`",
        cause=Cause.BAD_ARGUMENT,
        why="`deepspeed` takes the hosts from the hostfile and from nowhere else; a missing one only leaves a warning that it goes on with "
        "this machine alone.",
        action="See that the hostfile is there and not empty (`test -s FILE`), has one line `HOST slots=N` for each host, and that "
        "`ssh HOST` asks for no password; on one machine leave --hostfile, --num_nodes and other hosts out.",
        patterns=(
            r"not found in hostfile",
            r"no extra nodes available via hostfile",
            r"was not reachable via ssh",
            r"Hostfile (?:is empty|contains (?:a bad entry|multiple entries))",
            r"^\[FATAL\] hostfile missing",
        ),
        topics=_TOPICS,
    ),
    Signature(
        id="deepspeed_missing",
        symptom="`deepspeed: No such file or directory`, `deepspeed: command not found`",
        cause=Cause.PROGRAM_MISSING,
        why="The shell that starts the run has no `deepspeed` on its PATH.",
        action=_FIND_DEEPSPEED,
        patterns=(r"(?:^|[ :'‘/])deepspeed['’]?: (?:No such file or directory|(?:command )?not found)",),
        topics=_TOPICS,
    ),
    Signature(
        id="deepspeed_not_installed",
        symptom="`No module named 'deepspeed'`",
        cause=Cause.IMPORT_ERROR,
        why="The interpreter that starts the run is not the one DeepSpeed is installed for.",
        action=_FIND_DEEPSPEED,
        patterns=(r"No module named '?deepspeed\b",),
        topics=_TOPICS,
    ),
    Signature(
        id="local_rank",
        symptom="`error: unrecognized arguments: --local_rank=0`",
        cause=Cause.BAD_ARGUMENT,
        why="`deepspeed` gives every script --local_rank=N, and this one does not take it.",
        action="Let the script take --local_rank, or put --no_local_rank into the launcher's options.",
        patterns=(r"^\S+: error: unrecognized arguments: .*--local[-_]rank",),
        topics=(DEEPSPEED,),
    ),
)
