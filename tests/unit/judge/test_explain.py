"""Every number has a sentence on how it is computed, and the raw files behind it."""

from __future__ import annotations

import pytest

from seatrial.judge.explain import RawKind, how_computed, raw_kinds
from seatrial.records.verdict import METRICS, Criterion, Evidence, Finding, Verdict


def of(metric: str, scope: str) -> Finding:
    return Finding(id=f"1-{metric}-{scope}", criterion=Criterion(metric=metric, scope=scope), verdict=Verdict.PASS, text="So.")


def number(name: str = "") -> Evidence:
    return Evidence(subject="mb16", value=1.0, file="group_summary.csv", name=name)


@pytest.mark.parametrize(("metric", "scope"), [(name, scope) for name, entry in METRICS.items() for scope in entry.scopes])
def test_every_metric_of_the_catalogue(metric: str, scope: str) -> None:
    assert len(how_computed(of(metric, scope), number())) > 10
    assert raw_kinds(of(metric, scope), number())


@pytest.mark.parametrize(
    ("finding", "name", "words", "kinds"),
    [
        (of("samples_per_s", "winner"), "", "geometric mean over the counted runs", (RawKind.STEPS,)),
        (of("samples_per_s", "every_run"), "", "samples a second", (RawKind.STEPS,)),
        (of("speedup_pct", "winner"), "", "must lie on one side of the bound", (RawKind.STEPS,)),
        (of("speedup_pct", "winner"), "lower end of the 97.5 % interval", "must lie on one side of the bound", (RawKind.STEPS,)),
        (of("leaking_runs", "campaign"), "hours until GPU 0 is full", "free memory", (RawKind.TELEMETRY, RawKind.STEPS)),
        (of("leaking_runs", "campaign"), "slope of GPU 0", "Theil-Sen", (RawKind.TELEMETRY, RawKind.STEPS)),
        (of("scaling_efficiency", "campaign"), "total at 8 GPUs", "work done by all ranks", (RawKind.STEPS, RawKind.OUTCOME)),
        (of("failed_runs", "campaign"), "cause", "how the run ended", (RawKind.OUTCOME, RawKind.LOG)),
        (Finding(id="d", kind="debug", verdict=Verdict.PASS, text=""), "NCCL_DEBUG", "as in the file", (RawKind.SETTINGS, RawKind.LOG)),
        (Finding(id="s", kind="stability", verdict=Verdict.FAIL, text=""), "thermal", "throttled by heat", (RawKind.TELEMETRY,)),
    ],
)
def test_what_is_reported_and_where_it_comes_from(finding: Finding, name: str, words: str, kinds: tuple[RawKind, ...]) -> None:
    assert words in how_computed(finding, number(name))
    assert raw_kinds(finding, number(name)) == kinds


def test_only_figures_of_groups_are_means_over_runs() -> None:
    of_run, of_group = (how_computed(of("samples_per_s", scope), number()) for scope in ("every_run", "every_group"))
    assert "geometric mean" in of_group and "geometric mean" not in of_run and of_run in of_group
    assert "geometric mean" not in how_computed(of("counted_runs", "every_group"), number())
