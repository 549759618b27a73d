"""Files of tensors. In: a path and what to keep. Out: the file, on the disk when the call returns; or its content, without running code.

Everything is read with torch's safe load: a checkpoint from elsewhere must not be able to run anything.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seatrial_workloads.common.startup_error import StartupError

_FOREIGN = re.compile(r"GLOBAL (\S+) was not an allowed global")


class CheckpointError(StartupError):
    """A checkpoint that cannot be written, found or used: what happened, what was expected, what to do."""


def save_tensors(path: Path, content: Any) -> None:
    """Write and wait for the disk."""
    torch.save(content, path)
    flush_to_disk(path)


def flush_to_disk(path: Path) -> None:
    """A file, or a folder with the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_tensors(path: Path, *, also_known: Sequence[type] = ()) -> Any:
    """The content on the CPU; `also_known` are classes it may hold besides tensors and plain values."""
    try:
        with torch.serialization.safe_globals(list(also_known)) if also_known else contextlib.nullcontext():
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: the checkpoint is not whole, take an older one") from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read ({_why(error)}): expected a file of tensors as torch.save writes it") from error


def _why(error: Exception) -> str:
    text = str(error)
    foreign = _FOREIGN.search(text)
    if foreign:
        return f"it holds {foreign[1]}, and loading that could run code"
    return (text.splitlines() or [type(error).__name__])[0]
