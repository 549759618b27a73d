"""What many hosts left: where it lies, by whose clock it was told, and what is said of hosts that are not alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.analyse.charts.detail import detail_for
from seatrial.analyse.charts.run import run_charts
from seatrial.analyse.measure import measure_run
from seatrial.collect.attempts import read_attempt
from seatrial.collect.hosts.clocks import offset_of
from seatrial.collect.hosts.folders import host_folders, node_of
from seatrial.collect.hosts.unlike_make import unlike, unlike_cautions
from seatrial.collect.steps import read_steps
from seatrial.collect.telemetry import read_telemetry
from seatrial.machine.fingerprint import fingerprint
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.charts import SPANS, TELEMETRY
from seatrial.records.command import Provenance
from seatrial.records.measure import RunMeasure
from seatrial.records.nodes import NodeRecord, NodesRecord
from tests.unit import many_hosts
from tests.unit.analyse import factory

HOUR_S = 3600.0


def measured(attempt: Attempt) -> RunMeasure:
    return measure_run(attempt, read_steps(attempt), read_telemetry(attempt))


def without_cautions(measure: RunMeasure) -> RunMeasure:
    return replace(measure, cautions=())


@pytest.mark.parametrize("skew", [{1: HOUR_S}, {0: HOUR_S}, {0: -HOUR_S, 1: HOUR_S}], ids=["other", "first", "both"])
def test_a_clock_an_hour_off_changes_no_figure(tmp_path: Path, skew: dict[int, float]) -> None:
    right = many_hosts.write(tmp_path / "right", many_hosts.Hosts())
    wrong = many_hosts.write(tmp_path / "wrong", many_hosts.Hosts(skew_s=skew))
    expected, found = measured(right), measured(wrong)
    assert found.startup_s == pytest.approx(many_hosts.FIRST_S + many_hosts.STEP_S)
    assert found.startup == pytest.approx(expected.startup)
    assert found.first_step_t == pytest.approx(factory.STARTED_T + many_hosts.FIRST_S + many_hosts.STEP_S)
    assert without_cautions(found).telemetry == pytest.approx(without_cautions(expected).telemetry, nan_ok=True)
    assert [replace(course, first_t=None, last_t=None) for course in found.memory] == [
        replace(course, first_t=None, last_t=None) for course in expected.memory
    ]
    assert (found.straggler, found.uneven, found.by_host) == (expected.straggler, expected.uneven, expected.by_host)


def test_the_timeline_of_a_skewed_host_lies_where_it_was(tmp_path: Path) -> None:
    right = many_hosts.write(tmp_path / "right", many_hosts.Hosts())
    wrong = many_hosts.write(tmp_path / "wrong", many_hosts.Hosts(skew_s={1: HOUR_S}))
    drawn = [
        run_charts(attempt, read_steps(attempt), read_telemetry(attempt), measured(attempt), detail_for(1)).tables
        for attempt in (right, wrong)
    ]
    for table in (TELEMETRY, SPANS):
        for column, cells in drawn[0][table].items():
            assert drawn[1][table][column] == (pytest.approx(cells, abs=1e-3) if column.endswith("_s") or column == "value" else cells)
    assert set(drawn[1][TELEMETRY]["source"]) == {"host node0", "host node1", "gpu node0:0", "gpu node1:0"}


def test_a_skewed_clock_is_said_once(tmp_path: Path) -> None:
    attempt = many_hosts.write(tmp_path, many_hosts.Hosts(hosts=3, skew_s={1: HOUR_S, 2: -2.5}))
    (said,) = (caution for caution in attempt.cautions if caution.kind == "clock_skew")
    assert said.numbers == {"host": "node1", "seconds": HOUR_S, "hosts": 2}
    assert "node1" in said.text and "ahead" in said.text and "node2" in said.text and "behind" in said.text
    quiet = many_hosts.write(tmp_path / "quiet", many_hosts.Hosts(skew_s={1: 0.9}))
    assert not [caution for caution in quiet.cautions if caution.kind == "clock_skew"]


def test_samples_of_every_host_count(tmp_path: Path) -> None:
    found = measured(many_hosts.write(tmp_path, many_hosts.Hosts(hosts=3, gpus=2)))
    assert found.hosts == 3
    assert found.telemetry["gpu_mem_peak_mib"] == 1002
    assert found.telemetry["host_rss_peak_mib"] == 102
    # Six GPUs of 300 W, from the first sample to the last step's end: none is taken for another's.
    assert found.telemetry["gpu_energy_j"] == pytest.approx(6 * 300 * 10.5, rel=0.01)
    assert [course.subject for course in found.memory if course.kind == "gpu"][-1] == "GPU node2:1"
    assert [course.subject for course in found.memory if course.kind == "host"] == [f"process tree on node{at}" for at in range(3)]
    assert [(one.host, one.gpus, one.net_tx_mean_mib_per_s) for one in found.by_host] == [(f"node{at}", 2, 1.0) for at in range(3)]


def test_a_slow_host_is_one_cause_and_not_as_many_as_it_has_ranks(tmp_path: Path) -> None:
    found = measured(many_hosts.write(tmp_path, many_hosts.Hosts(hosts=3, ranks=4, slow=frozenset({1}))))
    assert found.straggler is not None and found.straggler.slow_host == "node1" and found.straggler.slow_host_ranks == 4
    assert [cause.kind for cause in found.uneven if cause.kind.startswith("slow_")] == ["slow_host"]
    (cause,) = (cause for cause in found.uneven if cause.kind == "slow_host")
    assert "All 4 ranks of host node1" in cause.text and cause.numbers["host"] == "node1"


def test_one_slow_rank_of_a_host_is_still_a_rank(tmp_path: Path) -> None:
    attempt = many_hosts.write(tmp_path, many_hosts.Hosts(hosts=2, ranks=2, slow=frozenset({1})))
    healthy = AttemptPaths(Path(many_hosts.write(tmp_path / "well", many_hosts.Hosts(hosts=2, ranks=2)).folder))
    AttemptPaths(Path(attempt.folder)).events(3).write_text(healthy.events(3).read_text())
    found = measured(attempt).straggler
    assert found is not None and (found.rank, found.host, found.slow_host) == (2, "node1", "")


def test_ranks_are_found_on_their_hosts() -> None:
    nodes = many_hosts.nodes_record(many_hosts.Hosts(hosts=2, ranks=4, skew_s={1: 7.0}))
    assert [node.name if (node := node_of(nodes, rank)) else None for rank in (0, 3, 4, 7, 8)] == ["node0", "node0", "node1", "node1", None]
    assert [offset_of(nodes, rank) for rank in (0, 4, 8)] == [0.0, 7.0, 0.0]
    assert offset_of(None, 3) == 0.0


def test_folders_without_the_record(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    assert [(folder.name, folder.paths) for folder in host_folders(paths, None)] == [("", paths)]
    for name in ("a", "b"):
        paths.node(name).folder.mkdir(parents=True)
    paths.node("b").launcher_log.write_text("x\n")
    assert [folder.name for folder in host_folders(paths, None)] == ["a", "b"]


def test_a_record_does_not_lead_out_of_the_attempt(tmp_path: Path) -> None:
    nodes = NodesRecord(nodes=(NodeRecord(name="a"), NodeRecord(name="../../etc", node_rank=1), NodeRecord(name="..", node_rank=2)))
    assert [folder.name for folder in host_folders(AttemptPaths(tmp_path), nodes)] == ["a"]


def test_a_record_that_cannot_be_is_passed_over(tmp_path: Path) -> None:
    attempt = many_hosts.write(tmp_path, many_hosts.Hosts())
    paths = AttemptPaths(Path(attempt.folder))
    paths.nodes_record.write_text(json.dumps({"nodes": [{"name": "a", "ranks": -3}]}))
    read = read_attempt(paths)
    assert read is not None and read.nodes is None
    assert any(caution.kind == "unreadable_file" and "nodes.json" in caution.text for caution in read.cautions)


MAKES = {
    f"node{at}": {"cpu": "EPYC", "memory_bytes": str(512 * 2**30 + at), "host": f"h{at}", "packages": "numpy=2.4 torch=2.13.0"}
    for at in range(4)
}


def test_hosts_of_one_make_need_no_word() -> None:
    assert list(unlike_cautions("r", MAKES)) == [] and list(unlike_cautions("r", {})) == []


def test_what_differs_is_named_with_who_differs() -> None:
    odd = {**MAKES, "node2": {**MAKES["node2"], "packages": "numpy=2.4 torch=2.11.0", "memory_bytes": str(256 * 2**30)}}
    assert set(unlike(odd)) == {"torch", "memory_bytes"}
    (said,) = unlike_cautions("r", odd)
    assert said.kind == "unlike_hosts" and "torch (2.11.0 on node2, 2.13.0 on node0, node1, node3)" in said.text
    assert said.numbers["hosts"] == 1


def test_the_set_of_makes_parts_fingerprints_and_names_do_not() -> None:
    plain = Provenance(host="head", cpu="EPYC")
    alike = replace(plain, hosts=MAKES)
    renamed = replace(plain, hosts={f"x{name}": told for name, told in MAKES.items()})
    other = replace(plain, hosts={**MAKES, "node2": {**MAKES["node2"], "packages": "numpy=2.4 torch=2.11.0"}})
    assert fingerprint(alike) == fingerprint(renamed) != fingerprint(other)
    assert fingerprint(plain) != fingerprint(alike)
