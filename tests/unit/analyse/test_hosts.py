"""Samples of many hosts, told apart."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.analyse.hosts import gpu_name, of_hosts, strongest
from seatrial.records.health import UnevenCause
from seatrial.records.telemetry import GPUS_A_HOST

HOSTS = ("node1", "node2")


@pytest.mark.parametrize(
    ("index", "hosts", "name"), [(3, (), 3), (0, HOSTS, "node1:0"), (GPUS_A_HOST, HOSTS, "node2:0"), (GPUS_A_HOST + 7, HOSTS, "node2:7")]
)
def test_name_of_a_gpu(index: float, hosts: tuple[str, ...], name: int | str) -> None:
    assert gpu_name(index, hosts) == name


def test_a_gpu_of_a_host_that_nobody_named_keeps_its_number() -> None:
    assert gpu_name(2 * GPUS_A_HOST, HOSTS) == 2 * GPUS_A_HOST


def test_of_one_host_the_table_is_as_it_is() -> None:
    table = pl.DataFrame({"load1": [1.0]})
    assert [(name, rows is table) for name, rows in of_hosts(table, ())] == [("", True)]


def test_nothing_of_no_samples() -> None:
    assert list(of_hosts(None, HOSTS)) == [] == list(of_hosts(pl.DataFrame({"load1": []}), HOSTS))


def test_rows_go_to_their_host_and_a_silent_host_is_left_out() -> None:
    of_host = pl.DataFrame({"host_index": [1, 0, 1], "load1": [1.0, 2.0, 3.0]})
    assert [(name, rows["load1"].to_list()) for name, rows in of_hosts(of_host, HOSTS)] == [("node1", [2.0]), ("node2", [1.0, 3.0])]
    of_gpu = pl.DataFrame({"gpu_index": [GPUS_A_HOST, GPUS_A_HOST + GPUS_A_HOST - 1], "power_w": [1.0, 2.0]})
    assert [(name, rows["power_w"].to_list()) for name, rows in of_hosts(of_gpu, HOSTS)] == [("node2", [1.0, 2.0])]


def cause(kind: str, strength: float, text: str = "It was hot.") -> UnevenCause:
    return UnevenCause(kind=kind, text=text, numbers={"gpu": 1}, strength=strength)


def test_of_each_kind_the_host_that_shows_it_most() -> None:
    weak, strong, other = cause("thermal", 0.2), cause("thermal", 0.9), cause("host_load", 0.1, "Busy.")
    found = list(strongest([("node2", weak), ("node1", strong), ("node1", other)]))
    assert [one.text for one in found] == ["Host node1: It was hot. So it is on 1 more of the hosts.", "Host node1: Busy."]
    assert found[0].numbers == {"gpu": 1, "host": "node1", "hosts": 2} and found[0].strength == 0.9


def test_where_there_is_one_host_its_cause_is_told_as_it_is() -> None:
    one = cause("thermal", 0.2)
    assert list(strongest([("", one)])) == [one]
    assert list(strongest([])) == []
