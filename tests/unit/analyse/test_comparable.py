"""One question, asked by ranking, comparison, criteria and scaling: is a sample, and is a step, the same amount of work in both groups?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.comparable import LOSS, PER_STEP, UNLIKE_SAMPLES, UNLIKE_STEPS, all_comparable, comparable
from seatrial.analyse.groups import summarise_groups
from seatrial.analyse.measure import measure_run
from seatrial.analyse.ranking import rank_groups
from seatrial.analyse.scaling import scaling
from seatrial.analyse.statistics import estimate
from seatrial.analyse.work_settings import SAMPLES, is_harmless, run_work_settings, typed_settings, work_settings, work_unit
from seatrial.records.comparison import ComparedGroup, ComparedRun, LossVerdict, Relation
from seatrial.records.measure import GroupSummary, ReportedFigure
from seatrial.records.ranking import ranked_group_json
from seatrial.records.results import GroupedCampaign, MeasuredRun
from seatrial.report.comparison import facts, relation_text
from seatrial.results.compare import compared_group
from tests.unit.analyse import factory
from tests.unit.analyse.factory import compare, course, side


def sized(name: str, sample: float, *, step_s: float, batch: int = 8, repeats: int = 3, **settings: Any) -> ComparedGroup:
    """A side whose steps of `batch` samples take `step_s`; a sample has `sample` tokens, unknown where it is 0."""
    steps_s = [step_s * (1 + 0.001 * at * (-1) ** len(name)) for at in range(repeats)]
    runs = tuple(
        ComparedRun(run=f"{name}_r{at}", repeat=at, started_t=1000.0 + 100 * at, figures=rates(sample, each, batch))
        for at, each in enumerate(steps_s)
    )
    return side(name, (), runs=runs, settings={key: str(value) for key, value in settings.items()})


def rates(sample: float, step_s: float, batch: int) -> dict[str, float]:
    figures = {"steps_per_s": 1 / step_s, "samples_per_s": batch / step_s, "wall_p50_ms": 1000 * step_s}
    return figures | ({"tokens_per_s": batch * sample / step_s} if sample else {})


def summary(name: str, sample: float, *, step_s: float, batch: int = 8, **axes: Any) -> GroupSummary:
    """The same as a group of a ranking."""
    runs = [rates(sample, step_s * (1 + 0.001 * at), batch) for at in range(3)]
    figures = {key: found for key in runs[0] if (found := estimate([run[key] for run in runs]))}
    return factory.group(name, figures=figures, axes=axes)


# The reproduction: steps of 20 and 30 ms, 8 samples each, of 32 and 64 tokens. Samples/s says 32, tokens/s says 64.
SHORT, LONG = summary("bs32", 0, step_s=0.02, block_size=32), summary("bs64", 0, step_s=0.03, block_size=64)
TOKENS_SHORT, TOKENS_LONG = summary("bs32", 32, step_s=0.02, block_size=32), summary("bs64", 64, step_s=0.03, block_size=64)


def test_no_group_wins_by_samples_of_unlike_size() -> None:
    found = rank_groups([SHORT, LONG], "throughput")
    assert (found.winner, found.recommended, found.decided, found.metric) == (None, None, False, "samples_per_s")
    assert not any(row.can_win or row.ratio for row in found.groups)
    assert "block_size (32 → 64) changes the size of a sample" in found.reason
    assert [caution.kind for caution in found.cautions] == [UNLIKE_SAMPLES]
    assert "{block_size}" not in found.cautions[0].text, "a length is no number of samples"


def test_tokens_decide_where_every_group_has_them() -> None:
    found = rank_groups([TOKENS_SHORT, TOKENS_LONG], "throughput")
    assert (found.metric, found.winner, found.decided) == ("tokens_per_s", "bs64", True)
    assert [caution.kind for caution in found.cautions] == [UNLIKE_SAMPLES], "why it is not samples/s"
    one_lacks = rank_groups([TOKENS_SHORT, LONG], "throughput")
    assert (one_lacks.metric, one_lacks.winner, one_lacks.recommended) == ("samples_per_s", None, None)
    asked_for = rank_groups([TOKENS_SHORT, TOKENS_LONG], "samples_per_s")
    assert (asked_for.metric, asked_for.winner, asked_for.recommended) == ("samples_per_s", None, None)
    assert "tokens_per_s" in asked_for.reason


def test_seconds_of_audio_decide_between_slices() -> None:
    """The measured length of a sample times samples/s; without it no group wins."""
    lengths = (1.0, 3.0)
    runs = [
        measure_run(
            factory.attempt(factory.spec(f"s{length:g}", repeat, axes={"fixed_slice_s": length})),
            factory.tables(
                factory.steps_of([20.0 * length**0.5 + 0.01 * repeat] * 60, samples=8.0),
                reported={"audio_s_per_sample": ReportedFigure(value=length, unit="s")},
            ),
        )
        for length in lengths
        for repeat in (1, 2, 3)
    ]
    specs = [factory.spec(f"s{length:g}", repeat, axes={"fixed_slice_s": length}) for length in lengths for repeat in (1, 2, 3)]
    measured = [replace(factory.measured(spec), measure=found) for spec, found in zip(specs, runs, strict=True)]
    found = rank_groups(summarise_groups(measured, ""), "throughput")
    assert (found.metric, found.recommended) == ("audio_s_per_s", "s3")
    silent = [replace(run, measure=replace(run.measure, audio_s_per_s=None)) for run in measured if run.measure]
    without = rank_groups(summarise_groups(silent, ""), "throughput")
    assert (without.metric, without.recommended) == ("samples_per_s", None)


def test_a_failed_group_of_another_size_leaves_the_others_comparable() -> None:
    others = [summary("a", 0, step_s=0.02, block_size=32, nw=0), summary("b", 0, step_s=0.03, block_size=32, nw=2)]
    failed = factory.group("c", runs=1, failed_runs=2, figures=LONG.figures, axes={"block_size": 64, "nw": 0})
    assert rank_groups([*others, failed], "throughput").winner == "a"


@pytest.mark.parametrize("axis", ["bs", "block_size"])
@pytest.mark.parametrize("metric", PER_STEP)
def test_steps_of_unlike_work_name_no_winner(metric: str, axis: str) -> None:
    groups = [
        factory.group(f"g{at}", figures={metric: found}, axes={axis: 8 * at}) for at in (1, 2) if (found := estimate([at, at * 1.01]))
    ]
    found = rank_groups(groups, "throughput")
    assert (found.winner, found.recommended) == (None, None)
    assert ('"{bs}"' in found.reason) is ((metric, axis) == ("steps_per_s", "bs"))
    assert "{block_size}" not in found.reason


def test_step_times_are_ranked_with_a_caution() -> None:
    found = rank_groups([summary("a", 0, step_s=0.02, bs=8), summary("b", 0, step_s=0.03, batch=16, bs=16)], "wall_p50_ms")
    assert (found.winner, [caution.kind for caution in found.cautions]) == ("a", [UNLIKE_STEPS])


def test_step_times_of_samples_of_unlike_size_are_not_ranked() -> None:
    """A smaller sample is trivially faster."""
    found = rank_groups([SHORT, LONG], "wall_p50_ms")
    assert (found.winner, found.recommended) == (None, None) and "cannot be compared between these groups" in found.reason
    short, long = sized("a", 0, step_s=0.02, block_size=32), sized("b", 0, step_s=0.03, block_size=64)
    compared = compare(short, long, metric="wall_p50_ms")
    assert (compared.relation, compared.ratio) == (Relation.AMBIGUOUS, None)
    assert "block_size (32 → 64) changes the size of a sample" in compared.reason and compared.cautions == ()
    # Nor does stage 1's own figure name a winner.
    cells = {"tail_mean_iter_p50_ms_mean": 20.0}
    found = rank_groups([replace(SHORT, stage1=cells), replace(LONG, stage1=cells)], "throughput")
    assert found.latency_winner is None and "changes the size of a sample" in found.latency_unlike


def script(
    name: str, step_s: float, axes: dict[str, Any], *, samples: int = 0, tokens: int = 0, typed: float | None = None
) -> GroupSummary:
    """A group of a script that declares nothing; its work is known only where it is given."""
    figures = {"steps_per_s": estimate([1 / step_s, 1.01 / step_s, 0.99 / step_s]), "wall_p50_ms": estimate([1e3 * step_s] * 2)}
    figures |= (
        {"samples_per_s": estimate([(samples or typed or 0) / step_s * part for part in (1, 1.01, 0.99)])} if samples or typed else {}
    )
    figures |= {"tokens_per_s": estimate([tokens / step_s * part for part in (1, 1.01, 0.99)])} if tokens else {}
    known = {key: value for key, value in figures.items() if value}
    typed_work = {"samples_per_step": typed} if typed else {}
    return factory.group(name, figures=known, axes=axes, typed_work=typed_work, declares_work=False)


@pytest.mark.parametrize("axis", ["T", "L", "size", "win", "tokens", "n_seq", "img_px", "train.T"])
def test_steps_of_samples_that_may_be_of_unlike_size_name_no_winner(axis: str) -> None:
    found = rank_groups([script("a", 0.02, {axis: 32}), script("b", 0.03, {axis: 64})], "throughput")
    assert (found.metric, found.winner, found.recommended) == ("steps_per_s", None, None)
    assert f"{axis} (32 → 64)" in found.reason and "the size of a sample" in found.reason


@pytest.mark.parametrize(
    ("known", "metric", "condition"),
    [
        ({}, "steps_per_s", "if a step is the same work in every group"),
        ({"samples": 8}, "samples_per_s", "if a sample is the same work in every group"),
        ({"typed": 8.0}, "samples_per_s", "if a step is the same work in every group"),
        ({"tokens": 512}, "tokens_per_s", ""),
        ({"samples": 8, "tokens": 512}, "samples_per_s", ""),
    ],
)
def test_a_winner_on_an_axis_of_unknown_meaning_stands_under_a_condition(known: dict[str, Any], metric: str, condition: str) -> None:
    groups = [script("a", 0.02, {"variant": "x"}, **known), script("b", 0.03, {"variant": "y"}, **known)]
    found = rank_groups(groups, "throughput")
    assert (found.metric, found.winner, found.condition) == (metric, "a", condition)
    cautions = [caution for caution in found.cautions if caution.kind in ("unknown_work", "constant_work")]
    assert len(cautions) == bool(condition) and all("variant" in caution.text for caution in cautions)
    by_time = rank_groups(groups, "wall_p50_ms")
    assert bool(by_time.condition) is bool(condition)
    # A workload that declares what changes its work leaves nothing open.
    declared = rank_groups([replace(group, declares_work=True, typed_work={}) for group in groups], "throughput")
    assert (declared.winner, declared.condition) == ("a", "")


@pytest.mark.parametrize(
    "axis",
    ["num_workers", "seed", "lr", "prefetch_factor", "pin_memory", "compile", "bucket_cap_mb", "env.NCCL_ALGO", "node", "opt", "lora_r"],
)
def test_an_axis_that_does_not_change_the_work_needs_no_condition(axis: str) -> None:
    found = rank_groups([script("a", 0.02, {axis: 1}), script("b", 0.03, {axis: 2})], "throughput")
    assert (found.winner, found.condition, found.cautions) == ("a", "", ())


def test_the_option_that_an_axis_sets_says_what_it_is() -> None:
    a, b = script("a", 0.02, {"x": 1}), script("b", 0.03, {"x": 2})
    named = [replace(group, requested={"x": value, "lr": value}) for group, value in ((a, "1"), (b, "2"))]
    assert rank_groups(named, "throughput").condition == ""
    # One that is known says nothing about another that it sets as well.
    for others in ({"lr": "1"}, {"lr": None}):
        unnamed = [
            replace(group, requested={"x": value, "y": value, **{name: fixed or value for name, fixed in others.items()}})
            for group, value in ((a, "1"), (b, "2"))
        ]
        assert rank_groups(unnamed, "throughput").condition


def test_ranks_that_nobody_saw_leave_the_work_of_a_step_open() -> None:
    groups = [script("a", 0.02, {"nproc": 1}), script("b", 0.03, {"nproc": 3})]
    assert rank_groups(groups, "throughput").condition
    seen = [replace(group, world_size=ranks) for group, ranks in zip(groups, (1, 3), strict=True)]
    found = rank_groups(seen, "throughput")
    assert (found.winner, found.condition) == (None, "") and "the number of ranks (1 → 3) differs" in found.cautions[0].text


def ranked_runs(name: str, sizes: Sequence[int], **measure: Any) -> list[MeasuredRun]:
    """Runs of a script's group, each on so many ranks."""
    return [
        factory.measured(
            factory.spec(name, repeat, axes={"nproc": sizes[0]}),
            measure={"world_size": ranks, "steps_per_s": (40 + repeat / 10) / sizes[0], **measure},
            started_t=factory.STARTED_T + 100 * repeat,
        )
        for repeat, ranks in enumerate(sizes, start=1)
    ]


