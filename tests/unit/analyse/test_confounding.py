"""All else equal: groups whose effective settings differ in more than the axis are not compared, nor those that ran the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.comparable import comparable
from seatrial.analyse.comparison import compare_pairs
from seatrial.analyse.confounding import CONFOUNDED, NO_EFFECT, equivalent_groups
from seatrial.analyse.groups import summarise_groups
from seatrial.analyse.ranking import rank_groups
from seatrial.analyse.scaling import scaling
from seatrial.collect.original.attempt_records import FOLLOWS
from seatrial.core.errors import RefusedError
from seatrial.records.comparison import ComparedGroup, LossVerdict, Relation
from seatrial.records.measure import GroupSummary
from seatrial.records.ranking import Ranking
from seatrial.records.results import GroupedCampaign, MeasuredRun
from seatrial.results.compare import compared_group
from seatrial_workloads.contrastive.settings import FOLLOWS as TRAINER_FOLLOWS
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.analyse.factory import compare

Reported = Mapping[str, tuple[Any, Any, str]]

HOOKS = "ZeRO 1 hooks into the gradients"
ON, OFF = (True, True, "as requested"), (True, False, HOOKS)
SDPA, NO_FLASH = ("sdpa", "sdpa", "as requested"), ("flash_attention_2", "sdpa", "flash_attn is not installed")
FLASH = ("flash_attention_2", "flash_attention_2", "as requested")
ALIKE_BY = dict.fromkeys(("front_end", "tower_graph"), "fast_paths=equal|{common}")


def runs(
    name: str,
    settings: Mapping[str, Any],
    reported: Reported,
    *,
    rate: float = 100.0,
    follows: Mapping[str, tuple[str, ...]] | None = None,
    declared: dict[str, tuple[str, ...]] | None = None,
    fingerprint: str = "f0",
    ranks: int = 1,
    **changes: Any,
) -> list[MeasuredRun]:
    """Three runs of a bundled workload's group that reports `reported`. `follows` is what the workload declares, `declared` the run."""
    workload = {"name": "contrastive", "module": "m", "script": None, "follows": dict(follows or {}), "alike_by": ALIKE_BY}
    found = []
    for repeat in (1, 2, 3):
        run = factory.spec(name, repeat, ranks=ranks, workload=workload, **{"settings": dict(settings), "axes": dict(settings), **changes})
        # No two groups vary alike.
        per_s = rate * (1 + 0.001 * repeat + 0.0003 * (sum(map(ord, name)) % 7) * (-1) ** repeat)
        figures = {
            "samples_per_s": per_s,
            "steps_per_s": per_s / 8,
            "effective": factory.effective(reported, declared),
            "world_size": ranks,
        }
        made = factory.measured(run, measure=figures, started_t=factory.STARTED_T + 100 * repeat)
        found.append(replace(made, attempt=replace(made.attempt, provenance=replace(made.attempt.provenance, fingerprint=fingerprint))))
    return found


def campaign(*groups: list[MeasuredRun]) -> GroupedCampaign:
    measured = tuple(run for group in groups for run in group)
    summaries = summarise_groups(measured, "")
    ranking = rank_groups(summaries, "throughput")
    return GroupedCampaign(output="/out", baseline_group="", runs=measured, pending=(), groups=summaries, ranking=ranking, plans=())


def sides(found: GroupedCampaign) -> list[ComparedGroup]:
    return [compared_group(found, group.group) for group in found.groups]


def ranked(found: GroupedCampaign, **how: Any) -> Ranking:
    return rank_groups(found.groups, "throughput", **how)


def kinds(a: GroupSummary | ComparedGroup, b: GroupSummary | ComparedGroup) -> list[str]:
    return [each.kind for each in comparable(a, b).mismatches]


# The reproduction: ZeRO 1 loses the tower's CUDA graph, which alone is 1.30 times.
Z0 = runs("z0", {"zero_stage": 0}, {"tower_graph": ON}, rate=130.0)
Z1 = runs("z1", {"zero_stage": 1}, {"tower_graph": OFF}, rate=100.0)


