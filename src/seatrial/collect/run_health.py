"""Health of a run: tracebacks, ranks that finished, harmless warnings, signs of slowness, debug settings left on.

In: an attempt that is over, and its effective settings. Out: `RunHealth`, `SlowSign`s and `DebugSetting`s. Of a large launcher.log only the
head and the end are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import NamedTuple

from seatrial.collect.attempt_files import read_environment
from seatrial.collect.events import is_stopped, was_halted
from seatrial.collect.logs.bounded_lines import LineIndex, line_blocks
from seatrial.collect.logs.launcher_log import LARGEST_LOG_BYTES, num_finished_ranks
from seatrial.collect.logs.line_relevance import HEAD
from seatrial.core.files import open_file, size_bytes
from seatrial.core.log_header import find_header
from seatrial.core.log_lines import shorten_line, strip_colours
from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths
from seatrial.core.text import MIB
from seatrial.machine.secrets import mask_text
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Scalar
from seatrial.records.measure import DebugSetting, Effective, HarmlessCount, RunHealth, SlowSign
from seatrial.records.outcome import Outcome
from seatrial.records.plan import RunSpec
from seatrial.records.signatures.debug_settings import (
    CHECKS_BACKWARD,
    PROGRAMS,
    SYNC_TIMING,
    VARIABLES,
    DebugSwitch,
    enabled_variables,
    option_name,
    setting_switch,
)
from seatrial.records.signatures.harmless import HARMLESS, HARMLESS_KEYWORDS, count_harmless
from seatrial.records.signatures.registry import Signature, slow_signs
from seatrial.records.stored import host_folders

TRACEBACK = HEAD.encode()
HEALTH_KEYWORDS = (TRACEBACK, *HARMLESS_KEYWORDS)
BLOCK_BYTES = 4 * MIB
NOTHING: Effective = {}


def read_health(attempt: Attempt, world_size: int, index: LineIndex | None = None) -> RunHealth:
    """Health by the attempt's output (`index` is that of one of its logs) and its event files; an unreadable log counts as empty."""
    paths = AttemptPaths(Path(attempt.folder))
    events = paths.all_events()
    harmless: Counter[str] = Counter()
    tracebacks = 0
    logs = [folder.paths.launcher_log for folder in host_folders(paths, attempt.nodes)]
    for block in (block for log in logs for block in _blocks(log, index)):
        tracebacks += block.count(TRACEBACK)
        harmless.update(count_harmless(block))
    return RunHealth(
        tracebacks=tracebacks,
        ranks=world_size,
        ranks_ended_well=_num_finished(attempt, logs, events, world_size),
        harmless=tuple(HarmlessCount(id=one.id, meaning=one.meaning, lines=harmless[one.id]) for one in HARMLESS if harmless[one.id]),
        halted=was_halted(attempt, events),
    )


def _blocks(log: Path, index: LineIndex | None) -> Iterator[bytes]:
    """The head and the end of the log, in blocks of whole lines; with its index only those that matter."""
    with contextlib.suppress(OSError), open_file(log) as source:
        size, half = os.fstat(source.fileno()).st_size, LARGEST_LOG_BYTES // 2
        index = index if index is not None and index.serves(source, HEALTH_KEYWORDS) else None
        for start, end in [(0, size)] if size <= LARGEST_LOG_BYTES else [(0, half), (size - half, size)]:
            for first, last in index.within(start, end) if index is not None else [(start, end)]:
                source.seek(first)
                yield from line_blocks(source, last, BLOCK_BYTES)


def _num_finished(attempt: Attempt, logs: Sequence[Path], events: Sequence[Path], world_size: int) -> int | None:
    """All ranks if the run is `ok`, which means just that; else those known to have finished; None where nothing shows it."""
    if attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK:
        return world_size
    known = [sum(is_stopped(path, attempt) for path in events)] if events else []
    if attempt.spec.launcher.kind == "deepspeed" and all(log.is_file() and size_bytes(log) <= LARGEST_LOG_BYTES for log in logs):
        known.append(num_finished_ranks(logs))
    return min(max(known), world_size) if known else None


HEAD_BYTES = 512 << 10
"""Libraries print such lines when they start, and every run is searched."""
MAX_LINES = 1000
"""Lines with a keyword that are searched: further ones would show nothing new."""
PREFIX_LENGTH = 4
"""Characters at the beginning of an entry's pattern for a variable that are literal."""
# NCCL on an adapter that it uses, or could: `NET/IB : Using [0]mlx5_0:1/IB`.
INFINIBAND_IN_USE = re.compile(rb"NET/IB : Using \[0\]\S{1,80}/IB\b")
_OPTION = re.compile(r"^(?:--)?(?:[\w.]*\.)?(\w[\w-]*)=(.*)$")


class _Found(NamedTuple):
    detail: str
    file: str
    n: int | None = None