def test_a_ranking_and_a_comparison_take_the_ranks_from_the_runs() -> None:
    measured = [*ranked_runs("a", (1, 1, 1)), *ranked_runs("b", (3, 3, 3))]
    groups = summarise_groups(measured, "")
    assert [(group.world_size, group.ranks_known) for group in groups] == [(1, True), (3, True)]
    ranking = rank_groups(groups, "throughput")
    assert (ranking.winner, ranking.condition) == (None, "")
    found = GroupedCampaign(output="/out", baseline_group="", runs=tuple(measured), pending=(), groups=groups, ranking=ranking)
    compared = compare(compared_group(found, "a"), compared_group(found, "b"))
    text = "the number of ranks (1 → 3) differs"
    assert compared.relation is Relation.AMBIGUOUS and text in compared.reason and text in ranking.reason
    # No column, and no key of the line for machines.
    assert "world_size" not in {**groups[0].stage1, **ranked_group_json(ranking.groups[0])["summary"]}


@pytest.mark.parametrize("runs", [ranked_runs("b", (3, 2, 3)), ranked_runs("b", (3, 3, 3), ranks_known=False)])
def test_ranks_on_which_runs_disagree_or_that_were_not_seen_are_unknown(runs: list[MeasuredRun]) -> None:
    groups = summarise_groups([*ranked_runs("a", (1, 1, 1)), *runs], "")
    assert (groups[1].world_size, groups[1].ranks_known) == (3, False)
    assert rank_groups(groups, "throughput").condition == "if a step is the same work in every group"


