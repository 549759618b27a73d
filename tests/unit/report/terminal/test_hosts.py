"""Hosts on a terminal."""

from __future__ import annotations

from seatrial.report.digest.hosts import ALL_SHOWN
from seatrial.report.terminal.hosts import COLUMNS, hosts
from tests.unit.report import factory
from tests.unit.report.terminal.on_paper import lines, on_hosts


def test_nothing_for_a_campaign_on_one_host() -> None:
    assert lines(hosts(factory.results(), 100)) == [] and lines(hosts(on_hosts(0), 100)) == []


def test_a_sentence_a_run_and_a_row_a_host() -> None:
    heading, sentence, titles, first, second = lines(hosts(on_hosts(0, 1), 200), 200)
    assert heading == "Hosts" and titles.split("  ")[0] == COLUMNS[0]
    assert sentence.startswith("mb16_nw2_r1: 2 hosts started by ssh, 4 ranks, 1 ended with exit code 0, not so node1 (exit code 1)")
    assert first.split() == ["node0", "0–1", "+0.0", "ms", "0", "exited", "–"]
    assert second.split() == ["node1", "2–3", "+1.0", "ms", "1", "exited", "–"]


def test_of_many_hosts_the_odd_ones_alone_have_rows() -> None:
    found = lines(hosts(on_hosts(*[0] * ALL_SHOWN, None), 200), 200)
    assert len(found) == 4 and found[-1].split()[:2] == [f"node{ALL_SHOWN}", f"{2 * ALL_SHOWN}–{2 * ALL_SHOWN + 1}"]


def test_of_very_many_odd_ones_the_rest_is_counted() -> None:
    assert lines(hosts(on_hosts(*[1] * (ALL_SHOWN + 2)), 100))[-1] == "and 2 more hosts: see the summary"
