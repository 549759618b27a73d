"""Why a run failed, from its exit code and the end of its log.

In: the launcher's exit code and lines of its output. Out: a `Diagnosis`: cause, the telling line, and what to do.

`SIGNS` is the registry: pattern → cause → action. When one rank dies the others complain too, and the launcher reports all of it
again: so signs of a lost peer count only where no other sign is found, and among equals the earliest line is the cause. An exit code
that a script chose for itself says more than what the other ranks say of having lost it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.log_lines import RANK_MARK, plain, split_rank
from seatrial.records.outcome import Cause

LONGEST_TEXT = 200_000
LONGEST_DETAIL = 300


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What to tell the user of a failed run."""

    cause: Cause
    detail: str
    action: str


@dataclass(frozen=True)
class Sign:
    """A telling line. `after_effect` marks what ranks say when another one has died."""

    pattern: str
    cause: Cause
    after_effect: bool = False
    action: str = ""
    """What to do where it is more than the cause's own advice."""


ACTIONS: dict[Cause, str] = {
    Cause.CUDA_OOM: "Lower the batch or sequence size of this group, or look with `nvidia-smi` for another process on the GPU.",
    Cause.HOST_OOM: "Lower the number of loader workers or ranks, or give the machine more memory.",
    Cause.PORT_IN_USE: "End the process that holds the port (`ss -ltnp` names it), or leave the port for Seatrial to choose.",
    Cause.NCCL_TRANSPORT: "Check that the ranks reach one another (interface, firewall, peer access); NCCL_DEBUG=INFO in `env` says more.",
    Cause.PEER_LOST: "Another rank ended first and left no word: `seatrial logs RUN --rank N` shows each one's last lines.",
    Cause.RENDEZVOUS_TIMEOUT: "See that every node starts, reaches the master address and uses the same port; then run again.",
    Cause.IMPORT_ERROR: "Install the missing package into the environment that starts the script, or start it with the right interpreter.",
    Cause.BAD_ARGUMENT: "Mend the arguments: what that line begins with does not take them; `seatrial plan show` prints what is run.",
    Cause.FILE_MISSING: "Check the path: it is looked for from the folder the command is started in.",
    Cause.PROGRAM_MISSING: "Install the program, or write its full path in the plan.",
    Cause.DISK_FULL: "Free space on that disk, or write the output elsewhere.",
    Cause.PERMISSION: "Give this user the right to that file or folder, or use another one.",
    Cause.NAN: "Lower the learning rate, or check data and precision: the loss is no longer a number.",
    Cause.KILLED: "Something killed it: most often the kernel for want of memory (`dmesg` says so), else a person or a scheduler.",
    Cause.NATIVE_CRASH: "A library crashed below Python: PYTHONFAULTHANDLER=1 in `env` prints the stack. Under gloo, free the model before "
    "the group ends.",
    Cause.EXCEPTION: "Read the traceback in launcher.log; command.sh in the same folder runs the same command by hand.",
    Cause.EXIT_CODE: "Read the end of launcher.log; command.sh in the same folder runs the same command by hand.",
    Cause.OP_BUILD: "Read the compiler's first error in launcher.log; a C++ compiler must be there, and nvcc of torch's version for CUDA.",
    Cause.UNKNOWN: "Read the end of launcher.log.",
}
INSTALL_DEEPSPEED = (
    "Install DeepSpeed into the environment that starts it (pip install 'seatrial[stage1]'), or activate the one that has it."
)
INSTALL_NINJA = (
    "Install ninja (pip install ninja) and have its folder on PATH, or give the optimizer `torch_adam: true`: that builds nothing."
)
NO_SHM_COMM = (
    "On CPU nothing of DeepSpeed's must be built: set `deepspeed.ops.__compatible_ops__['deepspeed_shm_comm'] = False` before "
    "init_distributed, or install a C++ compiler and ninja."
)
NO_SLOT = "Name GPUs that `nvidia-smi -L` lists; for CPU ranks say how many (place.ranks, --num_gpus) and name none."
NO_HOSTFILE = "Check the path and the host names of the hostfile; on one machine leave --hostfile, --num_nodes and other hosts out."
NO_PDSH = (
    "Install it on this host (apt-get install pdsh), or run on this machine alone: leave --launcher, --hostfile and --force_multi out."
)
TAKE_LOCAL_RANK = "deepspeed gives every script --local_rank=N: let the script take it, or put --no_local_rank into the launcher's options."

