"""Signs that a run may be slow, which say so themselves: lines of its output, what its settings came to, variables it was given.

In: an attempt, and what the workload said of its settings. Out: a `SlowSign` for each entry of the registry of signatures that was found,
with where. The entries are those with `slows = true`; those that analysis finds are asked for by kind (signatures.registry.slow_sign_for).
Only the head of launcher.log is read: what libraries say of themselves they say when they start, and every run is looked at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.environment import read_variables
from seatrial.files import open_file
from seatrial.log_lines import plain, shortened
from seatrial.machine.secrets import mask_text
from seatrial.paths import ATTEMPT_FILES, AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.health import SlowSign
from seatrial.records.run_spec import Scalar
from seatrial.signatures.registry import slow_signs
from seatrial.signatures.signature import Signature

Effective = Mapping[str, tuple[Scalar, Scalar, str]]
NOTHING: Effective = {}
HEAD_BYTES = 512 << 10
MOST_LINES = 1000
"""Lines with a word of an entry that are looked at for it; a word that stands in more of them tells nothing new."""
PREFIX_LENGTH = 4
"""Characters at the beginning of an entry's expression for a variable that stand for themselves."""
# NCCL on an adapter that it uses, or could: `NET/IB : Using [0]mlx5_0:1/IB`.
INFINIBAND_IN_USE = re.compile(rb"NET/IB : Using \[0\]\S{1,80}/IB\b")
_OPTION = re.compile(r"^(?:--)?(?:[\w.]*\.)?(\w[\w-]*)=(.*)$")


class _Found(NamedTuple):
    detail: str
    file: str
    n: int | None = None


def read_slow_signs(attempt: Attempt, effective: Effective = NOTHING) -> tuple[SlowSign, ...]:
    """Every sign that was found, each once, in the registry's order; `effective` is what the workload said its settings came to."""
    paths = AttemptPaths(Path(attempt.folder))
    head = _head(paths.launcher_log)
    variables = _variables(attempt, paths)
    signs = []
    for entry in slow_signs():
        found = _in_log(entry, head) or _in_settings(entry, effective) or _in_environment(entry, variables)
        found = found or _not_set(entry, variables, effective)
        if found and _is_large_enough(entry, attempt, effective) and (not entry.needs_infiniband or _has_infiniband(attempt, head)):
            signs.append(SlowSign(id=entry.id, action=entry.action, detail=found.detail, file=found.file, n=found.n))
    return tuple(signs)


def _head(log: Path) -> bytes:
    with contextlib.suppress(OSError), open_file(log) as source:
        return source.read(HEAD_BYTES)
    return b""


def _in_log(entry: Signature, head: bytes) -> _Found | None:
    """The first line that a pattern of the entry finds, and how many do."""
    starts = sorted({start for word in entry.words for start in _line_starts(head, word.encode())})[:MOST_LINES]
    telling = [(start, text) for start in starts if _tells(entry, text := _line_at(head, start))]
    if not telling:
        return None
    start, text = telling[0]
    number = head.count(b"\n", 0, start) + 1
    return _Found(mask_text(shortened(" ".join(text.split()))), f"{ATTEMPT_FILES.launcher_log.name}:{number}", len(telling))


def _tells(entry: Signature, text: str) -> bool:
    return any(pattern.search(text) for pattern in _patterns(entry.id))


def _line_starts(head: bytes, word: bytes) -> Iterator[int]:
    at = head.find(word)
    for _ in range(MOST_LINES):
        if at < 0:
            return
        yield head.rfind(b"\n", 0, at) + 1
        end = head.find(b"\n", at)
        at = head.find(word, end) if end >= 0 else -1


def _line_at(head: bytes, start: int) -> str:
    end = head.find(b"\n", start)
    return plain(head[start : end if end >= 0 else len(head)].decode("utf-8", errors="replace"))


def _in_settings(entry: Signature, effective: Effective) -> _Found | None:
    for name, (asked, used, reason) in effective.items() if entry.effective else ():
        text = f"{name}: {asked} -> {used}"
        if any(re.fullmatch(pattern, text) for pattern in entry.effective):
            return _Found(f"{text}{f' ({reason})' if reason else ''}", ATTEMPT_FILES.events(0).name)
    return None


def _in_environment(entry: Signature, variables: tuple[str, ...]) -> _Found | None:
    found = (text for text in variables if any(re.fullmatch(pattern, text) for pattern in entry.env))
    return next((_Found(text, ATTEMPT_FILES.environment.name) for text in found), None)


def _not_set(entry: Signature, variables: tuple[str, ...], effective: Effective) -> _Found | None:
    """A variable that is missing beside others of the same workload; what the workload itself said of the setting counts before it."""
    if not entry.unset or any(text.startswith(f"{entry.unset}=") for text in variables) or _speaks_of_it(entry, effective):
        return None
    prefix = entry.unset.partition("_")[0] + "_"
    beside = next((text.partition("=")[0] for text in variables if text.startswith(prefix)), "")
    return _Found(f"{entry.unset} is not set, beside {beside}", ATTEMPT_FILES.environment.name) if beside else None


def _speaks_of_it(entry: Signature, effective: Effective) -> bool:
    """Whether the workload reported one of the settings that the entry's expressions name before their colon."""
    names = [pattern.partition(": ")[0] for pattern in entry.effective]
    return any(re.fullmatch(name, told) for name in names for told in effective)


def _variables(attempt: Attempt, paths: AttemptPaths) -> tuple[str, ...]:
    """`NAME=value` of those that any entry asks for; from provenance.json where environment.json is lost."""
    named = read_variables(paths.environment) or attempt.provenance.environment
    texts = (f"{name}={value}" for name, value in named.items())
    return tuple(text for text in texts if text.startswith(_prefixes()))


def _is_large_enough(entry: Signature, attempt: Attempt, effective: Effective) -> bool:
    """Whether every setting that the entry names is known and as large as it asks."""
    if not entry.at_least:
        return True
    known = _settings(attempt, effective)
    return all(_number(known.get(name)) >= least for name, least in entry.at_least.items())


def _settings(attempt: Attempt, effective: Effective) -> dict[str, Scalar]:
    """What the run was asked for by name, in the plan or in its script's arguments; what it came to counts before that."""
    spec = attempt.spec
    options = (match.groups() for word in spec.workload.args if (match := _OPTION.match(word)))
    spaced = zip(spec.workload.args, spec.workload.args[1:], strict=False)
    given = {word.removeprefix("--"): value for word, value in spaced if word.startswith("--")}
    asked = {name.replace("-", "_"): value for name, value in (*given.items(), *options)}
    return {**asked, **spec.settings, **spec.axes, **{name: used for name, (_, used, _) in effective.items()}}


def _number(value: Scalar) -> float:
    """NaN, which is as large as nothing, where it is no number."""
    try:
        return float(value) if value is not None else float("nan")
    except ValueError:
        return float("nan")


def _has_infiniband(attempt: Attempt, head: bytes) -> bool:
    """Whether the host has a port that is active, by its provenance or by what NCCL says."""
    ports = attempt.provenance.nics.values()
    return any("InfiniBand" in line and "ACTIVE" in line for line in ports) or bool(INFINIBAND_IN_USE.search(head))


@cache
def _patterns(id: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for entry in slow_signs() if entry.id == id for pattern in entry.patterns)


@cache
def _prefixes() -> tuple[str, ...]:
    """What the variables that entries ask for begin with: most variables are told apart by that."""
    return tuple({pattern[:PREFIX_LENGTH] for entry in slow_signs() for pattern in entry.env})
