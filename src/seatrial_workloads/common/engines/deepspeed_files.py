"""DeepSpeed's checkpoint files, written and read our way. In: its engine. Out: files that are on the disk, loads that run no code.

Between two files DeepSpeed has all ranks wait for each other: a rank that failed there would leave the others waiting. So failures are kept
and raised when all are through.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial_workloads.common.checkpoints.saved_tensors import load_tensors, save_tensors


class CheckpointFiles:
    """Takes the place of the engine's own ways to write and read a file."""

    def __init__(self, engine: Any) -> None:
        self._failure: Exception | None = None
        self._copy_recovery_script = engine._copy_recovery_script
        put_in_place(engine, "_copy_recovery_script", self.copy_recovery_script)
        put_in_place(engine.checkpoint_engine, "save", self.save)
        put_in_place(engine.checkpoint_engine, "load", self.load)

    def save(self, state_dict: Any, path: str) -> None:
        with self._kept():
            save_tensors(Path(path), state_dict)

    def copy_recovery_script(self, folder: str) -> None:
        """zero_to_fp32.py, beside the checkpoints."""
        with self._kept():
            self._copy_recovery_script(folder)

    def load(self, path: str, map_location: Any = None) -> Any:
        return load_tensors(Path(path), also_known=known_classes())

    @contextlib.contextmanager
    def failing_later(self) -> Iterator[None]:
        """Raise at the end what failed on the way."""
        self._failure = None
        yield
        if self._failure is not None:
            raise self._failure

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._failure = self._failure or error


def put_in_place(owner: Any, name: str, value: Any) -> None:
    """Take the place of something of DeepSpeed's that is not meant to be replaced: under another name it would be in vain, silently."""
    if not hasattr(owner, name):
        import deepspeed

        raise RuntimeError(f"DeepSpeed {deepspeed.__version__} has no {type(owner).__name__}.{name}: install 0.19.8, where it was tried")
    setattr(owner, name, value)


def known_classes() -> list[type]:
    """What DeepSpeed puts into its files besides tensors and plain values: numbers under a name, none of which runs anything."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