def test_a_path_that_one_side_lost_confounds() -> None:
    found = campaign(Z0, Z1)
    for a, b in ((found.groups[0], found.groups[1]), sides(found)):
        unlike = comparable(a, b).mismatches
        assert [each.kind for each in unlike] == [CONFOUNDED] and unlike[0].setting == "tower_graph"
        assert states(unlike[0].text, "tower_graph", "on in z0", "off in z1", HOOKS)
        assert all(comparable(a, b).why_not(metric) for metric in ("samples_per_s", "wall_p50_ms", "loss"))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (1, 1.0, True),
        ("1", "1.0", True),
        (1, "1.00", True),
        (True, 1, False),
        (True, 1.0, False),
        ("1.10", "1.1", False),
        (0.5, 0.25, False),
    ],
)
def test_the_same_value_written_otherwise_does_not_confound(one: Any, other: Any, is_same: bool) -> None:
    found = campaign(runs("a", {"nw": 0}, {"clip": ("auto", one, "")}), runs("b", {"nw": 2}, {"clip": ("auto", other, "")}, rate=90.0))
    a, b = sides(found)
    assert (comparable(a, b).of_kind(CONFOUNDED) is None) is is_same
    assert (comparable(*found.groups).of_kind(CONFOUNDED) is None) is is_same
    assert (a.effective == b.effective) is is_same
    # Nor are runs of one group set aside for it.
    mixed = runs("a", {"nw": 0}, {"clip": ("auto", one, "")})
    mixed[2] = runs("a", {"nw": 0}, {"clip": ("auto", other, "")})[2]
    assert (summarise_groups(mixed, "")[0].set_aside_runs == 0) is is_same


def test_no_group_wins_among_confounded_ones() -> None:
    found = campaign(Z0, Z1).ranking
    assert (found.winner, found.decided, found.recommended) == (None, False, "z0")
    assert found.confounded_by == ("tower_graph",)
    assert states(found.confounded, "tower_graph", "fast_paths=equal", "--allow-confounded")
    first, second = found.groups
    assert first.is_best and first.confounded and not second.is_best
    assert second.ratio is None and not second.tied and not second.is_compared and "tower_graph" in second.reason
    assert found.cautions[0].kind == CONFOUNDED
    assert found.reason.startswith("Confounded: tower_graph is on in z0")


def test_the_same_is_allowed_and_marked() -> None:
    found = ranked(campaign(Z0, Z1), allow_confounded=True)
    assert (found.winner, found.decided, found.allow_confounded) == ("z0", True, True)
    assert found.groups[1].ratio is not None and all(row.confounded for row in found.groups)
    assert "onfounded by tower_graph" in found.reason and found.cautions[0].kind == CONFOUNDED and found.confounded


@pytest.mark.parametrize("allowed", [False, True])
def test_speed_up_and_latency_of_confounded_groups_are_left_out_or_marked(allowed: bool) -> None:
    def timed(group: list[MeasuredRun], ms: float) -> list[MeasuredRun]:
        return [
            replace(run, measure=replace(run.measure, stage1={**run.measure.stage1, "tail_mean_iter_p50_ms": ms}))
            for run in group
            if run.measure
        ]

    third = timed(runs("z0_mb8", {"zero_stage": 0, "micro_batch": 8}, {"tower_graph": ON}, rate=90.0), 60.0)
    measured = [*timed(Z0, 46.0), *timed(Z1, 55.0), *third]
    groups = summarise_groups(measured, "z0", allow_confounded=allowed)
    speedup = {group.group: group.stage1["speedup_vs_baseline"] for group in groups}
    assert (speedup["z0"], speedup["z0_mb8"]) == (1.0, pytest.approx(46 / 60))
    assert speedup["z1"] == (pytest.approx(46 / 55) if allowed else None)
    (caution,) = [caution for group in groups for caution in group.cautions if caution.kind == "unlike_baseline"]
    assert caution.subject == "z1" and "confounded with the baseline z0 by tower_graph" in caution.text
    found = rank_groups(groups, "throughput", allow_confounded=allowed)
    assert (found.latency_winner, found.lowest_latency) == ("z0" if allowed else None, "z0")
    assert found.latency_confounded.startswith("tower_graph is on in z0")


def test_confounded_groups_that_are_not_the_best_do_not_matter_to_the_winner() -> None:
    best = runs("big", {"zero_stage": 0, "micro_batch": 64}, {"tower_graph": OFF}, rate=300.0)
    found = campaign(best, runs("z2", {"zero_stage": 2, "micro_batch": 64}, {"tower_graph": OFF}, rate=200.0))
    assert (found.ranking.winner, found.ranking.confounded) == ("big", "")


