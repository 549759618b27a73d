"""A host whose processors are taken by others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.uneven_host import host_causes
from seatrial.analyse.uneven_span import Span
from seatrial.records.health import UnevenCause
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


def of_host(cores: int | None = 4, samples: int = 20, **columns: float | list[float | None]) -> list[UnevenCause]:
    """Causes of a table of these columns, each a value or one a sample."""
    told = {name: value if isinstance(value, list) else [value] * samples for name, value in columns.items()}
    table = pl.DataFrame({"epoch_sec": [float(at) for at in range(samples)], **told}, strict=False)
    return list(host_causes(table, Span(), cores))


BUSY: dict[str, float] = {"cpu_user_pct": 90.0, "cpu_system_pct": 5.0, "load1": 4.0}


@pytest.mark.parametrize(("steal", "said"), [(5.0, False), (5.1, True)])
def test_from_where_on_stolen_time_matters(steal: float, said: bool) -> None:
    found = of_host(cpu_steal_pct=steal)
    assert bool(found) is said
    assert [cause.numbers["steal_max_pct"] for cause in found] == [steal] * said
    assert [cause.strength for cause in found] == [pytest.approx(0.051)] * said


def test_samples_that_do_not_tell_are_not_counted() -> None:
    assert of_host(cpu_steal_pct=[50.0] * 9 + [None] * 11) == []
    (found,) = of_host(cpu_steal_pct=[50.0] * 10 + [None] * 10)
    assert found.n == 10 and found.file == "host_telemetry.csv"
    assert of_host(**BUSY, tree_cpu_pct=[100.0] * 9 + [None] * 11) == []
    assert len(of_host(**BUSY, tree_cpu_pct=[100.0] * 10 + [None] * 10)) == 1


@pytest.mark.parametrize(("own", "said"), [(300.0, True), (304.0, False)])
def test_others_must_take_a_fifth_of_all_processors(own: float, said: bool) -> None:
    """95 % of 4 processors are busy; 300 % of one are 75 % of all."""
    assert bool(of_host(**BUSY, tree_cpu_pct=own)) is said


@pytest.mark.parametrize(("busy_samples", "said"), [(3, False), (4, True)])
def test_others_must_take_it_in_a_fifth_of_the_samples(busy_samples: int, said: bool) -> None:
    user = [90.0] * busy_samples + [10.0] * (20 - busy_samples)
    found = of_host(cpu_user_pct=user, cpu_system_pct=0.0, tree_cpu_pct=40.0, load1=1.0)
    assert bool(found) is said
    assert not found or found[0].numbers == {"contended_ratio": 0.2, "others_pct": 80.0, "own_pct": 10.0, "cores": 4}


@pytest.mark.parametrize(("load", "said"), [(5.9, False), (6.0, True)])
def test_three_processes_for_two_processors_are_a_crowd(load: float, said: bool) -> None:
    found = of_host(cpu_user_pct=90.0, cpu_system_pct=0.0, tree_cpu_pct=360.0, load1=load)
    assert bool(found) is said
    assert [cause.numbers for cause in found] == [{"load": 6.0, "busy_ratio": 1.0, "own_pct": 90.0, "cores": 4}] * said
    assert [cause.strength for cause in found] == [pytest.approx(1 / 3)] * said


def test_a_crowd_in_half_of_the_samples_and_with_a_load_that_is_known() -> None:
    half = [95.0] * 10 + [10.0] * 10
    crowd = {"cpu_user_pct": half, "cpu_system_pct": 0.0, "tree_cpu_pct": 380.0}
    assert of_host(**crowd, load1=8.0)[0].numbers["busy_ratio"] == 0.5
    assert of_host(**{**crowd, "cpu_user_pct": [95.0] * 9 + [10.0] * 11}, load1=8.0) == []
    assert of_host(**crowd, load1=[8.0] * 19 + [None]) == []
