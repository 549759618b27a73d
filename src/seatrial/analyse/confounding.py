"""Whether all else is equal in two groups: effective settings that differ without being requested, and axes without an effect.

In: two groups, with what their plan requested and what their workload reported to be in effect. Out: `Mismatch`es for analyse.comparable.

confounded   a setting differs in effect although both requested the same: it may explain a difference in the figures. Not if the
             workload declares that it follows a setting in which the two differ (`FOLLOWS`, or `follows=` of the probe), possibly only
             for given values: with `attn_impl=flash_attention_2` the weights cannot be fp32. Also a setting that was requested
             differently, if a group did not get what it requested and ran something else than the other: its name would be misleading.
             And one on which the ranks of a group disagree.
no_effect    every setting that was requested differently was the same in effect, and so was all else: both ran the same code.

A setting that only one of them reports is unknown for the other. If it fell back there and both requested the same, that confounds; if they
requested it differently, it confounds unless it became what the other requested. Otherwise it is only a caution (`reported_by_one`).
Settings that no workload reports are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from seatrial.core.text import join_names
from seatrial.records.comparison import Group, Mismatch
from seatrial.records.measure import MIXED_RANKS, WORKLOAD_CAUTION, EffectiveSetting, GroupSummary, setting_text
from seatrial.records.ranking import CONFOUNDED

NO_EFFECT = "no_effect"
ALLOW = "--allow-confounded"
MAX_NAMED = 2
"""Of several settings that confound, so many are written out."""
# Reasons that workloads give where nothing was changed.
_NO_REASONS = ("", "as requested")
COMMON = "{common}"
"""In a remedy, stands for the settings with the same remedy that are on in both groups."""
_WORDS = {"True": "on", "False": "off", "": "none", "None": "none"}
_LEFT_OPEN = ("", "None", "auto")
"""Requested values that every effective one fulfils."""
# Other names, with the usual one.
_SYNONYMS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    **dict.fromkeys(("sdpattention", "scaled_dot_product_attention"), "sdpa"),
}
# The rest of a report is where or why.
_END_OF_NAME = re.compile(r"\s*(?:\s\(|[;:,])")
_ARROW = re.compile(r"\s*(?:->|=>|→)\s*")
# What a longer name of the same implementation may add.
_MORE_OF_NAME = re.compile(r"(?:attention|attn|mixed|v?\d+)*")
# Words after which a report is about what is not in effect.
_DENIALS = frozenset({"not", "no", "non", "without", "disabled", "off", "unavailable", "unsupported", "missing", "failed"})
# A script may take a switch as a number and report it as a truth value.
_SWITCHES = ({"0", "False"}, {"1", "True"})


@dataclass(frozen=True, kw_only=True)
class _GroupSettings:
    """One group's settings; names have _ for -."""

    name: str
    requested: Mapping[str, str]
    axes: Mapping[str, str]
    """All axes, bundles by their names."""
    settings: Mapping[str, EffectiveSetting]
    conditions: str
    """Machine and code."""
    campaign: str
    """Empty within a ranking, where both are of one campaign."""

    def value(self, name: str) -> str | None:
        """The effective value; the requested one where the workload does not report it."""
        reported = self.settings.get(name)
        return reported.effective_text if reported else self.requested.get(name, self.axes.get(name))

    def requested_value(self, name: str, value: str) -> bool:
        """Whether the group requested this value. `equal` may be followed by its result, `equal:front_end`; a driver's variable is its
        setting in upper case."""
        name = _plain(name).lower()
        found = self.settings[name].requested_text if name in self.settings else self.requested.get(name, "")
        return found.split(":")[0] == setting_text(value)


