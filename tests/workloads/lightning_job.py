"""A tiny Lightning training with Seatrial's callback.

python lightning_job.py --package lightning.pytorch --strategy ddp --devices 2
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from typing import Any

SCRIPT_STEPS = 12


def line_for(package: str) -> Any:
    """The smallest module that a Trainer takes, of the package whose Trainer it is for."""
    import torch

    class Line(import_module(package).LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.error(batch)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.error(batch)

        def error(self, batch: Any) -> Any:
            rows, sums = batch
            return torch.nn.functional.mse_loss(self.layer(rows), sums)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self) -> Any:
            return self._loader(256)

        def val_dataloader(self) -> Any:
            return self._loader(16)

        def _loader(self, count: int) -> Any:
            rows = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=4)

    return Line


def __getattr__(name: str) -> Any:
    """`Line` of the newer package, created on first use: importing this module imports no torch."""
    if name == "Line":
        return line_for("lightning.pytorch")
    raise AttributeError(name)


def trainer_for(package: str, callbacks: list[Any], **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "devices": 1}
    return import_module(package).Trainer(callbacks=callbacks, **{**quiet, "max_epochs": -1, **options})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", default="lightning.pytorch")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=SCRIPT_STEPS)
    parser.add_argument("--slow_rank", type=int, default=None, help="whose forward takes 20 ms more")
    args = parser.parse_args()
    module = line_for(args.package)()
    if args.slow_rank is not None:
        module.layer.register_forward_pre_hook(lambda *_: time.sleep(0.02 * (module.training and module.global_rank == args.slow_rank)))
    from seatrial.probe.lightning import SeatrialCallback

    options = {"strategy": args.strategy, "devices": args.devices, "max_steps": args.steps, "enable_checkpointing": False}
    trainer_for(args.package, [SeatrialCallback()], **options).fit(module)


if __name__ == "__main__":
    main()