_RAISED = r"^(?:\w+\.)*"
SIGNS: tuple[Sign, ...] = (
    Sign(r"Unable to JIT load the \w+ op due to ninja not being installed", Cause.PROGRAM_MISSING, action=INSTALL_NINJA),
    Sign(r"Ninja is required to load C\+\+ extensions", Cause.PROGRAM_MISSING, action=INSTALL_NINJA),
    Sign(r"Error building extension 'deepspeed_shm_comm'|^\S*/cpu/comm/shm\S*[:(]\d+.*\berror\b", Cause.OP_BUILD, action=NO_SHM_COMM),
    Sign(r"Error building extension '|^\S+\.(?:c|cc|cpp|cu|cuh|h|hpp)[:(]\d+.*\berror\b", Cause.OP_BUILD),
    Sign(r"launcher '\w+' not installed", Cause.PROGRAM_MISSING, action=NO_PDSH),
    Sign(r"No slot '\d+' specified on host|no GPU resources available", Cause.BAD_ARGUMENT, action=NO_SLOT),
    Sign(r"not found in hostfile|no extra nodes available via hostfile|was not reachable via ssh", Cause.BAD_ARGUMENT, action=NO_HOSTFILE),
    Sign(
        r"(?:^|[ :'‘/])deepspeed['’]?: (?:No such file or directory|(?:command )?not found)",
        Cause.PROGRAM_MISSING,
        action=INSTALL_DEEPSPEED,
    ),
    Sign(r"No module named '?deepspeed\b", Cause.IMPORT_ERROR, action=INSTALL_DEEPSPEED),
    Sign(r"^\S+: error: unrecognized arguments: .*--local[-_]rank", Cause.BAD_ARGUMENT, action=TAKE_LOCAL_RANK),
    Sign(r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED", Cause.CUDA_OOM),
    Sign(r"DefaultCPUAllocator: .*(?:can't allocate|not enough) memory|Cannot allocate memory|Out of memory: Kill", Cause.HOST_OOM),
    Sign(rf"{_RAISED}MemoryError\b|is killed by signal: Killed|insufficient shared memory", Cause.HOST_OOM),
    Sign(r"EADDRINUSE|[Aa]ddress already in use", Cause.PORT_IN_USE),
    Sign(r"No space left on device|Disk quota exceeded", Cause.DISK_FULL),
    Sign(rf"{_RAISED}(?:ModuleNotFoundError|ImportError)\b|^\S*python\S*: No module named ", Cause.IMPORT_ERROR),
    Sign(r"^\S+: error: |^Error: No such option|^error: unrecognized arguments", Cause.BAD_ARGUMENT),
    Sign(r"command not found$|No such file or directory: '(?:torchrun|deepspeed|python\S*)'", Cause.PROGRAM_MISSING),
    Sign(rf"{_RAISED}FileNotFoundError\b|can't open file .*No such file|^(?:\S*sh|env|exec): .*No such file", Cause.FILE_MISSING),
    Sign(rf"{_RAISED}PermissionError\b|^(?:\S*sh|env|exec): .*Permission denied", Cause.PERMISSION),
    Sign(rf"{_RAISED}FloatingPointError\b|{_RAISED}\w+Error\b.*(?:\b[nN]a[nN]\b|[nN]on-?finite)", Cause.NAN),
    Sign(r"[Ll]oss (?:is|became|was|has become) (?:nan|NaN|not finite|[nN]on-?finite|inf)", Cause.NAN),
    Sign(
        r"Rendezvous(?:Timeout|Connection)Error|[Rr]endezvous.* timed out|waiting for clients|client socket has timed out",
        Cause.RENDEZVOUS_TIMEOUT,
    ),
    Sign(r"^terminate called |^Fatal Python error: |^Segmentation fault|^free\(\): |^double free", Cause.NATIVE_CRASH, after_effect=True),
    Sign(r"failed \(exitcode: -9\)|return code = -9\b", Cause.KILLED, after_effect=True),
    Sign(
        r"nccl(?:System|Remote|Internal|UnhandledCuda)Error|NCCL error|Watchdog caught collective", Cause.NCCL_TRANSPORT, after_effect=True
    ),
    Sign(r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|connectFullMesh failed", Cause.PEER_LOST, after_effect=True),
    Sign(rf"{_RAISED}(?:ConnectionResetError|ConnectionAbortedError|BrokenPipeError|PeerLost)\b", Cause.PEER_LOST, after_effect=True),
)
COMPILED = tuple((re.compile(sign.pattern), sign) for sign in SIGNS)

# What torchrun and the interpreter say about the end of other processes; -9 in it is the one thing worth reading.
NOISE = re.compile(r"ChildFailedError|SignalException|closing signal SIG|failed \(exitcode: -?(?!9\b)\d|KeyboardInterrupt|resource_tracker")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Iteration)(?:: |$)")
# torchrun's report of the rank that ended first.
ROOT_CAUSE = "Root Cause (first observed failure)"
REPORTED = re.compile(r"^\s+(rank|exitcode)\s*: (-?\d+)")
REPORT_LINES = 8
# That of deepspeed's launcher.
DEEPSPEED_REPORTED = re.compile(r"\[launch\.py:\d+:\w+\] .* exits with return code = (-?\d{1,9})$")
# Exit codes of a rank that raised, aborted or was asked to stop: its own lines tell more.
COMPLAINTS = (1, -6, -15)
# Signals that a fault in native code ends with; an abort (6) is also how torch ends after an error it has printed.
NATIVE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# A shell, or a launcher that hands on a negative code, ends above this when a signal ended its child.
SHELL_SIGNALS = 128
CHAINED = re.compile(r"During handling of the above exception|direct cause of the following exception")


def diagnose(exit_code: int | None, lines: Sequence[str]) -> Diagnosis:
    """The cause that the log shows, else the one that the exit code shows."""
    tail = _tail(lines)
    found = _root_cause(tail) or _reported(tail)
    if found is not None:
        return found
    after_effect = _after_effect(tail)
    if after_effect is not None and _is_chosen(exit_code):
        return _diagnosis(Cause.EXIT_CODE, f"ended with exit code {exit_code}; the log tells only what came of it: {after_effect.detail}")
    if after_effect is None or _is_by_force(exit_code):
        return _by_exit_code(exit_code)
    return after_effect


def _is_chosen(exit_code: int | None) -> bool:
    """Whether the script itself chose to end with it: not that of an exception, nor of a signal as Python or a shell tells it."""
    return exit_code is not None and 1 < exit_code < SHELL_SIGNALS


def _is_by_force(exit_code: int | None) -> bool:
    """Whether a process we started was ended by a signal that none sends to itself in good order: the others only complain of that."""
    return exit_code is not None and -exit_code in (signal.SIGKILL, *NATIVE_SIGNALS)


def _root_cause(lines: Sequence[str]) -> Diagnosis | None:
    """The earliest telling line, be it a sign or the end of a traceback."""
    sign_at = next((index for index, line in enumerate(lines) if _is_root(_sign(_text(line)))), None)
    raised = _first_raised(lines)
    # Of a chain the last one counts; where that has no sign and the first has, the first tells more.
    if raised is not None and (sign_at is None or raised[0] < sign_at or (raised[0] == sign_at and _is_root(_sign(raised[1])))):
        return _told(raised[1]) or _diagnosis(Cause.EXCEPTION, raised[1])
    return None if sign_at is None else _told(_text(lines[sign_at]))


def _told(text: str) -> Diagnosis | None:
    """What a line with a sign in it says."""
    sign = _sign(text)
    return _diagnosis(sign.cause, text, sign.action) if sign else None


def _reported(lines: Sequence[str]) -> Diagnosis | None:
    """What the launcher says of the rank that ended first, where that says more than the other ranks' complaints."""
    rank, code = _reported_by_torchrun(lines) or _reported_by_deepspeed(lines) or ("", COMPLAINTS[0])
    if code in COMPLAINTS:
        return None
    if code == -9:
        return _diagnosis(Cause.KILLED, f"{rank} was killed by signal 9")
    if -code in NATIVE_SIGNALS:
        return _diagnosis(Cause.NATIVE_CRASH, f"{rank} crashed: {signal.Signals(-code).name}")
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return _diagnosis(Cause.EXIT_CODE, f"{rank} ended first, {how}, and said nothing that tells why")


def _reported_by_torchrun(lines: Sequence[str]) -> tuple[str, int] | None:
    """(which rank, its exit code)"""
    begin = next((index for index, line in enumerate(lines) if line.startswith(ROOT_CAUSE)), len(lines))
    told = {match.group(1): match.group(2) for line in lines[begin : begin + REPORT_LINES] if (match := REPORTED.match(line))}
    return (f"rank {told.get('rank', '?')}", int(told["exitcode"])) if "exitcode" in told else None


def _reported_by_deepspeed(lines: Sequence[str]) -> tuple[str, int] | None:
    """Likewise. The command it prints beside the code is that of its last rank, whichever ended: no rank can be told from it."""
    codes = (int(match.group(1)) for line in lines if (match := DEEPSPEED_REPORTED.search(line)))
    return next((("a rank", code) for code in codes), None)


def _after_effect(lines: Sequence[str]) -> Diagnosis | None:
    return next((found for found in map(_told, map(_text, lines)) if found), None)


def _tail(lines: Sequence[str]) -> list[str]:
    """The last lines, without colours, up to a size that is quick to search."""
    kept, size = [], 0
    for line in reversed(lines):
        size += len(line)
        if size > LONGEST_TEXT:
            break
        kept.append(plain(line))
    return kept[::-1]


def _text(line: str) -> str:
    """Without any rank marks: torch and the merged log may both have put one there."""
    while RANK_MARK.match(line):
        line = split_rank(line)[1]
    return line


def _sign(text: str) -> Sign | None:
    # An indented line is source quoted in a traceback, or a row of torchrun's report.
    if text[:1].isspace() or NOISE.search(text):
        return None
    return next((sign for pattern, sign in COMPILED if pattern.search(text)), None)


def _is_root(sign: Sign | None) -> bool:
    return sign is not None and not sign.after_effect


def _first_raised(lines: Sequence[str]) -> tuple[int, str] | None:
    """Where the first traceback's exception stands, and the last one of its chain, following one rank's lines only."""
    found: tuple[int, str] | None = None
    found_rank: int | None = None
    chained = True
    for index, line in enumerate(lines):
        rank, text = split_rank(line)[0], _text(line)
        if found and rank != found_rank:
            continue
        if CHAINED.search(text):
            chained = True
        elif chained and _is_raised(text):
            found, found_rank, chained = (found[0] if found else index, text), rank, False
    return found


def _is_raised(text: str) -> bool:
    """Whether the line ends a traceback, and not that of a rank which only lost its peer."""
    if not EXCEPTION.match(text) or NOISE.search(text):
        return False
    sign = _sign(text)
    return sign is None or not sign.after_effect


def _by_exit_code(exit_code: int | None) -> Diagnosis:
    if exit_code in (-9, 137):
        return _diagnosis(Cause.KILLED, "a process of the run was killed by signal 9")
    if exit_code == 127:
        return _diagnosis(Cause.PROGRAM_MISSING, "the program was not found (exit code 127)")
    if exit_code is None:
        return _diagnosis(Cause.UNKNOWN, "no exit code is known and the log tells nothing")
    if -exit_code in (*NATIVE_SIGNALS, signal.SIGABRT):
        return _diagnosis(Cause.NATIVE_CRASH, f"the process crashed: {signal.Signals(-exit_code).name}")
    if exit_code < 0:
        return _diagnosis(Cause.EXIT_CODE, f"the launcher ended by signal {-exit_code} and the log tells no cause")
    return _diagnosis(Cause.EXIT_CODE, f"the launcher ended with exit code {exit_code} and the log tells no cause")


def _diagnosis(cause: Cause, detail: str, action: str = "") -> Diagnosis:
    detail = " ".join(detail.split())
    shortened = detail if len(detail) <= LONGEST_DETAIL else detail[: LONGEST_DETAIL - 1] + "…"
    return Diagnosis(cause=cause, detail=shortened, action=action or ACTIONS[cause])