def test_compare_refuses_names_the_setting_and_goes_on_where_allowed() -> None:
    a, b = sides(campaign(Z0, Z1))
    with pytest.raises(RefusedError, match=r"tower_graph.*fast_paths=equal.*--allow-confounded"):
        compare(a, b)
    found = compare(a, b, allow_confounded=True)
    assert found.relation is Relation.SLOWER and "tower_graph" in found.confounded
    assert "Confounded by tower_graph" in found.reason and any("onfounded" in caution for caution in found.cautions)


def test_of_several_pairs_the_others_are_compared() -> None:
    third = runs("z0_mb8", {"zero_stage": 0, "micro_batch": 8}, {"tower_graph": ON}, rate=90.0)
    a, b, c = sides(campaign(Z0, Z1, third))
    confounded, clean = compare_pairs([(a, b), (a, c)], preset="highest_mean")
    assert confounded.ratio is None and "confounded: tower_graph" in confounded.reason and "wins" not in confounded.reason
    assert confounded.loss is not None and confounded.loss.verdict is LossVerdict.UNKNOWN
    assert clean.relation is Relation.SLOWER and not clean.confounded and "wins" in clean.reason


def test_scaling_of_confounded_groups_has_no_points() -> None:
    one = runs("r1", {"x": 1}, {"tower_graph": ON}, ranks=1)
    two = runs("r2", {"x": 1}, {"tower_graph": OFF}, ranks=2, rate=190.0)
    groups = sides(campaign(one, two))
    found = scaling(groups)
    assert not found.points and "tower_graph is on in r1 and off in r2" in found.reason
    allowed = scaling(groups, allow_confounded=True)
    assert allowed.is_measured and "onfounded" in allowed.cautions[0]


@pytest.mark.parametrize("by", ["follows", "declared"])
def test_a_setting_that_is_declared_to_follow_the_axis_does_not_confound(by: str) -> None:
    follows: dict[str, Any] = {by: {"model_load_dtype": ("attn_impl", "precision")}}
    a = runs("sdpa", {"attn_impl": "sdpa"}, {"attn_impl": SDPA, "model_load_dtype": ("auto", "fp32", "")}, **follows)
    b = runs("flash", {"attn_impl": "flash_attention_2"}, {"attn_impl": FLASH, "model_load_dtype": ("auto", "bf16", "no fp32")}, **follows)
    assert kinds(*campaign(a, b).groups) == []
    # The same two dtypes after something else.
    c = runs("z1", {"attn_impl": "sdpa", "zero_stage": 1}, {"attn_impl": SDPA, "model_load_dtype": ("auto", "bf16", "cast")}, **follows)
    assert kinds(*campaign(a, c).groups) == [CONFOUNDED]


def test_what_follows_an_axis_that_fell_back_confounds() -> None:
    follows = {"model_load_dtype": ("attn_impl",)}
    a = runs("sdpa", {"attn_impl": "sdpa"}, {"attn_impl": SDPA, "model_load_dtype": ("auto", "fp32", "")}, follows=follows)
    b = runs(
        "flash", {"attn_impl": "flash_attention_2"}, {"attn_impl": NO_FLASH, "model_load_dtype": ("auto", "bf16", "")}, follows=follows
    )
    assert kinds(*campaign(a, b).groups) == [CONFOUNDED]


@pytest.mark.parametrize(
    ("mode", "reason", "found"),
    [
        ("max-autotune", "torch.compile captures CUDA graphs itself", []),
        ("default", "length_buckets: batches have several shapes", ["tower_graph"]),
        (None, "torch.compile captures CUDA graphs itself", ["tower_graph"]),
    ],
    ids=["part of what was compiled", "taken by length buckets", "taken for a mode that did not compile"],
)
def test_a_graph_that_is_lost_follows_torch_compile_only_where_that_captures_graphs(
    mode: str | None, reason: str, found: list[str]
) -> None:
    plain = {"torch_compile": (False, False, ""), "torch_compile_mode": ("max-autotune", None, "off"), "tower_graph": ON}
    compiled = {
        "torch_compile": (True, mode is not None, ""),
        "torch_compile_mode": ("max-autotune", mode, ""),
        "tower_graph": (True, False, reason),
    }
    a = runs("plain", {"torch_compile": False, "length_buckets": False}, plain, follows=TRAINER_FOLLOWS)
    b = runs("tuned", {"torch_compile": True, "length_buckets": True}, compiled, follows=TRAINER_FOLLOWS, rate=120.0)
    assert [each.setting for each in comparable(*campaign(a, b).groups).mismatches] == found


