"""Whether a figure of two groups can be compared: all else is equal, and a sample or a step is the same amount of work in both.

In: two groups, of a ranking or of a comparison. Out: `Comparability`: for each reason against it the figures it concerns, the setting, and
a sentence. Ranking, `seatrial compare`, criteria and scaling all decide by this. Groups that ran the same, or whose settings were requested
the same and differ in effect, are not compared by any figure (analyse.confounding). The size of a sample differs where the measured tokens
per sample do, or a setting that changes the size: declared by the workload, else known by its name (analyse.work_settings). Then samples/s,
figures per step and losses cannot be compared, but the rate of what the setting counts can. Where a script's setting differs whose effect
on the work is unknown, and no tokens were measured, a comparison holds only under the assumption that it has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from seatrial.analyse.confounding import confounding, without_effect
from seatrial.analyse.work_settings import (
    AUDIO,
    PIXELS,
    SAMPLE_UNITS,
    SAMPLES,
    TOKENS,
    is_harmless,
    is_likely_size,
    is_rank_count,
    work_settings,
    work_unit,
)
from seatrial.records.comparison import Assumed, Comparability, Group, Mismatch
from seatrial.records.measure import WorkSetting

UNLIKE_SAMPLES, UNLIKE_STEPS = "unlike_samples", "unlike_steps"
LOSS = "loss"
# Not compared where a step does not do the same work in both.
PER_STEP = ("steps_per_s", "duration_s")
# Compared with a caution where a step has more samples in one of them, since that was requested; not where a sample is larger.
STEP_TIMES = ("wall_p50_ms", "iter_p50")
A_STEP, A_SAMPLE = "a step", "a sample"
# Rates of what a sample consists of: the unit in which its size is counted decides which of them remains comparable.
RATE_OF = {TOKENS: "tokens_per_s", AUDIO: "audio_s_per_s"}
# By rate, the key of a plan for the work of a step.
WORK = {"samples_per_s": "samples_per_step", "tokens_per_s": "tokens_per_step"}
# On logs. An incomplete last batch moves the mean work of a step by less than this.
SAME_STEP = 0.005
# On logs. Texts and paddings differ between runs of one setting by less than this.
SAME_SAMPLE = 0.05

# Settings of a batch whose size does not depend on how much each rank takes at a time.
GLOBAL_BATCH = re.compile(r"global|total|^gbs$", re.IGNORECASE)


def comparable(a: Group, b: Group) -> Comparability:
    """Every reason against a comparison of B with A, with the figures that it concerns, and what the comparison assumes; none where all
    else is equal and a sample and a step are the same work."""
    mismatches, work = (without_effect(a, b), confounding(a, b)), comparable_work(a, b)
    return Comparability(mismatches=(*filter(None, mismatches), *work.mismatches), assumed=work.assumed)


def comparable_work(a: Group, b: Group) -> Comparability:
    """The reasons about the work of a sample and a step."""
    samples = _samples_mismatch(a, b)
    steps = None if samples else _steps_mismatch(a, b)
    return Comparability(mismatches=tuple(found for found in (samples, steps) if found), assumed=tuple(_assumed(a, b)))


def all_comparable(groups: Sequence[Group]) -> Comparability:
    """The reasons about the work of all groups against the first, each kind once a figure; and what is assumed of all."""
    found: dict[tuple[str, str], Mismatch] = {}
    assumed: dict[tuple[tuple[str, ...], str], dict[str, None]] = {}
    for group in groups[1:]:
        work = comparable_work(groups[0], group)
        for mismatch in work.mismatches:
            for metric in mismatch.metrics:
                found.setdefault((mismatch.kind, metric), mismatch)
        for each in work.assumed:
            assumed.setdefault((each.metrics, each.what), {}).update(dict.fromkeys(each.settings))
    return Comparability(
        mismatches=tuple(dict.fromkeys(found.values())),
        assumed=tuple(Assumed(metrics=metrics, what=what, settings=tuple(names)) for (metrics, what), names in assumed.items()),
    )


def _settings_of(group: Group) -> tuple[WorkSetting, ...]:
    """Its work settings; rows of history of an earlier version have only `settings`."""
    return group.work or work_settings(group.varied)


def _per(group: Group, work: str, of: str) -> float | None:
    """One rate over another: samples in a step, tokens in a sample."""
    over, under = group.mean_of(work), group.mean_of(of)
    return over / under if over and under else None


def _samples_mismatch(a: Group, b: Group) -> Mismatch | None:
    tokens_a, tokens_b = _per(a, "tokens_per_s", "samples_per_s"), _per(b, "tokens_per_s", "samples_per_s")
    differing = _differing(a, b, SAMPLE_UNITS)
    setting = _setting_text(differing)
    if tokens_a is not None and tokens_b is not None:
        if abs(math.log(tokens_b / tokens_a)) > SAME_SAMPLE:
            because = f" ({setting})" if setting else ""
            text = f"a sample has {tokens_a:.4g} tokens in {a.name} and {tokens_b:.4g} in {b.name}{because}"
            # Larger images may be more tokens, so that tokens count them too.
            return _samples(text, setting, {TOKENS, *(one.unit for one, _ in differing)} - {PIXELS})
        # The measurement outweighs a name: a maximum may differ that no text reaches.
        differing = [(one, other) for one, other in differing if one.unit != TOKENS]
        setting = _setting_text(differing)
    if not differing:
        return None
    text = f"{setting} {'may change' if is_likely_size(differing[0][0].name) else 'changes'} the size of a sample"
    if any(one.set_by_shell for one in differing[0]):
        text = f"only the shell knows {setting}, which may change the size of a sample"
    return _samples(text, setting, {one.unit for one, _ in differing})


def _samples(text: str, setting: str, units: set[str]) -> Mismatch:
    """A mismatch of samples: only the rate of the one unit that differs can still be compared."""
    lost = [rate for unit, rate in RATE_OF.items() if units != {unit}]
    return Mismatch(kind=UNLIKE_SAMPLES, metrics=("samples_per_s", *PER_STEP, *STEP_TIMES, LOSS, *lost), setting=setting, text=text)


def _assumed(a: Group, b: Group) -> Iterator[Assumed]:
    """What must be assumed where settings of an unknown meaning differ. Measured tokens show the work, and so do numbers that the user
    typed for each group; one number typed for both shows nothing."""
    unclear = _unclear(a, b)
    if not unclear or _is_measured(a, b, TOKENS):
        return
    # Steps with the same number of samples are the same work if the samples are.
    what = dict.fromkeys((*PER_STEP, *STEP_TIMES), A_SAMPLE if _is_measured(a, b, SAMPLES) else A_STEP)
    what["samples_per_s"] = A_STEP if _has_same_typed_value(a, b, "samples_per_step") else A_SAMPLE
    if _has_same_typed_value(a, b, "tokens_per_step"):
        what["tokens_per_s"] = A_STEP
    for each in dict.fromkeys(what.values()):
        yield Assumed(metrics=tuple(metric for metric in what if what[metric] == each), what=each, settings=unclear)


def _unclear(a: Group, b: Group) -> tuple[str, ...]:
    """Settings that differ whose effect on the work is unknown by their own name and by the options they set. Where one number of samples
    was typed for both, a batch size is unclear too."""
    has_same_typed_value = any(_has_same_typed_value(a, b, work) for work in WORK.values())
    if (a.declares_work or b.declares_work) and not has_same_typed_value:
        return ()

    def is_known(name: str) -> bool:
        if is_rank_count(name):
            # Ranks that were not seen may each have a batch of their own.
            return _ranks_differ(a, b)
        return is_harmless(name) or (bool(work_unit(name)) and not has_same_typed_value)

    before, after = a.varied, b.varied
    varied = dict.fromkeys([*before, *after])
    differing = {name: (before.get(name), after.get(name)) for name in varied if before.get(name) != after.get(name)}
    options = {name: (a.requested.get(name), b.requested.get(name)) for name in a.requested if name not in varied}
    # An axis is known if all options that it sets are.
    known = {pair for name, pair in options.items() if is_known(name)} - {pair for name, pair in options.items() if not is_known(name)}
    return tuple(name for name, pair in differing.items() if not is_known(name) and pair not in known)


def _is_measured(a: Group, b: Group, work: str) -> bool:
    return all(group.mean_of(f"{work}_per_s") is not None and f"{work}_per_step" not in group.typed_work for group in (a, b))


def _has_same_typed_value(a: Group, b: Group, work: str) -> bool:
    typed = a.typed_work.get(work)
    return typed is not None and typed == b.typed_work.get(work)


def _steps_mismatch(a: Group, b: Group) -> Mismatch | None:
    """Whether the work of a step differs: by the rates where both have them, else by the settings, else by the number of ranks."""
    if constant := _constant_work(a, b):
        return constant
    for name in WORK:
        work_a, work_b = _per(a, name, "steps_per_s"), _per(b, name, "steps_per_s")
        if work_a is not None and work_b is not None:
            if abs(math.log(work_b / work_a)) <= SAME_STEP:
                return None
            return _steps(f"a step takes {work_a:.4g} {name.removesuffix('_per_s')} in {a.name} and {work_b:.4g} in {b.name}")
    differing = _differing(a, b, (SAMPLES,))
    if differing:
        return _steps(f"{_setting_text(differing)} differs", _setting_text(differing))
    return _steps(f"the number of ranks ({a.world_size} → {b.world_size}) differs") if _ranks_differ(a, b) else None


def _ranks_differ(a: Group, b: Group) -> bool:
    return a.ranks_known and b.ranks_known and a.world_size != b.world_size


def _constant_work(a: Group, b: Group) -> Mismatch | None:
    """A mismatch where one number of samples was typed for both although the batch size differs: one of the two is wrong, unless
    accumulation or a global batch makes up for it."""
    lost = [rate for rate, work in WORK.items() if _has_same_typed_value(a, b, work)]
    differing = _differing(a, b, (SAMPLES,))
    is_global = any(GLOBAL_BATCH.search(one.name) for one in _settings_of(a) if one.unit == SAMPLES)
    if not lost or not differing or is_global or _same_product(differing):
        return None
    setting = _setting_text(differing)
    text = f"{WORK[lost[0]]} is {a.typed_work[WORK[lost[0]]]:g} in both although {setting} differs"
    return Mismatch(kind=UNLIKE_STEPS, metrics=(*lost, *PER_STEP, LOSS), setting=setting, text=text)


def _same_product(differing: Sequence[tuple[WorkSetting, WorkSetting]]) -> bool:
    """Whether settings, such as a batch size and accumulation, change by inverse factors. An axis and the option it sets count once."""
    pairs = {(one.value, other.value) for one, other in differing}
    try:
        return math.prod(float(one) for one, _ in pairs) == math.prod(float(other) for _, other in pairs)
    except ValueError:
        return False


def _steps(text: str, setting: str = "") -> Mismatch:
    return Mismatch(kind=UNLIKE_STEPS, metrics=(*PER_STEP, LOSS), setting=setting, text=text)


def _differing(a: Group, b: Group, units: Iterable[str]) -> list[tuple[WorkSetting, WorkSetting]]:
    """Settings of these units whose values differ, by name, those of a certain meaning first; the value is empty in a group that lacks
    the setting."""
    before, after = ({one.name: one for one in _settings_of(group) if one.unit in units} for group in (a, b))
    found = []
    for name in sorted({*before, *after}, key=lambda name: (is_likely_size(name), name)):
        known = before.get(name) or after[name]
        pair = (before.get(name, _without(known)), after.get(name, _without(known)))
        if (pair[0].value, pair[0].set_by_shell) != (pair[1].value, pair[1].set_by_shell):
            found.append(pair)
    return found


def _without(known: WorkSetting) -> WorkSetting:
    return WorkSetting(name=known.name, value="", unit=known.unit)


def _setting_text(differing: Sequence[tuple[WorkSetting, WorkSetting]]) -> str:
    """The first of them: `block_size (32 → 64)`."""
    if not differing:
        return ""
    before, after = differing[0]
    if before.value == after.value:
        return before.name
    return f"{before.name} ({before.value or 'none'} → {after.value or 'none'})"
