"""What is compared with what: names, baselines, scaling, pages of two campaigns, diffs of two runs."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from seatrial.core import files
from seatrial.core.errors import CampaignError, UsageError
from seatrial.core.paths import AttemptPaths
from seatrial.history import rows
from seatrial.records.comparison import ComparedGroup, Comparison, Relation
from seatrial.records.outcome import Outcome
from seatrial.records.ranking import Ranking
from seatrial.records.results import GroupedCampaign
from seatrial.records.verdict import Baseline, Criterion
from seatrial.results import recompute as module
from seatrial.results.baselines import Compared, comparisons_for
from seatrial.results.compare import Resolver, compared_group, full_name, resolve_pairs, resolve_scaling, split_name
from seatrial.results.compare_page import check_other_campaign, read_run_for_diff, write_comparison
from seatrial.results.gather import read_campaign_at
from seatrial.results.recompute import recompute, scaling_within, worst_scaling
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.analyse.factory import measured, spec
from tests.unit.analyse.test_scaling import ranks_and_step_ms
from tests.unit.collect import on_disk
from tests.unit.results.campaigns import elsewhere, write_compared

FAST, SLOW = [10.0, 10.1, 10.05], [12.0, 12.1, 12.2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_compared(tmp_path / "out", {"fast": FAST, "slow": SLOW}).folder


def resolve(names: list[str], *, inside: Path | None = None, history: Path | None = None) -> list[ComparedGroup]:
    resolver = Resolver(inside=inside, history=history)
    return [resolver.group(name) for name in names]


def names(pairs: tuple[tuple[ComparedGroup, ComparedGroup], ...]) -> list[tuple[str, str]]:
    return [(a.name, b.name) for a, b in pairs]


def test_a_group_with_all_that_a_comparison_reads(out: Path) -> None:
    group = compared_group(read_campaign_at(out), "slow")
    assert (group.name, group.group, group.campaign, group.world_size) == ("slow", "slow", str(out.resolve()), 1)
    assert [(run.run, run.repeat, run.steady) for run in group.runs] == [("slow_r1", 1, True), ("slow_r2", 2, True), ("slow_r3", 3, True)]
    assert group.runs[0].figures["samples_per_s"] == pytest.approx(8 / 0.012, rel=0.02)
    assert group.runs[0].window.startswith("steps ") and group.runs[0].n > 20
    assert group.runs[0].started_t < group.runs[1].started_t
    assert group.machine == {"host": "node-1", "gpu_name": "Example GPU", "driver_version": "550"}
    assert group.code == {"git_commit_hash": "0123456789abcdef"}
    assert group.settings == {"variant": "slow"}


def test_the_command_line_of_a_script_is_among_its_settings(out: Path) -> None:
    """Two campaigns may differ in nothing else."""
    found = read_campaign_at(out)
    args = ("32", "slow", "--rays", "8", "--variant=slow", "--log", "slow_r1.txt", "--hub-token", "hf_abcdefghijklmnop")
    runs = []
    for run in found.runs:
        workload = dataclasses.replace(run.attempt.spec.workload, module=None, script="po.py", args=args)
        spec = dataclasses.replace(run.attempt.spec, run="slow_r1" if run.attempt.spec.group == "slow" else "x", workload=workload)
        runs.append(dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, spec=spec)))
    settings = compared_group(dataclasses.replace(found, runs=tuple(runs)), "slow").settings
    assert (settings["variant"], settings["rays"], settings["arguments"]) == ("slow", "8", "32 {variant}")
    assert settings["log"] == "{run}.txt" and "hf_abc" not in str(settings)


def test_only_runs_that_count_are_in_it(tmp_path: Path) -> None:
    campaign = read_campaign_at(write_compared(tmp_path / "o", {"a": FAST, "b": SLOW}, failed=["b_r2"]).folder)
    group = compared_group(campaign, "b")
    assert [run.run for run in group.runs] == ["b_r1", "b_r3"] and group.failed_runs == 1


def test_no_gpu_is_a_fact_where_the_host_is_known(tmp_path: Path) -> None:
    from tests.unit.results.campaigns import elsewhere

    cpu = write_compared(tmp_path / "o", {"a": FAST}, provenance=elsewhere(gpu_name="", driver_version="")).folder
    assert compared_group(read_campaign_at(cpu), "a").machine == {"host": "node-2", "gpu_name": "none", "driver_version": "none"}


def test_an_unknown_group_is_answered_with_the_nearest(out: Path) -> None:
    with pytest.raises(UsageError, match="has no group 'fats'; did you mean 'fast'"):
        resolve([f"{out}:fats"])


def test_words(out: Path, tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    rows.add(history, compared_group(read_campaign_at(out), "slow"))
    rows.pin(history, 1, "old")
    found = resolve([f"{out}:slow", "fast", str(out), "history:old", "old"], history=history)
    assert [group.group for group in found] == ["slow", "fast", "fast", "slow", "slow"]
    assert [group.name for group in found][3:] == ["history:old", "history:old"]
    assert resolve(["slow"], inside=out, history=history)[0].group == "slow"


def test_words_that_name_nothing_say_what_they_could(out: Path, tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    for words, says in (
        (["nothing"], "'nothing' is not a campaign's folder"),
        ([""], "is not a campaign's folder"),
        (["history:old"], "no row is pinned: `seatrial history add OUT`"),
        ([f"{out}:fast", "slwo"], "did you mean 'slow'"),
    ):
        with pytest.raises(UsageError, match=says):
            resolve(words, history=history)
    history.write_text("torn\n{}\n")
    with pytest.raises(UsageError, match=r"is pinned as 'old' \(2 lines of it cannot be read\)"):
        resolve(["history:old"], history=history)
    with pytest.raises(CampaignError, match="holds no campaign"):
        resolve([str(tmp_path)])


def test_a_folder_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "a:b", {"only": FAST}).folder
    assert split_name(str(folder)) == (folder, "")
    assert split_name(f"{folder}:only") == (folder, "only")
    assert resolve([str(folder)])[0].group == "only"


def test_one_campaign_is_all_groups_against_the_winner(out: Path) -> None:
    asked = resolve_pairs([str(out)])
    assert names(asked.pairs) == [("fast", "slow")] and asked.family == 1
    assert asked.note == "fast, the recommended group, is the baseline."
    assert resolve_pairs([], inside=out) == asked


def test_a_baseline_that_is_no_group_is_reported_and_a_choice_counts(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "o", {"a": SLOW, "b": FAST, "c": SLOW, "d": SLOW}, baseline="gone").folder
    asked = resolve_pairs([str(folder)])
    assert asked.family == 6
    assert states(asked.note, "b", "recommended", "baseline", "'gone'", "4 groups", "6 pairs")
    assert resolve_pairs([str(folder), "c"]).family == 3


def test_one_campaign_is_all_groups_against_the_plans_baseline(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "o", {"a": FAST, "b": SLOW, "c": FAST}, baseline="b").folder
    asked = resolve_pairs([str(folder)])
    assert names(asked.pairs) == [("b", "a"), ("b", "c")] and asked.family is None
    assert resolve_pairs([str(folder), "c"]).pairs[0][0].group == "b"


def test_groups_of_a_campaign_named_before_them_or_beside_them(out: Path) -> None:
    assert names(resolve_pairs([str(out), "slow", "fast"]).pairs) == [("slow", "fast")]
    assert names(resolve_pairs(["slow", "fast"], inside=out).pairs) == [("slow", "fast")]
    assert names(resolve_pairs([f"{out}:slow", "fast"]).pairs) == [(f"{out}:slow", "fast")]


def test_two_campaigns_are_compared_group_by_group(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"slow": SLOW, "fast": FAST, "new": FAST}).folder
    asked = resolve_pairs([str(out), str(other)])
    assert names(asked.pairs) == [(f"{out}:fast", f"{other}:fast"), (f"{out}:slow", f"{other}:slow")]
    assert "left out: new" in asked.note


def test_two_campaigns_without_common_groups_are_their_winners(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"only": SLOW}).folder
    asked = resolve_pairs([str(out), str(other)])
    assert names(asked.pairs) == [(f"{out}:fast", f"{other}:only")]
    assert asked.family == 2
    assert states(asked.note, "recommended groups", "2 and 1", "2 comparisons")


def test_one_side_is_none(out: Path) -> None:
    with pytest.raises(UsageError, match="needs two names"):
        resolve_pairs([f"{out}:fast"])


def test_names_are_written_as_people_would(out: Path) -> None:
    assert full_name("./a//b/../out/", "g") == "a/out:g"
    assert names(resolve_pairs([f"{out}/:slow", f"{out.parent}/./out:fast"]).pairs) == [(f"{out}:slow", f"{out}:fast")]


def test_hosts_of_the_runs_are_its_nodes(out: Path) -> None:
    read = read_campaign_at(out)
    runs = tuple(
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, hosts=run.attempt.spec.repeat)) if run.measure else run
        for run in read.runs
    )
    assert compared_group(dataclasses.replace(read, runs=runs), "slow").nodes == 3


def test_scaling_takes_every_side_or_all_groups_of_one_campaign(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"only": SLOW}).folder
    assert [group.group for group in resolve_scaling([str(out)])] == ["fast", "slow"]
    assert [group.group for group in resolve_scaling([str(out), str(other)])] == ["fast", "only"]
    assert resolve_scaling([]) == []


def compared(folder: Path, *baselines: Baseline, history: Path | None = None) -> Compared:
    criteria = [Criterion(metric="speedup_pct", scope="every_group", at_least=8.0, baseline=baseline) for baseline in baselines]
    criteria.append(Criterion(metric="failed_runs", scope="campaign", at_most=0))
    read = read_campaign_at(folder)
    return comparisons_for(criteria, read, folder=folder, history=history)


def test_every_group_against_a_group_of_its_own_campaign(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "out", {"base": SLOW, "a": FAST, "b": [12.05, 12.1, 12.15]}).folder
    found = compared(folder, Baseline(group="base"))
    assert found.keys() == {("a", "base"), ("b", "base")}
    first = found["a", "base"]
    assert isinstance(first, Comparison)
    assert (first.a, first.b, first.relation, first.comparisons) == ("base", "a", Relation.FASTER, 2)
    assert "paired t" in first.method


def test_a_group_that_every_criterion_names_is_not_corrected_for_the_others(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "out", {"base": SLOW, "a": FAST, "b": [12.05, 12.1, 12.15]}).folder
    named = Criterion(metric="speedup_pct", scope="winner", group="b", at_least=8.0, baseline=Baseline(group="base"))
    read = read_campaign_at(folder)
    found = comparisons_for([named], read, folder=folder)
    one = found["b", "base"]
    assert found.keys() == {("b", "base")} and isinstance(one, Comparison) and one.comparisons == 1
    both = comparisons_for([named, dataclasses.replace(named, group="")], read, folder=folder)
    assert both.keys() == {("a", "base"), ("b", "base")}


def test_a_group_of_another_campaign(tmp_path: Path) -> None:
    write_compared(tmp_path / "old", {"a": SLOW, "b": FAST})
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    named = Baseline(campaign=str(tmp_path / "old"), group="a")
    one = compared(folder, named)["a", named.text]
    assert isinstance(one, Comparison) and one.relation is Relation.FASTER and "Welch" in one.method


def test_another_campaign_alone_is_its_namesake_else_its_winner(tmp_path: Path) -> None:
    old = write_compared(tmp_path / "old", {"a": SLOW, "b": FAST, "c": SLOW}).folder
    folder = write_compared(tmp_path / "new", {"a": FAST, "new": [10.02, 10.06, 10.1]}).folder
    whole = Baseline(campaign="old")
    found = compared(folder, whole)
    namesake, other = found["a", whole.text], found["new", whole.text]
    assert isinstance(namesake, Comparison) and (namesake.a, namesake.relation) == (f"{old}:a", Relation.FASTER)
    assert isinstance(other, Comparison) and other.a == f"{old}:b" and other.relation is not Relation.FASTER
    assert namesake.comparisons == other.comparisons == 4


def test_campaigns_that_moved_together_still_find_one_another(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    old = write_compared(tmp_path / "here" / "old", {"a": SLOW}).folder
    write_compared(tmp_path / "here" / "new", {"a": FAST})
    (tmp_path / "here").rename(tmp_path / "there")
    named = Baseline(campaign=str(old), group="a")
    found = compared(tmp_path / "there" / "new", named)["a", named.text]
    assert isinstance(found, Comparison) and found.relation is Relation.FASTER


def test_a_copy_of_the_campaign_is_no_baseline(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    shutil.copytree(folder, tmp_path / "copy")
    named = Baseline(campaign="copy", group="a")
    found = compared(folder, named)["a", named.text]
    assert isinstance(found, str) and "are the same runs" in found


def test_a_pinned_row_of_history(tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    rows.add(history, compared_group(read_campaign_at(write_compared(tmp_path / "old", {"a": SLOW}).folder), "a"))
    rows.pin(history, 1, "v100")
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    found = compared(folder, Baseline(history="v100"), history=history)["a", "history:v100"]
    assert isinstance(found, Comparison) and found.relation is Relation.FASTER


def test_what_cannot_be_compared_says_why_and_what_to_do(tmp_path: Path) -> None:
    write_compared(tmp_path / "far", {"a": SLOW}, provenance=elsewhere())
    write_compared(tmp_path / "dead", {"a": SLOW}, failed=["a_r1", "a_r2", "a_r3"])
    folder = write_compared(tmp_path / "new", {"fast": FAST}).folder
    for baseline, says in (
        (Baseline(group="fats"), "did you mean 'fast'"),
        (Baseline(group="xyz"), "seatrial history pin"),
        (Baseline(campaign="nowhere", group="a"), "holds no campaign"),
        (Baseline(campaign="far", group="b"), "has no group 'b'"),
        (Baseline(campaign="far", group="a"), "different machines: host (node-2 → node-1)"),
        (Baseline(campaign="dead", group="a"), "no counted run"),
        (Baseline(history="v100"), "is pinned as 'v100'"),
    ):
        found = compared(folder, baseline, history=tmp_path / "none.jsonl")["fast", baseline.text]
        assert isinstance(found, str) and says in found, found


def test_no_baseline_asks_for_nothing(tmp_path: Path) -> None:
    assert compared(write_compared(tmp_path / "out", {"a": FAST}).folder) == {}


NO_RANKING = Ranking(metric="throughput", unit="", higher_is_better=True, groups=())


def campaign(monkeypatch: pytest.MonkeyPatch, groups: list[ComparedGroup]) -> GroupedCampaign:
    """A campaign whose groups are these groups."""
    by_name = {group.group: group for group in groups}
    monkeypatch.setattr(module, "comparable_groups", lambda grouped: list(by_name))
    monkeypatch.setattr(module, "compared_group", lambda grouped, name: by_name[name])
    runs = tuple(measured(spec(group.group, ranks=group.world_size), measure={"world_size": group.world_size}) for group in groups)
    empty: dict[str, Any] = {"output": "out", "baseline_group": "", "pending": (), "groups": ()}
    return GroupedCampaign(runs=runs, ranking=NO_RANKING, **empty)


def test_the_worst_family_of_a_campaign_is_what_a_criterion_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = campaign(monkeypatch, ranks_and_step_ms())
    assert [one.family for one in scaling_within(grouped)] == ["step_ms=10", "step_ms=40"]
    worst = worst_scaling(grouped)
    assert worst is not None and worst.family == "step_ms=10" and worst.points[-1].efficiency.mean == pytest.approx(0.98, abs=0.005)


def test_one_number_of_ranks_has_no_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worst_scaling(campaign(monkeypatch, ranks_and_step_ms()[::2])) is None


def test_groups_that_must_not_be_compared_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ranks_and_step_ms()[:2]
    groups[1].machine["gpu_name"] = "V100"
    found = worst_scaling(campaign(monkeypatch, groups))
    assert found is not None and found.points == () and "different machines" in found.reason


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    for name, step_ms in (("monday", 20.0), ("tuesday", 10.0)):
        write_compared(folder / name, {"mb8": [step_ms, step_ms * 1.01, step_ms * 0.99]})
    return folder / "monday", folder / "tuesday"


def test_a_folder_without_a_campaign_is_refused_before_anything_is_made(two: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(CampaignError):
        check_other_campaign(two[0], tmp_path)


def test_the_page_lies_beside_the_reports_and_the_other_stays_as_it_is(two: tuple[Path, Path]) -> None:
    monday, tuesday = two
    results = recompute(monday)
    before = sorted(path.name for path in tuesday.rglob("*"))
    page = monday / "compare_tuesday.html"
    page.mkdir()
    found = write_comparison(monday, results, tuesday)
    assert found.page == page and page.is_file() and found.page.stat().st_size > 1000
    assert found.moved.startswith("A folder was in the way of compare_tuesday.html")
    assert found.compared.refused == "" and len(found.compared.comparisons) == 1
    assert sorted(path.name for path in tuesday.rglob("*")) == before


SPEC = factory.spec()


def test_of_several_attempts_the_newest_that_ended_is_taken(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC, number=1)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=Outcome.FAILED)
    on_disk.write_attempt(tmp_path, SPEC, number=3, outcome=Outcome.INTERRUPTED)
    assert read_run_for_diff(tmp_path / SPEC.run).attempt.number == 2
    assert read_run_for_diff(tmp_path / SPEC.run / "attempt-1").attempt.number == 1


def test_where_none_has_ended_the_newest_is(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC, number=1, outcome=None)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=None)
    assert read_run_for_diff(tmp_path / SPEC.run).attempt.number == 2


def test_a_folder_without_a_name_of_its_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk.write_attempt(tmp_path, SPEC)
    monkeypatch.chdir(tmp_path / SPEC.run)
    assert read_run_for_diff(Path()).attempt.spec.run == SPEC.run
    monkeypatch.chdir(tmp_path / SPEC.run / "attempt-1")
    assert read_run_for_diff(Path("..")).attempt.spec.run == SPEC.run


def test_what_ranks_reported_and_what_they_were_started_with(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_events(attempt, 0, on_disk.event(attempt, "effective", setting="precision", requested="bf16", effective="fp16") + "\n")
    variables: list[Any] = [{"name": "A", "value": "1"}, {"name": 3, "value": "x"}, {"name": "B"}, "C", None]
    files.write_json(AttemptPaths(Path(attempt.folder)).environment, {"variables": variables})
    side = read_run_for_diff(tmp_path / SPEC.run)
    assert side.environment == {"A": "1"} and "precision" in side.effective


def test_a_run_without_a_spec_was_never_started(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    AttemptPaths(Path(attempt.folder)).spec.unlink()
    with pytest.raises(CampaignError, match=r"has no readable spec.json: it was never started"):
        read_run_for_diff(tmp_path / SPEC.run)
