"""A tiny Hugging Face Trainer job with Seatrial's callback.

torchrun --nproc_per_node 2 hf_job.py --steps 40 --slow_rank 1
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from seatrial.probe.hf import SeatrialCallback


class Line(torch.nn.Module):
    """A line through rows of four numbers; its forward takes `wait_s` more."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self._wait_s = wait_s

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        time.sleep(self._wait_s)
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--slow_rank", type=int, default=None, help="whose forward takes 20 ms more")
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = torch.randn(1024, 4)
    data = [{"x": row, "labels": row.sum().reshape(1)} for row in rows]
    is_slow = args.slow_rank is not None and int(os.environ.get("RANK", "0")) == args.slow_rank
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(model=Line(0.02 * is_slow), args=options, train_dataset=data, callbacks=[SeatrialCallback()]).train()


if __name__ == "__main__":
    main()