@pytest.mark.parametrize(
    ("precision", "mixed", "found"), [("fp16", "weights", ["mixed_precision"]), ("fp32", "none", [])], ids=["by_precision", "nothing mixed"]
)
def test_two_ways_of_mixed_precision_do_not_follow_the_format(precision: str, mixed: str, found: list[str]) -> None:
    def group(name: str, mode: str) -> list[MeasuredRun]:
        reported = {"precision": (name, name, ""), "mixed_precision": ("by_precision", mode, "")}
        return runs(name, {"precision": name, "mixed_precision": "by_precision"}, reported, follows=TRAINER_FOLLOWS)

    unlike = comparable(*campaign(group("bf16", "autocast"), group(precision, mixed)).groups).mismatches
    assert [each.setting for each in unlike] == found
    assert not found or unlike[0].remedy == "set mixed_precision to autocast or weights in both"


NO_BF16 = "compute capability 7.0 has no bf16"


@pytest.mark.parametrize(
    ("settings", "reported", "said"),
    [
        (
            [{"precision": name, "model_load_dtype": name} for name in ("bf16", "fp16")],
            [dict.fromkeys(("precision", "model_load_dtype"), (value, "fp16", NO_BF16)) for value in ("bf16", "fp16")],
            "variant had no effect: both ran precision=fp16, model_load_dtype=fp16 (compute capability 7.0 has no bf16)",
        ),
        (
            [{"torch_adam": None}, {"torch_adam": True}],
            [
                {"torch_adam": (None, True, "no GPU"), "optimizer": ("auto", "AdamW", "no GPU")},
                {"torch_adam": (True, True, ""), "optimizer": ("AdamW", "AdamW", "")},
            ],
            "variant had no effect: both ran torch_adam=on",
        ),
        (
            [{"torch_compile": False, "torch_compile_mode": mode} for mode in ("default", "max-autotune")],
            [{"torch_compile": (False, False, ""), "torch_compile_mode": (mode, None, "off")} for mode in ("default", "max-autotune")],
            "variant had no effect: both ran torch_compile_mode=none (off)",
        ),
    ],
    ids=["bf16 on a V100", "the same Adam", "modes of what is not compiled"],
)
def test_settings_of_the_trainer_without_effect_are_said_first_and_not_compared(
    settings: list[dict[str, Any]], reported: list[Reported], said: str
) -> None:
    a, b = (
        runs(name, settings[index], reported[index], axes={"variant": name}, labels={"variant": ""}, follows=TRAINER_FOLLOWS)
        for index, name in enumerate(("first", "second"))
    )
    found = campaign(a, b)
    assert found.ranking.winner is None and found.ranking.reason.startswith(said)
    with pytest.raises(RefusedError, match="had no effect"):
        compare(*sides(found))


@pytest.mark.parametrize(
    ("requested", "remedy"),
    [("all", "equal"), ("equal:front_end,tower_graph", "front_end"), ("front_end,tower_graph", "equal")],
)
def test_the_remedy_is_what_the_two_do_not_have_yet(requested: str, remedy: str) -> None:
    asked = {"fast_paths": (requested, "", ""), "front_end": ON}
    a = runs("z0", {"zero_stage": 0}, {**asked, "tower_graph": ON})
    b = runs("z1", {"zero_stage": 1}, {**asked, "tower_graph": OFF})
    assert comparable(*campaign(a, b).groups).mismatches[0].remedy == f"set fast_paths={remedy}"


def test_the_remedy_for_what_fell_back_is_what_both_can_have() -> None:
    a = runs("a", {"x": 1}, {"attn_impl": FLASH})
    b = runs("b", {"x": 2}, {"attn_impl": NO_FLASH})
    assert comparable(*campaign(a, b).groups).mismatches[0].remedy == "set attn_impl=sdpa in both"


