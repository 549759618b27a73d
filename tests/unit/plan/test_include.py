"""`place.include` where there is no hostfile."""

from __future__ import annotations

import pytest

from seatrial.plan.include import devices_in


@pytest.mark.parametrize(
    ("include", "devices"),
    [
        ("localhost:0", ("0",)),
        (" localhost:0,1 ", ("0", "1")),
        ("127.0.0.1:3, 1", ("3", "1")),
        ("localhost:GPU-aa11,MIG-b/2", ("GPU-aa11", "MIG-b/2")),
    ],
)
def test_the_ids_in_the_order_they_are_named(include: str, devices: tuple[str, ...]) -> None:
    assert devices_in(include) == devices


@pytest.mark.parametrize(
    ("include", "says"),
    [
        ("", "names no GPUs; write localhost:0"),
        ("localhost", "names no GPUs"),
        ("localhost:", "names no GPUs"),
        (":0,1", "names no GPUs"),
        ("localhost:0,0", "names a GPU twice"),
        ("localhost:0,", "'' is not a GPU id"),
        ("localhost:0-3", "'0-3' is not a GPU id"),
        ("node1:0", "'node1' is another host; write `kind: hostfile`"),
        ("localhost:0@node2:1", "'node2' is another host"),
        ("localhost:0@127.0.0.1:1", "names several hosts that are all this machine"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(include: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        devices_in(include)