class _Pair:
    """Two groups and their differences."""

    def __init__(self, a: _GroupSettings, b: _GroupSettings) -> None:
        self.a, self.b = a, b
        self.reported = {*a.settings, *b.settings}

    @cached_property
    def requested_differently(self) -> list[str]:
        """Settings that were requested differently, those of the plan first; for an axis that sets a script's option, the option."""
        a, b = self.a, self.b
        planned = [name for name in dict.fromkeys([*a.requested, *b.requested]) if a.requested.get(name) != b.requested.get(name)]
        known = [name for name in planned if name in self.reported]
        aliases = {name for name in planned if name not in self.reported and any(_is_alias(name, option, (a, b)) for option in known)}
        more = [name for name in a.settings if name in b.settings and a.settings[name].requested_text != b.settings[name].requested_text]
        return list(dict.fromkeys([*(name for name in planned if name not in aliases), *more]))

    def differs(self, name: str) -> bool:
        """Whether it differs in effect, as far as known. A switch that was requested as a number may be reported as a truth value."""
        a, b = self.a.value(name), self.b.value(name)
        is_request = (name in self.a.settings) != (name in self.b.settings)
        return a != b and not (is_request and {a, b} in _SWITCHES)

    def is_followed(self, name: str) -> bool:
        """Whether it is declared to follow a setting that differs, for a value of that setting that one of the groups has."""
        return any(self.differs(other) and (not values or self._one_has(other, values)) for other, values in self._declared(name))

    def is_part_of(self, name: str, differing: Sequence[str]) -> bool:
        """Whether it is reported only because of a setting that was requested differently: without torch.compile, what follows it does
        not exist."""
        return any(other in differing for other, _ in self._declared(name))

    def _declared(self, name: str) -> list[tuple[str, list[str]]]:
        return [_name_and_values(one) for group in (self.a, self.b) if name in group.settings for one in group.settings[name].follows]

    def _one_has(self, name: str, values: Sequence[str]) -> bool:
        wanted = [setting_text(value) for value in values]
        return any(group.value(name) in wanted for group in (self.a, self.b))

    def is_confounded_by(self, name: str) -> bool:
        a, b = self.a.settings.get(name), self.b.settings.get(name)
        if a is None or b is None:
            return self._fell_back_unseen(name)
        if a.effective_text == b.effective_text:
            return False
        if _is_mixed(a) or _is_mixed(b):
            return True
        if name in self.requested_differently and not (_fell_back(a) or _fell_back(b)):
            return False
        return not self.is_followed(name)

    def _fell_back_unseen(self, name: str) -> bool:
        """Whether it fell back in the one group that reports it. If it was requested differently, it is the axis, and the group that fell
        back did not run what its name says; of the other only the request is known. If the two are the same, the axis had no effect."""
        reported = self.a.settings.get(name) or self.b.settings[name]
        if not (_fell_back(reported) or _is_mixed(reported)) or self.is_followed(name):
            return False
        if name in self.requested_differently:
            return self.differs(name)
        # A setting that no plan names belongs to the script: the same within a campaign, but another campaign may not have it.
        is_same_request = name in self.a.requested or self.a.campaign == self.b.campaign
        return is_same_request and not self.is_part_of(name, self.requested_differently)


def confounding(a: Group, b: Group) -> Mismatch | None:
    """Effective settings that differ although both requested the same, or that are not what a group requested; None without any."""
    if not (_reports(a) or _reports(b)):
        return None
    pair = _Pair(_group_settings(a), _group_settings(b))
    names = [name for name in dict.fromkeys([*pair.a.settings, *pair.b.settings]) if pair.is_confounded_by(name)]
    if not names:
        return None
    text, remedy = _confounded_text(pair, names), _remedy(pair, names)
    return Mismatch(kind=CONFOUNDED, metrics=(), setting=", ".join(names), names=tuple(names), text=text, remedy=remedy)


def _remedy(pair: _Pair, names: Sequence[str]) -> str:
    """The changes that remove all of them: `set fast_paths=equal and set mixed_precision to autocast or weights in both`."""
    return join_names(list(dict.fromkeys(_equalizing_change(pair, name) for name in names)), MAX_NAMED, " and ")