def test_settings_that_one_reason_took_are_one_clause() -> None:
    lost = dict.fromkeys(("first", "positions"), (True, False, "ZeRO 3 gathers weights"))
    a = runs("z0", {"zero_stage": 0}, {**dict.fromkeys(lost, ON), "dtype": ("auto", "fp32", "")})
    b = runs("z3", {"zero_stage": 3}, {**lost, "dtype": ("auto", "bf16", "cast")})
    found = comparable(*campaign(a, b).groups).mismatches[0]
    assert states(
        found.text, "first, positions", "on in z0", "off in z3", "(ZeRO 3 gathers weights)", "dtype", "fp32 in z0", "bf16 in z3", "(cast)"
    )
    assert states(found.remedy, "first=False", "positions=False", "1 more")


def test_auto_that_becomes_something_else_on_either_side_confounds() -> None:
    a = runs("bf16", {"precision": "bf16"}, {"attn_impl": ("auto", "sdpa", "bf16: sdpa")})
    b = runs("fp16", {"precision": "fp16"}, {"attn_impl": ("auto", "eager", "fp16: eager")})
    assert comparable(*campaign(a, b).groups).mismatches[0].remedy == "set attn_impl to sdpa or eager in both"


def test_what_was_requested_unlike_does_not_confound() -> None:
    a, b = runs("on", {"graph": True}, {"graph": ON}), runs("off", {"graph": False}, {"graph": (False, False, "")})
    assert kinds(*campaign(a, b).groups) == []


def test_an_axis_that_fell_back_on_one_side_has_no_effect() -> None:
    a = runs("sdpa", {"attn_impl": "sdpa"}, {"attn_impl": SDPA, "tower_graph": ON}, rate=100.0)
    b = runs("flash", {"attn_impl": "flash_attention_2"}, {"attn_impl": NO_FLASH, "tower_graph": ON}, rate=110.8)
    found = campaign(a, b)
    text = "attn_impl had no effect: both ran sdpa (flash_attn is not installed)"
    assert [each.text for each in comparable(*found.groups).mismatches] == [text]
    assert found.ranking.winner is None and found.ranking.recommended == "sdpa", "the one that got what it asked for stands for both"
    assert found.ranking.reason.startswith(text) and found.ranking.without_effect == (text,) and found.ranking.cautions[0].kind == NO_EFFECT
    flash = next(row for row in found.ranking.groups if row.group == "flash")
    assert (flash.same_as, flash.can_win, flash.ratio) == ("sdpa", False, None)
    # No option makes two measurements of one configuration a comparison.
    for allowed in (False, True):
        with pytest.raises(RefusedError, match="attn_impl had no effect"):
            compare(*sides(found), allow_confounded=allowed)


def test_a_duplicate_does_not_keep_another_group_from_losing() -> None:
    groups = [
        runs("eager", {"attn_impl": "eager"}, {"attn_impl": ("eager", "eager", "")}, rate=50.0),
        runs("flash", {"attn_impl": "flash_attention_2"}, {"attn_impl": NO_FLASH}, rate=100.0),
        runs("sdpa", {"attn_impl": "sdpa"}, {"attn_impl": SDPA}, rate=100.02),
    ]
    found = campaign(*groups).ranking
    assert (found.winner, found.decided) == ("sdpa", True) and "no effect" in found.reason


def test_a_bundle_without_effect_is_named_by_its_axis() -> None:
    def bundle(name: str, attention: str, reported: Reported) -> list[MeasuredRun]:
        settings = {"speech_attn_impl": attention, "text_attn_impl": attention}
        return runs(name, settings, reported, axes={"variant": name}, labels={"variant": ""})

    a = bundle("base", "sdpa", {"speech_attn_impl": SDPA, "text_attn_impl": SDPA})
    b = bundle("fa2", "flash_attention_2", {"speech_attn_impl": NO_FLASH, "text_attn_impl": NO_FLASH})
    text = comparable(*campaign(a, b).groups).text
    assert text.startswith("variant had no effect: both ran speech_attn_impl=sdpa, text_attn_impl=sdpa (flash_attn is not")
    # One of the two did have an effect: the rest is compared, by what is in effect.
    half = bundle("half", "flash_attention_2", {"speech_attn_impl": NO_FLASH, "text_attn_impl": FLASH})
    found = compare(*sides(campaign(a, half)))
    assert found.relation is not Relation.FASTER and "text_attn_impl (sdpa → flash_attention_2)" in found.differs
    assert not any("speech_attn_impl" in each for each in found.differs)
    assert any("speech_attn_impl had no effect" in caution for caution in found.cautions)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"attn_impl": "flash_attention_2", "num_workers": 4}},
        {"fingerprint": "f1"},
        {"ranks": 2},
        {"env": {"NCCL_ALGO": "Ring"}},
    ],
    ids=["a setting that is not reported", "other code", "more ranks", "a variable"],
)
def test_nothing_is_said_to_have_no_effect_where_something_else_differs(changes: dict[str, Any]) -> None:
    a = runs("sdpa", {"attn_impl": "sdpa"}, {"attn_impl": SDPA})
    values: dict[str, Any] = {"settings": {"attn_impl": "flash_attention_2"}, **changes}
    b = runs("flash", values.pop("settings"), {"attn_impl": NO_FLASH}, **values)
    assert NO_EFFECT not in kinds(*campaign(a, b).groups)


