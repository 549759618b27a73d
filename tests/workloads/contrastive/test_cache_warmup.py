"""Caches that are filled before a run, on CPU: what can be built is built, what cannot is said."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from seatrial_workloads.common.engines.adam import is_left_over  # noqa: E402
from seatrial_workloads.contrastive import cache_warmup  # noqa: E402
from seatrial_workloads.contrastive.model import fast_paths  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402
from tests.harness import skip_without  # noqa: E402

TINY = {"device": "cpu", "speech_model": "tiny", "text_model": "tiny", "micro_batch": 2, "torch_compile": True}


def test_the_tower_is_compiled_without_data_and_a_failure_is_its_reason(monkeypatch, tmp_path):
    missing = Settings(**TINY, dataset_root=str(tmp_path / "missing"))
    plain = fast_paths.compile_or_fall_back
    monkeypatch.setattr(fast_paths, "compile_or_fall_back", functools.partial(plain, backend="aot_eager"))
    torch._dynamo.reset()
    assert cache_warmup.compile_once(missing) == (True, "compiled, mode default, every batch padded to 149 frames")

    def broken(graph, inputs):
        raise ValueError("a broken compiler")

    monkeypatch.setattr(fast_paths, "compile_or_fall_back", functools.partial(plain, backend=broken))
    torch._dynamo.reset()
    ok, found = cache_warmup.compile_once(missing)
    assert not ok and "a broken compiler" in found


def test_each_thing_is_done_once_for_all_runs():
    runs = [Settings(**{**TINY, "engine": "deepspeed", "zero_stage": stage, "seed": seed}) for stage in (0, 1) for seed in (1, 2)]
    assert [what for what, _ in cache_warmup.warm_actions(runs)] == ["ops", "compile z0 mb2", "compile z1 mb2"]
    assert [what for what, _ in cache_warmup.warm_actions([Settings(attn_impl="flash_attention_2")])] == ["flash"]
    assert list(cache_warmup.warm_actions([Settings()])) == []


def test_on_a_machine_without_a_gpu_the_results_say_so():
    skip_without("deepspeed")
    runs = [{"device": "cpu", "engine": "deepspeed", "attn_impl": "flash_attention_2", "unknown setting": 1}]
    argv = [sys.executable, "-m", "seatrial_workloads.contrastive.cache_warmup", json.dumps(runs)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, start_new_session=True)
    ops, flash = json.loads(done.stdout.splitlines()[-1])["results"]
    assert (ops["what"], ops["ok"], flash["what"], flash["ok"]) == ("ops", True, "flash", False)
    assert "no GPU" in ops["found"] and "no GPU" in flash["found"] and ops["took_s"] > 0


def test_a_lock_of_a_killed_build_is_found_and_one_in_use_is_not(tmp_path: Path):
    lock = tmp_path / "lock"
    assert not is_left_over(lock)
    with lock.open("w"):
        assert not is_left_over(lock)
    assert is_left_over(lock)


def test_what_it_started_ends_with_it(tmp_path: Path):
    program = (
        "import os, subprocess, sys\nfrom seatrial_workloads.contrastive import cache_warmup\ncache_warmup.end_with_parent()\n"
        "child = subprocess.Popen(['sleep', '600'])\nprint(child.pid, flush=True)\nchild.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    with pytest.raises(ProcessLookupError):
        # A zombie of another parent is gone once init has collected it.
        for _ in range(10_000):
            os.kill(child, 0)
            os.sched_yield()
