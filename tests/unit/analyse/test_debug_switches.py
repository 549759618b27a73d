"""Which debug settings make two measurements unlike."""

from __future__ import annotations

from seatrial.analyse.debug_switches import switched_on


def test_two_traces_into_two_files_are_one_thing() -> None:
    assert switched_on(["TRACE_FILE=/a"]) == switched_on(["TRACE_FILE=/b"]) == {("TRACE_FILE", "")}


def test_levels_are_told_apart_however_they_are_written() -> None:
    assert switched_on(["NCCL_DEBUG=INFO"]) == switched_on(["NCCL_DEBUG= info "]) == {("NCCL_DEBUG", "info")}
    assert switched_on(["NCCL_DEBUG=INFO"]) != switched_on(["NCCL_DEBUG=WARN"])
    assert switched_on(["TORCH_DISTRIBUTED_DEBUG=DETAIL"]) != switched_on(["TORCH_DISTRIBUTED_DEBUG=INFO"])


def test_a_value_with_an_equals_sign_and_none_at_all() -> None:
    assert switched_on(["NCCL_DEBUG=a=B", "PLAIN"]) == {("NCCL_DEBUG", "a=b"), ("PLAIN", "")}
    assert switched_on([]) == frozenset()