def read_slow_signs(attempt: Attempt, effective: Effective = NOTHING) -> tuple[SlowSign, ...]:
    """Entries of the registry with `slows = true` that the head of launcher.log, effective settings or the environment show."""
    paths = AttemptPaths(Path(attempt.folder))
    head = _head(paths.launcher_log)
    variables = _assignments(attempt, paths)
    signs = []
    for entry in slow_signs():
        found = _in_log(entry, head) or _in_settings(entry, effective) or _in_environment(entry, variables)
        found = found or _not_set(entry, variables, effective)
        if found and _is_large_enough(entry, attempt, effective) and (not entry.needs_infiniband or _has_infiniband(attempt, head)):
            signs.append(SlowSign(id=entry.id, action=entry.action, detail=found.detail, file=found.file, n=found.n))
    return tuple(signs)


def _head(log: Path) -> bytes:
    header = find_header(log)
    with contextlib.suppress(OSError), open_file(log) as source:
        source.seek(header.num_bytes)
        # Empty lines in place of META and CMD keep line numbers.
        return b"\n" * header.num_lines + source.read(HEAD_BYTES)
    return b""


def _in_log(entry: Signature, head: bytes) -> _Found | None:
    """The first line that a pattern of the entry matches, and the number of such lines."""
    starts = sorted({start for keyword in entry.keywords for start in _line_starts(head, keyword.encode())})[:MAX_LINES]
    lines = [(start, _line_at(head, start)) for start in starts]
    matching = [(start, text) for start, text in lines if any(pattern.search(text) for pattern in _patterns(entry.id))]
    if not matching:
        return None
    start, text = matching[0]
    number = head.count(b"\n", 0, start) + 1
    return _Found(mask_text(shorten_line(" ".join(text.split()))), f"{ATTEMPT_FILES.launcher_log.name}:{number}", len(matching))


def _line_starts(head: bytes, keyword: bytes) -> Iterator[int]:
    at = head.find(keyword)
    for _ in range(MAX_LINES):
        if at < 0:
            return
        yield head.rfind(b"\n", 0, at) + 1
        end = head.find(b"\n", at)
        at = head.find(keyword, end) if end >= 0 else -1


def _line_at(head: bytes, start: int) -> str:
    end = head.find(b"\n", start)
    return strip_colours(head[start : end if end >= 0 else len(head)].decode("utf-8", errors="replace"))


def _in_settings(entry: Signature, effective: Effective) -> _Found | None:
    for one in effective.values() if entry.effective else ():
        text = f"{one.name}: {one.requested} -> {one.effective}"
        if any(re.fullmatch(pattern, text) for pattern in entry.effective):
            return _Found(f"{text}{f' ({one.reason})' if one.reason else ''}", ATTEMPT_FILES.events(0).name)
    return None


def _in_environment(entry: Signature, variables: tuple[str, ...]) -> _Found | None:
    found = (text for text in variables if any(re.fullmatch(pattern, text) for pattern in entry.env))
    return next((_Found(text, ATTEMPT_FILES.environment.name) for text in found), None)


def _not_set(entry: Signature, variables: tuple[str, ...], effective: Effective) -> _Found | None:
    """A variable that is missing beside others of the same workload, unless the workload reported the setting itself."""
    names = [pattern.partition(": ")[0] for pattern in entry.effective]
    is_reported = any(re.fullmatch(name, setting) for name in names for setting in effective)
    if not entry.unset or any(text.startswith(f"{entry.unset}=") for text in variables) or is_reported:
        return None
    prefix = entry.unset.partition("_")[0] + "_"
    beside = next((text.partition("=")[0] for text in variables if text.startswith(prefix)), "")
    return _Found(f"{entry.unset} is not set, beside {beside}", ATTEMPT_FILES.environment.name) if beside else None


def _assignments(attempt: Attempt, paths: AttemptPaths) -> tuple[str, ...]:
    """`NAME=value` of the variables that entries look for; from provenance.json where environment.json is lost."""
    variables = read_environment(paths.environment) or attempt.provenance.environment
    texts = (f"{name}={value}" for name, value in variables.items())
    return tuple(text for text in texts if text.startswith(_prefixes()))


def _is_large_enough(entry: Signature, attempt: Attempt, effective: Effective) -> bool:
    """Whether every setting in the entry's `at_least` is known and large enough."""
    if not entry.at_least:
        return True
    known = _settings(attempt, effective)
    return all(_number(known.get(name)) >= least for name, least in entry.at_least.items())


def _settings(attempt: Attempt, effective: Effective) -> dict[str, Scalar]:
    """Settings by name from the script's arguments and the plan; the effective value comes before the requested one."""
    spec = attempt.spec
    options = (match.groups() for argument in spec.workload.args if (match := _OPTION.match(argument)))
    spaced = zip(spec.workload.args, spec.workload.args[1:], strict=False)
    given = {option.removeprefix("--"): value for option, value in spaced if option.startswith("--")}
    requested = {name.replace("-", "_"): value for name, value in (*given.items(), *options)}
    return {**requested, **spec.settings, **spec.axes, **{name: one.effective for name, one in effective.items()}}


def _number(value: Scalar) -> float:
    """NaN, which no comparison holds for, where it is not a number."""
    try:
        return float(value) if value is not None else float("nan")
    except ValueError:
        return float("nan")