def _equalizing_change(pair: _Pair, name: str) -> str:
    """The first value that the workload declares and the two do not have yet; else a value that both can have."""
    for group in (pair.a, pair.b):
        if name in group.settings and _is_mixed(group.settings[name]):
            return f"set {name} to the same value on all ranks of {group.name}"
    if name in pair.requested_differently:
        fallen = next(group for group in (pair.a, pair.b) if name in group.settings and _fell_back(group.settings[name]))
        # A reason after the value does not belong to it.
        ran = re.split(r"\s\(|;", fallen.settings[name].effective_text)[0]
        return f"set {name}={ran or 'null'} in {fallen.name}"
    reported = [one for group in (pair.a, pair.b) if (one := group.settings.get(name))]
    a, b = reported[0], reported[-1]
    declared = a.alike_by or b.alike_by
    if declared:
        setting, values = _name_and_values(declared, plain=False)
        missing = [value for value in values if not all(group.requested_value(setting, value) for group in (pair.a, pair.b))]
        value = missing[0] if missing else values[-1]
        return f"set {setting}={value.replace(COMMON, _common_parts(pair, declared))}"
    if len(reported) == 1:
        return f"set {name}={a.effective_text or 'null'} in both"
    if a.requested_text in (a.effective_text, b.effective_text):
        fallback = b.effective_text if a.requested_text == a.effective_text else a.effective_text
        return f"set {name}={fallback or 'null'} in both"
    return f"set {name} to {_word(a.effective_text)} or {_word(b.effective_text)} in both"


def _common_parts(pair: _Pair, declared: str) -> str:
    """Of the settings with the same remedy, those that are on in both groups."""
    together = [name for name, one in pair.a.settings.items() if one.alike_by == declared and name in pair.b.settings]
    return ",".join(name for name in together if pair.a.value(name) == pair.b.value(name) == str(True)) or "none"


def confounded_sentence(found: Mismatch) -> str:
    """`confounded: tower_graph is on in z0 and off in z1 (…); set fast_paths=equal, or --allow-confounded`."""
    return f"{CONFOUNDED}: {found.text}; {found.remedy}, or {ALLOW}"


def refusal(found: Mismatch | None, *, allow_confounded: bool) -> str:
    """Why two groups are not compared at all; empty where they are."""
    if found is None or (found.kind == CONFOUNDED and allow_confounded):
        return ""
    return confounded_sentence(found) if found.kind == CONFOUNDED else f"{found.text}: nothing to compare"


def without_effect(a: Group, b: Group) -> Mismatch | None:
    """A mismatch where the two ran the same although they were requested differently; None where they did not or that is unknown."""
    return _without_effect(_Pair(_group_settings(a), _group_settings(b))) if _reports(a) or _reports(b) else None


def _without_effect(pair: _Pair) -> Mismatch | None:
    varied = pair.requested_differently
    if not varied or pair.a.conditions != pair.b.conditions or not all(name in pair.reported and not pair.differs(name) for name in varied):
        return None
    for name in pair.reported - set(varied):
        in_both = name in pair.a.settings and name in pair.b.settings
        if pair.differs(name) if in_both else not pair.is_part_of(name, varied):
            return None
    return Mismatch(kind=NO_EFFECT, metrics=(), setting=", ".join(varied), text=_no_effect_text(pair, varied))


def settings_without_effect(a: Group, b: Group) -> tuple[str, ...]:
    """A clause for each setting that was requested differently and was the same in effect, where others had an effect."""
    pair = _Pair(_group_settings(a), _group_settings(b))
    names = [name for name in pair.requested_differently if name in pair.reported and not pair.differs(name)]
    return tuple(_no_effect_text(pair, [name], by_bundle=False) for name in names)


def settings_differences(a: Group, b: Group) -> tuple[str, ...]:
    """Settings that were requested differently and differ in effect, as far as known."""
    pair = _Pair(_group_settings(a), _group_settings(b))
    return tuple(name for name in pair.requested_differently if pair.differs(name))


