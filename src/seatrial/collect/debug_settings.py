"""Debug and tracing settings that were on while a run was measured.

In: an attempt: the variables its ranks got (environment.json; provenance.json where that is lost), its spec, and what the workload said
of its settings. Out: a `DebugSetting` for each switch of records.debug_settings that was on, with the file it stands in. Values that switch
nothing on (0, false, WARN) are not listed. One that an axis or a bundle of the plan sets is marked as varied: it is what is tried out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from seatrial.collect.environment import read_variables
from seatrial.paths import ATTEMPT_FILES, AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.debug_settings import (
    CHECKS_BACKWARD,
    PROGRAMS,
    SYNC_TIMING,
    VARIABLES,
    DebugSwitch,
    option_name,
    setting_switch,
    variables_on,
)
from seatrial.records.health import DebugSetting, SlowSign
from seatrial.records.run_spec import RunSpec, Scalar

Effective = Mapping[str, tuple[Scalar, Scalar, str]]
NOTHING: Effective = {}
SYNC_NAMES = ("timing.sync", "SEATRIAL_SYNC_TIMING", "sync_timing", "enable_cuda_sync_timing", "ENABLE_CUDA_SYNC_TIMING")
"""All of them are one switch."""
ANOMALY_WARNING = "Anomaly Detection has been enabled"
LONGEST_VALUE = 80


def read_debug_settings(attempt: Attempt, effective: Effective = NOTHING) -> tuple[DebugSetting, ...]:
    """Everything that was on, each once, by name; `effective` is what the workload said its settings came to."""
    paths = AttemptPaths(Path(attempt.folder))
    found: dict[str, DebugSetting] = {}
    for one in itertools.chain(_of_spec(attempt.spec, paths, effective), _of_variables(attempt, paths)):
        found.setdefault("timing.sync" if one.name in SYNC_NAMES else one.name, one)
    varied = _varied(attempt.spec)
    return tuple(dataclasses.replace(found[name], varied=found[name].name in varied) for name in sorted(found))


def debug_of_signs(signs: Sequence[SlowSign], known: Sequence[DebugSetting]) -> tuple[DebugSetting, ...]:
    """What only the output of a run tells: torch's warning that anomaly detection is on, unless a setting told it already."""
    if any(one.why == CHECKS_BACKWARD for one in known):
        return ()
    told = (sign for sign in signs if ANOMALY_WARNING in sign.detail)
    return tuple(
        DebugSetting(name="anomaly_detection", value="on", source=sign.file or ATTEMPT_FILES.launcher_log.name, why=CHECKS_BACKWARD)
        for sign in itertools.islice(told, 1)
    )


def _varied(spec: RunSpec) -> frozenset[str]:
    """What the plan's axes set, and what does something only together with it."""
    names = {name.removeprefix("env.").rpartition(".")[2] for name in (*spec.varied, *spec.axes)}
    return frozenset({*names, *(switch.name for switch in VARIABLES if switch.only_with in names)})


def _of_spec(spec: RunSpec, paths: AttemptPaths, effective: Effective) -> Iterator[DebugSetting]:
    source = paths.spec.name
    if spec.timing.sync:
        yield DebugSetting(name="timing.sync", value="true", source=source, why=SYNC_TIMING)
    for name, (_, value, _) in effective.items():
        yield from _on(setting_switch(name), name, value, paths.events(0).name)
    # What a setting came to counts before what was asked for.
    asked = {**spec.settings, **spec.axes, **dict(_options(spec.workload.args))}
    for name, value in asked.items():
        if name not in effective:
            yield from _on(setting_switch(name), name.rpartition(".")[2], value, source)
    for word in (*spec.launcher.program, spec.workload.script or ""):
        program = PurePath(word).name
        if program in PROGRAMS:
            yield DebugSetting(name=program, value=_shown(word), source=source, why=PROGRAMS[program])


def _on(switch: DebugSwitch | None, name: str, value: Scalar, source: str) -> Iterator[DebugSetting]:
    if switch is not None and switch.is_on(_text(value)):
        yield DebugSetting(name=name, value=_shown(_text(value)), source=source, why=switch.why)


def _options(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`--detect_anomaly`, `--trainer.detect-anomaly true`, `train.nvtx=1` as name and value; one that has none is on."""
    for word, behind in itertools.pairwise((*args, "")):
        name, is_given, value = word.partition("=")
        if is_given:
            yield option_name(name), value
        elif word.startswith("--"):
            yield option_name(word), behind if behind and not behind.startswith("-") else "true"


def _of_variables(attempt: Attempt, paths: AttemptPaths) -> Iterator[DebugSetting]:
    variables, source = _variables(attempt, paths)
    for name, switch in variables_on(variables).items():
        yield DebugSetting(name=name, value=_shown(variables[name]), source=source, why=switch.why)


def _variables(attempt: Attempt, paths: AttemptPaths) -> tuple[dict[str, str], str]:
    """The variables as the ranks got them, and the file that says so; the plan's own where no file does."""
    recorded = read_variables(paths.environment)
    if recorded is not None:
        return recorded, paths.environment.name
    if attempt.provenance.environment:
        return {**attempt.provenance.environment, **attempt.spec.env}, paths.provenance.name
    return dict(attempt.spec.env), paths.spec.name


def _text(value: Scalar) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