def test_a_comparison_states_its_condition_first() -> None:
    a, b = (
        replace(sized(name, 0, step_s=step_s, variant=name), declares_work=False, typed_work={"samples_per_step": 8.0})
        for name, step_s in (("a", 0.03), ("bb", 0.02))
    )
    found = compare(a, b)
    assert (found.relation, found.condition) == (Relation.FASTER, "if a step is the same work in both")
    assert found.reason.startswith("If a step is the same work in both (variant may change it: set workload.samples_per_step): bb has")
    assert relation_text(found) == "FASTER, if a step is the same work in both"
    assert compare(replace(a, settings={}), replace(b, settings={})).condition == ""


def test_larger_images_are_compared_by_the_tokens_that_they_are() -> None:
    small, large = (summary(f"i{size}", size, step_s=size / 1000, image_size=size) for size in (224, 448))
    assert rank_groups([small, large], "throughput").metric == "tokens_per_s"
    # The same tokens in a sample: they are of its text, and say nothing of the images.
    assert rank_groups([small, replace(large, figures=small.figures)], "throughput").recommended is None


def test_runs_that_may_have_failed_decide_nothing() -> None:
    a, b = sized("a", 32, step_s=0.02), replace(sized("b", 32, step_s=0.01), may_have_failed=3)
    found = compare(a, b)
    assert found.relation is Relation.AMBIGUOUS and "may have failed" in found.reason