def reported_by_one(a: Group, b: Group) -> str:
    """Which settings only one of the two reports; empty where none of them matters."""
    if not (_reports(a) or _reports(b)):
        return ""
    pair = _Pair(_group_settings(a), _group_settings(b))
    for having, lacking in ((pair.a, pair.b), (pair.b, pair.a)):
        names = [name for name in having.settings if name not in lacking.settings and name not in pair.requested_differently]
        names = [name for name in names if not pair.is_followed(name) and not pair.is_part_of(name, pair.requested_differently)]
        names = [name for name in names if not pair.is_confounded_by(name)]
        if names:
            shown = [f"{name} ({_word(having.settings[name].effective_text)})" for name in names]
            return f"only {having.name} reports {join_names(shown, MAX_NAMED)}: whether {lacking.name} had the same is unknown"
    return ""


def equivalent_groups(groups: Sequence[GroupSummary]) -> dict[str, tuple[str, Mismatch]]:
    """Groups that ran the same as another one: by name, that one and why. The group that got most of what it requested represents the
    others, else the first."""
    known = [_group_settings(group) for group in groups]
    reported = {name for group in known for name in group.settings}
    if not reported:
        return {}
    in_all = [name for name in sorted(reported) if all(name in group.settings for group in known)]
    # Settings that no workload reports must be the same. An axis that sets a reported option of a script is that option.
    in_none = sorted({name for group in known for name in group.requested} - reported)
    in_none = [name for name in in_none if not any(_is_alias(name, option, known) for option in reported)]
    by_key: dict[tuple[object, ...], list[_GroupSettings]] = {}
    for group in known:
        values = (*(group.settings[name].effective_text for name in in_all), *(group.requested.get(name) for name in in_none))
        by_key.setdefault((group.conditions, *values), []).append(group)
    found: dict[str, tuple[str, Mismatch]] = {}
    for same in by_key.values():
        first = max(same, key=lambda group: sum(_is_as_requested(one) for one in group.settings.values()))
        for group in same:
            mismatch = _without_effect(_Pair(first, group)) if group is not first else None
            if mismatch is not None:
                found[group.name] = first.name, mismatch
    return found


def _is_alias(axis: str, option: str, known: Sequence[_GroupSettings]) -> bool:
    """Whether the axis is the option by another name: `-P attn=sdpa,flash -- train.py --attn_impl {attn}`."""
    return all(axis in group.axes and group.axes[axis] == group.requested.get(option) for group in known)


def _confounded_text(pair: _Pair, names: Sequence[str]) -> str:
    """`tower_graph is on in z0 and off in z1 (ZeRO 1 hooks into the gradients)`, with the reason of the group that did not get what it
    requested. Settings with the same values and reason share a clause."""
    clauses: dict[str, list[str]] = {}
    for name in names:
        reported = [one for group in (pair.b, pair.a) if (one := group.settings.get(name))]
        reasons = [*(one.reason for one in reported if one.effective_text != one.requested_text), *(one.reason for one in reported)]
        values = f"{_value_in(pair, pair.a, name)} and {_value_in(pair, pair.b, name).rstrip(',')}"
        clauses.setdefault(f"{values}{_first_reason(reasons)}", []).append(name)
    texts = [f"{', '.join(same)} {'is' if len(same) == 1 else 'are'} {values}" for values, same in clauses.items()]
    return join_names(texts, MAX_NAMED, "; ")


def _value_in(pair: _Pair, group: _GroupSettings, name: str) -> str:
    """`off in z1`; of a setting that was requested differently, what was requested too."""
    one = group.settings.get(name)
    if one is None:
        return f"unknown in {group.name}, which does not report it,"
    asked = f", which requested {_word(one.requested_text)}," if name in pair.requested_differently and _fell_back(one) else ""
    return f"{_word(one.effective_text)} in {group.name}{asked}"


def _is_mixed(one: EffectiveSetting) -> bool:
    return one.effective_text.startswith(MIXED_RANKS)


def _is_as_requested(one: EffectiveSetting) -> bool:
    return one.requested_text == one.effective_text or {one.requested_text, one.effective_text} in _SWITCHES


