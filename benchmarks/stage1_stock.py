"""The stock baseline of `stage1_speed`: transformers' own modules, autocast, fused AdamW, tensors already on the GPU.

    python benchmarks/stage1_stock.py --compiled false --micro_batch 160 --seconds 2.0 --steps 15

    {"step_ms": 79.1, "samples_per_s": 2022.8, "n": 15, "peak_gib": 8.4}

No data is loaded, and all computation is that of transformers. No layers are skipped (layerdrop 0), as in the trainer.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings

import torch
from torch.nn import functional
from transformers import BertConfig, BertModel, Wav2Vec2Config, Wav2Vec2Model

from seatrial_workloads.contrastive.model.speech_text import AttentionPooling

WARM_UP_STEPS = 8
TOKENS = 12
SAMPLE_RATE = 16_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--compiled", choices=("true", "false"), default="false", help="torch.compile of the forward (false)")
    options.add_argument("--micro_batch", type=int, default=160, help="rows per step (160)")
    options.add_argument("--seconds", type=float, default=2.0, help="seconds of audio per row (2.0)")
    options.add_argument("--steps", type=int, default=15, help="timed steps (15)")
    args = options.parse_args()
    # The compiler warns about transformers' own code.
    warnings.simplefilter("ignore")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    step = stock_step(args.micro_batch, round(args.seconds * SAMPLE_RATE), compiled=args.compiled == "true")
    for _ in range(WARM_UP_STEPS):
        step()
    step_ms = statistics.median(timed_ms(step) for _ in range(args.steps))
    print(
        json.dumps(
            {
                "step_ms": round(step_ms, 2),
                "samples_per_s": round(args.micro_batch / step_ms * 1000, 1),
                "n": args.steps,
                "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
            }
        )
    )


def timed_ms(step) -> float:  # type: ignore[no-untyped-def]
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started_s) * 1000


def stock_step(rows: int, samples: int, *, compiled: bool):  # type: ignore[no-untyped-def]
    """An optimiser step, on the same random tensors each time."""
    device = torch.device("cuda")
    speech = Wav2Vec2Model(Wav2Vec2Config(layerdrop=0.0, attn_implementation="sdpa")).to(device).train()
    speech.freeze_feature_encoder()
    text = BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False).to(device).eval().requires_grad_(False)
    pooling = AttentionPooling(768, 768).to(device)
    log_scale = torch.nn.Parameter(torch.tensor(math.log(1 / 0.07), device=device))
    parameters = [parameter for part in (speech, pooling) for parameter in part.parameters() if parameter.requires_grad] + [log_scale]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    audio = torch.randn(rows, samples, device=device)
    token_ids = torch.randint(1000, 30000, (rows, TOKENS), device=device)
    targets = torch.arange(rows, device=device)

    def loss_of() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            spoken = pooling(speech(audio).last_hidden_state, None)
            with torch.no_grad():
                words = text(token_ids).last_hidden_state[:, 0]
        logits = log_scale.exp() * functional.normalize(spoken.float(), dim=-1) @ functional.normalize(words.float(), dim=-1).T
        return (functional.cross_entropy(logits, targets) + functional.cross_entropy(logits.T, targets)) / 2

    forward = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        forward().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
