"""The engines that generate inputs: atheris (coverage-guided) or hypothesis.

In: a target's name and a time. Out: a line `FUZZED runs=N`, and the input that crashed under the output folder, if one did.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
import time
from pathlib import Path

STARTUP_S = 90.0
"""For a target to start and to end."""
SLOWEST_S = 10
"""Longest time for one input."""
LONGEST_BYTES = 8192


def slug(name: str) -> str:
    """File name of a target."""
    return re.sub(r"[^a-z]+", "-", name.lower()).strip("-")


def run(engine: str, name: str, seconds: float, output: Path) -> None:
    """Fuzz one target in this process."""
    (_run_atheris if engine == "atheris" else _run_hypothesis)(name, seconds, output)


def _run_atheris(name: str, seconds: float, output: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["seatrial"]):
        from tests.fuzz import scratch, targets
    target = targets.all_targets()[name]
    corpus = scratch.folder() / "corpus"
    corpus.mkdir()
    for number, data in enumerate(target.corpus):
        (corpus / str(number)).write_bytes(data)
    options = [f"-max_total_time={max(1, round(seconds))}", f"-timeout={SLOWEST_S}", f"-max_len={LONGEST_BYTES}", "-rss_limit_mb=4096"]
    options += [f"-artifact_prefix={output}/{slug(name)}-", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: targets.taken(target, data))
    atheris.Fuzz()


def _run_hypothesis(name: str, seconds: float, output: Path) -> None:
    import hypothesis
    from hypothesis import strategies as st

    from tests.fuzz import targets

    target = targets.all_targets()[name]
    runs, newest, end_m = 0, b"", time.monotonic() + seconds
    inputs = st.one_of(
        st.binary(max_size=LONGEST_BYTES), st.builds(changed, st.sampled_from(target.corpus or (b"",)), st.randoms(use_true_random=False))
    )

    def one(data: bytes) -> None:
        nonlocal runs, newest
        runs, newest = runs + 1, data
        began_m = time.monotonic()
        targets.taken(target, data)
        assert time.monotonic() - began_m < SLOWEST_S, "it took too long"

    try:
        for seed in iter(lambda: runs, -1):
            if time.monotonic() >= end_m:
                break
            settings = hypothesis.settings(
                max_examples=100, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
            )
            hypothesis.seed(seed)(settings(hypothesis.given(inputs)(one)))()
    except BaseException:
        (output / f"{slug(name)}-{hashlib.sha256(newest).hexdigest()[:16]}.bin").write_bytes(newest)
        raise
    finally:
        print(f"FUZZED runs={runs}", flush=True)


def changed(data: bytes, chance: random.Random) -> bytes:
    """A damaged copy: parts removed, doubled, or replaced by other bytes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at, length = chance.randint(0, len(changed)), chance.randint(0, 40)
        part = bytes(changed[at : at + length])
        new = chance.choice(
            [b"", part + part, chance.randbytes(length), b"\0" * length, b"9" * (10 * length), b"NaN", b"-1", b"1e999", b'"', b"[", b"\n"]
        )
        changed[at : at + length] = new
    return bytes(changed[:LONGEST_BYTES])
