"""Debug and tracing settings that slow a run down or change its timing: names, the values that count, and the effect on a measurement.

Preflight warns of them before a run, collect/ finds those that were on afterwards, and plan/ those that a plan's axes set.

Left out on purpose, as they cost nothing while nothing fails: TORCH_SHOW_CPP_STACKTRACES, PYTHONFAULTHANDLER (which Seatrial sets itself),
TORCH_NCCL_ASYNC_ERROR_HANDLING, core dumps, and the flight recorder, which torch enables by default. Settings for deterministic results are
no debug settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OFF = frozenset({"", "0", "false", "no", "off", "n", "none", "null", "never"})
"""Values that switch nothing on, in lower case."""


@dataclass(frozen=True, kw_only=True)
class DebugSwitch:
    """One switch."""

    name: str
    """Name of a variable or setting; a prefix if it ends with *."""
    why: str
    on: tuple[str, ...] = ()
    """The values that count, in lower case; empty for all but OFF."""
    only_with: str = ""
    """It does something only while this one is on as well."""

    def is_on(self, value: str) -> bool:
        lower = value.strip().lower()
        return lower in self.on if self.on else lower not in OFF


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOGS_CALLS = "the library writes a line for what it does, from inside the measured steps"
WAITS_FOR_DEVICE = "the host waits for the device at every call, so nothing overlaps"
CHECKS_BACKWARD = "every operation of the backward pass is checked and its forward stack kept: steps take several times as long"
MARKS_RANGES = "a range is opened and closed around every part of a step, and a profiler that listens records it"
PROFILES = "a profiler records the run from outside or inside, which takes time and memory from it"
SYNC_TIMING = "the device is synchronised at every phase border: phases are exact, and steps are slower than they would be"
OWN_CHECKS = "the workload checks or records intermediate values in every step"

VARIABLES = (
    DebugSwitch(name="NCCL_DEBUG", on=_words("info abort trace"), why=LOGS_CALLS),
    DebugSwitch(name="NCCL_DEBUG_SUBSYS", only_with="NCCL_DEBUG", why="more of NCCL's parts write lines than by default"),
    DebugSwitch(
        name="TORCH_DISTRIBUTED_DEBUG",
        on=_words("info detail"),
        why="torch times or checks collectives across ranks; with DETAIL every one is preceded by another that compares them",
    ),
    DebugSwitch(name="TORCH_CPP_LOG_LEVEL", on=_words("info 0"), why=LOGS_CALLS),
    DebugSwitch(name="TORCH_LOGS", why=LOGS_CALLS),
    DebugSwitch(name="TORCH_TRACE", why="the compiler writes a trace of all it does"),
    DebugSwitch(name="TORCH_COMPILE_DEBUG", why="the compiler writes every graph and kernel to disk"),
    DebugSwitch(name="TORCHDYNAMO_DISABLE", why="nothing is compiled: the run is not the requested one"),
    DebugSwitch(name="TORCH_NCCL_BLOCKING_WAIT", why=WAITS_FOR_DEVICE),
    DebugSwitch(name="NCCL_BLOCKING_WAIT", why=WAITS_FOR_DEVICE),
    DebugSwitch(name="TORCH_NCCL_DESYNC_DEBUG", why="every rank reports each of its collectives to a store"),
    DebugSwitch(name="TORCH_NCCL_ENABLE_TIMING", why="two events more are recorded around every collective"),
    DebugSwitch(name="TORCH_NCCL_TRACE_CPP_STACK", why="a C++ stack is taken at every collective"),
    DebugSwitch(name="TORCH_NCCL_NAN_CHECK", why="every buffer is searched for NaN before it is sent"),
    DebugSwitch(name="CUDA_LAUNCH_BLOCKING", why=WAITS_FOR_DEVICE),
    DebugSwitch(name="CUDA_INJECTION64_PATH", why=PROFILES),
    DebugSwitch(name="NVTX_INJECTION64_PATH", why=PROFILES),
    DebugSwitch(name="NSYS_*", why=PROFILES),
    DebugSwitch(name="PYTORCH_NO_CUDA_MEMORY_CACHING", why="every allocation goes to the driver, which waits for the device"),
    DebugSwitch(name="PYTHONDEVMODE", why="Python checks its memory and warnings at run time"),
    DebugSwitch(name="PYTHONASYNCIODEBUG", why="every coroutine is checked and timed"),
    DebugSwitch(name="PYTHONTRACEMALLOC", why="Python keeps a stack for every allocation"),
    DebugSwitch(name="PYTHONMALLOC", on=_words("debug malloc_debug pymalloc_debug"), why="Python checks every allocation"),
    DebugSwitch(name="ENABLE_CUDA_SYNC_TIMING", why=SYNC_TIMING),
    DebugSwitch(name="SEATRIAL_SYNC_TIMING", why=SYNC_TIMING),
    DebugSwitch(name="NSA_DETECT_ANOMALY", why=CHECKS_BACKWARD),
    DebugSwitch(name="NSA_NVTX", why=MARKS_RANGES),
    DebugSwitch(name="NSA_TRACE_*", why=OWN_CHECKS),
    DebugSwitch(name="NSA_DEBUG_*", why=OWN_CHECKS),
    DebugSwitch(name="NSA_STRICT_ASSERTS", why=OWN_CHECKS),
)

SETTINGS = (
    DebugSwitch(name="anomaly_detection", why=CHECKS_BACKWARD),
    DebugSwitch(name="detect_anomaly", why=CHECKS_BACKWARD),
    DebugSwitch(name="nvtx", why=MARKS_RANGES),
    DebugSwitch(name="profiler", why=PROFILES),
    DebugSwitch(name="torch_profiler", why=PROFILES),
    DebugSwitch(name="sync_timing", why=SYNC_TIMING),
    DebugSwitch(name="enable_cuda_sync_timing", why=SYNC_TIMING),
    DebugSwitch(name="wall_clock_breakdown", why="DeepSpeed synchronises the device to time its own phases"),
)
"""A workload's own settings, by the last part of a dotted name, or options of a script."""

