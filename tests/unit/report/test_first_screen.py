"""The first screen: the headline, what is merged into it, and that it fits."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from seatrial.core.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.measure import Estimate, GroupStability, GroupSummary, JitterCause, StabilityVerdict
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Advice, CampaignVerdict, Criterion, Finding, Verdict
from seatrial.report.finding_text import findings_lines
from seatrial.report.html.data import page_data
from seatrial.report.html.page import page_parts
from seatrial.report.markdown import summary_md
from seatrial.report.terminal import print_report
from seatrial.report.terminal_first_screen import shortened_names
from seatrial.report.view.campaign import winners_sentence
from seatrial.report.view.first_screen import Status, first_rows, headline, headline_text, key_findings
from seatrial.report.write import summary_json
from tests.unit.report import charted_factory, factory
from tests.unit.report.html.read_page import Read

ONE_SCREEN = 25
LOAD = JitterCause(kind="host_load", text="In 90 % of 20 samples …", numbers={"others_pct": 58.0, "cores": 2}, strength=0.9)
MET = Finding(
    id="1-failed_runs-campaign",
    criterion=Criterion(metric="failed_runs", scope="campaign", at_most=0),
    verdict=Verdict.PASS,
    text="failed_runs at most 0: 0 of 8 runs failed.",
)


def printed(results: CampaignResults, width: int = 80) -> list[str]:
    out = io.StringIO()
    print_report(results, Console(file=out, width=width))
    return out.getvalue().splitlines()


def stability(verdict: StabilityVerdict, cv_pct: float | None = None, *causes: JitterCause) -> GroupStability:
    return GroupStability(verdict=verdict, reason="Unknown: raise repeats (n = 1 run).", runs=3, cv_pct=cv_pct, causes=causes)


def passed(*found: GroupStability, statements: tuple[Finding, ...] = (), **changes: object) -> CampaignResults:
    """Every criterion is met, no run is missing and none failed; the groups are as stable as given."""
    names = ("mb16_nw2", "mb16_nw0", "mb8_nw2", factory.ODD)[: len(found)]
    groups = tuple(factory.summary(name, stability=one) for name, one in zip(names, found, strict=True))
    runs = tuple(factory.measured(name, repeat) for name in names for repeat in (1, 2))
    verdict = CampaignVerdict(verdict=Verdict.PASS, findings=(MET,), statements=statements)
    results = factory.results(runs=runs, groups=groups, verdict=verdict, pending=(), cautions=())
    return dataclasses.replace(results, **changes)  # type: ignore[arg-type]


def unstable() -> CampaignResults:
    """A PASS above four unstable groups, none of them proven best."""
    return passed(*(stability(StabilityVerdict.UNSTABLE, cv_pct, LOAD) for cv_pct in (7.2, 8.1, 9.4, 8.8)))


def test_a_pass_is_only_the_criteria() -> None:
    verdict, winner, platform = headline(unstable())
    assert (verdict.word, verdict.status) == ("PASS", Status.GOOD)
    assert (winner.word, winner.status) == ("no proven winner", Status.OPEN) and winner.text.startswith("mb16_nw2 recommended")
    assert (platform.word, platform.status) == ("platform unstable", Status.OPEN)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("the lowest p90/p50 (1.05) of the 2 indistinguishable groups at the top", "for the lowest p90/p50 (1.05); tied"),
        ("the lowest p90/p50, then the simplest setting, of the 3 indistinguishable groups at the top", "then the simplest setting; tied"),
        (
            "the simplest setting of the 2 of 9 tied groups closest to the best",
            "for the simplest setting of the 2 of 9 tied groups closest",
        ),
    ],
)
def test_the_headline_says_why_a_group_is_recommended(reason: str, shown: str) -> None:
    found = unstable()
    found = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, recommended_reason=reason))
    assert shown in headline(found)[1].text


def test_one_run_of_each_group_ties_nothing() -> None:
    """Without an interval nothing was tested, however far apart the groups are."""
    found = unstable()
    rows = tuple(
        dataclasses.replace(
            row,
            estimate=row.estimate and dataclasses.replace(row.estimate, low=None, high=None, n=1),
            ratio=row.ratio and dataclasses.replace(row.ratio, low=None, high=None, n=1),
        )
        for row in found.ranking.groups
    )
    text = headline(dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, groups=rows)))[1].text
    assert "one run each" in text and "tied" not in text
    assert "tied with" in headline(found)[1].text


def test_findings_of_all_groups_are_one_with_the_cause_offered() -> None:
    platform = headline(unstable())[2]
    assert platform.text == "all 4 groups, CV 7–9 %: other jobs used 58 % of the CPU"
    assert sum("CV" in line for line in printed(unstable())) == 1


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        ((stability(StabilityVerdict.STABLE, 1.2), stability(StabilityVerdict.STABLE, 0.4)), Status.GOOD, "all 2 groups"),
        ((stability(StabilityVerdict.STABLE, 1.2), stability(StabilityVerdict.INCONCLUSIVE)), Status.UNKNOWN, "1 of 2 groups stable"),
        ((stability(StabilityVerdict.INCONCLUSIVE),), Status.UNKNOWN, "raise repeats"),
        ((stability(StabilityVerdict.STABLE, 1.2), stability(StabilityVerdict.UNSTABLE, 7.0)), Status.OPEN, "1 of 2 groups (mb16_nw0)"),
        ((stability(StabilityVerdict.UNSTABLE, 7.0),), Status.OPEN, "cause unknown"),
    ],
)
def test_the_platform_is_stable_unstable_or_unknown(found: tuple[GroupStability, ...], status: Status, words: str) -> None:
    part = headline(passed(*found))[2]
    assert part.status is status and words in part.text


def test_a_platform_that_failed_runs_is_not_called_stable() -> None:
    group = factory.summary("mb16_nw2", stability=stability(StabilityVerdict.STABLE, 1.0), infrastructure_failures=("mb16_nw2_r3",))
    part = headline(passed(stability(StabilityVerdict.STABLE, 1.0), groups=(group,)))[2]
    assert part.status is Status.BAD and "mb16_nw2_r3" in part.text


def test_a_proven_winner_is_named_with_the_next_and_its_ratio() -> None:
    found = [stability(StabilityVerdict.STABLE, 1.0)] * 3
    ranking = factory.ranking(decided=True)
    part = headline(factory.with_groups(passed(*found, ranking=ranking)))[1]
    assert (part.word, part.status) == ("winner", Status.GOOD)
    assert part.text.startswith("mb16_nw2, 1,270 samples/s") and "next mb16_nw0 at 0.985" in part.text


def conditional() -> CampaignResults:
    """A winner that nobody knows to have done the same work."""
    ranking = dataclasses.replace(
        factory.ranking(decided=True), condition="if a step is the same work in every group", condition_remedy="pass --samples-per-step"
    )
    return factory.with_groups(passed(*[stability(StabilityVerdict.STABLE, 1.0)] * 3, ranking=ranking))


def test_a_winner_that_stands_under_a_condition_is_not_green() -> None:
    results = conditional()
    part = headline(results)[1]
    assert (part.word, part.status) == ("winner", Status.OPEN)
    clause = "if a step is the same work in every group"
    assert f"samples/s ±1.0 %, {clause}: pass --samples-per-step" in part.text
    assert f"winner mb16_nw2, {clause}" in headline_text(results)
    assert any("winner, conditional" in line for line in printed(results))
    assert f"{clause}: pass --samples-per-step." in winners_sentence(results)


@pytest.mark.parametrize("results", [unstable(), factory.results(), factory.empty_results(), conditional()])
def test_the_headline_is_the_same_everywhere(results: CampaignResults) -> None:
    page, markdown = Read(page_parts(page_data(results))["main"]).text, summary_md(results, CampaignPaths(Path("out")))
    terminal = " ".join(" ".join(printed(results, 200)).split())
    for part in headline(results):
        assert part.text in page and part.text in terminal and f"**{part.word}**: {part.text}" in markdown
        assert part.word in page and part.word in terminal
    assert f"## {headline_text(results)}" in markdown
    assert [part["word"] for part in summary_json(results)["headline"]] == [part.word for part in headline(results)]


LEAK = Finding(id="leak:mb16_nw2_r1:host", kind="leak", verdict=Verdict.FAIL, text="mb16_nw2_r1 leaks: process tree grows by 12 MiB/min.")


def test_what_is_no_criterion_is_called_the_same_everywhere_and_never_fail() -> None:
    results = dataclasses.replace(unstable(), verdict=CampaignVerdict(verdict=Verdict.PASS, findings=(MET,), statements=(LEAK,)))
    page, markdown = Read(page_parts(page_data(results))["main"]).text, summary_md(results, CampaignPaths(Path("out")))
    out = io.StringIO()
    print_report(results, Console(file=out, width=200), full=True)
    why = "\n".join(findings_lines([LEAK], 80))
    for text in (page, markdown, out.getvalue(), why):
        assert "problem" in text and "FAIL" not in text and "to look at" not in text


def failing(causes: int) -> CampaignResults:
    """Forty groups, and so many causes of failed runs, each with a long message."""
    found = charted_factory.many_groups(40)
    kinds = (Cause.CUDA_OOM, Cause.PORT_IN_USE, Cause.EXCEPTION, Cause.RUN_LIMIT)[:causes]
    failed = [
        factory.measured(
            "mb8_nw2", 1, how=Outcome.FAILED, cause=kind, detail=f"{kind.value} {'with a long message ' * 20}", action="Lower it. " * 30
        )
        for kind in kinds
    ]
    cautions = tuple(Caution(kind=f"kind{at}", text="A caution. " * 20) for at in range(12))
    return dataclasses.replace(found, runs=(*found.runs, *failed), cautions=cautions)


def long_names() -> CampaignResults:
    return factory.renamed(factory.results(output="/a/path" * 8), "mb16_nw2", "micro_batch_of_16_with_a_very_long_" * 3 + "name")


def much_found() -> CampaignResults:
    advice = (Advice(id="a", text="Do this. " * 40),)
    said = tuple(dataclasses.replace(LEAK, id=f"{at}", kind=f"kind{at}", text="Something grows. " * 30, advice=advice) for at in range(9))
    return dataclasses.replace(
        charted_factory.many_groups(30), verdict=CampaignVerdict(verdict=Verdict.PASS, findings=(MET,), statements=said)
    )


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "results",
    [
        factory.results(),
        factory.empty_results(),
        unstable(),
        charted_factory.many_groups(40),
        failing(1),
        failing(4),
        long_names(),
        much_found(),
    ],
    ids=["usual", "empty", "unstable", "many", "failed", "failures", "long names", "much found"],
)
def test_the_report_fits_one_screen(results: CampaignResults, width: int) -> None:
    lines = printed(results, width)
    assert sum(max(1, -(-cell_len(line) // width)) for line in lines) <= ONE_SCREEN - 1, "the prompt has a line too"
    assert all(any(part.word in line for line in lines) for part in headline(results))
    assert any("--full" in line for line in lines)


def test_the_best_groups_are_there_and_the_rest_is_counted() -> None:
    found = charted_factory.many_groups(40)
    lines = printed(found)
    assert [row.rank for row in first_rows(found)] == list(range(1, 11))
    assert any("group0009" in line for line in lines) and any("30 more groups" in line for line in lines)
    last = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, recommended="group0033"))
    assert [row.group for row in first_rows(last)][-2:] == ["group0008", "group0033"]


@pytest.mark.parametrize("causes", [1, 4])
def test_why_a_run_failed_and_what_to_do_is_on_the_first_screen(causes: int) -> None:
    lines = printed(failing(causes))
    assert any("cuda_oom" in line for line in lines) and any("What to do: Lower it." in line for line in lines)
    assert key_findings(failing(causes))[0].status is Status.BAD


def test_findings_of_one_kind_are_one() -> None:
    many = tuple(dataclasses.replace(LEAK, id=f"leak:{at}") for at in range(4))
    (one,) = key_findings(passed(stability(StabilityVerdict.STABLE, 1.0), statements=many))
    assert one.text.startswith("mb16_nw2_r1 leaks") and "3 more" in one.text


def test_cautions_are_counted_and_not_printed() -> None:
    cautions = tuple(Caution(kind=f"kind{at}", text=f"Caution {at}.") for at in range(3))
    text = "\n".join(printed(dataclasses.replace(unstable(), cautions=cautions)))
    assert "3 cautions: seatrial report out --full" in text and "Caution 1." not in text


def test_why_no_criterion_passes_on_a_run_that_may_have_failed_is_printed() -> None:
    text = "failed_runs at most 0: 0 of 8 runs failed, but mb8_r1 exited 0 after a traceback: probably failed."
    finding = dataclasses.replace(MET, verdict=Verdict.INCONCLUSIVE, text=text)
    verdict = CampaignVerdict(verdict=Verdict.INCONCLUSIVE, findings=(finding,))
    assert [one.text for one in key_findings(passed(verdict=verdict))][:1] == [f"[1] {text}"]
    assert not any(text in one.text for one in key_findings(passed(verdict=verdict, pending=("mb8_r2",)))), "pending: in the headline"


def test_a_caution_that_weakens_the_ranking_is_printed() -> None:
    nan = Caution(kind="loss_not_finite", text="The loss is nan from step 20 on.", subject="mb16_nw2_r1")
    results = dataclasses.replace(unstable(), cautions=(nan, dataclasses.replace(nan, subject="mb16_nw0_r1")))
    text = " ".join("\n".join(printed(results)).split())
    assert text.count("The loss is nan") == 1 and "(mb16_nw2_r1, mb16_nw0_r1)" in text and "caution" not in text


def test_a_page_that_was_not_written_is_not_named() -> None:
    text = "\n".join(printed(dataclasses.replace(unstable(), cautions=(Caution(kind="page_not_drawn", text="It could not be drawn."),))))
    assert "summary.html" not in text and "It could not be drawn." in text


def test_names_that_would_be_cut_alike_begin_where_they_differ() -> None:
    common = "optimizer-and-schedule-of-the-first-stage"
    names = [f"{common}_lr{value}_weights-of-the-second-stage" for value in ("1e-3", "1e-4", "2e-4")]
    shown = shortened_names(["group", *names, names[0], "bs8"], 24)
    assert shown[0] == "group" and shown[-1] == "bs8" and shown[4] == shown[1], "one name, one text"
    assert len(set(shown[1:4])) == 3 and all(len(one) <= 24 for one in shown)
    assert shown[3] == "optimiz…_lr2e-4_weights…"
    assert shortened_names(["a" * 30 + "1", "b" * 30 + "2"], 9) == ["aaaa…aaa1", "bbbb…bbb2"]
    # Two axes, of which one or the other may differ; and values that do not fit at all.
    names = [f"architecture-variant-name-{one}_another-long-setting-name-{other}" for one in ("v1", "v2", "v13") for other in "xy"]
    assert shortened_names(names, 21) == [f"archite…{one}_another…{other}" for one in ("v1", "v2", "v13") for other in "xy"]
    assert len(set(shortened_names(names, 8))) == 6
    paths = [f"config{'-' * number}{number}{'x' * 40}" for number in range(3)]
    assert len(set(shortened_names(paths, 12))) == 3 and all(cell_len(one) <= 12 for one in shortened_names(paths, 12))


def test_the_cause_of_a_failure_is_not_cut_away_by_long_names_and_advice_is_given_once() -> None:
    name, action = "architecture-variant-name-v{}_another-long-setting-name", "Read the traceback in launcher.log."
    causes = [{"cause": Cause.EXCEPTION, "detail": f"KeyError: 'k{at // 2}'", "action": action} for at in range(4)]
    runs = [factory.measured(name.format(at), 1, how=Outcome.FAILED, **changes) for at, changes in enumerate(causes)]
    results = dataclasses.replace(factory.results(), runs=tuple(runs))
    lines = printed(results)
    assert all(any(f"exception. KeyError: 'k{at}'" in line for line in lines) for at in range(2))
    assert sum(action in line for line in lines) == 1


def node_summary(number: int) -> GroupSummary:
    return dataclasses.replace(factory.summary("mb16_nw2"), group=f"n{number}", axes={"place.node": f"node{number}"})


def by_node(ratios: list[tuple[float, float] | None], higher_is_better: bool = True) -> CampaignResults:
    """The same job on node1 and on: each one's interval of its ratio to node1's figure; None for a single run."""
    rows = [factory.ranked(1, node_summary(1))]
    for number, interval in enumerate(ratios, 2):
        ends = interval or (0.5, 0.5)
        found = Estimate(mean=sum(ends) / 2, low=interval and interval[0], high=interval and interval[1], n=6)
        rows.append(factory.ranked(number, node_summary(number), ratio=found))
    ranking = factory.ranking(groups=tuple(rows), off_lane=(), recommended="n1", higher_is_better=higher_is_better)
    return dataclasses.replace(passed(), ranking=ranking)


@pytest.mark.parametrize(
    ("ratios", "higher_is_better", "word", "text"),
    [
        ([(0.33, 0.35)], True, "slow node", "node2, 66.0 % slower than node1 (95 %: 65.0 to 67.0 %), 1,270 samples/s"),
        # Seconds: twice as long is half as fast.
        ([(2.0, 2.0)], False, "slow node", "node2, 50.0 % slower than node1 (95 %: 50.0 to 50.0 %)"),
        ([(0.99, 0.995), (0.98, 0.99), (0.8, 0.82)], True, "slow node", "node4, 19.0 % slower than node1"),
        # Two of three: the middle node is a slow one too.
        (
            [(0.33, 0.35), (0.32, 0.33)],
            True,
            "slow node",
            "2 of 3 nodes are slower than node1: node3, 67.5 % slower than node1 (95 %: 67.0 to 68.0 %), 1,270 samples/s ±1.0 %; node2",
        ),
        # One of three that is significantly slower, and one of which that is unknown.
        ([(0.90, 1.02), (0.90, 0.96)], True, "slow node", "node3, 7.0 % slower than node1 (95 %: 4.0 to 10.0 %)"),
        # Significantly slower, and by no more than nodes of one kind differ.
        ([(0.985, 0.995)], True, "no slow node", "of 2; the last is node2, 1.0 % slower than node1 (95 %: 0.5 to 1.5 %)"),
        # Two repeats of a noisy node.
        ([(-1.3, 2.46)], True, "slow node unknown", "it may be node2, 42.0 % slower than node1 (too few repeats for an interval), "),
        # It may be slow, and may not.
        ([(0.80, 1.02)], True, "slow node unknown", "it may be node2, 9.0 % slower than node1 (95 %: -2.0 to 20.0 %)"),
        ([None], True, "slow node unknown", "one run per node proves nothing: raise repeats"),
    ],
)
def test_a_campaign_over_nodes_says_which_is_slow(
    ratios: list[tuple[float, float] | None], higher_is_better: bool, word: str, text: str
) -> None:
    results = by_node(ratios, higher_is_better)
    part = headline(results)[1]
    assert part.word == word and part.text.startswith(text)
    assert any(line.startswith(word) for line in printed(results, 160))
