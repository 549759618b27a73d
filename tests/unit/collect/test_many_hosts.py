"""Attempts on many hosts: clocks, samples, slow hosts, and hosts that differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.analyse.charts.run_charts import detail_for, run_charts
from seatrial.analyse.measure import measure_run
from seatrial.collect.attempts import host_difference_cautions, host_differences, read_attempt
from seatrial.collect.steps import read_steps
from seatrial.collect.telemetry import read_telemetry
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MAX_NAMED
from seatrial.machine.provenance import compute_fingerprint
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.columns import SPANS, TELEMETRY
from seatrial.records.measure import RunMeasure
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
    assert (found.straggler, found.jitter_causes, found.by_host) == (expected.straggler, expected.jitter_causes, expected.by_host)


def test_the_timeline_of_a_skewed_host_is_corrected(tmp_path: Path) -> None:
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
    assert [cause.kind for cause in found.jitter_causes if cause.kind.startswith("slow_")] == ["slow_host"]
    (cause,) = (cause for cause in found.jitter_causes if cause.kind == "slow_host")
    assert "All 4 ranks of host node1" in cause.text and cause.numbers["host"] == "node1"


def test_an_invalid_nodes_record_is_reported(tmp_path: Path) -> None:
    attempt = many_hosts.write(tmp_path, many_hosts.Hosts())
    paths = AttemptPaths(Path(attempt.folder))
    paths.nodes_record.write_text(json.dumps({"nodes": [{"name": "a", "ranks": -3}]}))
    read = read_attempt(paths)
    assert read is not None and read.nodes is None
    assert any(caution.kind == "unreadable_file" and "nodes.json" in caution.text for caution in read.cautions)


HOSTS = {
    f"node{at}": {"cpu": "EPYC", "memory_bytes": str(512 * 2**30 + at), "host": f"h{at}", "packages": "numpy=2.4 torch=2.13.0"}
    for at in range(4)
}


def test_equal_hosts_give_no_caution() -> None:
    assert list(host_difference_cautions("r", HOSTS)) == [] and list(host_difference_cautions("r", {})) == []


def test_differences_are_named_with_their_hosts() -> None:
    odd = {**HOSTS, "node2": {**HOSTS["node2"], "packages": "numpy=2.4 torch=2.11.0", "memory_bytes": str(256 * 2**30)}}
    assert set(host_differences(odd)) == {"torch", "memory_bytes"}
    (caution,) = host_difference_cautions("r", odd)
    assert caution.kind == "unlike_hosts" and "torch (2.11.0 on node2, 2.13.0 on node0, node1, node3)" in caution.text
    assert caution.numbers["hosts"] == 1


def test_of_many_differences_the_first_are_named_and_the_rest_counted() -> None:
    packages = {f"p{at}": ("1.0", "2.0") for at in range(MAX_NAMED + 2)}
    old, new = (" ".join(f"{name}={versions[at]}" for name, versions in packages.items()) for at in (0, 1))
    (caution,) = host_difference_cautions("r", {"node0": {"packages": old}, "node1": {"packages": new}})
    assert caution.numbers["facts"] == MAX_NAMED + 2 and "and 2 more facts" in caution.text


def test_hardware_and_not_host_names_make_the_fingerprint() -> None:
    plain = Provenance(host="head", cpu="EPYC")
    alike = replace(plain, hosts=HOSTS)
    renamed = replace(plain, hosts={f"x{name}": facts for name, facts in HOSTS.items()})
    other = replace(plain, hosts={**HOSTS, "node2": {**HOSTS["node2"], "packages": "numpy=2.4 torch=2.11.0"}})
    assert compute_fingerprint(alike) == compute_fingerprint(renamed) != compute_fingerprint(other)
    assert compute_fingerprint(plain) != compute_fingerprint(alike)