def test_nothing_is_said_of_an_axis_that_the_workload_does_not_report() -> None:
    a, b = runs("a", {"attn_impl": "sdpa"}, {"tower_graph": ON}), runs("b", {"attn_impl": "flash"}, {"tower_graph": ON})
    found = campaign(a, b)
    assert kinds(*found.groups) == [] and equivalent_groups(found.groups) == {}


def with_args(group: list[MeasuredRun], *args: str) -> list[MeasuredRun]:
    """The same runs of a script with these arguments, `{run}` filled."""
    found = []
    for run in group:
        spec = run.attempt.spec
        workload = replace(spec.workload, args=tuple(argument.replace("{run}", spec.run) for argument in args))
        found.append(replace(run, attempt=replace(run.attempt, spec=replace(spec, workload=workload))))
    return found


def test_an_axis_of_a_script_is_the_option_that_it_sets() -> None:
    a = runs("sdpa", {}, {"attn_impl": SDPA}, axes={"attn": "sdpa"})
    b = runs("flash", {}, {"attn_impl": NO_FLASH}, axes={"attn": "flash_attention_2"})
    options = [("--attn-impl", "sdpa", "--out", "{run}"), ("--attn-impl", "flash_attention_2", "--out", "{run}")]
    found = campaign(with_args(a, *options[0]), with_args(b, *options[1]))
    assert kinds(*found.groups) == [NO_EFFECT] and found.ranking.without_effect
    # Another option of the two that differs may be the purpose.
    found = campaign(with_args(a, *options[0], "--lr", "1"), with_args(b, *options[1], "--lr", "2"))
    assert kinds(*found.groups) == [] and not found.ranking.without_effect


def test_a_fallback_that_only_its_own_side_reports_has_no_effect() -> None:
    """torch.compile is reported only where it was asked for, and with it what follows it."""
    follows = {"tower_graph": ("torch_compile",)}
    a = runs("plain", {"torch_compile": False}, {"precision": ("bf16", "bf16", "")}, follows=follows)
    failed = {"precision": ("bf16", "bf16", ""), "torch_compile": (True, False, "no compiler"), "tower_graph": (True, False, "no GPU")}
    b = runs("compiled", {"torch_compile": True}, failed, follows=follows)
    assert comparable(*campaign(a, b).groups).text == "torch_compile had no effect: off in both (no compiler)"
    assert campaign(a, b).ranking.without_effect


def test_what_only_one_side_reports_is_a_caution() -> None:
    a, b = runs("z0", {"zero_stage": 0}, {"tower_graph": ON}), runs("z1", {"zero_stage": 1}, {}, rate=150.0)
    found = campaign(a, b)
    assert kinds(*found.groups) == [] and found.ranking.winner == "z1"
    assert [caution.kind for caution in found.ranking.cautions] == ["unreported_settings"]
    compared = compare(*sides(found))
    assert compared.relation is Relation.FASTER and any("Only z0 reports tower_graph (on)" in caution for caution in compared.cautions)
    # What is there only with workers follows their number.
    no_workers = {"prefetch_factor": (2, None, "num_workers is 0")}
    follows = {"prefetch_factor": ("num_workers",)}
    c, d = runs("nw0", {"num_workers": 0}, no_workers, follows=follows), runs("nw2", {"num_workers": 2}, {}, follows=follows, rate=150.0)
    assert campaign(c, d).ranking.cautions == ()