def test_compare_refuses_samples_of_unlike_size_and_uses_tokens() -> None:
    short, long = sized("a", 0, step_s=0.02, block_size=32), sized("b", 0, step_s=0.03, block_size=64)
    refused = compare(short, long)
    assert (refused.relation, refused.ratio) == (Relation.AMBIGUOUS, None)
    assert "block_size (32 → 64)" in refused.reason
    found = compare(sized("a", 32, step_s=0.02, block_size=32), sized("bb", 64, step_s=0.03, block_size=64))
    assert (found.metric, found.relation) == ("tokens_per_s", Relation.FASTER)
    assert any("samples/s cannot be" in caution for caution in found.cautions)


def test_rates_are_per_rank_where_there_is_no_gpu() -> None:
    cpu = {"host": "node-1", "gpu_name": "none"}
    units = [
        compare(side("a", [100.0, 101.0], machine=machine), factory.elsewhere("b", [190.0, 192.0], world_size=2, machine=machine)).unit
        for machine in (cpu, factory.MACHINE)
    ]
    assert units == ["samples/s per rank", "samples/s per GPU"]


def test_an_absurd_detectable_difference_is_too_few_runs() -> None:
    found = compare(side("a", [1.0, 1e3, 1e6]), factory.elsewhere("b", [2.0, 1e3, 1e6]))
    assert found.ratio is not None and found.detectable_pct is None and "too few runs to tell" in found.reason
    assert dict(facts(found))["would show"][0].startswith("too few runs to tell")