def _fell_back(one: EffectiveSetting) -> bool:
    """Whether something else is in effect than was requested."""
    if one.requested_text in _LEFT_OPEN or _is_as_requested(one):
        return False
    effective = _ARROW.split(one.effective_text)[-1] or "none"
    requested = _words(one.requested_text)
    # A list, or a device by its number: all of it was requested.
    if _END_OF_NAME.search(one.requested_text):
        return _words(effective) != requested
    name = _END_OF_NAME.split(effective)[0]
    if re.fullmatch(r"[+-]?[\d.]+", one.requested_text):
        return name != one.requested_text
    # A path, a hub id or a class of a module ends in its name.
    return not any(_is_name_of(_words(each), requested) for each in (name, name.rpartition("/")[2], name.rpartition(".")[2]))


def _is_name_of(reported: Sequence[str], requested: Sequence[str]) -> bool:
    """Whether a script reports what was requested, perhaps under a longer name: flash as FlashAttention2, bf16 as bfloat16-mixed. No
    requested word may be missing: adamw is not adamw_fused."""
    if not _DENIALS.isdisjoint(set(reported) - set(requested)):
        return False
    if reported[: len(requested)] == requested:
        return True
    short, long = sorted(("".join(reported), "".join(requested)), key=len)
    if not short or not long.startswith(short):
        return False
    more = long[len(short) :]
    is_longer_number = short[-1].isdigit() and more[:1].isdigit()
    return not is_longer_number and bool(_MORE_OF_NAME.fullmatch(more))


def _words(name: str) -> list[str]:
    """The words of a name in lower case, each by its usual name, without the prefix `torch`."""
    text = name.lower()
    found = [_SYNONYMS.get(word, word) for word in re.split(r"[\W_]+", _SYNONYMS.get(text, text)) if word]
    return found[1:] if found[:1] == ["torch"] and len(found) > 1 else found


def _no_effect_text(pair: _Pair, varied: Sequence[str], *, by_bundle: bool = True) -> str:
    """`attn_impl had no effect: both ran sdpa (flash_attn is not installed)`; a bundle by its axis, with its settings."""
    planned = [name for name in varied if pair.a.requested.get(name) != pair.b.requested.get(name)] or list(varied)
    axes = pair.a.axes if by_bundle else {}
    bundles = [name for name in axes if name not in pair.a.requested and axes[name] != pair.b.axes.get(name)]
    reported = [one for name in planned for group in (pair.b, pair.a) if (one := group.settings.get(name))]
    reason = _first_reason(one.reason for one in reported if one.effective_text != one.requested_text)
    values = [(name, _word(pair.a.value(name))) for name in planned]
    ran = f"both ran {join_names([f'{name}={value}' for name, value in values], MAX_NAMED)}"
    if len(values) == 1 and not bundles:
        ran = f"{values[0][1]} in both" if values[0][1] in _WORDS.values() else f"both ran {values[0][1]}"
    return f"{join_names(bundles or planned, MAX_NAMED)} had no effect: {ran}{reason}"


def _first_reason(reasons: Iterable[str]) -> str:
    """The first reason in brackets; empty where all are `as requested`."""
    known = (text.removeprefix(WORKLOAD_CAUTION).rstrip(".") for text in reasons if text not in _NO_REASONS)
    return next((f" ({text})" for text in known), "")


def _word(value: str | None) -> str:
    return _WORDS.get(value or "", value or "none")


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _name_and_values(declared: str, *, plain: bool = True) -> tuple[str, list[str]]:
    """Name and values of `torch_compile_mode=reduce-overhead|max-autotune`; a name alone has no values."""
    name, _, values = declared.partition("=")
    return _plain(name) if plain else name, values.split("|") if values else []


def _reports(group: Group) -> bool:
    return bool(group.effective_settings)


def _group_settings(group: Group) -> _GroupSettings:
    return _GroupSettings(
        name=group.name,
        requested={_plain(key): setting_text(value) for key, value in group.requested.items()},
        axes={_plain(key): setting_text(value) for key, value in group.varied.items()},
        settings={_plain(one.name): one for one in group.effective_settings},
        conditions=group.conditions,
        campaign=group.campaign,
    )