def test_a_switch_of_the_original_scripts_may_be_what_was_asked_for() -> None:
    def compiled(name: str, value: bool) -> list[MeasuredRun]:
        return runs(name, {"variant": name}, {"torch_compile_enabled": (None, value, "")}, follows=dict(FOLLOWS))

    assert kinds(*campaign(compiled("old_like", False), compiled("tuned", True)).groups) == []


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (1, 1.0, []),
        ("1.0", 1, []),
        ("1e-4", 0.0001, []),
        (True, "true", []),
        ("FALSE", False, []),
        (True, 1, [CONFOUNDED]),
        ("2.1", "2.10", [CONFOUNDED]),
    ],
)
def test_a_value_in_another_spelling_is_the_same_value(one: Any, other: Any, found: list[str]) -> None:
    groups = campaign(*(runs(name, {"x": name}, {"scale": ("auto", value, "")}) for name, value in (("a", one), ("b", other)))).groups
    assert kinds(groups[0], groups[1]) == found
    # Repeats of one group are not set aside for it either.
    again = [*runs("a", {"x": 1}, {"scale": ("auto", one, "")})[:2], runs("a", {"x": 1}, {"scale": ("auto", other, "")})[2]]
    assert campaign(again).groups[0].runs == (1 if found else 3)


def test_a_fallback_that_the_other_group_does_not_report_confounds() -> None:
    """Both plans ask for the graph, or none names it: what became of it in the silent group is unknown."""
    for settings in ({}, {"tower_graph": True}):
        a = runs("z0", {"zero_stage": 0, **settings}, {}, rate=130.0)
        b = runs("z1", {"zero_stage": 1, **settings}, {"tower_graph": OFF})
        found = campaign(a, b)
        (unlike,) = comparable(*found.groups).mismatches
        assert states(unlike.text, "tower_graph", "unknown in z0", "off in z1", HOOKS)
        assert found.ranking.winner is None and unlike.remedy == "set fast_paths=equal"
        assert [caution.kind for caution in found.ranking.cautions] == [CONFOUNDED], "said once"
    # In another campaign a script may not have had it at all.
    one, other = sides(campaign(runs("z0", {"zero_stage": 0}, {}), Z1))
    assert kinds(replace(one, campaign="/other"), other) == []


def test_no_group_wins_under_a_name_that_did_not_run() -> None:
    fast = runs("fast", {"attn": "fast"}, {"attn": ("fast", "eager", "fast is not here")}, rate=200.0)
    slow = runs("slow", {"attn": "slow"}, {"attn": ("slow", "slow", "")})
    found = campaign(fast, slow)
    (unlike,) = comparable(*found.groups).mismatches
    assert states(unlike.text, "attn", "eager in fast", "slow in slow", "(fast is not here)")
    assert unlike.remedy == "set attn=eager in fast" and found.ranking.winner is None
    assert states(found.ranking.confounded, "attn", "eager in fast")


def test_no_group_wins_under_a_name_that_did_not_run_where_the_other_reports_nothing() -> None:
    flash = runs("flash", {"attn": "flash"}, {"attn": ("flash", "eager", "flash is not installed")}, rate=200.0)
    found = campaign(flash, runs("sdpa", {"attn": "sdpa"}, {}))
    (unlike,) = comparable(*found.groups).mismatches
    assert unlike.kind == CONFOUNDED and unlike.remedy == "set attn=eager in flash"
    assert states(unlike.text, "attn", "eager in flash", "unknown in sdpa")
    assert (found.ranking.winner, found.ranking.decided) == (None, False) and "eager" in found.ranking.confounded
    with pytest.raises(RefusedError, match="eager in flash"):
        compare(*sides(found))
    # One that got what it asked for is compared.
    as_asked = runs("flash", {"attn": "flash"}, {"attn": ("flash", "flash", "")}, rate=200.0)
    assert campaign(as_asked, runs("sdpa", {"attn": "sdpa"}, {})).ranking.winner == "flash"