def test_losses_of_unlike_lengths_are_not_judged() -> None:
    short, long = (
        side(name, [100.0, 101.0], offset_s=at, run={"loss": course(loss)}, settings={"seq_len": str(128 * (at + 1))})
        for at, (name, loss) in enumerate((("a", 2.0), ("b", 3.0)))
    )
    found = compare(short, long).loss
    assert found is not None and found.verdict is LossVerdict.UNKNOWN and "seq_len (128 → 256)" in found.reason


def test_scaling_needs_samples_of_one_size() -> None:
    groups = [
        side(f"g{ranks}", [100.0 * ranks, 101.0 * ranks], world_size=ranks, settings={"image_size": str(128 * ranks)}) for ranks in (1, 2)
    ]
    found = scaling(groups)
    assert not found.points and not found.is_measured and "image_size (128 → 256)" in found.reason
    tokens = [sized(f"g{ranks}", 64 * ranks, step_s=0.02, batch=8 * ranks, seq_len=64 * ranks) for ranks in (1, 2)]
    by_tokens = scaling(
        [factory.elsewhere(one.name, (), runs=one.runs, settings=one.settings, world_size=at) for at, one in enumerate(tokens, 1)]
    )
    assert by_tokens.metric == "tokens_per_s" and by_tokens.is_measured


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        # What was measured shows it without a setting, and outweighs a maximum that no text reaches.
        (sized("a", 100, step_s=0.02), sized("b", 130, step_s=0.02), UNLIKE_SAMPLES),
        (sized("a", 100, step_s=0.02), sized("b", 102, step_s=0.02), ""),
        (sized("a", 100, step_s=0.02, max_length=512), sized("b", 100, step_s=0.02, max_length=1024), ""),
        (sized("a", 0, step_s=0.02, max_length=512), sized("b", 0, step_s=0.02, max_length=1024), UNLIKE_SAMPLES),
        (sized("a", 0, step_s=0.02, lr=1), sized("b", 0, step_s=0.02, lr=2), ""),
        # Tokens of a caption do not measure an image.
        (sized("a", 10, step_s=0.02, image_size=224), sized("b", 10, step_s=0.02, image_size=448), UNLIKE_SAMPLES),
    ],
)
def test_what_is_unlike(a: ComparedGroup, b: ComparedGroup, kind: str) -> None:
    found = comparable(a, b)
    assert [each.kind for each in found.mismatches] == ([kind] if kind else [])
    assert bool(found.why_not("samples_per_s")) is bool(found.why_not(LOSS)) is (kind == UNLIKE_SAMPLES)
    if "image_size" in a.settings:
        assert found.why_not("tokens_per_s")


