"""Debug and tracing settings that were on while a run was measured.

In: an attempt: the variables its ranks got (environment.json; provenance.json where that is lost), its spec, and what the workload said
of its settings. Out: a `DebugSetting` for each switch of collect.debug_table that was on, with the file it stands in. Values that switch
nothing on (0, false, WARN) are not listed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from seatrial.collect.debug_table import CHECKS_BACKWARD, PROGRAMS, SETTINGS, SYNC_TIMING, VARIABLES, DebugSwitch
from seatrial.files import read_json
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.health import DebugSetting, SlowSign
from seatrial.records.run_spec import RunSpec, Scalar

Effective = Mapping[str, tuple[Scalar, Scalar, str]]
NOTHING: Effective = {}
SYNC_NAMES = ("timing.sync", "SEATRIAL_SYNC_TIMING", "sync_timing", "enable_cuda_sync_timing", "ENABLE_CUDA_SYNC_TIMING")
"""All of them are one switch."""
OF_VARIABLES = {switch.name: switch for switch in VARIABLES}
OF_SETTINGS = {switch.name: switch for switch in SETTINGS}
FAMILIES = {switch.name[:-1]: switch for switch in VARIABLES if switch.name.endswith("*")}
ANOMALY_WARNING = "Anomaly Detection has been enabled"
LONGEST_VALUE = 80


def read_debug_settings(attempt: Attempt, effective: Effective = NOTHING) -> tuple[DebugSetting, ...]:
    """Everything that was on, each once, by name; `effective` is what the workload said its settings came to."""
    paths = AttemptPaths(Path(attempt.folder))
    found: dict[str, DebugSetting] = {}
    for one in itertools.chain(_of_spec(attempt.spec, paths, effective), _of_variables(attempt, paths)):
        found.setdefault("timing.sync" if one.name in SYNC_NAMES else one.name, one)
    return tuple(found[name] for name in sorted(found))


def debug_of_signs(signs: Sequence[SlowSign], known: Sequence[DebugSetting]) -> tuple[DebugSetting, ...]:
    """What only the output of a run tells: torch's warning that anomaly detection is on, unless a setting told it already."""
    if any(one.why == CHECKS_BACKWARD for one in known):
        return ()
    told = (sign for sign in signs if ANOMALY_WARNING in sign.detail)
    return tuple(
        DebugSetting(name="anomaly_detection", value="on", source=sign.file or "launcher.log", why=CHECKS_BACKWARD)
        for sign in itertools.islice(told, 1)
    )


def _of_spec(spec: RunSpec, paths: AttemptPaths, effective: Effective) -> Iterator[DebugSetting]:
    source = paths.spec.name
    if spec.timing.sync:
        yield DebugSetting(name="timing.sync", value="true", source=source, why=SYNC_TIMING)
    for name, (_, value, _) in effective.items():
        yield from _on(OF_SETTINGS.get(name), name, value, paths.events(0).name)
    # What a setting came to counts before what was asked for.
    asked = {**spec.settings, **spec.axes, **dict(_options(spec.workload.args))}
    for name, value in asked.items():
        if name not in effective:
            last = name.rpartition(".")[2]
            yield from _on(OF_SETTINGS.get(last), last, value, source)
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
            yield _option_name(name), value
        elif word.startswith("--"):
            yield _option_name(word), behind if behind and not behind.startswith("-") else "true"


def _option_name(word: str) -> str:
    return word.lstrip("-").replace("-", "_").rpartition(".")[2]


def _of_variables(attempt: Attempt, paths: AttemptPaths) -> Iterator[DebugSetting]:
    variables, source = _variables(attempt, paths)
    on = {one.name: one for name, value in variables.items() for one in _on(_variable(name), name, value, source)}
    for switch in VARIABLES:
        if switch.only_with and switch.only_with not in on:
            on.pop(switch.name, None)
    yield from on.values()


def _variable(name: str) -> DebugSwitch | None:
    found = OF_VARIABLES.get(name)
    return found or next((switch for begin, switch in FAMILIES.items() if name.startswith(begin)), None)


def _variables(attempt: Attempt, paths: AttemptPaths) -> tuple[dict[str, str], str]:
    """The variables as the ranks got them, and the file that says so; the plan's own where no file does."""
    recorded = read_json(paths.environment)
    entries = recorded.get("variables") if isinstance(recorded, dict) else None
    if isinstance(entries, list):
        return dict(_named_values(entries)), paths.environment.name
    if attempt.provenance.environment:
        return {**attempt.provenance.environment, **attempt.spec.env}, paths.provenance.name
    return dict(attempt.spec.env), paths.spec.name


def _named_values(entries: list[object]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str):
            yield entry["name"], entry["value"]


def _text(value: Scalar) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
