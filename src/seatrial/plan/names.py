"""Names of groups and runs: `z0_mb160_nw8_pf4`, `z0_mb160_nw8_pf4_r1`. For people and as folder names; never parsed back."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from seatrial.plan.placeholders import value_text
from seatrial.plan.values import type_and_value
from seatrial.records.original_names import SWEEP_LABELS
from seatrial.records.run_spec import Scalar

NO_AXES = "base"
# A run's folder and the files under it must fit the 255 bytes a file name may have, with room for what else is put into a name.
LONGEST_GROUP = 96
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")


def labels_of(given: Mapping[str, str | None]) -> dict[str, str]:
    """A label for each axis: the given one, else a short form of its name, else, where two are alike, the whole name."""
    wanted = {name: label or _short(name) for name, label in given.items()}
    count = Counter(wanted.values())
    return {name: label if given[name] or count[label] == 1 else _UNSAFE.sub("-", name) for name, label in wanted.items()}


def value_names(values: Sequence[Scalar]) -> list[str]:
    """Each value safe for a file name; values that would look alike get a piece of their hash, as long as it takes to tell them apart."""
    safe = [_UNSAFE.sub("-", value_text(value)) or "empty" for value in values]
    alike = _counted(safe)
    digests = [
        "" if alike[_compared(text)] == 1 else _digest(repr(type_and_value(value))) for text, value in zip(safe, values, strict=True)
    ]
    for digits in (4, 8, 16, 64):
        names = [f"{text}-{digest[:digits]}" if digest else text for text, digest in zip(safe, digests, strict=True)]
        if len(_counted(names)) == len(names):
            break
    return names


def group_name(prefix: str, parts: Sequence[tuple[str, str]]) -> str:
    """Prefix, then label and value of each axis; a long one is cut and ends with its hash."""
    words = [prefix.rstrip("_")] if prefix.rstrip("_") else []
    words += [_joined(label, value) for label, value in parts]
    name = "_".join(words) or NO_AXES
    return name if len(name) <= LONGEST_GROUP else f"{name[: LONGEST_GROUP - 9]}-{_digest(name)[:8]}"


def run_name(group: str, repeat: int) -> str:
    """The run's id and folder."""
    return f"{group}_r{repeat}"


def _counted(texts: Sequence[str]) -> Counter[str]:
    return Counter(map(_compared, texts))


def _compared(text: str) -> str:
    """A value as it will stand behind a label (`a` gets a hyphen there, `-a` has one), for a disk that does not tell A from a."""
    return _joined("label", text).lower()


def _joined(label: str, value: str) -> str:
    """`mb8`, but `precision-bf16` and `top5-3`, where the two would run into one word or number; a bundle has no label."""
    if not label:
        return value
    return f"{label}-{value}" if value[0].isalpha() or label[-1].isdigit() else f"{label}{value}"


def _short(name: str) -> str:
    if name in SWEEP_LABELS:
        return SWEEP_LABELS[name]
    words = [word for word in re.split(r"[._]", name.removeprefix("env.").removeprefix("place.")) if word]
    return "".join(word[0] for word in words).lower() if len(words) > 1 else _UNSAFE.sub("-", words[0] if words else name)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