def test_what_a_workload_declares_outweighs_the_name() -> None:
    assert work_unit("width") == "" and work_unit("width", {"width": "tokens"}) == "tokens"
    (declared,) = work_settings({"width": "8", "lr": "1"}, {"width": "tokens"})
    a, b = (factory.group(name, figures=LONG.figures, work=(declared,) if at else ()) for at, name in enumerate("ab"))
    assert comparable(a, b).mismatches[0].setting == "width (none → 8)"
    assert all_comparable([a, a]).mismatches == () and all_comparable([]).mismatches == ()


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("tokens", "seq_len sequence_length max_seq_len max_length block_size context_length train.seq_len env.SEQ_LEN max-length n_ctx"),
        ("tokens", "block seq context length max_tokens max_source_length prompt_len n_positions T L tokens n_seq size win data.T"),
        ("audio_s", "fixed_slice_s max_slice_s audio_length clip_seconds"),
        ("pixels", "image_size img_size resolution crop_size num_frames imgsz patch_size res height img_h image_width train_res"),
        ("audio_s", "clip_duration audio_duration"),
        (
            SAMPLES,
            "bs mb batch_size micro_batch per_device_batch_size accum_steps gradient_accumulation_steps",
        ),
        (SAMPLES, "ga gbs train_batch_size_per_gpu tokens_per_batch samples_per_gpu imgs_per_gpu seqs_per_device tokens_per_gpu"),
        ("", "t l lr num_workers prefetch_factor d_model precision steps batches absolute blocks length_buckets gradient_clipping"),
        (
            "",
            "bucket_cap_mb max_split_size_mb kv_block_size mp_ctx chunk_size n_layers vocab_size width context_parallel log_length",
        ),
    ],
)
def test_settings_by_name(unit: str, names: str) -> None:
    assert {name: work_unit(name) for name in names.split()} == dict.fromkeys(names.split(), unit)


def swept(axis: str, args: tuple[str, ...]) -> list[GroupSummary]:
    """Two groups of a command with `{}` for the axis, 32 and 64."""
    specs = [
        replace(factory.spec(f"b{size}_r1"), axes={axis: size}, workload=replace(factory.spec("b").workload, args=filled))
        for size in (32, 64)
        for filled in [tuple(arg.replace("{}", str(size)).replace("{{", "{").replace("}}", "}") for arg in args)]
    ]
    return [factory.group(spec.run, figures=SHORT.figures, work=run_work_settings(spec)) for spec in specs]


@pytest.mark.parametrize(
    "args",
    [
        ("--block_size", "{}"),
        ("--block_size={}",),
        ("data.block_size={}", "-x"),
        ("-c", "torchrun t.py --block_size {} | tee log"),
        ("-c", "L={}; python t.py --block_size $L"),
        ("-c", "export L={}\npython t.py --block_size=${{L}} | tee log"),
        ("-c", "L={};python t.py --block_size $((L*2))"),
        ("-c", "block_size={} python t.py"),
        ("-c", "X='--block_size {} --lr 1'; python t.py $X"),
    ],
)
def test_an_axis_may_have_another_name_than_the_option_it_sets(args: tuple[str, ...]) -> None:
    a, b = swept("b", args)
    assert comparable(a, b).why_not("samples_per_s") and not comparable(a, a).mismatches
    expected = "block_size ($((32*2)) → $((64*2)))" if "$((" in args[-1] else "block_size (32 → 64)"
    assert comparable(a, b).mismatches[0].setting.endswith(expected)


@pytest.mark.parametrize(
    "command",
    [
        "python t.py --block_size $(cat f{})",
        "echo {} > f; L=`cat f`; python t.py --block_size=$L",
        "case {} in 32) L=32;; *) L=64;; esac; python t.py --block_size $L",
        "[ {} = 64 ] && L=64; python t.py --block_size ${{L:-32}}",
        ". conf{}.sh; python t.py --block_size $L",
        "if [ {} = 64 ]; then X='--block_size 64'; fi; python t.py $X",
    ],
)
def test_a_size_that_only_the_shell_knows_may_be_another_in_each_group(command: str) -> None:
    a, b = swept("conf", ("-c", command))
    assert "may change the size of a sample" in comparable(a, b).why_not("samples_per_s")
    assert not comparable(a, a).mismatches
    assert comparable(*swept("num_workers", ("-c", command.replace("{}", "7")))).mismatches == ()


@pytest.mark.parametrize(
    "command",
    [
        "cd job && python t.py --block_size 32 --x {} | tee log",
        "python t.py --block_size ${{L:-32}} --x {}",
        "python t.py --block_size $L --x {}",
    ],
)
def test_a_size_that_is_the_same_whatever_the_axis_is_compared(command: str) -> None:
    assert comparable(*swept("x", ("-c", command))).mismatches == ()