@pytest.mark.parametrize(
    ("requested", "effective"),
    [
        ("flash", "flash_attention_2"),
        ("flash", "FlashAttention2"),
        ("flash_attention_2", "flash"),
        ("flash_attention_2", "kernels-community/flash-attention-2"),
        ("sdpa", "SDPAttention"),
        ("sdpa", "torch_sdpa"),
        ("sdpa", "scaled_dot_product_attention"),
        ("bf16", "torch.bfloat16"),
        ("bf16", "bfloat16-mixed"),
        ("fp16", "half"),
        ("float32", "fp32 (TF32 off)"),
        ("zero1", "zero_1"),
        ("int16", "int_16"),
        ("adamw", "torch.optim.AdamW"),
        ("nccl", "NCCL 2.21; 4 channels"),
        ("cuda", "cuda:0"),
        ("front_end,tower_graph", "front_end, tower_graph"),
        (0, False),
        (1, True),
        ("auto", "sdpa"),
    ],
)
def test_a_longer_name_for_what_was_asked_for_is_no_fallback(requested: str, effective: str) -> None:
    a = runs("a", {"kind": requested}, {"kind": (requested, effective, "")}, rate=200.0)
    b = runs("b", {"kind": "other"}, {"kind": ("other", "other", "")})
    assert campaign(a, b).ranking.winner == "a"


@pytest.mark.parametrize(
    ("requested", "effective"),
    [
        ("flash", "sdpa (flash not installed)"),
        ("flash", "flash -> eager"),
        ("flash", "flash unavailable"),
        ("flash_attention_3", "flash_attention_2"),
        ("fused", "not fused"),
        ("adamw_fused", "adamw"),
        ("adam", "adamw"),
        ("nccl", "gloo; nccl not built"),
        ("fp16", "bf16 (fp16 unsupported)"),
        ("zero1", "zero10"),
        ("cuda:1", "cuda:0"),
        ("front_end,tower_graph", "front_end"),
        ("flash", ""),
        (1, False),
        (2, True),
    ],
)
def test_a_report_that_only_names_what_was_asked_for_is_a_fallback(requested: str, effective: str) -> None:
    a = runs("a", {"kind": requested}, {"kind": (requested, effective, "")}, rate=200.0)
    b = runs("b", {"kind": "other"}, {"kind": ("other", "other", "")})
    assert campaign(a, b).ranking.winner is None and kinds(*campaign(a, b).groups) == [CONFOUNDED]


def test_what_was_requested_is_named_beside_what_it_fell_back_to() -> None:
    a = runs("a", {"kind": "flash"}, {"kind": ("flash", "eager", "")}, rate=200.0)
    b = runs("b", {"kind": "other"}, {"kind": ("other", "other", "")})
    (mismatch,) = comparable(*campaign(a, b).groups).mismatches
    assert states(mismatch.text, "eager in a, which requested flash", "other in b")


def test_a_switch_that_is_requested_as_a_number_and_reported_as_a_truth_value_is_as_requested() -> None:
    off, on = runs("off", {"graph": 0}, {"graph": (0, False, "")}), runs("on", {"graph": 1}, {"graph": (1, True, "")}, rate=200.0)
    assert campaign(off, on).ranking.winner == "on"
    lost = runs("on", {"graph": 1}, {"graph": (1, False, "capture failed")}, rate=200.0)
    for other in (off, runs("off", {"graph": 0}, {})):
        found = campaign(other, lost)
        assert kinds(*found.groups) == [NO_EFFECT] and found.ranking.recommended == "off"


@pytest.mark.parametrize("settings", [({"x": 1}, {"x": 2}), ({"attn": "sdpa"}, {"attn": "fused"})], ids=["not the axis", "the axis"])
def test_ranks_that_disagree_confound(settings: tuple[dict[str, Any], dict[str, Any]]) -> None:
    mixed = ("fused", "mixed: fused on 3 of 4 ranks", "rank 1 has sdpa: not installed")
    a = runs("a", settings[0], {"attn": (settings[0].get("attn", "fused"), settings[0].get("attn", "fused"), "")})
    b = runs("b", settings[1], {"attn": mixed}, rate=200.0)
    found = campaign(a, b)
    (unlike,) = comparable(*found.groups).mismatches
    assert "mixed: fused on 3 of 4 ranks in b" in unlike.text and "(rank 1 has sdpa: not installed)" in unlike.text
    assert states(unlike.remedy, "attn", "all ranks of b") and found.ranking.winner is None


def test_secrets_do_not_reach_effective_settings() -> None:
    token = "hf_abcdefghijklmnop"
    found = campaign(runs("a", {"hub_token": token}, {"hub_token": (token, token, f"from {token}")})).groups[0]
    assert token not in repr((found.effective_settings, found.requested)) and found.effective_settings[0].name == "hub_token"
