"""NCCL's way of naming interfaces, and Gloo's."""

from __future__ import annotations

import pytest

from seatrial.machine.nic_names import gloo_names, interface_variables, only_name, taken_by_gloo, taken_by_nccl

HERE = ("lo", "docker0", "eth0", "eth1", "eth10", "ib0")


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth", []),
        ("ib,eth0", ["eth0", "ib0"]),
        ("=ib0,eth0", ["eth0", "ib0"]),
        ("^lo,docker", ["eth0", "eth1", "eth10", "ib0"]),
        ("^eth", ["lo", "docker0", "ib0"]),
        ("^=eth1", ["lo", "docker0", "eth0", "eth10", "ib0"]),
        ("^=lo,docker", ["docker0", "eth0", "eth1", "eth10", "ib0"]),
        ("ib0:1", ["ib0"]),
        ("", list(HERE)),
        ("^", list(HERE)),
        (" eth0 , ib ", ["eth0", "ib0"]),
        ("wlan", []),
    ],
)
def test_nccl(text: str, taken: list[str]) -> None:
    assert taken_by_nccl(text, HERE) == taken


def test_gloo_takes_whole_names_only() -> None:
    assert taken_by_gloo("eth0,ib0", HERE) == ["eth0", "ib0"]
    assert taken_by_gloo("eth", HERE) == [] == taken_by_gloo("^lo", HERE)
    assert gloo_names("eth0, ib0,") == ["eth0", "ib0"]


@pytest.mark.parametrize(
    ("text", "name"), [("eth0", "eth0"), ("=eth0", "eth0"), ("eth0,ib0", ""), ("^lo", ""), ("", ""), ("^=lo", ""), ("ib0:1", "ib0")]
)
def test_the_one_name_that_both_understand(text: str, name: str) -> None:
    assert only_name(text) == name


@pytest.mark.parametrize(
    ("grammar", "variables"),
    [
        ("", {}),
        ("eth0", {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}),
        ("=eth0", {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}),
        ("eth,ib", {"NCCL_SOCKET_IFNAME": "eth,ib"}),
        ("^lo,docker", {"NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ("^lo", {"NCCL_SOCKET_IFNAME": "^lo"}),
    ],
)
def test_gloo_is_told_one_plain_name_alone(grammar: str, variables: dict[str, str]) -> None:
    assert interface_variables(grammar) == variables
