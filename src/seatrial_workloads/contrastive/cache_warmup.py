"""Fill the caches that a run would fill in its start-up: DeepSpeed's ops and torch.compile's kernels; and try flash attention.

    python -m seatrial_workloads.contrastive.cache_warmup '[{"engine": "deepspeed", "torch_compile": true, "micro_batch": 128}]'

    {"results": [{"what": "ops", "ok": true, "found": "FusedAdam built, /root/.cache/…/fused_adam", "took_s": 61.2}]}

In: the settings of every run, as JSON. Out: one JSON line, last on stdout; one rank is enough, since every rank of a host reads the same
caches. `seatrial doctor PLAN --warm` starts it on each host. No data is read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

from seatrial.core.linux import set_parent_death_signal
from seatrial_workloads.common.errors import summarize_error
from seatrial_workloads.contrastive.settings import Settings

FLASH = "flash_attention_2"
ALONE = "--compile"
# What does not change the compiled function.
NOT_COMPILED = {
    "steps": 1,
    "seed": 0,
    "num_workers": 0,
    "resume_from": None,
    "validation_every_steps": None,
    "checkpoint_every_steps": None,
}

Result = dict[str, Any]


def main(argv: list[str]) -> None:
    end_with_parent()
    known = {field.name for field in fields(Settings)}
    runs = [Settings(**{name: value for name, value in given.items() if name in known}) for given in json.loads(argv[-1])]
    actions = [("compile", lambda: compile_once(runs[0]))] if argv[0] == ALONE else warm_actions(runs)
    results = [_timed(what, action) for what, action in actions]
    print(json.dumps({"results": results}), flush=True)
    # Libraries that were loaded for a moment may hang in their own exit handlers.
    sys.stdout.flush()
    os._exit(0)


def end_with_parent() -> None:
    """End the compiler too when the doctor is interrupted, and release the build lock, for which a run would wait."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGTERM)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    set_parent_death_signal(signal.SIGTERM)


def warm_actions(runs: list[Settings]) -> Iterator[tuple[str, Callable[[], tuple[bool, str]]]]:
    """The actions for these runs, each once."""
    for torch_adam, device in sorted({(run.torch_adam, run.device) for run in runs if run.engine == "deepspeed"}, key=str):
        yield "ops", lambda torch_adam=torch_adam, device=device: build_ops(torch_adam, device)
    compiled = {replace(run, **NOT_COMPILED) for run in runs if run.torch_compile}
    for run in sorted(compiled, key=str):
        yield f"compile z{run.zero_stage} mb{run.micro_batch}", lambda run=run: _compile_alone(run)
    if flash := next((run for run in runs if FLASH in (run.attn_impl, run.speech_attn_impl, run.text_attn_impl)), None):
        yield "flash", lambda: try_flash(flash)


def _timed(what: str, action: Callable[[], tuple[bool, str]]) -> Result:
    began_m = time.monotonic()
    try:
        ok, found = action()
    # A build can fail in any way; the others are tried all the same.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        ok, found = False, summarize_error(error) if isinstance(error, Exception) else str(error)
    return {"what": what.partition(" ")[0], "of": what.partition(" ")[2], "ok": ok, "found": found, "took_s": time.monotonic() - began_m}


def _on_gpu(device: str) -> bool:
    import torch

    return device != "cpu" and torch.cuda.is_available()


def build_ops(torch_adam: bool | None, device: str) -> tuple[bool, str]:
    """The ops that DeepSpeed compiles on first use."""
    on_gpu = _on_gpu(device)
    if not on_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from seatrial_workloads.common.engines.adam import build_fused_adam

    return build_fused_adam(torch_adam, on_gpu=on_gpu)


def _compile_alone(settings: Settings) -> tuple[bool, str]:
    """Compile in a separate process: DeepSpeed can be started only once in a process."""
    argv = [sys.executable, "-P", "-m", "seatrial_workloads.contrastive.cache_warmup", ALONE, json.dumps([asdict(settings)])]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        return False, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    (result,) = json.loads(done.stdout.splitlines()[-1])["results"]
    return result["ok"], result["found"]


def compile_once(settings: Settings) -> tuple[bool, str]:
    """The one-time work of a training, without its data."""
    from seatrial_workloads.common.distributed import rank_context
    from seatrial_workloads.contrastive.train import Trainer

    class WithoutData(Trainer):
        def _load_data(self) -> None:
            """No batch is read."""

    with tempfile.TemporaryDirectory() as folder, rank_context(Path(folder), settings.device, settings.steps) as context:
        trainer = WithoutData(settings, context)
        try:
            trainer.model.train()
            trainer.compile_and_capture()
        finally:
            trainer.close()
    choice = trainer.choices["torch_compile"]
    return bool(choice.effective), choice.reason if choice.effective else f"not compiled: {choice.reason}"


def try_flash(settings: Settings) -> tuple[bool, str]:
    """Whether flash attention runs here, by one call of it."""
    if not _on_gpu(settings.device):
        return False, "no GPU: sdpa is used instead"
    import torch
    from flash_attn import flash_attn_func

    query = torch.zeros(1, 16, 2, 64, device="cuda", dtype=torch.bfloat16)
    flash_attn_func(query, query, query)
    torch.cuda.synchronize()
    return True, "one call ran"


if __name__ == "__main__":
    main(sys.argv[1:])