def _has_infiniband(attempt: Attempt, head: bytes) -> bool:
    """Whether the host has an active port, by its provenance or by NCCL's output."""
    ports = attempt.provenance.nics.values()
    return any("InfiniBand" in line and "ACTIVE" in line for line in ports) or bool(INFINIBAND_IN_USE.search(head))


@cache
def _patterns(id: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for entry in slow_signs() if entry.id == id for pattern in entry.patterns)


@cache
def _prefixes() -> tuple[str, ...]:
    """Prefixes of the variables that entries look for, which rule out most variables."""
    return tuple({pattern[:PREFIX_LENGTH] for entry in slow_signs() for pattern in entry.env})


SYNC_NAMES = ("timing.sync", "SEATRIAL_SYNC_TIMING", "sync_timing", "enable_cuda_sync_timing", "ENABLE_CUDA_SYNC_TIMING")
"""Names of the same switch."""
ANOMALY_WARNING = "Anomaly Detection has been enabled"
LONGEST_VALUE = 80


def read_debug_settings(attempt: Attempt, effective: Effective = NOTHING) -> tuple[DebugSetting, ...]:
    """Debug and tracing settings that were on, each once, by name, with the file that shows it: by the spec, the effective settings and
    the environment of the ranks. Values that switch nothing on (0, false, WARN) are not listed; what an axis or a bundle of the plan sets
    is marked as varied."""
    paths = AttemptPaths(Path(attempt.folder))
    found: dict[str, DebugSetting] = {}
    for one in itertools.chain(_debug_in_spec(attempt.spec, paths, effective), _debug_in_environment(attempt, paths)):
        found.setdefault("timing.sync" if one.name in SYNC_NAMES else one.name, one)
    varied = _varied_names(attempt.spec)
    return tuple(dataclasses.replace(found[name], varied=found[name].name in varied) for name in sorted(found))


def debug_of_signs(signs: Sequence[SlowSign], known: Sequence[DebugSetting]) -> tuple[DebugSetting, ...]:
    """What only the output shows: torch's warning about anomaly detection, unless a setting shows it."""
    if any(one.why == CHECKS_BACKWARD for one in known):
        return ()
    warning = next((sign for sign in signs if ANOMALY_WARNING in sign.detail), None)
    if warning is None:
        return ()
    source = warning.file or ATTEMPT_FILES.launcher_log.name
    return (DebugSetting(name="anomaly_detection", value="on", source=source, why=CHECKS_BACKWARD),)


def _varied_names(spec: RunSpec) -> frozenset[str]:
    """What the plan's axes set, and switches that work only together with those."""
    names = {name.removeprefix("env.").rpartition(".")[2] for name in (*spec.varied, *spec.axes)}
    return frozenset({*names, *(switch.name for switch in VARIABLES if switch.only_with in names)})


def _debug_in_spec(spec: RunSpec, paths: AttemptPaths, effective: Effective) -> Iterator[DebugSetting]:
    source = paths.spec.name
    if spec.timing.sync:
        yield DebugSetting(name="timing.sync", value="true", source=source, why=SYNC_TIMING)
    for name, one in effective.items():
        yield from _if_on(setting_switch(name), name, one.effective, paths.events(0).name)
    # An effective value comes before the requested one.
    requested = {**spec.settings, **spec.axes, **dict(_options(spec.workload.args))}
    for name, value in requested.items():
        if name not in effective:
            yield from _if_on(setting_switch(name), name.rpartition(".")[2], value, source)
    for path in (*spec.launcher.program, spec.workload.script or ""):
        program = PurePath(path).name
        if program in PROGRAMS:
            yield DebugSetting(name=program, value=_shortened(path), source=source, why=PROGRAMS[program])


def _if_on(switch: DebugSwitch | None, name: str, value: Scalar, source: str) -> Iterator[DebugSetting]:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if switch is not None and switch.is_on(text):
        yield DebugSetting(name=name, value=_shortened(text), source=source, why=switch.why)


def _options(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`--detect_anomaly`, `--trainer.detect-anomaly true`, `train.nvtx=1` as name and value; an option without a value is on."""
    for argument, following in itertools.pairwise((*args, "")):
        name, has_value, value = argument.partition("=")
        if has_value:
            yield option_name(name), value
        elif argument.startswith("--"):
            yield option_name(argument), following if following and not following.startswith("-") else "true"


def _debug_in_environment(attempt: Attempt, paths: AttemptPaths) -> Iterator[DebugSetting]:
    """Debug settings by the ranks' variables; by provenance.json, else the plan, if environment.json is lost."""
    variables, source = read_environment(paths.environment), paths.environment.name
    if variables is None and attempt.provenance.environment:
        variables, source = {**attempt.provenance.environment, **attempt.spec.env}, paths.provenance.name
    if variables is None:
        variables, source = dict(attempt.spec.env), paths.spec.name
    for name, switch in enabled_variables(variables).items():
        yield DebugSetting(name=name, value=_shortened(variables[name]), source=source, why=switch.why)


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
