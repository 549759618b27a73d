"""Batches made ahead, and the word for the record where none are."""

from __future__ import annotations

from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.made_ahead import prefetch_for, told_of_prefetch


def test_with_workers_it_is_as_asked_and_nothing_is_said() -> None:
    assert prefetch_for(2, 4) == 4 and told_of_prefetch(2, 4) == {}


def test_without_workers_torch_is_given_none_and_the_record_says_why() -> None:
    assert prefetch_for(0, 4) is None
    assert told_of_prefetch(0, 4) == {"prefetch_factor": Choice(4, None, "num_workers is 0: nothing is made ahead")}