def test_a_value_may_be_a_variable_of_the_plan() -> None:
    typed = typed_settings(["python t.py --block_size $L --x $M"], {"L": "32"})
    assert typed == {"block_size": "32", "x": "$M"}


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-c", 'a=(--block_size 32 --lr 1); python t.py "${a[@]}"'],
        ["bash", "-c", "a=(--lr 1); a+=(--block_size 32); python t.py ${a[@]}"],
        ["bash", "-c", "set -- 32 5; python t.py --block_size $1 --lr $2"],
        ["bash", "-c", 'python t.py --block_size "$1"', "job", "32"],
        ["bash", "-c", "a=32; b=$a; python t.py --block_size ${b}"],
    ],
)
def test_a_value_may_reach_the_script_through_a_shell(argv: list[str]) -> None:
    assert typed_settings(argv)["block_size"] == "32"


@pytest.mark.parametrize(
    ("harmless", "names"),
    [
        (True, "num_workers lr env.NCCL_ALGO zero_stage d_model precision compile n_layers adam_eps opt node lora_r out_dir temperature"),
        (True, "attn_impl hidden_size bucket_size autocast non_blocking sync_bn save_interval allocator grad_ckpt cuda_graph log_file"),
        # An amount of something, or what may name another amount: the data, the configuration, the shape of parallelism.
        (
            False,
            "samples_per_gpu nodes_per_graph graph_size num_aug out_len attention_len data_path dataset_name config_name tp nproc ranks",
        ),
        (False, "s b width chunk_size window_size accum_steps bs batch seq_len steps size duration T L l t variant cfg"),
    ],
)
def test_settings_that_are_known_to_be_harmless(harmless: bool, names: str) -> None:
    assert {name: is_harmless(name) for name in names.split()} == dict.fromkeys(names.split(), harmless)


def working(name: str, **figures: float) -> ComparedGroup:
    """A side of one run that tells just these figures."""
    return side(name, (), runs=(ComparedRun(run=f"{name}_r1", repeat=1, started_t=0.0, figures=figures),))


WORK_A = {"samples_per_s": 80.0, "steps_per_s": 10.0}


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        # A last batch that is not full is the same work.
        (working("a", **WORK_A), working("b", samples_per_s=80.3, steps_per_s=10.0), ""),
        (working("a", **WORK_A), working("b", samples_per_s=81.0, steps_per_s=10.0), "a step takes 8 samples in a and 8.1 in b"),
        (
            working("a", tokens_per_s=1000.0, **WORK_A),
            working("b", tokens_per_s=2000.0, steps_per_s=10.0),
            "a step takes 100 tokens in a and 200 in b",
        ),
        # Settings decide where the rates are unknown.
        (working("a"), working("b"), ""),
        (
            side("a", (), settings={"lr": "1", "train.batch_size": "8"}),
            side("b", (), settings={"lr": "2", "train.batch_size": "16"}),
            "train.batch_size (8 → 16) differs",
        ),
        (side("a", (), settings={"env.BATCH_SIZE": "8"}), side("b", ()), "env.BATCH_SIZE (8 → none) differs"),
        # Only the last part of a name counts.
        (side("a", (), settings={"batch_of.lr": "1"}), side("b", ()), ""),
        (side("a", (), world_size=2), side("b", (), world_size=4), "the number of ranks (2 → 4) differs"),
    ],
)
def test_whether_a_step_does_the_same_work(a: ComparedGroup, b: ComparedGroup, text: str) -> None:
    assert comparable(a, b).why_not("steps_per_s") == text


def test_a_constant_number_of_samples_beside_a_batch_size_that_differs_has_no_winner() -> None:
    groups = [replace(summary(f"bs{size}", 0, step_s=0.01 * size, bs=size), typed_work={"samples_per_step": 8}) for size in (4, 16)]
    found = rank_groups(groups, "throughput")
    assert (found.winner, found.recommended) == (None, None)
    assert "samples_per_step is 8 in both although bs (4 → 16) differs" in found.reason and '"{bs}"' in found.reason
