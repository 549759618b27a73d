"""A host whose processors are taken by others."""

from __future__ import annotations

import numpy as np

from tests.unit.analyse.test_uneven import causes, host


def test_time_that_the_machine_below_took() -> None:
    found = causes(on=host(cpu_steal_pct=np.tile([0.0, 30.0], 30)))
    assert list(found) == ["host_steal"]
    assert "15 % of the processors' time (up to 30 % in a sample, n = 60, steps 0 to 299)" in found["host_steal"].text


def test_processors_busy_with_what_is_not_the_run() -> None:
    busy = np.where(np.arange(60) < 30, 96.0, 30.0)
    found = causes(on=host(cpu_user_pct=busy))
    assert list(found) == ["host_load"]
    assert found["host_load"].numbers["contended_ratio"] == 0.5 and "End what else runs there" in found["host_load"].text


def test_a_run_that_uses_the_host_itself_is_no_neighbour() -> None:
    assert causes(on=host(cpu_user_pct=95.0, tree_cpu_pct=790.0, load1=8.2)) == {}


def test_more_processes_than_processors() -> None:
    found = causes(on=host(cpu_user_pct=95.0, tree_cpu_pct=780.0, load1=20.0))
    assert "20.0 processes wanted to run on 8 processors" in found["host_load"].text and "num_workers" in found["host_load"].text


def test_whose_load_it_is_cannot_be_told_without_the_number_of_processors() -> None:
    assert causes(on=host(cpu_user_pct=96.0), cores=None) == {}
    assert causes(on=host(cpu_user_pct=96.0).drop("tree_cpu_pct")) == {}


def test_few_samples_name_nothing() -> None:
    assert "host_load" not in causes(on=host(9, cpu_user_pct=96.0))
    assert "host_steal" not in causes(on=host(9, cpu_steal_pct=50.0))
