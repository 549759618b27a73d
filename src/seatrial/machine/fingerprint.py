"""What must be alike for two runs to be averaged. Pure: a `Provenance` in, a short hash and the facts behind it out.

docs/files.md says under "The fingerprint" what is in it, what is not, and why.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from seatrial.records.command import Provenance

# Of these the set of values counts: the same kind of card in another slot, or one more of it, is no other machine.
GPU_FIELDS = ("gpu_name", "gpu_cc", "gpu_power_limit_w")
# Not among them: the serial numbers of GPUs (a like card is a like card), addresses, and git_dirty (git_diff_sha256 says it better).
FINGERPRINT_FIELDS = (
    "host",
    "platform",
    "cpu",
    "cpu_count",
    "container",
    *GPU_FIELDS,
    "driver_version",
    "cuda",
    "cudnn",
    "nccl",
    "python",
    "git_commit_hash",
    "git_diff_sha256",
    "variables",
)
# Packages that run in the step: another version of one is other code.
FINGERPRINT_PACKAGES = (
    "accelerate",
    "apex",
    "bitsandbytes",
    "deepspeed",
    "flash-attn",
    "flash-linear-attention",
    "lightning",
    "megatron-core",
    "peft",
    "pytorch-lightning",
    "torch",
    "transformer-engine",
    "transformers",
    "triton",
    "vllm",
    "xformers",
)
HASH_LENGTH = 12
# What a host of many tells of itself that says nothing of its make.
OF_ONE_HOST = frozenset({"host", "hostname", "name", "addresses", "nics", "gpu_uuid_list", "memory_bytes", "boot_id", "pid", "user"})


def fingerprint(provenance: Provenance) -> str:
    """Short hash over everything that `fingerprint_facts` gives."""
    return short_hash(fingerprint_facts(provenance))


def fingerprint_facts(provenance: Provenance) -> dict[str, Any]:
    """Name → value of every fact that counts, as it counts."""
    facts: dict[str, Any] = {name: getattr(provenance, name) for name in FINGERPRINT_FIELDS}
    facts.update({name: _kinds(getattr(provenance, name)) for name in GPU_FIELDS})
    # A container started again has another id.
    facts["container"] = provenance.container.partition(" ")[0]
    facts["packages"] = {name: provenance.packages[name] for name in FINGERPRINT_PACKAGES if name in provenance.packages}
    if provenance.hosts:
        # The set of makes: another host of the same make is no other machine. Without hosts nothing, so that older hashes stay.
        facts["hosts"] = sorted({json.dumps(make_of(host), sort_keys=True) for host in provenance.hosts.values()})
    return facts


def make_of(host: Mapping[str, str]) -> dict[str, str]:
    """What of a host's own facts says of what make it is."""
    return {name: str(value) for name, value in host.items() if name not in OF_ONE_HOST}


def parted_by(before: Provenance, after: Provenance) -> dict[str, tuple[str, str]]:
    """The facts in which two fingerprints differ, each with its two values, empty where there is none: `torch` → `2.12.0`, `2.13.0`."""
    old, new = (_flat(fingerprint_facts(provenance)) for provenance in (before, after))
    return {name: (old.get(name, ""), new.get(name, "")) for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)}


def short_hash(value: Any) -> str:
    """The first digits of a hash over any JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:HASH_LENGTH]


def _flat(facts: Mapping[str, Any]) -> dict[str, str]:
    """Every fact under its own name, as text."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        flat.update(value if isinstance(value, dict) else {name: ";".join(value) if isinstance(value, list) else str(value)})
    return flat


def _kinds(column: str) -> list[str]:
    """The different values of a column such as `0:9.0;1:9.0`, without the slots."""
    return sorted({re.sub(r"^\d+:", "", value) for value in column.split(";")})
