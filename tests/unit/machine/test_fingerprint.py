"""The fingerprint: what makes two machines unlike, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seatrial.machine.fingerprint import FINGERPRINT_FIELDS, FINGERPRINT_PACKAGES, HASH_LENGTH, fingerprint, parted_by, short_hash
from seatrial.machine.packages import RECORDED_PACKAGES
from seatrial.records.codec import from_json
from seatrial.records.command import Provenance

PLAIN = Provenance(host="a", gpu_cc="0:9.0;1:9.0", packages={"torch": "2.13.0"}, variables={"NCCL_ALGO": "Ring"}, container="docker 0a1b")


@pytest.mark.parametrize("name", FINGERPRINT_FIELDS)
def test_every_field_counts(name: str) -> None:
    other = replace(PLAIN, **{name: {"NCCL_ALGO": "Tree"} if name == "variables" else "other"})
    assert fingerprint(other) != fingerprint(PLAIN)
    assert list(parted_by(PLAIN, other)) == ["NCCL_ALGO" if name == "variables" else name]


@pytest.mark.parametrize("name", FINGERPRINT_PACKAGES)
def test_every_package_of_the_step_counts(name: str) -> None:
    other = replace(PLAIN, packages={**PLAIN.packages, name: "9.9"})
    assert parted_by(PLAIN, other) == {name: (PLAIN.packages.get(name, ""), "9.9")}
    assert name in RECORDED_PACKAGES, "one that is not recorded could never count"


@pytest.mark.parametrize(
    "changes",
    [
        {"git_dirty": "true"},
        {"git_branch": "other"},
        {"gpu_uuid_list": "GPU-1"},
        {"gpu_cc": "3:9.0"},
        {"nics": {"eth0": "down"}},
        {"memory_bytes": 1},
        {"container": "docker ffff"},
        {"environment": {"HF_HOME": "/x"}},
        {"plan_hash": "1"},
        {"packages": {"torch": "2.13.0", "rich": "1", "hydra-core": "1.3"}},
    ],
)
def test_what_repeats_may_differ_in_does_not_count(changes: dict[str, object]) -> None:
    other = replace(PLAIN, **changes)  # type: ignore[arg-type]
    assert fingerprint(other) == fingerprint(PLAIN)
    assert parted_by(PLAIN, other) == {}


def test_provenance_of_an_earlier_version_can_be_read_and_compared() -> None:
    old = from_json(Provenance, {"host": "a", "packages": {"torch": "2.13.0"}, "fingerprint": "0123456789ab"})
    assert old.fingerprint == "0123456789ab" and old.git_diff_sha256 == "" and old.nics == {}
    assert parted_by(old, replace(old, cuda="13.0", fingerprint="f")) == {"cuda": ("", "13.0")}


def test_short_hash_does_not_know_the_order_of_keys() -> None:
    assert short_hash({"a": 1, "b": [2]}) == short_hash({"b": [2], "a": 1}) != short_hash({"a": 1, "b": [3]})
    assert len(short_hash({})) == HASH_LENGTH