PROGRAMS = {
    **dict.fromkeys(("nsys", "ncu", "nvprof", "perf", "py-spy", "scalene", "viztracer", "kernprof", "memray"), PROFILES),
    **dict.fromkeys(("strace", "ltrace"), "every system or library call of the run is intercepted and logged"),
    **dict.fromkeys(("compute-sanitizer", "cuda-memcheck", "valgrind"), "every access to memory is checked"),
    **dict.fromkeys(("gdb", "cuda-gdb"), "the run is under a debugger"),
}
"""Programs that a run may be started through."""

_VARIABLES = {switch.name: switch for switch in VARIABLES}
_FAMILIES = {switch.name[:-1]: switch for switch in VARIABLES if switch.name.endswith("*")}
_SETTINGS = {switch.name: switch for switch in SETTINGS}


def setting_switch(name: str) -> DebugSwitch | None:
    """The debug switch of a setting, by the last part of a dotted name; None for other settings."""
    return _SETTINGS.get(name.rpartition(".")[2])


def enabled_variables(variables: Mapping[str, str]) -> dict[str, DebugSwitch]:
    """The variables that switch something on, and their switches."""
    found: dict[str, DebugSwitch] = {}
    for name, value in variables.items():
        switch = _VARIABLES.get(name) or next((switch for prefix, switch in _FAMILIES.items() if name.startswith(prefix)), None)
        if switch is not None and switch.is_on(value):
            found[name] = switch
    return {name: switch for name, switch in found.items() if not switch.only_with or switch.only_with in found}


def option_name(argument: str) -> str:
    """The setting of an option: `detect_anomaly` for `--trainer.detect-anomaly`."""
    return argument.lstrip("-").replace("-", "_").rpartition(".")[2]
